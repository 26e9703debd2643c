/* Reading the values of a frame block by block. */
#ifndef TG_DEVICE_CPU_WALK_H
#define TG_DEVICE_CPU_WALK_H

#include "codec/header.h"
#include "codec/reader.h"
#include "kernels/ranges.h"

/* What reading frames takes beside the stack: for one thread. */
typedef struct tg_walk_scratch {
    float block[TG_BLOCK]; /* aligned to a cache line, as the scratch is */
    tg_source_block source;
    uint64_t bins[TG_HISTOGRAM];
    tg_reader readers[TG_MAX_NARROW_FRAMES];
    tg_frame_info infos[TG_MAX_NARROW_FRAMES];
    tg_touched touched;
} tg_walk_scratch;

/* Opens a frame whose header has been read to `info`, which must live as long as the reader. */
bool tg_frame_open(tg_reader *reader, const tg_kernels *kernels, tg_frame frame, const tg_frame_info *info);

/* The next n elements, a multiple of TG_BLOCK except for the last call, and at most the reader's step. False if the
 * payload breaks a rule of the format. */
static inline bool tg_frame_next(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out)
{
    return reader->row && reader->row->read(reader, n, mode, weight, out);
}

/* How many elements a step from `first` has. */
static inline size_t tg_reader_step(uint64_t count, uint64_t first, uint64_t step)
{
    return (size_t)(count - first < step ? count - first : step);
}

/* How threads may divide the elements of a frame: one range if it can be read only from the start. */
static inline tg_ranges tg_reader_ranges(tg_pool *pool, uint64_t count, uint64_t grain)
{
    return tg_ranges_of(grain ? pool : NULL, count, grain);
}

/* Moves a reader to the start of a range. */
static inline void tg_reader_seek(tg_reader *reader, uint64_t first)
{
    if (first > 0)
        reader->row->seek(reader, first);
}

#endif
