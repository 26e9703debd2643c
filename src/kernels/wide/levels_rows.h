/* The rows of the fused encoder, for vectors of any size: included once for each instruction set, after a header
 * that defines v_floats, v_ints, the v_ functions and V_LANES.
 *
 * A group of 512 codes is 32 rows of 16 lanes. The codes of a lane stay in their own 32-bit lane, so packing needs
 * no shuffle. One vector of hashes serves two rows: its low halves the even one, its high halves the odd one. */
#ifndef TG_KERNELS_WIDE_LEVELS_ROWS_H
#define TG_KERNELS_WIDE_LEVELS_ROWS_H

#include "kernels/wide/levels_unit.h"
#include "kernels/wide/sum.h"
#include "kernels/wide/counting.h"

enum { PAIRS = 16, CHAINS = 4 };

/* What the rows of one group need. */
typedef struct group {
    const float *u;
    const float *rest; /* with feedback */
    float *residual;
    float *undo;                       /* undo buffer for the residual; may be NULL */
    const float *gradient;             /* where to prefetch from */
    const float *gain, *unit, *radius; /* of the bucket in which the group starts, and of those that follow */
    unsigned bucket_shift;             /* pair >> bucket_shift: the bucket of a pair of rows */
    v_ints counter, mixed_key;
    uint32_t levels;
} group;

/* The scale of a bucket, in every lane. */
typedef struct scale {
    v_floats gain;
    v_floats unit, most, least; /* with feedback */
    v_floats sent;              /* the values of levels 0 … 7, -8 … -1, where they are few enough to be looked up */
} scale;

/* Into which cache to prefetch, if any. */
typedef enum hint { HINT_NONE, HINT_FIRST, HINT_SECOND } hint;

/* Which variant of the code: a compile-time constant wherever it is used. */
typedef struct variant {
    unsigned width; /* 0: any */
    bool limit;     /* positions may exceed the last level by more than rounding */
    bool feedback;
    hint hint;
    tg_norm norm; /* of plain buckets */
} variant;

/* ---- two rows, as many lanes as a vector has ---- */

/* tg_hash without its last step, of several vectors of counters. In tg_hash the key is combined with x before x ^= x >>
 * 15; here it is combined afterwards, with a key to which this step has been applied. */
TG_INLINE void hash_several(v_ints x[CHAINS], v_ints mixed_key)
{
#define EACH(OPERATION) TG_UNROLL for (unsigned i = 0; i < CHAINS; i++) x[i] = OPERATION
    EACH(v_xor(x[i], v_shift_right(x[i], 16)));
    EACH(v_mul_low(x[i], v_int(0x7feb352d)));
    EACH(v_xor3(x[i], v_shift_right(x[i], 15), mixed_key));
    EACH(v_mul_low(x[i], v_int((int)0x846ca68bu)));
#undef EACH
}

/* The values that the decoder will see for these levels. */
TG_INLINE v_floats value_of(const scale *s, v_floats levels)
{
    return v_max(s->least, v_min(s->most, v_mul(levels, s->unit)));
}

#ifdef V_LOOKUP
TG_INLINE bool looked_up(variant v) { return v.width == 2 || v.width == 4; }
#endif

/* The scale of the bucket that a pair of rows lies in. */
TG_INLINE scale scale_at(const group *g, variant v, unsigned pair)
{
    const size_t bucket = pair >> g->bucket_shift;
    scale s = {.gain = v_broadcast(g->gain + bucket)};
    if (v.feedback) {
        s.unit = v_broadcast(g->unit + bucket);
        s.most = v_broadcast(g->radius + bucket);
        s.least = v_negative(s.most);
    }
#ifdef V_LOOKUP
    if (v.feedback && looked_up(v))
        s.sent = value_of(&s, v_convert(v_signed_nibbles()));
#endif
    return s;
}

/* x * gain, rounded: a level in units of 2^-16. */
TG_INLINE v_ints position_of(const group *g, variant v, size_t at, const scale *s)
{
    v_floats position = v_mul(v_load(g->u + at), s->gain);
    if (v.limit) {
        v_floats limit = v_float((float)g->levels * 0x1p16f);
        position = v_max(position, v_negative(limit));
        position = v_min(position, limit);
    }
    return v_round(position);
}

/* residual = rest - sent, the level being in the upper half of `drawn`. */
TG_INLINE void store_rest(const group *g, variant v, size_t at, const scale *s, v_ints drawn)
{
    (void)v;
    const v_ints level = v_upper(drawn);
#ifdef V_LOOKUP
    const v_floats sent = looked_up(v) ? v_look_up(s->sent, level) : value_of(s, v_convert(level));
#else
    const v_floats sent = value_of(s, v_convert(level));
#endif
    v_store(g->residual + at, v_sub(v_load(g->rest + at), sent));
}

