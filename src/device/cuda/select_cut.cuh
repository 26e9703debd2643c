/* The threshold, found among the candidates. Blocks put aside the keys of the one bin that holds it, and the last block
 * closes in on it bit by bit. Where those keys are too many, or the candidates too few, or several ranks are asked for,
 * digits are counted (select_again.cuh).
 *
 * What this takes is waiting, for memory and for other threads: so all that can be asked for at once is, and the few
 * keys that a block finds have a row of their own, where no counter is asked for a place. */
#ifndef TG_DEVICE_CUDA_SELECT_CUT_CUH
#define TG_DEVICE_CUDA_SELECT_CUT_CUH

#include "device/cuda/select.cuh"

constexpr u32 CUT_THREADS = 512, CUT_WARPS = CUT_THREADS / 32, CUT_AHEAD = 8;
/* A block's row: keys, and NO_KEY where there are no more; those that find no room go to a list of all blocks. */
constexpr u32 CUT_ROW = 8, NO_KEY = 0xffffffff;
/* Up to so many keys are a matter for one warp. */
constexpr u32 FEW_KEYS = 256;

struct cut_shared {
    u32 of_bins[CUT_WARPS], of_counters[CUT_WARPS];
    u32 bin, rank, last;
    u32 row[CUT_ROW], found; /* of this block */
    u32 keys[LIST_ROOM];     /* of all */
    u32 counts[32];
};

/* The bin of the rank-th key from the top (or from the bottom), and its rank within the bin. By a block. */
template <u32 THREADS>
__device__ __forceinline__ uint2 find_digit(const u32 *digits, u32 rank, bool from_top, u32 *part, u32 *found)
{
    constexpr u32 EACH = DIGIT_BINS / THREADS;
    u32 mine[EACH], sum = 0, all;
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
        const u32 place = EACH * threadIdx.x + i;
        mine[i] = digits[from_top ? DIGIT_BINS - 1 - place : place];
        sum += mine[i];
    }
    u32 before = block_scan(sum, part, &all);
    if (before < rank && rank <= before + sum) {
#pragma unroll
        for (u32 i = 0; i < EACH; i++) {
            if (before < rank && rank <= before + mine[i]) {
                const u32 place = EACH * threadIdx.x + i;
                found[0] = from_top ? DIGIT_BINS - 1 - place : place;
                found[1] = rank - before;
            }
            before += mine[i];
        }
    }
    __syncthreads();
    const uint2 result = make_uint2(found[0], found[1]);
    __syncthreads();
    return result;
}

/* tg_search_threshold, where `fewest` elements have the key `a` or a larger one, and more than `most` the key `b`: a
 * threshold t is accepted if b < t <= a. Returns it; 0: exactly the target is selected. */
__device__ __host__ __forceinline__ u32 search_threshold(const u32 *guess, u32 guesses, bool exact_if_many, u32 a,
                                                         u32 b)
{
    u32 low = 0, high = INFINITY_KEY;
    for (u32 i = 0; high - low > 1; i++) {
        u32 key = low + (high - low) / 2;
        if (i < guesses) {
            key = guess[i];
            if (key <= low || key >= high)
                continue;
        }
        if (b < key && key <= a)
            return key;
        if (key <= b) {
            if (i < guesses && exact_if_many)
                return 0;
            low = key;
        } else {
            high = key;
        }
    }
    return 0;
}

/* By one thread. */
__device__ __forceinline__ void cut_set(const selecting &s, u32 key, u32 ties, u32 selected)
{
    s.control->key = key;
    s.control->ties = ties;
    set_selected(s, selected);
}

/* How many keys of a group of threads are at least some key: the group has them in its registers. */
struct few_keys {
    u32 key[FEW_KEYS / 32];
    __device__ __forceinline__ u32 at_least(u32 least)
    {
        u32 in = 0;
#pragma unroll
        for (u32 i = 0; i < FEW_KEYS / 32; i++)
            in += key[i] != NO_KEY && key[i] >= least;
        return warp_sum(in);
    }
};

struct many_keys {
    u32 key[LIST_ROOM / CUT_THREADS], turn;
    cut_shared *here; /* a fresh place for every count */
    __device__ __forceinline__ u32 at_least(u32 least)
    {
        u32 in = 0;
#pragma unroll
        for (u32 i = 0; i < LIST_ROOM / CUT_THREADS; i++)
            in += key[i] != NO_KEY && key[i] >= least;
        in = warp_sum(in);
        if (lane_id() == 0 && in > 0)
            atomicAdd(&here->counts[turn], in);
        __syncthreads();
        return *(volatile u32 *)&here->counts[turn++];
    }
};

