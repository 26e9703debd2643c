/* Counting the digits of keys, in three passes: of the candidates, where the threshold is not found faster; or of all
 * elements, where the candidates do not hold it, because the pilot misled, or so many keys are equal that regions
 * overflowed. So the time is bounded whatever the values are.
 *
 * The blocks that gather do it before they begin, as a kernel that is rarely needed costs a launch every time. Passes
 * are divided into shares, some tiles each, and blocks take one after the other. A share of a later pass waits until
 * the pass before has ended: all of that has been taken by then, by blocks that are at work, so the wait ends. */
#ifndef TG_DEVICE_CUDA_SELECT_AGAIN_CUH
#define TG_DEVICE_CUDA_SELECT_AGAIN_CUH

#include "device/cuda/select_cut.cuh"
#include "device/cuda/select_tile.cuh"

/* The last pass counts what a threshold selects. */
constexpr u32 DIGIT_PASSES = 3, AGAIN_PASSES = DIGIT_PASSES + 1, SHARES_MOST = 528;

__device__ __forceinline__ u32 digit_shift(u32 pass) { return pass == 0 ? 20 : pass == 1 ? 10 : 0; }
__device__ __forceinline__ u32 digit_bits(u32 pass) { return pass == 0 ? 11 : 10; }

struct again_shared {
    u32 digits[RANKS * DIGIT_BINS];
    u32 part[33], found[2];
    u32 item, last;
};

/* The residual holds u again, also where candidates were cleared. */
__device__ __forceinline__ void put_back(const selecting &s, u32 strip)
{
    const u32 entry = s.table[strip];
    const uint2 *listed = region_of(s, strip) + (entry & (REGION_MOST - 1));
    for (u32 j = lane_id(); j < entry >> COUNT_SHIFT; j += 32)
        s.rest[listed[j].x] = __uint_as_float(listed[j].y);
    __syncwarp();
}

/* A value was not finite: the residual becomes what it was, exactly if it was saved, otherwise up to rounding. */
__device__ __forceinline__ void unsift(const selecting &given, block_of_job block)
{
    selecting s = given;
    begin(s);
    u32 limited = 0; /* only by rounding, so it is not reported */
    for (u32 strip = block.number * TILE_WARPS + (threadIdx.x >> 5); strip < s.strips;
         strip += block.all * TILE_WARPS) {
        if (s.table[strip] == NOT_COMMITTED)
            continue;
        if (!s.from.undo)
            put_back(s, strip);
        for (u32 i = lane_id(); i < strip_size(s, strip); i += 32) {
            const u32 index = strip * STRIP + i;
            float *h = s.from.residual + index;
            *h = s.from.undo ? s.from.undo[index]
                             : limited_sum(*h - element_at(s.from.gradient, s.from.dtype, index), &limited);
        }
    }
}

__device__ __forceinline__ u32 shares_of(const selecting &s) { return min(s.tiles, SHARES_MOST); }

/* Calls a function with every key of the warp's part of a share. */
template <class Visit>
__device__ __forceinline__ void each_key(const selecting &s, u32 again, u32 share, bool puts_back, Visit &&visit)
{
    for (u32 tile = share; tile < s.tiles; tile += shares_of(s)) {
        const u32 strip0 = warp_strip(s, tile);
        if (again == AGAIN_CANDIDATES) {
            const listing l = look_up(s, strip0);
            for (u32 first = 0; first < l.total; first += some_listed::ALL) {
                some_listed some;
                some.load(s, l, first);
                some.each(l, first, [&](uint2 c, bool in) {
                    if (in)
                        visit(key_of(s, c.x, c.y));
                });
            }
            continue;
        }
        for (u32 strip = strip0; puts_back && s.commits && strip < warp_end(s, strip0); strip++)
            put_back(s, strip);
        each_element(s, strip0, [&](u32 index, float u, bool in) {
            if (in)
                visit(key_of(s, index, __float_as_uint(u)));
        });
    }
}

/* When the digits of all ranks are known. By one thread. */
__device__ __forceinline__ void again_decide(const selecting &s)
{
    select_control *c = s.control;
    const select_amount &a = s.amount;
    u32 key = 0;
    if (!a.exact && s.count <= a.most) {
        c->key = 0;
        c->ties = EVERY;
        set_selected(s, s.count);
        return;
    }
    if (!a.exact)
        key = search_threshold(c->guess, c->guesses, a.exact_if_many, c->prefix[1], c->prefix[2]);
    c->key = key ? key : c->prefix[0];
    c->ties = key ? EVERY : c->rank[0];
    if (!key)
        set_selected(s, a.target);
}

