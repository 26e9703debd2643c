/* Sums in the defined order (docs/numerics.md): 64 float32 lanes within blocks of 4096, a tree in double over blocks.
 */
#ifndef TG_DEVICE_CUDA_SUMS_CUH
#define TG_DEVICE_CUDA_SUMS_CUH

#include "device/cuda/runtime.cuh"

extern "C" {
#include "kernels/kernels.h"
#include "kernels/sums.h"
}

/* Over the 64 lanes of a sum, of which a thread has `low` (its own number) and `high` (32 more). */
__device__ __forceinline__ float sum_of_lanes(float low, float high)
{
    float sum = low + high;
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        sum = sum + __shfl_xor_sync(FULL, sum, d);
    return sum;
}

/* The sum of one block of n <= TG_BLOCK summands by a warp; value(i) is summand i. All lanes return it. */
template <class F> __device__ __forceinline__ float block_sum(u32 n, F value)
{
    float low = 0, high = 0;
    for (u32 i = lane_id(); i < n; i += TG_SUM_LANES) {
        low = low + value(i);
        if (i + 32 < n)
            high = high + value(i + 32);
    }
    return sum_of_lanes(low, high);
}

constexpr u32 TREE_THREADS = 256;

/* The tree over `blocks` sums, value(b), by a block of TREE_THREADS threads, of whom thread 0 returns it: trees over
 * runs of 256, and these into one as kernels/sums.h has it. `shared` has room for 256. */
template <class F> __device__ __forceinline__ double tree_sum(u64 blocks, double *shared, F value)
{
    const u32 t = threadIdx.x;
    tg_tree_sum tree;
    tree.blocks = 0;
    for (u64 first = 0; first < blocks; first += TREE_THREADS) {
        const u64 left = blocks - first;
        const u32 n = left < TREE_THREADS ? (u32)left : TREE_THREADS;
        __syncthreads();
        if (t < n)
            shared[t] = value(first + t);
        for (u32 step = 1; step < n; step *= 2) {
            __syncthreads();
            if (t % (2 * step) == 0 && t + step < n)
                shared[t] = shared[t] + shared[t + step];
        }
        __syncthreads();
        if (t == 0)
            tg_tree_add(&tree, shared[0]);
    }
    return t == 0 ? tg_tree_total(&tree) : 0;
}

#endif
