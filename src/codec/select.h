/* Choosing elements by key: a key is the magnitude's bits, or 31 random bits. Selection orders by (key descending,
 * index ascending), on integers, so ties never depend on how the work was split. */
#ifndef TG_CODEC_SELECT_H
#define TG_CODEC_SELECT_H

#include "codec/codec.h"

/* What is selected: all elements whose key is above `above`, and of those whose key equals it the first `ties` by
 * index. */
typedef struct tg_cut {
    uint32_t above;
    uint64_t ties;
    uint64_t taken; /* how many that makes */
} tg_cut;

/* Thresholds are guessed from a fixed sample of the vector, never from all of it: 4096 runs of 16 elements, run j
 * starting at j * count / 4096 rounded down to a multiple of 16; all elements if there are no more than 65536. */
#define TG_SAMPLE_RUNS 4096u
#define TG_SAMPLE_RUN 16u
#define TG_SAMPLE (TG_SAMPLE_RUNS * TG_SAMPLE_RUN)

/* What a thread works in while it looks at a block: on its stack. */
typedef struct tg_select_scratch {
    tg_source_block block;
    uint32_t keys[TG_BLOCK];
} tg_select_scratch;

/* One selection on its way. `sample` has room for what the selector asked for. */
typedef struct tg_selection {
    tg_job *job;
    uint64_t wanted; /* k */
    bool by_random_key;
    bool seen_all;              /* set when every magnitude has been looked at */
    bool nonfinite;             /* set when one of them turned out not to be finite */
    tg_select_scratch *scratch; /* of the thread that runs the selection */
    float *sample;
} tg_selection;

/* The thresholds that a selector tries before it bisects. */
#define TG_GUESSES 5u
typedef struct tg_guesses {
    float values[TG_GUESSES];
    size_t count;
    bool exact_if_many; /* a guess that lets too many pass is followed by an exact selection */
} tg_guesses;

/* How many elements a threshold selector may take. */
static inline uint64_t tg_fewest(uint64_t wanted) { return (2 * wanted + 2) / 3; }
static inline uint64_t tg_most(uint64_t wanted) { return 4 * wanted / 3; }

/* What a search for a threshold asks: how many elements have at least a key, and which cut takes exactly `wanted`. */
#define TG_NOT_KNOWN UINT64_MAX
typedef struct tg_inquiry {
    void *data;
    uint64_t wanted, total;
    uint64_t (*count)(void *data, uint32_t key); /* TG_NOT_KNOWN ends the search */
    tg_cut (*exact)(void *data);
} tg_inquiry;

/* Tries the guesses in order, then bisects, until between tg_fewest and tg_most elements pass; where a group of equal
 * keys straddles that, it is cut by index so that exactly `wanted` do. False if a count was not known. */
bool tg_search_threshold(const tg_inquiry *inquiry, const tg_guesses *guesses, tg_cut *cut);

/* Selects by going over the vector as often as it takes: exactly `wanted` elements, or with guesses about as many. */
tg_cut tg_select(tg_selection *selection, const tg_guesses *guesses);

/* Fills selection->sample with u at the fixed sample; returns its size. */
size_t tg_sample_fixed(tg_selection *selection);
/* The same with `size` elements in runs of 16 at places drawn at random, one run in each equal part of the vector. */
size_t tg_sample_random(tg_selection *selection, uint64_t size);

/* Keys of the n elements from `first` on, within a block, to scratch->keys; unless they are random, also u to
 * scratch->block, and then returns how many elements were dropped as not finite. */
size_t tg_keys_of(const tg_selection *selection, uint64_t first, size_t n, tg_select_scratch *scratch);

#endif
