/* Narrow element types, sixteen elements at a time. Rare cases (NaN, saturation) and the elements after the last whole
 * vector are left to the scalar definition. */
#include "kernels/avx512/avx512.h"

#if defined(__AVX512F__)

#include "kernels/avx512/lanes.h"
#include "kernels/wide/variants.h"

TG_INLINE __m256i narrow_sixteen(tg_dtype dtype, v_floats x)
{
    if (dtype == TG_FLOAT16)
        return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
    const v_ints bits = _mm512_castps_si512(x), odd = _mm512_and_si512(v_shift_right(bits, 16), v_int(1));
    return _mm512_cvtepi32_epi16(v_shift_right(v_add(bits, v_add(odd, v_int(0x7fff))), 16));
}

TG_INLINE uint64_t narrow_all(tg_dtype dtype, const float *values, size_t n, uint8_t *wire)
{
    const v_ints fits = v_int(dtype == TG_FLOAT16 ? TG_FLOAT16_FITS : TG_BFLOAT16_FITS);
    const size_t ahead = tg_ahead();
    uint64_t limited = 0;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const v_floats a = v_load(values + i), b = v_load(values + i + 16);
        tg_prefetch(values + i, ahead);
        tg_prefetch(values + i + 16, ahead);
        if (_mm512_cmpgt_epi32_mask(v_larger(v_keys(a), v_keys(b)), fits)) {
            limited += tg_scalar_store(dtype, values + i, 32, wire + 2 * i);
        } else {
            tg_store_bits(wire + 2 * i, narrow_sixteen(dtype, a));
            tg_store_bits(wire + 2 * i + 32, narrow_sixteen(dtype, b));
        }
    }
    return limited + tg_scalar_store(dtype, values + i, n - i, wire + 2 * i);
}

/* On AMD's processors the C library's memmove takes twice as long where source and target have different offsets in
 * their cache lines. */
TG_INLINE void copy_all(const float *values, size_t n, uint8_t *wire)
{
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES)
        v_store_bits(wire + 4 * i, v_load_bits(values + i));
    memmove(wire + 4 * i, values + i, (n - i) * sizeof(float));
}

TG_STORE(tg_avx512_store, tg_avx512_narrow)

#endif
