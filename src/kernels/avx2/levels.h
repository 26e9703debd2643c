/* The AVX2 kernels by name, for the table and for one another. */
#ifndef TG_KERNELS_AVX2_LEVELS_H
#define TG_KERNELS_AVX2_LEVELS_H

#include "kernels/kernels.h"

size_t tg_avx2_encode_levels(const tg_levels_encoding *encoding, size_t n);

uint64_t tg_avx2_digest(const uint8_t *bytes, size_t n);

/* One whole group of 512 codes of any width. */
void tg_avx2_pack_group(const uint32_t *codes, unsigned width, uint8_t *packed);

#endif
