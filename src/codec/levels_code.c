/* From packed codes to the other layouts: Elias or entropy coded, whichever the spec asks for or is smallest. Sizes are
 * compared exactly, and the lowest layout number wins a tie. */
#include <string.h>

#include "base/bytes.h"
#include "code/elias.h"
#include "codec/levels_entropy.h"

/* The working memory of tg_levels_code. */
typedef struct workspace {
    const uint8_t *packed; /* all codes, packed */
    int16_t *levels;       /* one Elias chunk */
    void *entropy;         /* the working memory of tg_levels_entropy_write */
} workspace;

/* Bytes of the packed codes, rounded up so that what follows is aligned. */
static size_t packed_room(const tg_levels_shape *shape)
{
    return (size_t)(tg_packed_size(shape->count, tg_code_width(shape->levels)) + 15) / 16 * 16;
}

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
    return packed_room(shape) + TG_ELIAS_CHUNK * sizeof(int16_t) +
           (may_use_entropy(shape) ? tg_levels_entropy_workspace(shape) : 0);
}

size_t tg_levels_code_bound(const tg_levels_shape *shape)
{
    const unsigned width = tg_code_width(shape->levels);
    uint64_t n = shape->count, bound = tg_padded(tg_packed_size(n, width));
    if (may_use_elias(shape)) { /* the smaller of the two Elias layouts is at most the dense one */
        uint64_t bits = tg_omega_length((uint64_t)shape->levels + 1) + 1u;
        uint64_t elias = (n * bits + 7) / 8 + chunks_of(n, TG_ELIAS_CHUNK) * (TG_ELIAS_ENTRY + 1);
        bound = elias > bound ? elias : bound;
    }
    if (may_use_entropy(shape)) {
        uint64_t entropy = tg_levels_entropy_bound(shape);
        bound = entropy > bound ? entropy : bound;
    }
    return (size_t)bound;
}

void tg_packed_block(const tg_job *job, const tg_levels_shape *shape, const uint8_t *packed, uint64_t first, size_t n,
                     uint16_t *codes)
{
    const unsigned width = tg_code_width(shape->levels);
    job->kernels->unpack(packed + first / 8 * width, n, width, codes);
}

static const int16_t *chunk_levels(tg_job *job, const tg_levels_shape *shape, uint64_t first, size_t *n,
                                   workspace *work)
{
    uint64_t left = shape->count - first;
    *n = left < TG_ELIAS_CHUNK ? (size_t)left : TG_ELIAS_CHUNK;
    for (size_t done = 0; done < *n; done += TG_BLOCK) {
        size_t here = tg_block_size(*n, done);
        uint16_t codes[TG_BLOCK];
        tg_packed_block(job, shape, work->packed, first + done, here, codes);
        for (size_t i = 0; i < here; i++)
            work->levels[done + i] = (int16_t)((int32_t)codes[i] - (int32_t)shape->levels);
    }
    return work->levels;
}

static uint64_t elias_size(tg_job *job, const tg_levels_shape *shape, int layout, workspace *work)
{
    uint64_t size = 0;
    for (uint64_t first = 0; first < shape->count; first += TG_ELIAS_CHUNK) {
        size_t n;
        const int16_t *levels = chunk_levels(job, shape, first, &n, work);
        size += TG_ELIAS_ENTRY + (tg_elias_bits(layout, levels, n) + 7) / 8;
    }
    return size;
}

static uint8_t *write_elias(tg_job *job, const tg_levels_shape *shape, int layout, workspace *work, uint8_t *out)
{
    uint8_t *entry = out, *at = out + TG_ELIAS_ENTRY * chunks_of(shape->count, TG_ELIAS_CHUNK);
    for (uint64_t first = 0; first < shape->count; first += TG_ELIAS_CHUNK, entry += TG_ELIAS_ENTRY) {
        size_t n;
        const int16_t *levels = chunk_levels(job, shape, first, &n, work);
        uint8_t *end = tg_elias_write(layout, levels, n, at);
        tg_store16(entry, (uint16_t)(end - at));
        at = end;
    }
    return at;
}

/* Packed codes come before the scales. */
static uint8_t *write_packed(const tg_job *job, const tg_levels_shape *shape, const uint8_t *packed, size_t size)
{
    const size_t scales = tg_scales_size(shape);
    memmove(job->payload + tg_padded(size), job->payload, scales);
    memcpy(job->payload, packed, size);
    return tg_pad(job->payload, size) + scales;
}

uint8_t *tg_levels_code(tg_job *job, const tg_levels_shape *shape, uint8_t *packed)
{
    uint8_t *const out = job->payload + tg_scales_size(shape);
    if (shape->count == 0) {
        job->layout = shape->coding == TG_CODING_ELIAS     ? TG_LAYOUT_ELIAS_SPARSE
                      : shape->coding == TG_CODING_ENTROPY ? TG_LAYOUT_ENTROPY
                                                           : TG_LAYOUT_PACKED;
        return out;
    }
    workspace work = {.packed = packed, .levels = (int16_t *)(void *)(packed + packed_room(shape))};
    work.entropy = work.levels + TG_ELIAS_CHUNK;

    const uint64_t packed_size = tg_packed_size(shape->count, tg_code_width(shape->levels));
    uint64_t size[TG_LAYOUTS];
    memset(size, 0xff, sizeof size); /* layouts that are not allowed: larger than any size */
    if (shape->coding == TG_CODING_AUTO)
        size[TG_LAYOUT_PACKED] = tg_padded(packed_size);
    if (may_use_elias(shape)) {
        size[TG_LAYOUT_ELIAS_SPARSE] = elias_size(job, shape, TG_ELIAS_SPARSE, &work);
        size[TG_LAYOUT_ELIAS_DENSE] = elias_size(job, shape, TG_ELIAS_DENSE, &work);
    }
    uint8_t *entropy_end = out;
    if (may_use_entropy(shape)) { /* its exact length is known only once it is written */
        unsigned layout;
        entropy_end = tg_levels_entropy_write(job, shape, packed, work.entropy, out, &layout);
        size[layout] = (uint64_t)(entropy_end - out);
    }
    unsigned best = 0;
    for (unsigned layout = 1; layout < TG_LAYOUTS; layout++)
        best = size[layout] < size[best] ? layout : best;
    job->layout = best;
    switch (best) {
    case TG_LAYOUT_PACKED:
        return write_packed(job, shape, packed, (size_t)packed_size);
    case TG_LAYOUT_ELIAS_SPARSE:
    case TG_LAYOUT_ELIAS_DENSE:
        return write_elias(job, shape, (int)best, &work, out);
    default:
        return entropy_end;
    }
}
