/* Chunks are divided into as many groups as threads can use. */
#include "codec/streams.h"

#include <string.h>

#include "kernels/ranges.h"

typedef struct stream_writing {
    uint64_t chunks;
    size_t groups, bound;
    tg_chunk_writer *write;
    void *context;
    uint8_t *at;
    tg_stream *written; /* by each group */
} stream_writing;

static uint64_t first_chunk(const stream_writing *s, size_t group) { return group * s->chunks / s->groups; }

static uint8_t *place_of(const stream_writing *s, size_t group) { return s->at + first_chunk(s, group) * s->bound; }

static void write_group(void *of, size_t group)
{
    const stream_writing *s = of;
    uint8_t *const from = place_of(s, group), *at = from;
    for (uint64_t chunk = first_chunk(s, group); chunk < first_chunk(s, group + 1); chunk++)
        at = s->write(s->context, chunk, at);
    s->written[group] = (tg_stream){from, (size_t)(at - from)};
}

uint8_t *tg_streams_write(tg_pool *pool, uint64_t chunks, size_t bound, tg_chunk_writer *write, void *context,
                          uint8_t *at)
{
    const uint64_t most = tg_pool_threads(pool) == 1 ? 1 : (uint64_t)TG_RANGES_PER_THREAD * tg_pool_threads(pool);
    tg_stream written[TG_MAX_RANGES];
    stream_writing s = {chunks, (size_t)(chunks < most ? chunks : most), bound, write, context, at, written};
    tg_parallel(pool, s.groups, write_group, &s);
    return tg_streams_join(pool, written, s.groups, at);
}

/* ---- moving together ---- */

/* Streams from `first` on that are moved in one step. */
typedef struct moving {
    const tg_stream *streams;
    uint8_t *const *to;
    size_t first;
} moving;

static void move_stream(void *of, size_t part)
{
    const moving *m = of;
    const tg_stream *stream = &m->streams[m->first + part];
    if (m->to[m->first + part] != stream->from)
        memmove(m->to[m->first + part], stream->from, stream->size);
}

/* Fewer bytes are moved in less time than it takes to wake a thread. */
enum { WORTH_WAKING = 1 << 17 };

uint8_t *tg_streams_join(tg_pool *pool, const tg_stream *streams, size_t count, uint8_t *at)
{
    uint8_t *to[TG_MAX_RANGES + 1] = {at};
    for (size_t i = 0; i < count; i++)
        to[i + 1] = to[i] + streams[i].size;
    /* Streams can be moved at the same time if all their new places end before the first of them begins. Each step
     * frees space for a larger one, so that few steps are needed. */
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && to[end + 1] <= streams[first].from; end++)
            ;
        moving m = {streams, to, first};
        tg_parallel(to[end] - to[first] < WORTH_WAKING ? NULL : pool, end - first, move_stream, &m);
    }
    return to[count];
}
