/* Chunks of prefix coded bytes. When reading, every length is checked before it is used. */
#include "codec/prefix_codes.h"

#include "codec/streams.h"

enum { HEAD = 4 }; /* bytes before the code: log2 of a chunk, and zeros */

static uint64_t chunks_of(uint64_t bytes, uint64_t chunk) { return (bytes + chunk - 1) / chunk; }

static size_t chunk_size(uint64_t bytes, uint64_t first, uint64_t chunk)
{
    return (size_t)(bytes - first < chunk ? bytes - first : chunk);
}

size_t tg_prefix_codes_head(uint64_t bytes, unsigned chunk_log)
{
    return (size_t)(HEAD + TG_PREFIX_TABLE + chunks_of(bytes, UINT64_C(1) << chunk_log) * TG_PREFIX_ENTRY);
}

size_t tg_prefix_codes_bound(uint64_t bytes)
{
    /* The longest possible streams of a whole chunk end on whole bytes; those of the last chunk may each need a byte
     * more. */
    return tg_prefix_codes_head(bytes, TG_PREFIX_SHORT_CHUNK) + (size_t)(bytes * TG_PREFIX_LONGEST / 8) +
           TG_PREFIX_STREAMS;
}

typedef struct byte_streams {
    tg_prefix_encoder encoder;
    unsigned chunk_log;
    const uint8_t *packed;
    uint64_t bytes;
    uint8_t *directory;
} byte_streams;

static uint8_t *write_chunk(void *of, uint64_t chunk, uint8_t *at)
{
    const byte_streams *s = of;
    const uint64_t first = chunk << s->chunk_log;
    uint8_t room[TG_PREFIX_ROOM(TG_PREFIX_LONG_CHUNK)];
    return tg_prefix_write(&s->encoder, s->packed + first, chunk_size(s->bytes, first, UINT64_C(1) << s->chunk_log),
                           s->chunk_log, room, s->directory + TG_PREFIX_ENTRY * chunk, at);
}

uint8_t *tg_prefix_codes_write(const tg_prefix_code *code, unsigned chunk_log, tg_pool *pool, const uint8_t *packed,
                               uint64_t bytes, uint8_t *out)
{
    byte_streams s = {
        .chunk_log = chunk_log, .packed = packed, .bytes = bytes, .directory = out + HEAD + TG_PREFIX_TABLE};
    tg_prefix_encoder_make(&s.encoder, code);
    tg_store32(out, chunk_log);
    tg_prefix_table_write(code, out + HEAD);
    return tg_streams_write(pool, chunks_of(bytes, UINT64_C(1) << chunk_log), TG_PREFIX_STREAMS_MAX(chunk_log),
                            write_chunk, &s, out + tg_prefix_codes_head(bytes, chunk_log));
}

bool tg_prefix_codes_open(tg_prefix_codes *r, tg_cursor *c, uint64_t bytes)
{
    const uint32_t chunk_log = tg_cursor_u32(c); /* in the low byte; the other bytes must be zero */
    const uint8_t *table = tg_cursor_take(c, TG_PREFIX_TABLE);
    if (chunk_log < TG_PREFIX_CHUNK_LEAST || chunk_log > TG_PREFIX_CHUNK_MOST)
        return false;
    r->chunk = UINT64_C(1) << chunk_log;
    const uint64_t chunks = chunks_of(bytes, r->chunk);
    r->bytes = bytes;
    r->position = 0;
    r->slots = NULL;
    r->any_open = false;
    r->directory = tg_cursor_take(c, TG_PREFIX_ENTRY * chunks);
    r->stream = c->at;
    r->end = c->at + c->left;
    if (!table || !r->directory || !tg_prefix_table_read(&r->code, table))
        return false;
    uint64_t total = 0;
    for (uint64_t i = 0; i < chunks; i++)
        total += tg_prefix_size(r->directory + TG_PREFIX_ENTRY * i);
    return total == c->left;
}

/* Closes the open chunk and opens the next. */
static bool next_chunk(tg_prefix_codes *r)
{
    if (r->any_open && !tg_prefix_done(&r->reader))
        return false;
    r->any_open = true;
    tg_prefix_open(&r->reader, r->directory, r->stream, (size_t)(r->end - r->stream),
                   chunk_size(r->bytes, r->position, r->chunk));
    r->stream += tg_prefix_size(r->directory);
    r->directory += TG_PREFIX_ENTRY;
    return true;
}

bool tg_prefix_codes_next(tg_prefix_codes *r, size_t n, uint8_t *packed)
{
    tg_prefix_slots own;
    if (!r->slots)
        tg_prefix_slots_make(&own, &r->code);
    for (size_t done = 0, here; done < n; done += here, r->position += here) {
        if (r->position % r->chunk == 0 && !next_chunk(r))
            return false;
        here = r->reader.left < n - done ? r->reader.left : n - done;
        if (here == 0 || !tg_prefix_next(&r->reader, r->slots ? r->slots : &own, here, packed + done))
            return false;
    }
    return true;
}

bool tg_prefix_codes_done(const tg_prefix_codes *r) { return tg_prefix_done(&r->reader); }

void tg_prefix_codes_seek(tg_prefix_codes *r, uint64_t first)
{
    for (; r->position < first; r->position += r->chunk, r->directory += TG_PREFIX_ENTRY)
        r->stream += tg_prefix_size(r->directory);
}
