/* Selecting among candidates. */
#include "kernels/avx2/collect.h"

#if defined(__AVX2__)

#include "base/bytes.h"
#include "kernels/avx2/left_pack.h"

enum { LANES = 8, STASH = 128 };

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

/* Losers on their way to the residual. They lie far apart, so the memory is asked for a stash of them while the next one fills. */
typedef struct stash {
    size_t count;
    uint32_t indices[STASH + LANES];
    float values[STASH + LANES];
} stash;

static void ask_for(const stash *losers, const float *residual)
{
    for (size_t j = 0; j < losers->count; j++)
        _mm_prefetch((const char *)&residual[losers->indices[j]], _MM_HINT_T1);
}

static void put_back(stash *losers, float *residual)
{
    for (size_t j = 0; j < losers->count; j++)
        residual[losers->indices[j]] = losers->values[j];
    losers->count = 0;
}

static inline void put_aside(stash *losers, __m256i indices, __m256 values, unsigned mask)
{
    const __m256i lanes = tg_lanes_of(mask);
    store_indices(losers->indices + losers->count, _mm256_permutevar8x32_epi32(indices, lanes));
    _mm256_storeu_ps(losers->values + losers->count, _mm256_permutevar8x32_ps(values, lanes));
    losers->count += (size_t)__builtin_popcount(mask);
}

/* The lowest bits of a mask, as many as `most` says. */
static unsigned first_bits(unsigned mask, uint64_t most)
{
    unsigned taken = 0;
    for (; mask && most > 0; mask &= mask - 1, most--)
        taken |= mask & -mask;
    return taken;
}

size_t tg_avx2_winnow(const uint32_t *indices, const float *values, size_t n, uint32_t above, uint64_t *ties, float *residual,
                      uint32_t *kept_indices, float *kept_values)
{
    const __m256i bound = _mm256_set1_epi32((int)above);
    stash stashes[2];
    stashes[0].count = stashes[1].count = 0;
    unsigned turn = 0;
    size_t kept = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m256 value = _mm256_loadu_ps(values + i);
        const __m256i index = _mm256_loadu_si256((const __m256i *)(const void *)(indices + i)), key = tg_key_lanes(value);
        unsigned winners = lanes_set(_mm256_cmpgt_epi32(key, bound));
        const unsigned equal = lanes_set(_mm256_cmpeq_epi32(key, bound));
        if (equal && *ties > 0) {
            const unsigned taken = first_bits(equal, *ties);
            *ties -= (unsigned)__builtin_popcount(taken);
            winners |= taken;
        }
        if (residual) {
            put_aside(&stashes[turn], index, value, ~winners & 0xff);
            if (stashes[turn].count >= STASH) {
                ask_for(&stashes[turn], residual);
                turn ^= 1;
                put_back(&stashes[turn], residual);
            }
        }
        /* Written over what has been read already, at most. */
        const __m256i lanes = tg_lanes_of(winners);
        _mm256_storeu_ps(kept_values + kept, _mm256_permutevar8x32_ps(value, lanes));
        store_indices(kept_indices + kept, _mm256_permutevar8x32_epi32(index, lanes));
        kept += (size_t)__builtin_popcount(winners);
    }
    ask_for(&stashes[turn], residual);
    put_back(&stashes[turn ^ 1], residual);
    put_back(&stashes[turn], residual);
    for (; i < n; i++) {
        const uint32_t index = indices[i], key = tg_float_bits(values[i]) & TG_MAGNITUDE_MASK;
        const float value = values[i];
        const bool tie = key == above && *ties > 0;
        *ties -= tie;
        if (key > above || tie) {
            kept_indices[kept] = index;
            kept_values[kept++] = value;
        } else if (residual) {
            residual[index] = value;
        }
    }
    return kept;
}

#endif
