/* The prefix layout (docs/format.md, 4.5), read: streams become the bytes of packed codes again, and every rule is
 * checked on the way. The bytes are untrusted: no length is used before it is known to lie in the frame. */
#ifndef TG_DEVICE_CUDA_PREFIX_DECODE_CUH
#define TG_DEVICE_CUDA_PREFIX_DECODE_CUH

#include "device/cuda/coding.cuh"
#include "device/cuda/prefix_encode.cuh"

enum {
    PREFIX_SLOTS = 1 << PREFIX_LONGEST,
    PREFIX_READERS = 128,                              /* threads of a block, each a stream at a time */
    PREFIX_TOGETHER = PREFIX_READERS / PREFIX_STREAMS, /* chunks of a block */
    PREFIX_STAGE = 256 + 8                             /* bytes of 32 rows of a chunk; 8 more for other banks */
};

/* Memory on the card, all zeros at first. */
struct prefix_tables {
    u16 slot[PREFIX_SLOTS]; /* by the next 12 bits: the byte above, the length below */
    u32 chunk_log;          /* 0: the head is wrong */
    u32 ticket;
};

struct prefix_reading {
    const u8 *in; /* on 4 bytes */
    u64 size;
    u64 count; /* codes */
    u32 width;
    prefix_tables *tables;
    u64 *chain; /* of blocks: zeros at first */
    u8 *packed; /* result, on 16 bytes */
    u32 *bad;
};

/* The head and the decoder's table, by one block with a thread for each byte. */
__global__ void __launch_bounds__(PREFIX_SYMBOLS) prefix_table_kernel(prefix_reading p)
{
    __shared__ u8 length[PREFIX_SYMBOLS];
    __shared__ u32 of_length[16], next[PREFIX_LONGEST + 1], slots, wrong;
    const u32 s = threadIdx.x, own = p.size >= PREFIX_HEAD ? p.in[4 + s / 2] >> (s % 2 * 4) & 15 : 15;
    if (s < 16)
        of_length[s] = 0;
    if (s == 0)
        slots = wrong = 0;
    length[s] = (u8)own;
    __syncthreads();
    atomicAdd(&of_length[own], 1u);
    if (own > PREFIX_LONGEST)
        wrong = 1;
    else if (own > 0)
        atomicAdd(&slots, (u32)PREFIX_SLOTS >> own);
    __syncthreads();
    if (s == 0) {
        const u64 bytes = packed_bytes(p.count, p.width);
        const u32 log = p.size >= PREFIX_HEAD ? p.in[0] : 0;
        next[0] = 0;
        for (u32 l = 1; l <= PREFIX_LONGEST; l++)
            next[l] = (next[l - 1] + (l > 1 ? of_length[l - 1] : 0)) << 1;
        if (wrong || slots != PREFIX_SLOTS || log < PREFIX_CHUNK_LEAST || log > PREFIX_CHUNK_MOST || p.in[1] ||
            p.in[2] || p.in[3] || p.size - PREFIX_HEAD < PREFIX_ENTRY * prefix_chunks(bytes, log))
            wrong = 1;
        p.tables->chunk_log = wrong ? 0 : log;
        if (wrong)
            atomicOr(p.bad, 1u);
    }
    __syncthreads();
    if (wrong || own == 0)
        return;
    for (u32 at = canonical_entry(next, length, s) & (PREFIX_SLOTS - 1); at < PREFIX_SLOTS; at += 1u << own)
        p.tables->slot[at] = (u16)(s << 8 | own);
}

/* The bits of one stream. Words behind the end of the frame are zeros. */
struct prefix_bits {
    const u32 *next, *end;
    u64 bits;
    u32 have, ahead, used;

    __device__ __forceinline__ u32 word() { return next < end ? __ldg(next++) : 0; }
    __device__ __forceinline__ void open(const u8 *in, const u8 *frame_end)
    {
        const u32 skip = 8 * (u32)((uintptr_t)in & 3);
        next = (const u32 *)(in - skip / 8);
        end = (const u32 *)(((uintptr_t)frame_end + 3) & ~(uintptr_t)3);
        const u32 low = word();
        bits = ((u64)word() << 32 | low) >> skip;
        have = 64 - skip;
        ahead = word();
        used = 0;
    }
    __device__ __forceinline__ u32 symbol(const u16 *slots)
    {
        const u32 slot = slots[(u32)bits & (PREFIX_SLOTS - 1)], length = slot & 255;
        bits >>= length;
        have -= length;
        used += length;
        return slot >> 8;
    }
    /* Before every second symbol. */
    __device__ __forceinline__ void refill()
    {
        if (have <= 32) {
            bits |= (u64)ahead << have;
            have += 32;
            ahead = word();
        }
    }
};

struct prefix_sharing {
    u16 slot[PREFIX_SLOTS];
    u8 stage[PREFIX_TOGETHER][PREFIX_STAGE];
    u32 size[PREFIX_READERS];
    u32 number;
    u64 before;
};

/* Where this thread's stream starts, counted from the first; a block's streams follow each other. Ends the chain's
 * check with the last block. */
