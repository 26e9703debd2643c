/* Counter-based random numbers: each is a function of (seed, step, tensor, rank, purpose) and of an index, so that any
 * thread, vector lane or GPU warp can compute any of them. docs/numerics.md states the rule and how it was tested. */
#ifndef TG_BASE_RANDOM_H
#define TG_BASE_RANDOM_H

#include <stdint.h>

#include "base/any_device.h"
#include "tersegrad.h"

/* What a random number is for; numbers of different purposes are independent. */
typedef enum tg_purpose { TG_FOR_ROUNDING = 0, TG_FOR_SELECTION = 1, TG_FOR_SAMPLING = 2 } tg_purpose;

typedef struct tg_hash_key {
    uint32_t low, high;
} tg_hash_key;

TG_ANY_DEVICE uint64_t tg_mix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The key is mixed before it is combined with a counter: related seeds, steps, tensors and ranks must not give related
 * streams. */
TG_ANY_DEVICE tg_hash_key tg_hash_key_of(const tg_draw *draw, tg_purpose purpose)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t key = tg_mix64(draw->seed + golden);
    key = tg_mix64(key ^ tg_mix64(draw->step + 2 * golden));
    key = tg_mix64(key ^ tg_mix64(((uint64_t)draw->tensor << 32 | draw->rank) + 3 * golden));
    key = tg_mix64(key ^ tg_mix64((uint64_t)purpose + 4 * golden));
    return (tg_hash_key){.low = (uint32_t)key, .high = (uint32_t)(key >> 32)};
}

/* 32 random bits for a counter. For a fixed key this is a bijection of the counter. The second half of the key enters
 * between the multiplications, so that two keys never give shifted copies of one stream. */
TG_ANY_DEVICE uint32_t tg_hash(tg_hash_key key, uint32_t counter)
{
    uint32_t x = counter + key.low;
    x ^= x >> 16;
    x *= UINT32_C(0x7feb352d);
    x ^= key.high;
    x ^= x >> 15;
    x *= UINT32_C(0x846ca68b);
    return x ^ (x >> 16);
}

/* The 16 random bits of element i. Elements i and i + 16 of each aligned run of 32 share one hash, low and high half,
 * so that a vector of hashes serves two rows of elements without a shuffle. */
TG_ANY_DEVICE uint32_t tg_random16(tg_hash_key key, uint32_t i)
{
    uint32_t bits = tg_hash(key, (i >> 5) << 4 | (i & 15));
    return i & 16 ? bits >> 16 : bits & 0xffff;
}

#endif
