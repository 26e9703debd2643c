/* Logarithm, normal quantile and square root without libm, so that a threshold computed from them is the same number on
 * every machine: only + - * / and sqrt, each rounded as IEEE 754 says. */
#ifndef TG_BASE_NUMERIC_H
#define TG_BASE_NUMERIC_H

#include <stdint.h>

/* Natural logarithm of a positive finite double; relative error below 1e-14. */
double tg_log(double x);

/* log2 likewise. */
double tg_log2(double x);

/* The z with P(Z > z) = p for a standard normal Z, 0 < p < 1; absolute error below 1e-8. */
double tg_normal_tail_quantile(double p);

/* Correctly rounded square root of a number >= 0. */
static inline double tg_sqrt(double x) { return __builtin_sqrt(x); }

#endif
