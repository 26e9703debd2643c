/* The scalar kernels by name: the definition of every operation. Other kernel sets use them where they have nothing
 * faster. */
#ifndef TG_KERNELS_SCALAR_H
#define TG_KERNELS_SCALAR_H

#include "kernels/kernels.h"

void tg_scalar_widen(tg_dtype dtype, const void *elements, size_t n, float *values);
uint64_t tg_scalar_narrow(tg_dtype dtype, const float *values, size_t n, void *elements);
void tg_scalar_load(tg_dtype dtype, const uint8_t *wire, size_t n, float *values);
uint64_t tg_scalar_store(tg_dtype dtype, const float *values, size_t n, uint8_t *wire);
size_t tg_scalar_first_nonfinite(const float *values, size_t n);
void tg_scalar_compensate(const float *push, const float *residual, float alpha, float beta, size_t n, float *u,
                          float *rest);
void tg_scalar_subtract(const float *rest, const float *sent, size_t n, float *residual);
void tg_scalar_add_scaled(const float *values, float weight, size_t n, float *sum);
void tg_scalar_set_scaled(const float *values, float weight, size_t n, float *result);
uint32_t tg_scalar_max_magnitude(const float *values, size_t n);
void tg_scalar_extremes(const float *values, size_t n, float *least, float *largest);
float tg_scalar_block_sum(tg_sum_of what, const float *values, size_t n, float scale1, float scale2);
void tg_scalar_quantise(const tg_quantiser *q, const float *values, size_t n, uint32_t first, tg_hash_key key,
                        uint16_t *codes);
void tg_scalar_dequantise(const tg_quantiser *q, const uint16_t *codes, size_t n, float *values);
void tg_scalar_pack(const uint16_t *codes, size_t n, unsigned width, uint8_t *packed);
void tg_scalar_unpack(const uint8_t *packed, size_t n, unsigned width, uint16_t *codes);
void tg_scalar_magnitude_keys(const float *values, size_t n, uint32_t *keys);
void tg_scalar_random_keys(tg_hash_key key, uint32_t first, size_t n, uint32_t *keys);
void tg_scalar_key_histogram(const uint32_t *keys, size_t n, unsigned prefix_shift, uint32_t prefix, unsigned shift,
                             uint32_t mask, uint64_t *bins);
uint64_t tg_scalar_count_at_least(const uint32_t *keys, size_t n, uint32_t least);
void tg_scalar_copy_nontemporal(const void *from, size_t size, void *to);
void tg_scalar_nontemporal_fence(void);
uint64_t tg_scalar_digest(const uint8_t *bytes, size_t n);

#endif
