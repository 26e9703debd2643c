/* Keys of a vector of values, and moving the lanes of a mask to the front of a vector. A table is used because pext,
 * which could replace it, takes a hundred cycles on some processors. */
#ifndef TG_KERNELS_AVX2_LEFT_PACK_H
#define TG_KERNELS_AVX2_LEFT_PACK_H

#include <immintrin.h>
#include <stdint.h>

static inline __m256i tg_key_lanes(__m256 values)
{
    return _mm256_and_si256(_mm256_castps_si256(values), _mm256_set1_epi32(0x7fffffff));
}

/* For each mask of 8 bits, the numbers of its set bits, a byte each, lowest first. */
extern const uint64_t tg_lane_lists[256];

/* The numbers of the lanes whose bit is set in `mask`, in order, then zeros. */
static inline __m256i tg_lanes_of(unsigned mask)
{
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)tg_lane_lists[mask]));
}

#endif