/* Prefetches the rows of a pair. A row is a cache line, and a pair of rows is processed in ROW_PARTS parts. */
TG_INLINE void prefetch_rows(const group *g, variant v, unsigned pair, unsigned part, v_ints drawn)
{
    TG_UNROLL
    for (unsigned row = part; row < 2; row += ROW_PARTS) {
        const float *gradient = g->gradient + 32 * pair + 16 * row,
                    *residual = v.feedback ? g->residual + 32 * pair + 16 * row : NULL;
        if (v.hint == HINT_NONE)
            continue;
#ifdef V_SECOND
        if (v.hint == HINT_SECOND) {
            v_prefetch_second_after(drawn, gradient, v.feedback ? TG_UNIT_SECOND_FEEDBACK : TG_UNIT_SECOND);
            if (v.feedback)
                v_prefetch_second_after(drawn, residual, TG_UNIT_SECOND_FEEDBACK);
            continue;
        }
#endif
        v_prefetch_after(drawn, gradient, v.feedback ? TG_UNIT_AHEAD_FEEDBACK : TG_UNIT_AHEAD);
        if (v.feedback)
            v_prefetch_after(drawn, residual, TG_UNIT_AHEAD_FEEDBACK);
    }
}

/* Saves both rows of a pair to the undo buffer before either is overwritten: whole cache lines, one after the other.
 * This is done here and not when u is computed, because memory handles a few lines at a time better than those of a
 * whole unit. */
TG_INLINE void save_rows(const group *g, unsigned pair, unsigned part)
{
    if (!g->undo || part > 0)
        return;
    TG_UNROLL
    for (unsigned i = 0; i < 32; i += V_LANES)
        v_store_nontemporal(g->undo + 32 * pair + i, v_load(g->residual + 32 * pair + i));
}

/* Hashes of CHAINS pairs of rows from `pair` on, lanes from V_LANES * part on, without the last step. A hash is a long
 * chain of dependent operations, so several are computed side by side: the processor would not find the next one in
 * time. */
TG_INLINE void hash_pairs(const group *g, unsigned pair, unsigned part, v_ints x[CHAINS])
{
    TG_UNROLL
    for (unsigned i = 0; i < CHAINS; i++)
        x[i] = v_add(g->counter, v_load_bits(tg_counting + 16 * (pair + i) + V_LANES * part));
    hash_several(x, g->mixed_key);
}

/* Levels of rows 2 * pair and 2 * pair + 1, lanes from V_LANES * part on: signed, in the upper halves; the lower halves
 * are meaningless. */
TG_INLINE void draw_pair(const group *g, variant v, unsigned pair, unsigned part, const scale *s, v_ints hash,
                         v_ints *even, v_ints *odd)
{
    const size_t at = pair * 32 + part * V_LANES;
    v_ints high = v_shift_right(hash, 16), low = v_xor_lower(hash, high);
    *even = v_add(position_of(g, v, at, s), low);
    *odd = v_add(position_of(g, v, at + 16, s), high);
    prefetch_rows(g, v, pair, part, *even);
    if (v.feedback) {
        save_rows(g, pair, part);
        store_rest(g, v, at, s, *even);
        store_rest(g, v, at + 16, s, *odd);
    }
}

/* ---- packing ---- */

/* Two rows' levels as 16-bit numbers: `first` in the lower halves. */
TG_INLINE v_ints side_by_side(v_ints first, v_ints second) { return v_blend16(v_upper(first), second); }

/* Rows `even` and `even` + 1 of the lower halves of words, and the rows beside them in the upper halves, from the pairs
 * whose hashes are given. Levels are signed. */
TG_INLINE v_ints pack_pairs(const group *g, variant v, unsigned even, unsigned pair, v_ints hash, unsigned beside,
                            v_ints hash_beside, unsigned part, const scale *s)
{
    v_ints a, b, c, d;
    draw_pair(g, v, pair, part, s, hash, &a, &b);
    draw_pair(g, v, beside, part, s, hash_beside, &c, &d);
    v_ints low = side_by_side(a, c), high = v_shift_left16(side_by_side(b, d), (even + 1) * v.width);
    return v_add16(even > 0 ? v_shift_left16(low, even * v.width) : low, high);
}

/* `levels` at every position of a half word. */
TG_INLINE v_ints levels_of_half(const group *g, variant v)
{
    uint32_t all = 0;
    for (unsigned row = 0; row < 16 / v.width; row++)
        all |= g->levels << row * v.width;
    return v_int16((short)all);
}

/* Widths 2, 4, 8: a word holds 32 / width rows, and each half of it 16 / width. Both halves are added up at once in
 * 16-bit arithmetic; levels are signed, and `levels` itself is added to all of them at the end. */
