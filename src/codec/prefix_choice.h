/* Whether packed codes are sent by a prefix code, and by which. It is a matter of speed, so it must be found out fast.
 */
#ifndef TG_CODEC_PREFIX_CHOICE_H
#define TG_CODEC_PREFIX_CHOICE_H

#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"

/* Bytes that tg_prefix_try may write; 0 for vectors that are never sent so. */
size_t tg_prefix_bound(uint64_t count, unsigned width);

/* Writes packed codes of so many bits, none above `most`, by a prefix code and returns the end, or NULL where another
 * way would be shorter by more than the speed is worth. */
uint8_t *tg_prefix_try(tg_pool *pool, const uint8_t *packed, uint64_t count, unsigned width, uint8_t most,
                       uint8_t *out);

#endif
