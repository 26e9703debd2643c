/* The kernel set for x86-64 with AVX2, F16C and BMI. The build compiles the files of this folder for these
 * instructions; nothing may call them before registry.c has checked that the processor has them. */
#include "kernels/avx2/entries.h"

#if defined(__AVX2__)

const tg_kernels tg_kernels_avx2 = {
    .name = "cpu/avx2",
    TG_AVX2_ENTRIES,
    .narrow = tg_avx2_narrow,
    .store = tg_avx2_store,
    .collect = tg_avx2_collect,
    .digest = tg_avx2_digest,
    .encode_levels = tg_avx2_encode_levels,
    .decode_levels = tg_avx2_decode_levels,
};

#endif
