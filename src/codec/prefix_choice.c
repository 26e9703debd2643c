/* The code is made from a sample of the bytes, which is as good as all of them except for unusual vectors. For those
 * the resulting size differs from the expected one, and then all bytes are counted. docs/numerics.md has the rules,
 * because they decide what bytes are written. */
#include "codec/prefix_choice.h"

#include <stdatomic.h>

#include "codec/prefix_codes.h"
#include "kernels/ranges.h"

enum {
    SAMPLED = 1 << 19, /* bytes; shorter vectors are counted completely */
    EVERY = 4,         /* one of this many parts is sampled */
    PART = TG_PREFIX_PART,
    WORTH = 36,       /* the size may exceed the entropy by this fraction of it */
    AS_EXPECTED = 200 /* and may differ from the expected size by this fraction */
};

static uint64_t packed_size(uint64_t count, unsigned width) { return (count * width + 7) / 8; }

/* For short vectors the speed does not matter. */
static bool may_be_prefix(uint64_t count, unsigned width) { return count >= 1u << 18 && tg_prefix_suits(width); }

size_t tg_prefix_bound(uint64_t count, unsigned width)
{
    return may_be_prefix(count, width) ? tg_prefix_codes_bound(packed_size(count, width)) : 0;
}

typedef struct code_range {
    uint8_t least, largest;
} code_range;

/* Searches for the smallest and the largest of all codes, with all threads. */
typedef struct range_search {
    const uint8_t *packed;
    unsigned width;
    uint8_t most;
    tg_ranges ranges;
    code_range *of;    /* of each of the ranges */
    atomic_bool found; /* the range cannot get wider */
} range_search;

static code_range wider(code_range a, code_range b)
{
    return (code_range){a.least < b.least ? a.least : b.least, a.largest > b.largest ? a.largest : b.largest};
}

static code_range range_of_part(const uint8_t *packed, size_t n, unsigned width, code_range r)
{
    const uint8_t mask = (uint8_t)((1u << width) - 1);
    for (unsigned shift = 0; shift < 8; shift += width) {
        /* Codes are compared without shifting them out of their bytes. */
        const uint8_t place = (uint8_t)(mask << shift);
        uint8_t low = (uint8_t)(r.least << shift), high = (uint8_t)(r.largest << shift);
        for (size_t i = 0; i < n; i++) {
            const uint8_t code = packed[i] & place;
            low = code < low ? code : low;
            high = code > high ? code : high;
        }
        r = (code_range){(uint8_t)(low >> shift), (uint8_t)(high >> shift)};
    }
    return r;
}

static void search_range(void *of, size_t part)
{
    range_search *l = of;
    const uint64_t end = tg_range_end(&l->ranges, part);
    code_range r = {.least = (uint8_t)((1u << l->width) - 1)};
    for (uint64_t at = tg_range_first(&l->ranges, part);
         at < end && !atomic_load_explicit(&l->found, memory_order_relaxed); at += PART) {
        r = range_of_part(l->packed + at, end - at < PART ? (size_t)(end - at) : PART, l->width, r);
        if (r.least == 0 && r.largest >= l->most)
            atomic_store_explicit(&l->found, true, memory_order_relaxed);
    }
    l->of[part] = r;
}

/* The padding of the last byte counts too. */
static code_range range_of(tg_pool *pool, const uint8_t *packed, uint64_t bytes, unsigned width, uint8_t most)
{
    code_range of[TG_MAX_RANGES] = {{0, 0}};
    range_search l = {
        .packed = packed, .width = width, .most = most, .ranges = tg_ranges_of(pool, bytes, PART), .of = of};
    tg_parallel(pool, l.ranges.parts, search_range, &l);
    code_range r = of[0];
    for (size_t i = 1; i < l.ranges.parts; i++)
        r = wider(r, of[i]);
    return r;
}

static bool within(code_range r, unsigned byte, unsigned width)
{
    bool within = true;
    for (unsigned shift = 0; shift < 8; shift += width) {
        const unsigned code = byte >> shift & ((1u << width) - 1);
        within = within && code >= r.least && code <= r.largest;
    }
    return within;
}

