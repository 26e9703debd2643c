/* Feedback and sums; the elements after the last whole vector are left to the scalar definition. */
#ifndef TG_KERNELS_WIDE_ARITHMETIC_H
#define TG_KERNELS_WIDE_ARITHMETIC_H

#include "kernels/scalar.h"

TG_INLINE void compensate(const float *push, const float *residual, float alpha, float beta, size_t n, float *u,
                          float *rest)
{
    const size_t ahead = tg_ahead();
    const v_floats a = v_float(alpha), b = v_float(beta);
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES) {
        v_floats p = v_load(push + i), h = v_load(residual + i);
        tg_prefetch(push + i, ahead);
        tg_prefetch(residual + i, ahead);
        v_store(u + i, v_plus(p, v_mul(a, h)));
        v_store(rest + i, v_plus(p, v_mul(b, h)));
    }
    tg_scalar_compensate(push + i, residual + i, alpha, beta, n - i, u + i, rest + i);
}

TG_INLINE void subtract(const float *rest, const float *sent, size_t n, float *residual)
{
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES)
        v_store(residual + i, v_sub(v_load(rest + i), v_load(sent + i)));
    tg_scalar_subtract(rest + i, sent + i, n - i, residual + i);
}

TG_INLINE void add_scaled(const float *values, float weight, size_t n, float *sum)
{
    const v_floats w = v_float(weight);
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES)
        v_store(sum + i, v_plus(v_load(sum + i), v_mul(w, v_load(values + i))));
    tg_scalar_add_scaled(values + i, weight, n - i, sum + i);
}

TG_INLINE void set_scaled(const float *values, float weight, size_t n, float *result)
{
    const v_floats w = v_float(weight);
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES)
        v_store(result + i, v_mul(w, v_load(values + i)));
    tg_scalar_set_scaled(values + i, weight, n - i, result + i);
}

#endif
