/* Packed levels to weighted sums with vectors of sixteen: what up to 16 codes add fits one register, and looking it up is one
 * instruction. Widths for which that does not do go through AVX2. */
#include "kernels/avx512/avx512.h"

#if defined(__AVX512F__)

#include "kernels/avx2/avx2.h"
#include "kernels/avx512/lanes.h"
#include "kernels/quantiser.h"

/* How far ahead several frames' sum is prefetched, in bytes; for a single one it depends on the machine. */
enum { AHEAD = 2048, MOST = 4 };

/* Frames that are decoded at once, and for each the logarithm of its bucket; large where a bucket is the whole run or more. */
typedef struct batch {
    const tg_levels_decoding *frames;
    unsigned count;
    unsigned bucket_log[MOST];
} batch;

TG_INLINE float radius_at(const batch *b, unsigned f, size_t element)
{
    return tg_load_float(b->frames[f].scales + (element >> b->bucket_log[f]) * 4);
}

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

/* The group that starts at `start`, for widths 1, 2, 4, where the rows of a word lie in one bucket. Storing the sum once for all frames is
 * what counts. */
TG_INLINE void decode_group(const batch *b, unsigned frames, unsigned width, bool set, float weight, size_t start, float *out)
{
    const unsigned rows = 32 / width;
    const size_t ahead = frames > 1 ? AHEAD : tg_ahead();
    v_floats table[MOST] = {v_float(0)};
    v_ints bits[MOST] = {v_int(0)};
    for (unsigned word = 0; word < width; word++) {
        const size_t at = start + word * rows * 16;
        TG_UNROLL
        for (unsigned f = 0; f < frames; f++) {
            bits[f] = v_load_bits(b->frames[f].packed + at / 8 * width);
            if (word == 0 || b->frames[f].bucket < TG_GROUP)
                table[f] = table_of(&b->frames[f], width, radius_at(b, f, at), weight);
        }
        TG_UNROLL
        for (unsigned row = 0; row < rows; row++) {
            float *to = out + at + 16 * row;
            tg_prefetch(to, ahead);
            v_floats sum = set ? v_float(0) : v_load(to);
            TG_UNROLL
            for (unsigned f = 0; f < frames; f++) {
                v_floats x = _mm512_permutexvar_ps(row > 0 ? v_shift_right(bits[f], row * width) : bits[f], table[f]);
                sum = set && f == 0 ? x : _mm512_add_ps(sum, x);
            }
            v_store(to, sum);
        }
    }
}

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

/* Whether the rows of a word lie in one bucket, and what a code adds can be looked up. */
static bool by_lookup(const tg_levels_decoding *d)
{
    return (d->width == 4 && d->bucket >= 128) || (d->width == 2 && d->bucket >= 256) || d->width == 1;
}

TG_INLINE void decode_run(const batch *b, unsigned frames, unsigned width, bool set, size_t n, float weight, float *out)
{
    for (size_t start = 0; start < n; start += TG_GROUP)
        decode_group(b, frames, width, set, weight, start, out);
}

TG_INLINE void decode_alike(const batch *b, unsigned frames, bool set, size_t n, float weight, float *out)
{
    const unsigned width = b->frames->width;
    if (width == 4)
        decode_run(b, frames, 4, set, n, weight, out);
    else if (width == 2)
        decode_run(b, frames, 2, set, n, weight, out);
    else
        decode_run(b, frames, 1, set, n, weight, out);
}

/* How many of the frames are decoded at once: four, two or one. */
static unsigned alike(const tg_levels_decoding *d, size_t left)
{
    size_t same = 0;
    while (same < MOST && same < left && d[same].width == d->width && by_lookup(&d[same]))
        same++;
    return same == 4 ? 4 : same >= 2 ? 2 : 1;
}

TG_INLINE void decode_batch(const batch *b, bool set, size_t n, float weight, float *out)
{
    if (b->count == 4) {
        decode_alike(b, 4, set, n, weight, out);
    } else if (b->count == 2) {
        decode_alike(b, 2, set, n, weight, out);
    } else if (by_lookup(b->frames)) {
        decode_alike(b, 1, set, n, weight, out);
    } else if (b->frames->width == 8 && b->frames->bucket >= TG_GROUP) {
        for (size_t start = 0; start < n; start += TG_GROUP)
            decode_bytes(b, set, weight, start, out);
    } else {
        tg_avx2_decode_levels(b->frames, 1, n, set, weight, out);
    }
}

void tg_avx512_decode_levels(const tg_levels_decoding *frames, size_t frame_count, size_t n, bool set, float weight, float *out)
{
    for (size_t f = 0; f < frame_count;) {
        batch b = {.frames = frames + f, .count = alike(frames + f, frame_count - f)};
        for (unsigned i = 0; i < b.count; i++)
            b.bucket_log[i] = frames[f + i].bucket < n ? (unsigned)__builtin_ctz(frames[f + i].bucket) : 31;
        if (set && f == 0)
            decode_batch(&b, true, n, weight, out);
        else
            decode_batch(&b, false, n, weight, out);
        f += b.count;
    }
}

#endif
