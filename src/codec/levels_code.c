/* From codes to bits: packed, Elias or entropy coded, whichever the spec asks for or is smallest. Lengths are compared exactly and
 * the lowest layout number wins a tie. */
#include <string.h>

#include "base/bytes.h"
#include "code/elias.h"
#include "code/entropy.h"
#include "codec/levels.h"

/* What tg_levels_code works in. */
typedef struct workspace {
    int16_t *levels; /* one Elias chunk */
    uint8_t *digits; /* all of them */
} workspace;

static uint64_t chunks_of(uint64_t count, uint64_t chunk) { return (count + chunk - 1) / chunk; }

static bool may_use_entropy(const tg_levels_shape *shape)
{
    return shape->coding == TG_CODING_ENTROPY || shape->coding == TG_CODING_AUTO;
}

static bool may_use_elias(const tg_levels_shape *shape)
{
    return shape->coding == TG_CODING_ELIAS || shape->coding == TG_CODING_AUTO;
}

size_t tg_levels_code_workspace(const tg_levels_shape *shape)
{
    return TG_ELIAS_CHUNK * sizeof(int16_t) + (may_use_entropy(shape) ? (size_t)shape->count : 0);
}

size_t tg_levels_code_bound(const tg_levels_shape *shape)
{
    const unsigned width = tg_code_width(shape->levels);
    uint64_t n = shape->count, bound = tg_packed_size(n, width);
    if (may_use_elias(shape)) { /* the smaller of two, one of which is the dense layout */
        uint64_t bits = tg_omega_length((uint64_t)shape->levels + 1) + 1u;
        uint64_t elias = (n * bits + 7) / 8 + chunks_of(n, TG_ELIAS_CHUNK) * 5;
        bound = elias > bound ? elias : bound;
    }
    if (may_use_entropy(shape)) {
        uint64_t chunk = UINT64_C(1) << 16, chunks = chunks_of(n, chunk);
        uint64_t entropy = 6 + TG_ENTROPY_TABLE_MAX + tg_packed_size(n, tg_low_bits(width)) +
                           chunks * (4 + (uint64_t)tg_entropy_chunk_bound((size_t)chunk));
        bound = entropy > bound ? entropy : bound;
    }
    return (size_t)bound;
}

static const int16_t *chunk_levels(const tg_levels_shape *shape, const uint16_t *codes, uint64_t first, size_t *n,
                                   workspace *work)
{
    uint64_t left = shape->count - first;
    *n = left < TG_ELIAS_CHUNK ? (size_t)left : TG_ELIAS_CHUNK;
    for (size_t i = 0; i < *n; i++)
        work->levels[i] = (int16_t)((int32_t)codes[first + i] - (int32_t)shape->levels);
    return work->levels;
}

static uint64_t elias_size(const tg_levels_shape *shape, const uint16_t *codes, int layout, workspace *work)
{
    uint64_t size = 0;
    for (uint64_t first = 0; first < shape->count; first += TG_ELIAS_CHUNK) {
        size_t n;
        const int16_t *levels = chunk_levels(shape, codes, first, &n, work);
        size += 4 + (tg_elias_bits(layout, levels, n) + 7) / 8;
    }
    return size;
}

static uint8_t *write_elias(const tg_levels_shape *shape, const uint16_t *codes, int layout, workspace *work,
                            uint8_t *out)
{
    uint8_t *entry = out, *at = out + 4 * chunks_of(shape->count, TG_ELIAS_CHUNK);
    for (uint64_t first = 0; first < shape->count; first += TG_ELIAS_CHUNK, entry += 4) {
        size_t n;
        const int16_t *levels = chunk_levels(shape, codes, first, &n, work);
        uint8_t *end = tg_elias_write(layout, levels, n, at);
        tg_store32(entry, (uint32_t)(end - at));
        at = end;
    }
    return at;
}

static uint8_t *write_packed(const tg_kernels *k, const uint16_t *codes, uint64_t count, unsigned width, uint8_t *out)
{
    for (uint64_t first = 0; first < count; first += TG_BLOCK)
        k->pack(codes + first, tg_block_size(count, first), width, out + first / 8 * width);
    return out + tg_packed_size(count, width);
}

