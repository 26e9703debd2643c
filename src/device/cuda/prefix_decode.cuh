/* The prefix layout (docs/format.md, 4.5), read: streams become the bytes of packed codes again, and every rule is
 * checked on the way. The bytes are untrusted: no length is used before it is known to lie in the frame. */
#ifndef TG_DEVICE_CUDA_PREFIX_DECODE_CUH
#define TG_DEVICE_CUDA_PREFIX_DECODE_CUH

#include "device/cuda/coding.cuh"
#include "device/cuda/prefix_encode.cuh"

enum {
    PREFIX_SLOTS = 1 << PREFIX_LONGEST,
    PREFIX_READERS = 2,                    /* warps of a block, which share a table and nothing else */
    PREFIX_TOGETHER = 32 / PREFIX_STREAMS, /* chunks of a warp */
    PREFIX_STAGE = 256 + 16,               /* bytes of 32 rows of a chunk; 16 more for other banks */
    PREFIX_RING = 32,                      /* words of a stream that have been fetched: twice what 32 rows take */
    PREFIX_RING_APART = PREFIX_RING + 4
};

/* Memory on the card, all zeros at first. */
struct prefix_tables {
    __align__(16) u16 slot[PREFIX_SLOTS]; /* by the next 12 bits: the byte above, the length below */
    u32 chunk_log;                        /* 0: the head is wrong */
    u32 ticket;
};

struct prefix_reading {
    const u8 *in; /* on 4 bytes */
    u64 size;
    u64 count; /* codes */
    u32 width;
    prefix_tables *tables;
    u64 *chain; /* of warps: zeros at first */
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
        else if (*p.bad) /* found by what came before: it need not be read */
            p.tables->chunk_log = 0;
    }
    __syncthreads();
    if (wrong || own == 0)
        return;
    for (u32 at = canonical_entry(next, length, s) & (PREFIX_SLOTS - 1); at < PREFIX_SLOTS; at += 1u << own)
        p.tables->slot[at] = (u16)(s << 8 | own);
}

/* 16 bytes from the frame to shared memory, which are there after fetched(). */
__device__ __forceinline__ void fetch_sixteen(u32 *to, const uint4 *from)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
#else
    *(uint4 *)to = __ldg(from);
#endif
}

__device__ __forceinline__ void fetched()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/* The bits of one stream. A thread fetches its words in runs of four to a ring of its own, during the step before they
 * may be needed: a lane that waits for memory would make all others wait. Nothing branches but in fetching. What is
 * behind the end of the frame is not looked at: there a ring has what it had, and the stream is refused for its
 * length. */
struct prefix_bits {
    const uint4 *in; /* of the word 0 */
    u32 *ring;
    u32 there, next, last; /* words that are in the ring; that have been taken; that may be fetched */
    u32 low, high, have, ahead;

    __device__ __forceinline__ void fetch()
    {
        for (; there < last && there + 4 <= next + PREFIX_RING; there += 4)
            fetch_sixteen(ring + there % PREFIX_RING, in + there / 4);
    }
    __device__ __forceinline__ u32 word() { return ring[next++ % PREFIX_RING]; }
    __device__ __forceinline__ void open(const u8 *stream, const u8 *frame_end, u32 *room)
    {
        const u32 skip = 8 * (u32)((uintptr_t)stream & 15);
        in = (const uint4 *)(stream - skip / 8);
        ring = room;
        there = 0;
        next = skip / 32;
        last = (u32)min((u64)((frame_end - (const u8 *)in + 15) / 16 * 4), (u64)1 << 20);
        fetch();
        fetched();
        const u32 first = word(), second = word();
        low = __funnelshift_r(first, second, skip);
        high = second >> skip % 32;
        have = 64 - skip % 32;
        ahead = ring[next % PREFIX_RING];
    }
    __device__ __forceinline__ u32 symbol(const u16 *slots)
    {
        const u32 slot = slots[low & (PREFIX_SLOTS - 1)]; /* bit 4 is 0: lengths are shifts modulo 32 */
        low = __funnelshift_r(low, high, slot);
        high >>= slot & 15;
        have -= slot & 15;
        return slot >> 8;
    }
    /* Before every second symbol. */
    __device__ __forceinline__ void refill()
    {
        const bool needs = have < 32; /* two symbols have 24 bits at most */
        low |= needs ? ahead << have : 0;
        high = needs ? __funnelshift_l(ahead, 0, have) : high;
        have += needs ? 32 : 0;
        next += needs;
        ahead = ring[next % PREFIX_RING];
    }
    /* Whether the stream was read to its end exactly, and what is left of its last byte is zero. */
    __device__ __forceinline__ bool ends_well(const u8 *stream, u32 size) const
    {
        const u32 bits = 32 * next - have - 8 * (u32)((uintptr_t)stream & 15);
        return (bits + 7) / 8 == size && (bits % 8 == 0 || stream[size - 1] >> bits % 8 == 0);
    }
};

struct prefix_sharing {
    __align__(16) u16 slot[PREFIX_SLOTS];
    __align__(16) u8 stage[PREFIX_READERS][PREFIX_TOGETHER][PREFIX_STAGE];
    __align__(16) u32 ring[PREFIX_READERS][32][PREFIX_RING_APART];
};

/* Where this lane's stream starts, counted from the first; a warp's streams follow each other. Ends the chain's check
 * with the last warp. */