__device__ __forceinline__ u64 stream_start(const prefix_reading &p, prefix_sharing *s, u64 chunks, u64 space)
{
    const u32 tid = threadIdx.x, lane = tid & 31;
    const u64 stream = (u64)s->number * PREFIX_READERS + tid;
    const u16 *directory = (const u16 *)(p.in + PREFIX_HEAD);
    const u32 size = stream < PREFIX_STREAMS * chunks ? directory[stream] : 0;
    u32 end = size;
    for (int d = 1; d < 32; d *= 2) {
        const u32 other = __shfl_up_sync(FULL, end, d);
        end += lane >= (u32)d ? other : 0;
    }
    s->size[tid] = end;
    __syncthreads();
    u32 all = 0;
    for (u32 i = 31; i < PREFIX_READERS; i += 32) {
        end += i < (tid & ~31u) ? s->size[i] : 0;
        all += s->size[i];
    }
    if (tid < 32) {
        const u64 before = sum_before(p.chain, s->number, all);
        if (tid == 0)
            s->before = before;
        if (tid == 0 && (s->number + 1ull) * PREFIX_TOGETHER >= chunks && before + all != space)
            atomicOr(p.bad, 1u);
    }
    __syncthreads();
    s->size[tid] = size;
    return s->before + end - size;
}

/* Copies 32 rows of the four chunks of a warp to their places. */
__device__ __forceinline__ void put_rows(const prefix_reading &p, prefix_sharing *s, u32 step, u32 log)
{
    const u32 lane = lane_id(), warp = threadIdx.x >> 5;
    const u64 bytes = packed_bytes(p.count, p.width);
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        const u64 chunk = (u64)s->number * PREFIX_TOGETHER + 4 * warp + i;
        const u64 at = (chunk << log) + 256 * step + 8 * lane;
        const u8 *from = s->stage[4 * warp + i] + 8 * lane;
        if (at + 8 <= bytes)
            *(uint2 *)(p.packed + at) = *(const uint2 *)from;
        else
            for (u32 b = 0; at + b < bytes; b++)
                p.packed[at + b] = from[b];
    }
}

/* Whether the stream was read to its end exactly, and what is left of its last byte is zero. */
__device__ __forceinline__ bool ends_well(const prefix_bits &r, const u8 *stream, u32 size)
{
    return (r.used + 7) / 8 == size && (r.used % 8 == 0 || stream[size - 1] >> r.used % 8 == 0);
}

__device__ __forceinline__ void read_chunks(const prefix_reading &p, prefix_sharing *s, u64 chunks, u32 log)
{
    const u64 bytes = packed_bytes(p.count, p.width), head = PREFIX_HEAD + PREFIX_ENTRY * chunks;
    const u32 tid = threadIdx.x;
    const u64 start = stream_start(p, s, chunks, p.size - head);
    const u64 first = (((u64)s->number * PREFIX_TOGETHER + tid / 8) << log) + tid % 8; /* its first byte */
    const u32 size = s->size[tid];
    const bool lies_within = start + size <= p.size - head;
    const u64 rows_left = first < bytes ? (bytes - first + 7) / 8 : 0;
    const u32 rows = (u32)min(rows_left, (u64)1 << (log - 3));
    const u8 *stream = p.in + head + (lies_within ? start : 0);
    u8 *const to = s->stage[tid / 8] + tid % 8;
    prefix_bits r;
    u32 byte = 0;
    r.open(stream, p.in + p.size);
    for (u32 step = 0; step < 1u << (log - 8); step++) {
        const u32 here = min(rows - min(rows, 32 * step), 32u);
        u32 i = 0;
#pragma unroll 4
        for (; i + 2 <= here; i += 2) {
            to[8 * i] = (u8)r.symbol(s->slot);
            to[8 * i + 8] = (u8)(byte = r.symbol(s->slot));
            r.refill();
        }
        if (i < here)
            to[8 * i] = (u8)(byte = r.symbol(s->slot));
        __syncwarp();
        put_rows(p, s, step, log);
        __syncwarp();
    }
    const u32 used = (u32)(p.count % 512 * p.width % 8); /* bits of the last byte of all */
    const bool is_last = rows > 0 && first + 8 * (rows - 1) == bytes - 1;
    if (!lies_within || !ends_well(r, stream, size) || (is_last && used && byte >> used))
        atomicOr(p.bad, 1u);
}

__global__ void __launch_bounds__(PREFIX_READERS) prefix_expand_kernel(prefix_reading p)
{
    __align__(16) __shared__ prefix_sharing sharing;
    prefix_sharing *const s = &sharing;
    const u32 log = p.tables->chunk_log;
    if (log == 0)
        return;
    const u64 chunks = prefix_chunks(packed_bytes(p.count, p.width), log);
    for (u32 i = threadIdx.x; i < PREFIX_SLOTS / 2; i += PREFIX_READERS)
        ((u32 *)s->slot)[i] = ((const u32 *)p.tables->slot)[i];
    for (;;) {
        if (threadIdx.x == 0)
            s->number = atomicAdd(&p.tables->ticket, 1u);
        __syncthreads();
        if ((u64)s->number * PREFIX_TOGETHER >= chunks)
            return;
        read_chunks(p, s, chunks, log);
        __syncthreads();
    }
}

#endif