/* The largest key that at least `rank` of the keys have, which are all in the bin that begins with `least`. */
template <class Keys>
__device__ __forceinline__ void close_in(const selecting &s, Keys &keys, u32 shift, u32 least, u32 rank, bool tells)
{
    u32 cut = least;
    for (u32 bit = shift ? 1u << (shift - 1) : 0; bit; bit /= 2)
        if (keys.at_least(cut + bit) >= rank)
            cut += bit;
    const u32 above = keys.at_least(cut + 1);
    if (tells) {
        s.control->key = cut;
        s.control->ties = rank - above;
    }
}

/* The last block, when the keys of the threshold's bin are in here->keys, `n` of them. */
__device__ __forceinline__ void cut_list(const selecting &s, cut_shared *here, u32 n, u32 shift, u32 least, u32 rank)
{
    const u32 t = threadIdx.x;
    if (n <= FEW_KEYS) {
        if (t == 32) /* beside the warp that has the keys */
            set_selected(s, s.amount.target);
        if (t >= 32)
            return;
        few_keys keys;
#pragma unroll
        for (u32 i = 0; i < FEW_KEYS / 32; i++)
            keys.key[i] = 32 * i + t < n ? here->keys[32 * i + t] : NO_KEY;
        close_in(s, keys, shift, least, rank, t == 0);
        return;
    }
    many_keys keys;
    keys.turn = 0;
    keys.here = here;
#pragma unroll
    for (u32 i = 0; i < LIST_ROOM / CUT_THREADS; i++)
        keys.key[i] = i * CUT_THREADS + t < n ? here->keys[i * CUT_THREADS + t] : NO_KEY;
    if (t < 32)
        here->counts[t] = 0;
    __syncthreads();
    close_in(s, keys, shift, least, rank, t == 0);
    if (t == 0)
        set_selected(s, s.amount.target);
}

/* What every block finds out for itself. */
struct cut_view {
    u32 total, least;        /* candidates; the first key of the threshold's bin */
    bool again, all, listed; /* the candidates do not suffice; they are what is selected; the bin is to be listed */
};

/* What that takes, asked for at once. */
struct cut_asked {
    uint4 low, high; /* bins */
    u32 counter, nonfinite, overflow, first_key, shift;
};

__device__ __forceinline__ cut_asked cut_ask(const selecting &s)
{
    static_assert(BAND_BINS == 8 * CUT_THREADS && REGIONS_MOST <= CUT_THREADS,
                  "a thread has eight bins, and one counter");
    const select_control *c = s.control;
    const u32 t = threadIdx.x;
    const uint4 *bins = (const uint4 *)(s.bins + BAND_BINS - 8 - 8 * t); /* both in a sector that the cache keeps */
    cut_asked a;
    a.low = bins[0];
    a.high = bins[1];
    a.counter = t < s.regions ? __ldcg(&s.counters[COUNTER_STRIDE * t]) : 0;
    a.nonfinite = c->nonfinite;
    a.overflow = c->overflow;
    a.first_key = c->low;
    a.shift = c->shift;
    return a;
}

