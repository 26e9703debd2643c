/* The entropy layout (docs/format.md, 4.3), read: streams become packed codes again, and every rule is checked on the
 * way. The bytes are untrusted. */
#ifndef TG_DEVICE_CUDA_RANS_DECODE_CUH
#define TG_DEVICE_CUDA_RANS_DECODE_CUH

#include "device/cuda/rans_encode.cuh"

enum { RANS_SHARED_LOG = 12, RANS_MOST_LOG = 16 };

/* What a slot of probability stands for. */
struct rans_slot {
    u32 frequency;
    u32 place; /* in the symbol's slots, and the symbol above 16 bits */
};

/* Memory on the card, all zeros at first. */
struct rans_tables {
    u32 frequency[RANS_SYMBOLS], start[RANS_SYMBOLS];
    u32 table_log; /* 0: the head is wrong */
    u32 tuple, lane_log, chunk_log, head, ticket;
};

struct rans_reading {
    const u8 *in; /* on 4 bytes */
    u64 size;
    u64 count; /* codes */
    u32 width, low, alphabet;
    rans_tables *tables;
    rans_slot *slots; /* 2^16 */
    u64 *chain;       /* of chunks of the least size: zeros at first */
    u8 *packed;       /* result */
    u32 *bad;
};

/* ---- the head ---- */

/* The frequency table, by one thread. */
__device__ __forceinline__ bool read_table(const rans_reading &p, rans_tables *t, u32 flags, u32 bytes)
{
    const u32 symbols = t->tuple == 2 ? p.alphabet * p.alphabet : p.alphabet;
    const u32 kind = (flags & 0x80 ? 1 : 0) | (flags & 0x40 ? 2 : 0), covered = kind & 1 ? (symbols + 1) / 2 : symbols;
    bit_stream s = {p.in + RANS_HEAD, p.in + p.size, 8ull * bytes, 0};
    u32 unassigned = 1u << t->table_log, plus_one = 1;
    for (u32 i = 0; i < RANS_SYMBOLS; i++)
        t->frequency[i] = 0;
    for (u32 i = 0; i < covered; i++) {
        const u32 image = kind & 1 ? symbols - 1 - i : i, times = image == i ? 1 : 2;
        if (is_listed(kind, i, symbols) && !omega_read(s, &plus_one))
            return false;
        if (plus_one - 1 > unassigned / times)
            return false;
        t->frequency[i] = t->frequency[image] = plus_one - 1;
        unassigned -= (plus_one - 1) * times;
    }
    u32 sum = 0;
    for (u32 i = 0; i < RANS_SYMBOLS; i++) {
        t->start[i] = sum;
        sum += t->frequency[i];
    }
    return unassigned == 0 && s.is_done();
}

__device__ __forceinline__ bool are_zeros(const u8 *bytes, u64 from, u64 to)
{
    bool zeros = true;
    for (u64 i = from; i < to; i++)
        zeros = zeros && bytes[i] == 0;
    return zeros;
}

/* Everything that comes before the streams, by one thread. */
__device__ __forceinline__ bool read_head(const rans_reading &p, rans_tables *t)
{
    if (p.size < RANS_HEAD)
        return false;
    const u32 log = p.in[0], flags = p.in[1] & 0xc0, bytes = p.in[4] | (u32)p.in[5] << 8;
    t->tuple = p.in[1] & 0x3f;
    t->lane_log = p.in[2];
    t->chunk_log = p.in[3];
    t->head = RANS_HEAD + (u32)padded(bytes);
    if (log < 8 || log > RANS_MOST_LOG || log % 2 || p.in[6] || p.in[7] ||
        (t->tuple != 1 && !(t->tuple == 2 && p.alphabet <= 16 && !flags)))
        return false;
    if ((t->lane_log != 0 && t->lane_log != 2 && t->lane_log != 5) || t->chunk_log < RANS_CHUNK_LEAST ||
        t->chunk_log > RANS_CHUNK_MOST || p.size < t->head || !are_zeros(p.in, RANS_HEAD + bytes, t->head))
        return false;
    const u64 low = t->head + 4 * rans_chunks(p.count, t->chunk_log), low_bytes = packed_bytes(p.count, p.low);
    if (p.size < low + padded(low_bytes) || !are_zeros(p.in, low + low_bytes, low + padded(low_bytes)))
        return false;
    const u32 used = (u32)(p.count % 512 * p.low % 8); /* bits of the last byte */
    if (used && p.in[low + low_bytes - 1] >> used)
        return false;
    t->table_log = log;
    return read_table(p, t, flags, bytes);
}

__global__ void __launch_bounds__(256) rans_table_kernel(rans_reading p)
{
    __shared__ u32 fine;
    rans_tables *const t = p.tables;
    if (threadIdx.x == 0) {
        fine = read_head(p, t);
        if (!fine) {
            t->table_log = 0;
            atomicOr(p.bad, 1u);
        }
    }
    __syncthreads();
    if (!fine)
        return;
    for (u32 slot = threadIdx.x; slot < 1u << t->table_log; slot += 256) {
        u32 low = 0, high = RANS_SYMBOLS - 1; /* the last that starts at or before it; those behind have no slots */
        while (low < high) {
            const u32 middle = (low + high + 1) / 2;
            if (t->start[middle] <= slot)
                low = middle;
            else
                high = middle - 1;
        }
        p.slots[slot] = rans_slot{t->frequency[low], (slot - t->start[low]) | low << 16};
    }
}

