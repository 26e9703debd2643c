/* The fused encoder of a run, unit by unit: computes u and the scales, then calls the encoder of the rows. For vectors
 * of any size, as levels_rows.h. */
#ifndef TG_KERNELS_WIDE_LEVELS_UNITS_H
#define TG_KERNELS_WIDE_LEVELS_UNITS_H

#include "base/numeric.h"
#include "kernels/wide/levels_unit.h"
#include "kernels/quantiser.h"
#include "kernels/wide/sum.h"

/* The difference of two smaller floats is finite. */
#define TG_MAY_OVERFLOW 0x1p127f

/* ---- staging: u, and what a scale is made of, in one go over a bucket ---- */

/* u = gradient + factor * residual, which goes to `sum`; or the gradient itself. */
TG_INLINE v_floats staged(const float *gradient, const float *residual, v_floats factor, size_t i, float *sum)
{
    v_floats x = v_load(gradient + i);
    if (residual) {
        x = v_plus(x, v_mul(factor, v_load(residual + i)));
        v_store(sum + i, x);
    }
    return x;
}

TG_INLINE uint32_t stage_max(const float *gradient, const float *residual, float factor, size_t n, float *sum)
{
    const v_floats f = v_float(factor);
    v_ints most[ROW_PARTS];
    TG_UNROLL
    for (unsigned part = 0; part < ROW_PARTS; part++)
        most[part] = v_int(0);
    for (size_t i = 0; i < n; i += TG_LANES) {
        TG_UNROLL
        for (unsigned part = 0; part < ROW_PARTS; part++)
            most[part] = v_larger(most[part], v_keys(staged(gradient, residual, f, i + part * V_LANES, sum)));
    }
    TG_UNROLL
    for (unsigned part = 1; part < ROW_PARTS; part++)
        most[0] = v_larger(most[0], most[part]);
    return v_largest(most[0]);
}

TG_INLINE float stage_squares(const float *gradient, const float *residual, float factor, size_t n, float *sum)
{
    const v_floats f = v_float(factor);
    v_floats lanes[SUM_PARTS];
    clear_lanes(lanes);
    for (size_t i = 0; i < n; i += TG_SUM_LANES) {
        TG_UNROLL
        for (unsigned part = 0; part < SUM_PARTS; part++) {
            /* a bucket that ends in the middle of the lanes */
            if (part == TG_FUSED_BUCKET / V_LANES && i + TG_FUSED_BUCKET == n)
                break;
            v_floats x = staged(gradient, residual, f, i + part * V_LANES, sum);
            lanes[part] = v_plus(lanes[part], v_mul(x, x));
        }
    }
    return total_of(lanes);
}

TG_INLINE void stage_values(const float *gradient, const float *residual, float factor, size_t n, float *sum)
{
    const v_floats f = v_float(factor);
    for (size_t i = 0; residual && i < n; i += V_LANES)
        (void)staged(gradient, residual, f, i, sum);
}

/* False where the scale is a special case. */
TG_INLINE bool stage_bucket(const tg_levels_encoding *e, tg_norm norm, const float *gradient, const float *residual,
                            size_t n, const uint8_t *stored, float *u, float *radius)
{
    if (norm == TG_NORM_MAX) {
        const uint32_t bits = stage_max(gradient, residual, e->alpha, n, u);
        *radius = tg_bits_float(bits);
        return bits < TG_INFINITY_BITS;
    }
    if (norm == TG_NORM_L2) {
        *radius = norm_of(stage_squares(gradient, residual, e->alpha, n, u));
        return *radius > 0;
    }
    stage_values(gradient, residual, e->alpha, n, u);
    *radius = tg_load_float(stored);
    return true;
}

/* Computes u and the scales of the unit's buckets, up to the first that is a special case. */
TG_INLINE void stage_as(tg_unit *t, tg_norm norm, bool feedback, float *u)
{
    const tg_levels_encoding *e = t->encoding;
    const size_t bucket = e->bucket < t->n ? e->bucket : t->n;
    size_t done = 0;
    for (size_t b = 0; done < t->n; b++, done += bucket) {
        float radius;
        if (!stage_bucket(e, norm, e->gradient + t->at + done, feedback ? e->residual + t->at + done : NULL, bucket,
                          t->scales + 4 * b, u + done, &radius))
            break;
        if (!(radius >= TG_LIFT_BELOW && radius < TG_MAY_OVERFLOW) && radius != 0)
            break;
        t->radius[b] = radius;
        t->gain[b] = radius > 0 ? tg_level_gain(e->levels, radius) : 0;
        if (feedback)
            t->value[b] = radius > 0 ? tg_level_unit(e->levels, radius) : 0;
        tg_store_float(t->scales + 4 * b, radius);
    }
    t->n = done < t->n ? done / TG_GROUP * TG_GROUP : t->n;
}

static void stage(tg_unit *t, float *u)
{
    const bool feedback = t->encoding->residual != NULL;
    switch (t->encoding->norm) {
    case TG_NORM_MAX:
        feedback ? stage_as(t, TG_NORM_MAX, true, u) : stage_as(t, TG_NORM_MAX, false, u);
        break;
    case TG_NORM_L2:
        feedback ? stage_as(t, TG_NORM_L2, true, u) : stage_as(t, TG_NORM_L2, false, u);
        break;
    default:
        stage_as(t, TG_NORM_GIVEN, feedback, u);
        break;
    }
}

/* tg_kernels.encode_levels with these encoders. */
static size_t encode_units(const tg_levels_encoding *e, size_t n, const tg_unit_encoders encoders)
{
    const size_t step = e->norm != TG_NORM_GIVEN && e->bucket > TG_UNIT ? e->bucket : TG_UNIT;
    /* The fast variants assume that codes which are packed together have one scale. Smaller buckets use the variant for
     * any width, which loads the scale for every pair of rows. */
    const bool small = e->bucket < (e->width == 2 ? 256 : 128);
    const unsigned row = small ? 3 : e->width == 2 ? 0 : e->width == 4 ? 1 : e->width == 8 ? 2 : 3;
    /* No value exceeds a scale that was computed here, and the rounding error of the gain is so small that a position
     * still rounds to the last level: at most 2^-24 of 2^23 for 127 levels. */
    const bool limit = e->exceeds || e->levels > (e->norm == TG_NORM_GIVEN ? 31 : 127);
    float *u = e->u, *rest = e->rest;
    tg_unit t = {.encoding = e};
    for (t.at = 0; t.at < n; t.at += t.n) {
        const size_t here = n - t.at < step ? n - t.at : step;
        t.u = e->residual ? u : e->gradient + t.at;
        t.rest = u;
        t.scales = e->scales + t.at / e->bucket * 4;
        t.packed = e->packed + t.at / 8 * e->width;
        if (e->residual && e->beta != e->alpha) {
            stage_values(e->gradient + t.at, e->residual + t.at, e->beta, here, rest);
            t.rest = rest;
            if (!(tg_bits_float(v_max_magnitude(rest, here)) < TG_MAY_OVERFLOW))
                break;
        }
        t.n = here;
        stage(&t, u);
        encoders[row][limit][e->residual != NULL](&t);
        if (t.n < here)
            return t.at + t.n;
    }
    return t.at;
}

#endif
