/* Residuals: the state of a tensor between steps. */
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
    float *undo;     /* undo buffer of tg_source; takes memory only when it is used */
    /* Once a step has been done later, only the device knows which of two vectors is the residual: `sides[*side]`.
     * `residual` and `undo` are as they were when the host looked last (tg_feedback_find). */
    bool sided;
    bool given;     /* in the list of an encode call that is being checked */
    uint32_t *side; /* device memory */
    float *sides[2];
    tg_tensor asked[2]; /* gradient and residual whose norms the device is asked for */
    double norms[2];
    tg_stats stats;
};

/* TG_OK if tg_feedback_parse could have returned this spec. */
tg_status tg_feedback_spec_check(const tg_feedback_spec *spec, tg_error *error);

/* The gradient together with this feedback, as a source for an encoder. */
tg_source tg_feedback_source(const tg_feedback *feedback, const tg_tensor *gradient);

/* Before the residual is used by anything that is not done later. Waits if steps of this feedback have been. */
void tg_feedback_find(tg_feedback *feedback);
/* The source of a step that is done later. */
tg_source tg_feedback_source_later(tg_feedback *feedback, const tg_tensor *gradient);
/* TG_OK if these three belong together. */
tg_status tg_feedback_check_step(const tg_codec *codec, const tg_feedback *feedback, const tg_tensor *gradient,
                                 tg_error *error);

/* The factor by which dgc's clipping scales this gradient; 1 without clipping. */
float tg_feedback_clip(const tg_feedback *feedback, const tg_tensor *gradient);

/* For tensors that are sent in pieces: the source of the elements of `piece`, which are those from `first` on. A NULL
 * feedback has no state. */
tg_source tg_feedback_piece(const tg_feedback *feedback, const tg_tensor *piece, uint64_t first, float clip);

/* Statistics, once for a whole tensor that was encoded in pieces. First the norms are asked for: the gradient's, unless
 * it is NULL, and the residual's. After the device's wait they are noted. */
void tg_feedback_ask(tg_feedback *feedback, const tg_tensor *gradient);
void tg_feedback_note(tg_feedback *feedback, const tg_encode_report *report);

/* The current norm of the residual, estimated as in tg_stats: after a step, or after a frame was returned. */
double tg_feedback_norm(const tg_feedback *feedback);

/* Residual and momentum times a factor, which must leave them finite; a NULL feedback has none. */
bool tg_feedback_can_scale(tg_feedback *feedback, float factor);
void tg_feedback_scale(tg_feedback *feedback, float factor);

/* Residuals of a reducer. Lists are added, each to the residual of one feedback; or a vector in device memory, which
 * returns how many elements overflowed and were limited to the largest float32. */
void tg_feedback_add_lists(tg_device *device, tg_feedback *const *feedbacks, tg_list_job *jobs, size_t count);
uint64_t tg_feedback_add(tg_feedback *feedback, const float *values, float factor);
/* All of the residual of `from`, which becomes 0, times a factor, to that of `to` from the element `first` on; returns
 * how many were limited. */
uint64_t tg_feedback_fold(tg_feedback *from, tg_feedback *to, uint64_t first, float factor);

/* Whether there is a momentum; a NULL feedback has none. */
bool tg_feedback_has_momentum(const tg_feedback *feedback);

/* A part to the bytes of a saved state, and back: job->h is set to where the elements from `first` on lie, unless
 * `applies` is off. */
void tg_feedback_save(const tg_feedback *feedback, tg_feedback_part part, uint8_t *bytes);
void tg_feedback_load(tg_feedback *feedback, tg_feedback_part part, uint64_t first, bool applies, tg_load_job *job);

/* h = h + sent, for a frame of this rank of the elements from `first` on, which may lie in device memory. Elements that
 * would overflow are limited to the largest float32; returns how many. */
uint64_t tg_feedback_return_piece(tg_feedback *feedback, tg_frame frame, bool on_device, uint64_t first);

/* Whether this feedback can be had with this codec; all that tg_feedback_create refuses but a lack of memory. */
tg_status tg_feedback_suits(const tg_feedback_spec *spec, const tg_spec *codec, uint64_t count, bool insist,
                            tg_error *error);

#endif
