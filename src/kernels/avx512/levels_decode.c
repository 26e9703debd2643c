/* Packed levels to weighted sums with vectors of sixteen: what up to 16 codes add fits one register, and looking it up is one
 * instruction. Widths for which that does not do go through AVX2. */
#include "kernels/avx512/avx512.h"

#if defined(__AVX512F__)

#include "kernels/avx2/avx2.h"
#include "kernels/avx512/lanes.h"
#include "kernels/quantiser.h"

enum { AHEAD = 4096 };

/* What the code in the lowest `width` bits of an index 0 … 15 adds. Codes above 2 * levels are limited by the radius as the last level
 * is. */
TG_INLINE v_floats table_of(const tg_levels_decoding *d, unsigned width, float radius, float weight)
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

TG_INLINE void deliver(bool set, float *to, v_floats x) { v_store(to, set ? x : _mm512_add_ps(v_load(to), x)); }

/* Widths 1, 2, 4, where the rows of a word lie in one bucket. Up to four frames at once: storing the sum once for all of them is what
 * counts. */
TG_INLINE void decode_group(const tg_levels_decoding *d, unsigned frames, unsigned width, bool set, bool prefetch, float weight,
                            float *out)
{
    const unsigned rows = 32 / width;
    v_floats table[4] = {v_float(0)};
    v_ints bits[4] = {v_int(0)};
    for (unsigned word = 0; word < width; word++) {
        float *to = out + word * rows * 16;
        TG_UNROLL
        for (unsigned f = 0; f < frames; f++) {
            bits[f] = v_load_bits(d[f].packed + 64 * word);
            if (word == 0 || d[f].bucket < TG_GROUP)
                table[f] = table_of(&d[f], width, tg_load_float(d[f].scales + word * rows * 16 / d[f].bucket * 4), weight);
        }
        TG_UNROLL
        for (unsigned row = 0; row < rows; row++) {
            if (prefetch)
                tg_prefetch(to + 16 * row, AHEAD);
            v_floats sum = set ? v_float(0) : v_load(to + 16 * row);
            TG_UNROLL
            for (unsigned f = 0; f < frames; f++) {
                v_floats x = _mm512_permutexvar_ps(row > 0 ? v_shift_right(bits[f], row * width) : bits[f], table[f]);
                sum = set && f == 0 ? x : _mm512_add_ps(sum, x);
            }
            v_store(to + 16 * row, sum);
        }
    }
}

TG_INLINE void decode_bytes(const tg_levels_decoding *d, bool set, bool prefetch, float weight, float *out)
{
    tg_quantiser q = tg_quantiser_from(d->levels, 0, tg_load_float(d->scales), false);
    const v_floats unit = v_float(q.unit), drop = v_float(q.drop), most = v_float(q.radius), least = v_float(-q.radius);
    const v_floats levels = v_float((float)d->levels), scale = v_float(weight);
    for (unsigned word = 0; word < 8; word++) {
        v_ints bits = v_load_bits(d->packed + 64 * word);
        TG_UNROLL
        for (unsigned row = 0; row < 4; row++) {
            float *to = out + word * 64 + row * 16;
            v_ints code = row < 3 ? _mm512_and_si512(v_shift_right(bits, 8 * row), v_int(0xff)) : v_shift_right(bits, 24);
            v_floats x = v_mul(v_mul(v_sub(v_convert(code), levels), unit), drop);
            if (prefetch)
                tg_prefetch(to, AHEAD);
            deliver(set, to, v_mul(scale, v_max(least, v_min(most, x))));
        }
    }
}

/* Whether the rows of a word lie in one bucket, and what a code adds can be looked up. */
static bool by_lookup(const tg_levels_decoding *d)
{
    return (d->width == 4 && d->bucket >= 128) || (d->width == 2 && d->bucket >= 256) || d->width == 1;
}

TG_INLINE void decode_alike(const tg_levels_decoding *d, unsigned frames, bool set, bool prefetch, float weight, float *out)
{
    if (d->width == 4)
        decode_group(d, frames, 4, set, prefetch, weight, out);
    else if (d->width == 2)
        decode_group(d, frames, 2, set, prefetch, weight, out);
    else
        decode_group(d, frames, 1, set, prefetch, weight, out);
}

/* One group of the next frame, or of the next four if they are alike; returns how many. */
TG_INLINE size_t decode_next(const tg_levels_decoding *d, size_t left, bool set, bool prefetch, float weight, float *out)
{
    if (by_lookup(d)) {
        unsigned alike = 1;
        while (alike < 4 && alike < left && d[alike].width == d->width && by_lookup(&d[alike]))
            alike++;
        if (alike == 4) {
            decode_alike(d, 4, set, prefetch, weight, out);
            return 4;
        }
        if (alike >= 2) {
            decode_alike(d, 2, set, prefetch, weight, out);
            return 2;
        }
        decode_alike(d, 1, set, prefetch, weight, out);
    } else if (d->width == 8 && d->bucket >= TG_GROUP) {
        decode_bytes(d, set, prefetch, weight, out);
    } else {
        tg_avx2_decode_levels(d, 1, TG_GROUP, set, weight, out);
    }
    return 1;
}

void tg_avx512_decode_levels(const tg_levels_decoding *frames, size_t frame_count, size_t n, bool set, float weight, float *out)
{
    for (size_t done = 0; done < n; done += TG_GROUP)
        for (size_t f = 0; f < frame_count;) {
            tg_levels_decoding next[4] = {{.width = 0}}; /* from this group on */
            for (size_t i = 0; i < 4 && f + i < frame_count; i++) {
                next[i] = frames[f + i];
                next[i].scales += next[i].bucket < n ? (uint32_t)done / next[i].bucket * 4 : 0;
                next[i].packed += done / 8 * next[i].width;
            }
            if (set && f == 0)
                f += decode_next(next, frame_count - f, true, true, weight, out + done);
            else
                f += decode_next(next, frame_count - f, false, f == 0, weight, out + done);
        }
}

#endif
