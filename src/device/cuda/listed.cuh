/* The entropy sparse layout (docs/format.md, 4.4): levels that are not zero are listed, and listed levels are put back
 * among the zeros. Index streams are sparse.h's affair, codes those of rans_encode.cuh and rans_decode.cuh. */
#ifndef TG_DEVICE_CUDA_LISTED_CUH
#define TG_DEVICE_CUDA_LISTED_CUH

#include "device/cuda/rans_decode.cuh"

enum { LISTED_THREADS = 256, LISTED_RUN = 16, LISTED_TILE = LISTED_THREADS * LISTED_RUN };

/* The smallest segment that has 2048 listed elements on average. */
static __host__ __device__ inline u32 listed_log(u64 count, u64 listed)
{
    u32 log = 12;
    while (log < 30 && listed << log < count << 11)
        log++;
    return log;
}

static __host__ __device__ inline u64 listed_directory(u64 count, u32 log)
{
    return 8 + 8 * ((count + (1ull << log) - 1) >> log);
}

struct listed_job {
    tg_packed_codes codes; /* of all levels */
    u32 levels;
    listed_control *control;
    u64 *chain;     /* of tiles: zeros at first */
    u32 *indices;   /* room for most_listed */
    u16 *listed;    /* their codes */
    const u8 *made; /* where everything is written */
    u8 *out;        /* and where it goes if it is the shortest */
    u64 before;     /* bytes of the payload before that */
    tg_coded *coded;
};

/* ---- writing ---- */

/* The number of levels before this thread's that are not zero, in the block; `all` of them. */
__device__ __forceinline__ u32 listed_before(u32 own, u32 *warps, u32 *all)
{
    const u32 lane = lane_id(), warp = threadIdx.x / 32;
    u32 sum = own;
    for (int d = 1; d < 32; d *= 2) {
        const u32 other = __shfl_up_sync(FULL, sum, d);
        sum += lane >= (u32)d ? other : 0;
    }
    if (lane == 31)
        warps[warp] = sum;
    __syncthreads();
    sum -= own;
    *all = 0;
    for (u32 i = 0; i < LISTED_THREADS / 32; i++) {
        sum += i < warp ? warps[i] : 0;
        *all += warps[i];
    }
    return sum;
}

/* Lists one tile, unless there are too many. */
__device__ __forceinline__ void list_tile(const listed_job &p, u32 tile, u64 tiles, u32 *warps, u64 *before)
{
    const u64 first = (u64)tile * LISTED_TILE + threadIdx.x * LISTED_RUN;
    const u64 end = min(first + LISTED_RUN, p.codes.count), most = most_listed(p.codes.count);
    u32 own = 0, all;
    for (u64 i = first; i < end; i++)
        own += code_at(p.codes, i) != p.levels;
    const u32 place = listed_before(own, warps, &all);
    if (threadIdx.x < 32) {
        const u64 sum = sum_before(p.chain, tile, all);
        if (threadIdx.x == 0)
            *before = sum;
    }
    __syncthreads();
    u64 at = *before + place;
    for (u64 i = first; i < end && at < most; i++) {
        const u32 code = code_at(p.codes, i);
        if (code == p.levels)
            continue;
        p.indices[at] = (u32)i;
        p.listed[at++] = (u16)(code - (code > p.levels));
    }
    if (threadIdx.x == 0 && tile == tiles - 1 && *before + all <= most) {
        p.control->count = (u32)(*before + all);
        p.control->directory = (u32)listed_directory(p.codes.count, listed_log(p.codes.count, *before + all));
    }
    __syncthreads();
}

__global__ void __launch_bounds__(LISTED_THREADS) list_kernel(listed_job p)
{
    __shared__ u32 warps[LISTED_THREADS / 32], tile;
    __shared__ u64 before;
    find_count(p.codes);
    const u64 tiles = (p.codes.count + LISTED_TILE - 1) / LISTED_TILE;
    if (!p.control->wanted)
        return;
    for (;;) {
        if (threadIdx.x == 0)
            tile = atomicAdd(&p.control->ticket, 1u);
        __syncthreads();
        if (tile >= tiles)
            return;
        list_tile(p, tile, tiles, warps, &before);
    }
}

