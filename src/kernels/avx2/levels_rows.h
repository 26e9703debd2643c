/* The rows of the fused encoder, for vectors of any size: included once for each instruction set, behind a header that gives v_floats,
 * v_ints, the v_ functions and V_LANES.
 *
 * A group of 512 codes is 32 rows of 16 lanes; a lane's stream of codes stays in its own 32-bit lane, so packing needs no shuffle. One
 * vector of hashes draws for two rows: low halves for the even one, high halves for the odd one. */
#ifndef TG_KERNELS_AVX2_LEVELS_ROWS_H
#define TG_KERNELS_AVX2_LEVELS_ROWS_H

#include "kernels/avx2/levels_unit.h"
#include "kernels/wide/counting.h"

enum { V_PARTS = TG_LANES / V_LANES, PAIRS = 16 };

/* What the rows of one group need. */
typedef struct group {
    const float *u;
    const float *rest;       /* with feedback */
    float *residual;
    const float *ahead[2];   /* gradient and residual, to be prefetched further on */
    const float *gain, *unit, *radius; /* of the bucket that the group starts in, and those that follow */
    unsigned bucket_shift;             /* pair >> bucket_shift: the bucket of a pair of rows */
    v_ints counter, key_high;
    uint32_t levels;
} group;

/* Which variant: constants wherever it is used. */
typedef struct variant {
    unsigned width; /* 0: any */
    bool limit;     /* positions may exceed the last level by more than rounding */
    bool feedback;
} variant;

/* ---- two rows, as many lanes as a vector has ---- */

/* x * gain, rounded: a level in units of 2^-16. */
TG_INLINE v_ints position_of(const group *g, variant v, size_t at, v_floats gain)
{
    v_floats position = v_mul(v_load(g->u + at), gain);
    if (v.limit) {
        v_floats limit = v_float((float)g->levels * 0x1p16f);
        position = v_max(position, v_negative(limit));
        position = v_min(position, limit);
    }
    return v_round(position);
}

/* residual = rest - sent, the level being in the upper half of `drawn`. */
TG_INLINE void keep_rest(const group *g, size_t at, size_t bucket, v_ints drawn)
{
    v_floats unit = v_broadcast(g->unit + bucket), radius = v_broadcast(g->radius + bucket);
    v_floats sent = v_mul(v_convert(v_upper(drawn)), unit);
    sent = v_min(radius, sent);
    sent = v_max(v_negative(radius), sent);
    v_store(g->residual + at, v_sub(v_load(g->rest + at), sent));
}

/* A row is a cache line, and a pair of rows is drawn in V_PARTS parts. */
TG_INLINE void prefetch_pair(const group *g, variant v, unsigned pair, unsigned part)
{
    for (unsigned stream = 0; stream < (v.feedback ? 2 : 1); stream++)
        for (unsigned row = part; row < 2; row += V_PARTS)
            tg_prefetch(g->ahead[stream] + pair * 32 + row * 16, TG_UNIT_AHEAD);
}

/* Levels of rows 2 * pair and 2 * pair + 1, lanes from V_LANES * part on: signed, in the upper halves; what is below is noise. */
TG_INLINE void draw_pair(const group *g, variant v, unsigned pair, unsigned part, v_ints *even, v_ints *odd)
{
    const size_t at = pair * 32 + part * V_LANES, bucket = pair >> g->bucket_shift;
    v_floats gain = v_broadcast(g->gain + bucket);
    v_ints x = v_add(g->counter, v_load_bits(tg_counting + 16 * pair + V_LANES * part));
    x = v_hash_before_last(x, g->key_high);
    v_ints high = v_shift_right(x, 16), low = v_xor_lower(x, high);
    *even = v_add(position_of(g, v, at, gain), low);
    *odd = v_add(position_of(g, v, at + 16, gain), high);
    if (v.feedback) {
        keep_rest(g, at, bucket, *even);
        keep_rest(g, at + 16, bucket, *odd);
    }
    prefetch_pair(g, v, pair, part);
}

/* ---- packing ---- */

/* Two rows' levels as 16-bit numbers: `first` in the lower halves. */
TG_INLINE v_ints side_by_side(v_ints first, v_ints second)
{
    return v_blend16(v_upper(first), second);
}

