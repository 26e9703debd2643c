/* What the coders of quantised levels share on the card: codes in the packed layout, and sums along a chain of
 * blocks. */
#ifndef TG_DEVICE_CUDA_CODING_CUH
#define TG_DEVICE_CUDA_CODING_CUH

#include "device/cuda/coding.h"

/* Packed codes (docs/format.md, 4.1), on 4 bytes; or plain ones. */
struct tg_packed_codes {
    const u8 *bytes;
    u64 count;
    u32 width;
    const u16 *plain; /* if not NULL, the codes are here */
    const u32 *known; /* if not NULL, the count is at most that, and here */
};

static __host__ __device__ inline u64 padded(u64 bytes) { return (bytes + 3) / 4 * 4; }
static __host__ __device__ inline u64 packed_bytes(u64 count, u32 width) { return (count * width + 7) / 8; }

/* First of all in every kernel that asks how many codes there are. */
__device__ __forceinline__ void find_count(tg_packed_codes &p)
{
    if (p.known)
        p.count = *p.known;
}

__device__ __forceinline__ u32 code_at(const tg_packed_codes &p, u64 i)
{
    if (p.plain)
        return p.plain[i];
    const u64 group = i / 512;
    const u32 mask = (1u << p.width) - 1;
    if (group < p.count / 512) {
        const u32 bit = (u32)(i % 512 / 16) * p.width, lane = (u32)(i % 16);
        const u32 *words = (const u32 *)(p.bytes + group * 64 * p.width) + lane + 16 * (bit / 32);
        const u32 low = __ldg(words), high = bit % 32 + p.width > 32 ? __ldg(words + 16) : 0;
        return __funnelshift_r(low, high, bit & 31) & mask;
    }
    const u64 first = group * 64 * p.width, bit = (i % 512) * p.width;
    const u8 *at = p.bytes + first + bit / 8;
    const u64 left = packed_bytes(p.count, p.width) - first - bit / 8;
    u32 bits = at[0];
    for (u32 b = 1; b < 3 && b < left; b++)
        bits |= (u32)at[b] << (8 * b);
    return bits >> (bit & 7) & mask;
}

/* Packs the n codes of a group (512, or fewer at the end), by a warp. */
__device__ __forceinline__ void pack_codes(const u16 *codes, u32 n, u32 width, u8 *out)
{
    const bool whole = n == 512;
    const u32 parts = whole ? 16 * width : (n * width + 7) / 8, size = whole ? 32 : 8;
    for (u32 i = lane_id(); i < parts; i += 32) {
        const u32 first = whole ? i % 16 : 0, step = whole ? 16 : 1, bit = size * (whole ? i / 16 : i);
        u32 value = 0;
        for (u32 row = bit / width; row * width < bit + size && first + row * step < n; row++) {
            const u32 code = codes[first + row * step];
            value |= row * width >= bit ? code << (row * width - bit) : code >> (bit - row * width);
        }
        if (whole)
            ((u32 *)out)[i] = value;
        else
            out[i] = (u8)value;
    }
}

/* ---- sums along a chain ---- */

/* Blocks (or warps) that take their numbers from a ticket each publish a size, and learn the sum of those before. A
 * state is 0 until its size is known, and then the size alone, or with all before it. Called by a whole warp, which
 * looks at many states at once: as many blocks as a card runs may have begun together. */
__device__ __forceinline__ u64 sum_before(u64 *states, u32 number, u64 own)
{
    constexpr u32 EACH = 4;
    const u64 whole = 1ull << 63, alone = 1ull << 62, sum = alone - 1;
    const u32 lane = lane_id();
    if (lane == 0)
        atomicExch(&states[number], (number == 0 ? whole : alone) | own);
    u64 before = 0;
    for (long long from = (long long)number - 1; from >= 0; from -= 32 * EACH) {
        u64 state[EACH]; /* row by row, so that the nearest ones come first */
#pragma unroll
        for (u32 k = 0; k < EACH; k++) {
            const long long at = from - 32 * k - lane;
            state[k] = at >= 0 ? *(volatile u64 *)&states[at] : whole;
        }
        bool ended = false;
#pragma unroll
        for (u32 k = 0; k < EACH; k++) {
            if (ended)
                continue;
            while (__any_sync(FULL, state[k] >> 62 == 0))
                if (state[k] >> 62 == 0)
                    state[k] = *(volatile u64 *)&states[from - 32 * k - lane];
            const u32 ends = __ballot_sync(FULL, state[k] >> 63 != 0);
            const u32 last = ends ? (u32)__ffs((int)ends) - 1 : 31;
            before += lane <= last ? state[k] & sum : 0; /* each lane a part, until the end */
            ended = ends != 0;
        }
        if (ended)
            break;
    }
    for (int d = 16; d > 0; d /= 2)
        before += __shfl_xor_sync(FULL, before, d);
    if (lane == 0 && number > 0)
        atomicExch(&states[number], whole | (own + before));
    return before;
}

/* log2(m) in units of 2^-16, rounded down: tg_log2_fixed of code/bit_tools.h. */
__device__ __forceinline__ u32 log2_fixed(u64 m)
{
    const u32 whole = 63 - (u32)__clzll((long long)m);
    u64 x = whole > 31 ? m >> (whole - 31) : m << (31 - whole);
    u32 result = whole;
    for (int bit = 0; bit < 16; bit++) {
        x = x * x >> 31;
        result = result << 1 | (u32)(x >> 32);
        x >>= x >> 32;
    }
    return result;
}

#endif
