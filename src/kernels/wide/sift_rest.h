/* The end of a sift, for what is left after whole steps. */
#ifndef TG_KERNELS_WIDE_SIFT_REST_H
#define TG_KERNELS_WIDE_SIFT_REST_H

#include "base/bytes.h"
#include "kernels/kernels.h"

/* `done` elements are sifted, in steps of `step`, and here come those that make no step; none if the steps did not come
 * so far, because the list is full or a value is not finite. Returns how many are done. */
static size_t sift_rest(tg_candidates *list, const float *gradient, float *residual, float factor, uint32_t first,
                        size_t n, size_t done, size_t step)
{
    if (n - done >= step || list->nonfinite)
        return done;
    const uint32_t taken = list->taken > list->least ? list->taken : list->least;
    size_t i = done;
    for (; i < n && list->count + TG_SIFT_SLACK <= list->room; i++) {
        const float u = residual ? gradient[i] + factor * residual[i] : gradient[i];
        const uint32_t key = tg_float_bits(u) & TG_MAGNITUDE_MASK;
        if (key >= TG_INFINITY_BITS) {
            list->nonfinite = true;
            break;
        }
        if (residual)
            residual[i] = key >= taken ? 0 : u;
        if (key >= list->least) {
            list->indices[list->count] = first + (uint32_t)i;
            list->values[list->count++] = u;
        }
    }
    return i;
}

#endif
