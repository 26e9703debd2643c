/* Decoding a sparse vector. Indices are coded as gaps, so they increase by construction, and each is compared with the
 * end of its segment. */
#include <string.h>

#include "base/bytes.h"
#include "codec/levels.h"
#include "codec/sparse.h"

bool tg_sparse_open(tg_reader *reader, const tg_payload *payload)
{
    tg_sparse_reader *r = &reader->sparse;
    tg_cursor c = tg_cursor_over(payload->bytes, payload->size);
    reader->walk = true;
    reader->step = TG_SPARSE_STEP;
    *r = (tg_sparse_reader){.values = tg_spec_values(payload->spec)};
    if (!tg_positions_open(&r->positions, &c, payload->count, reader->kernels->gaps))
        return false;
    reader->grain = r->positions.segment;
    const uint64_t selected = r->positions.listed;
    if (r->values == TG_VALUES_LEVELS) {
        tg_levels_shape levels = tg_levels_shape_of(payload->spec, selected);
        bool walk;
        if (payload->layout != TG_LAYOUT_PACKED)
            reader->grain = 0;
        return tg_levels_open(&reader->levels, reader->kernels, &levels, payload->layout, c.at, c.left, &walk);
    }
    tg_dtype dtype = r->values == TG_VALUES_FP16 ? TG_FLOAT16 : r->values == TG_VALUES_BF16 ? TG_BFLOAT16 : TG_FLOAT32;
    return payload->layout == 0 && tg_plain_open(&r->plain, dtype, selected, c.at, c.left);
}

