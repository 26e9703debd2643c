/* The Elias layouts (docs/format.md, 4.2), written and read on the card. A block writes a chunk, 32 neighbouring
 * elements a thread; a warp reads one, of which one lane follows the stream. */
#ifndef TG_DEVICE_CUDA_ELIAS_CUH
#define TG_DEVICE_CUDA_ELIAS_CUH

#include "device/cuda/coding.cuh"
#include "device/cuda/omega.cuh"

enum {
    ELIAS_CHUNK = 8192,
    ELIAS_THREADS = 256,
    ELIAS_RUN = ELIAS_CHUNK / ELIAS_THREADS, /* elements of a thread */
    ELIAS_STREAM = 24580,                    /* bytes, at most */
    ELIAS_SPARSE = 1,
    ELIAS_DENSE = 2,
    ELIAS_READERS = 4 /* warps of a block */
};

/* Memory on the card, all zeros at first. */
struct elias_control {
    u64 size[3]; /* of the streams of each layout */
    u32 ticket;
    u32 layout; /* to be written */
};

struct elias_job {
    tg_packed_codes codes;
    u32 levels;
    elias_control *control;
    u64 *chain; /* of chunks: zeros at first */
    u8 *out;    /* on 2 bytes */
    u64 before; /* bytes of the payload before it */
    tg_coded *coded;
};

static __host__ __device__ inline u64 elias_chunks(u64 count) { return (count + ELIAS_CHUNK - 1) / ELIAS_CHUNK; }

struct elias_sharing {
    u32 sums[ELIAS_THREADS / 32], last[ELIAS_THREADS / 32];
    u32 number;
    u64 before;
    u32 image[ELIAS_STREAM / 4 + 3];
};

/* Over the threads before this one: the sum of x, and the largest y. `all` gets the sum of everything. */
__device__ __forceinline__ void look_at_earlier(elias_sharing *s, u32 x, u32 y, u32 *sum, u32 *largest, u32 *all)
{
    const u32 lane = lane_id(), warp = threadIdx.x / 32;
    u32 to_here = x, most = y;
    for (int d = 1; d < 32; d *= 2) {
        const u32 other = __shfl_up_sync(FULL, to_here, d), other_most = __shfl_up_sync(FULL, most, d);
        to_here += lane >= (u32)d ? other : 0;
        most = lane >= (u32)d ? max(most, other_most) : most;
    }
    const u32 most_before = __shfl_up_sync(FULL, most, 1);
    __syncthreads();
    if (lane == 31) {
        s->sums[warp] = to_here;
        s->last[warp] = most;
    }
    __syncthreads();
    *sum = to_here - x;
    *largest = lane > 0 ? most_before : 0;
    *all = 0;
    for (u32 i = 0; i < ELIAS_THREADS / 32; i++) {
        *sum += i < warp ? s->sums[i] : 0;
        *largest = i < warp ? max(*largest, s->last[i]) : *largest;
        *all += s->sums[i];
    }
}

/* ---- writing ---- */

/* Elements of this thread, counted from the chunk's first. */
struct elias_run {
    u64 chunk_first;
    u32 first, end;
};

__device__ __forceinline__ elias_run run_of(const elias_job &p, u64 chunk)
{
    const u64 first = chunk * ELIAS_CHUNK;
    const u32 n = (u32)min(p.codes.count - first, (u64)ELIAS_CHUNK), at = threadIdx.x * ELIAS_RUN;
    return elias_run{first, min(at, n), min(at + ELIAS_RUN, n)};
}

__device__ __forceinline__ int level_of(const elias_job &p, const elias_run &r, u32 i)
{
    return (int)code_at(p.codes, r.chunk_first + i) - (int)p.levels;
}

/* The bits of an element, first lowest: at most 24, or 44 for those of the sparse layout. */
__device__ __forceinline__ u64 dense_code(int level, u32 *length)
{
    const u64 code = omega_code((u32)abs(level) + 1, length);
    *length += level != 0;
    return level < 0 ? code | 1ull << (*length - 1) : code;
}

