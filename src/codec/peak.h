/* How large the values of a payload can be. */
#ifndef TG_CODEC_PEAK_H
#define TG_CODEC_PEAK_H

#include "codec/codec.h"

/* The rows' `peak`. They read the scales, or where there are none the values, unless these are float16, none of which
 * is large. */
uint32_t tg_plain_row_peak(const tg_reader *reader, tg_pool *pool, uint64_t count);
uint32_t tg_levels_row_peak(const tg_reader *reader, tg_pool *pool, uint64_t count);
uint32_t tg_sparse_row_peak(const tg_reader *reader, tg_pool *pool, uint64_t count);

/* Whether that looks at every value of the payload as it lies there, and gives TG_INFINITY_BITS or more if one is not
 * finite. */
bool tg_plain_peak_sees_all(const tg_reader *reader);

#endif
