/* The pass of a one-pass selection: computes u, writes the residual and lists candidates while a cache line is at hand.
 * It takes about three instructions per element more than e += g, so it runs at the speed of memory. */
#include "kernels/avx2/collect.h"

#if defined(__AVX2__)

#include "kernels/avx2/left_pack.h"
#include "kernels/wide/inline.h"
#include "kernels/wide/collect_rest.h"

/* Elements of one step: a mask of 64 bits says which are candidates. */
enum { STEP = 64, HALF = 32, LANES = 8, AHEAD = 512 };

#define INLINE static inline __attribute__((always_inline))

INLINE __m256 compute(const float *gradient, const float *residual, __m256 factor)
{
    __m256 x = _mm256_loadu_ps(gradient);
    return residual ? _mm256_add_ps(x, _mm256_mul_ps(factor, _mm256_loadu_ps(residual))) : x;
}

INLINE bool any_set(__m256i lanes) { return _mm256_movemask_epi8(lanes) != 0; }

/* One bit for each lane of four comparisons. */
INLINE uint32_t mask_of(__m256i a, __m256i b, __m256i c, __m256i d)
{
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    /* Packing works within halves of a vector: the groups of four are now in the order a b c d of the lower halves,
     * then of the upper halves. */
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return (uint32_t)_mm256_movemask_epi8(_mm256_permutevar8x32_epi32(bytes, order));
}

/* Writes u to the residual, and 0 where the key is cleared. */
INLINE void leave(float *residual, __m256 u, __m256i key, __m256i not_cleared)
{
    _mm256_storeu_ps(residual, _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(key, not_cleared)), u));
}

/* Processes 32 elements: *mask says which are candidates, u goes to `u` and to the residual, if there is one. False
 * where a value is not finite; then nothing is written. */
INLINE bool collect_half(const float *gradient, float *residual, __m256 factor, __m256i below, __m256i not_cleared,
                         float *u, uint32_t *mask)
{
    const __m256 x0 = compute(gradient, residual, factor);
    const __m256 x1 = compute(gradient + 8, residual ? residual + 8 : NULL, factor);
    const __m256 x2 = compute(gradient + 16, residual ? residual + 16 : NULL, factor);
    const __m256 x3 = compute(gradient + 24, residual ? residual + 24 : NULL, factor);
    const __m256i k0 = tg_key_lanes(x0), k1 = tg_key_lanes(x1), k2 = tg_key_lanes(x2), k3 = tg_key_lanes(x3);
    const __m256i largest = _mm256_max_epi32(_mm256_max_epi32(k0, k1), _mm256_max_epi32(k2, k3));
    if (any_set(_mm256_cmpgt_epi32(largest, _mm256_set1_epi32((int)TG_MAX_FINITE_BITS))))
        return false;
    const __m256i c0 = _mm256_cmpgt_epi32(k0, below), c1 = _mm256_cmpgt_epi32(k1, below);
    const __m256i c2 = _mm256_cmpgt_epi32(k2, below), c3 = _mm256_cmpgt_epi32(k3, below);
    *mask = mask_of(c0, c1, c2, c3);
    if (residual) {
        _mm256_storeu_ps(u, x0);
        _mm256_storeu_ps(u + 8, x1);
        _mm256_storeu_ps(u + 16, x2);
        _mm256_storeu_ps(u + 24, x3);
        leave(residual, x0, k0, not_cleared);
        leave(residual + 8, x1, k1, not_cleared);
        leave(residual + 16, x2, k2, not_cleared);
        leave(residual + 24, x3, k3, not_cleared);
    }
    return true;
}

/* Appends the candidates that a mask lists. The first `sure` are written without testing whether they exist, so that no
 * branch is mispredicted as long as there are no more. */
INLINE size_t append_few(uint32_t *indices, float *values, size_t count, const float *u, uint32_t first, uint64_t mask,
                         int sure)
{
    const size_t end = count + (size_t)__builtin_popcountll(mask);
    for (int i = 0; i < sure; i++, count++, mask = _blsr_u64(mask)) {
        const uint64_t place = _tzcnt_u64(mask) & (STEP - 1); /* 0 where there is none */
        indices[count] = first + (uint32_t)place;
        values[count] = u[place];
    }
    for (; mask; count++, mask = _blsr_u64(mask)) {
        const uint64_t place = _tzcnt_u64(mask);
        indices[count] = first + (uint32_t)place;
        values[count] = u[place];
    }
    return end;
}

