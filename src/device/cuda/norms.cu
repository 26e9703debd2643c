/* Norms of vectors: as device/cpu/norms.c has them, to the bit. */
#include "device/cuda/device.cuh"
#include "device/cuda/element.cuh"
#include "device/cuda/sums.cuh"

extern "C" {
#include "base/numeric.h"
}

constexpr u32 THREADS = 256, SAMPLE = 64, EVERY = 4;

/* Which elements count: all of them, or of long vectors a sample, the first 64 of every fourth block. */
struct sampling {
    tg_tensor of;
    u64 blocks; /* that have elements which count */
    bool exact, sampled;
};

__device__ __forceinline__ float finite_or_zero(const tg_tensor &t, u64 i)
{
    const float x = element_at(t.data, t.dtype, i);
    return is_finite(x) ? x : 0;
}

/* The squares of n elements. Of an estimate, those that are too small or too large for float32 are added in double. */
__device__ double squares_of(const sampling &s, u64 first, u32 n)
{
    const tg_tensor &t = s.of;
    if (s.exact)
        return (double)block_sum(n, [&](u32 i) {
            const float x = finite_or_zero(t, first + i);
            return x * x;
        });
    const float quick = block_sum(n, [&](u32 i) {
        const float x = element_at(t.data, t.dtype, first + i);
        return x * x;
    });
    if (quick >= 0x1p-80f && quick - quick == 0)
        return (double)quick;
    double sum = 0;
    for (u32 i = 0; lane_id() == 0 && i < n; i++) {
        const float x = element_at(t.data, t.dtype, first + i);
        if (x - x == 0)
            sum += (double)x * (double)x;
    }
    return sum;
}

__global__ void sum_squares(sampling s, double *sums)
{
    const u64 warps = (u64)gridDim.x * (THREADS / 32);
    for (u64 b = blockIdx.x * (u64)(THREADS / 32) + threadIdx.x / 32; b < s.blocks; b += warps) {
        const u64 first = b * TG_BLOCK * (s.sampled ? EVERY : 1), left = s.of.count - first;
        const u32 most = s.sampled ? SAMPLE : TG_BLOCK, n = left < most ? (u32)left : most;
        const double sum = squares_of(s, first, n);
        if (lane_id() == 0)
            sums[b] = sum;
    }
}

/* A block's sum as a leaf of the tree: blocks that do not count are part of it, as 0. */
__device__ __forceinline__ double leaf_of(const sampling &s, const double *sums, u64 b)
{
    return !s.sampled ? sums[b] : b % EVERY == 0 ? sums[b / EVERY] : 0.0;
}

/* The tree over each run of 256 leaves. */
__global__ void __launch_bounds__(TREE_THREADS) sum_runs(sampling s, const double *sums, u64 blocks, double *runs)
{
    __shared__ double shared[TREE_THREADS];
    const u64 first = blockIdx.x * (u64)TREE_THREADS, left = blocks - first;
    const double sum = tree_sum(left < TREE_THREADS ? left : TREE_THREADS, shared,
                                [&](u64 b) { return leaf_of(s, sums, first + b); });
    if (threadIdx.x == 0)
        runs[blockIdx.x] = sum;
}

/* And over all runs. */
__global__ void __launch_bounds__(TREE_THREADS) sum_tree(const double *runs, u64 count, control *c)
{
    __shared__ double shared[TREE_THREADS];
    const double sum = tree_sum(count, shared, [&](u64 run) { return runs[run]; });
    if (threadIdx.x == 0)
        c->sum = sum;
}

/* Where the squares overflow float32, they are added in double, one after the other. */
__global__ void sum_slowly(tg_tensor t, control *c)
{
    if (c->sum - c->sum == 0)
        return;
    double sum = 0;
    for (u64 i = 0; i < t.count; i++) {
        const float x = finite_or_zero(t, i);
        sum += (double)x * (double)x;
    }
    c->sum = sum;
}

static void complete_norm(tg_cuda *, const pending *p, const control *seen)
{
    const u64 count = p->number, blocks = (count + TG_BLOCK - 1) / TG_BLOCK;
    double factor = 1;
    if (p->more) { /* an estimate: how many elements the sample has */
        const u64 samples = (blocks + EVERY - 1) / EVERY, left = count - (samples - 1) * EVERY * TG_BLOCK;
        factor = (double)count / (double)((samples - 1) * SAMPLE + (left < SAMPLE ? left : SAMPLE));
    }
    *(double *)p->of = tg_sqrt(seen->sum * factor);
}

void tg_cuda_norm(tg_device *device, const tg_tensor *tensor, tg_norm_of what, double *norm)
{
    const occupied now(device);
    tg_cuda *cuda = now.cuda;
    const u64 count = tensor->count, blocks = (count + TG_BLOCK - 1) / TG_BLOCK;
    sampling s = {*tensor, blocks, what == TG_NORM_OF_ALL, what != TG_NORM_OF_ALL && count > 1u << 20};
    if (s.sampled)
        s.blocks = (blocks + EVERY - 1) / EVERY;
    const u64 runs = (blocks + TREE_THREADS - 1) / TREE_THREADS;
    if (count == 0 || !tg_cuda_arena(cuda, arena_room((size_t)s.blocks * 8) + arena_room((size_t)runs * 8))) {
        *norm = 0;
        return;
    }
    double *sums = (double *)(void *)tg_cuda_take(cuda, (size_t)s.blocks * sizeof(double));
    double *of_runs = (double *)(void *)tg_cuda_take(cuda, (size_t)runs * sizeof(double));
    control *c = tg_cuda_slot(cuda, {complete_norm, norm, s.sampled ? cuda : NULL, count});
    LAUNCH(sum_squares, grid_for(s.blocks, THREADS / 32, 16 * cuda->processors), THREADS, 0, cuda->stream, s, sums);
    LAUNCH(sum_runs, (unsigned)runs, TREE_THREADS, 0, cuda->stream, s, (const double *)sums, blocks, of_runs);
    LAUNCH(sum_tree, 1, TREE_THREADS, 0, cuda->stream, (const double *)of_runs, runs, c);
    if (s.exact)
        LAUNCH(sum_slowly, 1, 1, 0, cuda->stream, *tensor, c);
}
