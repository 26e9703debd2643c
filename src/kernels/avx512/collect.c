/* The pass of a one-pass selection with vectors of sixteen, for vectors with many candidates: one instruction moves the
 * candidates of a vector to its front, in a register. Then the whole vector is stored, because instructions that store
 * only some lanes take many times as long on some processors. Where candidates are few, AVX2's code, which appends them
 * one by one, is faster. */
#include "kernels/avx512/avx512.h"

#if defined(__AVX512F__)

#include "kernels/avx2/collect.h"
#include "kernels/avx512/lanes.h"
#include "kernels/wide/collect_rest.h"

/* Elements of one step. */
enum { STEP = 64, VECTORS = STEP / V_LANES, AHEAD = 2048 };

TG_INLINE __mmask16 v_greater(v_ints a, v_ints b) { return _mm512_cmpgt_epi32_mask(a, b); }

/* How many lanes a mask has. When it runs out of registers, gcc 12 stores the 16 bits of a mask to memory and counts
 * the ones among 32; this makes it move them to a general register first. */
TG_INLINE size_t count_lanes(__mmask16 mask)
{
    unsigned bits = mask;
    __asm__("" : "+r"(bits));
    return (size_t)__builtin_popcount(bits);
}

TG_INLINE size_t collect_steps(tg_candidates *list, const float *gradient, float *residual, float factor,
                               uint32_t first, size_t n)
{
    /* With two streams it depends on the processor, see tg_ahead; a single stream is always prefetched. */
    const size_t ahead = residual && tg_ahead() == 0 ? 0 : AHEAD;
    const v_floats factors = v_float(factor);
    const v_ints below = v_int((int)(list->least - 1)),
                 not_cleared = _mm512_max_epi32(below, v_int((int)(list->clear_from - 1)));
    v_ints index = v_add(v_int((int)first), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    size_t done = 0, count = list->count;
    for (; done + STEP <= n && count + TG_COLLECT_SLACK <= list->room; done += STEP) {
        const float *g = gradient + done;
        float *h = residual ? residual + done : NULL;
        v_floats u[VECTORS];
        v_ints key[VECTORS], largest = v_int(0);
        TG_UNROLL
        for (unsigned i = 0; i < VECTORS; i++) {
            u[i] = v_load(g + i * V_LANES);
            if (residual)
                u[i] = v_plus(u[i], v_mul(factors, v_load(h + i * V_LANES)));
            key[i] = v_keys(u[i]);
            largest = _mm512_max_epu32(largest, key[i]);
            tg_prefetch(g + i * V_LANES, ahead);
            if (residual)
                tg_prefetch(h + i * V_LANES, ahead);
        }
        if (v_greater(largest, v_int((int)TG_MAX_FINITE_BITS))) {
            list->nonfinite = true;
            break;
        }
        TG_UNROLL
        for (unsigned i = 0; i < VECTORS; i++) {
            const __mmask16 chosen = v_greater(key[i], below);
            if (residual)
                v_store(h + i * V_LANES, _mm512_maskz_mov_ps((__mmask16)~v_greater(key[i], not_cleared), u[i]));
            v_store_bits(list->indices + count, _mm512_maskz_compress_epi32(chosen, index));
            v_store(list->values + count, _mm512_maskz_compress_ps(chosen, u[i]));
            count += count_lanes(chosen);
            index = v_add(index, v_int(V_LANES));
        }
    }
    list->count = count;
    return done;
}

size_t tg_avx512_collect(tg_candidates *list, const float *gradient, float *residual, float factor, uint32_t first,
                         size_t n)
{
    if (list->share * STEP < 2)
        return tg_avx2_collect(list, gradient, residual, factor, first, n);
    const size_t done = residual ? collect_steps(list, gradient, residual, factor, first, n)
                                 : collect_steps(list, gradient, NULL, 1, first, n);
    return collect_rest(list, gradient, residual, factor, first, n, done, STEP);
}

#endif
