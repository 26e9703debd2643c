/* Random numbers for data and models: each is a function of a key and a counter, so that every rank can make any row of
 * a data set, any batch and the first weights by itself, and a resumed run needs no state but its step. */
#ifndef TRAIN_RANDOM_H
#define TRAIN_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* What a stream is for; streams of different purposes are unrelated. */
enum random_purpose { FOR_ROWS = 1, FOR_OPTIMUM, FOR_CENTRES, FOR_WEIGHTS, FOR_SHUFFLE };

static inline uint64_t mix_bits(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* The key of stream `index` of a purpose. */
static inline uint64_t random_key(uint64_t seed, enum random_purpose purpose, uint64_t index)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t key = mix_bits(seed + golden);
    key = mix_bits(key ^ mix_bits((uint64_t)purpose + 2 * golden));
    return mix_bits(key ^ mix_bits(index + 3 * golden));
}

/* Counters 0 ... count - 1 of a key, as normal numbers: mean 0, variance 1, independent. */
void fill_normal(uint64_t key, float *out, size_t count);

/* The image of place `at` of [0, size) in the permutation of this key. */
uint64_t permuted(uint64_t key, uint64_t size, uint64_t at);

#endif