static uint8_t *write_low_bits(tg_job *job, const tg_levels_shape *shape, const uint16_t *codes, unsigned low,
                               uint8_t *out)
{
    uint16_t *block = ((tg_dense_scratch *)job->workspace)->codes;
    for (uint64_t first = 0; low > 0 && first < shape->count; first += TG_BLOCK) {
        size_t n = tg_block_size(shape->count, first);
        for (size_t i = 0; i < n; i++)
            block[i] = (uint16_t)(codes[first + i] & ((1u << low) - 1));
        job->kernels->pack(block, n, low, out + first / 8 * low);
    }
    return out + tg_packed_size(shape->count, low);
}

static uint8_t *write_entropy(tg_job *job, const tg_levels_shape *shape, const uint16_t *codes, workspace *work,
                              uint8_t *out)
{
    const unsigned low = tg_low_bits(tg_code_width(shape->levels));
    for (uint64_t i = 0; i < shape->count; i++)
        work->digits[i] = (uint8_t)(codes[i] >> low);
    tg_entropy_plan plan;
    tg_entropy_plan_make(&plan, work->digits, (size_t)shape->count, (2 * shape->levels >> low) + 1,
                         shape->levels >> low);
    out[0] = (uint8_t)plan.table_log;
    out[1] = (uint8_t)(plan.tuple | (plan.mirrored ? TG_ENTROPY_MIRRORED : 0));
    out[2] = (uint8_t)plan.lane_log;
    out[3] = (uint8_t)plan.chunk_log;
    tg_store16(out + 4, (uint16_t)tg_entropy_table_size(&plan));
    uint8_t *entry = tg_entropy_table_write(&plan, out + 6);
    const uint64_t chunk = UINT64_C(1) << plan.chunk_log;
    uint8_t *at = entry + 4 * chunks_of(shape->count, chunk);
    at = write_low_bits(job, shape, codes, low, at);
    for (uint64_t first = 0; first < shape->count; first += chunk, entry += 4) {
        size_t n = (size_t)(shape->count - first < chunk ? shape->count - first : chunk);
        uint8_t *end = tg_entropy_write(&plan, work->digits + first, n, at, tg_entropy_chunk_bound(n), job->kernels->rans);
        tg_store32(entry, (uint32_t)(end - at));
        at = end;
    }
    return at;
}

uint8_t *tg_levels_code(tg_job *job, const tg_levels_shape *shape, uint16_t *codes, uint8_t *out)
{
    if (shape->count == 0) {
        job->layout = shape->coding == TG_CODING_ELIAS     ? TG_LAYOUT_ELIAS_SPARSE
                      : shape->coding == TG_CODING_ENTROPY ? TG_LAYOUT_ENTROPY
                                                           : TG_LAYOUT_PACKED;
        return out;
    }
    workspace work = {.levels = (int16_t *)(codes + shape->count)};
    work.digits = (uint8_t *)(work.levels + TG_ELIAS_CHUNK);

    uint64_t size[TG_LAYOUTS];
    memset(size, 0xff, sizeof size); /* not allowed: larger than anything */
    if (shape->coding == TG_CODING_AUTO)
        size[TG_LAYOUT_PACKED] = tg_packed_size(shape->count, tg_code_width(shape->levels));
    if (may_use_elias(shape)) {
        size[TG_LAYOUT_ELIAS_SPARSE] = elias_size(shape, codes, TG_ELIAS_SPARSE, &work);
        size[TG_LAYOUT_ELIAS_DENSE] = elias_size(shape, codes, TG_ELIAS_DENSE, &work);
    }
    uint8_t *entropy_end = out;
    if (may_use_entropy(shape)) { /* its exact length is known only once it is written */
        entropy_end = write_entropy(job, shape, codes, &work, out);
        size[TG_LAYOUT_ENTROPY] = (uint64_t)(entropy_end - out);
    }
    unsigned best = 0;
    for (unsigned layout = 1; layout < TG_LAYOUTS; layout++)
        best = size[layout] < size[best] ? layout : best;
    job->layout = best;
    switch (best) {
    case TG_LAYOUT_PACKED:
        return write_packed(job->kernels, codes, shape->count, tg_code_width(shape->levels), out);
    case TG_LAYOUT_ENTROPY: return entropy_end;
    default: return write_elias(shape, codes, (int)best, &work, out);
    }
}
