/* One encode call, for tg_encode and for feedback: the source may have a residual. */
#ifndef TG_FRAME_ENCODE_H
#define TG_FRAME_ENCODE_H

#include "device/device.h"

/* A job of this codec, still without a place for the frame; several can be given to the device together. Then, after
 * the device's wait, what came of it; messages count elements from `first` on, and `policy` is what the caller's caller
 * could ask for where a value is not finite. */
tg_encode_job tg_encode_job_of(tg_codec *codec, const tg_source *source, const tg_encode_options *options);
tg_status tg_encode_outcome(tg_device *device, const tg_encode_job *job, uint64_t first, const char *policy,
                            tg_error *error);
#define TG_ENCODE_POLICY "zero" /* of an encode call */

/* Looks at the arguments of a call, and makes a job of them. */
tg_status tg_encode_prepare(tg_codec *codec, const tg_source *source, const tg_encode_options *options, void *frame,
                            size_t capacity, tg_encode_job *job, tg_error *error);
/* The same, and gives the job to the device. The caller has set the floating-point mode. */
tg_status tg_encode_begin(tg_codec *codec, const tg_source *source, const tg_encode_options *options, void *frame,
                          size_t capacity, tg_encode_job *job, tg_error *error);

/* TG_OK, or TG_BAD_RESIDUAL if the residual or the momentum of the source has a value that is not finite, which the
 * library never writes. Reads all of it. */
tg_status tg_residual_check(const tg_source *source, uint64_t first, tg_device *device, tg_error *error);

tg_device *tg_codec_device(const tg_codec *codec);

/* TG_OK if the tensor can be read or written. */
tg_status tg_tensor_check(const tg_tensor *tensor, const char *what, tg_error *error);

/* Sets another density or k, at most the one the codec was created with; false if it is larger. */
bool tg_codec_retune(tg_codec *codec, uint32_t amount);

#endif
