/* The fused encoder with vectors of sixteen. */
#include "kernels/avx512/avx512.h"

#if defined(__AVX512F__)

#include "kernels/avx512/lanes.h"
#include "kernels/wide/levels_buckets.h"

TG_UNIT_ENCODERS(units, HINT_FIRST)
TG_BUCKET_ENCODERS(buckets_on_amd, HINT_NONE, HINT_FIRST)
TG_BUCKET_ENCODERS(buckets, HINT_SECOND, HINT_SECOND)

size_t tg_avx512_encode_levels(const tg_levels_encoding *e, size_t n)
{
    if (!suits_buckets(e))
        return encode_units(e, n, units);
    return encode_with(tg_is_amd() ? buckets_on_amd : buckets, units, e, n);
}

#endif
