/* The fused encoder's way through a run: unit by unit, compensate, find the scales, and hand over to the rows. */
#include "kernels/avx2/vector.h"

#if defined(__AVX2__)

#include "base/numeric.h"
#include "kernels/avx2/avx2.h"
#include "kernels/avx2/levels_unit.h"
#include "kernels/quantiser.h"

/* ---- staging: u, and what a scale is made of, in one go over a bucket ---- */

/* u = gradient + factor * residual, which goes to `sum`; or the gradient itself. */
TG_INLINE __m256 eight_of(const float *gradient, const float *residual, __m256 factor, size_t i, float *sum)
{
    __m256 x = _mm256_loadu_ps(gradient + i);
    if (residual) {
        x = _mm256_add_ps(x, _mm256_mul_ps(factor, _mm256_loadu_ps(residual + i)));
        _mm256_storeu_ps(sum + i, x);
    }
    return x;
}

TG_INLINE uint32_t stage_max(const float *gradient, const float *residual, float factor, size_t n, float *sum)
{
    const __m256 f = _mm256_set1_ps(factor);
    const __m256i mask = _mm256_set1_epi32((int)TG_MAGNITUDE_MASK);
    __m256i a = _mm256_setzero_si256(), b = a;
    for (size_t i = 0; i < n; i += 16) {
        a = _mm256_max_epu32(a, _mm256_and_si256(mask, tg_bits_of(eight_of(gradient, residual, f, i, sum))));
        b = _mm256_max_epu32(b, _mm256_and_si256(mask, tg_bits_of(eight_of(gradient, residual, f, i + 8, sum))));
    }
    return tg_largest_of(_mm256_max_epu32(a, b));
}

/* The largest magnitude, too: it costs nothing, as the sums wait for each other. */
TG_INLINE float stage_squares(const float *gradient, const float *residual, float factor, size_t n, float *sum, float *largest)
{
    const __m256 f = _mm256_set1_ps(factor);
    __m256 low = _mm256_setzero_ps(), high = low, most = low;
    for (size_t i = 0; i < n; i += 16) {
        __m256 x = eight_of(gradient, residual, f, i, sum), y = eight_of(gradient, residual, f, i + 8, sum);
        low = _mm256_add_ps(low, _mm256_mul_ps(x, x));
        high = _mm256_add_ps(high, _mm256_mul_ps(y, y));
        most = _mm256_max_ps(most, _mm256_max_ps(tg_magnitude_of(x), tg_magnitude_of(y)));
    }
    *largest = tg_bits_float(tg_largest_of(tg_bits_of(most)));
    return tg_sum_of_lanes(low, high);
}

TG_INLINE void stage_values(const float *gradient, const float *residual, float factor, size_t n, float *sum)
{
    const __m256 f = _mm256_set1_ps(factor);
    for (size_t i = 0; residual && i < n; i += 8)
        (void)eight_of(gradient, residual, f, i, sum);
}

/* False where the value needs care. */
TG_INLINE bool stage_bucket(const tg_levels_encoding *e, tg_norm norm, const float *gradient, const float *residual, size_t n,
                            const uint8_t *stored, float *u, float *radius, float *largest)
{
    if (norm == TG_NORM_MAX) {
        const uint32_t bits = stage_max(gradient, residual, e->alpha, n, u);
        *radius = tg_bits_float(bits);
        return bits < TG_INFINITY_BITS;
    }
    if (norm == TG_NORM_L2) {
        const float sum = stage_squares(gradient, residual, e->alpha, n, u, largest);
        *radius = (float)tg_sqrt((double)sum);
        return sum >= 0x1p-80f && tg_float_bits(sum) < TG_INFINITY_BITS;
    }
    stage_values(gradient, residual, e->alpha, n, u);
    *radius = tg_load_float(stored);
    return true;
}

/* u and scales of the unit's buckets, up to the first that needs care. */
TG_INLINE void stage_as(tg_unit *t, tg_norm norm, bool feedback, float *u)
{
    const tg_levels_encoding *e = t->encoding;
    const size_t bucket = e->bucket < t->n ? e->bucket : t->n;
    size_t done = 0;
    for (size_t b = 0; done < t->n; b++, done += bucket) {
        float radius, largest = 0;
        if (!stage_bucket(e, norm, e->gradient + t->at + done, feedback ? e->residual + t->at + done : NULL, bucket,
                          t->scales + 4 * b, u + done, &radius, &largest))
            break;
        if (!(radius >= TG_LIFT_BELOW) && radius != 0)
            break;
        t->radius[b] = radius;
        t->gain[b] = radius > 0 ? tg_level_gain(e->levels, radius) : 0;
        t->exceeds = t->exceeds || largest * t->gain[b] > (float)e->levels * 0x1p16f;
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
    case TG_NORM_MAX: feedback ? stage_as(t, TG_NORM_MAX, true, u) : stage_as(t, TG_NORM_MAX, false, u); break;
    case TG_NORM_L2: feedback ? stage_as(t, TG_NORM_L2, true, u) : stage_as(t, TG_NORM_L2, false, u); break;
    default: stage_as(t, TG_NORM_GIVEN, feedback, u); break;
    }
}

size_t tg_avx2_encode_units(const tg_levels_encoding *e, size_t n, const tg_unit_encoders encoders)
{
    const size_t step = e->norm != TG_NORM_GIVEN && e->bucket > TG_UNIT ? e->bucket : TG_UNIT;
    /* What is packed at once has one scale; else the variant for any width, which looks after every pair of rows, takes it. */
    const bool small = e->bucket < (e->width == 2 ? 256 : 128);
    const unsigned row = small ? 3 : e->width == 2 ? 0 : e->width == 4 ? 1 : e->width == 8 ? 2 : 3;
    /* A largest magnitude is off by so little that a position rounds to the last level all the same: by 2^-24 of 2^23 at most for 127
     * levels. Whether a norm is less than it should be is found out for each unit. */
    const bool limit = e->exceeds || (e->norm != TG_NORM_L2 && e->levels > (e->norm == TG_NORM_MAX ? 127 : 31));
    float u[TG_BLOCK], rest[TG_BLOCK];
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
            if (tg_avx2_max_magnitude(rest, here) >= TG_INFINITY_BITS)
                break;
        }
        t.n = here;
        t.exceeds = false;
        stage(&t, u);
        encoders[row][limit || t.exceeds][e->residual != NULL](&t);
        if (t.n < here)
            return t.at + t.n;
    }
    return t.at;
}

#endif
