/* From a bucket's scale to the numbers that quantising and dequantising use (docs/numerics.md, Quantisation). Inline,
 * because the fused kernels also compute them. */
#ifndef TG_KERNELS_QUANTISER_H
#define TG_KERNELS_QUANTISER_H

#include "base/bytes.h"
#include "kernels/kernels.h"

/* Below this, levels * 2^16 / radius could overflow and radius / levels be a coarse subnormal: values are lifted by
 * 2^64 first. */
#define TG_LIFT_BELOW 0x1p-64f

/* The smallest unit with levels * unit >= radius (where both may be lifted). */
static inline float tg_level_unit(uint32_t levels, float radius)
{
    float unit = radius / (float)levels;
    if ((double)unit * (double)levels < (double)radius)
        unit = tg_bits_float(tg_float_bits(unit) + 1);
    return unit;
}

static inline float tg_level_gain(uint32_t levels, float radius) { return (float)levels * 0x1p16f / radius; }

static inline tg_quantiser tg_quantiser_from(uint32_t levels, float centre, float radius, bool affine)
{
    tg_quantiser q = {.centre = centre, .radius = radius, .lift = 1, .drop = 1, .levels = levels, .affine = affine};
    if (!(radius > 0))
        return q;
    if (radius < TG_LIFT_BELOW) {
        q.lift = 0x1p64f;
        q.drop = 0x1p-64f;
    }
    q.gain = tg_level_gain(levels, radius * q.lift);
    q.unit = tg_level_unit(levels, radius * q.lift);
    return q;
}

#endif
