/* The array operations in which all time is spent, behind one table of functions, a kernel set. `scalar.c` is their
 * definition; every other set must give the same bytes. Arrays need no alignment beyond that of their elements; n is at
 * most TG_BLOCK unless a function says otherwise. */
#ifndef TG_KERNELS_KERNELS_H
#define TG_KERNELS_KERNELS_H

#include <stdbool.h>

#include "base/gaps_engine.h"
#include "base/random.h"
#include "base/rans_engine.h"
#include "tersegrad.h"

/* Work is done in blocks of this many elements, which fit the first-level cache. Sums whose result is sent are also
 * summed in blocks of this size (docs/numerics.md). */
#define TG_BLOCK 4096u
/* Lanes of packed codes. */
#define TG_LANES 16u
/* Lanes of a sum whose result is sent: enough that no addition waits for the one before. */
#define TG_SUM_LANES 64u
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

typedef enum tg_sum_of { TG_SUM_OF_VALUES, TG_SUM_OF_MAGNITUDES, TG_SUM_OF_SQUARES } tg_sum_of;

/* How the values of one bucket become codes and back: code = floor((x - centre) * levels / radius + random) +
 * levels. */
typedef struct tg_quantiser {
    float centre;
    float radius;
    float lift; /* a power of two that keeps `gain` finite and `unit` precise for tiny radii; 1 for ordinary ones */
    float drop; /* 1 / lift */
    float gain; /* levels * 2^16 / (radius * lift); 0 for radius 0 */
    float unit; /* lift times the value of one level, rounded so that levels * unit >= radius * lift */
    uint32_t levels;
    bool affine; /* add the centre back */
} tg_quantiser;

/* Where the scale of a bucket comes from. */
typedef enum tg_norm {
    TG_NORM_L2,
    TG_NORM_MAX,
    TG_NORM_GIVEN /* it has been stored before */
} tg_norm;

/* A run of packed symmetric levels within one block, to be encoded. */
typedef struct tg_levels_encoding {
    const float *gradient;
    float *residual; /* NULL: no feedback */
    float *undo;     /* undo buffer for the residual, aligned to a cache line; or NULL */
    float alpha, beta;
    tg_norm norm;
    bool exceeds; /* a value may exceed its radius by more than rounding */
    uint32_t levels;
    unsigned width;  /* of a code */
    uint32_t bucket; /* divides the run, and is a multiple of TG_FUSED_BUCKET */
    uint32_t first;  /* index of the first element: a multiple of TG_GROUP */
    tg_hash_key key;
    uint8_t *scales; /* of the run's buckets, on the wire */
    uint8_t *packed; /* the run's codes, on the wire */
    float *u, *rest; /* scratch with room for the run, aligned to cache lines */
} tg_levels_encoding;

/* A run of packed levels within one block, to be decoded; or of signs: width 1, where code 1 is the radius and code 0
 * its negative. */
typedef struct tg_levels_decoding {
    uint32_t levels;
    unsigned width;
    uint32_t bucket;       /* as above; TG_GROUP at least for signs */
    const uint8_t *scales; /* on the wire; their values have been checked */
    const uint8_t *packed;
} tg_levels_decoding;

/* What to do with decoded values. */
typedef enum tg_storing {
    TG_ADD,
    TG_SET,
    /* as TG_SET, with non-temporal stores where possible; nontemporal_fence() as for copy_nontemporal() */
    TG_SET_NONTEMPORAL
} tg_storing;

/* The fused kernels need buckets of a multiple of this, because elements i and i + 16 share a random number. */
#define TG_FUSED_BUCKET 32u

/* A list of candidates in the order of their indices, with room for more. */
typedef struct tg_candidates {
    uint32_t *indices;
    float *values;
    size_t count, room;
    uint32_t least;      /* elements with this key or a larger one are candidates */
    uint32_t clear_from; /* candidates with this key (at least 1) or a larger one leave a 0 in the residual */
    float share;         /* the expected share of candidates among all elements; affects only the speed */
    bool nonfinite;      /* set when a value is not finite */
} tg_candidates;

/* `collect` stops when there is room for fewer than this many candidates. */
#define TG_COLLECT_SLACK 256u

