/* The fused encoder with vectors of sixteen. */
#include "kernels/avx512/avx512.h"

#if defined(__AVX512F__)

#include "kernels/avx512/lanes.h"
#include "kernels/wide/levels_buckets.h"

TG_UNIT_ENCODERS(units, HINT_FIRST)
TG_BUCKET_ENCODERS(plain, HINT_NONE, HINT_SECOND, false)
TG_BUCKET_ENCODERS(ahead, HINT_SECOND, HINT_SECOND, true)

bool tg_avx512_looks_ahead(const tg_levels_encoding *e) { return suits_buckets(e); }

size_t tg_avx512_encode_ahead(const tg_levels_encoding *e, size_t n) { return encode_with(ahead, units, e, n); }

size_t tg_avx512_encode_plain(const tg_levels_encoding *e, size_t n) { return encode_with(plain, units, e, n); }

/* Intel's processors take a tenth to a quarter less if they look ahead. AMD's gain a tenth by it in the cache, but take a fifth longer from
 * memory. */
size_t tg_avx512_encode_levels(const tg_levels_encoding *e, size_t n)
{
    if (!suits_buckets(e))
        return encode_units(e, n, units);
    return tg_is_amd() ? tg_avx512_encode_plain(e, n) : tg_avx512_encode_ahead(e, n);
}

#endif
