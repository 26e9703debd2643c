/* Scales, stochastic rounding, packing and the residual of a bucket while it sits in the first-level cache: what scale.c, scalar.c and
 * source.c define together, in one go. */
#include "kernels/avx2/vector.h"

#if defined(__AVX2__)

#include "kernels/avx2/lanes.h"
#include "kernels/avx2/levels_rows.h"
#include "kernels/avx2/levels_units.h"

TG_UNIT_ENCODERS(encoders, false)

/* With the rows of another instruction set. */
size_t tg_avx2_encode_units(const tg_levels_encoding *encoding, size_t n, const tg_unit_encoders encoders)
{
    return encode_units(encoding, n, encoders);
}

size_t tg_avx2_encode_levels(const tg_levels_encoding *encoding, size_t n) { return encode_units(encoding, n, encoders); }

#endif
