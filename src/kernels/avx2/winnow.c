/* Selecting among candidates. */
#include "kernels/avx2/collect.h"

#if defined(__AVX2__)

#include "base/bytes.h"
#include "kernels/avx2/left_pack.h"

enum { LANES = 8, STASH = 256 };

static inline unsigned lanes_set(__m256i lanes) { return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(lanes)); }

static inline void store_indices(uint32_t *to, __m256i indices) { _mm256_storeu_si256((__m256i *)(void *)to, indices); }

size_t tg_avx2_keys_below(const float *values, size_t n, uint32_t bound, uint32_t *keys, size_t room)
{
    const __m256i bounds = _mm256_set1_epi32((int)bound);
    size_t found = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m256i here = tg_key_lanes(_mm256_loadu_ps(values + i));
        const unsigned below = lanes_set(_mm256_cmpgt_epi32(bounds, here));
        if (found + LANES > room)
            return room + 1;
        store_indices(keys + found, _mm256_permutevar8x32_epi32(here, tg_lanes_of(below)));
        found += (size_t)__builtin_popcount(below);
    }
    for (; i < n; i++) {
        const uint32_t key = tg_float_bits(values[i]) & TG_MAGNITUDE_MASK;
        if (found >= room)
            return room + 1;
        keys[found] = key;
        found += key < bound;
    }
    return found;
}

/* Losers on their way to the residual: they lie far apart, so the memory is asked for many before the first is stored. */
typedef struct stash {
    uint32_t indices[STASH + LANES];
    float values[STASH + LANES];
    size_t count;
} stash;

static void empty(stash *losers, float *residual)
{
    for (size_t j = 0; j < losers->count; j++)
        residual[losers->indices[j]] = losers->values[j];
    losers->count = 0;
}

static inline void put_aside(stash *losers, float *residual, __m256i indices, __m256 values, unsigned mask)
{
    const __m256i lanes = tg_lanes_of(mask);
    const size_t before = losers->count;
    store_indices(losers->indices + before, _mm256_permutevar8x32_epi32(indices, lanes));
    _mm256_storeu_ps(losers->values + before, _mm256_permutevar8x32_ps(values, lanes));
    losers->count += (size_t)__builtin_popcount(mask);
    for (size_t j = before; j < losers->count; j++)
        _mm_prefetch((const char *)&residual[losers->indices[j]], _MM_HINT_T1);
    if (losers->count >= STASH)
        empty(losers, residual);
}

/* The lowest bits of a mask, as many as `most` says. */
static unsigned first_bits(unsigned mask, uint64_t most)
{
    unsigned taken = 0;
    for (; mask && most > 0; mask &= mask - 1, most--)
        taken |= mask & -mask;
    return taken;
}

void tg_avx2_winnow(tg_candidates *list, uint32_t above, uint64_t ties, float *residual)
{
    const __m256i bound = _mm256_set1_epi32((int)above);
    stash losers = {.count = 0};
    size_t kept = 0, i = 0;
    for (; i + LANES <= list->count; i += LANES) {
        const __m256 values = _mm256_loadu_ps(list->values + i);
        const __m256i indices = _mm256_loadu_si256((const __m256i *)(const void *)(list->indices + i));
        const __m256i keys = tg_key_lanes(values);
        unsigned winners = lanes_set(_mm256_cmpgt_epi32(keys, bound));
        const unsigned equal = lanes_set(_mm256_cmpeq_epi32(keys, bound));
        if (equal && ties > 0) {
            const unsigned taken = first_bits(equal, ties);
            ties -= (unsigned)__builtin_popcount(taken);
            winners |= taken;
        }
        if (residual && winners != 0xff)
            put_aside(&losers, residual, indices, values, ~winners & 0xff);
        /* Written over what has been read already: kept <= i. */
        const __m256i lanes = tg_lanes_of(winners);
        _mm256_storeu_ps(list->values + kept, _mm256_permutevar8x32_ps(values, lanes));
        store_indices(list->indices + kept, _mm256_permutevar8x32_epi32(indices, lanes));
        kept += (size_t)__builtin_popcount(winners);
    }
    empty(&losers, residual);
    for (; i < list->count; i++) {
        const uint32_t key = tg_float_bits(list->values[i]) & TG_MAGNITUDE_MASK, index = list->indices[i];
        const float value = list->values[i];
        const bool tie = key == above && ties > 0;
        ties -= tie;
        if (key > above || tie) {
            list->indices[kept] = index;
            list->values[kept++] = value;
        } else if (residual) {
            residual[index] = value;
        }
    }
    list->count = kept;
}

#endif