/* Widths 2, 4, 8: a word holds 32 / width rows, and each half of it 16 / width. Both halves are added up at once in 16-bit arithmetic; levels
 * are signed, and `levels` itself is added to all of them at the end. */
TG_INLINE v_ints pack_word(const group *g, variant v, unsigned pair, unsigned part)
{
    const unsigned half_rows = 16 / v.width;
    int offset = 0;
    v_ints word = v_int(0);
    TG_UNROLL
    for (unsigned row = 0; row < half_rows; row += 2) {
        v_ints a, b, c, d;
        draw_pair(g, v, pair + row / 2, part, &a, &b);
        draw_pair(g, v, pair + (row + half_rows) / 2, part, &c, &d);
        v_ints even = side_by_side(a, c), odd = side_by_side(b, d);
        if (row > 0)
            even = v_shift_left16(even, row * v.width);
        odd = v_shift_left16(odd, (row + 1) * v.width);
        word = v_add16(word, v_add16(even, odd));
        offset += (int)(g->levels << row * v.width) + (int)(g->levels << (row + 1) * v.width);
    }
    return v_add16(word, v_int16((short)offset));
}

TG_INLINE void encode_group(const group *g, variant v, unsigned width, uint8_t *packed)
{
    if (v.width) {
        const unsigned pairs = 16 / v.width; /* of rows in a word */
        for (unsigned word = 0; word < v.width; word++) {
            TG_UNROLL
            for (unsigned part = 0; part < V_PARTS; part++)
                v_store_bits(packed + 64 * word + 4 * V_LANES * part, pack_word(g, v, word * pairs, part));
        }
        return;
    }
    uint32_t codes[TG_GROUP];
    v_ints levels = v_int((int)g->levels);
    for (unsigned pair = 0; pair < PAIRS; pair++)
        TG_UNROLL
        for (unsigned part = 0; part < V_PARTS; part++) {
            v_ints even, odd;
            draw_pair(g, v, pair, part, &even, &odd);
            v_store_bits(codes + pair * 32 + part * V_LANES, v_add(v_upper(even), levels));
            v_store_bits(codes + pair * 32 + part * V_LANES + 16, v_add(v_upper(odd), levels));
        }
    v_pack_group(codes, width, packed);
}

/* ---- one unit ---- */

TG_INLINE void encode_unit(const tg_unit *t, variant v)
{
    const tg_levels_encoding *e = t->encoding;
    group g = {.key_high = v_int((int)e->key.high),
               .levels = e->levels};
    while (e->bucket >> g.bucket_shift > 32 && g.bucket_shift < 4)
        g.bucket_shift++;
    for (size_t done = 0; done < t->n; done += TG_GROUP) {
        const size_t at = t->at + done, bucket = e->bucket < t->n ? done / e->bucket : 0;
        g.u = t->u + done;
        g.ahead[0] = e->gradient + at;
        g.counter = v_int((int)((e->first + (uint32_t)at) / 2 + e->key.low));
        g.gain = t->gain + bucket;
        if (v.feedback) {
            g.rest = t->rest + done;
            g.residual = e->residual + at;
            g.ahead[1] = e->residual + at;
            g.unit = t->value + bucket;
            g.radius = t->radius + bucket;
        }
        encode_group(&g, v, e->width, t->packed + done / 8 * e->width);
    }
}

#define VARIANTS(NAME, WIDTH)                                                                                          \
    static void NAME##_near(const tg_unit *t) { encode_unit(t, (variant){WIDTH, false, false}); }                         \
    static void NAME##_far(const tg_unit *t) { encode_unit(t, (variant){WIDTH, true, false}); }                           \
    static void NAME##_near_feedback(const tg_unit *t) { encode_unit(t, (variant){WIDTH, false, true}); }                 \
    static void NAME##_far_feedback(const tg_unit *t) { encode_unit(t, (variant){WIDTH, true, true}); }

VARIANTS(two, 2)
VARIANTS(four, 4)
VARIANTS(eight, 8)
VARIANTS(any, 0)

#define ROW(NAME) {{NAME##_near, NAME##_near_feedback}, {NAME##_far, NAME##_far_feedback}}
static tg_unit_encoders encoders = {ROW(two), ROW(four), ROW(eight), ROW(any)};

#endif
