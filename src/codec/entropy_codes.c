/* Codes in the entropy layout. When reading, every length is checked before it is used. */
#include "codec/entropy_codes.h"

#include <string.h>

#include "codec/streams.h"

/* Flags in the byte of t: the frequency table covers one side of zero; it has one frequency for a group of symbols. */
#define MIRRORED 0x80u
#define GROUPED 0x40u

enum { HEAD = 8 }; /* bytes before the table */

static uint64_t low_size(uint64_t count, unsigned low) { return (count * low + 7) / 8; }

tg_code_split tg_code_split_of(uint32_t values)
{
    const uint32_t last = values - 1;
    unsigned low = 0;
    while (last >> low > 255)
        low++;
    return (tg_code_split){.low = low, .alphabet = (last >> low) + 1, .zero_digit = values / 2 >> low};
}

size_t tg_entropy_codes_bound(uint64_t count, uint32_t values)
{
    /* the most chunks that there can be */
    const uint64_t chunk = UINT64_C(1) << TG_ENTROPY_CHUNK_LEAST, chunks = (count + chunk - 1) / chunk;
    return (size_t)(HEAD + tg_padded(TG_ENTROPY_TABLE_MAX) + tg_padded(low_size(count, tg_code_split_of(values).low)) +
                    chunks * (4 + (uint64_t)tg_entropy_chunk_bound((size_t)chunk)));
}

uint8_t *tg_entropy_head_write(const tg_entropy_plan *plan, uint8_t *out)
{
    out[0] = (uint8_t)plan->table_log;
    out[1] = (uint8_t)(plan->tuple | (plan->mirrored ? MIRRORED : 0) | (plan->grouped ? GROUPED : 0));
    out[2] = (uint8_t)plan->lane_log;
    out[3] = (uint8_t)plan->chunk_log;
    tg_store16(out + 4, (uint16_t)tg_entropy_table_size(plan));
    tg_store16(out + 6, 0);
    return tg_pad(out + HEAD, (uint64_t)(tg_entropy_table_write(plan, out + HEAD) - (out + HEAD)));
}

typedef struct digit_streams {
    const tg_kernels *kernels;
    const tg_entropy_plan *plan;
    const uint8_t *digits;
    uint64_t count;
    uint8_t *directory;
} digit_streams;

static uint8_t *write_chunk(void *of, uint64_t chunk, uint8_t *at)
{
    const digit_streams *s = of;
    const uint64_t first = chunk << s->plan->chunk_log, left = s->count - first,
                   whole = UINT64_C(1) << s->plan->chunk_log;
    const size_t n = (size_t)(left < whole ? left : whole);
    uint8_t *end = tg_entropy_write(s->plan, s->digits + first, n, at, tg_entropy_chunk_bound(n), s->kernels->rans);
    tg_store32(s->directory + 4 * chunk, (uint32_t)(end - at));
    return end;
}

uint8_t *tg_entropy_streams_write(const tg_kernels *kernels, tg_pool *pool, const tg_entropy_plan *plan,
                                  const uint8_t *digits, uint64_t count, uint8_t *directory, uint8_t *at)
{
    digit_streams s = {kernels, plan, digits, count, directory};
    return tg_streams_write(pool, tg_entropy_chunks(plan, count), tg_entropy_chunk_bound((size_t)1 << plan->chunk_log),
                            write_chunk, &s, at);
}

bool tg_padding_is_zero(const uint8_t *packed, uint64_t count, unsigned width)
{
    unsigned used = (unsigned)(count % TG_GROUP * width % 8);
    return used == 0 || packed[low_size(count, width) - 1] >> used == 0;
}

/* Whether the directory's lengths add up to the bytes that are left. */
static bool adds_up(const tg_cursor *c, const uint8_t *directory, uint64_t chunks)
{
    uint64_t total = 0;
    for (uint64_t i = 0; i < chunks; i++)
        total += tg_load32(directory + 4 * i);
    return total == c->left;
}

