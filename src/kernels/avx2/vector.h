/* What the AVX2 kernels share: rows of 16 lanes are two vectors of eight. */
#ifndef TG_KERNELS_AVX2_VECTOR_H
#define TG_KERNELS_AVX2_VECTOR_H

#include "base/bytes.h"
#include "kernels/avx2/avx2.h"
#include "kernels/wide/inline.h"

#if defined(__AVX2__) /* otherwise this folder compiles to nothing */

#include <immintrin.h>

TG_INLINE __m256i tg_load_bits(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
TG_INLINE void tg_store_bits(void *p, __m256i v) { _mm256_storeu_si256((__m256i *)p, v); }
TG_INLINE __m256i tg_bits_of(__m256 v) { return _mm256_castps_si256(v); }
TG_INLINE __m256 tg_magnitude_of(__m256 v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }

/* The largest of eight unsigned numbers. */
TG_INLINE uint32_t tg_largest_of(__m256i v)
{
    __m128i x = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0x4e));
    x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(x);
}

/* The end of the defined summation tree, from a row of 16 lanes on: l and l + 8, then 4, 2, 1. */
TG_INLINE float tg_sum_of_row(__m256 low, __m256 high)
{
    __m256 eight = _mm256_add_ps(low, high);
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    x = _mm_add_ss(x, _mm_movehdup_ps(x));
    return _mm_cvtss_f32(x);
}

/* tg_hash of eight counters to which the key's low half has been added, without the last step: x ^ x >> 16. */
TG_INLINE __m256i tg_hash_before_last(__m256i x, __m256i key_high)
{
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32(0x7feb352d));
    x = _mm256_xor_si256(x, key_high);
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 15));
    return _mm256_mullo_epi32(x, _mm256_set1_epi32((int)0x846ca68bu));
}

/* With the name that the code in kernels/wide uses. */
TG_INLINE void v_pack_group(const uint32_t *codes, unsigned width, uint8_t *packed)
{
    tg_avx2_pack_group(codes, width, packed);
}

TG_INLINE __m256i tg_count_from(uint32_t first)
{
    return _mm256_add_epi32(_mm256_set1_epi32((int)first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

#endif
#endif
