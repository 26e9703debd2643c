/* Many sparse vectors in as many launches as one: a kernel has the blocks of all of them, and each vector has a
 * workspace of its own. A model's tensors are so small that launches would take longer than what they do. */
#ifndef TG_DEVICE_CUDA_SPARSE_MANY_CUH
#define TG_DEVICE_CUDA_SPARSE_MANY_CUH

#include "device/cuda/several.cuh"
#include "device/cuda/sparse_encode.cuh"

struct sparse_job {
    writing w;
    guessing guess;
    u32 pilots, each;
    u32 first[STAGES], blocks[STAGES]; /* of each kernel's */
};

/* The job of this block for a stage, and which of its blocks this is. */
__device__ __forceinline__ block_of_job take_sparse_job(const sparse_job *jobs, u32 count, u32 stage, sparse_job *own)
{
    copy_job(own, &jobs[job_of_block(jobs, count, blockIdx.x, [&](const sparse_job &j) { return j.first[stage]; })]);
    return {blockIdx.x - own->first[stage], own->blocks[stage]};
}

__global__ void __launch_bounds__(PILOT_THREADS) pilot_many(const sparse_job *jobs, u32 count)
{
    __shared__ pilot_room here;
    __shared__ sparse_job j;
    const block_of_job block = take_sparse_job(jobs, count, PILOTS, &j);
    pilot(j.w.s, j.guess, j.pilots, block, here);
}

template <int DTYPE, int KIND>
__global__ void __launch_bounds__(SIFT_THREADS) sift_many(const sparse_job *jobs, u32 count)
{
    __shared__ sparse_job j;
    const block_of_job block = take_sparse_job(jobs, count, SIFTS, &j);
    sift<DTYPE, KIND>(j.w.s, block);
}

__global__ void __launch_bounds__(CUT_THREADS) cut_many(const sparse_job *jobs, u32 count)
{
    __shared__ cut_shared here;
    __shared__ sparse_job j;
    const block_of_job block = take_sparse_job(jobs, count, CUTS, &j);
    cut(j.w.s, j.each, block, here);
}

__global__ void __launch_bounds__(TILE_THREADS, 3) gather_many(const sparse_job *jobs, u32 count)
{
    __shared__ gather_room here;
    __shared__ sparse_job j;
    const block_of_job block = take_sparse_job(jobs, count, GATHERS, &j);
    gather(j.w, block, here);
}

__global__ void __launch_bounds__(STREAM_THREADS, 2) streams_many(const sparse_job *jobs, u32 count)
{
    __shared__ streams_shared here;
    __shared__ sparse_job j;
    (void)take_sparse_job(jobs, count, STREAMS, &j);
    streams(j.w, &here);
}

/* ---- launches ---- */

static inline bool same_sift(const selecting &a, const selecting &b)
{
    return a.from.dtype == b.from.dtype && kind_of(a) == kind_of(b);
}

/* Puts a job behind those before it; `before` has how many blocks they take. Tiles are larger than for one vector, as
 * there are enough of them. */
static inline sparse_job sparse_job_of(const writing &w, const guessing &g, u32 before[STAGES])
{
    constexpr u32 STRIPS = 16;
    sparse_job j = {};
    j.w = w;
    j.guess = g;
    if (w.s.warp_strips < STRIPS) {
        j.w.s.warp_strips = STRIPS;
        j.w.s.tiles = (u32)rounded_up(w.s.strips, TILE_WARPS * STRIPS);
    }
    const sparse_grids n = grids_of(j.w, g);
    j.pilots = n.pilots;
    j.each = n.each;
    for (u32 i = 0; i < STAGES; i++) {
        j.first[i] = before[i];
        j.blocks[i] = n.blocks[i];
        before[i] += n.blocks[i];
    }
    return j;
}

template <int DTYPE>
static inline void launch_sifts(cudaStream_t stream, sift_kind kind, unsigned blocks, const sparse_job *jobs, u32 count,
                                bool overlaps)
{
    switch (kind) {
    case SIFT_GENERAL:
        LAUNCH_BESIDE(overlaps, (sift_many<DTYPE, SIFT_GENERAL>), blocks, SIFT_THREADS, stream, jobs, count);
        break;
    case SIFT_COMMIT:
        LAUNCH_BESIDE(overlaps, (sift_many<DTYPE, SIFT_COMMIT>), blocks, SIFT_THREADS, stream, jobs, count);
        break;
    default:
        LAUNCH_BESIDE(overlaps, (sift_many<DTYPE, SIFT_PLAIN>), blocks, SIFT_THREADS, stream, jobs, count);
    }
}

/* `like` is one of the jobs, of which `jobs` is a copy on the card; `blocks` are those of all of them. */
static inline void launch_many(cudaStream_t stream, const selecting &like, const u32 blocks[STAGES],
                               const sparse_job *jobs, u32 count, bool overlaps)
{
    const sift_kind kind = kind_of(like);
    LAUNCH(pilot_many, blocks[PILOTS], PILOT_THREADS, 0, stream, jobs, count);
    if (like.from.dtype == TG_FLOAT32)
        launch_sifts<TG_FLOAT32>(stream, kind, blocks[SIFTS], jobs, count, overlaps);
    else if (like.from.dtype == TG_FLOAT16)
        launch_sifts<TG_FLOAT16>(stream, kind, blocks[SIFTS], jobs, count, overlaps);
    else
        launch_sifts<TG_BFLOAT16>(stream, kind, blocks[SIFTS], jobs, count, overlaps);
    LAUNCH_BESIDE(overlaps, cut_many, blocks[CUTS], CUT_THREADS, stream, jobs, count);
    LAUNCH_BESIDE(overlaps, gather_many, blocks[GATHERS], TILE_THREADS, stream, jobs, count);
    LAUNCH_BESIDE(overlaps, streams_many, blocks[STREAMS], STREAM_THREADS, stream, jobs, count);
}

#endif
