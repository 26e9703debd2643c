/* Selecting among candidates. */
#include "kernels/avx2/collect.h"

#if defined(__AVX2__)

#include "kernels/avx2/lanes.h"
#include "kernels/avx2/left_pack.h"

/* A bit for each lane. */
TG_INLINE unsigned v_mask(v_ints x) { return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(x)); }
TG_INLINE unsigned v_greater(v_ints a, v_ints b) { return v_mask(_mm256_cmpgt_epi32(a, b)); }
TG_INLINE unsigned v_equal(v_ints a, v_ints b) { return v_mask(_mm256_cmpeq_epi32(a, b)); }
/* The chosen lanes first, in order. */
TG_INLINE v_ints v_left_pack(v_ints x, unsigned mask) { return _mm256_permutevar8x32_epi32(x, tg_lanes_of(mask)); }
TG_INLINE v_floats v_left_pack_floats(v_floats x, unsigned mask)
{
    return _mm256_permutevar8x32_ps(x, tg_lanes_of(mask));
}

#include "kernels/wide/candidates.h"

size_t tg_avx2_keys_below(const float *values, size_t n, uint32_t bound, uint32_t *keys, size_t room)
{
    return keys_below(values, n, bound, keys, room);
}

size_t tg_avx2_winnow(const uint32_t *indices, const float *values, size_t n, uint32_t above, uint64_t *ties,
                      float *residual, uint32_t taken, uint32_t *kept_indices, float *kept_values)
{
    return winnow(indices, values, n, above, ties, residual, taken, kept_indices, kept_values);
}

#endif
