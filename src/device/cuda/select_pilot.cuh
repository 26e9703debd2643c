/* The pilot sample: see codec/pilot.c, which does the same. It does not influence what is selected. */
#ifndef TG_DEVICE_CUDA_SELECT_PILOT_CUH
#define TG_DEVICE_CUDA_SELECT_PILOT_CUH

#include "device/cuda/select_guess.cuh"

constexpr u32 PILOT_THREADS = 1024, PILOT_BLOCKS = PILOT_RUNS * PILOT_RUN / 4 / PILOT_THREADS,
              PILOT_WARPS = PILOT_THREADS / 32;
/* The keys of about so many runs are kept, at equal distances, to see how much runs differ: words of 16 bytes that a
 * thread of the last block has of them. */
constexpr u32 PILOT_KEPT = PILOT_THREADS, KEPT_WORDS = PILOT_KEPT * PILOT_RUN / 4 / PILOT_THREADS;

/* Everything is as it must be before the sift. By all blocks of the first kernel. */
__device__ __forceinline__ void pilot_clear(const selecting &s, block_of_job block)
{
    const u32 first = block.number * blockDim.x + threadIdx.x, step = block.all * blockDim.x;
    for (u32 i = first; i < s.tiles; i += step)
        s.states[i] = 0;
    for (u32 i = first; i < s.regions; i += step)
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
        c->log = 30; /* few segments, where a value that is not finite leaves nobody to say how many */
    }
}

struct pilot_shared {
    u32 bins[PILOT_BINS];
    u32 of_warps[PILOT_WARPS], sums[PILOT_WARPS], squares[PILOT_WARPS];
    u32 found[4];
};

/* What a thread of the last block has: eight bins from the top down, how many keys are in them and above them, and kept
 * keys. */
struct pilot_view {
    u32 bins[8], sum, above;
    uint4 kept[KEPT_WORDS];
};

/* From one kept run to the next, and how many of them there are. */
__device__ __forceinline__ u32 kept_distance(u32 runs) { return (runs + PILOT_KEPT - 1) / PILOT_KEPT; }
__device__ __forceinline__ u32 kept_runs(u32 runs) { return (runs - 1) / kept_distance(runs) + 1; }

/* Asks for all of that at once. */
__device__ __forceinline__ pilot_view pilot_take(const selecting &s, u32 runs)
{
    pilot_view v;
    uint4 *at = (uint4 *)(s.pilot_bins + PILOT_BINS - 8 - 8 * threadIdx.x); /* both in a sector that the cache keeps */
    const uint4 low = at[0], high = at[1];
    const u32 words = kept_runs(runs) * (PILOT_RUN / 4);
#pragma unroll
    for (u32 i = 0; i < KEPT_WORDS; i++) {
        const u32 word = i * PILOT_THREADS + threadIdx.x;
        v.kept[i] = word < words ? __ldcg((const uint4 *)s.sample + word) : make_uint4(0, 0, 0, 0);
    }
    at[0] = at[1] = make_uint4(0, 0, 0, 0); /* for the next time */
    const u32 bins[8] = {high.w, high.z, high.y, high.x, low.w, low.z, low.y, low.x};
    v.sum = 0;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        v.bins[i] = bins[i];
        v.sum += bins[i];
    }
    return v;
}

__device__ __forceinline__ u32 pilot_bin(u32 key)
{
    return min(max(key >> PILOT_SHIFT, PILOT_FIRST) - PILOT_FIRST, PILOT_BINS - 1);
}

/* The first key of a bin. */
__device__ __forceinline__ u32 pilot_edge(u32 bin) { return bin == 0 ? 0 : (bin + PILOT_FIRST) << PILOT_SHIFT; }

/* Keys that almost certainly bound those of two ranks of the sample: the first key of the bin that has the `lower` one,
 * and the first one behind that of the `upper` one; what was there before if there are not so many. Within a bin keys
 * are not evenly spread where elements wait in the residual: a step or two below the threshold there are many. */
