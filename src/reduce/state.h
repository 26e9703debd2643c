/* What a reducer's state looks like as bytes (docs/collectives.md, 9): state.c writes it, state_load.c reads it. */
#ifndef TG_REDUCE_STATE_H
#define TG_REDUCE_STATE_H

#include "reduce/identity.h"
#include "reduce/reducer.h"

static const uint8_t tg_state_magic[4] = {'T', 'G', 'S', 'T'};
enum { TG_STATE_BYPASSES = 1 }; /* flag: the rule and its log are in it */
enum { TG_STATE_VERSION = 0, TG_STATE_HEAD = 40, TG_STATE_DIGEST = 8, TG_STATE_IDENTITY = 4 + TG_IDENTITY_BYTES + 1 };

/* What identifies a tensor, to be compared as bytes: its name follows. */
void tg_state_identity(const tg_reducing_tensor *tensor, uint8_t bytes[TG_STATE_IDENTITY]);

/* How many boundaries a tensor has, of all reductions that may be under way. */
static inline uint64_t tg_state_boundaries(const tg_reducer *reducer, const tg_reducing_tensor *tensor)
{
    return tensor->boundaries ? reducer->options.depth * ((uint64_t)reducer->world + 1) : 0;
}

#endif
