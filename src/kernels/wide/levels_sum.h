/* Adds up to four frames of packed levels to one sum, which stays in a register meanwhile, so that it is loaded and
 * stored only once.
 *
 * For vectors of any size. Besides lanes.h it needs from the file that includes it:
 *
 *     v_table                                   the contribution of each code of a bucket, in registers
 *     v_table_of(frame, width, radius, weight)
 *     v_look_up_row(table, width, bits, row)    the contributions of the codes of one row of the words in bits
 *     ahead_of(frames, width)                   how far ahead to prefetch the sum, in bytes
 *     decode_otherwise(set of frames, set, n, weight, out)   for a single frame that is neither by_lookup() nor
 * by_bytes() */
#ifndef TG_KERNELS_WIDE_LEVELS_SUM_H
#define TG_KERNELS_WIDE_LEVELS_SUM_H

enum { MOST = 4, PARTS = TG_LANES / V_LANES };

/* Frames that are decoded together, and for each the logarithm of its bucket; large where a bucket covers the whole
 * run. */
typedef struct frame_set {
    const tg_levels_decoding *frames;
    unsigned count;
    unsigned bucket_log[MOST];
} frame_set;

static void decode_otherwise(const frame_set *b, bool set, size_t n, float weight, float *out);

TG_INLINE float radius_at(const frame_set *b, unsigned f, size_t element)
{
    return tg_load_float(b->frames[f].scales + (element >> b->bucket_log[f]) * 4);
}

TG_INLINE void deliver(tg_storing how, float *to, v_floats x)
{
    if (how == TG_SET_NONTEMPORAL)
        v_store_nontemporal_parts(to, x);
    else
        v_store(to, x);
}

/* Decodes the group that starts at `start`, for widths 1, 2, 4, where the rows of a word lie in one bucket. */
TG_INLINE void decode_group(const frame_set *b, unsigned frames, unsigned width, tg_storing how, float weight,
                            size_t start, float *out)
{
    const unsigned rows = 32 / width;
    const bool set = how != TG_ADD;
    const size_t ahead = ahead_of(frames, width);
    v_table table[MOST];
    v_ints bits[MOST][PARTS];
    TG_UNROLL
    for (unsigned f = 0; f < frames; f++)
        table[f] = v_table_of(&b->frames[f], width, radius_at(b, f, start), weight);
    for (unsigned word = 0; word < width; word++) {
        const size_t at = start + word * rows * TG_LANES;
        TG_UNROLL
        for (unsigned f = 0; f < frames; f++) {
            if (word > 0 && b->frames[f].bucket < TG_GROUP)
                table[f] = v_table_of(&b->frames[f], width, radius_at(b, f, at), weight);
            TG_UNROLL
            for (unsigned part = 0; part < PARTS; part++)
                bits[f][part] = v_load_bits(b->frames[f].packed + at / 8 * width + 4 * V_LANES * part);
        }
        TG_UNROLL
        for (unsigned row = 0; row < rows; row++) {
            if (!set) /* a line that is only written need not be loaded */
                tg_prefetch(out + at + TG_LANES * row, ahead);
            TG_UNROLL
            for (unsigned part = 0; part < PARTS; part++) {
                float *to = out + at + TG_LANES * row + V_LANES * part;
                v_floats sum = set ? v_float(0) : v_load(to);
                TG_UNROLL
                for (unsigned f = 0; f < frames; f++) {
                    v_floats x = v_look_up_row(table[f], width, bits[f][part], row);
                    sum = set && f == 0 ? x : v_plus(sum, x);
                }
                deliver(how, to, sum);
            }
        }
    }
}

/* Whether the rows of a word lie in one bucket, and contributions can be looked up. */
static bool by_lookup(const tg_levels_decoding *d)
{
    return (d->width == 4 && d->bucket >= 128) || (d->width == 2 && d->bucket >= 256) ||
           (d->width == 1 && d->bucket >= 512);
}

TG_INLINE void decode_run(const frame_set *b, unsigned frames, unsigned width, tg_storing how, size_t n, float weight,
                          float *out)
{
    for (size_t start = 0; start < n; start += TG_GROUP)
        decode_group(b, frames, width, how, weight, start, out);
}

/* ---- bytes: what a code adds is computed ---- */

/* Whether a group's codes are bytes, of one bucket. */
static bool by_bytes(const tg_levels_decoding *d) { return d->width == 8 && d->bucket >= TG_GROUP; }

typedef struct byte_scale {
    v_floats levels, unit, drop, most, least;
} byte_scale;

/* Codes above 2 * levels give the same value as the last level, because values are limited to the radius. */
TG_INLINE v_floats value_of_byte(const byte_scale *s, bool lifted, v_ints code, v_floats weight)
{
    v_floats x = v_mul(v_sub(v_convert(code), s->levels), s->unit);
    if (lifted)
        x = v_mul(x, s->drop);
    return v_mul(weight, v_max(s->least, v_min(s->most, x)));
}

