/* The thresholds that selectors guess from a sample of the vector. These are sent (they decide what is selected), so
 * the sample's places and the order of sums are those of codec/select.c, moments.c and the selectors. */
#ifndef TG_DEVICE_CUDA_SELECT_GUESS_CUH
#define TG_DEVICE_CUDA_SELECT_GUESS_CUH

#include "device/cuda/select_again.cuh"
#include "device/cuda/sums.cuh"

extern "C" {
#include "codec/select.h"
}

enum guess_kind { NO_GUESS, GUESS_GAUSSIAN, GUESS_TRIMMED, GUESS_EXPONENTIAL, GUESS_BY_SAMPLE };

struct guessing {
    guess_kind kind;
    u32 size;         /* of the sample */
    u32 runs;         /* 0: the sample is the vector */
    tg_hash_key hash; /* of random places */
    u32 rank;         /* of the threshold in the sample */
    double quantile;  /* of the normal distribution */
    u32 stages;       /* of the exponential one: a quarter is kept in all but the last */
    double stage_log, last_log;
    float *values; /* room for the sample, twice */
    double *sums;  /* room for two for each block of the sample */
    u32 *largest;  /* of the sample; 0 between calls */
};

constexpr u32 GUESS_THREADS = 1024, STAGE_THREADS = 1024;

/* Element j of the sample. */
__device__ __forceinline__ u32 sample_index(const selecting &s, const guessing &g, u32 j)
{
    if (g.runs == 0)
        return j;
    const u64 run = j / TG_SAMPLE_RUN, start = run * s.count / g.runs;
    if (g.kind != GUESS_BY_SAMPLE)
        return (u32)(start / TG_SAMPLE_RUN * TG_SAMPLE_RUN) + j % TG_SAMPLE_RUN;
    const u64 length = (run + 1) * s.count / g.runs - start,
              places = length >= TG_SAMPLE_RUN ? length - TG_SAMPLE_RUN + 1 : 1;
    return (u32)(start + tg_hash(g.hash, (u32)run) % places) + j % TG_SAMPLE_RUN;
}

/* ---- sums of a fixed sample ---- */

__device__ __forceinline__ float magnitude(float x) { return __uint_as_float(magnitude_key(x)); }

/* A block of the sample, by a block of threads. */
__device__ __forceinline__ void sum_sample(const selecting &s, const guessing &g, u32 block, float *values)
{
    const u32 first = block * TG_BLOCK, n = min(g.size - first, TG_BLOCK), warp = threadIdx.x >> 5;
    u32 largest = 0;
    for (u32 i = threadIdx.x; i < n; i += GUESS_THREADS) {
        values[i] = source_element(s, sample_index(s, g, first + i)).u;
        largest = max(largest, magnitude_key(values[i]));
        if (g.kind == GUESS_EXPONENTIAL)
            g.values[first + i] = values[i];
    }
    largest = warp_max(largest);
    if (lane_id() == 0 && g.kind == GUESS_TRIMMED)
        atomicMax(g.largest, largest);
    __syncthreads();
    if (warp < 2 && g.kind != GUESS_EXPONENTIAL) {
        const float sum = block_sum(n, [&](u32 i) {
            const float x = values[i];
            return g.kind == GUESS_TRIMMED ? magnitude(x) : warp ? x * x : x;
        });
        if (lane_id() == 0)
            g.sums[2 * block + warp] = (double)sum;
    }
}

/* The guesses from the sums of all blocks, of which there are 16 at most. By a warp, whose halves add up one sum each,
 * as kernels/sums.h has it. */
