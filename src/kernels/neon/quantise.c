/* Quantising and dequantising one bucket, for layouts and buckets that the fused kernels do not support. */
#include "kernels/neon/lanes.h"

#if defined(__AARCH64EL__)

#include <float.h>

#include "kernels/scalar.h"

/* tg_random16 of four consecutive elements. */
TG_INLINE v_ints draws_of(v_ints index, v_ints key_low, v_ints key_high)
{
    const v_ints upper = vshlq_n_u32(vshrq_n_u32(index, 5), 4);
    const v_ints counter = vorrq_u32(upper, vandq_u32(index, vdupq_n_u32(15)));
    v_ints x = v_hash_before_last(vaddq_u32(counter, key_low), key_high);
    x = veorq_u32(x, vshrq_n_u32(x, 16));
    const v_ints half = vandq_u32(index, vdupq_n_u32(16)); /* a right shift has a negative count */
    return vandq_u32(vshlq_u32(x, vnegq_s32(vreinterpretq_s32_u32(half))), vdupq_n_u32(0xffff));
}

void tg_neon_quantise(const tg_quantiser *q, const float *values, size_t n, uint32_t first, tg_hash_key key,
                      uint16_t *codes)
{
    const v_floats limit = v_float((float)q->levels * 0x1p16f), least = v_negative(limit);
    const v_floats centre = v_float(q->centre), lift = v_float(q->lift), gain = v_float(q->gain);
    const v_ints offset = vdupq_n_u32(q->levels << 16);
    const v_ints low = vdupq_n_u32(key.low), high = vdupq_n_u32(key.high);
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES) {
        v_floats x = v_sub(v_load(values + i), centre);
        x = v_mul(v_mul(x, lift), gain);
        x = v_min(v_max(x, least), limit);
        const v_ints fixed = vaddq_u32(v_round(x), offset);
        const v_ints draws = draws_of(v_count_from(first + (uint32_t)i), low, high);
        vst1_u16(codes + i, vshrn_n_u32(vaddq_u32(fixed, draws), 16));
    }
    tg_scalar_quantise(q, values + i, n - i, first + (uint32_t)i, key, codes + i);
}

TG_INLINE v_floats limit_to(v_floats x, v_floats bound) { return v_max(v_negative(bound), v_min(bound, x)); }

void tg_neon_dequantise(const tg_quantiser *q, const uint16_t *codes, size_t n, float *values)
{
    const v_ints top = vdupq_n_u32(2 * q->levels), levels = vdupq_n_u32(q->levels);
    const v_floats unit = v_float(q->unit), drop = v_float(q->drop);
    const v_floats radius = v_float(q->radius), centre = v_float(q->centre);
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES) {
        const v_ints level = vsubq_u32(vminq_u32(v_load_codes(codes + i), top), levels);
        v_floats x = limit_to(v_mul(v_mul(v_convert(level), unit), drop), radius);
        if (q->affine)
            x = limit_to(v_plus(centre, x), v_float(FLT_MAX));
        v_store(values + i, x);
    }
    tg_scalar_dequantise(q, codes + i, n - i, values + i);
}

#endif
