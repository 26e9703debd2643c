/* The end of the collect kernels: the elements after the last whole step. */
#ifndef TG_KERNELS_WIDE_COLLECT_REST_H
#define TG_KERNELS_WIDE_COLLECT_REST_H

#include "base/bytes.h"
#include "kernels/kernels.h"

/* `done` elements have been processed in steps of `step`. Processes the rest, which is shorter than a step; does
 * nothing if the steps ended earlier because the list is full or a value is not finite. Returns how many elements are
 * done. */
static size_t collect_rest(tg_candidates *list, const float *gradient, float *residual, float factor, uint32_t first,
                           size_t n, size_t done, size_t step)
{
    if (n - done >= step || list->nonfinite)
        return done;
    const uint32_t clear_from = list->clear_from > list->least ? list->clear_from : list->least;
    size_t i = done;
    for (; i < n && list->count + TG_COLLECT_SLACK <= list->room; i++) {
        const float u = residual ? gradient[i] + factor * residual[i] : gradient[i];
        const uint32_t key = tg_float_bits(u) & TG_MAGNITUDE_MASK;
        if (key >= TG_INFINITY_BITS) {
            list->nonfinite = true;
            break;
        }
        if (residual)
            residual[i] = key >= clear_from ? 0 : u;
        if (key >= list->least) {
            list->indices[list->count] = first + (uint32_t)i;
            list->values[list->count++] = u;
        }
    }
    return i;
}

#endif