__device__ __forceinline__ void guess_from_sums(const selecting &s, const guessing &g)
{
    const u32 blocks = (g.size + TG_BLOCK - 1) / TG_BLOCK, block = lane_id() & 15;
    double sum = block < blocks ? __ldcg(&g.sums[2 * block + lane_id() / 16]) : 0;
#pragma unroll
    for (u32 step = 1; step < 16; step *= 2) {
        const double other = __shfl_down_sync(FULL, sum, step);
        if (block % (2 * step) == 0 && block + step < blocks)
            sum = sum + other;
    }
    const double squares = __shfl_sync(FULL, sum, 16), mean = sum / (double)g.size;
    if (lane_id() > 0)
        return;
    if (g.kind == GUESS_GAUSSIAN) {
        const double variance = squares / (double)g.size - mean * mean;
        const double deviation = variance > 0 ? __dsqrt_rn(variance) : 0;
        s.control->guess[0] = tg_float_bits((float)((mean < 0 ? -mean : mean) + deviation * g.quantile));
        s.control->guesses = 1;
    } else {
        const double largest = (double)tg_bits_float(__ldcg(g.largest));
        for (int step = 0; step < (int)GUESSES; step++)
            s.control->guess[step] = tg_float_bits((float)(mean + (4 - step) / 5.0 * (largest - mean)));
        s.control->guesses = GUESSES;
        *g.largest = 0;
    }
}

/* ---- the exponential distribution, in stages ---- */

__global__ void __launch_bounds__(GUESS_THREADS) sample_in_order_kernel(selecting s, guessing g)
{
    __shared__ float values[TG_BLOCK];
    begin(s);
    sum_sample(s, g, blockIdx.x, values);
}

constexpr u32 STAGE_WARPS = STAGE_THREADS / 32, STAGE_BLOCKS = TG_SAMPLE / TG_BLOCK;

struct stage_shared {
    double sums[STAGE_BLOCKS], step;
    u32 kept[STAGE_WARPS];
};

/* What a stage makes of a value: its magnitude above the threshold so far. */
__device__ __forceinline__ float stage_value(float value, double threshold)
{
    return (float)((double)magnitude(value) - threshold);
}

/* The sum of what a stage makes of n values. Thread 0 returns it. */
__device__ __forceinline__ double stage_sum(const float *values, u32 n, double threshold, stage_shared *here)
{
    const u32 blocks = (n + TG_BLOCK - 1) / TG_BLOCK;
    for (u32 b = threadIdx.x >> 5; b < blocks; b += STAGE_WARPS) {
        const float *at = values + b * TG_BLOCK;
        const u32 m = min(n - b * TG_BLOCK, TG_BLOCK);
        float low = 0, high = 0;
#pragma unroll 16
        for (u32 i = lane_id(); i < m; i += TG_SUM_LANES) {
            low = low + stage_value(at[i], threshold);
            high = i + 32 < m ? high + stage_value(at[i + 32], threshold) : high;
        }
        const float sum = sum_of_lanes(low, high);
        if (lane_id() == 0)
            here->sums[b] = (double)sum;
    }
    __syncthreads();
    tg_tree_sum tree;
    tree.blocks = 0;
    if (threadIdx.x == 0)
        for (u32 b = 0; b < blocks; b++)
            tg_tree_add(&tree, here->sums[b]);
    return threadIdx.x == 0 ? tg_tree_total(&tree) : 0;
}

/* Keeps the values of which a stage makes more than its step, in order, at another place; returns how many. A warp has
 * a run of them: it counts, and then it writes. */
__device__ __forceinline__ u32 stage_keep(const float *values, u32 n, double threshold, float *kept_values,
                                          stage_shared *here)
{
    const u32 warp = threadIdx.x >> 5, each = (n + STAGE_THREADS - 1) / STAGE_THREADS * 32, start = warp * each,
              end = min(start + each, n);
    const double step = here->step;
    u32 own = 0, before = 0, all = 0;
#pragma unroll 16
    for (u32 first = start; first < end; first += 32) {
        const u32 i = first + lane_id();
        own += i < end && (double)stage_value(values[i], threshold) > step;
    }
    own = warp_sum(own);
    if (lane_id() == 0)
        here->kept[warp] = own;
    __syncthreads();
    for (u32 w = 0; w < STAGE_WARPS; w++) {
        before += w < warp ? here->kept[w] : 0;
        all += here->kept[w];
    }
#pragma unroll 16
    for (u32 first = start; first < end; first += 32) {
        const u32 i = first + lane_id();
        const float value = i < end ? stage_value(__ldcg(values + i), threshold) : 0;
        const bool keeps = i < end && (double)value > step;
        const u32 ballot = __ballot_sync(FULL, keeps);
        if (keeps)
            kept_values[before + (u32)__popc(ballot & ((1u << lane_id()) - 1))] = (float)((double)value + threshold);
        before += (u32)__popc(ballot);
    }
    __syncthreads();
    return all;
}

