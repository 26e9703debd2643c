/* Kernels for x86-64 with AVX2, F16C and BMI. The build compiles the files of this folder for those instructions; nothing else may call into
 * them before registry.c has found that the machine has them. */
#include "kernels/avx2/rans.h"
#include "kernels/scalar.h"

#if defined(__AVX2__)

const tg_kernels tg_kernels_avx2 = {
    .name = "cpu/avx2",
    .widen = tg_scalar_widen,
    .narrow = tg_scalar_narrow,
    .load = tg_scalar_load,
    .store = tg_scalar_store,
    .first_nonfinite = tg_scalar_first_nonfinite,
    .compensate = tg_scalar_compensate,
    .subtract = tg_scalar_subtract,
    .add_scaled = tg_scalar_add_scaled,
    .set_scaled = tg_scalar_set_scaled,
    .max_magnitude = tg_scalar_max_magnitude,
    .extremes = tg_scalar_extremes,
    .block_sum = tg_scalar_block_sum,
    .quantise = tg_scalar_quantise,
    .dequantise = tg_scalar_dequantise,
    .pack = tg_scalar_pack,
    .unpack = tg_scalar_unpack,
    .magnitude_keys = tg_scalar_magnitude_keys,
    .random_keys = tg_scalar_random_keys,
    .key_histogram = tg_scalar_key_histogram,
    .count_at_least = tg_scalar_count_at_least,
    .rans = &tg_rans_avx2,
};

#endif
