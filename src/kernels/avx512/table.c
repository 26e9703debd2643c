/* Kernels for x86-64 with AVX-512 (F, BW, DQ, VL): the hot ones; the others are AVX2's. */
#include "kernels/avx512/avx512.h"

#if defined(__AVX512F__)

#include "kernels/avx2/avx2.h"
#include "kernels/scalar.h"

const tg_kernels tg_kernels_avx512 = {
    .name = "cpu/avx512",
    .widen = tg_avx2_widen,
    .narrow = tg_avx2_narrow,
    .load = tg_avx2_load,
    .store = tg_avx2_store,
    .first_nonfinite = tg_avx2_first_nonfinite,
    .compensate = tg_avx2_compensate,
    .subtract = tg_avx2_subtract,
    .add_scaled = tg_avx2_add_scaled,
    .set_scaled = tg_avx2_set_scaled,
    .max_magnitude = tg_avx2_max_magnitude,
    .extremes = tg_avx2_extremes,
    .block_sum = tg_avx2_block_sum,
    .quantise = tg_avx2_quantise,
    .dequantise = tg_avx2_dequantise,
    .pack = tg_avx2_pack,
    .unpack = tg_avx2_unpack,
    .magnitude_keys = tg_avx2_magnitude_keys,
    .random_keys = tg_avx2_random_keys,
    .key_histogram = tg_scalar_key_histogram,
    .count_at_least = tg_avx2_count_at_least,
    .digest = tg_avx512_digest,
    .encode_levels = tg_avx512_encode_levels,
    .pack_signs = tg_avx2_pack_signs,
    .all_finite = tg_avx2_all_finite,
    .decode_plain = tg_avx2_decode_plain,
    .decode_levels = tg_avx512_decode_levels,
};

#endif
