/* From the sums and extremes of a bucket to its scale. */
#ifndef TG_DEVICE_CUDA_SCALES_CUH
#define TG_DEVICE_CUDA_SCALES_CUH

#include "device/cuda/dense.cuh"

extern "C" {
#include "kernels/scales.h"
}

__device__ __forceinline__ tg_sum_of sum_of(norm_kind norm)
{
    return norm == NORM_L2 ? TG_SUM_OF_SQUARES : TG_SUM_OF_MAGNITUDES;
}

/* One summand. */
__device__ __forceinline__ float summand(tg_sum_of what, float x, float scale1, float scale2)
{
    x = x * scale1 * scale2;
    if (what == TG_SUM_OF_MAGNITUDES)
        return tg_bits_float(tg_float_bits(x) & TG_MAGNITUDE_MASK);
    return what == TG_SUM_OF_SQUARES ? x * x : x;
}

/* The radius from a sum of n summands that had been scaled by 2^-exponent. */
__device__ __forceinline__ float radius_of_sum(norm_kind norm, double total, int exponent, u32 n)
{
    const double x = norm == NORM_L2 ? tg_sqrt(total) : total / (double)n;
    return tg_limited_to_float(tg_scale_by(x, exponent));
}

__device__ __forceinline__ void store_scale(const dense_frame &f, u32 bucket, float centre, float radius)
{
    float *at = (float *)(f.scales + (u64)bucket * (f.affine ? 8 : 4));
    if (f.affine)
        *at++ = centre;
    *at = radius;
}

/* The sum over the 16 elements of each lane, in pack.cuh's places: lanes 32 (t / 16) + t % 16 of the sum, and 16 more.
 */
__device__ __forceinline__ float group_sum(tg_sum_of what, const float (&u)[16], float scale1, float scale2)
{
    float a = 0, b = 0;
#pragma unroll
    for (u32 r = 0; r < 16; r += 2) {
        a = a + summand(what, u[r], scale1, scale2);
        b = b + summand(what, u[r + 1], scale1, scale2);
    }
    a = a + __shfl_xor_sync(FULL, a, 16);
    b = b + __shfl_xor_sync(FULL, b, 16);
    a = a + b;
#pragma unroll
    for (int d = 8; d > 0; d /= 2)
        a = a + __shfl_xor_sync(FULL, a, d);
    return a;
}

__device__ __forceinline__ u32 group_largest(const float (&u)[16])
{
    u32 largest = 0;
#pragma unroll
    for (u32 r = 0; r < 16; r++)
        largest = max(largest, (u32)(tg_float_bits(u[r]) & TG_MAGNITUDE_MASK));
    return warp_max(largest);
}

/* The radius of a bucket that is a group, of which n elements exist; the others are 0. Infinite or NaN if a value is.
 */
template <norm_kind NORM> __device__ __forceinline__ float group_radius(const float (&u)[16], u32 n)
{
    if (NORM == NORM_MAX)
        return tg_bits_float(group_largest(u));
    const tg_sum_of what = sum_of(NORM);
    const float quick = group_sum(what, u, 1, 1);
    if (tg_sum_is_safe((double)quick, what)) /* the root of a float, rounded once, is that of a double rounded twice */
        return NORM == NORM_L2 ? __fsqrt_rn(quick) : radius_of_sum(NORM, (double)quick, 0, n);
    const u32 largest = group_largest(u);
    if (largest == 0 || largest >= TG_INFINITY_BITS)
        return tg_bits_float(largest);
    const int e = tg_exponent_of(largest);
    return radius_of_sum(NORM, (double)group_sum(what, u, tg_first_factor(e), tg_second_factor(e)), e, n);
}

#endif
