/* The array operations that all time is spent in, behind one table of functions. `scalar.c` is their definition; any other table
 * must give the same bytes. Arrays may be unaligned to vectors; n is at most TG_BLOCK unless a function says otherwise. */
#ifndef TG_KERNELS_KERNELS_H
#define TG_KERNELS_KERNELS_H

#include <stdbool.h>

#include "base/random.h"
#include "base/rans.h"
#include "tersegrad.h"

/* Work is done in blocks of this many elements, which fit the first-level cache; sums that reach the wire have this shape too
 * (docs/numerics.md). */
#define TG_BLOCK 4096u
/* Lanes of a published sum, and of packed codes. */
#define TG_LANES 16u
/* Codes of one packed group: 16 lanes of 32 rows. */
#define TG_GROUP 512u

/* Elements of the block that starts at `first`. */
static inline size_t tg_block_size(uint64_t count, uint64_t first)
{
    return count - first < TG_BLOCK ? (size_t)(count - first) : TG_BLOCK;
}

/* Bits of the largest finite float32, and of infinity: magnitudes compare as integers. */
#define TG_MAX_FINITE_BITS UINT32_C(0x7f7fffff)
#define TG_INFINITY_BITS UINT32_C(0x7f800000)
#define TG_MAGNITUDE_MASK UINT32_C(0x7fffffff)

typedef enum tg_sum_of {
    TG_SUM_OF_VALUES,
    TG_SUM_OF_MAGNITUDES,
    TG_SUM_OF_SQUARES
} tg_sum_of;

/* How one bucket's values become codes and back: code = floor((x - centre) * levels / radius + random) + levels. */
typedef struct tg_quantiser {
    float centre;
    float radius;
    float lift;   /* a power of two that keeps `gain` finite and `unit` precise for tiny radii; 1 for ordinary ones */
    float drop;   /* 1 / lift */
    float gain;   /* levels * 2^16 / (radius * lift); 0 for radius 0 */
    float unit;   /* lift times the value of one level, rounded so that levels * unit >= radius * lift */
    uint32_t levels;
    bool affine;  /* add the centre back */
} tg_quantiser;

typedef struct tg_kernels {
    const char *name; /* "cpu/scalar" */

    /* A tensor's elements to float32 and back. Narrowing limits to the largest finite value and counts those. */
    void (*widen)(tg_dtype dtype, const void *elements, size_t n, float *values);
    uint64_t (*narrow)(tg_dtype dtype, const float *values, size_t n, void *elements);

    /* The same for values on the wire, which are little-endian. */
    void (*load)(tg_dtype dtype, const uint8_t *wire, size_t n, float *values);
    uint64_t (*store)(tg_dtype dtype, const float *values, size_t n, uint8_t *wire);

    /* Index of the first infinity or NaN; n if there is none. */
    size_t (*first_nonfinite)(const float *values, size_t n);

    /* u = push + alpha * residual;  rest = push + beta * residual. */
    void (*compensate)(const float *push, const float *residual, float alpha, float beta, size_t n, float *u,
                       float *rest);
    /* residual = rest - sent. */
    void (*subtract)(const float *rest, const float *sent, size_t n, float *residual);
    /* sum = sum + weight * values;  result = weight * values. */
    void (*add_scaled)(const float *values, float weight, size_t n, float *sum);
    void (*set_scaled)(const float *values, float weight, size_t n, float *result);

    /* Largest magnitude, as bits: at least TG_INFINITY_BITS if a value is not finite. 0 for n = 0. */
    uint32_t (*max_magnitude)(const float *values, size_t n);
    /* Smallest and largest value, -0 below +0; n > 0, all finite. */
    void (*extremes)(const float *values, size_t n, float *least, float *largest);
    /* The published sum of one block, of values * scale1 * scale2. */
    float (*block_sum)(tg_sum_of what, const float *values, size_t n, float scale1, float scale2);

    /* Codes of consecutive elements of one bucket, of which the first is element `first` of the vector. */
    void (*quantise)(const tg_quantiser *quantiser, const float *values, size_t n, uint32_t first, tg_key key,
                     uint16_t *codes);
    void (*dequantise)(const tg_quantiser *quantiser, const uint16_t *codes, size_t n, float *values);

    /* The packed layout. All calls but the last of a vector have n a multiple of TG_GROUP. */
    void (*pack)(const uint16_t *codes, size_t n, unsigned width, uint8_t *packed);
    void (*unpack)(const uint8_t *packed, size_t n, unsigned width, uint16_t *codes);

    /* Selection keys: magnitudes as bits, or 31 random bits for each index. */
    void (*magnitude_keys)(const float *values, size_t n, uint32_t *keys);
    void (*random_keys)(tg_key key, uint32_t first, size_t n, uint32_t *keys);
    /* bins[(key >> shift) & mask] += 1 for every key with key >> prefix_shift == prefix. */
    void (*key_histogram)(const uint32_t *keys, size_t n, unsigned prefix_shift, uint32_t prefix, unsigned shift,
                          uint32_t mask, uint64_t *bins);
    uint64_t (*count_at_least)(const uint32_t *keys, size_t n, uint32_t least);

    /* For the entropy coder; NULL where there is nothing faster than its own loop. */
    const tg_rans_engine *rans;
} tg_kernels;

extern const tg_kernels tg_kernels_scalar;
#if defined(__x86_64__)
extern const tg_kernels tg_kernels_avx2;
#endif

/* The tables this machine can run, best first; NULL ends. */
const tg_kernels *tg_kernels_at(size_t index);

#endif