TG_INLINE void pack_words(const group *g, variant v, unsigned pair, unsigned part, uint8_t *packed)
{
    const v_ints offset = levels_of_half(g, v);
    const scale s = scale_at(g, v, pair);
    v_ints x[CHAINS], y[CHAINS];
    hash_pairs(g, pair, part, x);
    if (v.width == 8) {
        v_store_bits(packed, v_add16(offset, pack_pairs(g, v, 0, pair, x[0], pair + 1, x[1], part, &s)));
        v_store_bits(packed + 64, v_add16(offset, pack_pairs(g, v, 0, pair + 2, x[2], pair + 3, x[3], part, &s)));
    } else if (v.width == 4) {
        v_ints word = v_add16(offset, pack_pairs(g, v, 0, pair, x[0], pair + 2, x[2], part, &s));
        v_store_bits(packed, v_add16(word, pack_pairs(g, v, 2, pair + 1, x[1], pair + 3, x[3], part, &s)));
    } else {
        v_ints word = offset;
        hash_pairs(g, pair + CHAINS, part, y);
        TG_UNROLL
        for (unsigned i = 0; i < CHAINS; i++)
            word = v_add16(word, pack_pairs(g, v, 2 * i, pair + i, x[i], pair + CHAINS + i, y[i], part, &s));
        v_store_bits(packed, word);
    }
}

TG_INLINE void encode_group(const group *g, variant v, unsigned width, uint8_t *packed)
{
    if (v.width) {
        const unsigned pairs = v.width == 2 ? 2 * CHAINS : CHAINS; /* packed at once */
        for (unsigned pair = 0; pair < PAIRS; pair += pairs) {
            TG_UNROLL
            for (unsigned part = 0; part < ROW_PARTS; part++)
                pack_words(g, v, pair, part, packed + 4 * v.width * pair + 4 * V_LANES * part);
        }
        return;
    }
    uint32_t codes[TG_GROUP];
    v_ints levels = v_int((int)g->levels);
    for (unsigned pair = 0; pair < PAIRS; pair += CHAINS)
        TG_UNROLL
    for (unsigned part = 0; part < ROW_PARTS; part++) {
        v_ints x[CHAINS];
        hash_pairs(g, pair, part, x);
        TG_UNROLL
        for (unsigned i = 0; i < CHAINS; i++) {
            v_ints even, odd;
            const scale s = scale_at(g, v, pair + i);
            draw_pair(g, v, pair + i, part, &s, x[i], &even, &odd);
            v_store_bits(codes + (pair + i) * 32 + part * V_LANES, v_add(v_upper(even), levels));
            v_store_bits(codes + (pair + i) * 32 + part * V_LANES + 16, v_add(v_upper(odd), levels));
        }
    }
    v_pack_group(codes, width, packed);
}

/* ---- one unit ---- */

TG_INLINE void encode_unit(const tg_unit *t, variant v)
{
    const tg_levels_encoding *e = t->encoding;
    group g = {.mixed_key = v_int((int)(e->key.high ^ e->key.high >> 15)), .levels = e->levels};
    while (e->bucket >> g.bucket_shift > 32 && g.bucket_shift < 4)
        g.bucket_shift++;
    for (size_t done = 0; done < t->n; done += TG_GROUP) {
        const size_t at = t->at + done, bucket = e->bucket < t->n ? done / e->bucket : 0;
        g.u = t->u + done;
        g.gradient = e->gradient + at;
        g.counter = v_int((int)((e->first + (uint32_t)at) / 2 + e->key.low));
        g.gain = t->gain + bucket;
        if (v.feedback) {
            g.rest = t->rest + done;
            g.residual = e->residual + at;
            g.undo = e->undo ? e->undo + at : NULL;
            g.unit = t->value + bucket;
            g.radius = t->radius + bucket;
        }
        encode_group(&g, v, e->width, t->packed + done / 8 * e->width);
    }
}

#define TG_UNIT_VARIANTS(NAME, WIDTH, LIMIT, HINT)                                                                  \
    static void NAME(const tg_unit *t) { encode_unit(t, (variant){.width = WIDTH, .limit = LIMIT, .hint = HINT}); } \
    static void NAME##_feedback(const tg_unit *t)                                                                   \
    {                                                                                                               \
        encode_unit(t, (variant){.width = WIDTH, .limit = LIMIT, .feedback = true, .hint = HINT});                  \
    }
#define TG_UNIT_ROW(NEAR, FAR)                           \
    {                                                    \
        {NEAR, NEAR##_feedback}, { FAR, FAR##_feedback } \
    }

/* Defines a table of encoders. Rare combinations use the variant for any width. */
#define TG_UNIT_ENCODERS(NAME, HINT)                                                             \
    TG_UNIT_VARIANTS(NAME##_two_near, 2, false, HINT)                                            \
    TG_UNIT_VARIANTS(NAME##_two_far, 2, true, HINT)                                              \
    TG_UNIT_VARIANTS(NAME##_four_near, 4, false, HINT)                                           \
    TG_UNIT_VARIANTS(NAME##_eight_near, 8, false, HINT)                                          \
    TG_UNIT_VARIANTS(NAME##_eight_far, 8, true, HINT)                                            \
    TG_UNIT_VARIANTS(NAME##_any, 0, true, HINT)                                                  \
    static tg_unit_encoders NAME = {                                                             \
        TG_UNIT_ROW(NAME##_two_near, NAME##_two_far), TG_UNIT_ROW(NAME##_four_near, NAME##_any), \
        TG_UNIT_ROW(NAME##_eight_near, NAME##_eight_far), TG_UNIT_ROW(NAME##_any, NAME##_any)};

#endif
