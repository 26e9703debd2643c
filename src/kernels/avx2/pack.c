/* The packed layout. */
#include "kernels/avx2/vector.h"

#if defined(__AVX2__)

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/lanes.h"
#include "kernels/wide/pack.h"

void tg_avx2_pack_group(const uint32_t *codes, unsigned width, uint8_t *packed) { pack_group(codes, width, packed); }

void tg_avx2_unpack_group(const uint8_t *packed, unsigned width, uint32_t *codes)
{
    unpack_group(packed, width, codes);
}

void tg_avx2_pack_signs(const float *values, size_t n, uint8_t *packed) { pack_signs(values, n, packed); }

void tg_avx2_pack(const uint16_t *codes, size_t n, unsigned width, uint8_t *packed) { pack(codes, n, width, packed); }

void tg_avx2_unpack(const uint8_t *packed, size_t n, unsigned width, uint16_t *codes)
{
    unpack(packed, n, width, codes);
}

#endif
