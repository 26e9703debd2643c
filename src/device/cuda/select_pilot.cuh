/* The pilot sample: see codec/pilot.c, which does the same. It does not influence what is selected. */
#ifndef TG_DEVICE_CUDA_SELECT_PILOT_CUH
#define TG_DEVICE_CUDA_SELECT_PILOT_CUH

#include "device/cuda/select_guess.cuh"

constexpr u32 PILOT_THREADS = 1024, PILOT_BLOCKS = PILOT_RUNS * PILOT_RUN / 4 / PILOT_THREADS;

/* Everything is as it must be before the sift. By all blocks of the first kernel. */
__device__ __forceinline__ void pilot_clear(const selecting &s)
{
    const u32 first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (u32 i = first; i < s.tiles; i += step)
        s.states[i] = 0;
    for (u32 i = first; i < REGIONS; i += step)
        s.counters[COUNTER_STRIDE * i] = 0;
    for (u32 i = first; i < BAND_BINS; i += step)
        s.bins[i] = 0;
    for (u32 i = first; i < RANKS * DIGIT_BINS; i += step)
        s.digits[i] = 0;
    if (first == 0) {
        select_control *c = s.control;
        c->at_least[0] = c->at_least[1] = c->at_least[2] = 0;
        c->nonfinite = c->overflow = c->listed = c->again = c->passed = c->selected = 0;
        c->tickets[AGAIN_TICKET] = c->tickets[GATHER_TICKET] = 0;
        c->tickets[STREAMS_TICKET] = c->tickets[CROWDED_TICKET] = 0;
        c->dropped = c->saturated = 0;
    }
}

struct pilot_shared {
    u32 bins[PILOT_BINS];
    u32 part[33];
    u32 found[2];
    u64 sum;
};

/* The bins of a thread, eight from the top down, and how many keys are above them. */
struct pilot_view {
    u32 bins[8], sum, above;
};

__device__ __forceinline__ pilot_view pilot_take(const selecting &s, pilot_shared *here)
{
    pilot_view v;
    uint4 *at = (uint4 *)(s.pilot_bins + PILOT_BINS - 8 - 8 * threadIdx.x);
    const uint4 low = __ldcg(at), high = __ldcg(at + 1);
    at[0] = at[1] = make_uint4(0, 0, 0, 0); /* for the next time */
    const u32 bins[8] = {high.w, high.z, high.y, high.x, low.w, low.z, low.y, low.x};
    u32 all;
    v.sum = 0;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        v.bins[i] = bins[i];
        v.sum += bins[i];
    }
    v.above = block_scan(v.sum, here->part, &all);
    return v;
}

__device__ __forceinline__ u32 pilot_bin(u32 key)
{
    return min(max(key >> PILOT_SHIFT, PILOT_FIRST) - PILOT_FIRST, PILOT_BINS - 1);
}

/* The first key of a bin. */
__device__ __forceinline__ u32 pilot_edge(u32 bin) { return bin == 0 ? 0 : (bin + PILOT_FIRST) << PILOT_SHIFT; }

/* Keys that almost certainly bound those of two ranks of the sample: the first key of the bin that has the `lower` one,
 * and the first one behind that of the `upper` one; 0 if there are not so many. Within a bin keys are not evenly spread
 * where elements wait in the residual: a step or two below the threshold there are many. */
__device__ __forceinline__ uint2 pilot_keys_at(const pilot_view &v, float lower, float upper, pilot_shared *here)
{
    if (threadIdx.x < 2)
        here->found[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (u32 r = 0; r < 2; r++) {
        const float rank = max(r ? upper : lower, 1.0f);
        float at = (float)v.above;
        if (rank <= at || rank > at + (float)v.sum)
            continue;
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            const float in = (float)v.bins[i];
            if (in > 0 && rank > at && rank <= at + in) {
                const u32 bin = PILOT_BINS - 1 - (threadIdx.x * 8 + i);
                here->found[r] = r == 0 ? pilot_edge(bin) : bin == PILOT_BINS - 1 ? INFINITY_KEY : pilot_edge(bin + 1);
            }
            at += in;
        }
    }
    __syncthreads();
    const uint2 found = make_uint2(here->found[0], here->found[1]);
    __syncthreads();
    return found;
}

