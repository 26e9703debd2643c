/* Selecting among candidates: keys_below and filter. */
#include "kernels/neon/left_pack.h"

#if defined(__AARCH64EL__)

#include "kernels/wide/candidates.h"

size_t tg_neon_keys_below(const float *values, size_t n, uint32_t bound, uint32_t *keys, size_t room)
{
    return keys_below(values, n, bound, keys, room);
}

size_t tg_neon_filter(const uint32_t *indices, const float *values, size_t n, uint32_t above, uint64_t *ties,
                      float *residual, uint32_t clear_from, uint32_t *selected_indices, float *selected_values)
{
    return filter(indices, values, n, above, ties, residual, clear_from, selected_indices, selected_values);
}

#endif
