/* Kernels for x86-64 with AVX2, F16C and BMI. The build compiles the files of this folder for those instructions; nothing else may call into
 * them before registry.c has found that the machine has them. */
#include "kernels/avx2/entries.h"
#include "kernels/avx2/vector.h"

#if defined(__AVX2__)

#define FOUR(n) n, n + 1, n + 2, n + 3
#define SIXTEEN(n) FOUR(n), FOUR(n + 4), FOUR(n + 8), FOUR(n + 12)
#define SIXTY_FOUR(n) SIXTEEN(n), SIXTEEN(n + 16), SIXTEEN(n + 32), SIXTEEN(n + 48)
const uint32_t tg_counting[TG_GROUP / 2] = {SIXTY_FOUR(0), SIXTY_FOUR(64), SIXTY_FOUR(128), SIXTY_FOUR(192)};

const tg_kernels tg_kernels_avx2 = {
    .name = "cpu/avx2",
    TG_AVX2_ENTRIES,
    .digest = tg_avx2_digest,
    .encode_levels = tg_avx2_encode_levels,
    .decode_levels = tg_avx2_decode_levels,
};

#endif
