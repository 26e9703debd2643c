/* Whether packed codes are sent in a prefix code, and in which. The layout exists for its speed, so the decision must
 * be fast. */
#ifndef TG_CODEC_PREFIX_CHOICE_H
#define TG_CODEC_PREFIX_CHOICE_H

#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"

/* The most bytes that tg_prefix_try may write; 0 for vectors that are never sent this way. */
size_t tg_prefix_bound(uint64_t count, unsigned width);

/* Writes packed codes of `width` bits, none above `most`, in a prefix code and returns the end; or NULL where another
 * layout would be so much shorter that the speed is not worth it. */
uint8_t *tg_prefix_try(tg_pool *pool, const uint8_t *packed, uint64_t count, unsigned width, uint8_t most,
                       uint8_t *out);

#endif
