/* Selecting among candidates. */
#include "kernels/neon/left_pack.h"

#if defined(__AARCH64EL__)

#include "kernels/wide/candidates.h"

size_t tg_neon_keys_below(const float *values, size_t n, uint32_t bound, uint32_t *keys, size_t room)
{
    return keys_below(values, n, bound, keys, room);
}

size_t tg_neon_winnow(const uint32_t *indices, const float *values, size_t n, uint32_t above, uint64_t *ties,
                      float *residual, uint32_t taken, uint32_t *kept_indices, float *kept_values)
{
    return winnow(indices, values, n, above, ties, residual, taken, kept_indices, kept_values);
}

#endif
