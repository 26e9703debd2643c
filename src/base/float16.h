/* float16 and bfloat16, one element at a time: widening is exact; narrowing rounds to nearest even and limits to the
 * largest finite value instead of giving an infinity. A NaN stays a NaN. */
#ifndef TG_BASE_FLOAT16_H
#define TG_BASE_FLOAT16_H

#include <stdbool.h>

#include "base/bytes.h"

#define TG_FLOAT16_MAX_BITS UINT16_C(0x7bff)
#define TG_BFLOAT16_MAX_BITS UINT16_C(0x7f7f)

TG_ANY_DEVICE float tg_widen_float16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = (half >> 10) & 31, fraction = half & 0x3ff;
    if (exponent == 31)
        return tg_bits_float(sign | 0x7f800000 | fraction << 13);
    if (exponent > 0)
        return tg_bits_float(sign | (exponent + 112) << 23 | fraction << 13);
    /* Subnormal: fraction * 2^-24, exact in float32. */
    float magnitude = (float)fraction * 0x1p-24f;
    return sign ? -magnitude : magnitude;
}

TG_ANY_DEVICE uint16_t tg_narrow_float16(float x, bool *saturated)
{
    uint32_t bits = tg_float_bits(x), magnitude = bits & 0x7fffffff;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) { /* 65520, halfway to what would be 2^16, and above */
        *saturated = true;
        return (uint16_t)(sign | TG_FLOAT16_MAX_BITS);
    }
    if (magnitude < 0x38800000) { /* below 2^-14: the sum aligns and rounds the fraction for us */
        float aligned = tg_bits_float(magnitude) + 0.5f;
        return (uint16_t)(sign | (tg_float_bits(aligned) - tg_float_bits(0.5f)));
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((rounded >> 13) - (112u << 10)));
}

TG_ANY_DEVICE float tg_widen_bfloat16(uint16_t brain) { return tg_bits_float((uint32_t)brain << 16); }

TG_ANY_DEVICE uint16_t tg_narrow_bfloat16(float x, bool *saturated)
{
    uint32_t bits = tg_float_bits(x), magnitude = bits & 0x7fffffff;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7fc0);
    uint32_t rounded = (magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16;
    if (rounded > TG_BFLOAT16_MAX_BITS) {
        *saturated = true;
        rounded = TG_BFLOAT16_MAX_BITS;
    }
    return (uint16_t)(sign | rounded);
}

#endif