__global__ void __launch_bounds__(STAGE_THREADS) stages_kernel(selecting s, guessing g)
{
    __shared__ stage_shared here;
    float *values = g.values, *others = g.values + g.size;
    double threshold = 0;
    u32 n = g.size;
    for (u32 stage = 0; stage < g.stages && n > 0; stage++) {
        const double sum = stage_sum(values, n, threshold, &here);
        if (threadIdx.x == 0)
            here.step = sum / (double)n * (stage == g.stages - 1 ? g.last_log : g.stage_log);
        __syncthreads();
        n = stage_keep(values, n, threshold, others, &here);
        threshold += here.step;
        float *const kept = others;
        others = values;
        values = kept;
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        s.control->guess[0] = tg_float_bits((float)threshold);
        s.control->guesses = 1;
    }
}

/* ---- the rank in a random sample ---- */

__global__ void __launch_bounds__(256) sample_kernel(selecting s, guessing g)
{
    begin(s);
    if (s.drawn)
        g.hash = s.drawn[TG_FOR_SAMPLING];
    const u32 j = blockIdx.x * 256 + threadIdx.x;
    for (u32 i = j; i < RANKS * DIGIT_BINS; i += gridDim.x * 256)
        s.digits[i] = 0;
    if (j < g.size)
        g.values[j] = source_element(s, sample_index(s, g, j)).u;
}

/* A digit of the key of g.rank; the last pass leaves the guess. */
__global__ void __launch_bounds__(CUT_THREADS) sample_digit_kernel(selecting s, guessing g, u32 pass)
{
    __shared__ u32 digits[DIGIT_BINS];
    __shared__ u32 part[33], found[2], last;
    select_control *c = s.control;
    const u32 shift = digit_shift(pass), bits = digit_bits(pass);
    for (u32 i = threadIdx.x; i < DIGIT_BINS; i += CUT_THREADS)
        digits[i] = 0;
    __syncthreads();
    for (u32 j = blockIdx.x * CUT_THREADS + threadIdx.x; j < g.size; j += gridDim.x * CUT_THREADS) {
        const u32 key = magnitude_key(g.values[j]);
        if (pass == 0 || key >> (shift + bits) == c->prefix[0])
            atomicAdd(&digits[key >> shift & ((1u << bits) - 1)], 1u);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < DIGIT_BINS; i += CUT_THREADS)
        if (digits[i])
            atomicAdd(&s.digits[i], digits[i]);
    if (!is_last_of(&c->tickets[GUESS_TICKET], gridDim.x, &last))
        return;
    for (u32 i = threadIdx.x; i < DIGIT_BINS; i += CUT_THREADS) {
        digits[i] = __ldcg(&s.digits[i]);
        s.digits[i] = 0;
    }
    __syncthreads();
    const uint2 digit = find_digit<CUT_THREADS>(digits, pass ? c->rank[0] : g.rank, true, part, found);
    if (threadIdx.x == 0) {
        c->prefix[0] = (pass ? c->prefix[0] << bits : 0) | digit.x;
        c->rank[0] = digit.y;
        c->guess[0] = c->prefix[0];
        c->guesses = 1;
    }
}

/* ---- all of them ---- */

static inline unsigned blocks_of_sample(const guessing &g) { return (g.size + TG_BLOCK - 1) / TG_BLOCK; }

/* Those that the pilot's blocks do not make. */
static inline void launch_guess(cudaStream_t stream, const selecting &s, const guessing &g)
{
    const unsigned blocks = blocks_of_sample(g);
    if (g.kind == GUESS_BY_SAMPLE) {
        LAUNCH(sample_kernel, (g.size + 255) / 256, 256, 0, stream, s, g);
        for (u32 pass = 0; pass < DIGIT_PASSES; pass++)
            LAUNCH(sample_digit_kernel, blocks < 256 ? blocks : 256, CUT_THREADS, 0, stream, s, g, pass);
    } else if (g.kind == GUESS_EXPONENTIAL) {
        LAUNCH(sample_in_order_kernel, blocks, GUESS_THREADS, 0, stream, s, g);
        LAUNCH(stages_kernel, 1, STAGE_THREADS, 0, stream, s, g);
    }
}

#endif
