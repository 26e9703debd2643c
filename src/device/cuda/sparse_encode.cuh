/* Encoding a sparse vector: which kernels are launched, and the memory they work in. The host waits for nothing. */
#ifndef TG_DEVICE_CUDA_SPARSE_ENCODE_CUH
#define TG_DEVICE_CUDA_SPARSE_ENCODE_CUH

#include "device/cuda/select_guess.cuh"
#include "device/cuda/select_pilot.cuh"
#include "device/cuda/select_sift.cuh"
#include "device/cuda/sparse.h"
#include "device/cuda/sparse_streams.cuh"

/* What a selector and a spec make of a vector. */
struct sparse_plan {
    select_amount amount;
    bool random;
    u32 random_low;
    tg_hash_key hash;
    const tg_hash_key *drawn;
    u32 values, value_size;
    guessing guess;
};

/* Places in the workspace, each on 256 bytes. */
struct sparse_layout {
    size_t control, pilot_bins, largest, cleared; /* what must be 0 before the first use ends at `cleared` */
    size_t bins, digits, sample, counters, table, candidates, list, states, indices, list_values;
    size_t sample_values, sums;
    size_t starts, ends, crowded, blocks, size;
    u32 regions, room, tiles, warp_strips, strips, segments, slots;
};

static inline u64 rounded_up(u64 n, u64 to) { return (n + to - 1) / to; }

/* Few for a short vector: blocks go through regions. */
static inline u32 regions_of(u64 strips)
{
    u32 regions = 1;
    while (regions < REGIONS_MOST && strips > (u64)regions * STRIPS_OF_REGION)
        regions *= 2;
    return regions;
}

/* The most candidates of a region: enough for an estimate that is too low, and no more than it can have. */
static inline u32 region_room(u64 strips, u32 regions, u64 needed)
{
    const u64 most = rounded_up(strips, regions) * STRIP, wanted = 4 * needed / regions + 4096,
              room = wanted < most ? wanted : most;
    return (u32)(room < REGION_MOST - 1 ? room : REGION_MOST - 1);
}

/* A segment has 2048 selected elements on average but where there are only a few; none has less than 4096 elements. */
static inline u64 segments_most(u64 count, u64 most)
{
    const u64 by_count = count / 4096 + 1, by_selected = most / 2048 + 4;
    return by_count < by_selected ? by_count : by_selected;
}

/* A warp has as many strips of a tile as it takes for all tiles to be at work together; at most one for each lane. */
constexpr u32 TILES_WANTED = 528;

static inline u32 strips_of_warp(u64 strips)
{
    u32 n = 4;
    while (n < 32 && rounded_up(strips, TILE_WARPS * n) > TILES_WANTED)
        n *= 2;
    return n;
}

static inline sparse_layout sparse_layout_of(const select_amount *a, u64 count, u64 sample)
{
    sparse_layout l = {};
    size_t at = 0;
    auto place = [&](u64 bytes) {
        const size_t here = at;
        at += (size_t)rounded_up(bytes, 256) * 256;
        return here;
    };
    l.strips = (u32)rounded_up(count, STRIP);
    l.regions = regions_of(l.strips);
    l.room = region_room(l.strips, l.regions, a->needed);
    l.warp_strips = strips_of_warp(l.strips);
    l.tiles = (u32)rounded_up(l.strips, TILE_WARPS * l.warp_strips);
    l.segments = (u32)segments_most(count, a->most);
    l.slots = a->most / RICE_BLOCK + l.segments + 1;
    l.control = place(sizeof(select_control));
    l.pilot_bins = place(4 * PILOT_BINS);
    l.largest = place(4);
    l.cleared = at;
    l.bins = place(4 * BAND_BINS);
    l.digits = place(4 * RANKS * DIGIT_BINS);
    l.sample = place(4 * PILOT_KEPT * PILOT_RUN);
    l.counters = place(4 * REGIONS_MOST * COUNTER_STRIDE);
    l.table = place(4 * (u64)l.strips);
    l.candidates = place(8 * (u64)l.regions * l.room);
    l.list = place(4 * (LIST_ROOM + CUT_ROW * (u64)cut_blocks(l.regions, a->needed)));
    l.states = place(8 * ((u64)l.tiles + TILES_WANTED)); /* a shorter vector may have more */
    l.indices = place(4 * ((u64)a->most + 1));
    l.list_values = place(4 * ((u64)a->most + 1));
    l.sample_values = place(8 * sample);
    l.sums = place(16 * rounded_up(sample, TG_BLOCK));
    l.starts = place(4 * ((u64)l.segments + 1));
    l.ends = place(8 * (u64)l.segments);
    l.crowded = place(sizeof(crowded_segment) * (u64)l.segments);
    l.blocks = place(4 * (u64)l.slots);
    l.size = at;
    return l;
}

