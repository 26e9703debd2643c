/* Packed levels to weighted sums: unpack, dequantise and add, a group of 512 at a time and frame after frame, so that the output goes
 * through the first-level cache once however many frames there are.
 *
 * For few levels, what a code adds to the sum is looked up: a table for each bucket, in registers. */
#include "kernels/avx2/vector.h"

#if defined(__AVX2__)

#include "kernels/avx2/avx2.h"
#include "kernels/quantiser.h"

enum { AHEAD = 4096 };

/* One frame's part of one group. */
typedef struct part {
    const uint8_t *packed;
    const uint8_t *scales; /* of the group's first bucket */
    size_t bucket;
    uint32_t levels;
    unsigned width;
    float weight;
    bool set;      /* else add */
    bool prefetch; /* the output */
    float *out;
} part;

TG_INLINE void deliver(const part *p, bool set, size_t at, __m256 x)
{
    float *to = p->out + at;
    _mm256_storeu_ps(to, set ? x : _mm256_add_ps(_mm256_loadu_ps(to), x));
}

/* What codes 0 … 7 or 8 … 15 of a bucket add. Codes above 2 * levels are limited by the radius as the last level is. */
TG_INLINE __m256 values_of(const part *p, __m256 code, float radius)
{
    tg_quantiser q = tg_quantiser_from(p->levels, 0, radius, false);
    __m256 bound = _mm256_set1_ps(radius);
    __m256 x = _mm256_mul_ps(_mm256_sub_ps(code, _mm256_set1_ps((float)p->levels)), _mm256_set1_ps(q.unit));
    x = _mm256_min_ps(bound, _mm256_mul_ps(x, _mm256_set1_ps(q.drop)));
    x = _mm256_max_ps(_mm256_set1_ps(-radius), x);
    return _mm256_mul_ps(_mm256_set1_ps(p->weight), x);
}

static float radius_at(const part *p, size_t element)
{
    size_t bucket = p->bucket < TG_GROUP ? element / p->bucket : 0;
    return tg_load_float(p->scales + 4 * bucket);
}

typedef struct lookup {
    __m256 low, high;
} lookup;

TG_INLINE lookup lookup_of(const part *p, unsigned width, size_t element)
{
    const float radius = radius_at(p, element);
    if (width == 1) { /* signs: whatever the second bit of an index is */
        __m256 x = _mm256_mul_ps(_mm256_set1_ps(p->weight), _mm256_set1_ps(radius));
        __m256 minus = _mm256_mul_ps(_mm256_set1_ps(p->weight), _mm256_set1_ps(-radius));
        return (lookup){.low = _mm256_blend_ps(minus, x, 0xaa)};
    }
    const __m256 four = _mm256_setr_ps(0, 1, 2, 3, 0, 1, 2, 3), eight = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
    if (width == 2)
        return (lookup){.low = values_of(p, four, radius)};
    return (lookup){.low = values_of(p, eight, radius),
                    .high = values_of(p, _mm256_add_ps(eight, _mm256_set1_ps(8)), radius)};
}

/* The lowest code of each shifted word, looked up. Indices have their upper bits ignored. */
TG_INLINE __m256 look_up(lookup t, unsigned width, __m256i word, unsigned row)
{
    __m256i index = row > 0 ? _mm256_srli_epi32(word, (int)(row * width)) : word;
    if (width < 4)
        return _mm256_permutevar_ps(t.low, index);
    __m256 low = _mm256_permutevar8x32_ps(t.low, index), high = _mm256_permutevar8x32_ps(t.high, index);
    __m256i upper = row < 7 ? _mm256_slli_epi32(word, (int)(28 - 4 * row)) : word;
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(upper));
}