__device__ __forceinline__ cut_view cut_look(const selecting &s, const cut_asked &asked, cut_shared *here)
{
    constexpr u32 EACH = 8;
    const uint4 low = asked.low, high = asked.high;
    const u32 t = threadIdx.x, warp = t >> 5;
    const u32 mine[EACH] = {high.w, high.z, high.y, high.x, low.w, low.z, low.y, low.x}; /* from the top down */
    cut_view v;
    u32 sum = 0;
#pragma unroll
    for (u32 i = 0; i < EACH; i++)
        sum += mine[i];
    const u32 scan = warp_scan(sum), counted = warp_sum(asked.counter);
    if (lane_id() == 31) {
        here->of_bins[warp] = scan;
        here->of_counters[warp] = counted;
    }
    __syncthreads();
    /* Every warp adds up the sums of all: that takes less time than to wait for one that does. */
    const u32 of_warp = lane_id() < CUT_WARPS ? here->of_bins[lane_id()] : 0, upto = warp_scan(of_warp),
              band = __shfl_sync(FULL, upto, 31);
    u32 before = __shfl_sync(FULL, upto - of_warp, (int)warp) + scan - sum;
    v.total = warp_sum(lane_id() < CUT_WARPS ? here->of_counters[lane_id()] : 0);
    const select_amount &a = s.amount;
    const u32 above = v.total - band, wanted = a.target - above;
    v.again = asked.overflow || (v.total < a.needed && v.total < s.count);
    v.all = !v.again && (a.exact ? v.total == a.target : v.total <= a.most);
    v.listed = !v.again && !v.all && a.exact && above < a.target;
    if (v.listed && before < wanted && wanted <= before + sum) {
#pragma unroll
        for (u32 i = 0; i < EACH; i++) {
            if (before < wanted && wanted <= before + mine[i]) {
                here->bin = BAND_BINS - 1 - EACH * t - i;
                here->rank = wanted - before;
            }
            before += mine[i];
        }
    }
    if (t < CUT_ROW)
        here->row[t] = NO_KEY;
    if (t == 0)
        here->found = 0;
    __syncthreads();
    v.least = asked.first_key + (here->bin << asked.shift);
    return v;
}

/* Adds the candidates of a block that have the keys of the search that was foreseen. */
__device__ __forceinline__ void cut_count(const selecting &s, const u32 at_least[3], cut_shared *here)
{
    if (threadIdx.x < 3)
        here->counts[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < 3; i++) {
        const u32 all = warp_sum(at_least[i]);
        if (lane_id() == 0 && all > 0)
            atomicAdd(&here->counts[i], all);
    }
    __syncthreads();
    if (threadIdx.x < 3 && here->counts[threadIdx.x] > 0)
        atomicAdd(&s.control->at_least[threadIdx.x], here->counts[threadIdx.x]);
}

/* The threshold that was foreseen is it, if it selects as many as it may, and none that is tried before does so too. By
 * the last block. */
__device__ __forceinline__ bool cut_foreseen(const selecting &s, u32 *chosen)
{
    const select_control *c = s.control;
    const select_amount &a = s.amount;
    *chosen = __ldcg(&c->at_least[0]);
    return c->foreseen.key > 0 && !c->overflow && *chosen >= a.fewest && *chosen <= a.most &&
           __ldcg(&c->at_least[1]) < a.fewest && (c->foreseen.low == 0 || __ldcg(&c->at_least[2]) >= a.needed);
}

/* Candidates that a thread has asked for at once; `step` lies between them. */
struct cut_ahead {
    uint2 of[CUT_AHEAD];
    __device__ __forceinline__ void load(const uint2 *candidates, u32 first, u32 step, u32 count)
    {
#pragma unroll
        for (u32 i = 0; i < CUT_AHEAD; i++)
            of[i] = first + i * step < count ? __ldcg(&candidates[first + i * step]) : make_uint2(0, 0);
    }
};

/* Calls a function with every candidate of a thread, of which the first have been asked for. */
template <class Visit>
__device__ __forceinline__ void each_ahead(cut_ahead &ahead, const uint2 *candidates, u32 first, u32 step, u32 count,
                                           Visit &&visit)
{
    for (u32 at = first; at < count; at += CUT_AHEAD * step) {
        if (at != first)
            ahead.load(candidates, at, step, count);
#pragma unroll
        for (u32 i = 0; i < CUT_AHEAD; i++)
            if (at + i * step < count)
                visit(ahead.of[i]);
    }
}

__device__ __forceinline__ u32 *row_of(const selecting &s, u32 block) { return s.list + LIST_ROOM + CUT_ROW * block; }

/* A key of the threshold's bin. */
__device__ __forceinline__ void put_aside(const selecting &s, cut_shared *here, u32 key)
{
    const u32 place = atomicAdd(&here->found, 1u);
    if (place < CUT_ROW) {
        here->row[place] = key;
        return;
    }
    const u32 at = atomicAdd(&s.control->listed, 1u);
    if (at < LIST_ROOM)
        s.list[at] = key;
}

/* All rows, and what found no room there, to here->keys: how many, or more than there is room for. By the last block.
 */
