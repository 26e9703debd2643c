/* Distributing consecutive words to the lanes of a mask: the inverse of left_pack.h. */
#ifndef TG_KERNELS_AVX2_LANE_RANKS_H
#define TG_KERNELS_AVX2_LANE_RANKS_H

#include <immintrin.h>
#include <stdint.h>

/* For each mask of 8 bits, one byte per lane: how many lanes below it are in the mask. */
extern const uint64_t tg_lane_ranks[256];

static inline __m256i tg_ranks_of(unsigned mask)
{
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)tg_lane_ranks[mask]));
}

#endif
