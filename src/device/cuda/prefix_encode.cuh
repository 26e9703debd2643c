/* The streams of the prefix layout (docs/format.md, 4.5), written with a code that lies on the card. A block takes a
 * chunk; a thread has 32 rows of one stream at a time, whose bits it puts into a window of shared memory; then a warp
 * copies each stream to the frame in whole words. */
#ifndef TG_DEVICE_CUDA_PREFIX_ENCODE_CUH
#define TG_DEVICE_CUDA_PREFIX_ENCODE_CUH

#include "device/cuda/prefix_code.cuh"

enum {
    PREFIX_PIECE = 8192, /* bytes of a chunk that a block codes at once: 32 rows of one stream a thread */
    PREFIX_PIECES = 2,   /* of a chunk at most */
    PREFIX_WINDOW = PREFIX_PIECE / PREFIX_STREAMS * PREFIX_LONGEST / 32 + 2 /* words of a stream of a piece */
};

struct prefix_writing {
    u16 entry[PREFIX_SYMBOLS];
    u32 window[PREFIX_STREAMS][PREFIX_WINDOW];  /* words of the frame as they will be */
    u32 bits[PREFIX_PIECES][8][PREFIX_STREAMS]; /* of each warp */
    u64 start[PREFIX_STREAMS];                  /* of streams, in bytes behind the directory */
    u32 size[PREFIX_STREAMS];
    u32 chunk;
};

/* 8 words each of 8 neighbouring lanes are turned about: lane s gets word s of each. */
__device__ __forceinline__ void transpose_words(u32 v[8])
{
    const u32 lane = threadIdx.x;
#pragma unroll
    for (u32 d = 4; d > 0; d /= 2) {
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            if (i & d)
                continue;
            const u32 got = __shfl_xor_sync(FULL, lane & d ? v[i] : v[i + d], (int)d);
            v[i + d] = lane & d ? v[i + d] : got;
            v[i] = lane & d ? got : v[i];
        }
    }
}

/* Bytes 0 to 3 of four words are turned about. */
__device__ __forceinline__ void transpose_bytes(u32 a, u32 b, u32 c, u32 d, u32 *to)
{
    const u32 low = __byte_perm(a, b, 0x5140), high = __byte_perm(a, b, 0x7362);
    const u32 low2 = __byte_perm(c, d, 0x5140), high2 = __byte_perm(c, d, 0x7362);
    to[0] = __byte_perm(low, low2, 0x5410);
    to[1] = __byte_perm(low, low2, 0x7632);
    to[2] = __byte_perm(high, high2, 0x5410);
    to[3] = __byte_perm(high, high2, 0x7632);
}

/* The entries of this thread's 32 rows of its stream, two in a word, zeros for bytes behind the end. Stream lane % 8,
 * rows 32 (4 warp + lane / 8) on. */
__device__ __forceinline__ void load_entries(const prefix_job &p, const prefix_writing *w, u64 first, u32 entries[16])
{
    const u32 tid = threadIdx.x, stream = tid & 7;
    const u64 rows = first + (u64)(tid >> 3) * 256, at = rows + 16 * stream;
    u32 a[4] = {0}, b[4] = {0}, v[8];
    (void)load_sixteen(p, at, a);
    (void)load_sixteen(p, at + 128, b);
    transpose_bytes(a[0], a[2], b[0], b[2], v);
    transpose_bytes(a[1], a[3], b[1], b[3], v + 4);
    transpose_words(v);
    /* v[i] has rows 2 i, 2 i + 1 and those 16 behind */
    const u64 end = p.bytes;
#pragma unroll
    for (u32 i = 0; i < 16; i++) {
        const u32 pair = v[i & 7] >> (i < 8 ? 0 : 16);
        u32 low = w->entry[pair & 255], high = w->entry[pair >> 8 & 255];
        if (rows + 256 > end) {
            low = rows + 16 * i + stream < end ? low : 0;
            high = rows + 16 * i + 8 + stream < end ? high : 0;
        }
        entries[i] = low | high << 16;
    }
}

__device__ __forceinline__ u32 length_of(const u32 entries[16])
{
    u32 bits = 0;
#pragma unroll
    for (int i = 0; i < 16; i++)
        bits += (entries[i] >> 12 & 15) + (entries[i] >> 28);
    return bits;
}

/* Writes codes to a window from bit `at` on. Words that other threads have bits in are added to. */
__device__ __forceinline__ void put_codes(u32 *window, u32 at, const u32 entries[16])
{
    u32 *word = window + at / 32, have = at & 31;
    u64 bits = 0;
    bool others = true;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const u32 low = entries[i] & 0xffff, high = entries[i] >> 16;
        bits |= (u64)((low & 4095) | (high & 4095) << (low >> 12)) << have;
        have += (low >> 12) + (high >> 12);
        if (have >= 32) {
            if (others)
                atomicOr(word, (u32)bits);
            else
                *word = (u32)bits;
            others = false;
            word++;
            bits >>= 32;
            have -= 32;
        }
    }
    if (have)
        atomicOr(word, (u32)bits);
}

