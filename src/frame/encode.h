/* One encode call, for tg_encode and for feedback: the source may have a residual. */
#ifndef TG_FRAME_ENCODE_H
#define TG_FRAME_ENCODE_H

#include "codec/codec.h"

/* The caller has entered the floating-point mode. */
tg_status tg_encode_source(tg_codec *codec, const tg_source *source, const tg_encode_options *options, void *frame,
                           size_t capacity, tg_encode_report *report, tg_error *error);

/* TG_OK if the tensor can be read or written. */
tg_status tg_tensor_check(const tg_tensor *tensor, const char *what, tg_error *error);

/* The same codec for another density or k, no larger than the one it was made with; false if it is larger. */
bool tg_codec_retune(tg_codec *codec, uint32_t amount);

#endif
