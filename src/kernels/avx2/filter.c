/* Selecting among candidates: keys_below and filter. */
#include "kernels/avx2/collect.h"

#if defined(__AVX2__)

#include "kernels/avx2/lanes.h"
#include "kernels/avx2/left_pack.h"

/* A bit for each lane. */
TG_INLINE unsigned v_mask(v_ints x) { return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(x)); }
TG_INLINE unsigned v_greater(v_ints a, v_ints b) { return v_mask(_mm256_cmpgt_epi32(a, b)); }
TG_INLINE unsigned v_equal(v_ints a, v_ints b) { return v_mask(_mm256_cmpeq_epi32(a, b)); }
/* Moves the lanes of the mask to the front, in order. */
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

size_t tg_avx2_filter(const uint32_t *indices, const float *values, size_t n, uint32_t above, uint64_t *ties,
                      float *residual, uint32_t clear_from, uint32_t *selected_indices, float *selected_values)
{
    return filter(indices, values, n, above, ties, residual, clear_from, selected_indices, selected_values);
}

#endif
