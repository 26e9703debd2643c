/* Element types and feedback, eight elements at a time. Rare cases (NaN, saturation) and the elements after the last
 * whole vector are left to the scalar definition. */
#include "kernels/avx2/vector.h"

#if defined(__AVX2__)

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/lanes.h"
#include "kernels/wide/arithmetic.h"
#include "kernels/wide/variants.h"

/* ---- 16-bit floats ---- */

static void widen_float16(const uint8_t *halves, size_t n, float *values)
{
    const __m256i exponent = _mm256_set1_epi16(0x7c00);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256i h = tg_load_bits(halves + 2 * i);
        __m256i special = _mm256_cmpeq_epi16(_mm256_and_si256(h, exponent), exponent);
        if (!_mm256_testz_si256(special, special)) { /* the instruction would change a signalling NaN */
            tg_scalar_load(TG_FLOAT16, halves + 2 * i, 16, values + i);
            continue;
        }
        _mm256_storeu_ps(values + i, _mm256_cvtph_ps(_mm256_castsi256_si128(h)));
        _mm256_storeu_ps(values + i + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)));
    }
    tg_scalar_load(TG_FLOAT16, halves + 2 * i, n - i, values + i);
}

static void widen_bfloat16(const uint8_t *halves, size_t n, float *values)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(halves + 2 * i));
        tg_store_bits(values + i, _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
    }
    tg_scalar_load(TG_BFLOAT16, halves + 2 * i, n - i, values + i);
}

void tg_avx2_load(tg_dtype dtype, const uint8_t *wire, size_t n, float *values)
{
    if (dtype == TG_FLOAT32)
        memcpy(values, wire, n * sizeof(float));
    else if (dtype == TG_FLOAT16)
        widen_float16(wire, n, values);
    else
        widen_bfloat16(wire, n, values);
}

void tg_avx2_widen(tg_dtype dtype, const void *elements, size_t n, float *values)
{
    tg_avx2_load(dtype, elements, n, values);
}

/* Eight values from the wire, the same bits as tg_load except for NaN. */
TG_INLINE __m256 eight_from(tg_dtype dtype, const uint8_t *wire)
{
    if (dtype == TG_FLOAT32)
        return _mm256_loadu_ps((const float *)(const void *)wire);
    __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)wire);
    if (dtype == TG_FLOAT16)
        return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/* Whether whole vectors of 16-bit numbers are finite, without widening them. */
TG_INLINE bool are_finite(tg_dtype dtype, const uint8_t *wire, size_t n)
{
    const __m256i infinity = _mm256_set1_epi16(dtype == TG_FLOAT16 ? 0x7c00 : 0x7f80),
                  magnitude = _mm256_set1_epi16(0x7fff);
    __m256i largest = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += 16)
        largest = _mm256_max_epu16(largest, _mm256_and_si256(tg_load_bits(wire + 2 * i), magnitude));
    return _mm256_movemask_epi8(_mm256_cmpgt_epi16(infinity, largest)) == -1;
}

TG_INLINE bool decode_all(tg_dtype dtype, const uint8_t *wire, size_t n, bool set, float weight, float *out)
{
    if (!out && dtype != TG_FLOAT32 && n % 16 == 0)
        return are_finite(dtype, wire, n);
    const size_t size = dtype == TG_FLOAT32 ? 4 : 2, ahead = tg_ahead();
    const __m256 w = _mm256_set1_ps(weight);
    __m256i largest = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256 x = eight_from(dtype, wire + i * size), y = eight_from(dtype, wire + (i + 8) * size);
        __m256i a = tg_bits_of(tg_magnitude_of(x)), b = tg_bits_of(tg_magnitude_of(y));
        largest = _mm256_max_epu32(largest, _mm256_max_epu32(a, b));
        if (!out)
            continue;
        tg_prefetch(out + i, ahead);
        x = _mm256_mul_ps(w, x);
        y = _mm256_mul_ps(w, y);
        _mm256_storeu_ps(out + i, set ? x : _mm256_add_ps(_mm256_loadu_ps(out + i), x));
        _mm256_storeu_ps(out + i + 8, set ? y : _mm256_add_ps(_mm256_loadu_ps(out + i + 8), y));
    }
    const bool sound = tg_decode_last(dtype, wire + i * size, n - i, set, weight, out ? out + i : NULL);
    return sound && tg_largest_of(largest) < TG_INFINITY_BITS;
}

TG_DECODE_PLAIN(tg_avx2_decode_plain)

TG_INLINE __m256i narrow_eight(tg_dtype dtype, __m256 x)
{
    if (dtype == TG_FLOAT16)
        return _mm256_castsi128_si256(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    __m256i bits = tg_bits_of(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    bits = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    return _mm256_srli_epi32(bits, 16);
}

TG_INLINE __m256i narrow_sixteen(tg_dtype dtype, __m256 a, __m256 b)
{
    __m256i x = narrow_eight(dtype, a), y = narrow_eight(dtype, b);
    if (dtype == TG_FLOAT16)
        return _mm256_inserti128_si256(x, _mm256_castsi256_si128(y), 1);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(x, y), 0xd8);
}

TG_INLINE uint64_t narrow_all(tg_dtype dtype, const float *values, size_t n, uint8_t *wire)
{
    const __m256i fits = _mm256_set1_epi32(dtype == TG_FLOAT16 ? TG_FLOAT16_FITS : TG_BFLOAT16_FITS);
    const size_t ahead = tg_ahead();
    uint64_t limited = 0;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256 a = _mm256_loadu_ps(values + i), b = _mm256_loadu_ps(values + i + 8);
        __m256i x = tg_bits_of(tg_magnitude_of(a)), y = tg_bits_of(tg_magnitude_of(b));
        tg_prefetch(values + i, ahead);
        __m256i large = _mm256_cmpgt_epi32(_mm256_max_epu32(x, y), fits);
        if (_mm256_testz_si256(large, large))
            tg_store_bits(wire + 2 * i, narrow_sixteen(dtype, a, b));
        else
            limited += tg_scalar_store(dtype, values + i, 16, wire + 2 * i);
    }
    return limited + tg_scalar_store(dtype, values + i, n - i, wire + 2 * i);
}

/* On AMD's processors the C library's memmove takes twice as long where source and target have different offsets in
 * their cache lines. */
TG_INLINE void copy_all(const float *values, size_t n, uint8_t *wire)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        tg_store_bits(wire + 4 * i, tg_load_bits(values + i));
    memmove(wire + 4 * i, values + i, (n - i) * sizeof(float));
}

TG_STORE(tg_avx2_store, tg_avx2_narrow)

/* ---- feedback and sums of vectors ---- */

void tg_avx2_compensate(const float *push, const float *residual, float alpha, float beta, size_t n, float *u,
                        float *rest)
{
    compensate(push, residual, alpha, beta, n, u, rest);
}

void tg_avx2_subtract(const float *rest, const float *sent, size_t n, float *residual)
{
    subtract(rest, sent, n, residual);
}

void tg_avx2_add_scaled(const float *values, float weight, size_t n, float *sum) { add_scaled(values, weight, n, sum); }

void tg_avx2_set_scaled(const float *values, float weight, size_t n, float *result)
{
    set_scaled(values, weight, n, result);
}

#endif
