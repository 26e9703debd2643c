/* The threshold that selects the `rank` largest magnitudes of an array. */
#ifndef TG_CODEC_NTH_H
#define TG_CODEC_NTH_H

#include "codec/select.h"

/* Where the key is expected: from `low` to below `high`. A wrong band only costs time, but no key may be below
 * `low`. */
typedef struct tg_band {
    uint32_t low, high;
} tg_band;

/* The threshold that selects exactly `rank` (from 1 to n) of n values. `scratch` is working memory of `room` keys. */
tg_threshold tg_nth_of_array(const float *values, size_t n, uint64_t rank, tg_band band, uint32_t *scratch,
                             size_t room);

/* The same of n keys, all in the band. */
tg_threshold tg_nth_of_keys(const uint32_t *keys, size_t n, uint64_t rank, tg_band band);

/* The same of several lists of keys, or of values, whose keys are the bits of their magnitudes. All keys are in the
 * band. */
typedef struct tg_key_list {
    const void *keys;
    size_t n;
} tg_key_list;
tg_threshold tg_nth_of_lists(tg_pool *pool, const tg_key_list *lists, size_t list_count, uint64_t rank, tg_band band);

#endif
