/* Selection in one pass over the vector: guess from a sample a threshold that is safely too low, collect every element
 * above it while the residual is written, then select among those. What is selected does not depend on the guess. */
#ifndef TG_CODEC_ONEPASS_H
#define TG_CODEC_ONEPASS_H

#include "codec/select.h"
#include "kernels/ranges.h"

/* Where the residual stands when the elements have been selected. */
typedef enum tg_residual_state {
    TG_RESIDUAL_UNTOUCHED, /* as before the call */
    TG_RESIDUAL_IS_REST,   /* every element's rest */
    TG_RESIDUAL_IS_TAKEN   /* the same, but 0 at selected elements, whose rest is u */
} tg_residual_state;

/* What was collected of one range of the vector; several threads fill one each. */
typedef struct tg_sieve {
    tg_candidates list;
    uint32_t lowest;     /* no key in the list is below this one */
    size_t before_limit; /* of the list, how many lie before the pass's limit */
    uint64_t committed;  /* elements of the range before this one have their residual written */
    uint64_t dropped;
    size_t below; /* of the list, whose key is below the one that is looked for */
} tg_sieve;

typedef struct tg_onepass {
    tg_selection *selection;
    tg_source source; /* where u is read from at present: a residual that has been written holds it */
    tg_ranges ranges;
    tg_sieve *sieves; /* one for each range */
    tg_cut cut;       /* in the end: which of all lists are selected */
    uint32_t least;   /* the threshold of the collection */
    uint32_t taken; /* candidates from this key on are taken off the residual at once: about where the cut is expected,
                     * so that few are to be put right */
    uint64_t limit; /* from this element on, a key that equals the threshold does not do: enough others come first */
    uint64_t reach; /* the lists together must contain the so many largest */
    tg_residual_state residual;
    uint32_t *pilot; /* tg_pilot_size elements */
    uint32_t high;   /* the key of rank `reach` is expected to be below this one */
} tg_onepass;

/* Most elements of all lists together, and of the pilot sample, for vectors that are long enough; else 0. With threads
 * a list is as long as its range may need, for all that is to be selected may lie in one; what is not used is never
 * touched. */
size_t tg_onepass_room(uint64_t count, uint64_t reach, unsigned threads);
size_t tg_pilot_size(uint64_t count);

/* Hands the room out. */
void tg_onepass_divide(tg_onepass *onepass, uint32_t *indices, float *values);

/* The elements that must be in reach: k, or just too many for a threshold selector. */
uint64_t tg_onepass_reach(uint64_t wanted, bool exact);

/* Whether this device and vector go this way. */
bool tg_onepass_suits(const tg_selection *selection);

/* Selects as tg_select would, and leaves lists of candidates and the cut through them. TG_NONFINITE if a value is not
 * finite; then the residual is put back. */
tg_status tg_onepass_select(tg_onepass *onepass, const tg_guesses *guesses);

/* The same pass for those that are selected without a look at the vector: nothing is collected. */
tg_status tg_onepass_commit(tg_onepass *onepass);

/* The residual that candidates were taken from, which has to be put right once they are selected; NULL if they are
 * still there. */
float *tg_onepass_losers(const tg_onepass *onepass);

/* among.c: the cut that takes exactly `rank` of all lists, of one list, and how many elements of all lists have at
 * least a key. */
tg_cut tg_cut_of_lists(tg_onepass *onepass, uint64_t rank);
tg_cut tg_cut_of_list(const tg_onepass *onepass, const tg_sieve *sieve, uint64_t rank, uint32_t *scratch, size_t room);
uint64_t tg_count_lists(const tg_onepass *onepass, uint32_t key);
uint64_t tg_listed(const tg_onepass *onepass);

/* pilot.c: the threshold to collect from. The key that about `reach` elements of the vector have or exceed, lowered by
 * what chance can do to a sample, so that with near certainty at least as many do, and o->high likewise too high; or a
 * guess that is nearly certain to be taken. `wider` allows for more than chance. 0 if it cannot be told. Sets o->taken,
 * and o->limit, short of the vector's end where so many keys are equal that a part of it has enough of them. */
uint32_t tg_pilot_key(tg_onepass *onepass, const tg_guesses *guesses, bool wider);

#endif
