/* What a code of packed levels adds to a sum, where buckets are groups of 512. */
#ifndef TG_DEVICE_CUDA_ADDEND_CUH
#define TG_DEVICE_CUDA_ADDEND_CUH

#include "device/cuda/frame.cuh"
#include "device/cuda/levels.cuh"

/* What kernels need of a frame. */
struct fast_frame {
    const u8 *codes;
    const float *scales;
    float zero; /* of level_of */
    u32 levels;
};

static inline fast_frame fast_frame_of(const dense_frame &f)
{
    return {f.codes, (const float *)(const void *)f.scales, 8388608.0f + (float)f.levels, f.levels};
}

/* What a code adds to the sum. Codes beyond the outermost level count as that: they are limited to the same. */
__device__ __forceinline__ float addend(const fast_frame &f, const tg_quantiser &q, float weight, u32 code)
{
    const float value = level_of(code | 0x4B000000u, f.zero) * q.unit;
    return weight * limited(q.lift != 1 ? value * q.drop : value, q.radius);
}

#endif
