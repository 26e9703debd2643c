/* Packed levels to weighted sums with vectors of sixteen: the contributions of up to 16 codes fit one register, and a
 * lookup is one instruction. Other widths are left to AVX2. */
#include "kernels/avx512/avx512.h"

#if defined(__AVX512F__)

#include "kernels/avx2/avx2.h"
#include "kernels/avx512/lanes.h"
#include "kernels/quantiser.h"

typedef v_floats v_table;

/* The contribution of the code in the lowest `width` bits of an index 0 … 15. Codes above 2 * levels give the same
 * value as the last level, because values are limited to the radius. */
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

/* For a single frame it depends on the processor. */
TG_INLINE size_t ahead_of(unsigned frames, unsigned width)
{
    (void)width;
    return frames > 1 ? AHEAD : tg_ahead();
}

#include "kernels/wide/levels_sum.h"

static void decode_otherwise(const frame_set *b, bool set, size_t n, float weight, float *out)
{
    tg_avx2_decode_levels(b->frames, 1, n, set ? TG_SET : TG_ADD, weight, out);
}

void tg_avx512_decode_levels(const tg_levels_decoding *frames, size_t frame_count, size_t n, tg_storing how,
                             float weight, float *out)
{
    v_decode_levels(frames, frame_count, n, how, weight, out);
}

#endif
