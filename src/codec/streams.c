/* Chunks in as many groups as threads can use. */
#include "codec/streams.h"

#include <string.h>

#include "kernels/ranges.h"

typedef struct streams {
    uint64_t chunks;
    size_t groups, bound;
    tg_chunk_writer *write;
    void *context;
    uint8_t *at;
    uint8_t **ends; /* of each group's streams */
} streams;

static uint64_t first_chunk(const streams *s, size_t group) { return group * s->chunks / s->groups; }

static uint8_t *place_of(const streams *s, size_t group) { return s->at + first_chunk(s, group) * s->bound; }

static void write_group(void *of, size_t group)
{
    const streams *s = of;
    uint8_t *at = place_of(s, group);
    for (uint64_t chunk = first_chunk(s, group); chunk < first_chunk(s, group + 1); chunk++)
        at = s->write(s->context, chunk, at);
    s->ends[group] = at;
}

uint8_t *tg_streams_write(tg_pool *pool, uint64_t chunks, size_t bound, tg_chunk_writer *write, void *context, uint8_t *at)
{
    const uint64_t most = tg_pool_threads(pool) == 1 ? 1 : (uint64_t)TG_RANGES_PER_THREAD * tg_pool_threads(pool);
    uint8_t *ends[TG_MAX_RANGES];
    streams s = {chunks, (size_t)(chunks < most ? chunks : most), bound, write, context, at, ends};
    tg_parallel(pool, s.groups, write_group, &s);
    for (size_t group = 0; group < s.groups; group++) {
        const size_t size = (size_t)(ends[group] - place_of(&s, group));
        if (at != place_of(&s, group))
            memmove(at, place_of(&s, group), size);
        at += size;
    }
    return at;
}
