/* The selected elements in the order of their indices: indices to a list, values to their place in the payload. */
#ifndef TG_DEVICE_CUDA_SPARSE_GATHER_CUH
#define TG_DEVICE_CUDA_SPARSE_GATHER_CUH

#include "device/cuda/select_again.cuh"

/* A block takes a tile, a warp some chunks of it. */
constexpr u32 GATHER_THREADS = 256, GATHER_WARPS = GATHER_THREADS / 32, WARP_CHUNKS = 16,
              TILE = GATHER_WARPS * WARP_CHUNKS * CHUNK;

struct writing {
    selecting s;
    u32 values;     /* TG_VALUES_FP32, ... */
    u8 *payload;    /* on 16 bytes */
    float *to_list; /* if not NULL, values go here as they are, and there is no payload */
    u32 *starts;    /* of segments: how many selected elements come before; one more for the end */
    u32 *blocks;    /* of the Rice blocks, see sparse_write.cuh */
    u32 *low_bytes, *quotient_bits, *omega_bits; /* of segments, added up */
    u32 *streams; /* of segments: where the index stream starts, from that of the first */
    control *result;
};

/* Sums over the tiles before this one, by a warp: each word has two numbers of 31 bits; bit 63 says that it is the sum
 * up to here, bit 62 that it is the tile's own. Tiles are numbered in the order in which blocks start, so that a tile
 * only waits for those that are at work. */
__device__ __forceinline__ u64 look_back(u64 *states, u32 tile, u64 own)
{
    const u64 summed = 1ull << 63, alone = 1ull << 62, field = alone - 1;
    const u32 lane = threadIdx.x & 31;
    if (tile == 0) {
        if (lane == 0)
            atomicExch((unsigned long long *)&states[0], (unsigned long long)(summed | own));
        return 0;
    }
    if (lane == 0)
        atomicExch((unsigned long long *)&states[tile], (unsigned long long)(alone | own));
    /* A lane looks at LOOKS tiles at once, as many wait for each other at first. */
    constexpr int LOOKS = 4;
    u64 before = 0;
    for (int from = (int)tile - 1;; from -= 32 * LOOKS) {
        u64 state[LOOKS], v = 0;
        bool is_set;
        do {
            is_set = true;
#pragma unroll
            for (int i = 0; i < LOOKS; i++) {
                const int at = from - LOOKS * (int)lane - i;
                state[i] = at >= 0 ? *(volatile u64 *)&states[at] : summed;
                is_set = is_set && state[i] >> 62 != 0;
            }
        } while (__any_sync(FULL, !is_set));
        bool ends = false;
#pragma unroll
        for (int i = 0; i < LOOKS; i++) {
            v += ends ? 0 : state[i] & field;
            ends = ends || state[i] >> 63 != 0;
        }
        const u32 sums = __ballot_sync(FULL, ends), stop = sums ? (u32)__ffs((int)sums) - 1 : 31;
        v = lane <= stop ? v : 0;
#pragma unroll
        for (int d = 16; d > 0; d /= 2)
            v += __shfl_xor_sync(FULL, v, d);
        before += v;
        if (sums)
            break;
    }
    if (lane == 0)
        atomicExch((unsigned long long *)&states[tile], (unsigned long long)(summed | ((own + before) & field)));
    return before;
}

/* Puts the value of a selected element where it belongs; returns what the decoder will see. */
__device__ __forceinline__ float put_value(const writing &w, u32 place, float u)
{
    if (w.to_list) {
        w.to_list[place] = u;
        return u;
    }
    u8 *values = w.payload + w.s.control->values_at;
    if (w.values == TG_VALUES_FP32) {
        ((float *)values)[place] = u;
        return u;
    }
    bool saturated = false;
    const bool half = w.values == TG_VALUES_FP16;
    const unsigned short bits = half ? tg_narrow_float16(u, &saturated) : tg_narrow_bfloat16(u, &saturated);
    ((unsigned short *)values)[place] = bits;
    if (saturated)
        atomicAdd(&w.s.control->saturated, 1ull);
    return half ? tg_widen_float16(bits) : tg_widen_bfloat16(bits);
}

/* A selected element, which is at `place` of all; `cleared`: the residual has a 0 there already. */
__device__ __forceinline__ void put_selected(const writing &w, u32 place, u32 index, float u, bool cleared)
{
    const bool exact = w.values == TG_VALUES_FP32 || w.to_list;
    const float sent = put_value(w, place, u);
    w.s.indices[place] = index;
    if (w.s.commits && !(exact && cleared))
        w.s.rest[index] = exact ? 0.0f : u - sent;
}

struct gather_shared {
    u32 tile;
    u32 before[GATHER_WARPS + 1]; /* of warps: selected, or of keys larger than the threshold */
    u32 equal[GATHER_WARPS + 1];  /* keys that equal it */
    u64 sum;
};

/* ---- from the candidates ---- */

