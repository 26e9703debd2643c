/* Decoding levels from any of the four layouts. Bytes here come from outside: every length is checked before it is used. */
#include <string.h>

#include "base/bytes.h"
#include "codec/reader.h"

static bool scale_is_sound(float x) { return (tg_float_bits(x) & TG_MAGNITUDE_MASK) < TG_INFINITY_BITS; }

static bool scales_are_sound(const tg_levels_reader *r, uint64_t buckets)
{
    for (uint64_t b = 0; b < buckets; b++) {
        const uint8_t *at = r->scales + b * (r->shape.affine ? 8 : 4);
        if (r->shape.affine) {
            if (!scale_is_sound(tg_load_float(at)))
                return false;
            at += 4;
        }
        if (tg_load32(at) >= TG_INFINITY_BITS) /* also a set sign bit */
            return false;
    }
    return true;
}

/* Bits of the last byte that no code uses must be zero. */
static bool padding_is_zero(const uint8_t *packed, uint64_t count, unsigned width)
{
    unsigned used = (unsigned)(count % TG_GROUP * width % 8);
    return used == 0 || packed[tg_packed_size(count, width) - 1] >> used == 0;
}

/* The directory's lengths must add up to the bytes that are left. */
static bool take_streams(tg_levels_reader *r, tg_cursor *c, const uint8_t *directory, uint64_t chunks)
{
    uint64_t total = 0;
    for (uint64_t i = 0; i < chunks; i++)
        total += tg_load32(directory + 4 * i);
    r->directory = directory;
    r->stream = c->at;
    r->chunk_end = 0;
    return total == c->left;
}

static uint64_t chunks_of(uint64_t count, uint64_t chunk) { return (count + chunk - 1) / chunk; }

static bool open_elias(tg_levels_reader *r, tg_cursor *c)
{
    r->chunk = TG_ELIAS_CHUNK;
    uint64_t chunks = chunks_of(r->shape.count, r->chunk);
    const uint8_t *directory = tg_cursor_take(c, 4 * chunks);
    return directory && take_streams(r, c, directory, chunks);
}

static bool open_entropy(tg_levels_reader *r, tg_cursor *c)
{
    tg_entropy_plan *plan = &r->open.entropy.plan;
    plan->table_log = tg_cursor_u8(c);
    const unsigned tuple = tg_cursor_u8(c);
    plan->tuple = tuple & ~TG_ENTROPY_MIRRORED;
    plan->mirrored = tuple & TG_ENTROPY_MIRRORED;
    plan->lane_log = tg_cursor_u8(c);
    plan->chunk_log = tg_cursor_u8(c);
    plan->alphabet = (2 * r->shape.levels >> r->low) + 1;
    plan->zero_digit = r->shape.levels >> r->low;
    size_t table_size = tg_cursor_u16(c);
    const uint8_t *table = tg_cursor_take(c, table_size);
    if (!table || (plan->table_log != 12 && plan->table_log != 14 && plan->table_log != 16))
        return false;
    if (plan->tuple != 1 && !(plan->tuple == 2 && plan->alphabet <= 16))
        return false;
    if (plan->mirrored && (plan->tuple != 1 || plan->alphabet % 2 == 0))
        return false;
    if ((plan->lane_log != 2 && plan->lane_log != 5) || plan->chunk_log < 16 || plan->chunk_log > 31)
        return false;
    if (!tg_entropy_table_read(plan, table, table_size))
        return false;
    r->chunk = UINT64_C(1) << plan->chunk_log;
    uint64_t chunks = chunks_of(r->shape.count, r->chunk);
    const uint8_t *directory = tg_cursor_take(c, 4 * chunks);
    r->codes = tg_cursor_take(c, tg_packed_size(r->shape.count, r->low));
    return directory && r->codes && (r->low == 0 || padding_is_zero(r->codes, r->shape.count, r->low)) &&
           take_streams(r, c, directory, chunks);
}

