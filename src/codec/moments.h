/* Moments of a sample, for the selectors that guess a threshold from them. Sums have the published shape. */
#ifndef TG_CODEC_MOMENTS_H
#define TG_CODEC_MOMENTS_H

#include "codec/select.h"

/* Sum of values, magnitudes or squares. */
double tg_sample_sum(const tg_selection *selection, tg_sum_of what, size_t n);

/* k / d as selectors use it. */
static inline double tg_share(const tg_selection *selection)
{
    return (double)selection->target / (double)selection->job->source.count;
}

#endif
