/* Chooses at run time among variants of a function that were compiled for constant arguments. The including file
 * defines the functions: sum_of for block sums; narrow_all, copy_all and decode_all for element types. */
#ifndef TG_KERNELS_WIDE_VARIANTS_H
#define TG_KERNELS_WIDE_VARIANTS_H

#include "kernels/scalar.h"

/* tg_kernels.block_sum */
#define TG_BLOCK_SUM(name)                                                                                        \
    float name(tg_sum_of what, const float *values, size_t n, float scale1, float scale2)                         \
    {                                                                                                             \
        if (scale1 != 1 || scale2 != 1) /* rare: where squares overflow or vanish */                              \
            return what == TG_SUM_OF_SQUARES      ? sum_of(TG_SUM_OF_SQUARES, true, values, n, scale1, scale2)    \
                   : what == TG_SUM_OF_MAGNITUDES ? sum_of(TG_SUM_OF_MAGNITUDES, true, values, n, scale1, scale2) \
                                                  : sum_of(TG_SUM_OF_VALUES, true, values, n, scale1, scale2);    \
        return what == TG_SUM_OF_SQUARES      ? sum_of(TG_SUM_OF_SQUARES, false, values, n, 1, 1)                 \
               : what == TG_SUM_OF_MAGNITUDES ? sum_of(TG_SUM_OF_MAGNITUDES, false, values, n, 1, 1)              \
                                              : sum_of(TG_SUM_OF_VALUES, false, values, n, 1, 1);                 \
    }

/* tg_kernels.store, and narrow, which is the same where elements have the same bytes in memory and on the wire. */
#define TG_STORE(store_name, narrow_name)                                               \
    uint64_t store_name(tg_dtype dtype, const float *values, size_t n, uint8_t *wire)   \
    {                                                                                   \
        if (dtype == TG_FLOAT16)                                                        \
            return narrow_all(TG_FLOAT16, values, n, wire);                             \
        if (dtype == TG_BFLOAT16)                                                       \
            return narrow_all(TG_BFLOAT16, values, n, wire);                            \
        copy_all(values, n, wire);                                                      \
        return 0;                                                                       \
    }                                                                                   \
    uint64_t narrow_name(tg_dtype dtype, const float *values, size_t n, void *elements) \
    {                                                                                   \
        return store_name(dtype, values, n, elements);                                  \
    }

/* tg_kernels.decode_plain */
#define TG_DECODE_PLAIN(name)                                                                    \
    bool name(tg_dtype dtype, const uint8_t *wire, size_t n, bool set, float weight, float *out) \
    {                                                                                            \
        if (dtype == TG_FLOAT16)                                                                 \
            return set ? decode_all(TG_FLOAT16, wire, n, true, weight, out)                      \
                       : decode_all(TG_FLOAT16, wire, n, false, weight, out);                    \
        if (dtype == TG_BFLOAT16)                                                                \
            return set ? decode_all(TG_BFLOAT16, wire, n, true, weight, out)                     \
                       : decode_all(TG_BFLOAT16, wire, n, false, weight, out);                   \
        return set ? decode_all(TG_FLOAT32, wire, n, true, weight, out)                          \
                   : decode_all(TG_FLOAT32, wire, n, false, weight, out);                        \
    }

/* Magnitudes above these are limited, or NaN. */
#define TG_FLOAT16_FITS 0x477fefff
#define TG_BFLOAT16_FITS 0x7f7f7fff

/* The last values of a run, fewer than 16, for decode_all: set or added by the definition. False if one is not finite.
 */
static inline bool tg_decode_last(tg_dtype dtype, const uint8_t *wire, size_t n, bool set, float weight, float *out)
{
    float last[16];
    tg_scalar_load(dtype, wire, n, last);
    if (out && set)
        tg_scalar_set_scaled(last, weight, n, out);
    else if (out)
        tg_scalar_add_scaled(last, weight, n, out);
    return tg_scalar_first_nonfinite(last, n) == n;
}

#endif