__device__ __forceinline__ u64 sparse_code(int level, u32 distance, u32 *length)
{
    u32 size_length;
    const u64 code = omega_code(distance, length), size = omega_code((u32)abs(level), &size_length);
    const u64 both = code | (u64)(level < 0) << *length | size << (*length + 1);
    *length += 1 + size_length;
    return both;
}

/* What this thread's elements take in each layout; `previous` is the place behind the last level before them that is
 * not zero. The sparse layout's number of such levels is not in it. */
__device__ __forceinline__ void measure_run(const elias_job &p, const elias_run &r, u32 previous, u32 *sparse,
                                            u32 *dense)
{
    *sparse = *dense = 0;
    for (u32 i = r.first; i < r.end; i++) {
        const int level = level_of(p, r, i);
        *dense += omega_length((u32)abs(level) + 1) + (level != 0);
        if (level == 0)
            continue;
        *sparse += omega_length(i + 1 - previous) + 1 + omega_length((u32)abs(level));
        previous = i + 1;
    }
}

/* The levels of a run that are not zero, and the place behind the last of them. */
__device__ __forceinline__ void count_run(const elias_job &p, const elias_run &r, u32 *nonzero, u32 *last)
{
    *nonzero = *last = 0;
    for (u32 i = r.first; i < r.end; i++) {
        const bool counts = level_of(p, r, i) != 0;
        *nonzero += counts;
        *last = counts ? i + 1 : *last;
    }
}

__global__ void __launch_bounds__(ELIAS_THREADS) elias_measure_kernel(elias_job p)
{
    __shared__ elias_sharing sharing;
    find_count(p.codes);
    const u64 chunks = elias_chunks(p.codes.count);
    u64 sizes[3] = {0, 0, 0};
    for (u64 chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        const elias_run r = run_of(p, chunk);
        u32 nonzero, last, before, previous, all, sparse, dense, sparse_bits, dense_bits;
        count_run(p, r, &nonzero, &last);
        look_at_earlier(&sharing, nonzero, last, &before, &previous, &all);
        measure_run(p, r, previous, &sparse, &dense);
        look_at_earlier(&sharing, sparse, 0, &before, &last, &sparse_bits);
        look_at_earlier(&sharing, dense, 0, &before, &last, &dense_bits);
        sizes[ELIAS_SPARSE] += (sparse_bits + omega_length(all + 1) + 7) / 8;
        sizes[ELIAS_DENSE] += (dense_bits + 7) / 8;
    }
    if (threadIdx.x == 0) {
        atomicAdd(&p.control->size[ELIAS_SPARSE], sizes[ELIAS_SPARSE]);
        atomicAdd(&p.control->size[ELIAS_DENSE], sizes[ELIAS_DENSE]);
    }
}

/* The shorter of the two layouts, if it is shorter than what has been written and, where they are allowed, than packed
 * codes. Of equals, the layout with the lowest number. One thread. */
__global__ void elias_choose_kernel(elias_job p, bool may_be_packed)
{
    find_count(p.codes);
    elias_control *const c = p.control;
    const u64 packed = may_be_packed ? p.before + padded(packed_bytes(p.codes.count, p.codes.width)) : ~0ull;
    const u32 layout = c->size[ELIAS_SPARSE] <= c->size[ELIAS_DENSE] ? ELIAS_SPARSE : ELIAS_DENSE;
    const u64 size = p.before + 2 * elias_chunks(p.codes.count) + c->size[layout];
    if (packed <= size || (p.coded->done && p.coded->layout < layout))
        return;
    if (!p.coded->done || size <= p.coded->size)
        c->layout = layout;
}

