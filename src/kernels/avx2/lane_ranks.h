/* Handing consecutive words to the chosen lanes of a vector: the inverse of left_pack.h. */
#ifndef TG_KERNELS_AVX2_LANE_RANKS_H
#define TG_KERNELS_AVX2_LANE_RANKS_H

#include <immintrin.h>
#include <stdint.h>

/* For each mask of 8 bits, and each lane a byte: how many lanes below it are chosen. */
extern const uint64_t tg_lane_ranks[256];

static inline __m256i tg_ranks_of(unsigned mask)
{
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)tg_lane_ranks[mask]));
}

#endif
