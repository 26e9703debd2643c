/* What scales of buckets are made of, one number at a time (docs/numerics.md, Scales): the same for every device. */
#ifndef TG_KERNELS_SCALES_H
#define TG_KERNELS_SCALES_H

#include <float.h>

#include "base/bytes.h"
#include "base/numeric.h"
#include "kernels/kernels.h"

/* Orders finite floats as integers, -0 below +0, so that the extremes do not depend on the order of comparisons. */
TG_ANY_DEVICE int32_t tg_order_of(float x)
{
    int32_t bits = (int32_t)tg_float_bits(x);
    return bits < 0 ? -(int32_t)((uint32_t)bits & TG_MAGNITUDE_MASK) - 1 : bits;
}

/* The e with 2^e <= x < 2^(e+1), x > 0 given as bits. */
TG_ANY_DEVICE int tg_exponent_of(uint32_t bits)
{
    int exponent = (int)(bits >> 23) - 127;
    if (exponent == -127) {
        exponent = -150;
        for (; bits; bits >>= 1)
            exponent++;
    }
    return exponent;
}

TG_ANY_DEVICE float tg_power_of_two(int exponent) { return tg_bits_float((uint32_t)(exponent + 127) << 23); }

TG_ANY_DEVICE bool tg_is_finite(double x) { return x - x == 0; }

TG_ANY_DEVICE float tg_limited_to_float(double x) { return x < (double)FLT_MAX ? (float)x : FLT_MAX; }

TG_ANY_DEVICE double tg_scale_by(double x, int exponent)
{
    for (; exponent > 0; exponent--)
        x *= 2;
    for (; exponent < 0; exponent++)
        x *= 0.5;
    return x;
}

/* Whether float32 lanes have neither overflowed nor lost a sum: else values are scaled to about 1 first. */
TG_ANY_DEVICE bool tg_sum_is_safe(double total, tg_sum_of what)
{
    return tg_is_finite(total) && (total >= 0x1p-80 || what == TG_SUM_OF_MAGNITUDES);
}

/* The two powers of two, one after the other, that scale values by 2^-exponent. */
TG_ANY_DEVICE float tg_first_factor(int exponent) { return tg_power_of_two(-(exponent / 2)); }
TG_ANY_DEVICE float tg_second_factor(int exponent) { return tg_power_of_two(exponent / 2 - exponent); }

/* Limits the radius to `thousandths` of the standard deviation. A bucket whose values are all equal, up to the rounding
 * of these sums, has no deviation and is not clipped. */
TG_ANY_DEVICE float tg_clipped_radius(double squares, double sum, double n, float radius, uint32_t thousandths)
{
    const double mean = sum / n, variance = squares / n - mean * mean;
    if (!(squares >= 0x1p-80) || !tg_is_finite(variance) || !(variance > 0x1p-16 * squares / n))
        return radius;
    const double limit = tg_sqrt(variance) * (double)thousandths / 1000;
    return limit > 0 && limit < (double)radius ? (float)limit : radius;
}

/* Centre and half width between the least and the largest value. */
TG_ANY_DEVICE void tg_between_extremes(float least, float largest, float *centre, float *radius)
{
    const float width = largest - least;
    *centre = width <= FLT_MAX ? least + width * 0.5f : least * 0.5f + largest * 0.5f;
    const float above = largest - *centre, below = *centre - least;
    *radius = above > below ? above : below;
}

#endif
