/* Kernels for x86-64 with AVX2, F16C and BMI. The build compiles the files of this folder for those instructions; nothing else may call into
 * them before registry.c has found that the machine has them. */
#include "kernels/avx2/avx2.h"
#include "kernels/avx2/collect.h"
#include "kernels/avx2/rans.h"
#include "kernels/avx2/vector.h"
#include "kernels/scalar.h"

#if defined(__AVX2__)

#define FOUR(n) n, n + 1, n + 2, n + 3
#define SIXTEEN(n) FOUR(n), FOUR(n + 4), FOUR(n + 8), FOUR(n + 12)
#define SIXTY_FOUR(n) SIXTEEN(n), SIXTEEN(n + 16), SIXTEEN(n + 32), SIXTEEN(n + 48)
const uint32_t tg_counting[TG_GROUP / 2] = {SIXTY_FOUR(0), SIXTY_FOUR(64), SIXTY_FOUR(128), SIXTY_FOUR(192)};

const tg_kernels tg_kernels_avx2 = {
    .name = "cpu/avx2",
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
    .digest = tg_avx2_digest,
    .encode_levels = tg_avx2_encode_levels,
    .pack_signs = tg_avx2_pack_signs,
    .all_finite = tg_avx2_all_finite,
    .decode_plain = tg_avx2_decode_plain,
    .decode_levels = tg_avx2_decode_levels,
    .sift = tg_avx2_sift,
    .keys_below = tg_avx2_keys_below,
    .winnow = tg_avx2_winnow,
    .rans = &tg_rans_avx2,
};

#endif
