/* Decoding levels from any of the layouts. The bytes are untrusted: every length is checked before it is used. */
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

static uint64_t chunks_of(uint64_t count, uint64_t chunk) { return (count + chunk - 1) / chunk; }

static bool open_elias(tg_levels_reader *r, tg_cursor *c)
{
    tg_elias_chunks *elias = &r->open.elias;
    const uint64_t chunks = chunks_of(r->shape.count, TG_ELIAS_CHUNK);
    elias->directory = tg_cursor_take(c, TG_ELIAS_ENTRY * chunks);
    elias->stream = c->at;
    elias->chunk_end = 0;
    elias->any_open = false;
    uint64_t total = 0;
    for (uint64_t i = 0; elias->directory && i < chunks; i++)
        total += tg_load16(elias->directory + TG_ELIAS_ENTRY * i);
    return elias->directory && total == c->left;
}

bool tg_levels_open(tg_levels_reader *r, const tg_kernels *kernels, const tg_levels_shape *shape, unsigned layout,
                    const uint8_t *bytes, size_t size, bool *walk)
{
    r->kernels = kernels;
    r->shape = *shape;
    r->width = tg_code_width(shape->levels);
    r->layout = layout;
    r->position = 0;
    r->histogram = NULL;
    *walk = false;
    tg_cursor c = tg_cursor_over(bytes, size);
    if (shape->count == 0)
        return size == 0;
    uint64_t buckets = tg_bucket_count(shape->count, shape->bucket);
    r->scale_bytes = buckets * (shape->affine ? 8 : 4);
    if (layout == TG_LAYOUT_PACKED)
        r->codes = tg_cursor_take_padded(&c, tg_packed_size(shape->count, r->width));
    r->scales = tg_cursor_take(&c, r->scale_bytes);
    if (!r->scales || !scales_are_sound(r, buckets))
        return false;
    if (layout == TG_LAYOUT_PACKED)
        return r->codes && c.left == 0 && tg_padding_is_zero(r->codes, shape->count, r->width);
    *walk = true;
    switch (layout) {
    case TG_LAYOUT_ENTROPY:
        return tg_entropy_codes_open(&r->open.entropy, kernels, &c, shape->count, 2 * shape->levels + 1);
    case TG_LAYOUT_ENTROPY_SPARSE:
        return tg_listed_open(&r->open.listed, kernels, &c, shape->count, shape->levels);
    case TG_LAYOUT_PREFIX:
        return tg_prefix_suits(r->width) &&
               tg_prefix_codes_open(&r->open.prefix, &c, tg_packed_size(shape->count, r->width));
    default:
        return open_elias(r, &c);
    }
}

/* Closes the open chunk and opens the next. */
static bool next_elias_chunk(tg_levels_reader *r)
{
    tg_elias_chunks *elias = &r->open.elias;
    if (elias->any_open && !tg_elias_done(&elias->reader))
        return false;
    elias->any_open = true;
    const uint64_t left = r->shape.count - r->position, n = left < TG_ELIAS_CHUNK ? left : TG_ELIAS_CHUNK;
    const uint16_t size = tg_load16(elias->directory);
    tg_elias_open(&elias->reader, (int)r->layout, elias->stream, size, (size_t)n, r->shape.levels);
    elias->directory += TG_ELIAS_ENTRY;
    elias->stream += size;
    elias->chunk_end = r->position + n;
    return true;
}

static bool read_elias(tg_levels_reader *r, size_t n, uint16_t *codes)
{
    int16_t levels[TG_BLOCK];
    if ((r->position == r->open.elias.chunk_end && !next_elias_chunk(r)) ||
        !tg_elias_next(&r->open.elias.reader, n, levels))
        return false;
    for (size_t i = 0; i < n; i++)
        codes[i] = (uint16_t)(levels[i] + (int32_t)r->shape.levels);
    return true;
}

