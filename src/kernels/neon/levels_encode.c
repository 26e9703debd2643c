/* The fused encoder with vectors of four. */
#include "kernels/neon/lanes.h"

#if defined(__AARCH64EL__)

#include "kernels/avx2/levels_rows.h"
#include "kernels/avx2/levels_units.h"

TG_UNIT_ENCODERS(encoders, false)

size_t tg_neon_encode_levels(const tg_levels_encoding *encoding, size_t n) { return encode_units(encoding, n, encoders); }

#endif
