/* The AVX2 kernels by name, for the kernel set and for one another. kernels.h says what each does. */
#ifndef TG_KERNELS_AVX2_AVX2_H
#define TG_KERNELS_AVX2_AVX2_H

#include "kernels/kernels.h"

/* elements.c */
void tg_avx2_widen(tg_dtype dtype, const void *elements, size_t n, float *values);
uint64_t tg_avx2_narrow(tg_dtype dtype, const float *values, size_t n, void *elements);
void tg_avx2_load(tg_dtype dtype, const uint8_t *wire, size_t n, float *values);
uint64_t tg_avx2_store(tg_dtype dtype, const float *values, size_t n, uint8_t *wire);
bool tg_avx2_decode_plain(tg_dtype dtype, const uint8_t *wire, size_t n, bool set, float weight, float *out);
void tg_avx2_compensate(const float *push, const float *residual, float alpha, float beta, size_t n, float *u,
                        float *rest);
void tg_avx2_subtract(const float *rest, const float *sent, size_t n, float *residual);
void tg_avx2_add_scaled(const float *values, float weight, size_t n, float *sum);
void tg_avx2_set_scaled(const float *values, float weight, size_t n, float *result);

/* nontemporal.c */
void tg_avx2_copy_nontemporal(const void *from, size_t size, void *to);
void tg_avx2_nontemporal_fence(void);

/* sums.c */
size_t tg_avx2_first_nonfinite(const float *values, size_t n);
uint32_t tg_avx2_max_magnitude(const float *values, size_t n);
void tg_avx2_extremes(const float *values, size_t n, float *least, float *largest);
float tg_avx2_block_sum(tg_sum_of what, const float *values, size_t n, float scale1, float scale2);
void tg_avx2_magnitude_keys(const float *values, size_t n, uint32_t *keys);
void tg_avx2_random_keys(tg_hash_key key, uint32_t first, size_t n, uint32_t *keys);
uint64_t tg_avx2_count_at_least(const uint32_t *keys, size_t n, uint32_t least);

bool tg_avx2_all_finite(const float *gradient, const float *residual, float alpha, float beta, size_t n);

/* quantise.c */
void tg_avx2_quantise(const tg_quantiser *q, const float *values, size_t n, uint32_t first, tg_hash_key key,
                      uint16_t *codes);
void tg_avx2_dequantise(const tg_quantiser *q, const uint16_t *codes, size_t n, float *values);

/* pack.c; the last two process one whole group. */
void tg_avx2_pack_signs(const float *values, size_t n, uint8_t *packed);
void tg_avx2_pack(const uint16_t *codes, size_t n, unsigned width, uint8_t *packed);
void tg_avx2_unpack(const uint8_t *packed, size_t n, unsigned width, uint16_t *codes);
void tg_avx2_pack_group(const uint32_t *codes, unsigned width, uint8_t *packed);
void tg_avx2_unpack_group(const uint8_t *packed, unsigned width, uint32_t *codes);

/* digest.c */
uint64_t tg_avx2_digest(const uint8_t *bytes, size_t n);

/* levels_encode.c */
size_t tg_avx2_encode_levels(const tg_levels_encoding *encoding, size_t n);

/* levels_decode.c */
void tg_avx2_decode_levels(const tg_levels_decoding *frames, size_t frame_count, size_t n, tg_storing how, float weight,
                           float *out);

#endif
