/* Tests hold their tensors in host memory, where they fill them and look at them. These functions take the place of the
 * library's: where the device is a guarded one, every tensor of a call is copied to memory of the device, the library
 * is called with that, and what it wrote is copied back. */
#ifndef TESTS_STAGED_H
#define TESTS_STAGED_H

#include "tersegrad.h"

TG_MUST_CHECK tg_status staged_encode(tg_codec *codec, const tg_tensor *input, const tg_encode_options *options,
                                      void *frame, size_t capacity, tg_encode_report *report, tg_error *error);
TG_MUST_CHECK tg_status staged_encode_with_feedback(tg_codec *codec, tg_feedback *feedback, const tg_tensor *gradient,
                                                    const tg_encode_options *options, void *frame, size_t capacity,
                                                    tg_encode_report *report, tg_error *error);
TG_MUST_CHECK tg_status staged_decode(tg_device *device, const tg_frame *frames, size_t frame_count, float weight,
                                      unsigned flags, const tg_tensor *out, tg_error *error);
TG_MUST_CHECK tg_status staged_decode_add(tg_device *device, const tg_frame *frames, size_t frame_count, float weight,
                                          unsigned flags, const tg_tensor *out, tg_error *error);
TG_MUST_CHECK tg_status staged_compensate(tg_feedback *feedback, const tg_tensor *gradient, const tg_tensor *u,
                                          tg_error *error);
TG_MUST_CHECK tg_status staged_update(tg_feedback *feedback, const tg_tensor *gradient, tg_frame frame,
                                      tg_error *error);

/* Of a reduction: gradients stay on the device from where they are given until it ends. */
TG_MUST_CHECK tg_status staged_reduce(tg_reducer *reducer, tg_transport *transport, const tg_tensor *gradients,
                                      uint64_t step, tg_error *error);
TG_MUST_CHECK tg_status staged_start(tg_reducer *reducer, tg_transport *transport, const tg_tensor *gradients,
                                     uint64_t step, tg_reduction **reduction, tg_error *error);
TG_MUST_CHECK tg_status staged_finish(tg_reduction *reduction, tg_transport *transport, tg_error *error);
TG_MUST_CHECK tg_status staged_begin(tg_reducer *reducer, const tg_tensor *gradients, uint64_t step,
                                     tg_reduction **reduction, tg_error *error);
TG_MUST_CHECK tg_status staged_ready(tg_reduction *reduction, size_t index, const tg_tensor *gradient, tg_error *error);
TG_MUST_CHECK tg_status staged_absent(tg_reduction *reduction, size_t index, const tg_tensor *out, tg_error *error);
TG_MUST_CHECK tg_status staged_end(tg_reduction *reduction, tg_error *error);
void staged_abandon(tg_reduction *reduction);

/* Whether the memory of a device is not the host's. */
bool is_apart(const tg_device *device);

#ifndef STAGED_ITSELF
#define tg_reduce staged_reduce
#define tg_reduce_start staged_start
#define tg_reduce_finish staged_finish
#define tg_reduce_begin staged_begin
#define tg_reduce_ready staged_ready
#define tg_reduce_absent staged_absent
#define tg_reduce_end staged_end
#define tg_reduce_abandon staged_abandon
#define tg_encode staged_encode
#define tg_encode_with_feedback staged_encode_with_feedback
#define tg_decode staged_decode
#define tg_decode_add staged_decode_add
#define tg_feedback_compensate staged_compensate
#define tg_feedback_update staged_update
#endif

#endif