/* The standard deviation of the number of elements of the sample that have at least a key: how much the runs differ
 * shows it, as neighbours are often similar. About a thousand of the runs are counted, because one block reads them. */
__device__ __forceinline__ float pilot_deviation(const selecting &s, u32 runs, u32 key, pilot_shared *here)
{
    u32 sum = 0, squares = 0;
    const u32 step = max(runs / PILOT_THREADS, 1u), counted = runs / step;
    if (threadIdx.x == 0)
        here->sum = 0;
    for (u32 run = step * threadIdx.x; run < step * counted; run += step * PILOT_THREADS) {
        const uint4 *keys = (const uint4 *)(s.sample + PILOT_RUN * run);
        u32 in = 0;
#pragma unroll
        for (u32 i = 0; i < PILOT_RUN / 4; i++) {
            const uint4 k = __ldcg(keys + i);
            in += (k.x >= key) + (k.y >= key) + (k.z >= key) + (k.w >= key);
        }
        sum += in;
        squares += in * in;
    }
    sum = warp_sum(sum);
    squares = warp_sum(squares);
    __syncthreads();
    if (lane_id() == 0 && sum > 0)
        atomicAdd((unsigned long long *)&here->sum, (u64)squares << 32 | sum);
    __syncthreads();
    const double all = (double)(u32)here->sum, all_squares = (double)(here->sum >> 32);
    __syncthreads();
    const float variance = (float)(all_squares - all * all / (double)counted);
    return variance > 0 ? sqrtf((float)step * variance) : 0;
}

/* By one thread. */
__device__ __forceinline__ void pilot_set(const selecting &s, u32 low, u32 high, u32 clear_from)
{
    select_control *c = s.control;
    const u32 bits = 32 - (u32)__clz((int)(high - low));
    c->low = low;
    c->high = high;
    c->shift = bits > 12 ? bits - 12 : 0; /* BAND_BINS is 2^12 */
    c->clear_from = s.clears && !s.random ? max(clear_from, 1u) : 0xffffffffu;
    c->foreseen.key = 0;
}

/* How many keys of the sample are at least `key`, within a bin as if they were evenly spread; here->bins has how many
 * are in each bin and those above it. */
__device__ __forceinline__ float pilot_count(const pilot_shared *here, u32 key)
{
    const u32 bin = pilot_bin(key), start = pilot_edge(bin);
    const float from = (float)here->bins[bin], above = bin + 1 < PILOT_BINS ? (float)here->bins[bin + 1] : 0;
    return from - (from - above) * min((float)(key - start) / (float)(1u << PILOT_SHIFT), 1.0f);
}

/* What the search for a threshold (search_threshold in select_cut.cuh) will probably come to. *clear: whether the
 * sample leaves no doubt. */
__device__ __forceinline__ foreseen_search pilot_foresee(const selecting &s, float share, float spread,
                                                         const pilot_shared *here, bool *clear)
{
    const select_control *c = s.control;
    const u32 guesses = *(volatile const u32 *)&c->guesses;
    const float fewest = share * (float)s.amount.fewest, most = share * (float)s.amount.most;
    foreseen_search f = {0, INFINITY_KEY, 0};
    *clear = true;
    for (u32 i = 0; f.high - f.low > 1; i++) {
        u32 key = f.low + (f.high - f.low) / 2;
        if (i < guesses) {
            key = *(volatile const u32 *)&c->guess[i];
            if (key <= f.low || key >= f.high)
                continue;
        }
        const float count = pilot_count(here, key), error = spread * sqrtf(count) + 2;
        *clear = *clear && (count > fewest ? count - error > fewest : count + error < fewest) &&
                 (count < most ? count + error < most : count - error > most);
        if (count >= fewest && count <= most) {
            f.key = key;
            break;
        }
        if (count < fewest)
            f.high = key;
        else if (i < guesses && s.amount.exact_if_many)
            break;
        else
            f.low = key;
    }
    return f;
}