/* Sizes and starts of a chunk's streams, and its entry in the directory. The first warp. */
__device__ __forceinline__ void place_streams(const prefix_job &p, prefix_writing *w, u32 number, u64 chunks,
                                              u32 pieces)
{
    const u32 lane = lane_id();
    u32 bits = 0;
    for (u32 i = 0; lane < PREFIX_STREAMS && i < 8 * pieces; i++)
        bits += w->bits[i / 8][i % 8][lane];
    const u32 size = (bits + 7) / 8;
    u32 end = size;
    for (int d = 1; d < PREFIX_STREAMS; d *= 2) {
        const u32 other = __shfl_up_sync(FULL, end, d);
        end += lane >= (u32)d ? other : 0;
    }
    const u32 all = __shfl_sync(FULL, end, PREFIX_STREAMS - 1);
    const u64 before = sum_before(p.chain + number * prefix_chunks(p.bytes, PREFIX_LEAST_LOG), w->chunk, all);
    if (lane < PREFIX_STREAMS) {
        w->size[lane] = size;
        w->start[lane] = before + end - size;
        ((u16 *)(p.out + PREFIX_HEAD + PREFIX_ENTRY * (u64)w->chunk))[lane] = (u16)size;
    }
    if (lane == 0 && w->chunk == chunks - 1) {
        const u64 total = PREFIX_HEAD + PREFIX_ENTRY * chunks + before + all;
        const u64 expected = p.control->tries[number].expected;
        const u64 off = 8 * total > expected ? 8 * total - expected : expected - 8 * total;
        if (number == 1 || off <= expected / PREFIX_AS_EXPECTED)
            *p.coded = tg_coded{p.before + total, TG_LAYOUT_PREFIX, 1};
    }
}

/* Copies what is complete of stream `warp` from its window to the frame; the bits of a word that is not come first in
 * the next piece. `end` is in bits of the window, `start` where its first word goes. Returns the words copied. */
__device__ __forceinline__ u32 copy_window(u8 *start, u32 *window, u32 end, u32 skip, bool is_last)
{
    const u32 lane = lane_id(), whole = end / 32;
    for (u32 i = lane + (skip > 0); i < whole; i += 32)
        ((u32 *)start)[i] = window[i];
    const u32 bytes = is_last ? (end + 7) / 8 : 4 * whole;
    if (skip > 0 && lane >= skip && lane < min(4u, bytes))
        start[lane] = (u8)(window[0] >> (8 * lane));
    const u32 from = max(4 * whole, skip > 0 ? 4u : 0u);
    if (from + lane < bytes)
        start[from + lane] = (u8)(window[(from + lane) / 4] >> (8 * ((from + lane) & 3)));
    __syncwarp();
    const u32 carry = window[whole];
    __syncwarp();
    for (u32 i = lane; i <= whole; i += 32)
        window[i] = i == 0 ? carry : 0;
    return whole;
}

__device__ __forceinline__ void write_chunk(const prefix_job &p, prefix_writing *w, u32 number, u64 chunks)
{
    const u32 log = p.control->tries[number].chunk_log, pieces = 1u << (log - PREFIX_LEAST_LOG);
    const u32 tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, stream = lane & 7;
    const u64 first = (u64)w->chunk << log;
    u32 entries[16];
    for (u32 piece = 0; piece < pieces; piece++) {
        load_entries(p, w, first + piece * PREFIX_PIECE, entries);
        u32 bits = length_of(entries);
        bits += __shfl_xor_sync(FULL, bits, 8);
        bits += __shfl_xor_sync(FULL, bits, 16);
        if (lane < PREFIX_STREAMS)
            w->bits[piece][warp][lane] = bits;
    }
    for (u32 i = lane; i < PREFIX_WINDOW; i += 32)
        w->window[warp][i] = 0;
    __syncthreads();
    if (warp == 0)
        place_streams(p, w, number, chunks, pieces);
    __syncthreads();
    /* of stream `warp`, where its window starts, and of this thread's stream, the next bit in it */
    u8 *const streams = p.out + PREFIX_HEAD + PREFIX_ENTRY * chunks;
    u8 *to = streams + (w->start[warp] & ~3ull);
    u32 skip = (u32)(w->start[warp] & 3), end = 8 * skip, next = 8 * (u32)(w->start[stream] & 3);
    for (u32 piece = 0; piece < pieces; piece++) {
        if (pieces > 1)
            load_entries(p, w, first + piece * PREFIX_PIECE, entries);
        const u32 own = length_of(entries);
        u32 at = own;
        for (int d = 8; d < 32; d *= 2) {
            const u32 other = __shfl_up_sync(FULL, at, d);
            at += lane >= (u32)d ? other : 0;
        }
        at += next - own;
        for (u32 i = 0; i < 8; i++) {
            at += i < warp ? w->bits[piece][i][stream] : 0;
            next += w->bits[piece][i][stream];
            end += w->bits[piece][i][warp];
        }
        put_codes(w->window[stream], at, entries);
        __syncthreads();
        const u32 whole = copy_window(to, w->window[warp], end, skip, piece == pieces - 1);
        to += 4 * whole;
        skip = whole > 0 ? 0 : skip;
        end -= 32 * whole;
        next &= 31;
        __syncthreads();
    }
}

__global__ void __launch_bounds__(PREFIX_THREADS) prefix_write_kernel(prefix_job p, u32 number)
{
    __shared__ prefix_writing writing;
    prefix_writing *const w = &writing;
    prefix_try *const t = &p.control->tries[number];
    if (!t->is_short || !find_out(p, number))
        return;
    const u64 chunks = prefix_chunks(p.bytes, t->chunk_log);
    w->entry[threadIdx.x] = t->entry[threadIdx.x];
    for (;;) {
        if (threadIdx.x == 0)
            w->chunk = atomicAdd(&t->ticket, 1u);
        __syncthreads();
        if (w->chunk >= chunks)
            return;
        write_chunk(p, w, number, chunks);
    }
}

#endif
