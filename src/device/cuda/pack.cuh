/* A group of 512 elements in the registers of a warp, and its codes in the packed layout (docs/format.md, 4.1).
 *
 * Lane t has 16 elements of the group: number r is 64 (r / 2) + 32 (t / 16) + 16 (r % 2) + t % 16. So it has both
 * elements that share a hash, and all of two lanes of a sum; loads of a warp are runs of 16 elements. */
#ifndef TG_DEVICE_CUDA_PACK_CUH
#define TG_DEVICE_CUDA_PACK_CUH

#include "device/cuda/runtime.cuh"

extern "C" {
#include "kernels/kernels.h"
}

__device__ __forceinline__ u32 place_of(u32 t, u32 r) { return 64 * (r / 2) + 32 * (t / 16) + 16 * (r % 2) + t % 16; }

/* The words of one lane of the group, from half of its 32 rows on: rows 0-15 are with the threads below 16. */
struct lane_words {
    u32 *out; /* word k of the lane is out[16 k] */
    u64 pending;
    u32 pending_count, k, first;
    bool holds; /* the first word is kept back, because its lower half comes from another thread */
    __device__ __forceinline__ void put(u32 bits, u32 count)
    {
        pending |= (u64)bits << pending_count;
        pending_count += count;
        if (pending_count < 32)
            return;
        if (holds)
            first = (u32)pending;
        else
            out[TG_LANES * k] = (u32)pending;
        holds = false;
        k++;
        pending >>= 32;
        pending_count -= 32;
    }
};

/* Packs a whole group. */
__device__ __forceinline__ void pack_group(const u32 (&code)[16], u32 width, u32 *group)
{
    const u32 t = lane_id(), half = t / 16;
    const bool odd = width & 1;
    lane_words w = {group + t % 16, 0, half && odd ? 16u : 0u, half ? width / 2 : 0, 0, half && odd};
#pragma unroll
    for (u32 m = 0; m < 4; m++) { /* rows 4m to 4m + 3 of this half: two are here, two with the thread 16 away */
        const u32 near = code[2 * m] | code[2 * m + 1] << width, far = code[2 * m + 8] | code[2 * m + 9] << width;
        const u32 kept = half ? far : near, got = __shfl_xor_sync(FULL, half ? near : far, 16);
        w.put(half ? got : kept, 2 * width);
        w.put(half ? kept : got, 2 * width);
    }
    const u32 lower = __shfl_xor_sync(FULL, (u32)w.pending, 16);
    if (odd && half)
        group[TG_LANES * (width / 2) + t % 16] = w.first | (lower & 0xffff);
}

/* Packs the rest of a vector, fewer codes than a group has, as a plain stream of whole words: the last is padded with
 * zeros. `room` is shared memory for 256 words, of this warp alone. */
__device__ __forceinline__ void pack_rest(const u32 (&code)[16], u32 width, u32 n, u32 *room, u32 *out)
{
    const u32 t = lane_id(), words = (n * width + 31) / 32;
    for (u32 k = t; k < words; k += 32)
        room[k] = 0;
    __syncwarp();
#pragma unroll
    for (u32 r = 0; r < 16; r++) {
        const u32 j = place_of(t, r), bit = j * width, shift = bit % 32;
        if (j >= n)
            continue;
        atomicOr(&room[bit / 32], code[r] << shift);
        if (shift + width > 32)
            atomicOr(&room[bit / 32 + 1], code[r] >> (32 - shift));
    }
    __syncwarp();
    for (u32 k = t; k < words; k += 32)
        out[k] = room[k];
}

#endif
