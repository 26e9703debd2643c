/* The index streams of a sparse payload, head and directory, in one kernel, when the selected elements have been
 * listed.
 *
 * A block of threads takes a segment: it weighs its Rice blocks, so the mode and the bytes are known, adds up the bytes
 * of the segments before, and writes. A segment that has many more elements than others is divided into parts, for a
 * block of threads each. Nobody can write such a part before all of them have been weighed, and nobody may wait for
 * work that is not under way. So blocks that have met one go on taking parts until there are none left, of whatever
 * segments; all of them are being weighed then, by blocks that wait for nothing but parts that were taken before. Then
 * the same blocks write the parts of such segments.
 *
 * Part p of segment s has the number starts[s] / PART + s + p: that is different for all, and needs no counting. */
#ifndef TG_DEVICE_CUDA_SPARSE_STREAMS_CUH
#define TG_DEVICE_CUDA_SPARSE_STREAMS_CUH

#include "device/cuda/sparse_write.cuh"

constexpr u32 STREAM_THREADS = 512, STREAM_WARPS = STREAM_THREADS / 32;
/* Of a part: one for each lane of a warp, which adds them up. */
constexpr u32 PART_BLOCKS = 32, PART = PART_BLOCKS * RICE_BLOCK;

struct streams_shared {
    write_shared warps[STREAM_WARPS];
    u32 infos[PART_BLOCKS]; /* block_info of the part's blocks */
    u32 item, segment, last;
    u64 end;
};

/* What is known of the whole payload. */
struct streams_view {
    u32 count, selected, log, segments;
    u64 streams_at; /* from the payload's start to the index streams */
};

/* Where the host knows how many are selected, nothing is read that another kernel has to write first. */
__device__ __forceinline__ streams_view look_at_streams(const writing &w)
{
    const select_control *c = w.s.control;
    streams_view v;
    v.count = w.known ? *w.known : w.s.count;
    v.selected = w.log ? w.s.amount.target : c->selected;
    v.log = w.log ? w.log : c->log;
    v.segments = ((v.count - 1) >> v.log) + 1;
    v.streams_at = w.log ? values_behind(v.segments) : c->values_at;
    v.streams_at += w.levels_size ? *w.levels_size : (u64)v.selected * w.s.value_size;
    return v;
}

struct segment_part {
    u32 segment, parts; /* of the segment */
    u32 first, end;     /* its Rice blocks; none are left where they are the same */
    rice_block block;   /* what is the same for all blocks of the segment */
    u32 start;          /* the first selected element of the segment */
};

__device__ __forceinline__ u32 first_part(const u32 *starts, u32 segment) { return starts[segment] / PART + segment; }

/* Part number `item`; false where there are not so many. By a block. Where a value is not finite `starts` means
 * nothing, and nor does what is returned. */
__device__ __forceinline__ bool find_part(const writing &w, const streams_view &v, u32 item, streams_shared *here,
                                          segment_part *p)
{
    const u32 t = threadIdx.x, items = first_part(w.starts, v.segments);
    u32 segment = 0, span = v.segments;
    while (span > 1) { /* each thread looks at one of so many places, and one finds that it is there */
        const u32 step = (span + STREAM_THREADS - 1) / STREAM_THREADS, at = step * t;
        if (at < span && first_part(w.starts, segment + at) <= item &&
            (at + step >= span || first_part(w.starts, segment + at + step) > item))
            here->segment = at;
        __syncthreads();
        const u32 found = min(here->segment, span - 1);
        __syncthreads();
        segment += found;
        span = min(step, span - found);
    }
    p->segment = segment;
    p->start = w.starts[segment];
    rice_block *b = &p->block;
    b->origin = segment << v.log;
    b->length = min(1u << v.log, v.count - b->origin);
    b->m = w.starts[segment + 1] - p->start;
    b->blocks = (b->m + RICE_BLOCK - 1) / RICE_BLOCK;
    p->parts = max((b->blocks + PART_BLOCKS - 1) / PART_BLOCKS, 1u);
    p->first = (item - first_part(w.starts, segment)) * PART_BLOCKS;
    p->end = max(p->first, min(p->first + PART_BLOCKS, b->blocks));
    return item < items;
}