/* The next n values, n <= TG_GROUP. */
static bool next_values(tg_reader *reader, size_t n, float *values)
{
    tg_sparse_reader *r = &reader->sparse;
    if (r->values != TG_VALUES_LEVELS)
        return tg_plain_read(&r->plain, reader->kernels, n, values);
    for (size_t got = 0; got < n;) {
        if (r->ahead_at == r->ahead_count) {
            uint64_t left = r->positions.listed - reader->levels.position;
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

/* Sets or adds n values at positions that may be far apart. */
static void scatter(const uint32_t *positions, const float *values, size_t n, tg_read_mode mode, float weight,
                    float *out)
{
    if (mode == TG_READ_SET)
        for (size_t j = 0; j < n; j++)
            out[positions[j]] = weight * values[j];
    else
        for (size_t j = 0; j < n; j++)
            out[positions[j]] = out[positions[j]] + weight * values[j];
}

/* Prefetches elements that will be written soon. */
static void prefetch(const uint32_t *positions, size_t n, const float *out)
{
    for (size_t j = 0; j < n; j++)
        __builtin_prefetch(&out[positions[j]], 0, 2);
}

/* Where the next touched positions are recorded; there is room for up to TG_RICE_BLOCK in one call. */
static uint32_t *next_touched(tg_touched *touched)
{
    return touched->positions + (touched->count < TG_MAX_TOUCHED ? touched->count : TG_MAX_TOUCHED);
}

static void record_touched(tg_touched *touched, const uint32_t *positions, size_t n, const float *out)
{
    const uint32_t origin = (uint32_t)(out - touched->block);
    uint32_t *next = next_touched(touched);
    for (size_t j = 0; j < n; j++)
        next[j] = origin + positions[j];
    touched->count += n;
}

void tg_touched_clear(tg_touched *touched)
{
    if (touched->count > TG_MAX_TOUCHED)
        memset(touched->block, 0, TG_BLOCK * sizeof *touched->block);
    else
        for (size_t j = 0; j < touched->count; j++)
            touched->block[touched->positions[j]] = 0;
    touched->count = 0;
}

/* Reads the elements of the open segment up to `limit`; `base` is the next element. Works in batches: while one batch
 * is added, the memory of the next is being fetched. */
static bool read_within(tg_reader *reader, uint32_t base, uint32_t limit, tg_read_mode mode, float weight, float *out)
{
    enum { BATCH = 128 };
    tg_sparse_reader *r = &reader->sparse;
    uint32_t positions[2][BATCH];
    float values[2][BATCH];
    size_t pending = 0, got = BATCH;
    for (unsigned turn = 0; got == BATCH; turn ^= 1, pending = got) {
        uint32_t *here = positions[turn];
        if (!tg_index_next(&r->positions.indices, limit, BATCH, here, &got))
            return false;
        for (size_t j = 0; mode != TG_READ_CHECK && j < got; j++)
            here[j] -= base;
        if (mode != TG_READ_CHECK && r->touched)
            record_touched(r->touched, here, got, out);
        else if (mode != TG_READ_CHECK)
            prefetch(here, got, out);
        if (!next_values(reader, got, values[turn]))
            return false;
        if (mode != TG_READ_CHECK)
            scatter(positions[turn ^ 1], values[turn ^ 1], pending, mode, weight, out);
        if (got < BATCH && mode != TG_READ_CHECK)
            scatter(here, values[turn], got, mode, weight, out);
    }
    return true;
}

/* Adds those of n decoded positions that are below `limit`; returns how many. Their values are read directly from the
 * payload, and the output is one block in the cache, so a single loop without prefetching is fastest. */
static inline size_t add_decoded(tg_touched *touched, const uint32_t *decoded, size_t n, uint32_t base, uint32_t limit,
                                 const uint8_t *wire, bool set, float weight, float *out, bool *nonfinite)
{
    uint32_t *positions = next_touched(touched), largest = 0;
    const uint32_t origin = (uint32_t)(out - touched->block);
    size_t j = 0;
    for (; j < n && decoded[j] < limit; j++) {
        const uint32_t position = decoded[j] - base, bits = tg_load32(wire + 4 * j),
                       magnitude = bits & TG_MAGNITUDE_MASK;
        const float value = weight * tg_bits_float(bits);
        out[position] = set ? value : out[position] + value;
        positions[j] = origin + position;
        largest = magnitude > largest ? magnitude : largest;
    }
    touched->count += j;
    *nonfinite = largest >= TG_INFINITY_BITS;
    return j;
}

/* As read_within, for float32 values and a block whose touched positions are recorded. */
static bool read_to_block(tg_reader *reader, uint32_t base, uint32_t limit, tg_read_mode mode, float weight, float *out)
{
    tg_sparse_reader *r = &reader->sparse;
    tg_index_reader *indices = &r->positions.indices;
    for (;;) {
        const uint32_t *decoded;
        size_t n, done;
        bool nonfinite;
        if (!tg_index_peek(indices, &decoded, &n))
            return false;
        if (mode == TG_READ_SET)
            done = add_decoded(r->touched, decoded, n, base, limit, r->plain.next, true, weight, out, &nonfinite);
        else
            done = add_decoded(r->touched, decoded, n, base, limit, r->plain.next, false, weight, out, &nonfinite);
        indices->delivered += done;
        r->plain.next += done * sizeof(float);
        if (nonfinite || done < n || n == 0)
            return !nonfinite;
    }
}

bool tg_sparse_read(tg_reader *reader, size_t n, tg_read_mode mode, float weight, float *out)
{
    tg_positions_reader *positions = &reader->sparse.positions;
    const bool to_block = reader->sparse.touched && mode != TG_READ_CHECK && reader->sparse.values == TG_VALUES_FP32;
    while (n > 0) {
        size_t here;
        uint32_t base, limit;
        if (!tg_positions_within(positions, n, &here, &base, &limit) ||
            !(to_block ? read_to_block : read_within)(reader, base, limit, mode, weight, out))
            return false;
        positions->position += here;
        n -= here;
        out = mode == TG_READ_CHECK ? NULL : out + here;
    }
    return true;
}

bool tg_sparse_list(tg_reader *reader, uint32_t origin, uint32_t *indices, float *values)
{
    enum { BATCH = 128 };
    tg_positions_reader *r = &reader->sparse.positions;
    while (r->position < r->count) {
        size_t here, got = BATCH;
        uint32_t base, limit;
        if (!tg_positions_within(r, (size_t)(r->count - r->position), &here, &base, &limit))
            return false;
        for (; got == BATCH; indices += got, values = values ? values + got : NULL) {
            if (!tg_index_next(&r->indices, limit, BATCH, indices, &got) ||
                (values && !next_values(reader, got, values)))
                return false;
            for (size_t j = 0; j < got; j++)
                indices[j] += origin + (uint32_t)r->position;
        }
        r->position += here;
    }
    return true;
}

bool tg_sparse_done(const tg_reader *reader)
{
    const tg_sparse_reader *r = &reader->sparse;
    /* All segments together have as many levels as positions. Packed levels have no end marker that could be wrong. */
    const bool coded = r->values == TG_VALUES_LEVELS && reader->levels.layout != TG_LAYOUT_PACKED;
    return tg_positions_done(&r->positions) && (!coded || tg_levels_done(&reader->levels));
}

void tg_sparse_seek(tg_reader *reader, uint64_t first)
{
    tg_sparse_reader *r = &reader->sparse;
    const uint64_t before = tg_positions_seek(&r->positions, first), within = before % TG_GROUP;
    if (r->values != TG_VALUES_LEVELS) {
        r->plain.next += before * tg_dtype_size(r->plain.dtype);
        return;
    }
    /* Levels are read in whole groups. */
    reader->levels.position = before - within;
    if (within > 0) {
        const uint64_t left = r->positions.listed - reader->levels.position;
        r->ahead_count = left < TG_GROUP ? (size_t)left : TG_GROUP;
        r->ahead_at = (size_t)within;
        (void)tg_levels_read(&reader->levels, r->ahead_count, r->ahead); /* cannot fail: the levels are packed */
    }
}
