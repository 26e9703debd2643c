/* Vectors of sixteen floats, with the names that the code in kernels/wide uses for vectors of any size: a row of a
 * group is one vector. */
#ifndef TG_KERNELS_AVX512_LANES_H
#define TG_KERNELS_AVX512_LANES_H

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/vector.h"

enum { V_LANES = 16 };
typedef __m512 v_floats;
typedef __m512i v_ints;

TG_INLINE v_floats v_load(const float *p) { return _mm512_loadu_ps(p); }
/* The same, but ordered after the loads that used it before. Processors detect a stream and prefetch it only where its
 * lines are read in order, and compilers reorder loads (docs/log/cpu-kernels.md). */
TG_INLINE v_floats v_load_next(const float *p)
{
    v_floats x;
    __asm__ volatile("vmovups %1, %0" : "=v"(x) : "m"(*(const float(*)[V_LANES])p));
    return x;
}
TG_INLINE v_floats v_broadcast(const float *p) { return _mm512_set1_ps(*p); }
TG_INLINE v_floats v_float(float x) { return _mm512_set1_ps(x); }
TG_INLINE v_floats v_mul(v_floats a, v_floats b) { return _mm512_mul_ps(a, b); }
TG_INLINE v_floats v_plus(v_floats a, v_floats b) { return _mm512_add_ps(a, b); }
TG_INLINE v_floats v_sub(v_floats a, v_floats b) { return _mm512_sub_ps(a, b); }
TG_INLINE v_floats v_min(v_floats a, v_floats b) { return _mm512_min_ps(a, b); }
TG_INLINE v_floats v_max(v_floats a, v_floats b) { return _mm512_max_ps(a, b); }
TG_INLINE v_ints v_round(v_floats x) { return _mm512_cvtps_epi32(x); }
TG_INLINE v_floats v_convert(v_ints x) { return _mm512_cvtepi32_ps(x); }
TG_INLINE v_ints v_int(int x) { return _mm512_set1_epi32(x); }
TG_INLINE v_ints v_int16(short x) { return _mm512_set1_epi16(x); }
TG_INLINE v_ints v_add(v_ints a, v_ints b) { return _mm512_add_epi32(a, b); }
TG_INLINE v_ints v_and(v_ints a, v_ints b) { return _mm512_and_si512(a, b); }
TG_INLINE v_ints v_xor(v_ints a, v_ints b) { return _mm512_xor_si512(a, b); }
TG_INLINE v_ints v_mul_low(v_ints a, v_ints b) { return _mm512_mullo_epi32(a, b); }
TG_INLINE v_ints v_add16(v_ints a, v_ints b) { return _mm512_add_epi16(a, b); }
/* Of unsigned numbers. */
TG_INLINE v_ints v_larger(v_ints a, v_ints b) { return _mm512_max_epu32(a, b); }
TG_INLINE uint32_t v_largest(v_ints x) { return _mm512_reduce_max_epu32(x); }
TG_INLINE v_floats v_magnitude(v_floats x) { return _mm512_abs_ps(x); }
/* Magnitudes as integers. */
TG_INLINE v_ints v_keys(v_floats x)
{
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)TG_MAGNITUDE_MASK));
}
TG_INLINE uint32_t v_max_magnitude(const float *values, size_t n) { return tg_avx2_max_magnitude(values, n); }
TG_INLINE void v_store(float *p, v_floats x) { _mm512_storeu_ps(p, x); }
/* A non-temporal store to an aligned address. */
TG_INLINE void v_store_nontemporal(float *p, v_floats x) { _mm512_stream_ps(p, x); }
/* The same to an address that is aligned to 16 bytes only. */
TG_INLINE void v_store_nontemporal_parts(float *p, v_floats x)
{
    _mm_stream_ps(p, _mm512_castps512_ps128(x));
    _mm_stream_ps(p + 4, _mm512_extractf32x4_ps(x, 1));
    _mm_stream_ps(p + 8, _mm512_extractf32x4_ps(x, 2));
    _mm_stream_ps(p + 12, _mm512_extractf32x4_ps(x, 3));
}
TG_INLINE v_ints v_load_bits(const void *p) { return _mm512_loadu_si512(p); }
TG_INLINE void v_store_bits(void *p, v_ints x) { _mm512_storeu_si512(p, x); }
/* Compilers differ in whether the count of a shift is signed. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
TG_INLINE v_ints v_shift_right(v_ints x, unsigned by) { return _mm512_srli_epi32(x, by); }
TG_INLINE v_ints v_shift_left16(v_ints x, unsigned by) { return _mm512_slli_epi16(x, by); }
#pragma GCC diagnostic pop
/* The end of the defined summation tree, from one row on. */
TG_INLINE float v_sum_of_row(const v_floats row[1])
{
    return tg_sum_of_row(_mm512_castps512_ps256(row[0]), _mm512_extractf32x8_ps(row[0], 1));
}
/* The upper halves as signed numbers. */
TG_INLINE v_ints v_upper(v_ints x) { return _mm512_srai_epi32(x, 16); }
TG_INLINE v_floats v_negative(v_floats x) { return _mm512_xor_ps(x, _mm512_set1_ps(-0.0f)); }
/* The lower halves of a ^ b: one operation on three. */
TG_INLINE v_ints v_xor_lower(v_ints a, v_ints b)
{
    return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi32(0xffff), 0x28);
}
/* Lower halves of the first, upper halves of the second. */
TG_INLINE v_ints v_blend16(v_ints low, v_ints high) { return _mm512_mask_blend_epi16(0xaaaaaaaa, low, high); }
/* tg_prefetch, but not before x has been computed: compilers would issue many prefetches at once, which is slower than
 * a few at a time (docs/log/cpu-kernels.md). */
TG_INLINE void v_prefetch_after(v_ints x, const void *p, size_t bytes)
{
    __asm__ volatile("prefetcht0 %0" : : "m"(*(const char *)((uintptr_t)p + bytes)), "v"(x));
}
/* The same, into the second-level cache only. */
#define V_SECOND
TG_INLINE void v_prefetch_second_after(v_ints x, const void *p, size_t bytes)
{
    __asm__ volatile("prefetcht1 %0" : : "m"(*(const char *)((uintptr_t)p + bytes)), "v"(x));
}
TG_INLINE v_ints v_xor3(v_ints a, v_ints b, v_ints c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }
/* Sixteen values by the lowest four bits of a number. */
#define V_LOOKUP
TG_INLINE v_floats v_look_up(v_floats values, v_ints number) { return _mm512_permutexvar_ps(number, values); }
TG_INLINE v_ints v_signed_nibbles(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
}

#endif
