/* The fused encoder with vectors of sixteen. */
#include "kernels/avx512/avx512.h"

#if defined(__AVX512F__)

#include "kernels/avx512/lanes.h"
#include "kernels/avx2/levels_rows.h"
#include "kernels/avx512/levels_ahead.h"

TG_UNIT_ENCODERS(encoders, false)
TG_UNIT_ENCODERS(second, true)

#define AHEAD(NAME, WIDTH, NORM, FEEDBACK)                                                                                    \
    static size_t NAME(const tg_levels_encoding *e, size_t n)                                                                 \
    {                                                                                                                         \
        return encode_ahead(e, n, (variant){WIDTH, false, FEEDBACK, true, NORM});                                             \
    }
AHEAD(four_max, 4, AHEAD_MAX, false)
AHEAD(four_max_feedback, 4, AHEAD_MAX, true)
AHEAD(four_l2, 4, AHEAD_L2, false)
AHEAD(four_l2_feedback, 4, AHEAD_L2, true)
AHEAD(eight_max, 8, AHEAD_MAX, false)
AHEAD(eight_max_feedback, 8, AHEAD_MAX, true)
AHEAD(eight_l2, 8, AHEAD_L2, false)
AHEAD(eight_l2_feedback, 8, AHEAD_L2, true)

/* By width, norm and feedback. */
static size_t (*const encoders_ahead[2][2][2])(const tg_levels_encoding *e, size_t n) = {
    {{four_l2, four_l2_feedback}, {four_max, four_max_feedback}}, {{eight_l2, eight_l2_feedback}, {eight_max, eight_max_feedback}}};

bool tg_avx512_looks_ahead(const tg_levels_encoding *e)
{
    return e->bucket == TG_GROUP && (e->width == 4 || e->width == 8) && e->levels <= 127 && e->norm != TG_NORM_GIVEN && !e->exceeds &&
           (!e->residual || e->alpha == e->beta);
}

size_t tg_avx512_encode_ahead(const tg_levels_encoding *e, size_t n)
{
    const size_t done = encoders_ahead[e->width == 8][e->norm == TG_NORM_MAX][e->residual != NULL](e, n);
    return done > 0 ? done : tg_avx2_encode_units(e, TG_GROUP, encoders); /* a bucket that is not so plain */
}

/* Intel's processors take a tenth to a quarter less if they look ahead. AMD's gain a tenth by it in the cache, but take a fifth longer from
 * memory. */
size_t tg_avx512_encode_levels(const tg_levels_encoding *e, size_t n)
{
    if (tg_is_amd())
        return tg_avx2_encode_units(e, n, second);
    return tg_avx512_looks_ahead(e) ? tg_avx512_encode_ahead(e, n) : tg_avx2_encode_units(e, n, encoders);
}

#endif
