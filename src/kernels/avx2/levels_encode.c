/* Scales, stochastic rounding, packing and the residual of a bucket in one pass, while it is in the first-level cache:
 * what scale.c, scalar.c and source.c define together. */
#include "kernels/avx2/vector.h"

#if defined(__AVX2__)

#include "kernels/avx2/lanes.h"
#include "kernels/wide/levels_buckets.h"

TG_UNIT_ENCODERS(units, HINT_FIRST)
TG_BUCKET_ENCODERS(buckets, HINT_FIRST, HINT_FIRST)

size_t tg_avx2_encode_levels(const tg_levels_encoding *e, size_t n)
{
    return suits_buckets(e) ? encode_with(buckets, units, e, n) : encode_units(e, n, units);
}

#endif