/* Candidate j of a warp's chunks; ends: how many there are up to and with each chunk. */
__device__ __forceinline__ const uint2 *list_place(const selecting &s, const u32 *ends, u32 chunk0, u32 j)
{
    u32 c = 0, start = 0;
#pragma unroll
    for (u32 i = 0; i < WARP_CHUNKS - 1; i++) {
        c += j >= ends[i];
        start = j >= ends[i] ? ends[i] : start;
    }
    const u32 entry = __ldg(&s.table[chunk0 + c]);
    return region_of(s, chunk0 + c) + (entry & (REGION_MOST - 1)) + (j - start);
}

/* Goes through a warp's candidates in order, and calls visit(candidate, its key, whether there is one, ballots of larger
 * and equal keys). */
template <class Visit>
__device__ __forceinline__ void each_listed(const selecting &s, const u32 *ends, u32 chunk0, Visit &&visit)
{
    const u32 lane = threadIdx.x & 31, total = ends[WARP_CHUNKS - 1], threshold = s.control->key;
#pragma unroll 4
    for (u32 first = 0; first < total; first += 32) {
        const u32 j = first + lane;
        const uint2 c = j < total ? __ldcg(list_place(s, ends, chunk0, j)) : make_uint2(0, 0);
        const u32 key = j < total ? key_of(s, c.x, c.y) : 0;
        visit(c, key, j < total, __ballot_sync(FULL, j < total && key > threshold),
              __ballot_sync(FULL, j < total && key == threshold));
    }
}

/* ---- from the vector ---- */

/* Goes through a warp's elements in order, and calls visit(index, u, ballots of larger and equal keys). */
template <class Visit> __device__ __forceinline__ void each_element(const selecting &s, u32 chunk0, Visit &&visit)
{
    const u32 lane = threadIdx.x & 31;
    for (u32 chunk = chunk0; chunk < min(chunk0 + WARP_CHUNKS, s.chunks); chunk++)
        for (u32 first = 0; first < chunk_size(s, chunk); first += 32) {
            const bool in = first + lane < chunk_size(s, chunk);
            const u32 index = chunk * CHUNK + first + lane;
            const float u = in ? u_again(s, index) : 0;
            const u32 key = in ? key_of(s, index, __float_as_uint(u)) : 0;
            visit(index, u, __ballot_sync(FULL, in && key > s.control->key),
                  __ballot_sync(FULL, in && key == s.control->key));
        }
}

/* ---- all of it ---- */

/* How many come before each warp of the tile; the tile's sums. By warp 0, after `before` and `equal` have the warps'
 * own. */
__device__ __forceinline__ void gather_places(const writing &w, gather_shared *here)
{
    const u32 lane = threadIdx.x & 31;
    const u32 mine = lane < GATHER_WARPS ? here->before[lane] : 0, equal = lane < GATHER_WARPS ? here->equal[lane] : 0;
    const u32 scan = warp_scan(mine), scan_equal = warp_scan(equal);
    const u64 own = (u64)__shfl_sync(FULL, scan, GATHER_WARPS - 1) << 31 |
                    __shfl_sync(FULL, scan_equal, GATHER_WARPS - 1);
    const u64 before = look_back(w.s.states, here->tile, own);
    if (lane <= GATHER_WARPS) {
        here->before[lane] = (u32)(before >> 31) + (lane < GATHER_WARPS ? scan - mine : (u32)(own >> 31));
        here->equal[lane] = (u32)(before & KEY_MASK) +
                            (lane < GATHER_WARPS ? scan_equal - equal : (u32)(own & KEY_MASK));
    }
}

/* Segments that start in this tile: how many selected elements come before them. */
__device__ __forceinline__ void gather_starts(const writing &w, u32 from, u32 to, u32 tile)
{
    const u32 g = w.s.control->log;
    const u64 first = (u64)tile * TILE, end = min(first + TILE, (u64)w.s.count);
    for (u64 segment = ((first + (1ull << g) - 1) >> g) + threadIdx.x; segment << g < end; segment += GATHER_THREADS) {
        u32 low = from, high = to;
        while (low < high) {
            const u32 middle = low + (high - low) / 2;
            if (w.s.indices[middle] < segment << g)
                low = middle + 1;
            else
                high = middle;
        }
        w.starts[segment] = low;
        w.low_bytes[segment] = w.quotient_bits[segment] = w.omega_bits[segment] = 0;
    }
    if (threadIdx.x == 0 && end == w.s.count)
        w.starts[w.s.control->segments] = to;
}

/* A warp's place among all, and how many equal keys come before it. */
struct gather_at {
    u32 place, equal;
};

__device__ __forceinline__ gather_at gather_from(const writing &w, gather_shared *here, u32 larger, u32 equal)
{
    const u32 warp = threadIdx.x >> 5;
    if (lane_id() == 0) {
        here->before[warp] = larger;
        here->equal[warp] = equal;
    }
    __syncthreads();
    if (warp == 0)
        gather_places(w, here);
    __syncthreads();
    return {here->before[warp] + min(here->equal[warp], w.s.control->ties), here->equal[warp]};
}