static inline writing sparse_writing(sparse_plan *plan, const tg_source *from, void *workspace, u8 *payload,
                                     control *result, bool to_list)
{
    const sparse_layout l = sparse_layout_of(&plan->amount, from->count, plan->guess.size);
    u8 *base = (u8 *)workspace;
    writing w = {};
    selecting &s = w.s;
    s.from = *from;
    s.count = (u32)from->count;
    s.commits = from->residual && !from->momentum && from->alpha == from->beta;
    s.moves = tg_cuda_sparse_moves(from);
    s.rest = s.moves ? from->undo : from->residual;
    s.clears = s.commits && (plan->values == TG_VALUES_FP32 || to_list);
    s.amount = plan->amount;
    s.random = plan->random;
    s.hash = plan->hash;
    s.drawn = plan->drawn;
    s.random_low = plan->random_low;
    s.value_size = plan->value_size;
    s.strips = l.strips;
    s.tiles = l.tiles;
    s.warp_strips = l.warp_strips;
    s.regions = l.regions;
    s.room = l.room;
    s.control = (select_control *)(base + l.control);
    s.pilot_bins = (u32 *)(base + l.pilot_bins);
    s.bins = (u32 *)(base + l.bins);
    s.digits = (u32 *)(base + l.digits);
    s.sample = (u32 *)(base + l.sample);
    s.counters = (u32 *)(base + l.counters);
    s.table = (u32 *)(base + l.table);
    s.candidates = (uint2 *)(base + l.candidates);
    s.list = (u32 *)(base + l.list);
    s.states = (u64 *)(base + l.states);
    s.indices = (u32 *)(base + l.indices);
    w.values = plan->values;
    w.payload = payload;
    w.as_they_are = to_list || plan->values == TG_VALUES_LEVELS ? (float *)(base + l.list_values) : NULL;
    w.to_list = to_list;
    w.log = plan->amount.exact ? segment_log(from->count, plan->amount.target) : 0;
    w.starts = (u32 *)(base + l.starts);
    w.ends = (u64 *)(base + l.ends);
    w.crowded = (crowded_segment *)(base + l.crowded);
    w.blocks = (u32 *)(base + l.blocks);
    w.result = result;
    plan->guess.values = (float *)(base + l.sample_values);
    plan->guess.sums = (double *)(base + l.sums);
    plan->guess.largest = (u32 *)(base + l.largest);
    return w;
}

/* Once, after the workspace was allocated. */
static inline void sparse_prepare(cudaStream_t stream, void *workspace)
{
    select_amount none = {};
    (void)cudaMemsetAsync(workspace, 0, sparse_layout_of(&none, 0, 0).cleared, stream);
}

/* Blocks of each kernel that one vector takes. */
enum { PILOTS, SIFTS, CUTS, GATHERS, STREAMS, STAGES };
struct sparse_grids {
    u32 pilots; /* those that are not for a selector's sample */
    u32 each;   /* threads of cuts for a region */
    u32 blocks[STAGES];
};

/* Few for a short vector. */
static inline u32 pilot_blocks(u32 count)
{
    const u32 blocks = count / (16 * PILOT_RUN) * 4 / PILOT_THREADS + 1;
    return blocks < PILOT_BLOCKS ? blocks : (u32)PILOT_BLOCKS;
}

