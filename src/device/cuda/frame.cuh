/* A frame of a codec that sends something for every element, on the card: where its parts are, and its values. */
#ifndef TG_DEVICE_CUDA_FRAME_CUH
#define TG_DEVICE_CUDA_FRAME_CUH

#include "device/cuda/device.cuh"
#include "device/cuda/element.cuh"

extern "C" {
#include "kernels/quantiser.h"
}

enum dense_kind : u32 { PLAIN, LEVELS, SIGNS };

struct dense_frame {
    dense_kind kind;
    tg_dtype wire; /* PLAIN: the dtype of the values */
    u32 count;
    u32 levels, width, bucket; /* bucket: that of the last element is count / bucket */
    bool affine;
    u8 *codes;  /* or values; on 16 bytes */
    u8 *scales; /* on 4 bytes */
};

/* How a codec of this kind lays out a payload of `count` elements, which begins at `payload`. False if the card has no
 * kernels for it. */
bool tg_cuda_dense_frame(const tg_spec *spec, tg_dtype dtype, u64 count, u8 *payload, dense_frame *frame);
/* Bytes of the payload. */
u64 tg_cuda_dense_size(const dense_frame *frame);
u64 tg_cuda_scale_words(const dense_frame *frame);

/* Where only the card knows how many elements there are: the frame was laid out for at least so many. */
__device__ __forceinline__ void set_count(dense_frame &f, u32 count)
{
    f.count = count;
    f.bucket = min(f.bucket, max(count, 1u));
}

static __host__ __device__ inline u32 buckets_of(const dense_frame &f)
{
    return f.count ? (f.count - 1) / f.bucket + 1 : 0;
}

/* Bytes of packed codes, and words of the scales behind them. */
static __host__ __device__ inline u64 codes_size(const dense_frame &f)
{
    return ((u64)f.count * f.width + 31) / 32 * 4;
}
static __host__ __device__ inline u64 scale_words(const dense_frame &f)
{
    return (u64)buckets_of(f) * (f.affine ? 2 : 1);
}

__device__ __forceinline__ tg_quantiser quantiser_at(const dense_frame &f, u32 bucket)
{
    const float *at = (const float *)(f.scales + (u64)bucket * (f.affine ? 8 : 4));
    return tg_quantiser_from(f.levels, f.affine ? at[0] : 0, at[f.affine ? 1 : 0], f.affine);
}

/* The code of element i, at any place. */
__device__ __forceinline__ u32 code_at(const dense_frame &f, u32 i)
{
    const u32 group = i / TG_GROUP, j = i % TG_GROUP, w = f.width;
    const u8 *at = f.codes + (u64)group * (TG_GROUP / 8) * w;
    u32 bits = 0;
    if (group < f.count / TG_GROUP) { /* bit (j / 16) * w of the lane j % 16 */
        const u32 *words = (const u32 *)at;
        const u32 bit = j / TG_LANES * w, lane = j % TG_LANES, k = bit / 32, shift = bit % 32;
        bits = words[TG_LANES * k + lane] >> shift;
        if (shift + w > 32)
            bits |= words[TG_LANES * (k + 1) + lane] << (32 - shift);
    } else { /* a plain stream, whose last word is padded */
        const u32 *words = (const u32 *)at;
        const u32 bit = j * w, k = bit / 32, shift = bit % 32;
        bits = words[k] >> shift;
        if (shift + w > 32)
            bits |= words[k + 1] << (32 - shift);
    }
    return bits & ((1u << w) - 1);
}

__device__ __forceinline__ float value_at(const dense_frame &f, u32 i)
{
    if (f.kind == PLAIN)
        return element_at(f.codes, f.wire, i);
    const u32 code = code_at(f, i), bucket = i / f.bucket;
    if (f.kind == SIGNS) {
        const float mean = ((const float *)f.scales)[bucket];
        return code ? mean : -mean;
    }
    const tg_quantiser q = quantiser_at(f, bucket);
    return tg_value_of(&q, code);
}

#endif