bool tg_levels_open(tg_levels_reader *r, const tg_kernels *kernels, const tg_levels_shape *shape, unsigned layout,
                    const uint8_t *bytes, size_t size, bool *walk)
{
    r->kernels = kernels;
    r->shape = *shape;
    r->width = tg_code_width(shape->levels);
    r->low = tg_low_bits(r->width);
    r->layout = layout;
    r->position = 0;
    r->chunk = r->chunk_end = 0;
    r->histogram = NULL;
    r->slots = NULL;
    *walk = false;
    tg_cursor c = tg_cursor_over(bytes, size);
    if (shape->count == 0)
        return size == 0;
    uint64_t buckets = tg_bucket_count(shape->count, shape->bucket);
    r->scale_bytes = buckets * (shape->affine ? 8 : 4);
    r->scales = tg_cursor_take(&c, r->scale_bytes);
    if (!r->scales || !scales_are_sound(r, buckets))
        return false;
    if (layout == TG_LAYOUT_PACKED) {
        r->codes = tg_cursor_take(&c, tg_packed_size(shape->count, r->width));
        return r->codes && c.left == 0 && padding_is_zero(r->codes, shape->count, r->width);
    }
    *walk = true;
    return layout == TG_LAYOUT_ENTROPY ? open_entropy(r, &c) : open_elias(r, &c);
}

/* Ends the chunk that is open and opens the next. */
static bool next_chunk(tg_levels_reader *r)
{
    bool entropy = r->layout == TG_LAYOUT_ENTROPY;
    if (r->position > 0 && !(entropy ? tg_entropy_done(&r->open.entropy.reader) : tg_elias_done(&r->open.elias)))
        return false;
    uint64_t left = r->shape.count - r->position, n = left < r->chunk ? left : r->chunk;
    uint32_t size = tg_load32(r->directory);
    const uint8_t *stream = r->stream;
    r->directory += 4;
    r->stream += size;
    r->chunk_end = r->position + n;
    if (entropy)
        return tg_entropy_open(&r->open.entropy.reader, &r->open.entropy.plan, stream, size, (size_t)n);
    tg_elias_open(&r->open.elias, (int)r->layout, stream, size, (size_t)n, r->shape.levels);
    return true;
}

static bool read_codes(tg_levels_reader *r, size_t n, uint16_t *codes)
{
    const tg_kernels *k = r->kernels;
    if (r->layout == TG_LAYOUT_PACKED) {
        k->unpack(r->codes + r->position / 8 * r->width, n, r->width, codes);
        return true;
    }
    if (r->position == r->chunk_end && !next_chunk(r))
        return false;
    if (r->layout != TG_LAYOUT_ENTROPY) {
        int16_t levels[TG_BLOCK];
        if (!tg_elias_next(&r->open.elias, n, levels))
            return false;
        for (size_t i = 0; i < n; i++)
            codes[i] = (uint16_t)(levels[i] + (int32_t)r->shape.levels);
        return true;
    }
    uint8_t digits[TG_BLOCK];
    if (!tg_entropy_next(&r->open.entropy.reader, n, digits, r->slots))
        return false;
    if (r->low > 0)
        k->unpack(r->codes + r->position / 8 * r->low, n, r->low, codes);
    else
        memset(codes, 0, n * sizeof *codes);
    for (size_t i = 0; i < n; i++)
        codes[i] = (uint16_t)(codes[i] | (unsigned)digits[i] << r->low);
    return true;
}

static tg_quantiser quantiser_at(const tg_levels_reader *r, uint64_t bucket)
{
    const uint8_t *at = r->scales + bucket * (r->shape.affine ? 8 : 4);
    tg_scale scale = {.centre = 0};
    if (r->shape.affine) {
        scale.centre = tg_load_float(at);
        at += 4;
    }
    scale.radius = tg_load_float(at);
    return tg_quantiser_of(&r->shape, scale);
}

