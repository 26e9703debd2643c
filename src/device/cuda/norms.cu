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
static __device__ __noinline__ double squares_of(const sampling &s, u64 first, u32 n)
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
        const u64 first = b * TG_BLOCK, left = s.of.count - first;
        const double sum = squares_of(s, first, left < TG_BLOCK ? (u32)left : TG_BLOCK);
        if (lane_id() == 0)
            sums[b] = sum;
    }
}

/* The tree over each run of 256 leaves. */
__global__ void __launch_bounds__(TREE_THREADS) sum_runs(const double *sums, u64 blocks, double *runs)
{
    __shared__ double shared[TREE_THREADS];
    const u64 first = blockIdx.x * (u64)TREE_THREADS, left = blocks - first;
    const double sum = tree_sum(left < TREE_THREADS ? left : TREE_THREADS, shared,
                                [&](u64 b) { return sums[first + b]; });
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

/* ---- estimates ---- */

constexpr u32 TOGETHER = 2, WARPS = THREADS / 32, RUN = TREE_THREADS, RUN_SAMPLES = RUN / EVERY;
static_assert(THREADS == TREE_THREADS, "the threads of a block are those of a tree");

/* An estimate is made by blocks of which the last to end adds up what all have left: a block has a run of leaves where
 * these are sampled, and else a leaf for each warp. */
struct estimate {
    sampling s;
    u64 leaves;
    u32 blocks;
    double *sums; /* of runs, or of leaves */
    control *result;
};

struct estimates {
    estimate of[TOGETHER];
};

/* The lane's 2 BATCH elements from `first` on, 32 apart, of n; all are asked for before one is used. */
template <u32 BATCH> struct lane_values {
    float low[BATCH], high[BATCH];
    __device__ __forceinline__ void load(const tg_tensor &t, u64 first, u32 n)
    {
#pragma unroll
        for (u32 j = 0; j < BATCH; j++) {
            const u32 i = 64 * j + lane_id();
            low[j] = i < n ? element_at(t.data, t.dtype, first + i) : 0;
            high[j] = i + 32 < n ? element_at(t.data, t.dtype, first + i + 32) : 0;
        }
    }
};

/* The squares of n elements, whose sum was `quick`. */
__device__ __forceinline__ double safe_squares(const sampling &s, u64 first, u32 n, float quick)
{
    return quick >= 0x1p-80f && quick - quick == 0 ? (double)quick : squares_of(s, first, n);
}

/* A run of leaves, most of which are 0: a warp has every eighth sample. */
__device__ __forceinline__ void estimate_run(const estimate &e, u32 run, double *shared)
{
    const u64 first = run * (u64)RUN;
    const u32 n = e.leaves - first < RUN ? (u32)(e.leaves - first) : RUN;
    for (u32 i = threadIdx.x; i < RUN; i += THREADS)
        shared[i] = 0;
    __syncthreads();
    constexpr u32 EACH = RUN_SAMPLES / WARPS;
    const auto place = [&](u32 j) { return (first + EVERY * (threadIdx.x / 32 + WARPS * j)) * TG_BLOCK; };
    const auto size = [&](u32 j) {
        const u64 at = place(j), count = e.s.of.count;
        return at >= count ? 0 : count - at < SAMPLE ? (u32)(count - at) : SAMPLE;
    };
    lane_values<1> values[EACH];
#pragma unroll
    for (u32 j = 0; j < EACH; j++)
        values[j].load(e.s.of, place(j), size(j));
#pragma unroll
    for (u32 j = 0; j < EACH; j++) {
        const float low = values[j].low[0], high = values[j].high[0];
        const float quick = sum_of_lanes(0.0f + low * low, 0.0f + high * high);
        const double sum = size(j) > 0 ? safe_squares(e.s, place(j), size(j), quick) : 0;
        if (lane_id() == 0)
            shared[EVERY * (threadIdx.x / 32 + WARPS * j)] = sum;
    }
    for (u32 step = 1; step < n; step *= 2) {
        __syncthreads();
        if (threadIdx.x % (2 * step) == 0 && threadIdx.x + step < n)
            shared[threadIdx.x] = shared[threadIdx.x] + shared[threadIdx.x + step];
    }
    if (threadIdx.x == 0)
        e.sums[run] = shared[0];
}

__device__ __forceinline__ void estimate_leaf(const estimate &e, u64 leaf)
{
    constexpr u32 BATCH = 16;
    const u64 first = leaf * TG_BLOCK, left = leaf < e.leaves ? e.s.of.count - first : 0;
    const u32 n = left < TG_BLOCK ? (u32)left : TG_BLOCK;
    float low = 0, high = 0;
    for (u32 at = 0; at < n; at += 64 * BATCH) {
        lane_values<BATCH> values;
        values.load(e.s.of, first + at, n - at);
#pragma unroll
        for (u32 j = 0; j < BATCH; j++) {
            low = low + values.low[j] * values.low[j]; /* behind the end: + 0, which changes nothing */
            high = high + values.high[j] * values.high[j];
        }
    }
    const float quick = sum_of_lanes(low, high);
    if (n == 0)
        return;
    const double sum = safe_squares(e.s, first, n, quick);
    if (lane_id() == 0)
        e.sums[leaf] = sum;
}

__global__ void __launch_bounds__(THREADS) estimate_norms(const __grid_constant__ estimates both)
{
    __shared__ double shared[TREE_THREADS];
    __shared__ bool last;
    const u32 which = blockIdx.x < both.of[0].blocks ? 0 : 1, block = blockIdx.x - (which ? both.of[0].blocks : 0);
    const estimate &e = both.of[which];
    if (e.s.sampled)
        estimate_run(e, block, shared);
    else
        estimate_leaf(e, block * (u64)WARPS + threadIdx.x / 32);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicAdd(&e.result->ticket, 1u) == e.blocks - 1;
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    const double sum = tree_sum(e.s.sampled ? e.blocks : e.leaves, shared, [&](u64 i) { return __ldcg(&e.sums[i]); });
    if (threadIdx.x == 0)
        e.result->sum = sum;
}

/* ---- both kinds ---- */

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

static sampling sampling_of(const tg_tensor *tensor, tg_norm_of what)
{
    const u64 blocks = (tensor->count + TG_BLOCK - 1) / TG_BLOCK;
    sampling s = {*tensor, blocks, what == TG_NORM_OF_ALL, what != TG_NORM_OF_ALL && tensor->count > 1u << 20};
    if (s.sampled)
        s.blocks = (blocks + EVERY - 1) / EVERY;
    return s;
}

static void norm_of_all(tg_cuda *cuda, const tg_tensor *tensor, double *norm)
{
    const sampling s = sampling_of(tensor, TG_NORM_OF_ALL);
    const u64 runs = (s.blocks + TREE_THREADS - 1) / TREE_THREADS;
    if (tensor->count == 0 || !tg_cuda_arena(cuda, arena_room((size_t)s.blocks * 8) + arena_room((size_t)runs * 8))) {
        *norm = 0;
        return;
    }
    double *sums = (double *)(void *)tg_cuda_take(cuda, (size_t)s.blocks * sizeof(double));
    double *of_runs = (double *)(void *)tg_cuda_take(cuda, (size_t)runs * sizeof(double));
    control *c = tg_cuda_slot(cuda, {complete_norm, norm, NULL, tensor->count});
    LAUNCH(sum_squares, grid_for(s.blocks, WARPS, 16 * cuda->processors), THREADS, 0, cuda->stream, s, sums);
    LAUNCH(sum_runs, (unsigned)runs, TREE_THREADS, 0, cuda->stream, (const double *)sums, s.blocks, of_runs);
    LAUNCH(sum_tree, 1, TREE_THREADS, 0, cuda->stream, (const double *)of_runs, runs, c);
    LAUNCH(sum_slowly, 1, 1, 0, cuda->stream, *tensor, c);
}

/* Up to TOGETHER tensors. */
static void estimate_some(tg_cuda *cuda, const tg_tensor *tensors, size_t count, double *norms)
{
    estimates all = {};
    size_t room = 0;
    u32 used = 0, blocks = 0;
    for (size_t i = 0; i < count; i++)
        room += arena_room((size_t)(tensors[i].count / TG_BLOCK + 1) * sizeof(double));
    const bool has_room = tg_cuda_arena(cuda, room);
    if (cuda->used + count > SLOTS) /* none of them may be handed over before all are on the stream */
        tg_cuda_settle(cuda);
    for (size_t i = 0; i < count; i++) {
        norms[i] = 0;
        if (tensors[i].count == 0 || !has_room)
            continue;
        estimate *e = &all.of[used++];
        e->s = sampling_of(&tensors[i], TG_NORM_ESTIMATED);
        e->leaves = (tensors[i].count + TG_BLOCK - 1) / TG_BLOCK;
        e->blocks = (u32)(e->s.sampled ? (e->leaves + RUN - 1) / RUN : (e->leaves + WARPS - 1) / WARPS);
        e->sums = (double *)(void *)tg_cuda_take(cuda, (size_t)e->leaves * sizeof(double));
        e->result = tg_cuda_slot(cuda, {complete_norm, &norms[i], e->s.sampled ? cuda : NULL, tensors[i].count});
        blocks += e->blocks;
    }
    if (used > 0)
        LAUNCH(estimate_norms, blocks, THREADS, 0, cuda->stream, all);
}

void tg_cuda_norm(tg_device *device, const tg_tensor *tensors, size_t count, tg_norm_of what, double *norms)
{
    const occupied now(device);
    for (size_t i = 0; i < count; i += what == TG_NORM_OF_ALL ? 1 : TOGETHER) {
        if (what == TG_NORM_OF_ALL)
            norm_of_all(now.cuda, &tensors[i], &norms[i]);
        else
            estimate_some(now.cuda, &tensors[i], count - i < TOGETHER ? count - i : TOGETHER, &norms[i]);
    }
}
