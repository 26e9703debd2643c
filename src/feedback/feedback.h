/* Residuals: what is kept of a tensor between steps. */
#ifndef TG_FEEDBACK_FEEDBACK_H
#define TG_FEEDBACK_FEEDBACK_H

#include "frame/device.h"
#include "kernels/source.h"
#include "tersegrad.h"

struct tg_feedback {
    const tg_device *device;
    const tg_kernels *kernels; /* the device's */
    tg_feedback_spec spec;
    tg_spec codec;
    uint64_t count;
    float *residual;
    float *momentum; /* NULL but for DGC */
    tg_stats stats;
};

/* TG_OK if the spec is one that tg_feedback_parse could have made. */
tg_status tg_feedback_spec_check(const tg_feedback_spec *spec, tg_error *error);

/* The gradient together with this feedback, as a source for an encoder. */
tg_source tg_feedback_source(const tg_feedback *feedback, const tg_tensor *gradient);

#endif