__device__ __forceinline__ u64 stream_start(const prefix_reading &p, u32 number, u64 chunks, u64 space, u32 *size)
{
    const u32 lane = lane_id();
    const u64 stream = (u64)number * 32 + lane;
    const u16 *directory = (const u16 *)(p.in + PREFIX_HEAD);
    *size = stream < PREFIX_STREAMS * chunks ? directory[stream] : 0;
    u32 end = *size;
    for (int d = 1; d < 32; d *= 2) {
        const u32 other = __shfl_up_sync(FULL, end, d);
        end += lane >= (u32)d ? other : 0;
    }
    const u32 all = __shfl_sync(FULL, end, 31);
    const u64 before = sum_before(p.chain, number, all);
    if (lane == 0 && (number + 1ull) * PREFIX_TOGETHER >= chunks && before + all != space)
        atomicOr(p.bad, 1u);
    return before + end - *size;
}

/* What becomes of the bytes: 32 rows of the four chunks of a warp at a time, 256 bytes of each. `at` is the place of
 * those of the first chunk, and `apart` how far the next chunk's are. */
struct prefix_packing {
    u8 *packed;
    struct held {
    };

    __device__ __forceinline__ void fetch(const prefix_reading &, u64, u64, held *) const {}
    __device__ __forceinline__ void put(const prefix_reading &p, u64 at, u64 apart, const held &,
                                        const u8 (*stage)[PREFIX_STAGE]) const
    {
        const u64 bytes = packed_bytes(p.count, p.width);
#pragma unroll
        for (u32 i = 0; i < PREFIX_TOGETHER; i++) {
            const u64 to = at + i * apart + 8 * lane_id();
            const u8 *from = stage[i] + 8 * lane_id();
            if (to + 8 <= bytes)
                *(uint2 *)(packed + to) = *(const uint2 *)from;
            else
                for (u32 b = 0; to + b < bytes; b++)
                    packed[to + b] = from[b];
        }
    }
};

template <class SINK>
__device__ __forceinline__ void read_chunks(const prefix_reading &p, const SINK &sink, prefix_sharing *s, u32 number,
                                            u64 chunks, u32 log)
{
    const u64 bytes = packed_bytes(p.count, p.width), head = PREFIX_HEAD + PREFIX_ENTRY * chunks;
    const u32 lane = lane_id(), warp = threadIdx.x / 32;
    u32 size;
    const u64 start = stream_start(p, number, chunks, p.size - head, &size);
    const u64 place = ((u64)number * PREFIX_TOGETHER) << log, apart = 1ull << log;
    const u64 first = place + lane / 8 * apart + lane % 8; /* its first byte */
    const bool lies_within = start + size <= p.size - head;
    const u64 rows_left = first < bytes ? (bytes - first + 7) / 8 : 0;
    const u32 rows = (u32)min(rows_left, (u64)1 << (log - 3));
    const u8 *stream = p.in + head + (lies_within ? start : 0);
    u8(*const stage)[PREFIX_STAGE] = s->stage[warp];
    u8 *const to = stage[lane / 8] + lane % 8;
    prefix_bits r;
    u32 byte = 0;
    r.open(stream, p.in + p.size, s->ring[warp][lane]);
    for (u32 step = 0; step < 1u << (log - 8); step++) {
        const u32 here = min(rows - min(rows, 32 * step), 32u);
        typename SINK::held held;
        sink.fetch(p, place + 256 * step, apart, &held);
        r.fetch();
        u32 i = 0;
#pragma unroll 4
        for (; i + 2 <= here; i += 2) {
            to[8 * i] = (u8)r.symbol(s->slot);
            to[8 * i + 8] = (u8)(byte = r.symbol(s->slot));
            r.refill();
        }
        if (i < here)
            to[8 * i] = (u8)(byte = r.symbol(s->slot));
        fetched();
        __syncwarp();
        sink.put(p, place + 256 * step, apart, held, stage);
        __syncwarp();
    }
    const u32 used = (u32)(p.count % 512 * p.width % 8); /* bits of the last byte of all */
    const bool is_last = rows > 0 && first + 8 * (rows - 1) == bytes - 1;
    if (!lies_within || !r.ends_well(stream, size) || (is_last && used && byte >> used))
        atomicOr(p.bad, 1u);
}

template <class SINK>
__global__ void __launch_bounds__(32 * PREFIX_READERS, 8) prefix_read_kernel(prefix_reading p, SINK sink)
{
    __shared__ prefix_sharing sharing;
    const u32 log = p.tables->chunk_log;
    if (log == 0)
        return;
    const u64 chunks = prefix_chunks(packed_bytes(p.count, p.width), log);
    for (u32 i = threadIdx.x; i < PREFIX_SLOTS / 8; i += 32 * PREFIX_READERS)
        ((uint4 *)sharing.slot)[i] = ((const uint4 *)p.tables->slot)[i];
    __syncthreads();
    for (;;) {
        u32 number = lane_id() == 0 ? atomicAdd(&p.tables->ticket, 1u) : 0;
        number = __shfl_sync(FULL, number, 0);
        if ((u64)number * PREFIX_TOGETHER >= chunks)
            return;
        __syncwarp();
        read_chunks(p, sink, &sharing, number, chunks, log);
    }
}

#endif
