/* Packed levels to weighted sums with vectors of sixteen: what up to 16 codes add fits one register, and looking it up is one
 * instruction. Widths for which that does not do go through AVX2. */
#include "kernels/avx512/avx512.h"

#if defined(__AVX512F__)

#include "kernels/avx2/avx2.h"
#include "kernels/avx512/lanes.h"
#include "kernels/quantiser.h"

typedef v_floats v_table;

/* What the code in the lowest `width` bits of an index 0 … 15 adds. Codes above 2 * levels are limited by the radius as the last level
 * is. */
TG_INLINE v_table v_table_of(const tg_levels_decoding *d, unsigned width, float radius, float weight)
{
    v_ints index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    v_ints code = _mm512_and_si512(index, v_int((1 << width) - 1));
    v_floats most = v_float(radius), least = v_float(-radius), x;
    if (width == 1) {
        x = _mm512_mask_blend_ps(_mm512_test_epi32_mask(code, code), least, most);
    } else {
        tg_quantiser q = tg_quantiser_from(d->levels, 0, radius, false);
        x = v_mul(v_convert(_mm512_sub_epi32(code, v_int((int)d->levels))), v_float(q.unit));
        x = v_max(least, v_min(most, v_mul(x, v_float(q.drop))));
    }
    return v_mul(v_float(weight), x);
}

TG_INLINE v_floats v_look_up_row(v_table table, unsigned width, v_ints bits, unsigned row)
{
    return _mm512_permutexvar_ps(row > 0 ? v_shift_right(bits, row * width) : bits, table);
}

enum { AHEAD = 2048 };

/* For a single frame it depends on the machine. */
TG_INLINE size_t ahead_of(unsigned frames, unsigned width)
{
    (void)width;
    return frames > 1 ? AHEAD : tg_ahead();
}

#include "kernels/avx2/levels_sum.h"

TG_INLINE void decode_bytes(const batch *b, bool set, float weight, size_t start, float *out)
{
    const tg_levels_decoding *d = b->frames;
    tg_quantiser q = tg_quantiser_from(d->levels, 0, radius_at(b, 0, start), false);
    const v_floats unit = v_float(q.unit), drop = v_float(q.drop), most = v_float(q.radius), least = v_float(-q.radius);
    const v_floats levels = v_float((float)d->levels), scale = v_float(weight);
    const size_t ahead = tg_ahead();
    for (size_t at = start; at < start + TG_GROUP; at += 64) {
        v_ints bits = v_load_bits(d->packed + at);
        TG_UNROLL
        for (unsigned row = 0; row < 4; row++) {
            float *to = out + at + row * 16;
            v_ints code = row < 3 ? _mm512_and_si512(v_shift_right(bits, 8 * row), v_int(0xff)) : v_shift_right(bits, 24);
            v_floats x = v_mul(v_mul(v_sub(v_convert(code), levels), unit), drop);
            tg_prefetch(to, ahead);
            x = v_mul(scale, v_max(least, v_min(most, x)));
            v_store(to, set ? x : _mm512_add_ps(v_load(to), x));
        }
    }
}

static void decode_otherwise(const batch *b, bool set, size_t n, float weight, float *out)
{
    const tg_levels_decoding *d = b->frames;
    if (d->width != 8 || d->bucket < TG_GROUP)
        tg_avx2_decode_levels(d, 1, n, set, weight, out);
    else if (set)
        for (size_t start = 0; start < n; start += TG_GROUP)
            decode_bytes(b, true, weight, start, out);
    else
        for (size_t start = 0; start < n; start += TG_GROUP)
            decode_bytes(b, false, weight, start, out);
}

void tg_avx512_decode_levels(const tg_levels_decoding *frames, size_t frame_count, size_t n, bool set, float weight, float *out)
{
    v_decode_levels(frames, frame_count, n, set, weight, out);
}

#endif
