/* One element of a source: what kernels/source.c computes block by block (u, and the rest that becomes the residual).
 */
#ifndef TG_DEVICE_CUDA_ELEMENT_CUH
#define TG_DEVICE_CUDA_ELEMENT_CUH

#include <float.h>

#include "device/cuda/runtime.cuh"

extern "C" {
#include "base/float16.h"
#include "device/device.h"
}

__device__ __forceinline__ bool is_finite(float x) { return (tg_float_bits(x) & TG_MAGNITUDE_MASK) < TG_INFINITY_BITS; }

/* An element of a tensor as float32. */
__device__ __forceinline__ float element_at(const void *data, tg_dtype dtype, u64 i)
{
    if (dtype == TG_FLOAT32)
        return ((const float *)data)[i];
    const u16 half = ((const u16 *)data)[i];
    return dtype == TG_FLOAT16 ? tg_widen_float16(half) : tg_widen_bfloat16(half);
}

/* A float as an element of a tensor, limited to what is finite; counts the values that were limited or NaN. */
__device__ __forceinline__ void store_element(void *data, tg_dtype dtype, u64 i, float x, u32 *limited)
{
    if (dtype == TG_FLOAT32) {
        ((float *)data)[i] = x;
        return;
    }
    bool saturated = false;
    ((u16 *)data)[i] = dtype == TG_FLOAT16 ? tg_narrow_float16(x, &saturated) : tg_narrow_bfloat16(x, &saturated);
    *limited += saturated || x != x;
}

struct element {
    float push, u, rest;
    bool finite; /* u and rest are */
};

__device__ __forceinline__ void combine(const tg_source &s, float h, element *e)
{
    e->u = e->push + s.alpha * h;
    e->rest = e->push + s.beta * h;
    e->finite = is_finite(e->u) && is_finite(e->rest);
}

/* Element i of a source, from its gradient, momentum and residual. Counts what is dropped as not finite. */
__device__ __forceinline__ element source_of(const tg_source &s, u64 i, float gradient, float m, float h, u32 *dropped)
{
    element e;
    e.push = gradient;
    if (s.drop_nonfinite && !is_finite(e.push)) {
        e.push = 0;
        ++*dropped;
    }
    if (!s.residual) {
        e.u = e.rest = e.push;
        e.finite = is_finite(e.u);
        return e;
    }
    if (s.momentum)
        e.push = s.momentum_factor * m + s.clip_factor * e.push;
    combine(s, h, &e);
    if (s.drop_nonfinite && !e.finite) { /* gradient and residual were finite, their sum is not */
        if (s.damaged && !(is_finite(h) && is_finite(m)))
            atomicMax((unsigned long long *)s.damaged, ~i);
        e.push = 0;
        ++*dropped;
        combine(s, h, &e);
        if (!e.finite) { /* something has written to the residual's memory */
            e.u = e.rest = 0;
            e.finite = true;
        }
    }
    return e;
}

/* Element i; `h` is its residual, where there is one. */
__device__ __forceinline__ element source_at(const tg_source &s, u64 i, float h, u32 *dropped)
{
    return source_of(s, i, element_at(s.gradient, s.dtype, i), s.momentum ? s.momentum[i] : 0, h, dropped);
}

__device__ __forceinline__ float residual_at(const tg_source &s, u64 i) { return s.residual ? s.residual[i] : 0; }

/* Limits a sum to the largest float32, because a residual must stay finite; a NaN was there before. */
__device__ __forceinline__ float limited_sum(float sum, u32 *limited)
{
    if (sum - sum == 0 || sum != sum)
        return sum;
    ++*limited;
    return sum > 0 ? FLT_MAX : -FLT_MAX;
}

#endif
