/* The fused encoder for the most common buckets: one group each, with ordinary scales. It does as little as possible
 * between two buckets. */
#ifndef TG_KERNELS_WIDE_LEVELS_BUCKETS_H
#define TG_KERNELS_WIDE_LEVELS_BUCKETS_H

#include "base/numeric.h"
#include "kernels/quantiser.h"
#include "kernels/wide/levels_rows.h"
#include "kernels/wide/levels_units.h"

/* Whether these encoders support the run. */
static bool suits_buckets(const tg_levels_encoding *e)
{
    return e->bucket == TG_GROUP && (e->width == 4 || e->width == 8) && e->levels <= 127 && e->norm != TG_NORM_GIVEN &&
           !e->exceeds && (!e->residual || e->alpha == e->beta);
}

/* What the scale of a bucket is computed from. */
typedef struct tally {
    v_ints most[2];
    v_floats lanes[SUM_PARTS]; /* of squares */
} tally;

/* Without feedback the lines of the gradient are loaded strictly in order, which helps the processor's prefetcher
 * (docs/log/cpu-kernels.md has the gain). With feedback it would cost registers that are worth more. */
TG_INLINE v_floats compensated(const tg_levels_encoding *e, variant v, size_t at)
{
    if (!v.feedback)
        return v_load_next(e->gradient + at);
    return v_plus(v_load(e->gradient + at), v_mul(v_float(e->alpha), v_load(e->residual + at)));
}

/* The tally of the bucket that starts at `start`; with feedback, u is stored. */
TG_INLINE tally tally_of(const tg_levels_encoding *e, variant v, size_t start, float *u)
{
    tally t = {.most = {v_int(0), v_int(0)}};
    clear_lanes(t.lanes);
    TG_NO_UNROLL
    for (size_t at = 0; at < TG_GROUP; at += TG_SUM_LANES)
        TG_UNROLL
    for (unsigned part = 0; part < SUM_PARTS; part++) {
        const size_t i = at + part * V_LANES;
        const v_floats x = compensated(e, v, start + i);
        if (v.feedback)
            v_store(u + i, x);
        if (v.norm == TG_NORM_L2)
            t.lanes[part] = v_plus(t.lanes[part], v_mul(x, x));
        else
            t.most[part % 2] = v_larger(t.most[part % 2], v_keys(x));
    }
    return t;
}

/* 0 where the bucket is a special case. */
TG_INLINE float radius_of(tally *t, variant v)
{
    float radius;
    if (v.norm == TG_NORM_L2) {
        radius = norm_of(total_of(t->lanes));
    } else {
        const uint32_t most = v_largest(v_larger(t->most[0], t->most[1]));
        radius = most < TG_INFINITY_BITS ? tg_bits_float(most) : 0;
    }
    return radius >= TG_LIFT_BELOW ? radius : 0;
}

/* Returns how many elements were done: it stops before a bucket that is a special case. */
TG_INLINE size_t encode_buckets(const tg_levels_encoding *e, size_t n, variant v)
{
    _Alignas(64) float u[TG_GROUP];
    group g = {.mixed_key = v_int((int)(e->key.high ^ e->key.high >> 15)), .levels = e->levels, .bucket_shift = 4};
    for (size_t at = 0; at < n; at += TG_GROUP) {
        tally t = tally_of(e, v, at, u);
        const float radius = radius_of(&t, v);
        if (radius == 0)
            return at;
        const float gain = tg_level_gain(e->levels, radius), unit = v.feedback ? tg_level_unit(e->levels, radius) : 0;
        tg_store_float(e->scales + at / TG_GROUP * 4, radius);
        g.u = v.feedback ? u : e->gradient + at;
        g.gradient = e->gradient + at;
        g.counter = v_int((int)((e->first + (uint32_t)at) / 2 + e->key.low));
        g.gain = &gain;
        if (v.feedback) {
            g.rest = u;
            g.residual = e->residual + at;
            g.undo = e->undo ? e->undo + at : NULL;
            g.unit = &unit;
            g.radius = &radius;
        }
        encode_group(&g, v, v.width, e->packed + at / 8 * v.width);
    }
    return n;
}

#define TG_BUCKET_VARIANT(NAME, WIDTH, NORM, FEEDBACK, HINT)                                  \
    static size_t NAME(const tg_levels_encoding *e, size_t n)                                 \
    {                                                                                         \
        const variant v = {.width = WIDTH, .norm = NORM, .feedback = FEEDBACK, .hint = HINT}; \
        return encode_buckets(e, n, v);                                                       \
    }
#define TG_BUCKET_VARIANTS(NAME, WIDTH, HINT, HINT_FEEDBACK)                        \
    TG_BUCKET_VARIANT(NAME##_max, WIDTH, TG_NORM_MAX, false, HINT)                  \
    TG_BUCKET_VARIANT(NAME##_max_feedback, WIDTH, TG_NORM_MAX, true, HINT_FEEDBACK) \
    TG_BUCKET_VARIANT(NAME##_l2, WIDTH, TG_NORM_L2, false, HINT)                    \
    TG_BUCKET_VARIANT(NAME##_l2_feedback, WIDTH, TG_NORM_L2, true, HINT_FEEDBACK)
#define TG_BUCKET_ROW(NAME)                                                  \
    {                                                                        \
        {NAME##_l2, NAME##_l2_feedback}, { NAME##_max, NAME##_max_feedback } \
    }

/* By width (4, 8), norm (L2, max) and whether there is feedback. */
typedef size_t (*const tg_bucket_encoders[2][2][2])(const tg_levels_encoding *e, size_t n);

/* Defines a table of encoders for buckets that suits_buckets() allows. */
#define TG_BUCKET_ENCODERS(NAME, HINT, HINT_FEEDBACK)        \
    TG_BUCKET_VARIANTS(NAME##_four, 4, HINT, HINT_FEEDBACK)  \
    TG_BUCKET_VARIANTS(NAME##_eight, 8, HINT, HINT_FEEDBACK) \
    static tg_bucket_encoders NAME = {TG_BUCKET_ROW(NAME##_four), TG_BUCKET_ROW(NAME##_eight)};

/* Encodes with the encoder of a table; if the first bucket is a special case, encode_units encodes it. */
static size_t encode_with(const tg_bucket_encoders buckets, const tg_unit_encoders units, const tg_levels_encoding *e,
                          size_t n)
{
    const size_t done = buckets[e->width == 8][e->norm == TG_NORM_MAX][e->residual != NULL](e, n);
    return done > 0 ? done : encode_units(e, TG_GROUP, units);
}

#endif
