/* The packed layout. */
#include "kernels/neon/lanes.h"

#if defined(__AARCH64EL__)

#include "kernels/wide/pack.h"

void tg_neon_pack_group(const uint32_t *codes, unsigned width, uint8_t *packed) { pack_group(codes, width, packed); }

void tg_neon_unpack_group(const uint8_t *packed, unsigned width, uint32_t *codes)
{
    unpack_group(packed, width, codes);
}

void tg_neon_pack_signs(const float *values, size_t n, uint8_t *packed) { pack_signs(values, n, packed); }

void tg_neon_pack(const uint16_t *codes, size_t n, unsigned width, uint8_t *packed) { pack(codes, n, width, packed); }

void tg_neon_unpack(const uint8_t *packed, size_t n, unsigned width, uint16_t *codes)
{
    unpack(packed, n, width, codes);
}

#endif
