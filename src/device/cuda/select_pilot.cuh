/* The pilot sample: see codec/pilot.c, which does the same. It does not influence what is selected. */
#ifndef TG_DEVICE_CUDA_SELECT_PILOT_CUH
#define TG_DEVICE_CUDA_SELECT_PILOT_CUH

#include "device/cuda/select.cuh"

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
        c->nonfinite = c->overflow = c->listed = c->again = c->selected = 0;
        c->dropped = c->saturated = 0;
    }
}

struct pilot_shared {
    u32 bins[PILOT_BINS];
    u32 part[33];
    u32 last, found;
};

/* The bins of a thread, eight from the top down, and how many keys are above them. */
struct pilot_view {
    u32 bins[8], sum, above, all;
};

__device__ __forceinline__ pilot_view pilot_take(const selecting &s, pilot_shared *here)
{
    pilot_view v;
    u32 *at = s.pilot_bins + PILOT_BINS - 8 - 8 * threadIdx.x;
    v.sum = 0;
#pragma unroll
    for (u32 i = 0; i < 8; i++) {
        v.bins[i] = __ldcg(at + 7 - i);
        v.sum += v.bins[i];
        at[7 - i] = 0; /* for the next time */
    }
    v.above = block_scan(v.sum, here->part, &v.all);
    return v;
}

/* The key of a rank; 0 if there are not so many. Within a bin keys are taken as evenly spread. */
__device__ __forceinline__ u32 pilot_key_at(const pilot_view &v, float rank, pilot_shared *here)
{
    if (threadIdx.x == 0)
        here->found = 0;
    __syncthreads();
    float at = (float)v.above;
    rank = rank < 1 ? 1 : rank;
    if (rank > at && rank <= at + (float)v.sum) {
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            const float in = (float)v.bins[i];
            if (in > 0 && rank > at && rank <= at + in) {
                const u32 bin = PILOT_BINS - 1 - (threadIdx.x * 8 + i);
                here->found = (bin << PILOT_SHIFT) +
                              (u32)((1.0f - (rank - at) / in) * (float)((1u << PILOT_SHIFT) - 1));
            }
            at += in;
        }
    }
    __syncthreads();
    const u32 found = here->found;
    __syncthreads();
    return found;
}

/* How many elements of the sample have at least a key, and the standard deviation of this number. A quarter of the runs
 * is counted, as one block reads them all: the estimate has an `error` of its own. */
struct pilot_estimate {
    float count, deviation, error;
};

__device__ __forceinline__ pilot_estimate pilot_count(const selecting &s, u32 runs, u32 key, pilot_shared *here)
{
    u32 sum = 0, squares = 0, all, all_squares;
    const u32 step = runs >= 1024 ? 4 : 1, counted = runs / step;
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
    (void)block_scan(sum, here->part, &all);
    (void)block_scan(squares, here->part, &all_squares);
    const float variance = (float)((double)all_squares - (double)all * (double)all / (double)counted);
    const float of_counted = variance > 0 ? sqrtf(variance) : 0;
    pilot_estimate e;
    e.count = (float)(all * step);
    e.error = (float)step * of_counted;
    e.deviation = sqrtf((float)step) * of_counted;
    return e;
}

/* By one thread. */
__device__ __forceinline__ void pilot_set(const selecting &s, u32 low, u32 high, u32 clear_from)
{
    select_control *c = s.control;
    u32 shift = 0;
    while ((high - low) >> shift >= BAND_BINS)
        shift++;
    c->low = low;
    c->high = high;
    c->shift = shift;
    c->clear_from = s.clears && !s.random ? max(clear_from, 1u) : 0xffffffffu;
    c->sure = NOT_SURE;
}

/* A guess that will be accepted needs no candidates below it. (It, and the smallest guess before it); or (0, ...). */
__device__ __forceinline__ uint2 pilot_sure_guess(const selecting &s, u32 runs, float share, pilot_shared *here)
{
    u32 before = INFINITY_KEY;
    for (u32 i = 0; i < s.control->guesses; i++) {
        const u32 key = s.control->guess[i];
        if (key == 0 || key >= before)
            continue;
        const pilot_estimate e = pilot_count(s, runs, key, here);
        if (e.count - 3.2f * e.error - 1 > share * (float)s.amount.fewest && e.count < share * (float)s.amount.most)
            return make_uint2(key, before);
        before = key;
    }
    return make_uint2(0, before);
}

__device__ __forceinline__ void pilot_decide(const selecting &s, u32 runs, pilot_shared *here)
{
    const float caution = 3.2f, share = (float)(runs * PILOT_RUN) / (float)s.count;
    const pilot_view v = pilot_take(s, here);
    const uint2 sure = pilot_sure_guess(s, runs, share, here);
    const u32 guess = sure.x;
    const float rank = share * (float)s.amount.needed;
    float margin = caution * sqrtf(rank) + 4;
    u32 low = guess;
    if (!guess) {
        low = pilot_key_at(v, rank + margin, here);
        /* neighbours are often similar: how much the runs differ shows it */
        const float clustered = caution * pilot_count(s, runs, low, here).deviation + 4;
        if (clustered > margin * 1.25f) {
            margin = clustered;
            low = pilot_key_at(v, rank + margin, here);
        }
    }
    const u32 top = rank > margin + 1 ? pilot_key_at(v, rank - margin, here) + 1 : 0;
    if (threadIdx.x == 0) {
        const bool first = sure.y == INFINITY_KEY;
        const u32 high = guess ? (first ? low + 1 : sure.y) : top > low ? top : INFINITY_KEY;
        pilot_set(s, low, high, high == INFINITY_KEY || guess ? low : low + (high - low) / 2);
        s.control->sure = !guess ? NOT_SURE : first ? SURE_FIRST : SURE_LATER;
    }
}

__global__ void __launch_bounds__(PILOT_THREADS) pilot_kernel(selecting s)
{
    __shared__ pilot_shared here;
    const u32 runs = s.random || s.count < PILOT_LEAST || s.amount.needed >= s.count
                         ? 0
                         : min(s.count / (16 * PILOT_RUN), (u32)PILOT_RUNS);
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
    pilot_clear(s);
    if (runs == 0) {
        if (blockIdx.x == 0 && threadIdx.x == 0)
            pilot_set(s, s.random ? s.random_low : 0, s.random ? 0x80000000u : INFINITY_KEY, 1);
        return;
    }
    for (u32 i = threadIdx.x; i < PILOT_BINS; i += PILOT_THREADS)
        here.bins[i] = 0;
    __syncthreads();
    if (run < runs) {
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            atomicAdd(&here.bins[min(keys[i] >> PILOT_SHIFT, (u32)PILOT_BINS - 1)], 1u);
        *(uint4 *)(s.sample + 4 * place) = make_uint4(keys[0], keys[1], keys[2], keys[3]);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < PILOT_BINS; i += PILOT_THREADS)
        if (here.bins[i])
            atomicAdd(&s.pilot_bins[i], here.bins[i]);
    if (is_last_block(&s.control->tickets[PILOT_TICKET], &here.last))
        pilot_decide(s, runs, &here);
}

#endif
