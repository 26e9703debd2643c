/* One encode call, for tg_encode and for feedback: the source may have a residual. */
#ifndef TG_FRAME_ENCODE_H
#define TG_FRAME_ENCODE_H

#include "device/device.h"

/* A job of this codec, for several that are given to the device together; then, after the device's wait, what came of
 * it. */
tg_status tg_encode_prepare(tg_codec *codec, const tg_source *source, const tg_encode_options *options, void *frame,
                            size_t capacity, tg_encode_job *job, tg_error *error);
tg_status tg_encode_outcome(const tg_codec *codec, const tg_encode_job *job, tg_error *error);

/* Runs one job completely. The caller has set the floating-point mode. */
tg_status tg_encode_source(tg_codec *codec, const tg_source *source, const tg_encode_options *options, void *frame,
                           size_t capacity, tg_encode_report *report, tg_error *error);

/* What a sparsifier's codec selects of a source, as a list in place of a frame; see tg_encode_job. */
tg_status tg_select_source(tg_codec *codec, const tg_source *source, const tg_encode_options *options, tg_list *list,
                           tg_encode_report *report, tg_error *error);

/* TG_OK, or TG_BAD_RESIDUAL if the residual or the momentum of the source has a value that is not finite. Reads all of
 * it. */
tg_status tg_residual_check(const tg_source *source, tg_device *device, tg_error *error);

tg_device *tg_codec_device(const tg_codec *codec);

/* TG_OK if the tensor can be read or written. */
tg_status tg_tensor_check(const tg_tensor *tensor, const char *what, tg_error *error);

/* Sets another density or k, at most the one the codec was created with; false if it is larger. */
bool tg_codec_retune(tg_codec *codec, uint32_t amount);

/* A sparse frame of elements that have been selected already, all between `first` and first + count, which the frame
 * takes as a vector of its own. `sent` receives what the decoder will see where that is not the values themselves. The
 * frame has room for a selection of so many elements. */
void tg_encode_list(tg_codec *codec, const tg_list *list, uint64_t first, uint64_t count, const tg_draw *draw,
                    float *sent, void *frame, tg_encode_report *report);

#endif
