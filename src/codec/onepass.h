/* Selection in one pass over the vector: guess from a sample a threshold that is safely too low, collect every element above it
 * while the residual is written, then select among those. What is selected does not depend on the guess. */
#ifndef TG_CODEC_ONEPASS_H
#define TG_CODEC_ONEPASS_H

#include "codec/select.h"

/* Where the residual stands when the elements have been selected. */
typedef enum tg_residual_state {
    TG_RESIDUAL_UNTOUCHED, /* as before the call */
    TG_RESIDUAL_IS_REST,   /* every element's rest */
    TG_RESIDUAL_IS_TAKEN   /* the same, but 0 at selected elements, whose rest is u */
} tg_residual_state;

typedef struct tg_onepass {
    tg_selection *selection;
    tg_source source;    /* where u is read from at present: a residual that has been written holds it */
    tg_candidates list;  /* in the end, the selected elements */
    uint32_t lowest;     /* no key in the list is below this one */
    uint64_t reach;      /* the list must contain the so many largest */
    tg_residual_state residual;
    uint32_t *pilot;     /* tg_pilot_size elements */
    uint64_t committed;  /* elements whose residual is written */
    uint32_t high;       /* the key of rank `reach` is expected to be below this one */
    bool pruned;
} tg_onepass;

/* Elements of a selection's list and of its pilot sample, for vectors that are long enough; else 0. */
size_t tg_onepass_room(uint64_t count, uint64_t reach);
size_t tg_pilot_size(uint64_t count);

/* The elements that must be in reach: k, or just too many for a threshold selector. */
uint64_t tg_onepass_reach(uint64_t wanted, bool exact);

/* Whether this device, source and selection go this way. */
bool tg_onepass_suits(const tg_selection *selection);

/* Selects as tg_select would. TG_NONFINITE if a value is not finite; then the residual is put back to rounding. */
tg_status tg_onepass_select(tg_onepass *onepass, const tg_guesses *guesses);

/* pilot.c: the threshold to collect from. The key that about `reach` elements of the vector have or exceed, lowered by what chance can
 * do to a sample, so that with near certainty at least as many do, and o->high likewise too high; or a guess that is nearly
 * certain to be taken. `wider` allows for more than chance. 0 if it cannot be told. */
uint32_t tg_pilot_key(tg_onepass *onepass, const tg_guesses *guesses, bool wider);

#endif
