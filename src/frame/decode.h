/* Walking a frame's values block by block. */
#ifndef TG_FRAME_DECODE_H
#define TG_FRAME_DECODE_H

#include "base/bytes.h"
#include "codec/reader.h"
#include "frame/header.h"
#include "kernels/ranges.h"

/* Opens a frame whose header has been read to `info`, which must live as long as the reader. */
bool tg_frame_open(tg_reader *reader, const tg_kernels *kernels, tg_frame frame, const tg_frame_info *info);

/* The next n elements, a multiple of TG_BLOCK but for the last, and no more than the reader's step. False if the
 * payload breaks a rule. */
static inline bool tg_frame_next(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out)
{
    return reader->row && reader->row->read(reader, n, mode, weight, out);
}

/* How many elements a step from `first` has. */
static inline size_t tg_reader_step(uint64_t count, uint64_t first, uint64_t step)
{
    return (size_t)(count - first < step ? count - first : step);
}

/* Where threads may share out a frame's elements: 1 range if only from the start. */
static inline tg_ranges tg_reader_ranges(tg_pool *pool, uint64_t count, uint64_t grain)
{
    return tg_ranges_of(grain ? pool : NULL, count, grain);
}

/* To the start of a range. */
static inline void tg_reader_seek(tg_reader *reader, uint64_t first)
{
    if (first > 0)
        reader->row->seek(reader, first);
}

/* out = (v0 + v1 + ...) * scale, of frames that have been checked, and where scale is a power of two v0 * scale + v1 *
 * scale + ..., which is the same but for subnormal values and sums that overflow to an infinity; a 16-bit output is
 * narrowed once, and needs room for its elements as float32 in `wide` where there are more than TG_MAX_NARROW_FRAMES
 * frames. `among` elements are written before these are read again: if so many do not fit the caches, those of sparse
 * frames and of packed levels are stored past them. The caller has entered the floating-point mode. */
tg_status tg_decode_mean(const tg_device *device, const tg_frame *frames, size_t frame_count, float scale, float *wide,
                         uint64_t among, const tg_tensor *out, tg_error *error);

/* How many elements a sparse frame lists; the frame has been checked. */
static inline uint64_t tg_frame_selected(tg_frame frame)
{
    return tg_load32((const uint8_t *)frame.data + TG_HEADER_SIZE);
}

/* The elements that a sparse frame lists, indices counted from `first`; the frame has been checked. `values` may be
 * NULL. */
size_t tg_frame_list(const tg_kernels *kernels, tg_frame frame, uint64_t first, uint32_t *indices, float *values);

#endif
