/* Decoding a sparse vector: indices are gaps, so they increase by construction, and each is compared with its segment's end. */
#include <string.h>

#include "base/bytes.h"
#include "codec/levels.h"
#include "codec/sparse.h"

static bool take_directory(tg_sparse_reader *r, tg_cursor *c, uint64_t selected)
{
    uint64_t segments = r->count == 0 ? 0 : (r->count - 1) / r->segment + 1;
    const uint8_t *directory = tg_cursor_take(c, 8 * segments);
    if (!directory)
        return false;
    uint64_t listed = 0, bytes = 0;
    for (uint64_t i = 0; i < segments; i++) {
        uint64_t left = r->count - i * r->segment, length = left < r->segment ? left : r->segment;
        uint32_t m = tg_load32(directory + 8 * i), stream = tg_load32(directory + 8 * i + 4);
        if (m > length || (m == 0 && stream != 0))
            return false;
        listed += m;
        bytes += stream & 0x3fffffff;
    }
    r->directory = directory;
    r->stream = tg_cursor_take(c, bytes);
    r->index_bytes = 8 + 8 * segments + bytes;
    return listed == selected && r->stream;
}

bool tg_sparse_open(tg_reader *reader, const tg_payload *payload)
{
    tg_sparse_reader *r = &reader->sparse;
    tg_cursor c = tg_cursor_over(payload->bytes, payload->size);
    uint64_t selected = tg_cursor_u32(&c);
    uint32_t shape = tg_cursor_u32(&c); /* the segment's log in the low byte, the rest zero */
    reader->walk = true;
    reader->step = TG_SPARSE_STEP;
    if (c.short_read || shape < 12 || shape > 30 || selected > payload->count)
        return false;
    *r = (tg_sparse_reader){.count = payload->count, .segment = UINT64_C(1) << shape, .selected = selected,
                            .values = tg_spec_values(payload->spec)};
    if (!take_directory(r, &c, selected))
        return false;
    if (r->values == TG_VALUES_LEVELS) {
        tg_levels_shape levels = tg_levels_shape_of(payload->spec, selected);
        bool walk;
        return tg_levels_open(&reader->levels, reader->kernels, &levels, payload->layout, c.at, c.left, &walk);
    }
    tg_dtype dtype = r->values == TG_VALUES_FP16 ? TG_FLOAT16 : r->values == TG_VALUES_BF16 ? TG_BFLOAT16 : TG_FLOAT32;
    return payload->layout == 0 && tg_plain_open(&r->plain, dtype, selected, c.at, c.left);
}

static bool next_segment(tg_sparse_reader *r)
{
    if (r->any_open && !tg_index_done(&r->indices))
        return false;
    uint64_t left = r->count - r->position, length = left < r->segment ? left : r->segment;
    uint32_t m = tg_load32(r->directory), stream = tg_load32(r->directory + 4), size = stream & 0x3fffffff;
    const uint8_t *bytes = r->stream;
    r->directory += 8;
    r->stream += size;
    r->segment_end = r->position + length;
    r->any_open = true;
    return tg_index_open(&r->indices, stream >> 30, bytes, size, m, (uint32_t)length);
}

/* The next n values, n <= TG_GROUP. */
static bool next_values(tg_reader *reader, size_t n, float *values)
{
    tg_sparse_reader *r = &reader->sparse;
    if (r->values != TG_VALUES_LEVELS)
        return tg_plain_read(&r->plain, reader->kernels, n, values);
    for (size_t got = 0; got < n;) {
        if (r->ahead_at == r->ahead_count) {
            uint64_t left = r->selected - reader->levels.position;
            r->ahead_at = 0;
            r->ahead_count = left < TG_GROUP ? (size_t)left : TG_GROUP;
            if (r->ahead_count == 0 || !tg_levels_read(&reader->levels, r->ahead_count, r->ahead))
                return false;
        }
        size_t here = r->ahead_count - r->ahead_at < n - got ? r->ahead_count - r->ahead_at : n - got;
        memcpy(values + got, r->ahead + r->ahead_at, here * sizeof(float));
        r->ahead_at += here;
        got += here;
    }
    return true;
}

/* Sets or adds n values at positions that are far apart. */
static void scatter(const uint32_t *positions, const float *values, size_t n, tg_read_mode mode, float weight, float *out)
{
    if (mode == TG_READ_SET)
        for (size_t j = 0; j < n; j++)
            out[positions[j]] = weight * values[j];
    else
        for (size_t j = 0; j < n; j++)
            out[positions[j]] = out[positions[j]] + weight * values[j];
}

/* The next n elements, all in the open segment, in pieces: while one piece is added, the memory of the next is on its way. */
static bool read_within(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out)
{
    enum { PIECE = 128 };
    tg_sparse_reader *r = &reader->sparse;
    const uint32_t in_segment = (uint32_t)(r->position & (r->segment - 1)), limit = in_segment + (uint32_t)n;
    uint32_t positions[2][PIECE];
    float values[2][PIECE];
    size_t waiting = 0, got = PIECE;
    for (unsigned turn = 0; got == PIECE; turn ^= 1, waiting = got) {
        uint32_t *here = positions[turn];
        if (!tg_index_next(&r->indices, limit, PIECE, here, &got))
            return false;
        for (size_t j = 0; mode != TG_READ_CHECK && j < got; j++) {
            here[j] -= in_segment;
            __builtin_prefetch(&out[here[j]], 0, 2);
        }
        if (!next_values(reader, got, values[turn]))
            return false;
        if (mode != TG_READ_CHECK)
            scatter(positions[turn ^ 1], values[turn ^ 1], waiting, mode, weight, out);
        if (got < PIECE && mode != TG_READ_CHECK)
            scatter(here, values[turn], got, mode, weight, out);
    }
    r->position += n;
    return true;
}

bool tg_sparse_read(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out)
{
    tg_sparse_reader *r = &reader->sparse;
    while (n > 0) {
        if (r->position == r->segment_end && !next_segment(r))
            return false;
        const uint64_t left = r->segment_end - r->position;
        const size_t here = n < left ? n : (size_t)left;
        if (!read_within(reader, here, mode, weight, out))
            return false;
        n -= here;
        out = out ? out + here : NULL;
    }
    return true;
}

bool tg_sparse_list(tg_reader *reader, uint32_t origin, uint32_t *indices, float *values)
{
    enum { PIECE = 128 };
    tg_sparse_reader *r = &reader->sparse;
    while (r->position < r->count) {
        if (!next_segment(r))
            return false;
        const uint32_t base = origin + (uint32_t)r->position;
        for (size_t got = PIECE; got == PIECE; indices += got, values = values ? values + got : NULL) {
            if (!tg_index_next(&r->indices, (uint32_t)(r->segment_end - r->position), PIECE, indices, &got) ||
                (values && !next_values(reader, got, values)))
                return false;
            for (size_t j = 0; j < got; j++)
                indices[j] += base;
        }
        r->position = r->segment_end;
    }
    return true;
}

bool tg_sparse_done(const tg_reader *reader)
{
    const tg_sparse_reader *r = &reader->sparse;
    if (r->position != r->count || (r->any_open && !tg_index_done(&r->indices)))
        return false;
    return r->values != TG_VALUES_LEVELS || tg_levels_done(&reader->levels);
}
