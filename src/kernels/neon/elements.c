/* Element types and feedback, four elements at a time. Rare cases (NaN, saturation) and the elements after the last
 * whole vector are left to the scalar definition. */
#include "kernels/neon/lanes.h"

#if defined(__AARCH64EL__)

#include <string.h>

#include "kernels/wide/arithmetic.h"
#include "kernels/wide/variants.h"

/* ---- 16-bit floats ---- */

TG_INLINE uint16x8_t load_halves(const uint8_t *wire) { return vreinterpretq_u16_u8(vld1q_u8(wire)); }
TG_INLINE void store_halves(uint8_t *wire, uint16x8_t x) { vst1q_u8(wire, vreinterpretq_u8_u16(x)); }

/* Four values, the same bits as those of the definition except for a signalling NaN. */
TG_INLINE v_floats widen_four(tg_dtype dtype, uint16x4_t halves)
{
    return dtype == TG_FLOAT16 ? vcvt_f32_f16(vreinterpret_f16_u16(halves)) : v_floats_of(vshll_n_u16(halves, 16));
}

TG_INLINE void widen_all(tg_dtype dtype, const uint8_t *wire, size_t n, float *values)
{
    const uint16x8_t exponent = vdupq_n_u16(0x7c00);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const uint16x8_t halves = load_halves(wire + 2 * i);
        if (dtype == TG_FLOAT16 && vmaxvq_u16(vandq_u16(halves, exponent)) == 0x7c00) {
            tg_scalar_load(dtype, wire + 2 * i, 8, values + i); /* the instruction would change a signalling NaN */
            continue;
        }
        v_store(values + i, widen_four(dtype, vget_low_u16(halves)));
        v_store(values + i + 4, widen_four(dtype, vget_high_u16(halves)));
    }
    tg_scalar_load(dtype, wire + 2 * i, n - i, values + i);
}

void tg_neon_load(tg_dtype dtype, const uint8_t *wire, size_t n, float *values)
{
    if (dtype == TG_FLOAT32)
        memcpy(values, wire, n * sizeof(float));
    else if (dtype == TG_FLOAT16)
        widen_all(TG_FLOAT16, wire, n, values);
    else
        widen_all(TG_BFLOAT16, wire, n, values);
}

void tg_neon_widen(tg_dtype dtype, const void *elements, size_t n, float *values)
{
    tg_neon_load(dtype, elements, n, values);
}

TG_INLINE uint16x4_t narrow_four(tg_dtype dtype, v_floats x)
{
    if (dtype == TG_FLOAT16)
        return vreinterpret_u16_f16(vcvt_f16_f32(x));
    const v_ints bits = v_bits(x), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    return vshrn_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
}

TG_INLINE uint64_t narrow_all(tg_dtype dtype, const float *values, size_t n, uint8_t *wire)
{
    enum { AHEAD = 4096 };
    const uint32_t fits = dtype == TG_FLOAT16 ? TG_FLOAT16_FITS : TG_BFLOAT16_FITS;
    uint64_t limited = 0;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const v_floats a = v_load(values + i), b = v_load(values + i + 4);
        const v_floats c = v_load(values + i + 8), d = v_load(values + i + 12);
        tg_prefetch(values + i, AHEAD);
        if (vmaxvq_u32(vmaxq_u32(vmaxq_u32(v_keys(a), v_keys(b)), vmaxq_u32(v_keys(c), v_keys(d)))) > fits) {
            limited += tg_scalar_store(dtype, values + i, 16, wire + 2 * i);
            continue;
        }
        store_halves(wire + 2 * i, vcombine_u16(narrow_four(dtype, a), narrow_four(dtype, b)));
        store_halves(wire + 2 * i + 16, vcombine_u16(narrow_four(dtype, c), narrow_four(dtype, d)));
    }
    return limited + tg_scalar_store(dtype, values + i, n - i, wire + 2 * i);
}

TG_INLINE void copy_all(const float *values, size_t n, uint8_t *wire) { memmove(wire, values, n * sizeof(float)); }

TG_STORE(tg_neon_store, tg_neon_narrow)

/* ---- values on the wire, straight to a sum ---- */

/* Adds eight values from the wire to `out`, or sets it; returns the larger of the keys. */
TG_INLINE v_ints decode_eight(tg_dtype dtype, const uint8_t *wire, bool set, v_floats weight, float *out)
{
    v_floats x, y;
    if (dtype == TG_FLOAT32) {
        x = v_floats_of(v_load_bits(wire));
        y = v_floats_of(v_load_bits(wire + 16));
    } else {
        const uint16x8_t halves = load_halves(wire);
        x = widen_four(dtype, vget_low_u16(halves));
        y = widen_four(dtype, vget_high_u16(halves));
    }
    const v_ints larger = vmaxq_u32(v_keys(x), v_keys(y));
    if (out) {
        x = v_mul(weight, x);
        y = v_mul(weight, y);
        v_store(out, set ? x : v_plus(v_load(out), x));
        v_store(out + 4, set ? y : v_plus(v_load(out + 4), y));
    }
    return larger;
}

TG_INLINE bool decode_all(tg_dtype dtype, const uint8_t *wire, size_t n, bool set, float weight, float *out)
{
    enum { AHEAD = 4096 };
    const size_t size = dtype == TG_FLOAT32 ? 4 : 2;
    const v_floats w = v_float(weight);
    v_ints largest = v_int(0);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        float *to = out ? out + i : NULL;
        largest = vmaxq_u32(largest, decode_eight(dtype, wire + i * size, set, w, to));
        largest = vmaxq_u32(largest, decode_eight(dtype, wire + (i + 8) * size, set, w, to ? to + 8 : NULL));
        if (out)
            tg_prefetch(to, AHEAD);
    }
    const bool sound = tg_decode_last(dtype, wire + i * size, n - i, set, weight, out ? out + i : NULL);
    return sound && vmaxvq_u32(largest) < TG_INFINITY_BITS;
}

TG_DECODE_PLAIN(tg_neon_decode_plain)

/* ---- feedback and sums of vectors ---- */

void tg_neon_compensate(const float *push, const float *residual, float alpha, float beta, size_t n, float *u,
                        float *rest)
{
    compensate(push, residual, alpha, beta, n, u, rest);
}

void tg_neon_subtract(const float *rest, const float *sent, size_t n, float *residual)
{
    subtract(rest, sent, n, residual);
}

void tg_neon_add_scaled(const float *values, float weight, size_t n, float *sum) { add_scaled(values, weight, n, sum); }

void tg_neon_set_scaled(const float *values, float weight, size_t n, float *result)
{
    set_scaled(values, weight, n, result);
}

#endif