TG_INLINE void decode_byte_rows(const frame_set *b, unsigned frames, const byte_scale scales[MOST], bool lifted,
                                tg_storing how, float weight, size_t start, float *out)
{
    const size_t ahead = ahead_of(frames, 8);
    const bool set = how != TG_ADD;
    const v_floats factor = v_float(weight);
    for (size_t at = start; at < start + TG_GROUP; at += 4 * TG_LANES) {
        v_ints bits[MOST][PARTS];
        TG_UNROLL
        for (unsigned f = 0; f < frames; f++)
            TG_UNROLL
        for (unsigned part = 0; part < PARTS; part++)
            bits[f][part] = v_load_bits(b->frames[f].packed + at + 4 * V_LANES * part);
        TG_UNROLL
        for (unsigned row = 0; row < 4; row++) {
            if (!set)
                tg_prefetch(out + at + TG_LANES * row, ahead);
            TG_UNROLL
            for (unsigned part = 0; part < PARTS; part++) {
                float *to = out + at + TG_LANES * row + V_LANES * part;
                v_floats sum = set ? factor : v_load(to);
                TG_UNROLL
                for (unsigned f = 0; f < frames; f++) {
                    const v_ints code = row < 3 ? v_and(v_shift_right(bits[f][part], 8 * row), v_int(0xff))
                                                : v_shift_right(bits[f][part], 24);
                    const v_floats x = value_of_byte(&scales[f], lifted, code, factor);
                    sum = set && f == 0 ? x : v_plus(sum, x);
                }
                deliver(how, to, sum);
            }
        }
    }
}

TG_INLINE void decode_byte_run(const frame_set *b, unsigned frames, tg_storing how, size_t n, float weight, float *out)
{
    for (size_t start = 0; start < n; start += TG_GROUP) {
        byte_scale scales[MOST];
        bool lifted = false;
        TG_UNROLL
        for (unsigned f = 0; f < frames; f++) {
            const tg_quantiser q = tg_quantiser_from(b->frames[f].levels, 0, radius_at(b, f, start), false);
            scales[f] = (byte_scale){.levels = v_float((float)q.levels),
                                     .unit = v_float(q.unit),
                                     .drop = v_float(q.drop),
                                     .most = v_float(q.radius),
                                     .least = v_float(-q.radius)};
            lifted = lifted || q.drop != 1;
        }
        if (lifted)
            decode_byte_rows(b, frames, scales, true, how, weight, start, out);
        else
            decode_byte_rows(b, frames, scales, false, how, weight, start, out);
    }
}

/* ---- all of it ---- */

TG_INLINE void decode_alike(const frame_set *b, unsigned frames, tg_storing how, size_t n, float weight, float *out)
{
    const unsigned width = b->frames->width;
    if (width == 8)
        decode_byte_run(b, frames, how, n, weight, out);
    else if (width == 4)
        decode_run(b, frames, 4, how, n, weight, out);
    else if (width == 2)
        decode_run(b, frames, 2, how, n, weight, out);
    else
        decode_run(b, frames, 1, how, n, weight, out);
}

/* How many frames are decoded together: four, two or one. */
static unsigned alike(const tg_levels_decoding *d, size_t left)
{
    size_t same = 0;
    while (same < MOST && same < left && d[same].width == d->width && (by_lookup(&d[same]) || by_bytes(&d[same])))
        same++;
    return same == 4 ? 4 : same >= 2 ? 2 : 1;
}

TG_INLINE void decode_set(const frame_set *b, tg_storing how, size_t n, float weight, float *out)
{
    if (b->count == 4)
        decode_alike(b, 4, how, n, weight, out);
    else if (b->count == 2)
        decode_alike(b, 2, how, n, weight, out);
    else if (by_lookup(b->frames) || by_bytes(b->frames))
        decode_alike(b, 1, how, n, weight, out);
    else
        decode_otherwise(b, how != TG_ADD, n, weight, out);
}

/* Non-temporal stores are used only where the output is not read again in this call; in parts of 16 bytes, because this
 * is how large vectors are aligned. */
static bool can_be_nontemporal(const frame_set *b, size_t frame_count, const float *out)
{
    return b->count == frame_count && (uintptr_t)out % 16 == 0;
}

TG_INLINE void v_decode_levels(const tg_levels_decoding *frames, size_t frame_count, size_t n, tg_storing how,
                               float weight, float *out)
{
    for (size_t f = 0; f < frame_count;) {
        frame_set b = {.frames = frames + f, .count = alike(frames + f, frame_count - f)};
        for (unsigned i = 0; i < b.count; i++)
            b.bucket_log[i] = frames[f + i].bucket < n ? (unsigned)__builtin_ctz(frames[f + i].bucket) : 31;
        if (how == TG_ADD || f > 0)
            decode_set(&b, TG_ADD, n, weight, out);
        else if (how == TG_SET_NONTEMPORAL && can_be_nontemporal(&b, frame_count, out))
            decode_set(&b, TG_SET_NONTEMPORAL, n, weight, out);
        else
            decode_set(&b, TG_SET, n, weight, out);
        f += b.count;
    }
}

#endif
