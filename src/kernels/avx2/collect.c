/* The one pass of selection: compensate, commit and pick candidates while a cache line is at hand. Per element it is some three
 * instructions more than e += g, so it runs at the speed of memory. */
#include "kernels/avx2/collect.h"

#if defined(__AVX2__)

#include "base/bytes.h"
#include "kernels/avx2/left_pack.h"

/* Elements that are sifted at once: a mask of 64 bits says which are candidates. */
enum { STEP = 64, LANES = 8, AHEAD = 1024 };

static inline __m256i key_of(__m256 u)
{
    return _mm256_and_si256(_mm256_castps_si256(u), _mm256_set1_epi32((int)TG_MAGNITUDE_MASK));
}

/* u of 64 elements, and the largest key in each lane. */
static inline __m256i compute(const float *gradient, const float *residual, __m256 factor, float *u)
{
    __m256i largest = _mm256_setzero_si256();
    for (int i = 0; i < STEP; i += LANES) {
        __m256 x = _mm256_loadu_ps(gradient + i);
        if (residual)
            x = _mm256_add_ps(x, _mm256_mul_ps(factor, _mm256_loadu_ps(residual + i)));
        _mm256_storeu_ps(u + i, x);
        largest = _mm256_max_epi32(largest, key_of(x));
    }
    return largest;
}

static inline bool any_above(__m256i keys, uint32_t bound)
{
    return _mm256_movemask_epi8(_mm256_cmpgt_epi32(keys, _mm256_set1_epi32((int)bound))) != 0;
}

/* Which of 64 elements are candidates; the residual gets u where they are not. */
static inline uint64_t commit(const float *u, float *residual, __m256i below)
{
    uint64_t mask = 0;
    for (int i = 0; i < STEP; i += LANES) {
        __m256 x = _mm256_loadu_ps(u + i);
        __m256 chosen = _mm256_castsi256_ps(_mm256_cmpgt_epi32(key_of(x), below));
        mask |= (uint64_t)(unsigned)_mm256_movemask_ps(chosen) << i;
        if (residual)
            _mm256_storeu_ps(residual + i, _mm256_andnot_ps(chosen, x));
    }
    return mask;
}

/* Few bits are set: the first four are taken without asking, so that no branch has to be guessed. u has 65 elements. */
static inline size_t append_few(tg_candidates *list, size_t count, const float *u, uint32_t first, uint64_t mask)
{
    const size_t end = count + (size_t)__builtin_popcountll(mask);
    size_t at = count;
    do {
        for (int i = 0; i < 4; i++, at++, mask = _blsr_u64(mask)) {
            const uint64_t place = _tzcnt_u64(mask); /* 64 where there is none */
            list->indices[at] = first + (uint32_t)place;
            list->values[at] = u[place];
        }
    } while (mask);
    return end;
}

static inline size_t append_many(tg_candidates *list, size_t count, const float *u, uint32_t first, uint64_t mask)
{
    for (unsigned i = 0; i < STEP; i += LANES, mask >>= LANES) {
        const unsigned here = (unsigned)mask & 0xff;
        const __m256i lanes = tg_lanes_of(here);
        const __m256i indices = _mm256_add_epi32(_mm256_set1_epi32((int)(first + i)), lanes);
        _mm256_storeu_si256((__m256i *)(void *)(list->indices + count), indices);
        _mm256_storeu_ps(list->values + count, _mm256_permutevar8x32_ps(_mm256_loadu_ps(u + i), lanes));
        count += (size_t)__builtin_popcount(here);
    }
    return count;
}

static inline size_t sift_steps(tg_candidates *list, const float *gradient, float *residual, float factor, uint32_t first,
                                size_t n, bool many)
{
    const __m256 factors = _mm256_set1_ps(factor);
    const __m256i below = _mm256_set1_epi32((int)(list->least - 1));
    float u[STEP + 1];
    u[STEP] = 0;
    size_t done = 0, count = list->count;
    for (; done + STEP <= n && count + TG_SIFT_SLACK <= list->room; done += STEP) {
        float *h = residual ? residual + done : NULL;
        for (int i = 0; i < STEP; i += 16) {
            _mm_prefetch((const char *)(gradient + done + AHEAD + i), _MM_HINT_T0);
            if (h)
                _mm_prefetch((const char *)(h + AHEAD + i), _MM_HINT_T0);
        }
        if (any_above(compute(gradient + done, h, factors, u), TG_MAX_FINITE_BITS)) {
            list->nonfinite = true;
            break;
        }
        const uint64_t mask = commit(u, h, below);
        count = many ? append_many(list, count, u, first + (uint32_t)done, mask)
                     : append_few(list, count, u, first + (uint32_t)done, mask);
    }
    list->count = count;
    return done;
}

/* What is left after whole steps. */
static size_t sift_rest(tg_candidates *list, const float *gradient, float *residual, float factor, uint32_t first, size_t n)
{
    size_t i = 0;
    for (; i < n && list->count + TG_SIFT_SLACK <= list->room; i++) {
        const float u = residual ? gradient[i] + factor * residual[i] : gradient[i];
        const uint32_t key = tg_float_bits(u) & TG_MAGNITUDE_MASK;
        if (key >= TG_INFINITY_BITS) {
            list->nonfinite = true;
            break;
        }
        if (residual)
            residual[i] = key >= list->least ? 0 : u;
        if (key >= list->least) {
            list->indices[list->count] = first + (uint32_t)i;
            list->values[list->count++] = u;
        }
    }
    return i;
}

size_t tg_avx2_sift(tg_candidates *list, const float *gradient, float *residual, float factor, uint32_t first, size_t n)
{
    size_t done;
    if (residual)
        done = list->many ? sift_steps(list, gradient, residual, factor, first, n, true)
                          : sift_steps(list, gradient, residual, factor, first, n, false);
    else
        done = list->many ? sift_steps(list, gradient, NULL, 1, first, n, true)
                          : sift_steps(list, gradient, NULL, 1, first, n, false);
    if (n - done >= STEP || list->nonfinite)
        return done;
    return done + sift_rest(list, gradient + done, residual ? residual + done : NULL, factor, first + (uint32_t)done, n - done);
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
    size_t kept = 0, i = 0;
    for (; i + LANES <= list->count; i += LANES) {
        const __m256 values = _mm256_loadu_ps(list->values + i);
        const __m256i indices = _mm256_loadu_si256((const __m256i *)(const void *)(list->indices + i)), keys = key_of(values);
        unsigned winners = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(keys, bound)));
        const unsigned equal = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(keys, bound)));
        if (equal && ties > 0) {
            const unsigned taken = first_bits(equal, ties);
            ties -= (unsigned)__builtin_popcount(taken);
            winners |= taken;
        }
        if (residual)
            for (unsigned losers = ~winners & 0xff; losers; losers &= losers - 1) {
                const size_t j = i + (size_t)__builtin_ctz(losers);
                residual[list->indices[j]] = list->values[j];
            }
        /* Written over what has been read already: kept <= i. */
        const __m256i lanes = tg_lanes_of(winners);
        _mm256_storeu_ps(list->values + kept, _mm256_permutevar8x32_ps(values, lanes));
        _mm256_storeu_si256((__m256i *)(void *)(list->indices + kept), _mm256_permutevar8x32_epi32(indices, lanes));
        kept += (size_t)__builtin_popcount(winners);
    }
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