typedef struct tg_kernels {
    const char *name; /* "cpu/scalar" */

    /* Converts a tensor's elements to float32 and back. Narrowing limits values to the largest finite one; it returns
     * how many were limited or NaN. 0 means that all values are finite, unless dtype is float32. */
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
    /* The sum of one block in the order that docs/numerics.md defines, of values * scale1 * scale2. */
    float (*block_sum)(tg_sum_of what, const float *values, size_t n, float scale1, float scale2);

    /* Codes of consecutive elements of one bucket, the first of which is element `first` of the vector. */
    void (*quantise)(const tg_quantiser *quantiser, const float *values, size_t n, uint32_t first, tg_hash_key key,
                     uint16_t *codes);
    void (*dequantise)(const tg_quantiser *quantiser, const uint16_t *codes, size_t n, float *values);

    /* The packed layout. In all calls but the last of a vector n is a multiple of TG_GROUP. */
    void (*pack)(const uint16_t *codes, size_t n, unsigned width, uint8_t *packed);
    void (*unpack)(const uint8_t *packed, size_t n, unsigned width, uint16_t *codes);

    /* Selection keys: magnitudes as bits, or 31 random bits for each index. */
    void (*magnitude_keys)(const float *values, size_t n, uint32_t *keys);
    void (*random_keys)(tg_hash_key key, uint32_t first, size_t n, uint32_t *keys);
    /* bins[(key >> shift) & mask] += 1 for every key with key >> prefix_shift == prefix. */
    void (*key_histogram)(const uint32_t *keys, size_t n, unsigned prefix_shift, uint32_t prefix, unsigned shift,
                          uint32_t mask, uint64_t *bins);
    uint64_t (*count_at_least)(const uint32_t *keys, size_t n, uint32_t least);

    /* memcpy of any number of bytes that will hardly ever be read: with non-temporal stores that bypass the caches,
     * where the processor has them. Other threads see the bytes after the writing thread has called nontemporal_fence.
     */
    void (*copy_nontemporal)(const void *from, size_t size, void *to);
    void (*nontemporal_fence)(void);

    /* XXH3_64bits, of any number of bytes. */
    uint64_t (*digest)(const uint8_t *bytes, size_t n);

    /* Fused kernels: several of the above in one call, while the values are in the first-level cache. NULL where a
     * kernel set has none; then the caller calls the single kernels. Both ways give the same bytes. */

    /* Scales, codes, packing, and with feedback the new residual, of n elements, a multiple of TG_GROUP and of the
     * bucket. Returns how many elements were done, a multiple of TG_GROUP and of the bucket. It stops before a bucket
     * that is not finite or whose scale is a special case (tiny, or a sum out of range); the caller does that one with
     * single kernels. */
    size_t (*encode_levels)(const tg_levels_encoding *encoding, size_t n);

    /* Codes of signs, 1 for +; n is a multiple of TG_GROUP. */
    void (*pack_signs)(const float *values, size_t n, uint8_t *packed);

    /* Whether gradient + alpha * residual and gradient + beta * residual are finite in all n elements, for any n;
     * residual may be NULL. */
    bool (*all_finite)(const float *gradient, const float *residual, float alpha, float beta, size_t n);

    /* out = weight * values (`set`) or out + weight * values, of values on the wire; with a NULL out it only checks.
     * False if a value is not finite; then out is undefined. */
    bool (*decode_plain)(tg_dtype dtype, const uint8_t *wire, size_t n, bool set, float weight, float *out);

    /* out = out + weight * values of each frame in order; n is a multiple of TG_GROUP and of the buckets. Unless `how`
     * is TG_ADD the first frame sets. */
    void (*decode_levels)(const tg_levels_decoding *frames, size_t frame_count, size_t n, tg_storing how, float weight,
                          float *out);

    /* Selection in one pass (codec/onepass.h). NULL where nothing is faster than the functions above.
     *
     * collect appends the candidates among n elements, for any n. Element i has the index first + i and the value u =
     * gradient, or with a residual u = gradient + factor * residual. With a residual, the residual becomes u, and 0 for
     * candidates with the key clear_from or a larger one. It stops early where room runs short, or before a group of
     * elements one of which is not finite; returns how many elements were done. */
    size_t (*collect)(tg_candidates *list, const float *gradient, float *residual, float factor, uint32_t first,
                      size_t n);
    /* Writes the keys of the n values that are below `bound`, in order, and returns how many there are; more than
     * `room` if they do not fit. */
    size_t (*keys_below)(const float *values, size_t n, uint32_t bound, uint32_t *keys, size_t room);
    /* Of n candidates selects those whose key is larger than `above`, and the first *ties of those whose key equals it
     * (*ties is reduced by these); returns how many. A residual that is 0 for every candidate with the key clear_from
     * or a larger one is corrected: it becomes 0 for the selected ones and gets back the values of the others. The
     * output may overwrite the input, or candidates before it. */
    size_t (*filter)(const uint32_t *indices, const float *values, size_t n, uint32_t above, uint64_t *ties,
                     float *residual, uint32_t clear_from, uint32_t *selected_indices, float *selected_values);

    /* For the coders of levels and of indices; NULL where nothing is faster than their own loops. */
    const tg_rans_engine *rans;
    const tg_gaps_engine *gaps;
} tg_kernels;

extern const tg_kernels tg_kernels_scalar;
#if defined(__x86_64__)
extern const tg_kernels tg_kernels_avx2;
extern const tg_kernels tg_kernels_avx512;
#elif defined(__AARCH64EL__) /* little-endian: elements have the same bytes in memory and on the wire */
extern const tg_kernels tg_kernels_neon;
#endif

/* The name of the first kernel that a set must have and has not; NULL if it has all. */
const char *tg_kernels_missing(const tg_kernels *kernels);

/* The kernel sets that this machine can run, fastest first; NULL after the last. */
const tg_kernels *tg_kernels_at(size_t index);

#endif
