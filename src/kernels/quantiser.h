/* From a bucket's scale to the numbers that quantising and dequantising use, and both for one element
 * (docs/numerics.md, Quantisation). Inline, because the fused kernels and the kernels of cards compute them too. */
#ifndef TG_KERNELS_QUANTISER_H
#define TG_KERNELS_QUANTISER_H

#include <float.h>

#include "base/bytes.h"
#include "kernels/kernels.h"

/* Below this, levels * 2^16 / radius could overflow and radius / levels be a coarse subnormal: values are lifted by
 * 2^64 first. */
#define TG_LIFT_BELOW 0x1p-64f

/* The smallest unit with levels * unit >= radius (where both may be lifted). */
TG_ANY_DEVICE float tg_level_unit(uint32_t levels, float radius)
{
    float unit = radius / (float)levels;
    if ((double)unit * (double)levels < (double)radius)
        unit = tg_bits_float(tg_float_bits(unit) + 1);
    return unit;
}

TG_ANY_DEVICE float tg_level_gain(uint32_t levels, float radius) { return (float)levels * 0x1p16f / radius; }

TG_ANY_DEVICE tg_quantiser tg_quantiser_from(uint32_t levels, float centre, float radius, bool affine)
{
    tg_quantiser q = {centre, radius, 1, 1, 0, 0, levels, affine};
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

/* Rounds to the nearest integer, ties to even, for |x| < 2^31. Adding and subtracting 2^23 rounds numbers with a
 * fraction. */
TG_ANY_DEVICE int32_t tg_round_to_even(float x)
{
    float magnitude = tg_bits_float(tg_float_bits(x) & TG_MAGNITUDE_MASK);
    if (magnitude < 0x1p23f)
        magnitude = (magnitude + 0x1p23f) - 0x1p23f;
    int32_t integer = (int32_t)magnitude;
    return x < 0 ? -integer : integer;
}

/* The code of a value, with its 16 random bits. */
TG_ANY_DEVICE uint32_t tg_code_of(const tg_quantiser *q, float value, uint32_t random)
{
    const float limit = (float)q->levels * 0x1p16f;
    float position = (value - q->centre) * q->lift * q->gain;
    position = position > -limit ? position : -limit;
    position = position < limit ? position : limit;
    const uint32_t fixed = (uint32_t)tg_round_to_even(position) + (q->levels << 16); /* not negative */
    return (uint16_t)((fixed + random) >> 16);
}

/* Only values strictly beyond the bound change, so a zero keeps its sign. */
TG_ANY_DEVICE float tg_limit_to(float x, float bound)
{
    x = bound < x ? bound : x;
    return -bound > x ? -bound : x;
}

TG_ANY_DEVICE float tg_value_of(const tg_quantiser *q, uint32_t code)
{
    const uint32_t top = 2 * q->levels, valid = code < top ? code : top;
    const float value = tg_limit_to((float)((int32_t)valid - (int32_t)q->levels) * q->unit * q->drop, q->radius);
    return q->affine ? tg_limit_to(q->centre + value, FLT_MAX) : value;
}

#endif
