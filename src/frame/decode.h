/* Walking a frame's values block by block. */
#ifndef TG_FRAME_DECODE_H
#define TG_FRAME_DECODE_H

#include "codec/reader.h"

/* Header, checksum and every rule of the format. */
tg_status tg_frame_check(const tg_device *device, tg_frame frame, tg_frame_info *info, tg_error *error);

/* Opens a frame whose header has been read to `info`, which must live as long as the reader. */
bool tg_frame_open(tg_reader *reader, const tg_kernels *kernels, tg_frame frame, const tg_frame_info *info);

/* The next n elements, a multiple of TG_BLOCK but for the last, and no more than the reader's step. False if the payload breaks a rule. */
static inline bool tg_frame_next(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out)
{
    return reader->row && reader->row->read(reader, n, mode, weight, out);
}

#endif
