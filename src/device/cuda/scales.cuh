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

#endif