/* Puts this thread's bits into the chunk's image, from bit `at` on. */
__device__ __forceinline__ void put_run(const elias_job &p, const elias_run &r, u32 layout, u32 previous, u32 at,
                                        u32 *image)
{
    for (u32 i = r.first; i < r.end; i++) {
        const int level = level_of(p, r, i);
        u32 length = 0;
        if (layout == ELIAS_DENSE) {
            const u64 code = dense_code(level, &length);
            add_bits(image, at, code);
        } else if (level != 0) {
            const u64 code = sparse_code(level, i + 1 - previous, &length);
            add_bits(image, at, code);
            previous = i + 1;
        }
        at += length;
    }
}

/* One chunk; returns the bytes of its stream, which is in the image. */
__device__ __forceinline__ u32 make_stream(const elias_job &p, elias_sharing *s, u32 layout, u64 chunk)
{
    const elias_run r = run_of(p, chunk);
    u32 nonzero, last, before, previous, count, sparse, dense, at, bits;
    for (u32 i = threadIdx.x; i < sizeof s->image / 4; i += ELIAS_THREADS)
        s->image[i] = 0;
    count_run(p, r, &nonzero, &last);
    look_at_earlier(s, nonzero, last, &before, &previous, &count);
    measure_run(p, r, previous, &sparse, &dense);
    look_at_earlier(s, layout == ELIAS_SPARSE ? sparse : dense, 0, &at, &last, &bits);
    if (layout == ELIAS_SPARSE) {
        u32 length;
        const u64 code = omega_code(count + 1, &length);
        if (threadIdx.x == 0)
            add_bits(s->image, 0, code);
        at += length;
        bits += length;
    }
    put_run(p, r, layout, previous, at, s->image);
    __syncthreads();
    return (bits + 7) / 8;
}

__global__ void __launch_bounds__(ELIAS_THREADS) elias_write_kernel(elias_job p)
{
    __shared__ elias_sharing sharing;
    elias_sharing *const s = &sharing;
    find_count(p.codes);
    const u32 layout = p.control->layout;
    const u64 chunks = elias_chunks(p.codes.count);
    if (layout == 0)
        return;
    for (;;) {
        if (threadIdx.x == 0)
            s->number = atomicAdd(&p.control->ticket, 1u);
        __syncthreads();
        if (s->number >= chunks)
            return;
        const u32 size = make_stream(p, s, layout, s->number);
        if (threadIdx.x < 32) {
            const u64 before = sum_before(p.chain, s->number, size);
            if (threadIdx.x == 0) {
                s->before = before;
                ((u16 *)p.out)[s->number] = (u16)size;
                if (s->number == chunks - 1)
                    *p.coded = tg_coded{p.before + 2 * chunks + before + size, layout, 1};
            }
        }
        __syncthreads();
        u8 *const out = p.out + 2 * chunks + s->before;
        const u32 head = min((u32)(-(uintptr_t)out & 3), size), words = (size - head) / 4;
        for (u32 i = threadIdx.x; i < words; i += ELIAS_THREADS)
            ((u32 *)(out + head))[i] = __funnelshift_r(s->image[i], s->image[i + 1], 8 * head);
        for (u32 i = threadIdx.x; i < size - 4 * words; i += ELIAS_THREADS) {
            const u32 at = i < head ? i : i + 4 * words;
            out[at] = (u8)(s->image[at / 4] >> (8 * (at & 3)));
        }
        __syncthreads();
    }
}

/* ---- reading ---- */

struct elias_reading {
    const u8 *in; /* on 2 bytes */
    u64 size;
    u64 count; /* codes */
    u32 width, levels, layout;
    u32 *ticket; /* zero at first */
    u64 *chain;  /* of chunks: zeros at first */
    u8 *packed;  /* result */
    u32 *bad;
};

/* A stream of the sparse layout, between two levels. */
struct elias_sparse_state {
    u32 unread, position; /* levels to come, and the place behind the one that was read */
    int level;            /* that level, until it is delivered; else 0 */
};

