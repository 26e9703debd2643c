/* Residuals: what is kept of a tensor between steps. */
#ifndef TG_FEEDBACK_FEEDBACK_H
#define TG_FEEDBACK_FEEDBACK_H

#include <float.h>

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
    float *kept;     /* tg_source's: pages that are not used are never touched */
    bool unchecked; /* a value that is not finite may have come to the residual: the caller has a pointer to it, or rest
                     * - sent can overflow, as they may differ in sign */
    tg_stats stats;
};

/* TG_OK if the spec is one that tg_feedback_parse could have made. */
tg_status tg_feedback_spec_check(const tg_feedback_spec *spec, tg_error *error);

/* The gradient together with this feedback, as a source for an encoder. */
tg_source tg_feedback_source(const tg_feedback *feedback, const tg_tensor *gradient);

/* What DGC's clipping multiplies this gradient by; 1 without it. */
float tg_feedback_clip(const tg_feedback *feedback, const tg_tensor *gradient);

/* For tensors that travel in pieces: tg_encode_with_feedback of the elements from `first` on, with a codec of any spec.
 * Statistics are left to tg_feedback_note, once for the whole tensor. The caller has entered the floating-point mode.
 */
tg_status tg_feedback_encode_piece(tg_codec *codec, tg_feedback *feedback, const tg_tensor *piece, uint64_t first,
                                   float clip, const tg_encode_options *options, void *frame, size_t capacity,
                                   tg_encode_report *report, tg_error *error);
void tg_feedback_note(tg_feedback *feedback, const tg_tensor *gradient, const tg_encode_report *report);

/* The residual's norm as it is now, estimated as in tg_stats: after a step, or after something has returned. */
double tg_feedback_norm(const tg_feedback *feedback);

/* h = h + sent, of a frame of ours of the elements from `first` on. What would overflow is limited to the largest
 * float32; returns how many elements that are. */
uint64_t tg_feedback_return_piece(tg_feedback *feedback, tg_frame frame, uint64_t first);

/* A sum of finite numbers for a residual, which must stay finite; counts those that had to be limited. */
static inline float tg_limited(float sum, uint64_t *limited)
{
    if (sum - sum == 0 || sum != sum) /* a NaN was there before: encoding reports it */
        return sum;
    ++*limited;
    return sum > 0 ? FLT_MAX : -FLT_MAX;
}

#endif
