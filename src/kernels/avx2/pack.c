/* The packed layout for any width: 16 lanes of 32 rows, each lane a stream of bits of its own. */
#include "kernels/avx2/vector.h"

#if defined(__AVX2__)

#include "kernels/avx2/levels.h"

void tg_avx2_pack_group(const uint32_t *codes, unsigned width, uint8_t *packed)
{
    for (unsigned half = 0; half < 2; half++) {
        const uint32_t *from = codes + 8 * half;
        uint8_t *to = packed + 32 * half;
        __m256i word = _mm256_setzero_si256();
        unsigned used = 0;
        for (unsigned row = 0; row < 32; row++, from += 16) {
            __m256i code = tg_load_bits(from);
            word = _mm256_or_si256(word, _mm256_sll_epi32(code, _mm_cvtsi32_si128((int)used)));
            used += width;
            if (used >= 32) {
                tg_store_bits(to, word);
                to += 64;
                used -= 32;
                word = _mm256_srl_epi32(code, _mm_cvtsi32_si128((int)(width - used)));
            }
        }
    }
}

#endif
