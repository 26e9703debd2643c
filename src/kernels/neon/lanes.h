/* Vectors of four floats, with the names that the code in kernels/wide uses for vectors of any size: a row of 16
 * lanes is four vectors.
 *
 * A multiplication and an addition are two operations here as everywhere (docs/numerics.md): no vfmaq, and no vmlaq
 * of floats. */
#ifndef TG_KERNELS_NEON_LANES_H
#define TG_KERNELS_NEON_LANES_H

#include "kernels/neon/neon.h"

#if defined(__AARCH64EL__) /* else this folder is compiled to nothing */

#include <arm_neon.h>

#include "kernels/wide/inline.h"

enum { V_LANES = 4 };
typedef float32x4_t v_floats;
typedef uint32x4_t v_ints;

/* Loads and stores are of bytes, because addresses need not be aligned. */
TG_INLINE v_ints v_load_bits(const void *p) { return vreinterpretq_u32_u8(vld1q_u8(p)); }
TG_INLINE void v_store_bits(void *p, v_ints x) { vst1q_u8(p, vreinterpretq_u8_u32(x)); }
TG_INLINE v_floats v_load(const float *p) { return vld1q_f32(p); }
TG_INLINE void v_store(float *p, v_floats x) { vst1q_f32(p, x); }
TG_INLINE void v_store_nontemporal(float *p, v_floats x) { v_store(p, x); }
TG_INLINE v_floats v_load_next(const float *p) { return v_load(p); }
TG_INLINE v_floats v_broadcast(const float *p) { return vld1q_dup_f32(p); }

TG_INLINE v_floats v_float(float x) { return vdupq_n_f32(x); }
TG_INLINE v_floats v_plus(v_floats a, v_floats b) { return vaddq_f32(a, b); }
TG_INLINE v_floats v_sub(v_floats a, v_floats b) { return vsubq_f32(a, b); }
TG_INLINE v_floats v_mul(v_floats a, v_floats b) { return vmulq_f32(a, b); }
TG_INLINE v_floats v_negative(v_floats x) { return vnegq_f32(x); }
/* Of a NaN and a number this returns the number; -0 is below +0. (On x86 the second operand is returned in both cases.
 * Where numbers are limited to a bound >= 0 and to its negative the results are the same.) */
TG_INLINE v_floats v_min(v_floats a, v_floats b) { return vminnmq_f32(a, b); }
TG_INLINE v_floats v_max(v_floats a, v_floats b) { return vmaxnmq_f32(a, b); }
/* To the nearest integer, ties to even, whatever the mode. */
TG_INLINE v_ints v_round(v_floats x) { return vreinterpretq_u32_s32(vcvtnq_s32_f32(x)); }
TG_INLINE v_floats v_convert(v_ints x) { return vcvtq_f32_s32(vreinterpretq_s32_u32(x)); }
TG_INLINE v_ints v_bits(v_floats x) { return vreinterpretq_u32_f32(x); }
TG_INLINE v_floats v_floats_of(v_ints x) { return vreinterpretq_f32_u32(x); }

TG_INLINE v_ints v_int(int x) { return vreinterpretq_u32_s32(vdupq_n_s32(x)); }
TG_INLINE v_ints v_int16(short x) { return vreinterpretq_u32_s16(vdupq_n_s16(x)); }
TG_INLINE v_ints v_add(v_ints a, v_ints b) { return vaddq_u32(a, b); }
TG_INLINE v_ints v_and(v_ints a, v_ints b) { return vandq_u32(a, b); }
TG_INLINE v_ints v_or(v_ints a, v_ints b) { return vorrq_u32(a, b); }
TG_INLINE v_ints v_xor(v_ints a, v_ints b) { return veorq_u32(a, b); }
TG_INLINE v_ints v_xor3(v_ints a, v_ints b, v_ints c) { return veorq_u32(veorq_u32(a, c), b); }
TG_INLINE v_ints v_mul_low(v_ints a, v_ints b) { return vmulq_u32(a, b); }
TG_INLINE v_ints v_larger(v_ints a, v_ints b) { return vmaxq_u32(a, b); }
TG_INLINE uint32_t v_largest(v_ints x) { return vmaxvq_u32(x); }
TG_INLINE v_ints v_add16(v_ints a, v_ints b)
{
    return vreinterpretq_u32_u16(vaddq_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b)));
}
/* An operator instead of an intrinsic: it becomes one instruction where the count is a constant, and the intrinsic
 * accepts nothing but a literal. */
TG_INLINE v_ints v_shift_right(v_ints x, unsigned by) { return x >> by; }
TG_INLINE v_ints v_shift_left(v_ints x, unsigned by) { return x << by; }
TG_INLINE v_ints v_shift_left16(v_ints x, unsigned by)
{
    return vreinterpretq_u32_u16(vreinterpretq_u16_u32(x) << (uint16_t)by);
}
/* The upper halves as signed numbers. */
TG_INLINE v_ints v_upper(v_ints x) { return vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(x), 16)); }
/* The lower halves of a ^ b. */
TG_INLINE v_ints v_xor_lower(v_ints a, v_ints b) { return vandq_u32(veorq_u32(a, b), vdupq_n_u32(0xffff)); }
/* Lower halves of the first, upper halves of the second. */
TG_INLINE v_ints v_blend16(v_ints low, v_ints high) { return vbslq_u32(vdupq_n_u32(0xffff), low, high); }

/* 16-bit codes: one vector of them from memory, two to memory. */
TG_INLINE v_ints v_load_codes(const uint16_t *p) { return vmovl_u16(vld1_u16(p)); }
TG_INLINE void v_store_codes(uint16_t *p, v_ints a, v_ints b)
{
    vst1q_u16(p, vcombine_u16(vmovn_u32(a), vmovn_u32(b)));
}

/* Magnitudes as integers. */
TG_INLINE v_ints v_keys(v_floats x) { return vandq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(TG_MAGNITUDE_MASK)); }

/* tg_hash of counters that have the key's low half added already, but for the last step: x ^ x >> 16. */
TG_INLINE v_ints v_hash_before_last(v_ints x, v_ints key_high)
{
    x = veorq_u32(x, vshrq_n_u32(x, 16));
    x = vmulq_u32(x, vdupq_n_u32(UINT32_C(0x7feb352d)));
    x = veorq_u32(x, key_high);
    x = veorq_u32(x, vshrq_n_u32(x, 15));
    return vmulq_u32(x, vdupq_n_u32(UINT32_C(0x846ca68b)));
}

TG_INLINE v_floats v_magnitude(v_floats x) { return vabsq_f32(x); }

TG_INLINE v_ints v_count_from(uint32_t first)
{
    static const uint32_t lanes[V_LANES] = {0, 1, 2, 3};
    return vaddq_u32(vdupq_n_u32(first), vld1q_u32(lanes));
}

/* The end of the defined summation tree, from one row on: l and l + 8, then 4, 2, 1. */
TG_INLINE float v_sum_of_row(const v_floats row[4])
{
    const v_floats four = vaddq_f32(vaddq_f32(row[0], row[2]), vaddq_f32(row[1], row[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* tg_prefetch. The order after x matters on x86 only. */
TG_INLINE void v_prefetch_after(v_ints x, const void *p, size_t bytes)
{
    (void)x;
    tg_prefetch(p, bytes);
}

TG_INLINE uint32_t v_max_magnitude(const float *values, size_t n) { return tg_neon_max_magnitude(values, n); }
TG_INLINE void v_pack_group(const uint32_t *codes, unsigned width, uint8_t *packed)
{
    tg_neon_pack_group(codes, width, packed);
}

#endif
#endif