__device__ __forceinline__ void pilot_decide(const selecting &s, u32 runs, pilot_shared *here)
{
    const float caution = 3.2f, share = (float)(runs * PILOT_RUN) / (float)s.count;
    const pilot_view v = pilot_take(s, here);
    const float rank = share * (float)s.amount.needed, alone = sqrtf(rank);
    float deviation = alone, margin = caution * alone + 4;
    uint2 keys = pilot_keys_at(v, rank + margin, rank - margin, here);
    const float clustered = pilot_deviation(s, runs, keys.x, here);
    if (caution * clustered + 4 > margin * 1.25f) {
        deviation = clustered;
        margin = caution * clustered + 4;
        keys = pilot_keys_at(v, rank + margin, rank - margin, here);
    }
    if (!s.amount.exact) {
        u32 from = v.above;
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            from += v.bins[i];
            here->bins[PILOT_BINS - 1 - (8 * threadIdx.x + i)] = from;
        }
        __syncthreads();
    }
    if (threadIdx.x > 0)
        return;
    const u32 top = rank > margin + 1 ? keys.y : 0, low = keys.x, high = top > low ? top : INFINITY_KEY;
    if (s.amount.exact) {
        pilot_set(s, low, high, high == INFINITY_KEY ? low : low + (high - low) / 2);
        return;
    }
    /* What is foreseen needs no candidates below it, where that is clear; otherwise all those of the usual key, so that
     * the search can be made among them. */
    bool clear;
    const foreseen_search f = pilot_foresee(s, share, caution * deviation / alone, here, &clear);
    const u32 least = clear && f.key > 0 && f.low == 0 ? f.key : min(low, f.key > 0 ? f.key : low);
    pilot_set(s, least, least, f.key > 0 ? f.key : low);
    s.control->foreseen = f;
}

/* Runs of the sample: 0 where there is none. */
__device__ __host__ __forceinline__ u32 pilot_runs(const selecting &s)
{
    return s.random || s.count < PILOT_LEAST || s.amount.needed >= s.count ? 0
           : s.count / (16 * PILOT_RUN) < PILOT_RUNS                       ? s.count / (16 * PILOT_RUN)
                                                                           : PILOT_RUNS;
}

__device__ __forceinline__ void pilot_sample(const selecting &s, u32 runs, pilot_shared *here)
{
    const u32 place = blockIdx.x * PILOT_THREADS + threadIdx.x, run = place / 4;
    u32 keys[4];
    if (run < runs) {
        const u32 part = s.count / runs, places = (part - PILOT_RUN) / PILOT_RUN + 1;
        const u64 draw = run * 0x9e3779b97f4a7c15ull >> 32; /* vectors may be periodic */
        const u32 start = run * part + (u32)(draw * places >> 32) * PILOT_RUN + 4 * (place & 3);
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            keys[i] = magnitude_key(source_element(s, start + i).u);
    }
    for (u32 i = threadIdx.x; i < PILOT_BINS; i += PILOT_THREADS)
        here->bins[i] = 0;
    __syncthreads();
    if (run < runs) {
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            atomicAdd(&here->bins[pilot_bin(keys[i])], 1u);
        *(uint4 *)(s.sample + 4 * place) = make_uint4(keys[0], keys[1], keys[2], keys[3]);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < PILOT_BINS; i += PILOT_THREADS)
        if (here->bins[i])
            atomicAdd(&s.pilot_bins[i], here->bins[i]);
}

/* The first `blocks` take the pilot sample, those behind them that of a selector; the last to end decides. */
__global__ void __launch_bounds__(PILOT_THREADS)
    pilot_kernel(selecting s, const __grid_constant__ guessing g, u32 blocks)
{
    __shared__ union {
        pilot_shared pilot;
        float values[TG_BLOCK];
    } here;
    __shared__ u32 last;
    let_next_begin(); /* what the sift reads has been written before */
    begin(s);
    const u32 runs = pilot_runs(s);
    if (blockIdx.x >= blocks)
        sum_sample(s, g, blockIdx.x - blocks, here.values);
    else if (runs > 0)
        pilot_sample(s, runs, &here.pilot);
    pilot_clear(s);
    if (!is_last_block(&s.control->tickets[PILOT_TICKET], &last))
        return;
    if (gridDim.x > blocks && threadIdx.x < 32)
        guess_from_sums(s, g);
    __syncthreads();
    if (runs > 0)
        pilot_decide(s, runs, &here.pilot);
    else if (threadIdx.x == 0) {
        const u32 low = s.random ? s.random_low : 0;
        pilot_set(s, low, s.random ? 0x80000000u : INFINITY_KEY, 1);
    }
}

#endif
