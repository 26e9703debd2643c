/* Packed levels to weighted sums with vectors of eight. For few levels the contribution of a code is looked up in a
 * table for each bucket, which is kept in registers. */
#include "kernels/avx2/vector.h"

#if defined(__AVX2__)

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/lanes.h"
#include "kernels/quantiser.h"

typedef struct v_table {
    __m256 low, high; /* codes 0 … 7 and 8 … 15 */
} v_table;

/* Codes above 2 * levels give the same value as the last level, because values are limited to the radius. */
TG_INLINE __m256 values_of(const tg_levels_decoding *d, __m256 code, float radius, float weight)
{
    tg_quantiser q = tg_quantiser_from(d->levels, 0, radius, false);
    __m256 x = v_mul(v_mul(v_sub(code, v_float((float)d->levels)), v_float(q.unit)), v_float(q.drop));
    return v_mul(v_float(weight), v_max(v_float(-radius), v_min(v_float(radius), x)));
}

TG_INLINE v_table v_table_of(const tg_levels_decoding *d, unsigned width, float radius, float weight)
{
    if (width == 1) { /* signs: independent of the second bit of an index */
        __m256 plus = v_mul(v_float(weight), v_float(radius)), minus = v_mul(v_float(weight), v_float(-radius));
        return (v_table){.low = _mm256_blend_ps(minus, plus, 0xaa)};
    }
    const __m256 four = _mm256_setr_ps(0, 1, 2, 3, 0, 1, 2, 3), eight = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
    if (width == 2)
        return (v_table){.low = values_of(d, four, radius, weight)};
    return (v_table){.low = values_of(d, eight, radius, weight),
                     .high = values_of(d, v_plus(eight, v_float(8)), radius, weight)};
}

/* The contribution of the lowest code of each shifted word. The upper bits of an index are ignored. */
TG_INLINE __m256 v_look_up_row(v_table t, unsigned width, __m256i bits, unsigned row)
{
    __m256i index = row > 0 ? v_shift_right(bits, row * width) : bits;
    if (width < 4)
        return _mm256_permutevar_ps(t.low, index);
    __m256 low = _mm256_permutevar8x32_ps(t.low, index), high = _mm256_permutevar8x32_ps(t.high, index);
    __m256i upper = row < 7 ? v_shift_left(bits, 28 - 4 * row) : bits;
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(upper));
}

enum { AHEAD = 4096 };

/* On processors that prefetch by themselves, an explicit prefetch pays only for a single frame, where the lookups take
 * longest. */
TG_INLINE size_t ahead_of(unsigned frames, unsigned width) { return frames == 1 && width >= 4 ? AHEAD : tg_ahead(); }

#include "kernels/wide/levels_sum.h"

/* A group by arithmetic. If `codes` is NULL the width is 8 and codes are read from the wire. */
TG_INLINE void decode_rows(const tg_levels_decoding *d, const uint8_t *packed, const uint8_t *scales, bool set,
                           const uint32_t *codes, float weight, float *out)
{
    const __m256i mask = v_int(0xff);
    const size_t stretch = d->bucket < TG_GROUP ? d->bucket : TG_GROUP, ahead = ahead_of(1, d->width);
    const __m256 levels = v_float((float)d->levels), factor = v_float(weight);
    for (size_t start = 0; start < TG_GROUP; start += stretch) {
        tg_quantiser q = tg_quantiser_from(d->levels, 0, tg_load_float(scales + start / stretch * 4), false);
        const __m256 unit = v_float(q.unit), drop = v_float(q.drop), most = v_float(q.radius),
                     least = v_float(-q.radius);
        const bool lifted = q.drop != 1;
        for (size_t at = start; at < start + stretch; at += TG_LANES) {
            tg_prefetch(out + at, ahead);
            TG_UNROLL
            for (unsigned half = 0; half < 2; half++) {
                __m256i code;
                if (codes)
                    code = tg_load_bits(codes + at + 8 * half);
                else /* row r is byte r % 4 of word r / 4 */
                    code = v_and(_mm256_srl_epi32(tg_load_bits(packed + at / 64 * 64 + 32 * half),
                                                  _mm_cvtsi32_si128((int)(at / 16 % 4 * 8))),
                                 mask);
                __m256 x = v_mul(v_sub(v_convert(code), levels), unit);
                if (lifted)
                    x = v_mul(x, drop);
                x = v_mul(factor, v_max(least, v_min(most, x)));
                float *to = out + at + 8 * half;
                v_store(to, set ? x : v_plus(v_load(to), x));
            }
        }
    }
}

static void decode_otherwise(const frame_set *b, bool set, size_t n, float weight, float *out)
{
    const tg_levels_decoding *d = b->frames;
    for (size_t start = 0; start < n; start += TG_GROUP) {
        const uint8_t *packed = d->packed + start / 8 * d->width, *scales = d->scales + (start >> b->bucket_log[0]) * 4;
        uint32_t codes[TG_GROUP];
        if (d->width != 8)
            tg_avx2_unpack_group(packed, d->width, codes);
        if (d->width == 8 && set)
            decode_rows(d, packed, scales, true, NULL, weight, out + start);
        else if (d->width == 8)
            decode_rows(d, packed, scales, false, NULL, weight, out + start);
        else
            decode_rows(d, packed, scales, set, codes, weight, out + start);
    }
}

void tg_avx2_decode_levels(const tg_levels_decoding *frames, size_t frame_count, size_t n, tg_storing how, float weight,
                           float *out)
{
    v_decode_levels(frames, frame_count, n, how, weight, out);
}

#endif
