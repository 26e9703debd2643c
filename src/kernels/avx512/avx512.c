/* The kernel set for x86-64 with AVX-512 (F, BW, DQ, VL): the kernels that take the most time; the others are those of
 * AVX2. */
#include "kernels/avx512/avx512.h"

#if defined(__AVX512F__)

#include "kernels/avx2/entries.h"

const tg_kernels tg_kernels_avx512 = {
    .name = "cpu/avx512",
    TG_AVX2_ENTRIES,
    .narrow = tg_avx512_narrow,
    .store = tg_avx512_store,
    .collect = tg_avx512_collect,
    .digest = tg_avx512_digest,
    .encode_levels = tg_avx512_encode_levels,
    .decode_levels = tg_avx512_decode_levels,
};

#endif
