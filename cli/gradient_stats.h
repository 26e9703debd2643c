/* What a gradient looks like: moments, magnitudes, and how much of it a few elements carry. */
#ifndef CLI_GRADIENT_STATS_H
#define CLI_GRADIENT_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Moments are over the finite elements, in double; NaN where there are none. */
struct moments {
    uint64_t count, zeros, nonfinite;
    double mean;
    double std; /* of the population: divided by the number, not by one less */
    double max_abs;
    double kurtosis; /* the fourth central moment over the variance squared: 3 for a Gaussian; NaN if all are equal */
    double energy;   /* the sum of squares */
};
void measure_moments(const float *values, size_t count, struct moments *moments);

/* Magnitudes in half decades below the largest; gradients peak so sharply that equal widths would show one bar. Bin 0
 * goes from 0 to the lowest edge, zeros included; bin i holds edges[i] <= |x| < edges[i + 1], the last its upper edge
 * too. */
#define HISTOGRAM_BINS 17
struct histogram {
    double edges[HISTOGRAM_BINS + 1];
    uint64_t counts[HISTOGRAM_BINS];
};
void measure_histogram(const float *values, size_t count, double max_abs, struct histogram *histogram);

/* The share of the energy that the k largest elements leave out, beside two bounds on it. */
struct topk_share {
    uint64_t k;
    double density;       /* k / count */
    double ratio;         /* |u - Top_k(u)|^2 / |u|^2; NaN for an all-zero vector */
    double bound_tight;   /* (1 - k/d)^2: for bell-shaped vectors */
    double bound_classic; /* 1 - k/d: for any vector */
};
/* k = max(1, floor(density * count)), as the library's sparsifiers choose it. False if there was no memory. */
bool measure_topk(const float *values, size_t count, double density, struct topk_share *share);

#endif