__device__ __forceinline__ bool read_nonzero(bit_stream &s, elias_sparse_state &e, u32 n, u32 most)
{
    u32 distance, size;
    if (!omega_read(s, &distance) || distance > n - e.position)
        return false;
    const bool negative = s.peek() & 1;
    if (!s.skip(1) || !omega_read(s, &size) || size > most)
        return false;
    e.position += distance;
    e.level = negative ? -(int)size : (int)size;
    e.unread--;
    return true;
}

/* The levels from `first` on, `here` of the n of the chunk, as codes. One lane. */
__device__ __forceinline__ bool next_sparse(bit_stream &s, elias_sparse_state &e, u32 first, u32 here, u32 n, u32 most,
                                            u16 *codes)
{
    for (;;) {
        if (e.level == 0) {
            if (e.unread == 0)
                return true;
            if (!read_nonzero(s, e, n, most))
                return false;
        }
        if (e.position > first + here)
            return true;
        codes[e.position - 1 - first] = (u16)(e.level + (int)most);
        e.level = 0;
    }
}

__device__ __forceinline__ bool next_dense(bit_stream &s, u32 here, u32 most, u16 *codes)
{
    for (u32 i = 0; i < here; i++) {
        u32 plus_one;
        if (!omega_read(s, &plus_one) || plus_one - 1 > most)
            return false;
        const int size = (int)plus_one - 1;
        const bool negative = size != 0 && (s.peek() & 1);
        if (size != 0 && !s.skip(1))
            return false;
        codes[i] = (u16)((negative ? -size : size) + (int)most);
    }
    return true;
}

/* One chunk by a warp, group after group, through `codes`. */
__device__ __forceinline__ bool read_elias(const elias_reading &p, u64 first, bit_stream s, u16 *codes)
{
    const u32 lane = lane_id(), n = (u32)min(p.count - first, (u64)ELIAS_CHUNK);
    elias_sparse_state e = {0, 0, 0};
    u32 sound = 1, plus_one = 1;
    if (p.layout == ELIAS_SPARSE && lane == 0) {
        sound = omega_read(s, &plus_one) && plus_one - 1 <= n;
        e.unread = sound ? plus_one - 1 : 0;
    }
    for (u32 at = 0; at < n; at += 512) {
        const u32 here = min(n - at, 512u);
        for (u32 i = lane; i < here; i += 32)
            codes[i] = (u16)p.levels;
        __syncwarp();
        if (lane == 0 && sound)
            sound = p.layout == ELIAS_SPARSE ? next_sparse(s, e, at, here, n, p.levels, codes)
                                             : next_dense(s, here, p.levels, codes);
        __syncwarp();
        pack_codes(codes, here, p.width, p.packed + (first + at) / 8 * p.width);
        __syncwarp();
    }
    sound = sound && (lane > 0 || s.is_done());
    return __all_sync(FULL, sound);
}

__global__ void __launch_bounds__(32 * ELIAS_READERS) elias_expand_kernel(elias_reading p)
{
    __shared__ u16 codes[ELIAS_READERS][512];
    const u64 chunks = elias_chunks(p.count);
    if (p.size < 2 * chunks) {
        if (blockIdx.x == 0 && threadIdx.x == 0)
            atomicOr(p.bad, 1u);
        return;
    }
    const u64 space = p.size - 2 * chunks;
    for (;;) {
        u32 chunk = lane_id() == 0 ? atomicAdd(p.ticket, 1u) : 0;
        chunk = __shfl_sync(FULL, chunk, 0);
        if (chunk >= chunks)
            return;
        const u64 size = ((const u16 *)p.in)[chunk], before = sum_before(p.chain, chunk, size);
        bool sound = before + size <= space && (chunk < chunks - 1 || before + size == space);
        const bit_stream s = {p.in + 2 * chunks + before, p.in + p.size, 8 * size, 0};
        sound = sound && read_elias(p, (u64)chunk * ELIAS_CHUNK, s, codes[threadIdx.x / 32]);
        if (!sound && lane_id() == 0)
            atomicOr(p.bad, 1u);
    }
}

#endif
