/* Chunks of prefix coded bytes. Reading, every length is checked before it is used. */
#include "codec/prefix_codes.h"

static uint64_t chunks_of(uint64_t bytes) { return (bytes + TG_PREFIX_CHUNK - 1) / TG_PREFIX_CHUNK; }

static size_t chunk_size(uint64_t bytes, uint64_t first)
{
    return (size_t)(bytes - first < TG_PREFIX_CHUNK ? bytes - first : TG_PREFIX_CHUNK);
}

size_t tg_prefix_codes_bound(uint64_t bytes)
{
    /* Whole chunks' streams end on whole bytes when they are longest; the last chunk's may need a byte more each. */
    return (size_t)(TG_PREFIX_TABLE + chunks_of(bytes) * TG_PREFIX_ENTRY + bytes * TG_PREFIX_LONGEST / 8 + TG_PREFIX_STREAMS);
}

uint8_t *tg_prefix_codes_write(const tg_prefix_code *code, const uint8_t *packed, uint64_t bytes, uint8_t *room, uint8_t *out)
{
    uint8_t *entry = out + TG_PREFIX_TABLE, *at = entry + TG_PREFIX_ENTRY * chunks_of(bytes);
    tg_prefix_encoder encoder;
    tg_prefix_encoder_make(&encoder, code);
    tg_prefix_table_write(code, out);
    for (uint64_t first = 0; first < bytes; first += TG_PREFIX_CHUNK, entry += TG_PREFIX_ENTRY)
        at = tg_prefix_write(&encoder, packed + first, chunk_size(bytes, first), room, entry, at);
    return at;
}

bool tg_prefix_codes_open(tg_prefix_codes *r, tg_cursor *c, uint64_t bytes)
{
    const uint8_t *table = tg_cursor_take(c, TG_PREFIX_TABLE);
    const uint64_t chunks = chunks_of(bytes);
    r->bytes = bytes;
    r->position = 0;
    r->slots = NULL;
    r->directory = tg_cursor_take(c, TG_PREFIX_ENTRY * chunks);
    r->stream = c->at;
    if (!table || !r->directory || !tg_prefix_table_read(&r->code, table))
        return false;
    uint64_t total = 0;
    for (uint64_t i = 0; i < chunks; i++)
        total += tg_prefix_size(r->directory + TG_PREFIX_ENTRY * i);
    return total == c->left;
}

/* Ends the chunk that is open and opens the next. */
static bool next_chunk(tg_prefix_codes *r)
{
    if (r->position > 0 && !tg_prefix_done(&r->reader))
        return false;
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

bool tg_prefix_codes_done(const tg_prefix_codes *r) { return r->position == r->bytes && tg_prefix_done(&r->reader); }
