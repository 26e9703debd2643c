/* Tiles: parts of the vector that a block of threads goes through in order, each warp some strips of it. */
#ifndef TG_DEVICE_CUDA_SELECT_TILE_CUH
#define TG_DEVICE_CUDA_SELECT_TILE_CUH

#include "device/cuda/select.cuh"

constexpr u32 TILE_THREADS = 256, TILE_WARPS = TILE_THREADS / 32;

/* The first strip of this warp in a tile, and the one behind its last. */
__device__ __forceinline__ u32 warp_strip(const selecting &s, u32 tile)
{
    return (tile * TILE_WARPS + (threadIdx.x >> 5)) * s.warp_strips;
}
__device__ __forceinline__ u32 warp_end(const selecting &s, u32 strip0)
{
    return min(strip0 + s.warp_strips, s.strips);
}

/* Where the candidates of a warp's strips are: a lane has one strip. */
struct listing {
    u32 strip0, entry;
    u32 end, total; /* candidates up to and with this lane's; all */
};

__device__ __forceinline__ listing look_up(const selecting &s, u32 strip0)
{
    const u32 strip = strip0 + lane_id();
    listing l;
    l.strip0 = strip0;
    l.entry = lane_id() < s.warp_strips && strip < s.strips ? __ldcg(&s.table[strip]) : 0;
    if (l.entry == NOT_COMMITTED)
        l.entry = 0;
    l.end = warp_scan(l.entry >> COUNT_SHIFT);
    l.total = __shfl_sync(FULL, l.end, 31);
    return l;
}

/* Candidate j, which each lane chooses; (0, 0) behind the last. */
__device__ __forceinline__ uint2 candidate_at(const selecting &s, const listing &l, u32 j)
{
    u32 lane = 0; /* the first whose end is behind j */
#pragma unroll
    for (u32 step = 16; step > 0; step /= 2)
        lane += __shfl_sync(FULL, l.end, (int)(lane + step - 1)) <= j ? step : 0;
    const u32 entry = __shfl_sync(FULL, l.entry, (int)lane), end = __shfl_sync(FULL, l.end, (int)lane),
              place = (entry & (REGION_MOST - 1)) + (j - (end - (entry >> COUNT_SHIFT)));
    return j < l.total ? __ldcg(region_of(s, l.strip0 + lane) + place) : make_uint2(0, 0);
}

/* Candidates that a lane has asked for at once: one of each 32 in order. */
struct some_listed {
    static constexpr u32 ROUNDS = 6, ALL = 32 * ROUNDS;
    uint2 of[ROUNDS];
    __device__ __forceinline__ void load(const selecting &s, const listing &l, u32 first)
    {
#pragma unroll
        for (u32 i = 0; i < ROUNDS; i++)
            of[i] = first + 32 * i < l.total ? candidate_at(s, l, first + 32 * i + lane_id()) : make_uint2(0, 0);
    }
    /* Calls visit(candidate, whether there is one). */
    template <class Visit> __device__ __forceinline__ void each(const listing &l, u32 first, Visit &&visit) const
    {
#pragma unroll
        for (u32 i = 0; i < ROUNDS; i++)
            if (first + 32 * i < l.total)
                visit(of[i], first + 32 * i + lane_id() < l.total);
    }
};

/* Goes through a warp's elements in order, and calls visit(index, u, whether there is one). */
template <class Visit> __device__ __forceinline__ void each_element(const selecting &s, u32 strip0, Visit &&visit)
{
    const u32 lane = lane_id();
    for (u32 strip = strip0; strip < warp_end(s, strip0); strip++)
#pragma unroll 4
        for (u32 first = 0; first < STRIP; first += 32) {
            const bool in = first + lane < strip_size(s, strip);
            const u32 index = strip * STRIP + first + lane;
            visit(index, in ? u_again(s, index) : 0, in);
        }
}

#endif