__device__ __forceinline__ void pilot_find(const pilot_view &v, float lower, float upper, u32 *found)
{
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
                found[r] = r == 0 ? pilot_edge(bin) : bin == PILOT_BINS - 1 ? INFINITY_KEY : pilot_edge(bin + 1);
            }
            at += in;
        }
    }
}

/* The standard deviation of the number of elements of the sample that have at least a key: how much the runs differ
 * shows it, as neighbours are often similar. Four threads have a run. */
__device__ __forceinline__ float pilot_deviation(const pilot_view &v, u32 runs, u32 key, pilot_shared *here)
{
    const u32 words = kept_runs(runs) * (PILOT_RUN / 4);
    u32 sum = 0, squares = 0;
#pragma unroll
    for (u32 i = 0; i < KEPT_WORDS; i++) {
        const uint4 k = v.kept[i];
        u32 in = (k.x >= key) + (k.y >= key) + (k.z >= key) + (k.w >= key);
        in += __shfl_xor_sync(FULL, in, 1);
        in += __shfl_xor_sync(FULL, in, 2);
        if (lane_id() % 4 == 0 && i * PILOT_THREADS + threadIdx.x < words) {
            sum += in;
            squares += in * in;
        }
    }
    sum = warp_sum(sum);
    squares = warp_sum(squares);
    if (lane_id() == 0) {
        here->sums[threadIdx.x >> 5] = sum;
        here->squares[threadIdx.x >> 5] = squares;
    }
    __syncthreads();
    const double all = (double)warp_sum(here->sums[lane_id()]),
                 all_squares = (double)warp_sum(here->squares[lane_id()]);
    const float variance = (float)(all_squares - all * all / (double)kept_runs(runs));
    return variance > 0 ? sqrtf((float)kept_distance(runs) * variance) : 0;
}

