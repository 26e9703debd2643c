/* The pass of a one-pass selection: computes u, writes the residual and lists candidates while a cache line is at
 * hand. */
#include "kernels/neon/left_pack.h"

#if defined(__AARCH64EL__)

#include "kernels/wide/collect_rest.h"

/* Elements of one step: the largest key among them says whether all are finite and whether one is a candidate. */
enum { STEP = 32, VECTORS = STEP / V_LANES, AHEAD = 2048 };

/* Appends the candidates of one step: the elements that have the least key or a larger one. */
static size_t append(uint32_t *indices, float *values, size_t count, const v_floats *u, v_ints least, uint32_t first)
{
    for (unsigned i = 0; i < VECTORS; i++) {
        const unsigned chosen = v_mask(vcgeq_u32(v_keys(u[i]), least));
        v_store_bits(indices + count, v_left_pack(v_count_from(first + i * V_LANES), chosen));
        v_store(values + count, v_left_pack_floats(u[i], chosen));
        count += (size_t)__builtin_popcount(chosen);
    }
    return count;
}

TG_INLINE size_t collect_steps(tg_candidates *list, const float *gradient, float *residual, float factor,
                               uint32_t first, size_t n)
{
    const v_floats factors = v_float(factor);
    const v_ints least = vdupq_n_u32(list->least),
                 cleared = vdupq_n_u32(list->clear_from > list->least ? list->clear_from : list->least);
    size_t done = 0;
    for (; done + STEP <= n && list->count + TG_COLLECT_SLACK <= list->room; done += STEP) {
        const float *g = gradient + done;
        float *h = residual ? residual + done : NULL;
        v_floats u[VECTORS];
        v_ints largest = vdupq_n_u32(0);
        TG_UNROLL
        for (unsigned i = 0; i < VECTORS; i++) {
            u[i] = v_load(g + i * V_LANES);
            if (residual)
                u[i] = v_plus(u[i], v_mul(factors, v_load(h + i * V_LANES)));
            largest = vmaxq_u32(largest, v_keys(u[i]));
        }
        const uint32_t most = vmaxvq_u32(largest);
        if (most > TG_MAX_FINITE_BITS) {
            list->nonfinite = true;
            break;
        }
        if (residual) {
            TG_UNROLL
            for (unsigned i = 0; i < VECTORS; i++)
                v_store(h + i * V_LANES, v_floats_of(vbicq_u32(v_bits(u[i]), vcgeq_u32(v_keys(u[i]), cleared))));
        }
        if (most >= list->least)
            list->count = append(list->indices, list->values, list->count, u, least, first + (uint32_t)done);
        for (unsigned i = 0; i < STEP; i += 16) {
            tg_prefetch(g + i, AHEAD);
            if (residual)
                tg_prefetch(h + i, AHEAD);
        }
    }
    return done;
}

size_t tg_neon_collect(tg_candidates *list, const float *gradient, float *residual, float factor, uint32_t first,
                       size_t n)
{
    const size_t done = residual ? collect_steps(list, gradient, residual, factor, first, n)
                                 : collect_steps(list, gradient, NULL, 1, first, n);
    return collect_rest(list, gradient, residual, factor, first, n, done, STEP);
}

#endif
