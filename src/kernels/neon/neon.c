/* The kernel set for aarch64, where every processor has NEON. */
#include "kernels/neon/neon.h"

#if defined(__AARCH64EL__)

#include "kernels/scalar.h"

const tg_kernels tg_kernels_neon = {
    .name = "cpu/neon",
    .widen = tg_neon_widen,
    .narrow = tg_neon_narrow,
    .load = tg_neon_load,
    .store = tg_neon_store,
    .first_nonfinite = tg_neon_first_nonfinite,
    .compensate = tg_neon_compensate,
    .subtract = tg_neon_subtract,
    .add_scaled = tg_neon_add_scaled,
    .set_scaled = tg_neon_set_scaled,
    .max_magnitude = tg_neon_max_magnitude,
    .extremes = tg_neon_extremes,
    .block_sum = tg_neon_block_sum,
    .quantise = tg_neon_quantise,
    .dequantise = tg_neon_dequantise,
    .pack = tg_neon_pack,
    .unpack = tg_neon_unpack,
    .magnitude_keys = tg_neon_magnitude_keys,
    .random_keys = tg_neon_random_keys,
    .key_histogram = tg_scalar_key_histogram,
    .count_at_least = tg_neon_count_at_least,
    .copy_nontemporal = tg_scalar_copy_nontemporal,
    .nontemporal_fence = tg_scalar_nontemporal_fence,
    .digest = tg_scalar_digest, /* the compiler may use NEON everywhere here, so XXH3 does too */
    .encode_levels = tg_neon_encode_levels,
    .pack_signs = tg_neon_pack_signs,
    .all_finite = tg_neon_all_finite,
    .decode_plain = tg_neon_decode_plain,
    .decode_levels = tg_neon_decode_levels,
    .collect = tg_neon_collect,
    .keys_below = tg_neon_keys_below,
    .filter = tg_neon_filter,
    /* No rANS engine: rANS is limited by its table lookups, and NEON cannot gather. */
};

#endif