/* By one thread. */
__device__ __forceinline__ void pilot_set(const selecting &s, u32 low, u32 high, u32 clear_from)
{
    select_control *c = s.control;
    const u32 bits = 32 - (u32)__clz((int)(high - low));
    c->low = low;
    c->shift = bits > 12 ? bits - 12 : 0; /* BAND_BINS is 2^12 */
    /* Where the last bin ends: keys of a bin are all counted there, or those of the threshold's are too many. */
    c->high = high > low ? low + ((((high - low - 1) >> c->shift) + 1) << c->shift) : high;
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

/* By the last block; `sums`: one of its warps makes the guesses from those of the other sample. */
__device__ __forceinline__ void pilot_decide(const selecting &s, const guessing &g, bool sums, u32 runs,
                                             pilot_shared *here)
{
    const float caution = 3.2f, share = (float)(runs * PILOT_RUN) / (float)s.count;
    const float rank = share * (float)s.amount.needed, alone = sqrtf(rank);
    const u32 warp = threadIdx.x >> 5;
    float deviation = alone, margin = caution * alone + 4;
    pilot_view v = pilot_take(s, runs);
    if (threadIdx.x < 4)
        here->found[threadIdx.x] = 0;
    if (sums && warp == PILOT_WARPS - 1)
        guess_from_sums(s, g);
    const u32 scan = warp_scan(v.sum);
    if (lane_id() == 31)
        here->of_warps[warp] = scan;
    __syncthreads();
    const u32 of_warp = here->of_warps[lane_id()];
    v.above = __shfl_sync(FULL, warp_scan(of_warp) - of_warp, (int)warp) + scan - v.sum;
    pilot_find(v, rank + margin, rank - margin, here->found);
    __syncthreads();
    uint2 keys = make_uint2(here->found[0], here->found[1]);
    const float clustered = pilot_deviation(v, runs, keys.x, here);
    if (caution * clustered + 4 > margin * 1.25f) {
        deviation = clustered;
        margin = caution * clustered + 4;
        pilot_find(v, rank + margin, rank - margin, here->found + 2);
        __syncthreads();
        keys = make_uint2(here->found[2], here->found[3]);
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

/* What a thread has of the sample: four elements in a row. */
struct pilot_part {
    u32 start;
    float gradient[4], momentum[4], residual[4], other[4];
};

/* Asks for both residuals, where it is not known which of them is the residual now. */
__device__ __forceinline__ pilot_part pilot_load(const selecting &s, u32 runs, u32 place)
{
    pilot_part p = {};
    const u32 run = place / 4;
    if (run >= runs)
        return p;
    const u32 part = s.count / runs, places = (part - PILOT_RUN) / PILOT_RUN + 1;
    const u64 draw = run * 0x9e3779b97f4a7c15ull >> 32; /* vectors may be periodic */
    p.start = run * part + (u32)(draw * places >> 32) * PILOT_RUN + 4 * (place & 3);
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        p.gradient[i] = element_at(s.from.gradient, s.from.dtype, p.start + i);
        p.momentum[i] = s.from.momentum ? s.from.momentum[p.start + i] : 0;
        p.residual[i] = s.from.residual ? s.from.residual[p.start + i] : 0;
        p.other[i] = s.from.side ? s.from.other[p.start + i] : 0;
    }
    return p;
}

/* `is_other`: the residual is the other one. */
__device__ __forceinline__ void pilot_sample(const selecting &s, u32 runs, u32 place, const pilot_part &p,
                                             bool is_other, pilot_shared *here)
{
    const u32 run = place / 4, distance = kept_distance(runs);
    u32 keys[4], dropped = 0;
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        keys[i] = magnitude_key(source_of(s.from, p.start + i, p.gradient[i], p.momentum[i],
                                          is_other ? p.other[i] : p.residual[i], &dropped)
                                    .u);
    for (u32 i = 4 * threadIdx.x; i < PILOT_BINS; i += 4 * PILOT_THREADS)
        *(uint4 *)&here->bins[i] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    if (run < runs) {
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            atomicAdd(&here->bins[pilot_bin(keys[i])], 1u);
        if (run % distance == 0)
            ((uint4 *)s.sample)[4 * (run / distance) + (place & 3)] = make_uint4(keys[0], keys[1], keys[2], keys[3]);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < PILOT_BINS; i += PILOT_THREADS)
        if (here->bins[i])
            atomicAdd(&s.pilot_bins[i], here->bins[i]);
}

union pilot_room {
    alignas(16) pilot_shared pilot;
    float values[TG_BLOCK];
};

/* The first `pilots` blocks take the pilot sample, those behind them that of a selector; the last to end decides. */
__device__ __forceinline__ void pilot(selecting s, const guessing &g, u32 pilots, block_of_job block, pilot_room &here)
{
    __shared__ u32 last;
    const u32 runs = pilot_runs(s), place = block.number * PILOT_THREADS + threadIdx.x;
    const bool samples = block.number < pilots && runs > 0, sums = block.all > pilots;
    let_next_begin(); /* what the sift reads has been written before */
    const u32 is_other = s.from.side ? __ldg(s.from.side) : 0;
    const pilot_part part = pilot_load(s, samples ? runs : 0, place);
    pilot_clear(s, block); /* while that comes */
    begin(s);
    if (samples)
        pilot_sample(s, runs, place, part, is_other, &here.pilot);
    else if (block.number >= pilots)
        sum_sample(s, g, block.number - pilots, here.values);
    if (!is_last_of(&s.control->tickets[PILOT_TICKET], block.all, &last))
        return;
    if (runs > 0) {
        pilot_decide(s, g, sums, runs, &here.pilot);
        return;
    }
    if (sums && threadIdx.x < 32)
        guess_from_sums(s, g);
    if (threadIdx.x == 0) {
        const u32 low = s.random ? s.random_low : 0;
        pilot_set(s, low, s.random ? 0x80000000u : INFINITY_KEY, 1);
    }
}

__global__ void __launch_bounds__(PILOT_THREADS)
    pilot_kernel(selecting s, const __grid_constant__ guessing g, u32 pilots)
{
    __shared__ pilot_room here;
    pilot(s, g, pilots, only_job(), here);
}

#endif
