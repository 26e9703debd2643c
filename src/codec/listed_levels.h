/* Reading levels of which only the non-zero ones are listed, with their positions (docs/format.md, 4.4). */
#ifndef TG_CODEC_LISTED_LEVELS_H
#define TG_CODEC_LISTED_LEVELS_H

#include "codec/entropy_codes.h"
#include "codec/positions.h"

typedef struct tg_listed_levels {
    uint32_t levels;
    tg_positions_reader positions;
    tg_entropy_codes codes;
    uint16_t ahead[TG_GROUP]; /* codes are decoded a group at a time and returned from here */
    size_t ahead_at, ahead_count;
} tg_listed_levels;

/* Opens `count` levels, at least one, of -levels to levels, which fill all that the cursor has left. */
bool tg_listed_open(tg_listed_levels *r, const tg_kernels *kernels, tg_cursor *c, uint64_t count, uint32_t levels);
/* The next n codes of all levels, at most TG_BLOCK. */
bool tg_listed_next(tg_listed_levels *r, size_t n, uint16_t *codes);
bool tg_listed_done(const tg_listed_levels *r);

#endif