/* ---- the streams ---- */

/* Words of one chunk, handed to the lanes in their order. */
struct rans_words {
    const u16 *next;
    u64 left;
};

/* The next step of all lanes that have a symbol. False if words are missing. */
__device__ __forceinline__ bool step_states(const rans_slot *slots, u32 log, bool in, u32 *x, rans_words &w,
                                            u32 *symbol)
{
    const u32 before = (1u << lane_id()) - 1;
    const rans_slot e = slots[*x & ((1u << log) - 1)];
    const u32 next = e.frequency * (*x >> log) + (e.place & 0xffff);
    const bool needs = in && next < RANS_STATE;
    const u32 mask = __ballot_sync(FULL, needs), at = (u32)__popc(mask & before), all = (u32)__popc(mask);
    const bool there = all <= w.left;
    const u32 word = needs && there ? w.next[at] : 0;
    *x = in ? (needs ? next << 16 | word : next) : *x;
    *symbol = e.place >> 16;
    w.next += there ? all : 0;
    w.left -= there ? all : 0;
    return there;
}

/* Reads a chunk by a warp, group after group, through `codes`. */
__device__ __forceinline__ bool read_chunk(const rans_reading &p, const rans_slot *slots, u64 first, u64 end,
                                           const u8 *stream, u64 size, u16 *codes)
{
    const rans_tables *const t = p.tables;
    const u32 lane = lane_id(), lanes = 1u << t->lane_log, log = t->table_log;
    const u8 *const low = p.in + t->head + 4 * rans_chunks(p.count, t->chunk_log);
    const tg_packed_codes low_bits = {low, p.count, p.low};
    if (size < 4 * lanes || size % 2 || (uintptr_t)stream % 2)
        return false;
    const u16 *const states = (const u16 *)stream;
    u32 x = lane < lanes ? states[2 * lane] | (u32)states[2 * lane + 1] << 16 : (u32)RANS_STATE;
    rans_words w = {states + 2 * lanes, size / 2 - 2 * lanes};
    bool sound = __all_sync(FULL, x >= RANS_STATE);
    for (u64 group = first; group < end && sound; group += 512) {
        const u32 n = (u32)min(end - group, (u64)512), count = (u32)symbol_count(t->tuple, n);
        for (u32 y = lane; y < count + lane && sound; y += lanes) {
            const bool in = lane < lanes && y < count;
            u32 symbol;
            sound = step_states(slots, log, in, &x, w, &symbol);
            if (in && t->tuple == 1)
                codes[y] = (u16)symbol;
            const u32 a = 32 * (y / 16) + y % 16;
            if (in && t->tuple == 2 && a < n)
                codes[a] = (u16)(symbol % p.alphabet);
            if (in && t->tuple == 2 && a + 16 < n)
                codes[a + 16] = (u16)(symbol / p.alphabet);
        }
        __syncwarp();
        for (u32 i = lane; p.low > 0 && i < n; i += 32)
            codes[i] = (u16)((u32)codes[i] << p.low | code_at(low_bits, group + i));
        __syncwarp();
        pack_codes(codes, n, p.width, p.packed + group / 8 * p.width);
        __syncwarp();
    }
    return sound && __all_sync(FULL, x == RANS_STATE) && w.left == 0;
}

__global__ void __launch_bounds__(32 * RANS_WARPS) rans_expand_kernel(rans_reading p)
{
    __shared__ rans_slot shared_slots[1 << RANS_SHARED_LOG];
    __shared__ u16 codes[RANS_WARPS][512];
    rans_tables *const t = p.tables;
    const u32 log = t->table_log;
    if (log == 0)
        return;
    const bool fits = log <= RANS_SHARED_LOG;
    for (u32 i = threadIdx.x; fits && i < 1u << log; i += 32 * RANS_WARPS)
        shared_slots[i] = p.slots[i];
    __syncthreads();
    const u64 chunks = rans_chunks(p.count, t->chunk_log);
    const u64 head = t->head + 4 * chunks + padded(packed_bytes(p.count, p.low)), space = p.size - head;
    for (;;) {
        u32 chunk = lane_id() == 0 ? atomicAdd(&t->ticket, 1u) : 0;
        chunk = __shfl_sync(FULL, chunk, 0);
        if (chunk >= chunks)
            return;
        const u64 size = ((const u32 *)(p.in + t->head))[chunk], before = sum_before(p.chain, chunk, size);
        const u64 first = (u64)chunk << t->chunk_log, end = min(first + (1ull << t->chunk_log), p.count);
        bool sound = before + size <= space && (chunk < chunks - 1 || before + size == space);
        sound = sound && read_chunk(p, fits ? shared_slots : p.slots, first, end, p.in + head + before, size,
                                    codes[threadIdx.x / 32]);
        if (!sound && lane_id() == 0)
            atomicOr(p.bad, 1u);
    }
}

#endif