INLINE size_t append_many(uint32_t *indices, float *values, size_t count, const float *u, uint32_t first, uint64_t mask)
{
    for (unsigned i = 0; i < STEP; i += LANES, mask >>= LANES) {
        const unsigned here = (unsigned)mask & 0xff;
        const __m256i lanes = tg_lanes_of(here);
        _mm256_storeu_si256((__m256i *)(void *)(indices + count),
                            _mm256_add_epi32(_mm256_set1_epi32((int)(first + i)), lanes));
        _mm256_storeu_ps(values + count, _mm256_permutevar8x32_ps(_mm256_loadu_ps(u + i), lanes));
        count += (size_t)__builtin_popcount(here);
    }
    return count;
}

/* `sure`: see append_few; negative for append_many. */
INLINE size_t collect_steps(tg_candidates *list, const float *gradient, float *residual, float factor, uint32_t first,
                            size_t n, int sure)
{
    const __m256 factors = _mm256_set1_ps(factor);
    const __m256i below = _mm256_set1_epi32((int)(list->least - 1));
    const __m256i not_cleared = _mm256_max_epi32(below, _mm256_set1_epi32((int)(list->clear_from - 1)));
    /* With this much work per step some processors do not prefetch far enough by themselves, and with a single stream
     * none does. */
    const bool prefetches = sure < 0 && (!residual || tg_ahead() > 0);
    uint32_t *indices = list->indices;
    float *values = list->values, scratch[STEP];
    size_t done = 0, count = list->count;
    for (; done + STEP <= n && count + TG_COLLECT_SLACK <= list->room; done += STEP) {
        const float *g = gradient + done, *u = residual ? scratch : g;
        float *h = residual ? residual + done : NULL;
        if (prefetches)
            for (int i = 0; i < STEP; i += 16) {
                _mm_prefetch((const char *)(g + AHEAD + i), _MM_HINT_T0);
                if (h)
                    _mm_prefetch((const char *)(h + AHEAD + i), _MM_HINT_T0);
            }
        uint32_t low, high;
        if (!collect_half(g, h, factors, below, not_cleared, scratch, &low)) {
            list->nonfinite = true;
            break;
        }
        if (!collect_half(g + HALF, h ? h + HALF : NULL, factors, below, not_cleared, scratch + HALF, &high)) {
            /* The first half has been written, so its candidates must be listed. */
            count = append_few(indices, values, count, u, first + (uint32_t)done, low, 0);
            done += HALF;
            list->nonfinite = true;
            break;
        }
        const uint64_t mask = (uint64_t)high << HALF | low;
        count = sure < 0 ? append_many(indices, values, count, u, first + (uint32_t)done, mask)
                         : append_few(indices, values, count, u, first + (uint32_t)done, mask, sure);
    }
    list->count = count;
    return done;
}

/* Chooses the variant by how many candidates are expected among 64 elements. */
INLINE size_t collect_by_share(tg_candidates *list, const float *gradient, float *residual, float factor,
                               uint32_t first, size_t n)
{
    if (list->share * STEP < 0.2f)
        return collect_steps(list, gradient, residual, factor, first, n, 0);
    if (list->share * STEP < 1)
        return collect_steps(list, gradient, residual, factor, first, n, 2);
    if (list->share * STEP < 2)
        return collect_steps(list, gradient, residual, factor, first, n, 4);
    return collect_steps(list, gradient, residual, factor, first, n, -1);
}

size_t tg_avx2_collect(tg_candidates *list, const float *gradient, float *residual, float factor, uint32_t first,
                       size_t n)
{
    const size_t done = residual ? collect_by_share(list, gradient, residual, factor, first, n)
                                 : collect_by_share(list, gradient, NULL, 1, first, n);
    return collect_rest(list, gradient, residual, factor, first, n, done, STEP);
}

#endif
