/* Vectors of eight floats, with the names that the code in kernels/wide uses for vectors of any size. */
#ifndef TG_KERNELS_AVX2_LANES_H
#define TG_KERNELS_AVX2_LANES_H

#include "kernels/avx2/vector.h"

enum { V_LANES = 8 };
typedef __m256 v_floats;
typedef __m256i v_ints;

TG_INLINE v_floats v_load(const float *p) { return _mm256_loadu_ps(p); }
/* The same, but ordered after the loads that used it before. Processors detect a stream and prefetch it only where its
 * lines are read in order, and compilers reorder loads (docs/log/cpu-kernels.md). */
TG_INLINE v_floats v_load_next(const float *p)
{
    v_floats x;
    __asm__ volatile("vmovups %1, %0" : "=v"(x) : "m"(*(const float(*)[V_LANES])p));
    return x;
}
TG_INLINE v_floats v_broadcast(const float *p) { return _mm256_set1_ps(*p); }
TG_INLINE v_floats v_float(float x) { return _mm256_set1_ps(x); }
TG_INLINE v_floats v_mul(v_floats a, v_floats b) { return _mm256_mul_ps(a, b); }
TG_INLINE v_floats v_plus(v_floats a, v_floats b) { return _mm256_add_ps(a, b); }
TG_INLINE v_floats v_sub(v_floats a, v_floats b) { return _mm256_sub_ps(a, b); }
TG_INLINE v_floats v_min(v_floats a, v_floats b) { return _mm256_min_ps(a, b); }
TG_INLINE v_floats v_max(v_floats a, v_floats b) { return _mm256_max_ps(a, b); }
TG_INLINE v_ints v_round(v_floats x) { return _mm256_cvtps_epi32(x); }
TG_INLINE v_floats v_convert(v_ints x) { return _mm256_cvtepi32_ps(x); }
TG_INLINE v_ints v_int(int x) { return _mm256_set1_epi32(x); }
TG_INLINE v_ints v_int16(short x) { return _mm256_set1_epi16(x); }
TG_INLINE v_ints v_add(v_ints a, v_ints b) { return _mm256_add_epi32(a, b); }
TG_INLINE v_ints v_xor(v_ints a, v_ints b) { return _mm256_xor_si256(a, b); }
TG_INLINE v_ints v_mul_low(v_ints a, v_ints b) { return _mm256_mullo_epi32(a, b); }
TG_INLINE v_ints v_add16(v_ints a, v_ints b) { return _mm256_add_epi16(a, b); }
TG_INLINE v_ints v_and(v_ints a, v_ints b) { return _mm256_and_si256(a, b); }
TG_INLINE v_ints v_or(v_ints a, v_ints b) { return _mm256_or_si256(a, b); }
/* Of unsigned numbers. */
TG_INLINE v_ints v_larger(v_ints a, v_ints b) { return _mm256_max_epu32(a, b); }
TG_INLINE uint32_t v_largest(v_ints x) { return tg_largest_of(x); }
TG_INLINE v_floats v_magnitude(v_floats x) { return tg_magnitude_of(x); }
/* Magnitudes as integers. */
TG_INLINE v_ints v_keys(v_floats x)
{
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32((int)TG_MAGNITUDE_MASK));
}
/* The end of the defined summation tree, from one row on. */
TG_INLINE float v_sum_of_row(const v_floats row[2]) { return tg_sum_of_row(row[0], row[1]); }
TG_INLINE uint32_t v_max_magnitude(const float *values, size_t n) { return tg_avx2_max_magnitude(values, n); }
TG_INLINE void v_store(float *p, v_floats x) { _mm256_storeu_ps(p, x); }
/* A non-temporal store to an aligned address. */
TG_INLINE void v_store_nontemporal(float *p, v_floats x) { _mm256_stream_ps(p, x); }
/* The same to an address that is aligned to 16 bytes only. */
TG_INLINE void v_store_nontemporal_parts(float *p, v_floats x)
{
    _mm_stream_ps(p, _mm256_castps256_ps128(x));
    _mm_stream_ps(p + 4, _mm256_extractf128_ps(x, 1));
}
TG_INLINE v_ints v_load_bits(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
TG_INLINE void v_store_bits(void *p, v_ints x) { _mm256_storeu_si256((__m256i *)p, x); }
/* 16-bit codes: one vector of them from memory, two to memory. */
TG_INLINE v_ints v_load_codes(const uint16_t *p)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
TG_INLINE void v_store_codes(uint16_t *p, v_ints a, v_ints b)
{
    v_store_bits(p, _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8));
}
TG_INLINE v_ints v_shift_left(v_ints x, unsigned by) { return _mm256_slli_epi32(x, (int)by); }
TG_INLINE v_ints v_shift_right(v_ints x, unsigned by) { return _mm256_srli_epi32(x, (int)by); }
TG_INLINE v_ints v_shift_left16(v_ints x, unsigned by) { return _mm256_slli_epi16(x, (int)by); }
/* The upper halves as signed numbers. */
TG_INLINE v_ints v_upper(v_ints x) { return _mm256_srai_epi32(x, 16); }
TG_INLINE v_floats v_negative(v_floats x) { return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f)); }
/* The lower halves of a ^ b. */
TG_INLINE v_ints v_xor_lower(v_ints a, v_ints b)
{
    return _mm256_and_si256(_mm256_xor_si256(a, b), _mm256_set1_epi32(0xffff));
}
/* Lower halves of the first, upper halves of the second. */
TG_INLINE v_ints v_blend16(v_ints low, v_ints high) { return _mm256_blend_epi16(low, high, 0xaa); }
/* tg_prefetch, but not before x has been computed: compilers would issue many prefetches at once, which is slower than
 * a few at a time (docs/log/cpu-kernels.md). */
TG_INLINE void v_prefetch_after(v_ints x, const void *p, size_t bytes)
{
    __asm__ volatile("prefetcht0 %0" : : "m"(*(const char *)((uintptr_t)p + bytes)), "v"(x));
}
TG_INLINE v_ints v_xor3(v_ints a, v_ints b, v_ints c) { return v_xor(v_xor(a, c), b); }

#endif
