/* The rank-th largest magnitude of an array. */
#ifndef TG_CODEC_NTH_H
#define TG_CODEC_NTH_H

#include "codec/select.h"

/* Where the key is expected: from `low` to below `high`. A wrong band costs time only, but no key may lie below `low`.
 */
typedef struct tg_band {
    uint32_t low, high;
} tg_band;

/* The cut that takes exactly `rank` (from 1 to n) of n values. Works in `scratch`. */
tg_cut tg_nth_of_array(const float *values, size_t n, uint64_t rank, tg_band band, uint32_t *scratch, size_t room);

/* The same of n keys, all in the band. */
tg_cut tg_nth_of_keys(const uint32_t *keys, size_t n, uint64_t rank, tg_band band);

/* The same of several lists of keys, or of values, whose magnitudes' bits are their keys. All keys are in the band. */
typedef struct tg_key_list {
    const void *keys;
    size_t n;
} tg_key_list;
tg_cut tg_nth_of_lists(tg_pool *pool, const tg_key_list *lists, size_t list_count, uint64_t rank, tg_band band);

#endif
