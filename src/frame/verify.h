/* Whether a frame may be decoded. */
#ifndef TG_FRAME_VERIFY_H
#define TG_FRAME_VERIFY_H

#include "device/device.h"

/* Header, checksum and every rule of the format. `peak`, unless it is NULL, receives the bits of a magnitude that no
 * value exceeds. */
tg_status tg_frame_check(tg_device *device, tg_frame frame, tg_frame_info *info, uint32_t *peak, tg_error *error);

/* Jobs that do the same for several frames, each of `count` elements; with TG_VERIFIED among the flags, for their
 * headers only. Then what came of them, if they are the frames of a list from `first` on. */
void tg_frames_ask(const tg_frame *frames, size_t frame_count, unsigned flags, uint64_t count, tg_check_job *jobs);
tg_status tg_frames_judge(const tg_check_job *jobs, size_t frame_count, size_t first, tg_error *error);

/* Both, of any number of frames. */
tg_status tg_frames_check(tg_device *device, const tg_frame *frames, size_t frame_count, unsigned flags, uint64_t count,
                          tg_error *error);

/* The peak of tg_frame_check, for a frame that has been checked or was made by this rank. */
uint32_t tg_frame_peak(tg_device *device, tg_frame frame);

#endif
