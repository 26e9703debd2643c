/* Moving the chosen lanes of a vector to its front. */
#ifndef TG_KERNELS_AVX2_LEFT_PACK_H
#define TG_KERNELS_AVX2_LEFT_PACK_H

#include <immintrin.h>
#include <stdint.h>

/* The numbers of the lanes whose bit is set in `mask`, in order; what follows them is of no use. `mask` has 8 bits. */
static inline __m256i tg_lanes_of(unsigned mask)
{
    /* A byte of ones for each bit, then the lane numbers of those bytes pushed together. */
    const uint64_t bytes = _pdep_u64(mask, UINT64_C(0x0101010101010101)) * 0xff;
    const uint64_t lanes = _pext_u64(UINT64_C(0x0706050403020100), bytes);
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)lanes));
}

#endif
