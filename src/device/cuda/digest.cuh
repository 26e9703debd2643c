/* XXH3_64bits by a warp (docs/format.md, 2). Its eight accumulators are sums within runs of 1024 bytes, so lanes can
 * share the stripes of a run; only between runs there is an order. */
#ifndef TG_DEVICE_CUDA_DIGEST_CUH
#define TG_DEVICE_CUDA_DIGEST_CUH

#include "device/cuda/runtime.cuh"

extern "C" {
#include "base/bytes.h"
}

/* ---- constants of XXH3 ---- */

static constexpr u64 prime32_1 = 0x9E3779B1u, prime32_2 = 0x85EBCA77u, prime32_3 = 0xC2B2AE3Du;
static constexpr u64 prime64_1 = 0x9E3779B185EBCA87ull, prime64_2 = 0xC2B2AE3D27D4EB4Full,
                     prime64_3 = 0x165667B19E3779F9ull, prime64_4 = 0x85EBCA77C2B2AE63ull,
                     prime64_5 = 0x27D4EB2F165667C5ull;

static constexpr u8 secret_bytes[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4,
    0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
    0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43,
    0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
    0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
    0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7,
    0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78,
    0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16,
    0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
    0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};

/* Eight bytes of the secret from each place on. */
struct secret_words {
    u64 at[185];
};
static constexpr secret_words secret_words_of()
{
    secret_words words = {};
    for (int place = 0; place < 185; place++)
        for (int i = 7; i >= 0; i--)
            words.at[place] = words.at[place] << 8 | secret_bytes[place + i];
    return words;
}
static __device__ const secret_words secret_table = secret_words_of();
static __device__ const u64 first_accumulators[8] = {prime32_3, prime64_1, prime64_2, prime64_3,
                                                     prime64_4, prime32_2, prime64_5, prime32_1};

__device__ __forceinline__ u64 secret_at(u32 place) { return __ldg(&secret_table.at[place]); }

/* ---- mixing ---- */

__device__ __forceinline__ u64 fold(u64 a, u64 b) { return (a * b) ^ __umul64hi(a, b); }

__device__ __forceinline__ u64 avalanche(u64 h)
{
    h ^= h >> 37;
    h *= 0x165667919E3779F9ull;
    return h ^ (h >> 32);
}

__device__ __forceinline__ u64 product(u64 word, u64 key)
{
    const u64 x = word ^ key;
    return (u64)(u32)x * (x >> 32);
}

__device__ __forceinline__ u64 scramble(u64 accumulator, u64 key)
{
    accumulator ^= accumulator >> 47;
    accumulator ^= key;
    return accumulator * prime32_1;
}

/* Accumulator number lane % 8 to the digest, in all lanes. */
__device__ __forceinline__ u64 merged(u64 accumulator, u64 size)
{
    const u64 mine = accumulator ^ secret_at(11 + 8 * (lane_id() & 7));
    u64 sum = fold(mine, __shfl_xor_sync(FULL, mine, 1));
    sum += __shfl_xor_sync(FULL, sum, 2);
    sum += __shfl_xor_sync(FULL, sum, 4);
    return avalanche(size * prime64_1 + sum);
}

/* ---- any number of bytes ---- */

__device__ __forceinline__ u64 word_at(const u8 *p)
{
    return ((uintptr_t)p & 7) == 0 ? *(const u64 *)p : (u64)tg_load64(p);
}

