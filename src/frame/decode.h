/* Frames to vectors. */
#ifndef TG_FRAME_DECODE_H
#define TG_FRAME_DECODE_H

#include "device/device.h"

/* A job that adds: out = (v0 + v1 + ...) * scale, of frames that have been checked, and where scale is a power of two
 * v0 * scale + v1 * scale + ..., which is the same but for subnormal values and sums that overflow to an infinity; a
 * 16-bit output is narrowed once, and needs room for its elements as float32 in `wide`, device memory, where there are
 * more than TG_MAX_NARROW_FRAMES frames. `among`: see tg_add_job. The frames are host memory. */
tg_add_job tg_mean_job(const tg_frame *frames, size_t frame_count, float scale, float *wide, uint64_t among,
                       const tg_tensor *out);

#endif
