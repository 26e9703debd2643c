/* What a frame costs and what it loses, beside what it could cost at best. */
#ifndef CLI_MEASURE_H
#define CLI_MEASURE_H

#include "spec_list.h"

struct measurement {
    uint64_t bytes;
    uint64_t selected;   /* elements sent */
    uint64_t index_bits; /* what a sparsifier spends on indices */
    double bits_per_element;
    double limit_bits_per_element; /* Shannon's: see frame_limit in measure.c */
    double relative_error;         /* |decoded - x|^2 / |x|^2; NaN where x is all zero */
};

/* Verifies and counts the frame of a vector of `count` elements; leaves the error alone. */
tg_status measure_frame(tg_device *device, const struct listed_spec *spec, tg_frame frame, uint64_t count,
                        struct measurement *measurement, tg_error *error);

/* Infinities and NaN in x count as zeros. */
double relative_error(const float *x, const float *decoded, size_t count);

/* Encodes, measures and decodes once. `scratch` has room for the input's elements as float32. */
tg_status measure_once(tg_device *device, const struct listed_spec *spec, const tg_tensor *input,
                       const tg_encode_options *options, float *scratch, struct measurement *measurement,
                       tg_error *error);

#endif