/* The next n codes in the packed layout; `packed` has room for a block of bytes. */
static bool read_packed(tg_levels_reader *r, size_t n, uint8_t *packed)
{
    const size_t size = (size_t)tg_packed_size(n, r->width);
    return tg_prefix_codes_next(&r->open.prefix, size, packed) &&
           (n % TG_GROUP == 0 || tg_padding_is_zero(packed, n, r->width));
}

static bool read_prefix(tg_levels_reader *r, size_t n, uint16_t *codes)
{
    uint8_t packed[TG_BLOCK];
    if (!read_packed(r, n, packed))
        return false;
    r->kernels->unpack(packed, n, r->width, codes);
    return true;
}

static bool read_codes(tg_levels_reader *r, size_t n, uint16_t *codes)
{
    switch (r->layout) {
    case TG_LAYOUT_PACKED:
        r->kernels->unpack(r->codes + r->position / 8 * r->width, n, r->width, codes);
        return true;
    case TG_LAYOUT_ENTROPY:
        return tg_entropy_codes_next(&r->open.entropy, n, codes);
    case TG_LAYOUT_ENTROPY_SPARSE:
        return tg_listed_next(&r->open.listed, n, codes);
    case TG_LAYOUT_PREFIX:
        return read_prefix(r, n, codes);
    default:
        return read_elias(r, n, codes);
    }
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

/* Whether the last chunk was read to its end. */
static bool chunk_is_done(const tg_levels_reader *r)
{
    switch (r->layout) {
    case TG_LAYOUT_PACKED:
        return true;
    case TG_LAYOUT_ENTROPY:
        return tg_entropy_codes_done(&r->open.entropy);
    case TG_LAYOUT_ENTROPY_SPARSE:
        return tg_listed_done(&r->open.listed);
    case TG_LAYOUT_PREFIX:
        return tg_prefix_codes_done(&r->open.prefix);
    default:
        return tg_elias_done(&r->open.elias.reader);
    }
}

bool tg_levels_done(const tg_levels_reader *r)
{
    return r->position == r->shape.count && (r->shape.count == 0 || chunk_is_done(r));
}

/* ---- as a codec's row ---- */

/* The elements of a chunk, at multiples of which reading can start. */
static uint64_t grain_of(const tg_levels_reader *r)
{
    switch (r->layout) {
    case TG_LAYOUT_PACKED:
        return TG_BLOCK;
    case TG_LAYOUT_ENTROPY:
        return r->open.entropy.chunk;
    case TG_LAYOUT_ENTROPY_SPARSE:
        return 0;
    case TG_LAYOUT_PREFIX:
        return r->open.prefix.chunk / r->width * 8;
    default:
        return TG_ELIAS_CHUNK;
    }
}

bool tg_levels_row_open(tg_reader *reader, const tg_levels_shape *shape, const tg_payload *payload)
{
    if (payload->layout == TG_LAYOUT_ENTROPY)
        reader->step = TG_ENTROPY_STEP;
    if (payload->layout == TG_LAYOUT_PREFIX)
        reader->step = TG_PREFIX_STEP;
    if (!tg_levels_open(&reader->levels, reader->kernels, shape, payload->layout, payload->bytes, payload->size,
                        &reader->walk))
        return false;
    if (shape->count > 0)
        reader->grain = grain_of(&reader->levels);
    return true;
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

/* For many entropy coded digits, a decoding table pays off. */
static bool read_with_slots(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out)
{
    tg_entropy_slots slots;
    tg_entropy_codes *codes = &reader->levels.open.entropy;
    if (tg_entropy_slots_make(&slots, &codes->plan, reader->kernels->rans))
        codes->slots = &slots;
    bool sound = read_blocks(reader, n, mode, weight, out);
    codes->slots = NULL;
    return sound;
}

bool tg_blocks_fit(uint32_t bucket, uint32_t *within_block)
{
    const bool whole = bucket != 0 && TG_BLOCK % bucket == 0;
    *within_block = whole ? bucket : TG_BLOCK;
    return whole ? bucket % TG_FUSED_BUCKET == 0 : bucket % TG_BLOCK == 0;
}

/* The next block of packed codes for the fused kernel; false, for every block of this reader, if it is not
 * supported. */
static bool packed_block(const tg_levels_reader *r, const uint8_t *packed, tg_levels_decoding *next)
{
    if (r->shape.affine || !tg_blocks_fit(r->shape.bucket, &next->bucket))
        return false;
    next->levels = r->shape.levels;
    next->width = r->width;
    next->scales = r->scales + (r->shape.bucket ? r->position / r->shape.bucket * 4 : 0);
    next->packed = packed;
    return true;
}

/* Prefix decoding gives packed codes, for which there may be a kernel. Several blocks at a time, because the kernel is
 * limited by memory, which is fastest in long runs. */
enum { RUN = 8 * TG_BLOCK };

static bool read_prefix_run(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out)
{
    tg_levels_reader *r = &reader->levels;
    tg_levels_decoding next;
    uint8_t packed[RUN];
    const bool fused = reader->kernels->decode_levels && n % TG_BLOCK == 0 && packed_block(r, packed, &next);
    if (r->histogram || (mode != TG_READ_CHECK && !fused))
        return read_blocks(reader, n, mode, weight, out);
    if (!read_packed(r, n, packed))
        return false;
    for (size_t done = 0; mode != TG_READ_CHECK && done < n; done += TG_BLOCK) {
        (void)packed_block(r, packed + done / 8 * r->width, &next);
        reader->kernels->decode_levels(&next, 1, TG_BLOCK, mode == TG_READ_SET ? TG_SET : TG_ADD, weight, out + done);
        r->position += TG_BLOCK;
    }
    r->position += mode == TG_READ_CHECK ? n : 0;
    return true;
}

static bool read_prefix_runs(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out)
{
    tg_prefix_slots slots;
    tg_prefix_codes *codes = &reader->levels.open.prefix;
    tg_prefix_slots_make(&slots, &codes->code);
    codes->slots = &slots;
    bool sound = true;
    for (size_t done = 0; sound && done < n; done += RUN)
        sound = read_prefix_run(reader, n - done < RUN ? n - done : RUN, mode, weight, out ? out + done : NULL);
    codes->slots = NULL;
    return sound;
}

bool tg_levels_row_read(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out)
{
    if (reader->levels.layout == TG_LAYOUT_PREFIX)
        return read_prefix_runs(reader, n, mode, weight, out);
    bool many = reader->levels.layout == TG_LAYOUT_ENTROPY && n > TG_BLOCK;
    return (many ? read_with_slots : read_blocks)(reader, n, mode, weight, out);
}

bool tg_levels_row_packed(const tg_reader *reader, tg_levels_decoding *next)
{
    const tg_levels_reader *r = &reader->levels;
    return r->layout == TG_LAYOUT_PACKED && !r->histogram &&
           packed_block(r, r->codes + r->position / 8 * r->width, next);
}

bool tg_levels_row_done(const tg_reader *reader)
{
    return reader->levels.shape.count == 0 || chunk_is_done(&reader->levels);
}

static void seek_elias(tg_elias_chunks *elias, uint64_t first)
{
    for (uint64_t at = 0; at < first; at += TG_ELIAS_CHUNK, elias->directory += TG_ELIAS_ENTRY)
        elias->stream += tg_load16(elias->directory);
    elias->chunk_end = first;
}

void tg_levels_row_seek(tg_reader *reader, uint64_t first)
{
    tg_levels_reader *r = &reader->levels;
    r->position = first;
    switch (r->layout) {
    case TG_LAYOUT_ENTROPY:
        tg_entropy_codes_seek(&r->open.entropy, first);
        break;
    case TG_LAYOUT_PREFIX:
        tg_prefix_codes_seek(&r->open.prefix, first / 8 * r->width);
        break;
    case TG_LAYOUT_ELIAS_SPARSE:
    case TG_LAYOUT_ELIAS_DENSE:
        seek_elias(&r->open.elias, first);
        break;
    default:
        break;
    }
}
