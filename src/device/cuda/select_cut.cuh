/* The threshold, found among the candidates. Blocks put aside the keys of the one bin that holds it, and the last block
 * closes in on it bit by bit. Where those keys are too many, or the candidates too few, or several ranks are asked for,
 * digits are counted (select_again.cuh). */
#ifndef TG_DEVICE_CUDA_SELECT_CUT_CUH
#define TG_DEVICE_CUDA_SELECT_CUT_CUH

#include "device/cuda/select.cuh"

constexpr u32 CUT_THREADS = 512, CUT_AHEAD = 8;

struct cut_shared {
    u32 part[33];
    u32 bin, rank, last;
    u32 digits[DIGIT_BINS];
    u32 counts[128];
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

/* The last block, with the keys of one bin, `n` of them: the largest key that at least `rank` of them have. */
__device__ __forceinline__ void cut_list(const selecting &s, cut_shared *here, u32 n, u32 least, u32 rank)
{
    constexpr u32 EACH = LIST_ROOM / CUT_THREADS;
    u32 key[EACH], turn = 0; /* a fresh place for every count */
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
        const u32 j = i * CUT_THREADS + threadIdx.x;
        key[i] = j < n ? __ldcg(&s.list[j]) : 0;
    }
    if (threadIdx.x < 128)
        here->counts[threadIdx.x] = 0;
    __syncthreads();
    auto count = [&](auto &&holds) {
        u32 c = 0;
#pragma unroll
        for (u32 i = 0; i < EACH; i++)
            c += i * CUT_THREADS + threadIdx.x < n && holds(key[i]);
        c = warp_sum(c);
        if ((threadIdx.x & 31) == 0 && c)
            atomicAdd(&here->counts[turn], c);
        __syncthreads();
        return *(volatile u32 *)&here->counts[turn++];
    };
    u32 cut = least;
    for (u32 bit = s.control->shift ? 1u << (s.control->shift - 1) : 0; bit; bit /= 2)
        if (count([&](u32 k) { return k >= cut + bit; }) >= rank)
            cut += bit;
    const u32 above = count([&](u32 k) { return k > cut; });
    if (threadIdx.x == 0)
        cut_set(s, cut, rank - above, s.amount.target);
}

/* What every block finds out for itself. */
struct cut_view {
    u32 total, least;        /* candidates; the first key of the threshold's bin */
    bool again, all, listed; /* the candidates do not suffice; they are what is selected; the bin is to be listed */
};

__device__ __forceinline__ cut_view cut_look(const selecting &s, cut_shared *here)
{
    constexpr u32 EACH = BAND_BINS / CUT_THREADS;
    const select_control *c = s.control;
    cut_view v;
    u32 mine[EACH], sum = 0, band;
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
        mine[i] = __ldcg(&s.bins[BAND_BINS - 1 - EACH * threadIdx.x - i]);
        sum += mine[i];
    }
    (void)block_scan(threadIdx.x < REGIONS ? __ldcg(&s.counters[COUNTER_STRIDE * threadIdx.x]) : 0, here->part,
                     &v.total);
    u32 before = block_scan(sum, here->part, &band);
    const select_amount &a = s.amount;
    const u32 above = v.total - band, wanted = a.target - above;
    v.again = c->overflow || (v.total < a.needed && v.total < s.count);
    v.all = !v.again && (a.exact ? v.total == a.target : v.total <= a.most);
    v.listed = !v.again && !v.all && a.exact && above < a.target;
    if (v.listed && before < wanted && wanted <= before + sum) {
#pragma unroll
        for (u32 i = 0; i < EACH; i++) {
            if (before < wanted && wanted <= before + mine[i]) {
                here->bin = BAND_BINS - 1 - EACH * threadIdx.x - i;
                here->rank = wanted - before;
            }
            before += mine[i];
        }
    }
    __syncthreads();
    v.least = c->low + (here->bin << c->shift);
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

/* `parts` blocks for each region. */
__global__ void __launch_bounds__(CUT_THREADS) cut_kernel(selecting s, u32 parts)
{
    __shared__ cut_shared here;
    wait_for_previous();
    let_next_begin(); /* so what begins beside this, or later, finds all that the pilot and the sift leave */
    begin(s);
    select_control *c = s.control;
    if (c->nonfinite)
        return;
    const u32 region = blockIdx.x / parts, count = __ldcg(&s.counters[COUNTER_STRIDE * region]);
    const u32 first = blockIdx.x % parts * CUT_THREADS + threadIdx.x, step = parts * CUT_THREADS;
    const uint2 *candidates = s.candidates + (u64)region * s.room;
    uint2 ahead[CUT_AHEAD]; /* most of what this block looks at, before it knows what for */
#pragma unroll
    for (u32 i = 0; i < CUT_AHEAD; i++)
        ahead[i] = first + i * step < min(count, s.room) ? __ldcg(&candidates[first + i * step]) : make_uint2(0, 0);
    const cut_view v = cut_look(s, &here);
    const u32 width = (1u << c->shift) - 1, rank = here.rank;
    if (v.listed) {
        auto look = [&](uint2 x) {
            const u32 key = key_of(s, x.x, x.y);
            if (key - v.least <= width) {
                const u32 at = atomicAdd(&c->listed, 1u);
                if (at < LIST_ROOM)
                    s.list[at] = key;
            }
        };
#pragma unroll
        for (u32 i = 0; i < CUT_AHEAD; i++)
            if (first + i * step < count)
                look(ahead[i]);
        for (u32 i = first + CUT_AHEAD * step; i < count; i += step)
            look(__ldcg(&candidates[i]));
    } else if (!s.amount.exact && c->foreseen.key > 0) {
        const foreseen_search f = c->foreseen;
        u32 at_least[3] = {0, 0, 0};
        auto look = [&](uint2 x) {
            at_least[0] += (x.y & KEY_MASK) >= f.key;
            at_least[1] += (x.y & KEY_MASK) >= f.high;
            at_least[2] += (x.y & KEY_MASK) >= f.low;
        };
#pragma unroll
        for (u32 i = 0; i < CUT_AHEAD; i++)
            if (first + i * step < count)
                look(ahead[i]);
        for (u32 i = first + CUT_AHEAD * step; i < min(count, s.room); i += step)
            look(__ldcg(&candidates[i]));
        cut_count(s, at_least, &here);
    }
    if (!is_last_block(&c->tickets[CUT_TICKET], &here.last))
        return;
    const u32 listed = __ldcg(&c->listed);
    u32 chosen;
    if (!s.amount.exact && cut_foreseen(s, &chosen)) {
        if (threadIdx.x == 0)
            cut_set(s, c->foreseen.key, EVERY, chosen);
    } else if (v.all) {
        if (threadIdx.x == 0)
            cut_set(s, c->low, EVERY, v.total);
    } else if (v.listed && listed <= LIST_ROOM) {
        cut_list(s, &here, listed, v.least, rank);
    } else if (threadIdx.x == 0) {
        c->again = v.again ? AGAIN_ALL : AGAIN_CANDIDATES;
    }
}

#endif