/* Up to 16 bytes: every lane does the same. */
static inline __device__ __noinline__ u64 digest_tiny(const u8 *p, u32 size)
{
    if (size > 8) {
        const u64 low = tg_load64(p) ^ (secret_at(24) ^ secret_at(32));
        const u64 high = tg_load64(p + size - 8) ^ (secret_at(40) ^ secret_at(48));
        u64 swapped = 0;
        for (int i = 0; i < 8; i++)
            swapped |= (low >> (8 * i) & 255) << (56 - 8 * i);
        return avalanche(size + swapped + high + fold(low, high));
    }
    if (size >= 4) {
        const u64 both = tg_load32(p + size - 4) + ((u64)tg_load32(p) << 32);
        u64 h = both ^ (secret_at(8) ^ secret_at(16));
        h ^= (h << 49 | h >> 15) ^ (h << 24 | h >> 40);
        h *= 0x9FB21C651E98DF25ull;
        h ^= (h >> 35) + size;
        h *= 0x9FB21C651E98DF25ull;
        return h ^ (h >> 28);
    }
    u64 h = secret_at(56) ^ secret_at(64);
    if (size > 0) {
        const u32 mixed = (u32)p[0] << 16 | (u32)p[size >> 1] << 24 | (u32)p[size - 1] | size << 8;
        h = (u64)mixed ^ (u64)(u32)(secret_at(0) ^ secret_at(0) >> 32);
    }
    h ^= h >> 33;
    h *= prime64_2;
    h ^= h >> 29;
    h *= prime64_3;
    return h ^ (h >> 32);
}

__device__ __forceinline__ u64 mix_16(const u8 *p, u32 place)
{
    return fold(word_at(p) ^ secret_at(place), word_at(p + 8) ^ secret_at(place + 8));
}

/* 17 to 240 bytes: each lane has one part of a sum. */
static inline __device__ __noinline__ u64 digest_short(const u8 *p, u32 size)
{
    const u32 lane = lane_id();
    u64 first = 0, rest = 0;
    if (size <= 128) {
        const u32 pairs = (size - 1) / 32 + 1;
        if (lane < 2 * pairs)
            first = mix_16(lane & 1 ? p + size - 16 * (lane / 2 + 1) : p + 16 * (lane / 2), 16 * lane);
    } else {
        const u32 rounds = size / 16;
        if (lane < 8)
            first = mix_16(p + 16 * lane, 16 * lane);
        else if (lane < rounds)
            rest = mix_16(p + 16 * lane, 16 * (lane - 8) + 3);
        else if (lane == rounds)
            rest = mix_16(p + size - 16, 136 - 17);
    }
    for (int d = 16; d > 0; d /= 2) {
        first += __shfl_xor_sync(FULL, first, d);
        rest += __shfl_xor_sync(FULL, rest, d);
    }
    const u64 h = avalanche(size * prime64_1 + first);
    return size <= 128 ? h : avalanche(h + rest);
}

/* What one word of a stripe adds: to its own accumulator, and to its neighbour's. */
struct addends {
    u64 own, next;
    __device__ __forceinline__ void add(u64 word, u64 key)
    {
        own += product(word, key);
        next += word;
    }
    /* The sum of all lanes with the same accumulator. */
    __device__ __forceinline__ u64 total() const
    {
        u64 sum = own + __shfl_xor_sync(FULL, next, 1);
        sum += __shfl_xor_sync(FULL, sum, 8);
        return sum + __shfl_xor_sync(FULL, sum, 16);
    }
};

/* More than 240 bytes. Lane 8 s + i has word i of the stripes s, s + 4, ... of each run; those of a run are asked for
 * while the one before is added up. */
static inline __device__ __noinline__ u64 digest_long(const u8 *p, u64 size)
{
    const u32 i = lane_id() & 7, s = lane_id() >> 3;
    const u64 runs = (size - 1) / 1024;
    const bool aligned = ((uintptr_t)p & 7) == 0;
    u64 key[4], next[4], accumulator = first_accumulators[i];
    const auto stripes_of = [&](u64 run) {
        return run < runs ? 16 : run == runs ? (u32)((size - 1 - 1024 * runs) / 64) : 0;
    };
    const auto ask = [&](u64 run) {
        const u8 *from = p + 1024 * run + 64 * s + 8 * i;
        const u32 stripes = stripes_of(run);
#pragma unroll
        for (u32 q = 0; q < 4; q++) {
            next[q] = 0;
            if (s + 4 * q < stripes)
                next[q] = aligned ? *(const u64 *)(from + 256 * q) : (u64)tg_load64(from + 256 * q);
        }
    };
    ask(0);
    const u64 last = word_at(p + size - 64 + 8 * i), last_key = secret_at(121 + 8 * i),
              scrambler = secret_at(128 + 8 * i);
#pragma unroll
    for (u32 q = 0; q < 4; q++)
        key[q] = secret_at(8 * (s + 4 * q + i));
    for (u64 run = 0; run <= runs; run++) {
        const u32 stripes = stripes_of(run);
        u64 word[4];
        addends a = {0, 0};
#pragma unroll
        for (u32 q = 0; q < 4; q++)
            word[q] = next[q];
        ask(run + 1);
#pragma unroll
        for (u32 q = 0; q < 4; q++)
            if (s + 4 * q < stripes)
                a.add(word[q], key[q]);
        if (run == runs && s == 0)
            a.add(last, last_key);
        accumulator += a.total();
        if (run < runs)
            accumulator = scramble(accumulator, scrambler);
    }
    return merged(accumulator, size);
}

