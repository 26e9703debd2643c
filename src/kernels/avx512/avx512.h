/* The AVX-512 kernels by name. */
#ifndef TG_KERNELS_AVX512_AVX512_H
#define TG_KERNELS_AVX512_AVX512_H

#include "kernels/kernels.h"

uint64_t tg_avx512_narrow(tg_dtype dtype, const float *values, size_t n, void *elements);
uint64_t tg_avx512_store(tg_dtype dtype, const float *values, size_t n, uint8_t *wire);
size_t tg_avx512_encode_levels(const tg_levels_encoding *encoding, size_t n);
void tg_avx512_decode_levels(const tg_levels_decoding *frames, size_t frame_count, size_t n, tg_storing how,
                             float weight, float *out);
size_t tg_avx512_collect(tg_candidates *list, const float *gradient, float *residual, float factor, uint32_t first,
                         size_t n);
uint64_t tg_avx512_digest(const uint8_t *bytes, size_t n);

#endif
