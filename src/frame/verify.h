/* Whether a frame may be decoded. */
#ifndef TG_FRAME_VERIFY_H
#define TG_FRAME_VERIFY_H

#include "tersegrad.h"

/* Header, checksum and every rule of the format. `peak`, unless it is NULL, receives the bits of a magnitude that no
 * value exceeds. */
tg_status tg_frame_check(tg_device *device, tg_frame frame, tg_frame_info *info, uint32_t *peak, tg_error *error);

/* The same of several frames, each of `count` elements; with TG_VERIFIED among the flags, the headers only. `infos`
 * receives the headers of up to TG_MAX_NARROW_FRAMES. */
tg_status tg_frames_check(tg_device *device, const tg_frame *frames, size_t frame_count, unsigned flags, uint64_t count,
                          tg_frame_info *infos, tg_error *error);

/* The peak of tg_frame_check, for a frame that has been checked or was made by this rank. */
uint32_t tg_frame_peak(tg_device *device, tg_frame frame);

#endif
