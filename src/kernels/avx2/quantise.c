/* Quantising and dequantising one bucket, for layouts and buckets that the fused kernels do not support. */
#include "kernels/avx2/vector.h"

#if defined(__AVX2__)

#include <float.h>

#include "kernels/avx2/avx2.h"
#include "kernels/scalar.h"

/* tg_random16 of eight consecutive elements. */
TG_INLINE __m256i draws_of(__m256i index, __m256i key_low, __m256i key_high)
{
    const __m256i sixteen = _mm256_set1_epi32(16);
    __m256i upper = _mm256_slli_epi32(_mm256_srli_epi32(index, 5), 4);
    __m256i counter = _mm256_or_si256(upper, _mm256_and_si256(index, _mm256_set1_epi32(15)));
    __m256i x = tg_hash_before_last(_mm256_add_epi32(counter, key_low), key_high);
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
    return _mm256_and_si256(_mm256_srlv_epi32(x, _mm256_and_si256(index, sixteen)), _mm256_set1_epi32(0xffff));
}

void tg_avx2_quantise(const tg_quantiser *q, const float *values, size_t n, uint32_t first, tg_hash_key key,
                      uint16_t *codes)
{
    const float most = (float)q->levels * 0x1p16f;
    const __m256 limit = _mm256_set1_ps(most), least = _mm256_set1_ps(-most);
    const __m256 centre = _mm256_set1_ps(q->centre), lift = _mm256_set1_ps(q->lift), gain = _mm256_set1_ps(q->gain);
    const __m256i offset = _mm256_set1_epi32((int)(q->levels << 16));
    const __m256i low = _mm256_set1_epi32((int)key.low), high = _mm256_set1_epi32((int)key.high);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256i code[2];
        TG_UNROLL
        for (unsigned half = 0; half < 2; half++) {
            __m256 x = _mm256_sub_ps(_mm256_loadu_ps(values + i + 8 * half), centre);
            x = _mm256_mul_ps(_mm256_mul_ps(x, lift), gain);
            x = _mm256_min_ps(_mm256_max_ps(x, least), limit);
            __m256i fixed = _mm256_add_epi32(_mm256_cvtps_epi32(x), offset);
            __m256i draws = draws_of(tg_count_from(first + (uint32_t)i + 8 * half), low, high);
            code[half] = _mm256_srli_epi32(_mm256_add_epi32(fixed, draws), 16);
        }
        tg_store_bits(codes + i, _mm256_permute4x64_epi64(_mm256_packus_epi32(code[0], code[1]), 0xd8));
    }
    tg_scalar_quantise(q, values + i, n - i, first + (uint32_t)i, key, codes + i);
}

TG_INLINE __m256 limit_to(__m256 x, __m256 bound)
{
    x = _mm256_min_ps(bound, x);
    return _mm256_max_ps(_mm256_xor_ps(bound, _mm256_set1_ps(-0.0f)), x);
}

void tg_avx2_dequantise(const tg_quantiser *q, const uint16_t *codes, size_t n, float *values)
{
    const __m256i top = _mm256_set1_epi32((int)(2 * q->levels)), levels = _mm256_set1_epi32((int)q->levels);
    const __m256 unit = _mm256_set1_ps(q->unit), drop = _mm256_set1_ps(q->drop);
    const __m256 radius = _mm256_set1_ps(q->radius), centre = _mm256_set1_ps(q->centre);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i code = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(codes + i)));
        code = _mm256_sub_epi32(_mm256_min_epu32(code, top), levels);
        __m256 x = _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(code), unit), drop);
        x = limit_to(x, radius);
        if (q->affine)
            x = limit_to(_mm256_add_ps(centre, x), _mm256_set1_ps(FLT_MAX));
        _mm256_storeu_ps(values + i, x);
    }
    tg_scalar_dequantise(q, codes + i, n - i, values + i);
}

#endif