typedef struct choice {
    tg_prefix_code code;
    unsigned chunk_log;
    uint64_t bits; /* expected size of everything */
} choice;

/* Counting bytes, for all threads. */
typedef struct counting {
    const uint8_t *packed;
    tg_ranges ranges;
    unsigned every;
    atomic_uint_fast64_t bins[TG_PREFIX_SYMBOLS], counted;
} counting;

static void count_range(void *of, size_t part)
{
    counting *c = of;
    const uint64_t first = tg_range_first(&c->ranges, part);
    tg_byte_histogram met = {0};
    atomic_fetch_add(&c->counted, tg_bytes_count(c->packed + first, (size_t)(tg_range_end(&c->ranges, part) - first),
                                                 c->every, met));
    for (unsigned s = 0; s < TG_PREFIX_SYMBOLS; s++)
        atomic_fetch_add(&c->bins[s], met[s]);
}

/* As tg_bytes_count; a range has a multiple of `every` parts. */
static uint64_t count_bytes(tg_pool *pool, const uint8_t *packed, uint64_t bytes, unsigned every, uint64_t *met)
{
    counting c = {.packed = packed, .every = every, .ranges = tg_ranges_of(pool, bytes, EVERY * PART)};
    tg_parallel(pool, c.ranges.parts, count_range, &c);
    for (unsigned s = 0; s < TG_PREFIX_SYMBOLS; s++)
        met[s] = c.bins[s];
    return c.counted;
}

/* What all bytes take, if `counted` of them take so much: rounded down, without overflow. */
static uint64_t of_all(uint64_t spent, uint64_t bytes, uint64_t counted)
{
    return spent / counted * bytes + spent % counted * bytes / counted;
}

/* Makes a code from one of every `every` parts. It also covers all bytes whose codes are in the range `all`, even if
 * the sample has none of them. False if the code is too long compared with the entropy. */
static bool make_code(tg_pool *pool, const uint8_t *packed, uint64_t bytes, unsigned width, unsigned every,
                      code_range all, choice *chosen)
{
    tg_byte_histogram met = {0}, coded;
    const uint64_t counted = count_bytes(pool, packed, bytes, every, met);
    unsigned kinds = 0;
    for (unsigned s = 0; s < TG_PREFIX_SYMBOLS; s++) {
        coded[s] = met[s] == 0 && every > 1 && within(all, s, width) ? 1 : met[s];
        kinds += coded[s] > 0;
    }
    if (kinds < 2) /* a single byte has no code */
        return false;
    tg_prefix_make(&chosen->code, coded);
    const uint64_t bits = tg_prefix_bits(&chosen->code, met), entropy = tg_bytes_entropy(met);
    /* Streams of 512 bytes or more on average, 256 if they are very short, because of their entries in the directory.
     */
    chosen->chunk_log = bits >= 4 * counted ? TG_PREFIX_SHORT_CHUNK : TG_PREFIX_LONG_CHUNK;
    chosen->bits = of_all(bits, bytes, counted) + 8 * tg_prefix_codes_head(bytes, chosen->chunk_log);
    const uint64_t expected = of_all(entropy, bytes, counted);
    return chosen->bits << 16 <= expected + expected / WORTH;
}

uint8_t *tg_prefix_try(tg_pool *pool, const uint8_t *packed, uint64_t count, unsigned width, uint8_t most, uint8_t *out)
{
    const uint64_t bytes = packed_size(count, width);
    choice chosen;
    if (!may_be_prefix(count, width))
        return NULL;
    if (bytes >= SAMPLED &&
        make_code(pool, packed, bytes, width, EVERY, range_of(pool, packed, bytes, width, most), &chosen)) {
        uint8_t *end = tg_prefix_codes_write(&chosen.code, chosen.chunk_log, pool, packed, bytes, out);
        const uint64_t bits = 8 * (uint64_t)(end - out),
                       off = bits > chosen.bits ? bits - chosen.bits : chosen.bits - bits;
        if (off <= chosen.bits / AS_EXPECTED)
            return end;
    }
    if (!make_code(pool, packed, bytes, width, 1, (code_range){0, 0}, &chosen))
        return NULL;
    return tg_prefix_codes_write(&chosen.code, chosen.chunk_log, pool, packed, bytes, out);
}
