/* The fused encoder with vectors of four. */
#include "kernels/neon/lanes.h"

#if defined(__AARCH64EL__)

#include "kernels/wide/levels_buckets.h"

TG_UNIT_ENCODERS(units, HINT_FIRST)
TG_BUCKET_ENCODERS(buckets, HINT_FIRST, HINT_FIRST)

size_t tg_neon_encode_levels(const tg_levels_encoding *e, size_t n)
{
    return suits_buckets(e) ? encode_with(buckets, units, e, n) : encode_units(e, n, units);
}

#endif
