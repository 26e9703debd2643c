/* The fused encoder with vectors of sixteen. */
#include "kernels/avx512/avx512.h"

#if defined(__AVX512F__)

#include "kernels/avx512/lanes.h"
#include "kernels/avx2/levels_rows.h"

TG_UNIT_ENCODERS(encoders, false)
TG_UNIT_ENCODERS(second, true)

size_t tg_avx512_encode_levels(const tg_levels_encoding *encoding, size_t n)
{
    return tg_avx2_encode_units(encoding, n, tg_is_amd() ? second : encoders);
}

#endif