__device__ __forceinline__ u32 bring_together(const selecting &s, u32 blocks, cut_shared *here)
{
    const u32 t = threadIdx.x, listed = __ldcg(&s.control->listed);
    if (t == 0)
        here->found = 0;
    __syncthreads();
    auto take = [&](u32 key) {
        if (key == NO_KEY)
            return;
        const u32 place = atomicAdd(&here->found, 1u);
        if (place < LIST_ROOM)
            here->keys[place] = key;
    };
    for (u32 word = t; word < blocks * CUT_ROW / 4; word += CUT_THREADS) {
        const uint4 four = __ldcg((const uint4 *)row_of(s, 0) + word);
        take(four.x);
        take(four.y);
        take(four.z);
        take(four.w);
    }
    for (u32 i = t; i < min(listed, LIST_ROOM); i += CUT_THREADS)
        take(__ldcg(&s.list[i]));
    __syncthreads();
    return listed <= LIST_ROOM ? here->found : listed;
}

/* Block number `block` of so many. There are `each` threads for a region, a multiple of a warp's. */
__device__ __forceinline__ void cut_block(const selecting &s, u32 block, u32 blocks, u32 each, cut_shared *here)
{
    select_control *c = s.control;
    const u32 thread = block * CUT_THREADS + threadIdx.x, region = thread / each, first = thread - each * region;
    const cut_asked asked = cut_ask(s);
    const u32 count = region < s.regions ? min(__ldcg(&s.counters[COUNTER_STRIDE * region]), s.room) : 0;
    const uint2 *candidates = s.candidates + (u64)region * s.room;
    cut_ahead ahead; /* most of what this thread looks at, before it knows what for */
    ahead.load(candidates, first, each, count);
    const cut_view v = cut_look(s, asked, here);
    if (asked.nonfinite)
        return;
    const u32 width = (1u << asked.shift) - 1, rank = here->rank;
    if (v.listed) {
        each_ahead(ahead, candidates, first, each, count, [&](uint2 x) {
            const u32 key = key_of(s, x.x, x.y);
            if (key - v.least <= width)
                put_aside(s, here, key);
        });
        __syncthreads();
        if (threadIdx.x < CUT_ROW)
            row_of(s, block)[threadIdx.x] = here->row[threadIdx.x];
    } else if (!s.amount.exact && c->foreseen.key > 0) {
        const foreseen_search f = c->foreseen;
        u32 at_least[3] = {0, 0, 0};
        each_ahead(ahead, candidates, first, each, count, [&](uint2 x) {
            at_least[0] += (x.y & KEY_MASK) >= f.key;
            at_least[1] += (x.y & KEY_MASK) >= f.high;
            at_least[2] += (x.y & KEY_MASK) >= f.low;
        });
        cut_count(s, at_least, here);
    }
    if (!is_last_of(&c->tickets[CUT_TICKET], blocks, &here->last))
        return;
    u32 chosen, listed;
    if (!s.amount.exact && cut_foreseen(s, &chosen)) {
        if (threadIdx.x == 0)
            cut_set(s, c->foreseen.key, EVERY, chosen);
    } else if (v.all) {
        if (threadIdx.x == 0)
            cut_set(s, c->low, EVERY, v.total);
    } else if (v.listed && (listed = bring_together(s, blocks, here)) <= LIST_ROOM) {
        cut_list(s, here, listed, asked.shift, v.least, rank);
    } else if (threadIdx.x == 0) {
        c->again = v.again ? AGAIN_ALL : AGAIN_CANDIDATES;
    }
}

/* Few threads for a region where few candidates are expected, so that few blocks find the same things out. */
static inline u32 cut_threads_of_region(u32 regions, u32 needed)
{
    u32 each = 32;
    while (each < 4 * CUT_THREADS && (u64)each * CUT_AHEAD * regions < needed + needed / 4)
        each *= 2;
    return each;
}

static inline u32 cut_blocks(u32 regions, u32 needed)
{
    return (regions * cut_threads_of_region(regions, needed) + CUT_THREADS - 1) / CUT_THREADS;
}

__device__ __forceinline__ void cut(selecting s, u32 each, block_of_job block, cut_shared &here)
{
    wait_for_previous();
    let_next_begin(); /* so what begins beside this, or later, finds all that the pilot and the sift leave */
    begin(s);
    cut_block(s, block.number, block.all, each, &here);
}

__global__ void __launch_bounds__(CUT_THREADS) cut_kernel(selecting s, u32 each)
{
    __shared__ cut_shared here;
    cut(s, each, only_job(), here);
}

#endif
