/* The selected elements in the order of their indices: indices to a list, values to their place in the payload. */
#ifndef TG_DEVICE_CUDA_SPARSE_GATHER_CUH
#define TG_DEVICE_CUDA_SPARSE_GATHER_CUH

#include "device/cuda/frame.cuh"
#include "device/cuda/select_again.cuh"

/* What the parts of a segment that has several come to together (sparse_streams.cuh). */
struct crowded_segment {
    u32 arrived, low, quotients, omega;
};

struct writing {
    selecting s;
    u32 values;             /* TG_VALUES_FP32, ... */
    u8 *payload;            /* on 16 bytes */
    float *as_they_are;     /* if not NULL, values go here, and not to the payload */
    bool to_list;           /* there is no payload */
    dense_frame levels;     /* that are made of these values, if TG_VALUES_LEVELS; the count is a bound */
    const u64 *levels_size; /* not NULL: bytes of the values in the payload */
    const u32 *known;       /* not NULL: how many elements the vector has */
    u32 log;                /* not 0: just amount.target elements are selected, and segments have 2^log */
    u32 *starts;            /* of segments: how many selected elements come before; one more for the end */
    u64 *ends;              /* of segments: where the index stream ends, from the start of the first */
    crowded_segment *crowded;
    u32 *blocks; /* of their Rice blocks: block_info */
    control *result;
};

/* What gathering needs of the control block, read when it is complete, and by one thread of a block: thousands of warps
 * that ask for the same line wait for each other. */
struct gather_view {
    u32 key, ties, clear_from, g, segments, values_at; /* a segment has 2^g elements */
};

__device__ __forceinline__ gather_view gather_look(const select_control *c)
{
    return {__ldcg(&c->key), __ldcg(&c->ties),     __ldcg(&c->clear_from),
            __ldcg(&c->log), __ldcg(&c->segments), __ldcg(&c->values_at)};
}

struct gather_shared {
    u32 tile, stop;
    u64 of_warps[TILE_WARPS]; /* larger keys, and those that equal the threshold: see look_back */
    u64 sum;
};

/* Sums over the tiles before this one, by its block: each word has two numbers of 31 bits; bit 63 says that it is the
 * sum up to here, bit 62 that it is the tile's own. Tiles are numbered in the order in which blocks start, so that a
 * tile only waits for those that are at work. A thread looks at LOOKS tiles at once: there are hardly more of them at
 * work than a block looks at, so that waiting for one after the other is rare. */
__device__ __forceinline__ u64 look_back(u64 *states, u32 tile, u64 own, gather_shared *here)
{
    constexpr u64 summed = 1ull << 63, alone = 1ull << 62, field = alone - 1;
    constexpr u32 LOOKS = 4, ROUND = LOOKS * TILE_THREADS;
    if (threadIdx.x == 0) {
        atomicExch((unsigned long long *)&states[tile], (unsigned long long)((tile == 0 ? summed : alone) | own));
        here->stop = here->sum = 0;
    }
    __syncthreads();
    u32 from = tile; /* tiles from here on are in the sum */
    while (from > 0) {
        u64 state[LOOKS], v = 0;
#pragma unroll
        for (u32 i = 0; i < LOOKS; i++) {
            const u32 back = 1 + i * TILE_THREADS + threadIdx.x;
            state[i] = back <= from ? *(volatile u64 *)&states[from - back] : alone;
        }
#pragma unroll
        for (u32 i = 0; i < LOOKS; i++) {
            const u32 back = 1 + i * TILE_THREADS + threadIdx.x;
            while (state[i] >> 62 == 0) {
                __nanosleep(100); /* blocks that ask all the time hold up those that are to answer */
                state[i] = *(volatile u64 *)&states[from - back];
            }
            if (state[i] >> 63)
                atomicMax(&here->stop, from - back + 1);
        }
        __syncthreads();
        const u32 stop = here->stop;
#pragma unroll
        for (u32 i = 0; i < LOOKS; i++) {
            const u32 back = 1 + i * TILE_THREADS + threadIdx.x;
            v += back <= from && from - back + 1 >= stop ? state[i] & field : 0;
        }
#pragma unroll
        for (int d = 16; d > 0; d /= 2)
            v += __shfl_xor_sync(FULL, v, d);
        if (lane_id() == 0 && v > 0)
            atomicAdd((unsigned long long *)&here->sum, (unsigned long long)v);
        from -= min(from, ROUND);
        __syncthreads(); /* all have seen `stop`, and the sum is complete */
        if (stop > 0)
            break;
    }
    const u64 before = here->sum;
    if (threadIdx.x == 0 && tile > 0)
        atomicExch((unsigned long long *)&states[tile], (unsigned long long)(summed | ((own + before) & field)));
    return before;
}

