/* Packed levels to weighted sums: unpacks, dequantises and adds a group of 512 at a time, frame after frame, so that
 * the output passes through the first-level cache once for any number of frames.
 *
 * For few levels the contribution of a code is looked up in a table for each bucket, which is kept in registers. */
#include "kernels/neon/lanes.h"

#if defined(__AARCH64EL__)

#include "kernels/quantiser.h"

enum { AHEAD = 4096, PARTS = TG_LANES / V_LANES };

/* The contributions of the codes of one bucket. */
typedef struct bucket {
    v_floats levels, unit, drop, most, least, weight;
} bucket;

static bucket bucket_of(const tg_levels_decoding *d, float weight, float radius)
{
    const tg_quantiser q = tg_quantiser_from(d->levels, 0, radius, false);
    return (bucket){.levels = v_float((float)d->levels),
                    .unit = v_float(q.unit),
                    .drop = v_float(q.drop),
                    .most = v_float(radius),
                    .least = v_float(-radius),
                    .weight = v_float(weight)};
}

/* Codes above 2 * levels give the same value as the last level, because values are limited to the radius. */
TG_INLINE v_floats values_of(const bucket *b, v_ints code)
{
    const v_floats level = v_sub(v_convert(code), b->levels);
    const v_floats x = v_min(b->most, v_mul(v_mul(level, b->unit), b->drop));
    return v_mul(b->weight, v_max(b->least, x));
}

TG_INLINE void deliver(bool set, float *to, v_floats x) { v_store(to, set ? x : v_plus(v_load(to), x)); }

/* ---- by looking up ---- */

/* The contributions of codes 0 … 15: 64 bytes. Fewer codes need fewer registers. */
TG_INLINE uint8x16x4_t table_of(const bucket *b, unsigned width)
{
    v_ints four[4];
    if (width == 1) { /* signs */
        const v_ints minus = v_bits(v_mul(b->weight, b->least)), plus = v_bits(v_mul(b->weight, b->most));
        four[0] = vzip1q_u32(minus, plus);
    } else {
        four[0] = v_bits(values_of(b, v_count_from(0)));
    }
    for (unsigned i = 1; i < 4; i++)
        four[i] = width == 4 ? v_bits(values_of(b, v_count_from(4 * i))) : four[0];
    return (uint8x16x4_t){{vreinterpretq_u8_u32(four[0]), vreinterpretq_u8_u32(four[1]), vreinterpretq_u8_u32(four[2]),
                           vreinterpretq_u8_u32(four[3])}};
}

/* The contribution of the lowest code of each shifted word: bytes 4 * code … 4 * code + 3 of the table. */
TG_INLINE v_floats look_up(const uint8x16x4_t *table, unsigned width, v_ints word, unsigned row)
{
    const v_ints code = vandq_u32(v_shift_right(word, row * width), vdupq_n_u32((1u << width) - 1));
    const uint8x16_t bytes = vreinterpretq_u8_u32(vmlaq_u32(vdupq_n_u32(0x03020100), code, vdupq_n_u32(0x04040404)));
    const uint8x16_t found = width == 4 ? vqtbl4q_u8(*table, bytes) : vqtbl1q_u8(table->val[0], bytes);
    return v_floats_of(vreinterpretq_u32_u8(found));
}

/* Widths 1, 2, 4, where the rows of a word lie in one bucket. */
TG_INLINE void decode_by_lookup(const tg_levels_decoding *d, unsigned width, bool set, float weight, float *out)
{
    const unsigned rows = 32 / width;
    uint8x16x4_t table = {{vdupq_n_u8(0)}};
    for (unsigned word = 0; word < width; word++) {
        const size_t start = word * rows * TG_LANES;
        if (word == 0 || d->bucket < TG_GROUP) {
            const bucket b = bucket_of(d, weight, tg_load_float(d->scales + start / d->bucket * 4));
            table = table_of(&b, width);
        }
        for (unsigned part = 0; part < PARTS; part++) {
            const v_ints bits = v_load_bits(d->packed + 4 * (word * TG_LANES + part * V_LANES));
            float *to = out + start + part * V_LANES;
            TG_UNROLL
            for (unsigned row = 0; row < rows; row++)
                deliver(set, to + row * TG_LANES, look_up(&table, width, bits, row));
        }
    }
}

/* ---- by arithmetic ---- */

TG_INLINE void decode_codes(const tg_levels_decoding *d, const uint32_t *codes, bool set, float weight, float *out)
{
    const size_t stretch = d->bucket < TG_GROUP ? d->bucket : TG_GROUP;
    for (size_t start = 0; start < TG_GROUP; start += stretch) {
        const bucket b = bucket_of(d, weight, tg_load_float(d->scales + start / stretch * 4));
        for (size_t at = start; at < start + stretch; at += V_LANES)
            deliver(set, out + at, values_of(&b, v_load_bits(codes + at)));
    }
}

/* ---- all of it ---- */

/* One group of one frame. */
TG_INLINE void decode_group(const tg_levels_decoding *d, bool set, float weight, float *out)
{
    if (d->width == 1 && d->bucket >= 512) {
        decode_by_lookup(d, 1, set, weight, out);
    } else if (d->width == 2 && d->bucket >= 256) {
        decode_by_lookup(d, 2, set, weight, out);
    } else if (d->width == 4 && d->bucket >= 128) {
        decode_by_lookup(d, 4, set, weight, out);
    } else {
        uint32_t codes[TG_GROUP];
        tg_neon_unpack_group(d->packed, d->width, codes);
        decode_codes(d, codes, set, weight, out);
    }
}

void tg_neon_decode_levels(const tg_levels_decoding *frames, size_t frame_count, size_t n, tg_storing how, float weight,
                           float *out)
{
    for (size_t done = 0; done < n; done += TG_GROUP) {
        for (size_t i = 0; i < TG_GROUP; i += TG_LANES)
            tg_prefetch(out + done + i, AHEAD);
        for (size_t f = 0; f < frame_count; f++) {
            tg_levels_decoding d = frames[f]; /* from this group on */
            d.scales += d.bucket < n ? (uint32_t)done / d.bucket * 4 : 0;
            d.packed += done / 8 * d.width;
            if (how != TG_ADD && f == 0)
                decode_group(&d, true, weight, out + done);
            else
                decode_group(&d, false, weight, out + done);
        }
    }
}

#endif
