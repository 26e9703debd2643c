/* Residuals: what is kept of a tensor between steps. */
#ifndef TG_FEEDBACK_FEEDBACK_H
#define TG_FEEDBACK_FEEDBACK_H

#include "device/device.h"

struct tg_feedback {
    tg_device *device;
    tg_feedback_spec spec;
    tg_spec codec;
    uint64_t count;
    float *residual; /* these three are device memory */
    float *momentum; /* NULL but for DGC */
    float *kept;     /* tg_source's: pages that are not used are never touched */
    bool unchecked;  /* a value that is not finite may come to the residual: rest - sent can overflow, as they may
                      * differ in sign */
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
/* The same of a sparsifier, with the selection as a list in place of a frame. A NULL feedback: there is none. */
tg_status tg_feedback_select_piece(tg_codec *codec, tg_feedback *feedback, const tg_tensor *piece, uint64_t first,
                                   float clip, const tg_encode_options *options, tg_list *list,
                                   tg_encode_report *report, tg_error *error);
void tg_feedback_note(tg_feedback *feedback, const tg_tensor *gradient, const tg_encode_report *report);

/* The residual's norm as it is now, estimated as in tg_stats: after a step, or after something has returned. */
double tg_feedback_norm(const tg_feedback *feedback);

/* Residual and momentum times a factor, which must leave them finite; a NULL feedback has none. */
bool tg_feedback_can_scale(tg_feedback *feedback, float factor);
void tg_feedback_scale(tg_feedback *feedback, float factor);

/* Residuals of a reducer. A list, or a vector in device memory, is added: both return how many elements overflowed.
 * Those of the list that are limited become the largest float32, the others stay as they were; all of the vector's are
 * limited. */
uint64_t tg_feedback_add_list(tg_feedback *feedback, const tg_list *list, float factor, bool limits,
                              const uint32_t *applied, size_t applied_count);
uint64_t tg_feedback_add(tg_feedback *feedback, const float *values, float factor);

/* A part to the bytes of a saved state, and back: job->h is set to where the elements from `first` on lie, unless
 * `applies` is off. */
void tg_feedback_save(const tg_feedback *feedback, tg_feedback_part part, uint8_t *bytes);
void tg_feedback_load(tg_feedback *feedback, tg_feedback_part part, uint64_t first, bool applies, tg_load_job *job);

/* h = h + sent, of a frame of ours of the elements from `first` on. What would overflow is limited to the largest
 * float32; returns how many elements that are. */
uint64_t tg_feedback_return_piece(tg_feedback *feedback, tg_frame frame, uint64_t first);

#endif
