/* What a reducer's state looks like as bytes (docs/collectives.md, 9): state.c writes it, state_load.c reads it. */
#ifndef TG_REDUCE_STATE_H
#define TG_REDUCE_STATE_H

#include "reduce/identity.h"
#include "reduce/levels.h"

static const uint8_t tg_state_magic[4] = {'T', 'G', 'S', 'T'};
enum { TG_STATE_BYPASSES = 1 }; /* flag: the rule and its log are in it */
enum { TG_STATE_VERSION = 0, TG_STATE_HEAD = 40, TG_STATE_DIGEST = 8, TG_STATE_IDENTITY = 4 + TG_IDENTITY_BYTES + 1 };

/* The flag of a state of two levels: it says which hosts there were, and of each tensor which elements it has. */
enum { TG_STATE_LEVELS = 2 };

/* What identifies a tensor, to be compared as bytes: its name follows. The last byte says what follows the name. */
enum { TG_STATE_RESIDUAL = 1, TG_STATE_MOMENTUM = 2 };
void tg_state_identity(const tg_reducer *reducer, size_t tensor, uint8_t bytes[TG_STATE_IDENTITY]);

/* Where this rank's residuals are: in the reducer itself, or in that between hosts; NULL if this rank has none. */
static inline tg_reducer *tg_state_home(const tg_reducer *reducer)
{
    return reducer->levels ? reducer->levels->inner : (tg_reducer *)(uintptr_t)reducer;
}
/* Where this rank's elements of a tensor begin. */
static inline uint64_t tg_state_first(const tg_reducer *reducer, size_t tensor)
{
    const bool owns = reducer->levels && reducer->levels->share != TG_NO_SHARE;
    return owns ? reducer->tensors[tensor].parts[reducer->levels->share] : 0;
}

/* How many boundaries a tensor has, of all reductions that may be under way. */
static inline uint64_t tg_state_boundaries(const tg_reducer *reducer, const tg_reducing_tensor *tensor)
{
    return tensor->boundaries ? reducer->options.depth * ((uint64_t)reducer->world + 1) : 0;
}

#endif
