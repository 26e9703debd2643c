/* Logarithm, normal quantile and square root without libm, so that a threshold computed from them is the same number on
 * every machine: only + - * / and sqrt, each rounded as IEEE 754 says. */
#ifndef TG_BASE_NUMERIC_H
#define TG_BASE_NUMERIC_H

#include <float.h>
#include <stdint.h>

#include "base/any_device.h"

/* Natural logarithm of a positive finite double; relative error below 1e-14. */
double tg_log(double x);

/* log2 likewise. */
double tg_log2(double x);

/* The z with P(Z > z) = p for a standard normal Z, 0 < p < 1; absolute error below 1e-8. */
double tg_normal_tail_quantile(double p);

/* Correctly rounded square root of a number >= 0. */
TG_ANY_DEVICE double tg_sqrt(double x)
{
#if defined(__CUDA_ARCH__)
    return sqrt(x);
#else
    return __builtin_sqrt(x);
#endif
}

/* Limits a sum to the largest float32, because a residual must stay finite; counts the sums that were limited. */
static inline float tg_limited(float sum, uint64_t *limited)
{
    if (sum - sum == 0 || sum != sum) /* a NaN was there before: encoding will report it */
        return sum;
    ++*limited;
    return sum > 0 ? FLT_MAX : -FLT_MAX;
}

#endif
