/* Counting the digits of keys, in three passes: of the candidates, where the threshold is not found faster; or of all
 * elements, where the candidates do not hold it, because the pilot misled, or so many keys are equal that regions
 * overflowed. So the time is bounded whatever the values are. */
#ifndef TG_DEVICE_CUDA_SELECT_AGAIN_CUH
#define TG_DEVICE_CUDA_SELECT_AGAIN_CUH

#include "device/cuda/select_cut.cuh"

constexpr u32 DIGIT_PASSES = 3;

__device__ __forceinline__ u32 digit_shift(u32 pass) { return pass == 0 ? 20 : pass == 1 ? 10 : 0; }
__device__ __forceinline__ u32 digit_bits(u32 pass) { return pass == 0 ? 11 : 10; }

__device__ __forceinline__ bool selects_again(const selecting &s) { return s.control->again && !s.control->nonfinite; }

/* The residual holds u again, also where candidates were cleared. */
__device__ __forceinline__ void put_back(const selecting &s, u32 chunk)
{
    const u32 entry = s.table[chunk];
    const uint2 *listed = region_of(s, chunk) + (entry & (REGION_MOST - 1));
    for (u32 j = threadIdx.x & 31; j < entry >> COUNT_SHIFT; j += 32)
        s.rest[listed[j].x] = __uint_as_float(listed[j].y);
    __syncwarp();
}

/* A value was not finite: the residual becomes what it was, exactly if it was saved, otherwise up to rounding. */
__device__ __forceinline__ void unsift(const selecting &s)
{
    const u32 warps = CUT_THREADS / 32;
    for (u32 chunk = blockIdx.x * warps + (threadIdx.x >> 5); chunk < s.chunks; chunk += gridDim.x * warps) {
        if (s.table[chunk] == NOT_COMMITTED)
            continue;
        if (!s.from.undo)
            put_back(s, chunk);
        for (u32 i = lane_id(); i < chunk_size(s, chunk); i += 32) {
            const u32 index = chunk * CHUNK + i;
            float *h = s.from.residual + index;
            *h = s.from.undo ? s.from.undo[index]
                             : (*h - element_at(s.from.gradient, s.from.dtype, index)) / s.from.beta;
        }
    }
}

/* The chunks of the vector, a warp for each. */
template <class Visit> __device__ __forceinline__ void each_chunk(const selecting &s, bool puts_back, Visit &&visit)
{
    const u32 lane = threadIdx.x & 31, warps = CUT_THREADS / 32;
    for (u32 chunk = blockIdx.x * warps + (threadIdx.x >> 5); chunk < s.chunks; chunk += gridDim.x * warps) {
        const u32 size = chunk_size(s, chunk);
        if (puts_back && s.commits)
            put_back(s, chunk);
#pragma unroll 4
        for (u32 i = lane; i < size; i += 32) {
            const u32 index = chunk * CHUNK + i;
            visit(key_of(s, index, s.random ? 0 : __float_as_uint(u_again(s, index))));
        }
    }
}

/* The candidates: every region is divided among the same number of warps. */
template <class Visit> __device__ __forceinline__ void each_candidate(const selecting &s, Visit &&visit)
{
    const u32 warps = gridDim.x * (CUT_THREADS / 32), warp = blockIdx.x * (CUT_THREADS / 32) + (threadIdx.x >> 5);
    const u32 parts = max(warps / REGIONS, 1u), part = warp / REGIONS;
    for (u32 region = warp % REGIONS; part < parts && region < REGIONS; region += min(warps, REGIONS)) {
        const uint2 *at = s.candidates + (u64)region * s.room;
        const u32 count = s.counters[COUNTER_STRIDE * region];
#pragma unroll 4
        for (u32 i = 32 * part + (threadIdx.x & 31); i < count; i += 32 * parts) {
            const uint2 candidate = __ldcg(at + i);
            visit(key_of(s, candidate.x, candidate.y));
        }
    }
}

/* Calls a function with every key that this block is to look at. */
template <class Visit> __device__ __forceinline__ void each_key(const selecting &s, bool puts_back, Visit &&visit)
{
    if (s.control->again == AGAIN_ALL)
        each_chunk(s, puts_back, visit);
    else
        each_candidate(s, visit);
}

/* By one thread, when the digits of all ranks are known. */
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
        set_selected(s, a.target); /* else they are counted */
}

__global__ void __launch_bounds__(CUT_THREADS) again_kernel(selecting s, u32 pass)
{
    __shared__ u32 digits[RANKS * DIGIT_BINS];
    __shared__ u32 part[33], found[2], last;
    select_control *c = s.control;
    const u32 ranks = s.amount.exact ? 1 : RANKS, shift = digit_shift(pass), bits = digit_bits(pass);
    if (c->nonfinite && s.commits && !s.moves && pass == 0)
        unsift(s);
    if (!selects_again(s))
        return;
    for (u32 i = threadIdx.x; i < ranks * DIGIT_BINS; i += CUT_THREADS)
        digits[i] = 0;
    __syncthreads();
    each_key(s, pass == 0, [&](u32 key) {
        for (u32 r = 0; r < (pass == 0 ? 1 : ranks); r++)
            if (pass == 0 || key >> (shift + bits) == c->prefix[r])
                atomicAdd(&digits[r * DIGIT_BINS + (key >> shift & ((1u << bits) - 1))], 1u);
    });
    __syncthreads();
    for (u32 i = threadIdx.x; i < ranks * DIGIT_BINS; i += CUT_THREADS)
        if (digits[i])
            atomicAdd(&s.digits[i], digits[i]);
    if (!is_last_block(&c->tickets[AGAIN_TICKET + pass], &last))
        return;
    for (u32 i = threadIdx.x; i < ranks * DIGIT_BINS; i += CUT_THREADS) {
        digits[i] = __ldcg(&s.digits[i]);
        s.digits[i] = 0;
    }
    __syncthreads();
    for (u32 r = 0; r < ranks; r++) {
        const u32 rank = pass ? c->rank[r] : r == 0 ? s.amount.target : r == 1 ? s.amount.fewest : s.amount.needed;
        const uint2 digit = find_digit(digits + (pass ? r * DIGIT_BINS : 0), rank, true, part, found);
        if (threadIdx.x == 0) {
            c->prefix[r] = (pass ? c->prefix[r] << bits : 0) | digit.x;
            c->rank[r] = digit.y;
        }
        __syncthreads();
    }
    if (pass == DIGIT_PASSES - 1 && threadIdx.x == 0)
        again_decide(s);
}

/* How many elements a threshold selects. */
__global__ void __launch_bounds__(CUT_THREADS) count_kernel(selecting s)
{
    __shared__ u32 part[33], last;
    select_control *c = s.control;
    u32 in = 0, all;
    if (!selects_again(s) || c->ties != EVERY || s.count <= s.amount.most)
        return;
    each_key(s, false, [&](u32 key) { in += key >= c->key; });
    (void)block_scan(in, part, &all);
    if (threadIdx.x == 0)
        atomicAdd(&c->selected, all);
    if (is_last_block(&c->tickets[COUNT_TICKET], &last) && threadIdx.x == 0)
        set_selected(s, __ldcg(&c->selected));
}

#endif