/* Block b of a segment, which need not have so many. */
__device__ __forceinline__ rice_block block_of(const segment_part &p, u32 b)
{
    rice_block block = p.block;
    block.b = b;
    block.r = b < block.blocks ? min(block.m - RICE_BLOCK * b, (u32)RICE_BLOCK) : 0;
    block.first = p.start + RICE_BLOCK * b;
    return block;
}

/* The next number that nobody has. By a block. */
__device__ __forceinline__ u32 take_item(u32 *ticket, streams_shared *here)
{
    __syncthreads();
    if (threadIdx.x == 0)
        here->item = atomicAdd(ticket, 1u);
    __syncthreads();
    return here->item;
}

/* ---- where a segment's stream starts ---- */

constexpr u64 END_KNOWN = 1ull << 63, BYTES_KNOWN = 1ull << 62, END_FIELD = BYTES_KNOWN - 1;

/* The bytes of all segments before this one, which has so many itself: each tells its own, and soon where it ends. By a
 * warp. Only those are waited for that have smaller numbers. */
__device__ __forceinline__ u64 bytes_before(u64 *ends, u32 segment, u32 bytes)
{
    constexpr u32 LOOKS = 4;
    const u32 lane = lane_id();
    u64 sum = 0;
    if (lane == 0)
        atomicExch(&ends[segment], BYTES_KNOWN | bytes);
    for (u32 from = segment; from > 0;) { /* from here on they are in the sum */
        u64 end[LOOKS];
        bool is_known = false;
#pragma unroll
        for (u32 i = 0; i < LOOKS; i++) {
            const u32 back = 1 + 32 * i + lane;
            end[i] = END_KNOWN; /* of no bytes, before the first */
            if (back <= from)
                end[i] = *(volatile u64 *)&ends[from - back];
        }
#pragma unroll
        for (u32 i = 0; i < LOOKS; i++) {
            while (!is_known && end[i] >> 62 == 0) {
                __nanosleep(40);
                end[i] = *(volatile u64 *)&ends[from - (1 + 32 * i + lane)];
            }
            __syncwarp();
            const u32 known = __ballot_sync(FULL, end[i] >> 63 != 0);
            sum += !is_known && (known == 0 || lane < (u32)__ffs((int)known)) ? end[i] & END_FIELD : 0;
            is_known = is_known || known != 0;
        }
        from = is_known ? 0 : from - min(from, 32 * LOOKS);
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        sum += __shfl_xor_sync(FULL, sum, d);
    return sum;
}

/* A segment's part of the directory; whoever sees `end` afterwards sees that too. By one thread. */
__device__ __forceinline__ void put_entry(const writing &w, const streams_view &v, const segment_part &p, uint2 mode,
                                          u64 end)
{
    u32 *head = (u32 *)w.payload;
    head[2 + 2 * p.segment] = p.block.m;
    head[3 + 2 * p.segment] = mode.x << 30 | mode.y;
    if (p.segment == 0) {
        head[0] = v.selected;
        head[1] = v.log;
    }
    if (p.segment == v.segments - 1)
        w.result->payload = v.streams_at + end;
    if (p.parts > 1)
        __threadfence();
    atomicExch(&w.ends[p.segment], END_KNOWN | end);
}

/* ---- a segment of one part ---- */

/* What a lane knows of its block of the part. */
__device__ __forceinline__ block_sums sums_of(const segment_part &p, const streams_shared *here)
{
    const rice_block block = block_of(p, p.first + lane_id());
    const u32 info = block.r > 0 ? here->infos[lane_id()] : 0;
    return {low_size(block.r, info_parameter(info)), info_quotients(info), info_omega(info)};
}

__device__ __forceinline__ block_sums sum_up(const block_sums &of, bool in)
{
    return {warp_sum(in ? of.low : 0), warp_sum(in ? of.quotients : 0), warp_sum(in ? of.omega : 0)};
}

__device__ __forceinline__ block_place place_of(const block_sums &of_lanes, const block_sums &all, u32 b,
                                                const streams_shared *here)
{
    const block_sums before = sum_up(of_lanes, lane_id() < b);
    block_place place;
    place.low = before.low;
    place.low_all = all.low;
    place.quotients = before.quotients;
    place.omega = before.omega;
    place.info = here->infos[b];
    place.previous = b > 0 ? here->infos[b - 1] : 0;
    return place;
}

__device__ __forceinline__ void write_block(const writing &w, const rice_block &block, const block_place &place,
                                            u32 mode, const u32 gaps[EACH_GAP], bool is_made, write_shared *here)
{
    if (mode == MODE_RICE) {
        if (!is_made)
            make_rice(w, block, place, gaps, here);
        put_rice(block, place, here);
    } else if (mode == MODE_ELIAS) {
        write_elias(w, block, place, gaps, here);
    } else {
        write_bitmap(w, block, place.stream);
    }
}

__device__ __forceinline__ void put_info(streams_shared *here, u32 b, u32 info)
{
    if (lane_id() == 0)
        here->infos[b] = info;
}

/* One warp finds out where the stream starts while the others make what goes there. */
__device__ __forceinline__ void write_segment(const writing &w, const streams_view &v, const segment_part &p,
                                              streams_shared *here)
{
    const u32 warp = threadIdx.x >> 5;
    write_shared *own = &here->warps[warp];
    rice_block block = block_of(p, warp);
    u32 gaps[EACH_GAP];
    load_gaps(w, block, gaps);
    if (block.r > 0)
        put_info(here, warp, weigh_block(gaps, block.r));
    for (u32 b = warp + STREAM_WARPS; b < p.end; b += STREAM_WARPS) {
        const rice_block more = block_of(p, b);
        u32 others[EACH_GAP];
        load_gaps(w, more, others);
        put_info(here, b, weigh_block(others, more.r));
    }
    __syncthreads();
    const block_sums of_lanes = sums_of(p, here), all = sum_up(of_lanes, true);
    const uint2 mode = choose_mode(p.block.m, p.block.length, all);
    if (warp == STREAM_WARPS - 1) {
        const u64 before = bytes_before(w.ends, p.segment, mode.y);
        if (lane_id() == 0) {
            put_entry(w, v, p, mode, before + mode.y);
            here->end = before + mode.y;
        }
    }
    block_place place = {};
    if (block.r > 0) {
        place = place_of(of_lanes, all, warp, here);
        if (mode.x == MODE_RICE)
            make_rice(w, block, place, gaps, own);
    }
    __syncthreads();
    u8 *const stream = w.payload + v.streams_at + (here->end - mode.y);
    if (block.r > 0) {
        place.stream = stream;
        write_block(w, block, place, mode.x, gaps, true, own);
    }
    for (u32 b = warp + STREAM_WARPS; b < p.end; b += STREAM_WARPS) {
        block = block_of(p, b);
        place = place_of(of_lanes, all, b, here);
        place.stream = stream;
        load_gaps(w, block, gaps);
        write_block(w, block, place, mode.x, gaps, false, own);
    }
}

/* ---- a segment of several parts ---- */

/* Block b has the place starts[s] / RICE_BLOCK + s + b in w.blocks. */
__device__ __forceinline__ u32 *infos_of(const writing &w, const segment_part &p)
{
    return w.blocks + p.start / RICE_BLOCK + p.segment;
}

/* The block that comes last finds out where the stream starts. */
__device__ __forceinline__ void weigh_part(const writing &w, const streams_view &v, const segment_part &p,
                                           streams_shared *here)
{
    const u32 warp = threadIdx.x >> 5;
    crowded_segment *all = &w.crowded[p.segment];
    for (u32 b = p.first + warp; b < p.end; b += STREAM_WARPS) {
        const rice_block block = block_of(p, b);
        u32 gaps[EACH_GAP];
        load_gaps(w, block, gaps);
        const u32 info = weigh_block(gaps, block.r);
        if (lane_id() == 0) {
            infos_of(w, p)[b] = info;
            here->infos[b - p.first] = info;
        }
    }
    __syncthreads();
    if (warp == 0) {
        const block_sums sums = sum_up(sums_of(p, here), true);
        if (lane_id() == 0) {
            atomicAdd(&all->low, sums.low);
            atomicAdd(&all->quotients, sums.quotients);
            atomicAdd(&all->omega, sums.omega);
        }
    }
    if (!is_last_of(&all->arrived, p.parts, &here->last) || warp > 0)
        return;
    const block_sums sums = {__ldcg(&all->low), __ldcg(&all->quotients), __ldcg(&all->omega)};
    const uint2 mode = choose_mode(p.block.m, p.block.length, sums);
    const u64 before = bytes_before(w.ends, p.segment, mode.y);
    if (lane_id() == 0)
        put_entry(w, v, p, mode, before + mode.y);
}

/* Sums over the blocks of the segment before this one, of which all are whole. */
__device__ __forceinline__ block_sums sums_before(const u32 *infos, u32 b)
{
    block_sums sum = {0, 0, 0};
#pragma unroll 4
    for (u32 i = lane_id(); i < b; i += 32) {
        const u32 info = __ldcg(&infos[i]);
        sum.low += low_size(RICE_BLOCK, info_parameter(info));
        sum.quotients += info_quotients(info);
        sum.omega += info_omega(info);
    }
    return sum_up(sum, true);
}

__device__ __forceinline__ void write_part(const writing &w, const streams_view &v, const segment_part &p,
                                           streams_shared *here)
{
    const u32 warp = threadIdx.x >> 5, *infos = infos_of(w, p);
    if (threadIdx.x == 0) {
        u64 end;
        while (!((end = *(volatile u64 *)&w.ends[p.segment]) & END_KNOWN))
            __nanosleep(100);
        __threadfence();
        here->end = end & END_FIELD;
    }
    __syncthreads();
    const u32 entry = __ldcg((const u32 *)w.payload + 3 + 2 * p.segment);
    for (u32 b = p.first + warp; b < p.end; b += STREAM_WARPS) {
        const rice_block block = block_of(p, b);
        const block_sums before = sums_before(infos, b);
        block_place place;
        u32 gaps[EACH_GAP];
        place.stream = w.payload + v.streams_at + (here->end - (entry & 0x3fffffff));
        place.low = before.low;
        place.low_all = __ldcg(&w.crowded[p.segment].low);
        place.quotients = before.quotients;
        place.omega = before.omega;
        place.info = __ldcg(&infos[b]);
        place.previous = b > 0 ? __ldcg(&infos[b - 1]) : 0;
        load_gaps(w, block, gaps);
        write_block(w, block, place, entry >> 30, gaps, false, &here->warps[warp]);
    }
}

/* ---- all of them ---- */

/* By a block that has met a segment of several parts. */
__device__ __forceinline__ void write_crowded(const writing &w, const streams_view &v, streams_shared *here)
{
    u32 *tickets = w.s.control->tickets;
    segment_part p;
    while (find_part(w, v, take_item(&tickets[STREAMS_TICKET], here), here, &p)) {
        if (p.parts > 1 && p.first < p.end)
            weigh_part(w, v, p, here);
        else if (p.parts == 1 && p.first == 0)
            write_segment(w, v, p, here);
    }
    while (find_part(w, v, take_item(&tickets[CROWDED_TICKET], here), here, &p))
        if (p.parts > 1 && p.first < p.end)
            write_part(w, v, p, here);
}

/* `item` is the first number that this block has taken. */
__device__ __forceinline__ void write_streams(const writing &w, u32 item, streams_shared *here)
{
    const streams_view v = look_at_streams(w);
    const u32 nonfinite = w.s.control->nonfinite;
    segment_part p;
    const bool exists = find_part(w, v, item, here, &p);
    if (nonfinite || !exists)
        return;
    if (p.parts > 1) {
        if (p.first < p.end)
            weigh_part(w, v, p, here);
        write_crowded(w, v, here);
    } else if (p.first == 0) {
        write_segment(w, v, p, here);
    }
}

/* The number of a block is taken before there is something to do. */
__device__ __forceinline__ void streams(const writing &w, streams_shared *here)
{
    let_next_begin();
    const u32 item = take_item(&w.s.control->tickets[STREAMS_TICKET], here);
    wait_for_previous();
    write_streams(w, item, here);
    if (item == 0 && threadIdx.x == 0)
        report(w);
}

__global__ void __launch_bounds__(STREAM_THREADS, 2) streams_kernel(const __grid_constant__ writing w)
{
    __shared__ streams_shared here;
    streams(w, &here);
}

static inline unsigned stream_blocks(u64 most, u64 segments) { return (unsigned)(most / PART + segments); }

#endif