bool tg_levels_read(tg_levels_reader *r, size_t n, float *values)
{
    uint16_t codes[TG_BLOCK];
    if (!read_codes(r, n, codes))
        return false;
    for (size_t i = 0; r->histogram && i < n; i++) {
        uint32_t code = codes[i] < 2 * r->shape.levels ? codes[i] : 2 * r->shape.levels;
        if (code - r->histogram_first < TG_HISTOGRAM) /* wraps below the first */
            r->histogram[code - r->histogram_first]++;
    }
    for (size_t done = 0; done < n;) {
        uint64_t at = r->position + done, bucket = r->shape.bucket ? at / r->shape.bucket : 0;
        uint64_t left = r->shape.bucket ? (bucket + 1) * r->shape.bucket - at : n - done;
        size_t here = left < n - done ? (size_t)left : n - done;
        tg_quantiser q = quantiser_at(r, bucket);
        r->kernels->dequantise(&q, codes + done, here, values + done);
        done += here;
    }
    r->position += n;
    return true;
}

bool tg_levels_done(const tg_levels_reader *r)
{
    if (r->position != r->shape.count)
        return false;
    if (r->shape.count == 0 || r->layout == TG_LAYOUT_PACKED)
        return true;
    return r->layout == TG_LAYOUT_ENTROPY ? tg_entropy_done(&r->open.entropy.reader) : tg_elias_done(&r->open.elias);
}

/* ---- as a codec's row ---- */

bool tg_levels_row_open(tg_reader *reader, const tg_levels_shape *shape, const tg_payload *payload)
{
    if (payload->layout == TG_LAYOUT_ENTROPY)
        reader->step = TG_ENTROPY_STEP;
    if (payload->layout != TG_LAYOUT_PACKED)
        reader->grain = 0;
    return tg_levels_open(&reader->levels, reader->kernels, shape, payload->layout, payload->bytes, payload->size,
                          &reader->walk);
}

static bool read_blocks(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out)
{
    for (size_t done = 0; done < n; done += TG_BLOCK) {
        float values[TG_BLOCK];
        size_t here = tg_block_size(n, done);
        if (!tg_levels_read(&reader->levels, here, values))
            return false;
        tg_deliver(reader->kernels, values, here, mode, weight, out ? out + done : NULL);
    }
    return true;
}

/* Many entropy coded digits, for which a table is worth making. */
static bool read_with_slots(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out)
{
    tg_entropy_slots slots;
    tg_levels_reader *r = &reader->levels;
    if (tg_entropy_slots_make(&slots, &r->open.entropy.plan, reader->kernels->rans))
        r->slots = &slots;
    bool sound = read_blocks(reader, n, mode, weight, out);
    r->slots = NULL;
    return sound;
}

bool tg_levels_row_read(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out)
{
    bool many = reader->levels.layout == TG_LAYOUT_ENTROPY && n > TG_BLOCK;
    return (many ? read_with_slots : read_blocks)(reader, n, mode, weight, out);
}

bool tg_blocks_fit(uint32_t bucket, uint32_t *within_block)
{
    const bool whole = bucket != 0 && TG_BLOCK % bucket == 0;
    *within_block = whole ? bucket : TG_BLOCK;
    return whole ? bucket % TG_FUSED_BUCKET == 0 : bucket % TG_BLOCK == 0;
}

bool tg_levels_row_packed(const tg_reader *reader, tg_levels_decoding *next)
{
    const tg_levels_reader *r = &reader->levels;
    if (r->layout != TG_LAYOUT_PACKED || r->shape.affine || r->histogram || !tg_blocks_fit(r->shape.bucket, &next->bucket))
        return false;
    next->levels = r->shape.levels;
    next->width = r->width;
    next->scales = r->scales + (r->shape.bucket ? r->position / r->shape.bucket * 4 : 0);
    next->packed = r->codes + r->position / 8 * r->width;
    return true;
}

bool tg_levels_row_done(const tg_reader *reader)
{
    return reader->levels.layout == TG_LAYOUT_PACKED || tg_levels_done(&reader->levels);
}

void tg_levels_row_seek(tg_reader *reader, uint64_t first) { reader->levels.position = first; }
