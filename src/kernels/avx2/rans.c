/* The states of 32 rANS lanes in four vectors. Words are read and written in the order of the lanes: compacted when
 * encoding, distributed by rank when decoding. */
#include "kernels/avx2/rans.h"

#if defined(__AVX2__)

#include <immintrin.h>
#include <string.h>

#include "kernels/avx2/lane_ranks.h"
#include "kernels/avx2/left_pack.h"

enum { VECTORS = 4, WIDTH = 8 };

static inline __m256i load(const uint32_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
static inline void store(uint32_t *p, __m256i x) { _mm256_storeu_si256((__m256i *)(void *)p, x); }

/* The table entries of eight symbols. */
static inline __m256i look_up(const uint32_t *table, const uint8_t *symbols)
{
    long long eight;
    memcpy(&eight, symbols, sizeof eight);
    return _mm256_i32gather_epi32((const int *)(const void *)table, _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(eight)), 4);
}

/* x / f for x < f * 2^20, by a float division that is at most one off (2^20 quotients in 24 bits), corrected by means
 * of the remainder. */
static inline __m256i divide(__m256i x, __m256i f, __m256i *remainder)
{
    __m256 wide = _mm256_cvtepi32_ps(x);
    wide = _mm256_blendv_ps(wide, _mm256_add_ps(wide, _mm256_set1_ps(0x1p32f)), wide); /* x as unsigned */
    __m256i q = _mm256_cvttps_epi32(_mm256_div_ps(wide, _mm256_cvtepi32_ps(f)));
    __m256i r = _mm256_sub_epi32(x, _mm256_mullo_epi32(q, f));
    __m256i low = _mm256_srai_epi32(r, 31); /* one too many: r < 0 */
    q = _mm256_add_epi32(q, low);
    r = _mm256_add_epi32(r, _mm256_and_si256(low, f));
    __m256i high = _mm256_cmpgt_epi32(f, r); /* all ones unless one too few */
    q = _mm256_add_epi32(q, _mm256_add_epi32(high, _mm256_set1_epi32(1)));
    *remainder = _mm256_sub_epi32(r, _mm256_andnot_si256(high, f));
    return q;
}

/* Shuffles that move the first n words of a vector to its end; loaded from offset 2n. */
static const uint8_t to_the_end[32] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                       0x80, 0x80, 0x80, 0x80, 0x80, 0,    1,    2,    3,    4,    5,
                                       6,    7,    8,    9,    10,   11,   12,   13,   14,   15};

/* Writes the low words of the lanes of the mask below `end`, in order. */
static inline uint8_t *put_words(__m256i x, unsigned mask, uint8_t *end)
{
    __m256i packed = _mm256_permutevar8x32_epi32(_mm256_and_si256(x, _mm256_set1_epi32(0xffff)), tg_lanes_of(mask));
    __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(packed), _mm256_extracti128_si256(packed, 1));
    size_t size = 2 * (size_t)_mm_popcnt_u32(mask);
    __m128i moved = _mm_shuffle_epi8(words, _mm_loadu_si128((const __m128i *)(const void *)(to_the_end + size)));
    _mm_storeu_si128((__m128i *)(void *)(end - 16), moved);
    return end - size;
}

static uint8_t *encode(const uint32_t *model, uint32_t *state, const uint8_t *symbols, size_t steps, uint8_t *end)
{
    __m256i x[VECTORS];
    for (int v = 0; v < VECTORS; v++)
        x[v] = load(state + WIDTH * v);
    while (steps-- > 0) {
        for (int v = VECTORS - 1; v >= 0; v--) {
            __m256i entry = look_up(model, symbols + 32 * steps + WIDTH * (size_t)v);
            __m256i f = _mm256_and_si256(entry, _mm256_set1_epi32(0xffff)), start = _mm256_srli_epi32(entry, 16);
            /* x >= f * 2^20: one word is written. */
            __m256i stays = _mm256_cmpgt_epi32(f, _mm256_srli_epi32(x[v], 20));
            unsigned mask = ~(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(stays)) & 0xff;
            end = put_words(x[v], mask, end);
            x[v] = _mm256_blendv_epi8(_mm256_srli_epi32(x[v], 16), x[v], stays);
            __m256i remainder, quotient = divide(x[v], f, &remainder);
            x[v] = _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(quotient, TG_RANS_LOG), remainder), start);
        }
    }
    for (int v = 0; v < VECTORS; v++)
        store(state + WIDTH * v, x[v]);
    return end;
}

static size_t decode(const uint32_t *slots, uint32_t *state, const uint8_t **word, size_t *words, size_t steps,
                     uint8_t *symbols)
{
    const uint8_t *at = *word;
    size_t left = *words, done = 0;
    __m256i x[VECTORS];
    for (int v = 0; v < VECTORS; v++)
        x[v] = load(state + WIDTH * v);
    for (; done < steps && left >= 40; done++) {
        __m256i found[VECTORS];
        for (int v = 0; v < VECTORS; v++) {
            __m256i slot = _mm256_and_si256(x[v], _mm256_set1_epi32(TG_RANS_SLOTS - 1));
            __m256i entry = _mm256_i32gather_epi32((const int *)(const void *)slots, slot, 4);
            __m256i f = _mm256_and_si256(entry, _mm256_set1_epi32(0xfff));
            __m256i bias = _mm256_and_si256(_mm256_srli_epi32(entry, 12), _mm256_set1_epi32(0xfff));
            found[v] = _mm256_srli_epi32(entry, 24);
            x[v] = _mm256_add_epi32(_mm256_mullo_epi32(f, _mm256_srli_epi32(x[v], TG_RANS_LOG)), bias);
            __m256i short_of_bits = _mm256_cmpeq_epi32(_mm256_srli_epi32(x[v], 16), _mm256_setzero_si256());
            unsigned mask = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(short_of_bits));
            __m256i next = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)at));
            next = _mm256_permutevar8x32_epi32(next, tg_ranks_of(mask));
            x[v] = _mm256_blendv_epi8(x[v], _mm256_or_si256(_mm256_slli_epi32(x[v], 16), next), short_of_bits);
            unsigned consumed = (unsigned)_mm_popcnt_u32(mask);
            at += 2 * consumed;
            left -= consumed;
        }
        __m256i low = _mm256_packus_epi32(found[0], found[1]), high = _mm256_packus_epi32(found[2], found[3]);
        __m256i bytes = _mm256_packus_epi16(low, high); /* the lower halves of all four vectors, then the upper ones */
        bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((__m256i *)(void *)(symbols + 32 * done), bytes);
    }
    for (int v = 0; v < VECTORS; v++)
        store(state + WIDTH * v, x[v]);
    *word = at;
    *words = left;
    return done;
}

const tg_rans_engine tg_rans_avx2 = {.encode = encode, .decode = decode};

#endif
