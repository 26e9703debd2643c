/* Selection in one pass over the vector, in three stages:
 *
 *     1. A small pilot sample gives a key that is almost certainly exceeded by slightly more than k elements (pilot.c).
 *     2. One pass lists every element that has this key or a larger one, the candidates, and writes the residual.
 *     3. The exact threshold is found among the candidates (candidate_threshold.c).
 *
 * The result does not depend on the pilot sample: where it misleads, the pass is repeated with a lower key. */
#ifndef TG_CODEC_ONEPASS_H
#define TG_CODEC_ONEPASS_H

#include "codec/select.h"
#include "kernels/ranges.h"

/* What the residual holds after the elements have been selected. */
typedef enum tg_residual_state {
    TG_RESIDUAL_UNTOUCHED, /* the same as before the call */
    TG_RESIDUAL_REST,      /* the rest of every element */
    TG_RESIDUAL_CLEARED    /* the rest of every element, but 0 at the selected ones, whose rest was u */
} tg_residual_state;

/* The candidates of one range of the vector. Each range is filled by one thread. */
typedef struct tg_range_list {
    tg_candidates list;
    uint32_t lowest;     /* a lower bound of the keys in the list */
    size_t before_limit; /* how many of the list lie before the pass's limit */
    uint64_t committed;  /* the residual of the elements of the range before this one has been written */
    uint64_t dropped;
    size_t below; /* how many of the list have a key below tg_onepass.high */
} tg_range_list;

typedef struct tg_onepass {
    tg_selection *selection;
    tg_source source; /* where u is read from now: a residual that has been written holds it */
    tg_ranges ranges;
    tg_range_list *range_lists; /* one for each range */
    tg_threshold threshold;     /* the result: which of all candidates are selected */
    uint32_t least;             /* elements with this key or a larger one are candidates */
    /* For candidates with this key or a larger one the pass already writes 0 to the residual. It is about where the
     * threshold is expected, so that few elements have to be corrected afterwards. */
    uint32_t clear_from;
    uint64_t
        limit; /* From this element on a key that equals `least` makes no candidate: enough equal keys come before. */
    uint64_t needed; /* the lists together must contain at least this many of the largest elements */
    tg_residual_state residual;
    uint32_t *pilot; /* tg_pilot_size elements */
    uint32_t high;   /* the key of rank `needed` is expected to be below this one */
} tg_onepass;

/* The most elements of all lists together, and of the pilot sample; 0 for vectors that are too short for one pass. With
 * threads each list has room for the worst case of its range, because all selected elements may lie in one range.
 * Memory that is not used is never touched. */
size_t tg_onepass_room(uint64_t count, uint64_t needed, unsigned threads);
size_t tg_pilot_size(uint64_t count);

/* Divides the memory for candidates among the ranges. */
void tg_onepass_divide(tg_onepass *onepass, uint32_t *indices, float *values);

/* How many of the largest elements must be candidates: k, or for a threshold selector one more than it may select. */
uint64_t tg_onepass_needed(uint64_t target, bool exact);

/* Whether the kernel set has the one-pass kernels and the vector is long enough. */
bool tg_onepass_suits(const tg_selection *selection);

/* Selects what tg_select would select; leaves lists of candidates, and the threshold that applies to them. TG_NONFINITE
 * if a value is not finite; then the residual has been restored. */
tg_status tg_onepass_select(tg_onepass *onepass, const tg_guesses *guesses);

/* The same pass for elements that are selected without reading the vector (randk): nothing is listed. */
tg_status tg_onepass_commit(tg_onepass *onepass);

/* The residual in which candidates have been cleared and which must be corrected when the selection is known; NULL
 * where nothing has been cleared. */
float *tg_onepass_cleared(const tg_onepass *onepass);

/* candidate_threshold.c: the threshold that selects exactly `rank` elements of all lists, or of one list; how many
 * elements of all lists have at least a key; how many elements the lists have. */
tg_threshold tg_threshold_of_lists(tg_onepass *onepass, uint64_t rank);
tg_threshold tg_threshold_of_list(const tg_onepass *onepass, const tg_range_list *range_list, uint64_t rank,
                                  uint32_t *scratch, size_t room);
uint64_t tg_count_lists(const tg_onepass *onepass, uint32_t key);
uint64_t tg_listed(const tg_onepass *onepass);

/* pilot.c: the key from which on elements become candidates. About `needed` elements of the vector have this key or a
 * larger one; it is lowered by the sampling error, so that with near certainty at least `needed` do. o->high is raised
 * in the same way. If a selector's guess is nearly certain to be accepted, the guess is returned. `wider` allows for
 * more than sampling error. 0 if no key can be estimated. Sets o->clear_from. Sets o->limit to less than the vector's
 * length where so many keys are equal that a part of the vector has enough of them. */
uint32_t tg_pilot_key(tg_onepass *onepass, const tg_guesses *guesses, bool wider);

#endif
