/* A few ranks in words, for messages that say who is missing. */
#ifndef TG_TRANSPORT_RANKS_H
#define TG_TRANSPORT_RANKS_H

#include <stdint.h>

enum { TG_RANKS_NAMED = 8, TG_RANKS_TEXT = 128 };

/* All zero is empty. */
typedef struct tg_ranks {
    uint32_t first[TG_RANKS_NAMED]; /* those that will be named; of the others only the number is kept */
    uint32_t count;
} tg_ranks;

void tg_ranks_add(tg_ranks *ranks, uint32_t rank);

/* "rank 2", "ranks 1 and 4", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 others". Returns `text`. */
const char *tg_ranks_text(const tg_ranks *ranks, char text[TG_RANKS_TEXT]);

#endif