/* Who is selected of 32 in order: all larger keys, and equal ones while there are ties. */
__device__ __forceinline__ u32 selected_of(const writing &w, gather_at *at, u32 larger, u32 equal)
{
    const u32 rank = at->equal + (u32)__popc(equal & ((1u << lane_id()) - 1));
    const u32 selected = larger | __ballot_sync(FULL, (equal >> lane_id() & 1) && rank < w.s.control->ties);
    at->place += (u32)__popc(selected);
    at->equal += (u32)__popc(equal);
    return selected;
}

/* The place of this lane among those that were just counted. */
__device__ __forceinline__ u32 own_place(const gather_at &at, u32 selected)
{
    return at.place - (u32)__popc(selected >> lane_id());
}

__device__ __forceinline__ void gather_listed(const writing &w, gather_shared *here, u32 chunk0)
{
    const selecting &s = w.s;
    const u32 lane = lane_id(), clear_from = s.control->clear_from;
    const u32 count = lane < WARP_CHUNKS && chunk0 + lane < s.chunks ? __ldg(&s.table[chunk0 + lane]) >> COUNT_SHIFT : 0;
    const u32 scan = warp_scan(count);
    u32 ends[WARP_CHUNKS], more = 0, same = 0;
#pragma unroll
    for (u32 i = 0; i < WARP_CHUNKS; i++)
        ends[i] = __shfl_sync(FULL, scan, (int)i);
    const auto settle = [&](gather_at *at, uint2 c, u32 key, bool in, u32 larger, u32 equal) {
        const bool cleared = s.commits && in && key >= clear_from;
        const u32 selected = selected_of(w, at, larger, equal);
        if (selected >> lane & 1)
            put_selected(w, own_place(*at, selected), c.x, __uint_as_float(c.y), cleared);
        else if (cleared)
            s.rest[c.x] = __uint_as_float(c.y);
    };
    const u32 total = ends[WARP_CHUNKS - 1], threshold = s.control->key;
    constexpr u32 KEPT = 4; /* rounds whose candidates stay in registers */
    const bool keeps = total <= 32 * KEPT;
    uint2 c[KEPT];
    u32 larger[KEPT], equal[KEPT];
    if (keeps) {
#pragma unroll
        for (u32 i = 0; i < KEPT; i++)
            c[i] = 32 * i + lane < total ? __ldcg(list_place(s, ends, chunk0, 32 * i + lane)) : make_uint2(0, 0);
#pragma unroll
        for (u32 i = 0; i < KEPT; i++) {
            const bool in = 32 * i + lane < total;
            const u32 key = key_of(s, c[i].x, c[i].y);
            larger[i] = __ballot_sync(FULL, in && key > threshold);
            equal[i] = __ballot_sync(FULL, in && key == threshold);
            more += (u32)__popc(larger[i]);
            same += (u32)__popc(equal[i]);
        }
    } else {
        each_listed(s, ends, chunk0, [&](uint2, u32, bool, u32 more_here, u32 same_here) {
            more += (u32)__popc(more_here);
            same += (u32)__popc(same_here);
        });
    }
    gather_at at = gather_from(w, here, more, same);
    if (keeps) {
#pragma unroll
        for (u32 i = 0; i < KEPT; i++)
            settle(&at, c[i], key_of(s, c[i].x, c[i].y), 32 * i + lane < total, larger[i], equal[i]);
    } else {
        each_listed(s, ends, chunk0, [&](uint2 x, u32 key, bool in, u32 more_here, u32 same_here) {
            settle(&at, x, key, in, more_here, same_here);
        });
    }
}

__device__ __forceinline__ void gather_again(const writing &w, gather_shared *here, u32 chunk0)
{
    u32 more = 0, same = 0;
    each_element(w.s, chunk0, [&](u32, float, u32 larger, u32 equal) {
        more += (u32)__popc(larger);
        same += (u32)__popc(equal);
    });
    gather_at at = gather_from(w, here, more, same);
    each_element(w.s, chunk0, [&](u32 index, float u, u32 larger, u32 equal) {
        const u32 selected = selected_of(w, &at, larger, equal);
        if (selected >> lane_id() & 1)
            put_selected(w, own_place(at, selected), index, u, false);
    });
}

__global__ void __launch_bounds__(GATHER_THREADS) gather_kernel(writing w)
{
    __shared__ gather_shared here;
    select_control *c = w.s.control;
    if (c->nonfinite)
        return;
    if (threadIdx.x == 0)
        here.tile = atomicAdd(&c->tickets[GATHER_TICKET], 1u);
    __syncthreads();
    const u32 tile = here.tile, chunk0 = (tile * GATHER_WARPS + (threadIdx.x >> 5)) * WARP_CHUNKS;
    if (c->again == AGAIN_ALL)
        gather_again(w, &here, chunk0);
    else
        gather_listed(w, &here, chunk0);
    const u32 ties = c->ties, first = here.before[0] + min(here.equal[0], ties),
              end = here.before[GATHER_WARPS] + min(here.equal[GATHER_WARPS], ties);
    __syncthreads();
    if (!w.to_list)
        gather_starts(w, first, end, tile);
    if (threadIdx.x == 0 && tile == gridDim.x - 1)
        c->tickets[GATHER_TICKET] = 0;
}

#endif
