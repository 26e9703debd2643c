/* The kernels of selection in one pass, for AVX2. */
#ifndef TG_KERNELS_AVX2_COLLECT_H
#define TG_KERNELS_AVX2_COLLECT_H

#include "kernels/kernels.h"

size_t tg_avx2_collect(tg_candidates *list, const float *gradient, float *residual, float factor, uint32_t first,
                       size_t n);
size_t tg_avx2_keys_below(const float *values, size_t n, uint32_t bound, uint32_t *keys, size_t room);
size_t tg_avx2_filter(const uint32_t *indices, const float *values, size_t n, uint32_t above, uint64_t *ties,
                      float *residual, uint32_t clear_from, uint32_t *selected_indices, float *selected_values);

#endif
