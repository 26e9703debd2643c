/* The reductions that scales are computed from, and selection keys, eight elements at a time. */
#include "kernels/avx2/vector.h"

#if defined(__AVX2__)

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/lanes.h"
#include "kernels/wide/sum.h"
#include "kernels/wide/variants.h"

size_t tg_avx2_first_nonfinite(const float *values, size_t n)
{
    const __m256i mask = _mm256_set1_epi32((int)TG_MAGNITUDE_MASK),
                  largest = _mm256_set1_epi32((int)TG_MAX_FINITE_BITS);
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i a = _mm256_and_si256(tg_load_bits(values + i), mask),
                b = _mm256_and_si256(tg_load_bits(values + i + 8), mask);
        __m256i c = _mm256_and_si256(tg_load_bits(values + i + 16), mask),
                d = _mm256_and_si256(tg_load_bits(values + i + 24), mask);
        __m256i most = _mm256_max_epu32(_mm256_max_epu32(a, b), _mm256_max_epu32(c, d));
        __m256i bad = _mm256_cmpgt_epi32(most, largest);
        if (!_mm256_testz_si256(bad, bad))
            break;
    }
    return i + tg_scalar_first_nonfinite(values + i, n - i);
}

uint32_t tg_avx2_max_magnitude(const float *values, size_t n)
{
    const __m256i mask = _mm256_set1_epi32((int)TG_MAGNITUDE_MASK);
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a = _mm256_max_epu32(a, _mm256_and_si256(tg_load_bits(values + i), mask));
        b = _mm256_max_epu32(b, _mm256_and_si256(tg_load_bits(values + i + 8), mask));
        c = _mm256_max_epu32(c, _mm256_and_si256(tg_load_bits(values + i + 16), mask));
        d = _mm256_max_epu32(d, _mm256_and_si256(tg_load_bits(values + i + 24), mask));
    }
    uint32_t most = tg_largest_of(_mm256_max_epu32(_mm256_max_epu32(a, b), _mm256_max_epu32(c, d)));
    uint32_t left = tg_scalar_max_magnitude(values + i, n - i);
    return left > most ? left : most;
}

/* The larger of `largest` and the magnitudes of eight u, and of eight rest where that differs, as bits. */
TG_INLINE __m256i larger_of(__m256i largest, const float *gradient, const float *residual, __m256 alpha, __m256 beta,
                            bool differ)
{
    const __m256i mask = _mm256_set1_epi32((int)TG_MAGNITUDE_MASK);
    const __m256 g = _mm256_loadu_ps(gradient);
    if (!residual)
        return _mm256_max_epu32(largest, _mm256_and_si256(mask, tg_bits_of(g)));
    const __m256 h = _mm256_loadu_ps(residual), u = _mm256_add_ps(g, _mm256_mul_ps(alpha, h));
    largest = _mm256_max_epu32(largest, _mm256_and_si256(mask, tg_bits_of(u)));
    if (differ)
        largest = _mm256_max_epu32(largest,
                                   _mm256_and_si256(mask, tg_bits_of(_mm256_add_ps(g, _mm256_mul_ps(beta, h)))));
    return largest;
}

TG_INLINE bool finite_as(const float *gradient, const float *residual, float alpha, float beta, size_t n, bool differ)
{
    const __m256 a = _mm256_set1_ps(alpha), b = _mm256_set1_ps(beta);
    __m256i even = _mm256_setzero_si256(), odd = even;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        even = larger_of(even, gradient + i, residual ? residual + i : NULL, a, b, differ);
        odd = larger_of(odd, gradient + i + 8, residual ? residual + i + 8 : NULL, a, b, differ);
    }
    bool finite = tg_largest_of(_mm256_max_epu32(even, odd)) < TG_INFINITY_BITS;
    for (; i < n; i++) {
        float h = residual ? residual[i] : 0, u = gradient[i] + alpha * h, rest = gradient[i] + beta * h;
        finite = finite && u - u == 0 && rest - rest == 0;
    }
    return finite;
}

bool tg_avx2_all_finite(const float *gradient, const float *residual, float alpha, float beta, size_t n)
{
    if (!residual)
        return finite_as(gradient, NULL, 0, 0, n, false);
    return alpha == beta ? finite_as(gradient, residual, alpha, alpha, n, false)
                         : finite_as(gradient, residual, alpha, beta, n, true);
}

/* Finite floats in order as signed integers, -0 below +0; its own inverse. */
TG_INLINE __m256i order_of(__m256i bits)
{
    return _mm256_xor_si256(bits, _mm256_srli_epi32(_mm256_srai_epi32(bits, 31), 1));
}

void tg_avx2_extremes(const float *values, size_t n, float *least, float *largest)
{
    if (n < 8) {
        tg_scalar_extremes(values, n, least, largest);
        return;
    }
    __m256i low = order_of(tg_load_bits(values)), high = low;
    for (size_t i = 8; i < n; i += 8) { /* the last eight may overlap those before, which does not change extremes */
        __m256i x = order_of(tg_load_bits(values + (i + 8 <= n ? i : n - 8)));
        low = _mm256_min_epi32(low, x);
        high = _mm256_max_epi32(high, x);
    }
    float lows[8], highs[8], other;
    tg_store_bits(lows, order_of(low));
    tg_store_bits(highs, order_of(high));
    tg_scalar_extremes(lows, 8, least, &other);
    tg_scalar_extremes(highs, 8, &other, largest);
}

TG_BLOCK_SUM(tg_avx2_block_sum)

/* ---- selection ---- */

void tg_avx2_magnitude_keys(const float *values, size_t n, uint32_t *keys)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        tg_store_bits(keys + i, _mm256_and_si256(tg_load_bits(values + i), _mm256_set1_epi32((int)TG_MAGNITUDE_MASK)));
    tg_scalar_magnitude_keys(values + i, n - i, keys + i);
}

void tg_avx2_random_keys(tg_hash_key key, uint32_t first, size_t n, uint32_t *keys)
{
    const __m256i high = _mm256_set1_epi32((int)key.high);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i x = tg_hash_before_last(tg_count_from(first + (uint32_t)i + key.low), high);
        tg_store_bits(keys + i, _mm256_srli_epi32(_mm256_xor_si256(x, _mm256_srli_epi32(x, 16)), 1));
    }
    tg_scalar_random_keys(key, first + (uint32_t)i, n - i, keys + i);
}

uint64_t tg_avx2_count_at_least(const uint32_t *keys, size_t n, uint32_t least)
{
    const __m256i bound = _mm256_set1_epi32((int)least);
    uint64_t count = 0;
    size_t i = 0;
    while (i + 8 <= n) { /* the lanes are added up before they reach 2^31 */
        __m256i lanes = _mm256_setzero_si256();
        for (size_t end = n - i > TG_BLOCK ? i + TG_BLOCK : n; i + 8 <= end; i += 8) {
            __m256i x = tg_load_bits(keys + i);
            lanes = _mm256_sub_epi32(lanes, _mm256_cmpeq_epi32(_mm256_max_epu32(x, bound), x));
        }
        uint32_t each[8];
        tg_store_bits(each, lanes);
        for (int lane = 0; lane < 8; lane++)
            count += each[lane];
    }
    return count + tg_scalar_count_at_least(keys + i, n - i, least);
}

#endif