static bool read_head(tg_entropy_plan *plan, tg_cursor *c)
{
    plan->table_log = tg_cursor_u8(c);
    const unsigned tuple = tg_cursor_u8(c);
    plan->tuple = tuple & ~(MIRRORED | GROUPED);
    plan->mirrored = tuple & MIRRORED;
    plan->grouped = tuple & GROUPED;
    plan->lane_log = tg_cursor_u8(c);
    plan->chunk_log = tg_cursor_u8(c);
    const size_t table_size = tg_cursor_u16(c);
    const bool reserved = tg_cursor_u16(c) != 0;
    const uint8_t *table = tg_cursor_take_padded(c, table_size);
    if (!table || reserved || plan->table_log < 8 || plan->table_log > 16 || plan->table_log % 2 != 0)
        return false;
    if (plan->tuple != 1 && !(plan->tuple == 2 && plan->alphabet <= 16 && !plan->mirrored && !plan->grouped))
        return false;
    if ((plan->lane_log != 0 && plan->lane_log != 2 && plan->lane_log != 5) ||
        plan->chunk_log < TG_ENTROPY_CHUNK_LEAST || plan->chunk_log > TG_ENTROPY_CHUNK_MOST)
        return false;
    return tg_entropy_table_read(plan, table, table_size);
}

bool tg_entropy_codes_open(tg_entropy_codes *r, const tg_kernels *kernels, tg_cursor *c, uint64_t count,
                           uint32_t values)
{
    const tg_code_split split = tg_code_split_of(values);
    r->kernels = kernels;
    r->count = count;
    r->position = r->chunk_end = 0;
    r->low = split.low;
    r->slots = NULL;
    r->any_open = false;
    r->plan.alphabet = split.alphabet;
    r->plan.zero_digit = split.zero_digit;
    if (!read_head(&r->plan, c))
        return false;
    r->chunk = UINT64_C(1) << r->plan.chunk_log;
    const uint64_t chunks = tg_entropy_chunks(&r->plan, count);
    r->directory = tg_cursor_take(c, 4 * chunks);
    r->low_bits = tg_cursor_take_padded(c, low_size(count, r->low));
    r->stream = c->at;
    r->end = c->at + c->left;
    return r->directory && r->low_bits && (r->low == 0 || tg_padding_is_zero(r->low_bits, count, r->low)) &&
           adds_up(c, r->directory, chunks);
}

/* Closes the open chunk and opens the next. */
static bool next_chunk(tg_entropy_codes *r)
{
    if (r->any_open && !tg_entropy_done(&r->reader))
        return false;
    r->any_open = true;
    const uint64_t left = r->count - r->position, n = left < r->chunk ? left : r->chunk;
    const uint32_t size = tg_load32(r->directory);
    const uint8_t *stream = r->stream;
    r->directory += 4;
    r->stream += size;
    r->chunk_end = r->position + n;
    return tg_entropy_open(&r->reader, &r->plan, stream, size, (size_t)(r->end - r->stream), (size_t)n);
}

bool tg_entropy_codes_next(tg_entropy_codes *r, size_t n, uint16_t *codes)
{
    uint8_t digits[TG_BLOCK];
    if ((r->position == r->chunk_end && !next_chunk(r)) || !tg_entropy_next(&r->reader, n, digits, r->slots))
        return false;
    if (r->low > 0)
        r->kernels->unpack(r->low_bits + r->position / 8 * r->low, n, r->low, codes);
    else
        memset(codes, 0, n * sizeof *codes);
    for (size_t i = 0; i < n; i++)
        codes[i] = (uint16_t)(codes[i] | (unsigned)digits[i] << r->low);
    r->position += n;
    return true;
}

bool tg_entropy_codes_done(const tg_entropy_codes *r)
{
    return r->position == r->chunk_end && tg_entropy_done(&r->reader);
}

void tg_entropy_codes_seek(tg_entropy_codes *r, uint64_t first)
{
    for (; r->position < first; r->position += r->chunk, r->directory += 4)
        r->stream += tg_load32(r->directory);
    r->chunk_end = r->position;
}
