/* Chunks of prefix coded bytes. When reading, every length is checked before it is used. */
#include "codec/prefix_codes.h"

#include "codec/streams.h"

static uint64_t chunks_of(uint64_t bytes) { return (bytes + TG_PREFIX_CHUNK - 1) / TG_PREFIX_CHUNK; }

static size_t chunk_size(uint64_t bytes, uint64_t first)
{
    return (size_t)(bytes - first < TG_PREFIX_CHUNK ? bytes - first : TG_PREFIX_CHUNK);
}

size_t tg_prefix_codes_bound(uint64_t bytes)
{
    /* The longest possible streams of a whole chunk end on whole bytes; those of the last chunk may each need a byte
     * more. */
    return (size_t)(TG_PREFIX_TABLE + chunks_of(bytes) * TG_PREFIX_ENTRY + bytes * TG_PREFIX_LONGEST / 8 +
                    TG_PREFIX_STREAMS);
}

typedef struct byte_streams {
    tg_prefix_encoder encoder;
    const uint8_t *packed;
    uint64_t bytes;
    uint8_t *directory;
} byte_streams;

static uint8_t *write_chunk(void *of, uint64_t chunk, uint8_t *at)
{
    const byte_streams *s = of;
    const uint64_t first = chunk * TG_PREFIX_CHUNK;
    uint8_t room[TG_PREFIX_ROOM];
    return tg_prefix_write(&s->encoder, s->packed + first, chunk_size(s->bytes, first), room,
                           s->directory + TG_PREFIX_ENTRY * chunk, at);
}

uint8_t *tg_prefix_codes_write(const tg_prefix_code *code, tg_pool *pool, const uint8_t *packed, uint64_t bytes,
                               uint8_t *out)
{
    byte_streams s = {.packed = packed, .bytes = bytes, .directory = out + TG_PREFIX_TABLE};
    tg_prefix_encoder_make(&s.encoder, code);
    tg_prefix_table_write(code, out);
    return tg_streams_write(pool, chunks_of(bytes), TG_PREFIX_STREAMS * TG_PREFIX_STREAM_MAX, write_chunk, &s,
                            s.directory + TG_PREFIX_ENTRY * chunks_of(bytes));
}

bool tg_prefix_codes_open(tg_prefix_codes *r, tg_cursor *c, uint64_t bytes)
{
    const uint8_t *table = tg_cursor_take(c, TG_PREFIX_TABLE);
    const uint64_t chunks = chunks_of(bytes);
    r->bytes = bytes;
    r->position = 0;
    r->slots = NULL;
    r->any_open = false;
    r->directory = tg_cursor_take(c, TG_PREFIX_ENTRY * chunks);
    r->stream = c->at;
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
    tg_prefix_open(&r->reader, r->directory, r->stream, chunk_size(r->bytes, r->position));
    r->stream += tg_prefix_size(r->directory);
    r->directory += TG_PREFIX_ENTRY;
    return true;
}

bool tg_prefix_codes_next(tg_prefix_codes *r, size_t n, uint8_t *packed)
{
    if (r->position % TG_PREFIX_CHUNK == 0 && !next_chunk(r))
        return false;
    tg_prefix_slots own;
    if (!r->slots)
        tg_prefix_slots_make(&own, &r->code);
    r->position += n;
    return tg_prefix_next(&r->reader, r->slots ? r->slots : &own, n, packed);
}

bool tg_prefix_codes_done(const tg_prefix_codes *r) { return tg_prefix_done(&r->reader); }

void tg_prefix_codes_seek(tg_prefix_codes *r, uint64_t first)
{
    for (; r->position < first; r->position += TG_PREFIX_CHUNK, r->directory += TG_PREFIX_ENTRY)
        r->stream += tg_prefix_size(r->directory);
}