__device__ __forceinline__ u64 warp_digest(const u8 *p, u64 size)
{
    return size > 240 ? digest_long(p, size) : size > 16 ? digest_short(p, (u32)size) : digest_tiny(p, (u32)size);
}

/* ---- a whole leaf, 4096 bytes on 16 ---- */

/* What a lane needs of the secret: lane = 4 * stripe + pair of accumulators, eight stripes at a time. */
struct leaf_lane {
    u64 key[2][2], last[2];
    __device__ __forceinline__ explicit leaf_lane(u32 lane)
    {
#pragma unroll
        for (u32 a = 0; a < 2; a++) {
            const u32 i = 2 * (lane & 3) + a, stripe = lane >> 2;
            key[0][a] = secret_at(8 * (stripe + i));
            key[1][a] = secret_at(8 * (stripe + 8 + i));
            last[a] = secret_at(121 + 8 * i);
        }
    }
};

/* d[j] are the 16 bytes at 512 j + 16 lane. */
__device__ __forceinline__ u64 digest_leaf(const uint4 (&d)[8], const leaf_lane &l, u32 lane)
{
    const u32 stripe = lane >> 2, pair = lane & 3;
    u64 s[8]; /* 2 * run + accumulator of the pair */
#pragma unroll
    for (int run = 0; run < 4; run++) {
        u64 even = 0, odd = 0;
#pragma unroll
        for (int q = 0; q < 2; q++) {
            const u64 x = (u64)d[2 * run + q].y << 32 | d[2 * run + q].x,
                      y = (u64)d[2 * run + q].w << 32 | d[2 * run + q].z;
            const bool last = run == 3 && q == 1 && stripe == 7;
            even += product(x, last ? l.last[0] : l.key[q][0]) + y;
            odd += product(y, last ? l.last[1] : l.key[q][1]) + x;
        }
        s[2 * run] = even;
        s[2 * run + 1] = odd;
    }
    /* Over the eight stripes: half of the sums goes the other way at each step, and a lane ends with sum `stripe`. */
    const bool high = stripe & 4, middle = stripe & 2, low = stripe & 1;
    u64 a[4], b[2];
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = (high ? s[4 + i] : s[i]) + __shfl_xor_sync(FULL, high ? s[i] : s[4 + i], 16);
#pragma unroll
    for (int i = 0; i < 2; i++)
        b[i] = (middle ? a[2 + i] : a[i]) + __shfl_xor_sync(FULL, middle ? a[i] : a[2 + i], 8);
    const u64 mine = (low ? b[1] : b[0]) + __shfl_xor_sync(FULL, low ? b[0] : b[1], 4);
    /* Lanes of odd stripes go on with the odd accumulator of their pair. */
    const u32 i = 2 * pair + (low ? 1 : 0);
    u64 accumulator = first_accumulators[i];
    const u64 key = secret_at(128 + 8 * i);
#pragma unroll
    for (int run = 0; run < 4; run++) {
        accumulator += __shfl_sync(FULL, mine, (int)(4 * (2 * run + (low ? 1 : 0)) + pair));
        if (run < 3)
            accumulator = scramble(accumulator, key);
    }
    const u64 x = accumulator ^ secret_at(11 + 8 * i);
    u64 sum = fold(x, __shfl_xor_sync(FULL, x, 4));
    sum += __shfl_xor_sync(FULL, sum, 1);
    sum += __shfl_xor_sync(FULL, sum, 2);
    return avalanche(4096 * prime64_1 + sum);
}

#endif
