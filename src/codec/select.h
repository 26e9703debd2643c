/* Choosing elements by key: a key is the magnitude's bits, or 31 random bits. Selection orders by (key descending, index
 * ascending), on integers, so ties never depend on how the work was split. */
#ifndef TG_CODEC_SELECT_H
#define TG_CODEC_SELECT_H

#include "codec/codec.h"

/* What is selected: all elements whose key is above `above`, and of those whose key equals it the first `ties` by index. */
typedef struct tg_cut {
    uint32_t above;
    uint64_t ties;
} tg_cut;

/* Thresholds are guessed from a fixed sample of the vector, never from all of it: 4096 runs of 16 elements, run j starting at
 * j * count / 4096 rounded down to a multiple of 16; all elements if there are no more than 65536. */
#define TG_SAMPLE_RUNS 4096u
#define TG_SAMPLE_RUN 16u
#define TG_SAMPLE (TG_SAMPLE_RUNS * TG_SAMPLE_RUN)

/* One selection on its way; lives in the workspace. `sample` has room for what the selector asked for. */
typedef struct tg_selection {
    tg_job *job;
    uint64_t wanted; /* k */
    bool by_random_key;
    bool seen_all;   /* set when every magnitude has been looked at */
    bool nonfinite;  /* set when one of them turned out not to be finite */
    tg_source_block *block;
    uint32_t *keys;  /* one block of them */
    float *sample;
} tg_selection;

/* Exactly `wanted` elements. */
tg_cut tg_select_exact(tg_selection *selection);

/* Elements with at least this key. */
uint64_t tg_select_count(tg_selection *selection, uint32_t key);

/* Tries the guesses in order, then bisects, until between ceil(2k/3) and floor(4k/3) elements pass; where a group of equal keys
 * straddles that, it is cut by index so that exactly k do. `exact_if_many`: a guess that lets too many pass is followed by an
 * exact selection instead. */
tg_cut tg_select_by_threshold(tg_selection *selection, const float *guesses, size_t guess_count, bool exact_if_many);

/* Fills selection->sample with u at the fixed sample; returns its size. */
size_t tg_sample_fixed(tg_selection *selection);
/* The same with `size` elements in runs of 16 at places drawn at random, one run in each equal part of the vector. */
size_t tg_sample_random(tg_selection *selection, uint64_t size);

/* The rank-th largest magnitude (rank from 1) of n values, exactly. */
float tg_nth_magnitude(const tg_kernels *kernels, const float *values, size_t n, uint64_t rank, uint32_t *keys);

#endif