/* The digit of each rank, when a pass has ended. By a block. */
__device__ __forceinline__ void end_digits(const selecting &s, u32 pass, u32 ranks, again_shared *here)
{
    select_control *c = s.control;
    for (u32 i = threadIdx.x; i < ranks * DIGIT_BINS; i += TILE_THREADS) {
        here->digits[i] = __ldcg(&s.digits[i]);
        s.digits[i] = 0;
    }
    __syncthreads();
    for (u32 r = 0; r < ranks; r++) {
        const u32 rank = pass     ? __ldcg(&c->rank[r])
                         : r == 0 ? s.amount.target
                         : r == 1 ? s.amount.fewest
                                  : s.amount.needed;
        const uint2 digit = find_digit<TILE_THREADS>(here->digits + (pass ? r * DIGIT_BINS : 0), rank, true, here->part,
                                                     here->found);
        if (threadIdx.x == 0) {
            c->prefix[r] = (pass ? __ldcg(&c->prefix[r]) << digit_bits(pass) : 0) | digit.x;
            c->rank[r] = digit.y;
        }
        __syncthreads();
    }
    if (pass == DIGIT_PASSES - 1 && threadIdx.x == 0)
        again_decide(s);
}

__device__ __forceinline__ void count_digits(const selecting &s, u32 again, u32 pass, u32 ranks, u32 share,
                                             again_shared *here)
{
    const u32 shift = digit_shift(pass), bits = digit_bits(pass), counted = pass == 0 ? 1 : ranks;
    u32 prefix[RANKS];
#pragma unroll
    for (u32 r = 0; r < RANKS; r++)
        prefix[r] = __ldcg(&s.control->prefix[r]);
    for (u32 i = threadIdx.x; i < counted * DIGIT_BINS; i += TILE_THREADS)
        here->digits[i] = 0;
    __syncthreads();
    each_key(s, again, share, pass == 0, [&](u32 key) {
#pragma unroll
        for (u32 r = 0; r < RANKS; r++)
            if (r < counted && (pass == 0 || key >> (shift + bits) == prefix[r]))
                atomicAdd(&here->digits[r * DIGIT_BINS + (key >> shift & ((1u << bits) - 1))], 1u);
    });
    __syncthreads();
    for (u32 i = threadIdx.x; i < counted * DIGIT_BINS; i += TILE_THREADS)
        if (here->digits[i])
            atomicAdd(&s.digits[i], here->digits[i]);
}

/* How many elements a threshold selects, where that is not known. */
__device__ __forceinline__ void count_selected(const selecting &s, u32 again, u32 share)
{
    const u32 threshold = __ldcg(&s.control->key);
    u32 in = 0;
    if (__ldcg(&s.control->ties) != EVERY || s.count <= s.amount.most)
        return;
    each_key(s, again, share, false, [&](u32 key) { in += key >= threshold; });
    in = warp_sum(in);
    if (lane_id() == 0 && in > 0)
        atomicAdd(&s.control->selected, in);
}

__device__ __forceinline__ void wait_for_pass(const selecting &s, u32 pass)
{
    if (threadIdx.x == 0)
        while (*(volatile u32 *)&s.control->passed < pass)
            __nanosleep(100);
    __syncthreads();
    __threadfence();
}

/* All passes, by all blocks of the kernel; when a block returns, the threshold is known. */
__device__ __forceinline__ void select_again(const selecting &given, u32 again, again_shared *here)
{
    selecting s = given;
    begin(s);
    select_control *c = s.control;
    const u32 ranks = s.amount.exact ? 1 : RANKS, passes = s.amount.exact ? DIGIT_PASSES : AGAIN_PASSES;
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0)
            here->item = atomicAdd(&c->tickets[AGAIN_TICKET], 1u);
        __syncthreads();
        const u32 item = here->item, pass = item / shares_of(s), share = item % shares_of(s);
        if (pass >= passes)
            break;
        wait_for_pass(s, pass);
        if (pass < DIGIT_PASSES)
            count_digits(s, again, pass, ranks, share, here);
        else
            count_selected(s, again, share);
        if (!is_last_of(&c->tickets[PASS_TICKET], shares_of(s), &here->last))
            continue;
        if (pass < DIGIT_PASSES)
            end_digits(s, pass, ranks, here);
        else if (threadIdx.x == 0 && c->ties == EVERY && s.count > s.amount.most)
            set_selected(s, __ldcg(&c->selected));
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0)
            *(volatile u32 *)&c->passed = pass + 1;
    }
    wait_for_pass(s, passes);
}

#endif