static inline sparse_grids grids_of(const writing &w, const guessing &g)
{
    const selecting &s = w.s;
    const bool sums = g.kind == GUESS_GAUSSIAN || g.kind == GUESS_TRIMMED;
    sparse_grids n = {};
    n.pilots = pilot_blocks(s.count);
    n.each = cut_threads_of_region(s.regions, s.amount.needed);
    n.blocks[PILOTS] = n.pilots + (sums ? blocks_of_sample(g) : 0);
    n.blocks[SIFTS] = (u32)rounded_up(s.strips, SIFT_THREADS / 32);
    n.blocks[CUTS] = cut_blocks(s.regions, s.amount.needed);
    n.blocks[GATHERS] = s.tiles;
    n.blocks[STREAMS] = stream_blocks(s.amount.most, segments_most(s.count, s.amount.most));
    return n;
}

static inline sift_kind kind_of(const selecting &s)
{
    if (s.random || s.from.momentum || (s.from.residual && !s.commits))
        return SIFT_GENERAL;
    return s.from.residual ? SIFT_COMMIT : SIFT_PLAIN;
}

template <int DTYPE>
static inline void launch_sift(cudaStream_t stream, const selecting &s, unsigned blocks, bool overlaps)
{
    switch (kind_of(s)) {
    case SIFT_GENERAL:
        LAUNCH_BESIDE(overlaps, (sift_kernel<DTYPE, SIFT_GENERAL>), blocks, SIFT_THREADS, stream, s);
        break;
    case SIFT_COMMIT:
        LAUNCH_BESIDE(overlaps, (sift_kernel<DTYPE, SIFT_COMMIT>), blocks, SIFT_THREADS, stream, s);
        break;
    default:
        LAUNCH_BESIDE(overlaps, (sift_kernel<DTYPE, SIFT_PLAIN>), blocks, SIFT_THREADS, stream, s);
    }
}

/* The selected elements of a vector that has elements, in order. `overlaps`: a kernel may be made ready while the one
 * before it works. */
static inline void launch_gather(cudaStream_t stream, const writing &w, const guessing &g, bool overlaps)
{
    const selecting &s = w.s;
    const sparse_grids n = grids_of(w, g);
    launch_guess(stream, s, g);
    LAUNCH(pilot_kernel, n.blocks[PILOTS], PILOT_THREADS, 0, stream, s, g, n.pilots);
    if (s.from.dtype == TG_FLOAT32)
        launch_sift<TG_FLOAT32>(stream, s, n.blocks[SIFTS], overlaps);
    else if (s.from.dtype == TG_FLOAT16)
        launch_sift<TG_FLOAT16>(stream, s, n.blocks[SIFTS], overlaps);
    else
        launch_sift<TG_BFLOAT16>(stream, s, n.blocks[SIFTS], overlaps);
    LAUNCH_BESIDE(overlaps, cut_kernel, n.blocks[CUTS], CUT_THREADS, stream, s, n.each);
    LAUNCH_BESIDE(overlaps, gather_kernel, n.blocks[GATHERS], TILE_THREADS, stream, w);
}

/* Whether more is to be done with the residual when it is known what is sent. */
static inline bool is_unsettled(const writing &w)
{
    return w.s.from.residual && !(w.s.commits && (w.to_list || w.values != TG_VALUES_LEVELS));
}

static inline void launch_settle(cudaStream_t stream, const writing &w)
{
    const selecting &s = w.s;
    if (!is_unsettled(w))
        return;
    if (!s.commits)
        LAUNCH(commit_kernel, (unsigned)rounded_up(s.count, 256), 256, 0, stream, s);
    LAUNCH(settle_kernel, (unsigned)rounded_up(s.amount.most, 256), 256, 0, stream, w);
}

/* All of the payload but values that were left as they are. */
static inline void launch_write(cudaStream_t stream, const writing &w, const guessing &g, bool overlaps)
{
    const sparse_grids n = grids_of(w, g);
    LAUNCH_BESIDE(overlaps, streams_kernel, n.blocks[STREAMS], STREAM_THREADS, stream, w);
}

#endif
