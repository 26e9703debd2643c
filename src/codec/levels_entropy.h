/* The entropy layouts of levels, as an encoder writes them: all levels, or the non-zero levels with their positions, or
 * a prefix code of packed codes. */
#ifndef TG_CODEC_LEVELS_ENTROPY_H
#define TG_CODEC_LEVELS_ENTROPY_H

#include "codec/levels.h"

size_t tg_levels_entropy_bound(const tg_levels_shape *shape);
size_t tg_levels_entropy_workspace(const tg_levels_shape *shape);

/* Writes one of them from packed codes, at least one; returns the end. `memory` is working memory of
 * tg_levels_entropy_workspace bytes. */
uint8_t *tg_levels_entropy_write(tg_job *job, const tg_levels_shape *shape, const uint8_t *packed, void *memory,
                                 uint8_t *out, unsigned *layout);

#endif