/* Puts the value of a selected element where it belongs; returns what the decoder will see. */
__device__ __forceinline__ float put_value(const writing &w, u32 values_at, u32 place, float u)
{
    if (w.as_they_are) {
        w.as_they_are[place] = u;
        return u;
    }
    u8 *values = w.payload + values_at;
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
__device__ __forceinline__ void put_selected(const writing &w, u32 values_at, u32 place, u32 index, float u,
                                             bool cleared)
{
    const bool exact = w.values == TG_VALUES_FP32 || w.to_list, is_settled = w.values == TG_VALUES_LEVELS && !exact;
    const float sent = put_value(w, values_at, place, u);
    w.s.indices[place] = index;
    if (w.s.commits && !(exact && cleared) && !is_settled)
        w.s.rest[index] = exact ? 0.0f : u - sent;
}

/* A warp's place among all, and how many equal keys come before it. */
struct gather_at {
    u32 place, equal;
};

__device__ __forceinline__ gather_at gather_from(const writing &w, const gather_view &view, gather_shared *here,
                                                 u32 larger, u32 equal)
{
    const u32 warp = threadIdx.x >> 5;
    if (lane_id() == 0)
        here->of_warps[warp] = (u64)larger << 31 | equal;
    __syncthreads();
    u64 own = 0, before = 0;
#pragma unroll
    for (u32 i = 0; i < TILE_WARPS; i++) {
        before += i < warp ? here->of_warps[i] : 0;
        own += here->of_warps[i];
    }
    before += look_back(w.s.states, here->tile, own, here);
    const u32 equal_before = (u32)(before & KEY_MASK);
    return {(u32)(before >> 31) + min(equal_before, view.ties), equal_before};
}

/* What 32 keys in order are: ballots of those that are larger than the threshold, and of those that equal it. */
struct gather_ballots {
    u32 larger, equal;
};

__device__ __forceinline__ gather_ballots gather_compare(const gather_view &view, u32 key, bool in)
{
    return {__ballot_sync(FULL, in && key > view.key), __ballot_sync(FULL, in && key == view.key)};
}

/* Who is selected of 32 in order: all larger keys, and equal ones while there are ties. */
__device__ __forceinline__ u32 selected_of(const gather_view &view, gather_at *at, const gather_ballots &b)
{
    const u32 rank = at->equal + (u32)__popc(b.equal & ((1u << lane_id()) - 1));
    const u32 selected = b.larger | __ballot_sync(FULL, (b.equal >> lane_id() & 1) && rank < view.ties);
    at->place += (u32)__popc(selected);
    at->equal += (u32)__popc(b.equal);
    return selected;
}

/* The place of this lane among those that were just counted. */
__device__ __forceinline__ u32 own_place(const gather_at &at, u32 selected)
{
    return at.place - (u32)__popc(selected >> lane_id());
}

/* Segments that start in a warp's strips: how many selected elements come before them. By a warp, which has listed
 * those from `from` to `to`. */
__device__ __forceinline__ void gather_starts(const writing &w, const gather_view &view, u32 from, u32 to, u32 strip0)
{
    const u64 first = (u64)strip0 * STRIP, end = min(first + (u64)w.s.warp_strips * STRIP, (u64)w.s.count);
    __syncwarp();
    for (u64 segment = ((first + (1ull << view.g) - 1) >> view.g) + lane_id(); segment << view.g < end; segment += 32) {
        u32 low = from, high = segment << view.g == first ? from : to;
        while (low < high) {
            const u32 middle = low + (high - low) / 2;
            if (*(volatile u32 *)&w.s.indices[middle] < segment << view.g)
                low = middle + 1;
            else
                high = middle;
        }
        w.starts[segment] = low;
        w.ends[segment] = 0;
        w.crowded[segment] = crowded_segment{};
    }
    if (lane_id() == 0 && first < end && end == w.s.count)
        w.starts[view.segments] = to;
}

/* From the candidates, of which the first have been asked for: all of them, where they are few. */
__device__ __forceinline__ void gather_listed(const writing &w, const gather_view &view, gather_shared *here,
                                              u32 strip0, const listing &l, some_listed &some)
{
    const selecting &s = w.s;
    u32 larger = 0, equal = 0;
    const auto compare = [&](uint2 c, bool in) { return gather_compare(view, key_of(s, c.x, c.y), in); };
    for (u32 first = 0; first < l.total; first += some_listed::ALL) {
        if (first > 0)
            some.load(s, l, first);
        some.each(l, first, [&](uint2 c, bool in) {
            const gather_ballots b = compare(c, in);
            larger += (u32)__popc(b.larger);
            equal += (u32)__popc(b.equal);
        });
    }
    gather_at at = gather_from(w, view, here, larger, equal);
    const u32 from = at.place;
    for (u32 first = 0; first < l.total; first += some_listed::ALL) {
        if (l.total > some_listed::ALL)
            some.load(s, l, first);
        some.each(l, first, [&](uint2 c, bool in) {
            const bool cleared = s.commits && in && key_of(s, c.x, c.y) >= view.clear_from;
            const u32 selected = selected_of(view, &at, compare(c, in));
            if (selected >> lane_id() & 1)
                put_selected(w, view.values_at, own_place(at, selected), c.x, __uint_as_float(c.y), cleared);
            else if (cleared)
                s.rest[c.x] = __uint_as_float(c.y);
        });
    }
    if (!w.to_list)
        gather_starts(w, view, from, at.place, strip0);
}

/* From the vector. */
__device__ __forceinline__ void gather_again(const writing &given, const gather_view &view, gather_shared *here,
                                             u32 strip0)
{
    writing w = given;
    begin(w.s);
    u32 larger = 0, equal = 0;
    const auto compare = [&](u32 index, float u, bool in) {
        return gather_compare(view, in ? key_of(w.s, index, __float_as_uint(u)) : 0, in);
    };
    each_element(w.s, strip0, [&](u32 index, float u, bool in) {
        const gather_ballots b = compare(index, u, in);
        larger += (u32)__popc(b.larger);
        equal += (u32)__popc(b.equal);
    });
    gather_at at = gather_from(w, view, here, larger, equal);
    const u32 from = at.place;
    each_element(w.s, strip0, [&](u32 index, float u, bool in) {
        const u32 selected = selected_of(view, &at, compare(index, u, in));
        if (selected >> lane_id() & 1)
            put_selected(w, view.values_at, own_place(at, selected), index, u, false);
    });
    if (!w.to_list)
        gather_starts(w, view, from, at.place, strip0);
}

union gather_room {
    gather_shared gather;
    again_shared again;
};

/* A block for each tile. Table and candidates are the sift's, and have been there since the cut began: so they are
 * asked for before it ends. */
__device__ __forceinline__ void gather(const writing &given, block_of_job block, gather_room &here)
{
    __shared__ gather_view seen;
    __shared__ u32 taken;
    select_control *c = given.s.control;
    let_next_begin();
    if (threadIdx.x == 0)
        taken = atomicAdd(&c->tickets[GATHER_TICKET], 1u);
    __syncthreads();
    const u32 tile = taken, strip0 = warp_strip(given.s, tile);
    const listing l = look_up(given.s, strip0);
    some_listed some;
    some.load(given.s, l, 0);
    wait_for_previous();
    const u32 again = c->again, nonfinite = c->nonfinite;
    if (threadIdx.x == 32)
        seen = gather_look(c);
    if (nonfinite) {
        if (given.s.commits && !given.s.moves)
            unsift(given.s, block);
        return;
    }
    if (again) {
        select_again(given.s, again, &here.again);
        __syncthreads();
        if (threadIdx.x == 32)
            seen = gather_look(c);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        here.gather.tile = tile;
    const gather_view view = seen;
    if (again == AGAIN_ALL) {
        gather_again(given, view, &here.gather, strip0);
    } else {
        writing w = given; /* what is rarely called has the arguments themselves: nothing is copied to memory for it */
        begin(w.s);
        gather_listed(w, view, &here.gather, strip0, l, some);
    }
}

__global__ void __launch_bounds__(TILE_THREADS, 5) gather_kernel(const __grid_constant__ writing given)
{
    __shared__ gather_room here;
    gather(given, only_job(), here);
}

#endif
