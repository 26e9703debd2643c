/* How large the values of a frame can be. */
#ifndef TG_FRAME_PEAK_H
#define TG_FRAME_PEAK_H

#include "base/pool.h"
#include "codec/reader.h"

/* Bits of a magnitude that no value exceeds which a reader, opened on a payload of `count` elements, will come to.
 * Reads the scales, or where there are none the values, unless no float16 is larger. */
uint32_t tg_reader_peak(const tg_reader *reader, tg_pool *pool, uint64_t count);

/* Whether that looks at every value of the frame as it lies there, and gives TG_INFINITY_BITS or more if one is not
 * finite. */
bool tg_reader_peak_sees_all(const tg_reader *reader);

#endif
