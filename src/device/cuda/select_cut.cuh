/* The threshold, found among the candidates. Blocks put aside the keys of the one bin that holds it, and the last block
 * closes in on it bit by bit. Where those keys are too many, or more than one rank is asked for, the last block counts
 * the digits of all candidates. */
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
__device__ __forceinline__ uint2 find_digit(const u32 *digits, u32 rank, bool from_top, u32 *part, u32 *found)
{
    constexpr u32 EACH = DIGIT_BINS / CUT_THREADS;
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

/* Calls a function for every candidate, a warp for each region. */
template <class Visit> __device__ __forceinline__ void each_candidate(const selecting &s, Visit &&visit)
{
    const u32 lane = threadIdx.x & 31;
    for (u32 region = threadIdx.x >> 5; region < REGIONS; region += CUT_THREADS / 32) {
        const uint2 *at = s.candidates + (u64)region * s.room;
        const u32 count = __ldcg(&s.counters[COUNTER_STRIDE * region]);
#pragma unroll 4
        for (u32 i = lane; i < count; i += 32)
            visit(__ldcg(at + i));
    }
}

/* One digit of a number that candidates have: counted for those that agree with `prefix` above it. */
template <class Number>
__device__ __forceinline__ uint2 digit_of_candidates(const selecting &s, cut_shared *here, u32 rank, u32 shift,
                                                     u32 bits, u32 prefix, bool from_top, Number &&number)
{
    for (u32 i = threadIdx.x; i < DIGIT_BINS; i += CUT_THREADS)
        here->digits[i] = 0;
    __syncthreads();
    each_candidate(s, [&](uint2 candidate) {
        u32 value;
        if (number(candidate, &value) && (u64)value >> (shift + bits) == prefix)
            atomicAdd(&here->digits[value >> shift & ((1u << bits) - 1)], 1u);
    });
    __syncthreads();
    return find_digit(here->digits, rank, from_top, here->part, &here->bin);
}

/* The key of a rank among all candidates; *rank becomes how many with this key belong to it. */
__device__ __noinline__ u32 key_of_rank(const selecting &s, cut_shared *here, u32 *rank)
{
    const u32 shifts[3] = {20, 10, 0}, bits[3] = {11, 10, 10};
    u32 key = 0;
    for (int d = 0; d < 3; d++) {
        const uint2 found = digit_of_candidates(s, here, *rank, shifts[d], bits[d], key, true,
                                                [&](uint2 c, u32 *value) {
                                                    *value = key_of(s, c.x, c.y);
                                                    return true;
                                                });
        key = key << bits[d] | found.x;
        *rank = found.y;
    }
    return key;
}

/* The index up to which `ties` candidates have this key. */
__device__ __noinline__ u32 index_of_tie(const selecting &s, cut_shared *here, u32 key, u32 ties)
{
    const u32 shifts[3] = {21, 10, 0}, bits[3] = {11, 11, 10};
    u32 index = 0;
    for (int d = 0; d < 3; d++) {
        const uint2 found = digit_of_candidates(s, here, ties, shifts[d], bits[d], index, false,
                                                [&](uint2 c, u32 *value) {
                                                    *value = c.x;
                                                    return key_of(s, c.x, c.y) == key;
                                                });
        index = index << bits[d] | found.x;
        ties = found.y;
    }
    return index;
}

__device__ __forceinline__ u32 candidates_from(const selecting &s, cut_shared *here, u32 key)
{
    u32 in = 0, all;
    each_candidate(s, [&](uint2 c) { in += key_of(s, c.x, c.y) >= key; });
    (void)block_scan(in, here->part, &all);
    return all;
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
__device__ __forceinline__ void cut_set(const selecting &s, u32 key, u32 last_index, u32 selected)
{
    s.control->key = key;
    s.control->last_index = last_index;
    set_selected(s, selected);
}

/* The last block, where counting digits is the way. All blocks have returned but this one. */
__device__ __noinline__ void cut_slowly(const selecting &s, cut_shared *here)
{
    select_control *c = s.control;
    const select_amount &a = s.amount;
    if (!a.exact) {
        u32 rank = a.fewest;
        const u32 key_a = key_of_rank(s, here, &rank);
        rank = a.needed;
        const u32 key_b = key_of_rank(s, here, &rank);
        const u32 key = search_threshold(c->guess, c->guesses, a.exact_if_many, key_a, key_b);
        if (key) {
            const u32 selected = candidates_from(s, here, key);
            if (threadIdx.x == 0)
                cut_set(s, key, EVERY_INDEX, selected);
            return;
        }
    }
    u32 ties = a.target;
    const u32 key = key_of_rank(s, here, &ties), last_index = index_of_tie(s, here, key, ties);
    if (threadIdx.x == 0)
        cut_set(s, key, last_index, a.target);
}

/* The last block, with the keys of one bin, `n` of them: the largest key that at least `rank` of them have; then the
 * index up to which they do. */
__device__ __forceinline__ void cut_list(const selecting &s, cut_shared *here, u32 n, u32 least, u32 rank)
{
    constexpr u32 EACH = LIST_ROOM / CUT_THREADS;
    u32 key[EACH], index[EACH], turn = 0; /* a fresh place for every count */
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
        const u32 j = i * CUT_THREADS + threadIdx.x;
        const uint2 x = j < n ? __ldcg(&s.list[j]) : make_uint2(0, 0);
        key[i] = x.x;
        index[i] = x.y;
    }
    if (threadIdx.x < 128)
        here->counts[threadIdx.x] = 0;
    __syncthreads();
    auto count = [&](auto &&holds) {
        u32 c = 0;
#pragma unroll
        for (u32 i = 0; i < EACH; i++)
            c += i * CUT_THREADS + threadIdx.x < n && holds(key[i], index[i]);
        c = warp_sum(c);
        if ((threadIdx.x & 31) == 0 && c)
            atomicAdd(&here->counts[turn], c);
        __syncthreads();
        return *(volatile u32 *)&here->counts[turn++];
    };
    u32 cut = least;
    for (u32 bit = s.control->shift ? 1u << (s.control->shift - 1) : 0; bit; bit /= 2)
        if (count([&](u32 k, u32) { return k >= cut + bit; }) >= rank)
            cut += bit;
    const u32 above = count([&](u32 k, u32) { return k > cut; }), equal = count([&](u32 k, u32) { return k == cut; });
    u32 last_index = EVERY_INDEX;
    if (above + equal > rank) { /* the least index that so many of them do not exceed */
        last_index = 0;
        for (u32 bit = 1u << 31; bit; bit /= 2)
            if (count([&](u32 k, u32 i) { return k == cut && i <= last_index + bit - 1; }) < rank - above)
                last_index += bit;
    }
    if (threadIdx.x == 0)
        cut_set(s, cut, last_index, s.amount.target);
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
    /* a guess that selects as many as it may needs no more candidates than that */
    const bool is_guess = !a.exact && c->high == c->low + 1 && v.total >= a.fewest && v.total <= a.most;
    v.again = c->overflow || (!is_guess && v.total < a.needed && v.total < s.count);
    v.all = !v.again && (is_guess || (a.exact ? v.total == a.target : v.total <= a.most));
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

/* `parts` blocks for each region. */
__global__ void __launch_bounds__(CUT_THREADS) cut_kernel(selecting s, u32 parts)
{
    __shared__ cut_shared here;
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
                    s.list[at] = make_uint2(key, x.x);
            }
        };
#pragma unroll
        for (u32 i = 0; i < CUT_AHEAD; i++)
            if (first + i * step < count)
                look(ahead[i]);
        for (u32 i = first + CUT_AHEAD * step; i < count; i += step)
            look(__ldcg(&candidates[i]));
    }
    if (!is_last_block(&c->tickets[CUT_TICKET], &here.last))
        return;
    const u32 listed = __ldcg(&c->listed);
    if (v.again) {
        if (threadIdx.x == 0)
            c->again = 1;
    } else if (v.all) {
        if (threadIdx.x == 0)
            cut_set(s, c->low, EVERY_INDEX, v.total);
    } else if (v.listed && listed <= LIST_ROOM) {
        cut_list(s, &here, listed, v.least, rank);
    } else {
        cut_slowly(s, &here);
    }
}

#endif
