/* The entropy layout (docs/format.md, 4.3), written with a plan that lies on the card: a warp for each chunk, the lanes
 * of the format being lanes of the warp. Streams are made from their ends, so each has room of its own, and moves to
 * its place when all sizes before it are known. */
#ifndef TG_DEVICE_CUDA_RANS_ENCODE_CUH
#define TG_DEVICE_CUDA_RANS_ENCODE_CUH

#include "device/cuda/rans_plan.cuh"

enum { RANS_WARPS = 4, RANS_AHEAD = 8 /* symbols that a lane fetches at once */ };

/* Words of a chunk: one for each symbol at most, and pairs fill up a run of 32 elements. */
static __host__ __device__ inline u64 rans_room(u64 elements) { return elements + 16; }
static __host__ __device__ inline u64 rans_scratch(u64 count)
{
    return 2 * (count + 16 * rans_chunks(count, RANS_CHUNK_LEAST));
}

/* Encodes a chunk; words end at room + capacity. Returns how many there are. */
__device__ __forceinline__ u32 encode_chunk(const rans_job &p, const rans_symbol *symbols, u64 first, u64 end,
                                            u16 *room, u32 capacity, u32 *state)
{
    const u32 lane = lane_id(), lanes = 1u << p.plan->lane_log, log = p.plan->table_log, tuple = p.plan->tuple;
    const u32 from = ~((1u << lane) - 1); /* this lane and those above */
    const u64 count = symbol_count(tuple, end - first);
    u32 x = RANS_STATE, left = capacity;
    for (long long base = (long long)((count + lanes - 1) / lanes) - 1; base >= 0; base -= RANS_AHEAD) {
        u32 symbol[RANS_AHEAD];
#pragma unroll
        for (int i = 0; i < RANS_AHEAD; i++) {
            const u64 y = (u64)(base - i) * lanes + lane;
            symbol[i] = base >= i && lane < lanes && y < count ? symbol_at(p, tuple, first, end, y) : (u32)RANS_SYMBOLS;
        }
#pragma unroll
        for (int i = 0; i < RANS_AHEAD; i++) {
            const bool in = symbol[i] < RANS_SYMBOLS;
            const rans_symbol e = symbols[in ? symbol[i] : 0];
            const bool full = in && x >= (u64)e.frequency << (32 - log);
            const u32 mask = __ballot_sync(FULL, full);
            if (full) {
                room[left - (u32)__popc(mask & from)] = (u16)x;
                x >>= 16;
            }
            left -= (u32)__popc(mask);
            const u32 q = e.reciprocal ? (u32)__umul64hi((u64)x, e.reciprocal) : x;
            x = in ? (q << log) + (x - q * e.frequency) + e.start : x;
        }
    }
    *state = x;
    return capacity - left;
}

__global__ void __launch_bounds__(32 * RANS_WARPS) rans_write_kernel(rans_job p)
{
    __shared__ rans_symbol symbols[RANS_SYMBOLS];
    if (!p.plan->ready || !find_out(p))
        return;
    for (u32 i = threadIdx.x; i < RANS_SYMBOLS; i += 32 * RANS_WARPS)
        symbols[i] = p.plan->symbol[i];
    __syncthreads();
    const u32 lane = lane_id(), lanes = 1u << p.plan->lane_log, log = p.plan->chunk_log;
    const u64 chunks = rans_chunks(p.codes.count, log);
    const u64 head = p.plan->head + 4 * chunks + padded(packed_bytes(p.codes.count, p.low));
    for (;;) {
        u32 chunk = lane == 0 ? atomicAdd(&p.plan->ticket, 1u) : 0;
        chunk = __shfl_sync(FULL, chunk, 0);
        if (chunk >= chunks)
            return;
        const u64 first = (u64)chunk << log, end = min(first + (1ull << log), p.codes.count);
        u16 *const room = (u16 *)p.scratch + chunk * rans_room(1ull << log);
        const u32 capacity = (u32)rans_room(end - first);
        u32 state;
        const u32 words = encode_chunk(p, symbols, first, end, room, capacity, &state);
        const u64 size = 4 * lanes + 2 * (u64)words, before = sum_before(p.chain, chunk, size);
        u8 *const out = p.out + head + before; /* on 2 bytes */
        if (lane < lanes) {
            ((u16 *)out)[2 * lane] = (u16)state;
            ((u16 *)out)[2 * lane + 1] = (u16)(state >> 16);
        }
        __syncwarp();
        for (u32 i = lane; i < words; i += 32)
            ((u16 *)out)[2 * lanes + i] = ((volatile u16 *)room)[capacity - words + i];
        if (lane == 0) {
            ((u32 *)(p.out + p.plan->head))[chunk] = (u32)size;
            if (chunk == chunks - 1)
                *p.coded = tg_coded{p.before + head + before + size, TG_LAYOUT_ENTROPY, 1};
        }
    }
}

/* The low bits of codes, packed, a thread for each word of whole groups and each byte of the rest. */
__global__ void __launch_bounds__(256) rans_low_kernel(rans_job p)
{
    if (!p.plan->ready || !find_out(p))
        return;
    const u32 mask = (1u << p.low) - 1;
    const u64 groups = p.codes.count / 512, words = groups * 16 * p.low, bytes = packed_bytes(p.codes.count, p.low);
    u8 *const out = p.out + p.plan->head + 4 * rans_chunks(p.codes.count, p.plan->chunk_log);
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < words + padded(bytes) - 4 * words;
         i += (u64)gridDim.x * 256) {
        const bool whole = i < words;
        /* bits of a stream of codes that are `step` elements apart */
        const u64 first = whole ? i / (16 * p.low) * 512 + i % 16 : groups * 512;
        const u32 step = whole ? 16 : 1, size = whole ? 32 : 8;
        const u32 bit = size * (u32)(whole ? i / 16 % p.low : i - words);
        u32 value = 0;
        for (u32 row = bit / p.low; row * p.low < bit + size && first + row * step < p.codes.count; row++) {
            const u32 low = code_at(p.codes, first + row * step) & mask;
            value |= row * p.low >= bit ? low << (row * p.low - bit) : low >> (bit - row * p.low);
        }
        if (whole)
            ((u32 *)out)[i] = value;
        else
            out[4 * words + (i - words)] = (u8)value;
    }
}

#endif
