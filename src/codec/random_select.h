/* Selection by random keys (randk) in one pass. The keys do not depend on the vector and their distribution is known,
 * so no sample is needed to find a key that slightly more than k elements exceed. */
#ifndef TG_CODEC_RANDOM_SELECT_H
#define TG_CODEC_RANDOM_SELECT_H

#include "codec/sparse_writer.h"

/* The most elements of all lists together. */
size_t tg_random_select_room(uint64_t count, uint64_t target, unsigned threads);

/* Lists what tg_select would select, with the ranges of a one-pass selection whose residual has been written
 * (tg_onepass_commit). False if there were too many or too few candidates, which happens once in millions of calls. */
bool tg_random_select(const tg_onepass *onepass, tg_selected *list, uint32_t *indices, float *values);

#endif
