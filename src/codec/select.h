/* Selecting elements by key. The key of an element is the bits of its magnitude, or 31 random bits (randk). Elements
 * are ordered by (key descending, index ascending). These are integers, so the order of equal keys never depends on how
 * the work was divided. */
#ifndef TG_CODEC_SELECT_H
#define TG_CODEC_SELECT_H

#include <stdatomic.h>

#include "codec/codec.h"

/* The result of a selection: every element whose key is larger than `above` is selected, and of the elements whose key
 * equals `above` the first `ties` by index. */
typedef struct tg_threshold {
    uint32_t above;
    uint64_t ties;
    uint64_t selected; /* how many elements that selects */
} tg_threshold;

/* Threshold selectors guess from a fixed sample of the vector, never from all of it: 4096 runs of 16 elements, where
 * run j starts at j * count / 4096 rounded down to a multiple of 16. A vector of at most 65536 elements is its own
 * sample. */
#define TG_SAMPLE_RUNS 4096u
#define TG_SAMPLE_RUN 16u
#define TG_SAMPLE (TG_SAMPLE_RUNS * TG_SAMPLE_RUN)

/* Scratch memory of one thread for one block, on its stack. */
typedef struct tg_select_scratch {
    tg_source_block block;
    uint32_t keys[TG_BLOCK];
} tg_select_scratch;

/* Values of the most significant digit of a key, in a radix search. */
#define TG_DIGIT_BINS (1u << 11)

/* The state of one selection. `sample` has room for as many floats as the selector asked for. */
typedef struct tg_selection {
    tg_job *job;
    uint64_t target; /* k: how many elements to select */
    bool by_random_key;
    bool seen_all;  /* set when the keys of all elements have been read */
    bool nonfinite; /* set when one of them is not finite */
    /* working memory of the thread that runs the selection: TG_BLOCK keys, TG_DIGIT_BINS counters */
    uint32_t *keys;
    atomic_uint_fast64_t *bins;
    float *sample;
} tg_selection;

/* The thresholds that a selector tries, in this order, before it bisects. */
#define TG_GUESSES 5u
typedef struct tg_guesses {
    float values[TG_GUESSES];
    size_t count;
    bool exact_if_many; /* after a guess that selects too many, select exactly k */
} tg_guesses;

/* The fewest and the most elements that a threshold selector may select. */
static inline uint64_t tg_min_selected(uint64_t target) { return (2 * target + 2) / 3; }
static inline uint64_t tg_max_selected(uint64_t target) { return 4 * target / 3; }

/* What the search for a threshold needs to know about the vector: how many elements have at least a given key, and the
 * threshold that selects exactly `target` elements. The answers come from the vector or from a list of candidates. */
#define TG_COUNT_UNKNOWN UINT64_MAX
typedef struct tg_threshold_search {
    void *data;
    uint64_t target, total;
    uint64_t (*count)(void *data, uint32_t key); /* TG_COUNT_UNKNOWN ends the search */
    tg_threshold (*exact)(void *data);
} tg_threshold_search;

/* Tries the guesses in order, then bisects, until between tg_min_selected and tg_max_selected elements are selected.
 * Where many equal keys make that impossible, ties are broken by index so that exactly `target` are selected. False if
 * a count was not known. */
bool tg_search_threshold(const tg_threshold_search *search, const tg_guesses *guesses, tg_threshold *threshold);

/* Selects by reading the whole vector as often as needed: exactly `target` elements, or with guesses about as many.
 * This is the definition of a selection; onepass.h gives the same result in one pass. */
tg_threshold tg_select(tg_selection *selection, const tg_guesses *guesses);

/* Fills selection->sample with the values u of the fixed sample; returns how many there are. */
size_t tg_sample_fixed(tg_selection *selection);
/* The same with `size` elements in runs of 16 at random places, one run in each equal part of the vector. */
size_t tg_sample_random(tg_selection *selection, uint64_t size);

/* Writes the keys of the n elements from `first` on, which lie within a block, to scratch->keys. Unless keys are random
 * it also writes u to scratch->block, and returns how many elements were dropped because they are not finite. */
size_t tg_keys_of(const tg_selection *selection, uint64_t first, size_t n, tg_select_scratch *scratch);

#endif