/* Widths 1, 2, 4, where the rows of a word lie in one bucket. */
TG_INLINE void decode_by_lookup(const part *p, unsigned width, bool set)
{
    const unsigned rows = 32 / width;
    lookup t = lookup_of(p, width, 0);
    for (unsigned word = 0; word < width; word++) {
        const size_t start = word * rows * 16;
        if (word > 0 && p->bucket < TG_GROUP)
            t = lookup_of(p, width, start);
        __m256i a = tg_load_bits(p->packed + 64 * word), b = tg_load_bits(p->packed + 64 * word + 32);
        TG_UNROLL
        for (unsigned row = 0; row < rows; row++) {
            if (p->prefetch)
                tg_prefetch(p->out + start + 16 * row, AHEAD);
            deliver(p, set, start + 16 * row, look_up(t, width, a, row));
            deliver(p, set, start + 16 * row + 8, look_up(t, width, b, row));
        }
    }
}

/* Any width: codes to floats by arithmetic. Without codes, the width is 8 and they are taken from the wire. */
TG_INLINE void decode_rows(const part *p, bool set, const uint32_t *codes)
{
    const __m256i mask = _mm256_set1_epi32(0xff);
    const size_t stretch = p->bucket < TG_GROUP ? p->bucket : TG_GROUP;
    const __m256 levels = _mm256_set1_ps((float)p->levels), weight = _mm256_set1_ps(p->weight);
    for (size_t start = 0; start < TG_GROUP; start += stretch) {
        tg_quantiser q = tg_quantiser_from(p->levels, 0, tg_load_float(p->scales + start / stretch * 4), false);
        const __m256 unit = _mm256_set1_ps(q.unit), drop = _mm256_set1_ps(q.drop);
        const __m256 most = _mm256_set1_ps(q.radius), least = _mm256_set1_ps(-q.radius);
        const bool lifted = q.drop != 1;
        for (size_t at = start; at < start + stretch; at += 16) {
            if (p->prefetch)
                tg_prefetch(p->out + at, AHEAD);
            TG_UNROLL
            for (unsigned half = 0; half < 2; half++) {
                __m256i code;
                if (codes)
                    code = tg_load_bits(codes + at + 8 * half);
                else /* row r is byte r % 4 of word r / 4 */
                    code = _mm256_and_si256(_mm256_srl_epi32(tg_load_bits(p->packed + at / 64 * 64 + 32 * half),
                                                             _mm_cvtsi32_si128((int)(at / 16 % 4 * 8))), mask);
                __m256 x = _mm256_mul_ps(_mm256_sub_ps(_mm256_cvtepi32_ps(code), levels), unit);
                if (lifted)
                    x = _mm256_mul_ps(x, drop);
                x = _mm256_max_ps(least, _mm256_min_ps(most, x));
                deliver(p, set, at + 8 * half, _mm256_mul_ps(weight, x));
            }
        }
    }
}

TG_INLINE void decode_part(const part *p, bool set)
{
    uint32_t codes[TG_GROUP];
    if (p->width == 1 && p->bucket >= 512)
        decode_by_lookup(p, 1, set);
    else if (p->width == 2 && p->bucket >= 256)
        decode_by_lookup(p, 2, set);
    else if (p->width == 4 && p->bucket >= 128)
        decode_by_lookup(p, 4, set);
    else if (p->width == 8) {
        decode_rows(p, set, NULL);
    } else {
        tg_avx2_unpack_group(p->packed, p->width, codes);
        decode_rows(p, set, codes);
    }
}

void tg_avx2_decode_levels(const tg_levels_decoding *frames, size_t frame_count, size_t n, bool set, float weight, float *out)
{
    /* Where it would come by itself, asking pays only while a single frame's lookups take longest. */
    const bool prefetch = tg_ahead() > 0 || (frame_count == 1 && frames->width >= 4);
    for (size_t done = 0; done < n; done += TG_GROUP)
        for (size_t f = 0; f < frame_count; f++) {
            const tg_levels_decoding *d = &frames[f];
            const part p = {.packed = d->packed + done / 8 * d->width,
                            .scales = d->scales + (d->bucket < n ? (uint32_t)done / d->bucket * 4 : 0),
                            .bucket = d->bucket,
                            .levels = d->levels,
                            .width = d->width,
                            .weight = weight,
                            .prefetch = prefetch && f == 0,
                            .out = out + done};
            if (set && f == 0)
                decode_part(&p, true);
            else
                decode_part(&p, false);
        }
}

#endif
