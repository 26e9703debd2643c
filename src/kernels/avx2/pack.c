/* The packed layout for any width: 16 lanes of 32 rows, each lane a stream of bits of its own. */
#include "kernels/avx2/vector.h"

#if defined(__AVX2__)

#include "kernels/avx2/avx2.h"
#include "kernels/scalar.h"

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

void tg_avx2_unpack_group(const uint8_t *packed, unsigned width, uint32_t *codes)
{
    const __m256i mask = _mm256_set1_epi32((int)((UINT32_C(1) << width) - 1));
    for (unsigned half = 0; half < 2; half++) {
        uint32_t *to = codes + 8 * half;
        const uint8_t *from = packed + 32 * half;
        __m256i word = tg_load_bits(from);
        unsigned used = 0;
        for (unsigned row = 0; row < 32; row++, to += 16) {
            __m256i code = _mm256_srl_epi32(word, _mm_cvtsi32_si128((int)used));
            used += width;
            if (used >= 32 && row < 31) {
                used -= 32;
                from += 64;
                word = tg_load_bits(from);
                if (used > 0)
                    code = _mm256_or_si256(code, _mm256_sll_epi32(word, _mm_cvtsi32_si128((int)(width - used))));
            }
            tg_store_bits(to, _mm256_and_si256(code, mask));
        }
    }
}

void tg_avx2_pack_signs(const float *values, size_t n, uint8_t *packed)
{
    const __m256i sign = _mm256_set1_epi32((int)0x80000000u);
    for (size_t done = 0; done < n; done += TG_GROUP, packed += TG_GROUP / 8) {
        __m256i a = _mm256_setzero_si256(), b = a;
        for (unsigned row = 0; row < 32; row++, values += 16) {
            a = _mm256_or_si256(_mm256_srli_epi32(a, 1), _mm256_and_si256(tg_load_bits(values), sign));
            b = _mm256_or_si256(_mm256_srli_epi32(b, 1), _mm256_and_si256(tg_load_bits(values + 8), sign));
        }
        tg_store_bits(packed, _mm256_xor_si256(a, _mm256_set1_epi32(-1)));
        tg_store_bits(packed + 32, _mm256_xor_si256(b, _mm256_set1_epi32(-1)));
    }
}

void tg_avx2_pack(const uint16_t *codes, size_t n, unsigned width, uint8_t *packed)
{
    uint32_t group[TG_GROUP];
    size_t done = 0;
    for (; done + TG_GROUP <= n; done += TG_GROUP) {
        for (unsigned i = 0; i < TG_GROUP; i += 8)
            tg_store_bits(group + i,
                          _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(codes + done + i))));
        tg_avx2_pack_group(group, width, packed + done / 8 * width);
    }
    if (done < n)
        tg_scalar_pack(codes + done, n - done, width, packed + done / 8 * width);
}

void tg_avx2_unpack(const uint8_t *packed, size_t n, unsigned width, uint16_t *codes)
{
    uint32_t group[TG_GROUP];
    size_t done = 0;
    for (; done + TG_GROUP <= n; done += TG_GROUP) {
        tg_avx2_unpack_group(packed + done / 8 * width, width, group);
        for (unsigned i = 0; i < TG_GROUP; i += 16) {
            __m256i both = _mm256_packus_epi32(tg_load_bits(group + i), tg_load_bits(group + i + 8));
            tg_store_bits(codes + done + i, _mm256_permute4x64_epi64(both, 0xd8));
        }
    }
    if (done < n)
        tg_scalar_unpack(packed + done / 8 * width, n - done, width, codes + done);
}

#endif