/* Layout 3 is kept if it is not longer. */
__device__ __forceinline__ bool list_is_shorter(const listed_job &p)
{
    return p.control->count != POSITIONS_NONE && p.coded->done && p.coded->layout == TG_LAYOUT_ENTROPY &&
           p.before + p.control->everything.payload < p.coded->size;
}

__global__ void __launch_bounds__(256) copy_listed_kernel(listed_job p)
{
    if (!list_is_shorter(p))
        return;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < (p.control->everything.payload + 3) / 4;
         i += (u64)gridDim.x * 256)
        ((u32 *)p.out)[i] = ((const u32 *)p.made)[i];
}

/* By one thread. */
__device__ __forceinline__ void choose_listed(const listed_job &p)
{
    if (list_is_shorter(p))
        *p.coded = tg_coded{p.before + p.control->everything.payload, TG_LAYOUT_ENTROPY_SPARSE, 1};
}

__global__ void choose_listed_kernel(listed_job p) { choose_listed(p); }

/* ---- reading ---- */

struct listed_reading {
    tg_packed_codes listed; /* codes of listed levels */
    const u32 *positions;   /* of these, each below the count; other places mean nothing where the frame is bad */
    u64 count;              /* codes of all */
    u32 width, levels;
    u8 *packed; /* result, on 4 bytes, with whole words */
    const u32 *bad;
};

/* Where a code of the packed layout is: a word, the first bit in it, and how far the next word of it is. */
__device__ __forceinline__ u64 word_of_code(u64 i, u64 count, u32 width, u32 *bit, u32 *step)
{
    const u64 group = i / 512;
    const bool whole = group < count / 512;
    const u32 at = (whole ? (u32)(i % 512) / 16 : (u32)(i % 512)) * width;
    *bit = at % 32;
    *step = whole ? 16 : 1;
    return group * 16 * width + (whole ? i % 16 + 16 * (at / 32) : at / 32);
}

/* Every code is that of zero; a thread for each word. */
__global__ void __launch_bounds__(256) fill_zeros_kernel(listed_reading p)
{
    const u64 groups = p.count / 512, words = padded(packed_bytes(p.count, p.width)) / 4;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < words; i += (u64)gridDim.x * 256) {
        const bool whole = i < groups * 16 * p.width;
        const u32 rows = whole ? 32 : (u32)(p.count % 512);
        const u32 bit = 32 * (u32)(whole ? i / 16 % p.width : i - groups * 16 * p.width);
        u32 word = 0;
        for (u32 row = bit / p.width; row * p.width < bit + 32 && row < rows; row++)
            word |= row * p.width >= bit ? p.levels << (row * p.width - bit) : p.levels >> (bit - row * p.width);
        ((u32 *)p.packed)[i] = word;
    }
}

/* Puts listed levels in the place of zeros: words are added to, so that codes of one word do not disturb each other. */
__global__ void __launch_bounds__(256) put_listed_kernel(listed_reading p)
{
    if (*p.bad)
        return;
    for (u64 j = (u64)blockIdx.x * 256 + threadIdx.x; j < p.listed.count; j += (u64)gridDim.x * 256) {
        const u32 next = code_at(p.listed, j);
        const u32 code = next < p.levels ? next : min(next + 1, 2 * p.levels);
        u32 bit, step;
        u32 *const word = (u32 *)p.packed + word_of_code(p.positions[j], p.count, p.width, &bit, &step);
        const u64 old = (u64)p.levels << bit, now = (u64)code << bit;
        atomicAdd(word, (u32)now - (u32)old);
        if (now >> 32 != old >> 32)
            atomicAdd(word + step, (u32)(now >> 32) - (u32)(old >> 32));
    }
}

#endif
