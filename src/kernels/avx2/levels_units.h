/* The fused encoder's way through a run: unit by unit, compensate, find the scales, and hand over to the rows. For vectors of any size,
 * as levels_rows.h is. */
#ifndef TG_KERNELS_AVX2_LEVELS_UNITS_H
#define TG_KERNELS_AVX2_LEVELS_UNITS_H

#include "base/numeric.h"
#include "kernels/avx2/levels_unit.h"
#include "kernels/quantiser.h"

/* False where the value needs care. */
TG_INLINE bool radius_of(tg_norm norm, const float *x, size_t n, const uint8_t *stored, float *radius)
{
    if (norm == TG_NORM_MAX) {
        uint32_t bits = v_max_magnitude(x, n);
        *radius = tg_bits_float(bits);
        return bits < TG_INFINITY_BITS;
    }
    if (norm == TG_NORM_L2) {
        float sum = v_block_sum(TG_SUM_OF_SQUARES, x, n, 1, 1);
        *radius = (float)tg_sqrt((double)sum);
        return sum >= 0x1p-80f && tg_float_bits(sum) < TG_INFINITY_BITS;
    }
    *radius = tg_load_float(stored);
    return true;
}

/* Scales of the unit's buckets, up to the first that needs care; returns the elements of those found. */
TG_INLINE size_t find_scales(tg_unit *t, tg_norm norm)
{
    const tg_levels_encoding *e = t->encoding;
    size_t done = 0;
    for (size_t b = 0; done < t->n; b++, done += e->bucket) {
        float radius;
        if (!radius_of(norm, t->u + done, e->bucket, t->scales + 4 * b, &radius))
            break;
        if (!(radius >= TG_LIFT_BELOW) && radius != 0)
            break;
        t->radius[b] = radius;
        t->gain[b] = radius > 0 ? tg_level_gain(e->levels, radius) : 0;
        if (e->residual)
            t->value[b] = radius > 0 ? tg_level_unit(e->levels, radius) : 0;
        tg_store_float(t->scales + 4 * b, radius);
    }
    return done < t->n ? done / TG_GROUP * TG_GROUP : t->n;
}

/* u = gradient + alpha * residual, and the same for rest with beta. */
static void add_residual(const float *gradient, const float *residual, float factor, size_t n, float *sum)
{
    const v_floats f = v_float(factor);
    for (size_t i = 0; i < n; i += V_LANES)
        v_store(sum + i, v_plus(v_load(gradient + i), v_mul(f, v_load(residual + i))));
}

static size_t find_scales_of(tg_unit *t)
{
    switch (t->encoding->norm) {
    case TG_NORM_MAX: return find_scales(t, TG_NORM_MAX);
    case TG_NORM_L2: return find_scales(t, TG_NORM_L2);
    default: return find_scales(t, TG_NORM_GIVEN);
    }
}

/* tg_kernels.encode_levels with these. */
TG_INLINE size_t encode_units(const tg_levels_encoding *e, size_t n, const tg_unit_encoders encoders)
{
    const size_t step = e->norm != TG_NORM_GIVEN && e->bucket > TG_UNIT ? e->bucket : TG_UNIT;
    const unsigned row = e->width == 2 ? 0 : e->width == 4 ? 1 : e->width == 8 ? 2 : 3;
    /* A largest magnitude, or a norm computed from it, is off by so little that a position rounds to the last level all the same: by
     * 2^-24 of 2^23 at most for 127 levels and the maximum, by 3 * 2^-24 of 2^21 for 31 levels and the L2 norm. */
    const bool limit = e->exceeds || e->levels > (e->norm == TG_NORM_MAX ? 127 : 31);
    float u[TG_BLOCK], rest[TG_BLOCK];
    tg_unit t = {.encoding = e};
    for (t.at = 0; t.at < n; t.at += t.n) {
        const size_t here = n - t.at < step ? n - t.at : step;
        t.u = e->gradient + t.at;
        t.scales = e->scales + t.at / e->bucket * 4;
        t.packed = e->packed + t.at / 8 * e->width;
        if (e->residual) {
            add_residual(e->gradient + t.at, e->residual + t.at, e->alpha, here, u);
            t.u = t.rest = u;
            if (e->beta != e->alpha) {
                add_residual(e->gradient + t.at, e->residual + t.at, e->beta, here, rest);
                t.rest = rest;
                if (v_max_magnitude(rest, here) >= TG_INFINITY_BITS)
                    break;
            }
        }
        t.n = here;
        t.n = find_scales_of(&t);
        encoders[row][limit][e->residual != NULL](&t);
        if (t.n < here)
            return t.at + t.n;
    }
    return t.at;
}

#endif
