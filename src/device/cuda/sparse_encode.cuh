/* Encoding a sparse vector: which kernels are launched, and the memory they work in. The host waits for nothing. */
#ifndef TG_DEVICE_CUDA_SPARSE_ENCODE_CUH
#define TG_DEVICE_CUDA_SPARSE_ENCODE_CUH

#include "device/cuda/select_guess.cuh"
#include "device/cuda/select_pilot.cuh"
#include "device/cuda/select_sift.cuh"
#include "device/cuda/sparse.h"
#include "device/cuda/sparse_write.cuh"

/* What a selector and a spec make of a vector. */
struct sparse_plan {
    select_amount amount;
    bool random;
    u32 random_low;
    tg_hash_key hash;
    u32 values, value_size;
    guessing guess;
};

/* Places in the workspace, each on 256 bytes. */
struct sparse_layout {
    size_t control, pilot_bins, largest, cleared; /* what must be 0 before the first use ends at `cleared` */
    size_t bins, digits, sample, counters, table, candidates, list, states, indices, list_values;
    size_t sample_values, sums;
    size_t starts, blocks, low_bytes, quotient_bits, omega_bits, streams, size;
    u32 room, tiles, chunks, segments, slots;
};

static inline u64 rounded_up(u64 n, u64 to) { return (n + to - 1) / to; }

/* The most candidates of a region: enough for an estimate that is too low, and no more than it can have. */
static inline u32 region_room(u64 count, u64 needed)
{
    const u64 chunks = rounded_up(count, CHUNK), most = rounded_up(chunks, REGIONS) * CHUNK,
              wanted = 4 * needed / REGIONS + 4096, room = wanted < most ? wanted : most;
    return (u32)(room < REGION_MOST - 1 ? room : REGION_MOST - 1);
}

/* A segment has 2048 selected elements on average but where there are only a few; none has less than 4096 elements. */
static inline u64 segments_most(u64 count, u64 most)
{
    const u64 by_count = count / 4096 + 1, by_selected = most / 2048 + 4;
    return by_count < by_selected ? by_count : by_selected;
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
    l.room = region_room(count, a->needed);
    l.chunks = (u32)rounded_up(count, CHUNK);
    l.tiles = (u32)rounded_up(count, TILE);
    l.segments = (u32)segments_most(count, a->most);
    l.slots = a->most / RICE_BLOCK + l.segments + 1;
    l.control = place(sizeof(select_control));
    l.pilot_bins = place(4 * PILOT_BINS);
    l.largest = place(4);
    l.cleared = at;
    l.bins = place(4 * BAND_BINS);
    l.digits = place(4 * RANKS * DIGIT_BINS);
    l.sample = place(4 * PILOT_RUNS * PILOT_RUN);
    l.counters = place(4 * REGIONS * COUNTER_STRIDE);
    l.table = place(4 * (u64)l.chunks);
    l.candidates = place(8 * (u64)REGIONS * l.room);
    l.list = place(4 * LIST_ROOM);
    l.states = place(8 * (u64)l.tiles);
    l.indices = place(4 * ((u64)a->most + 1));
    l.list_values = place(4 * ((u64)a->most + 1));
    l.sample_values = place(4 * sample);
    l.sums = place(16 * rounded_up(sample, TG_BLOCK));
    l.starts = place(4 * ((u64)l.segments + 1));
    l.blocks = place(4 * (u64)l.slots);
    l.low_bytes = place(4 * (u64)l.segments);
    l.quotient_bits = place(4 * (u64)l.segments);
    l.omega_bits = place(4 * (u64)l.segments);
    l.streams = place(4 * (u64)l.segments);
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
    s.random_low = plan->random_low;
    s.value_size = plan->value_size;
    s.chunks = l.chunks;
    s.tiles = l.tiles;
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
    w.to_list = to_list ? (float *)(base + l.list_values) : NULL;
    w.starts = (u32 *)(base + l.starts);
    w.blocks = (u32 *)(base + l.blocks);
    w.low_bytes = (u32 *)(base + l.low_bytes);
    w.quotient_bits = (u32 *)(base + l.quotient_bits);
    w.omega_bits = (u32 *)(base + l.omega_bits);
    w.streams = (u32 *)(base + l.streams);
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

template <int DTYPE> static inline void launch_sift(cudaStream_t stream, const selecting &s)
{
    const unsigned blocks = (unsigned)rounded_up(s.chunks, SIFT_THREADS / 32);
    if (s.random || s.from.momentum || (s.from.residual && !s.commits))
        LAUNCH((sift_kernel<DTYPE, SIFT_GENERAL>), blocks, SIFT_THREADS, 0, stream, s);
    else if (s.from.residual)
        LAUNCH((sift_kernel<DTYPE, SIFT_COMMIT>), blocks, SIFT_THREADS, 0, stream, s);
    else
        LAUNCH((sift_kernel<DTYPE, SIFT_PLAIN>), blocks, SIFT_THREADS, 0, stream, s);
}

/* Few for a short vector. */
static inline unsigned pilot_blocks(u32 count)
{
    const u32 blocks = count / (16 * PILOT_RUN) * 4 / PILOT_THREADS + 1;
    return blocks < PILOT_BLOCKS ? blocks : (u32)PILOT_BLOCKS;
}

/* Everything up to the threshold. */
static inline void launch_select(cudaStream_t stream, const selecting &s)
{
    const unsigned many = grid_for(s.chunks, CUT_THREADS / 32, 264); /* enough for a card, and soon gone if not needed */
    const unsigned parts = s.amount.needed / REGIONS / (CUT_THREADS * CUT_AHEAD) + 1;
    LAUNCH(pilot_kernel, pilot_blocks(s.count), PILOT_THREADS, 0, stream, s);
    if (s.from.dtype == TG_FLOAT32)
        launch_sift<TG_FLOAT32>(stream, s);
    else if (s.from.dtype == TG_FLOAT16)
        launch_sift<TG_FLOAT16>(stream, s);
    else
        launch_sift<TG_BFLOAT16>(stream, s);
    LAUNCH(cut_kernel, (s.chunks < REGIONS ? s.chunks : (u32)REGIONS) * parts, CUT_THREADS, 0, stream, s, parts);
    for (u32 pass = 0; pass < DIGIT_PASSES; pass++)
        LAUNCH(again_kernel, many, CUT_THREADS, 0, stream, s, pass);
    if (!s.amount.exact)
        LAUNCH(count_kernel, many, CUT_THREADS, 0, stream, s);
}

/* The payload of a vector that has elements. */
static inline void launch_sparse(cudaStream_t stream, const writing &w, const guessing &guess)
{
    const selecting &s = w.s;
    const u64 slots = s.amount.most / RICE_BLOCK + segments_most(s.count, s.amount.most) + 1;
    launch_guess(stream, s, guess);
    launch_select(stream, s);
    LAUNCH(gather_kernel, s.tiles, GATHER_THREADS, 0, stream, w);
    if (s.from.residual && !s.commits) {
        LAUNCH(commit_kernel, (unsigned)rounded_up(s.count, 256), 256, 0, stream, s);
        LAUNCH(settle_kernel, (unsigned)rounded_up(s.amount.most, 256), 256, 0, stream, w);
    }
    if (w.to_list) {
        LAUNCH(report_kernel, 1, 1, 0, stream, w);
        return;
    }
    LAUNCH(weigh_kernel, (unsigned)rounded_up(slots, WEIGH_WARPS), WEIGH_THREADS, 0, stream, w);
    LAUNCH(write_kernel, (unsigned)rounded_up(slots, WRITE_WARPS), WRITE_THREADS, 0, stream, w);
}

#endif
