/* The entries that the kernel sets for AVX2 and AVX-512 have in common. */
#ifndef TG_KERNELS_AVX2_ENTRIES_H
#define TG_KERNELS_AVX2_ENTRIES_H

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/collect.h"
#include "kernels/avx2/gaps.h"
#include "kernels/avx2/rans.h"
#include "kernels/scalar.h"

#define TG_AVX2_ENTRIES                                                                                       \
    .widen = tg_avx2_widen, .load = tg_avx2_load, .first_nonfinite = tg_avx2_first_nonfinite,                 \
    .compensate = tg_avx2_compensate, .subtract = tg_avx2_subtract, .add_scaled = tg_avx2_add_scaled,         \
    .set_scaled = tg_avx2_set_scaled, .max_magnitude = tg_avx2_max_magnitude, .extremes = tg_avx2_extremes,   \
    .block_sum = tg_avx2_block_sum, .quantise = tg_avx2_quantise, .dequantise = tg_avx2_dequantise,           \
    .pack = tg_avx2_pack, .unpack = tg_avx2_unpack, .magnitude_keys = tg_avx2_magnitude_keys,                 \
    .random_keys = tg_avx2_random_keys, .key_histogram = tg_scalar_key_histogram,                             \
    .count_at_least = tg_avx2_count_at_least, .copy_nontemporal = tg_avx2_copy_nontemporal,                   \
    .nontemporal_fence = tg_avx2_nontemporal_fence, .pack_signs = tg_avx2_pack_signs,                         \
    .all_finite = tg_avx2_all_finite, .decode_plain = tg_avx2_decode_plain, .keys_below = tg_avx2_keys_below, \
    .filter = tg_avx2_filter, .rans = &tg_rans_avx2, .gaps = &tg_gaps_avx2

#endif
