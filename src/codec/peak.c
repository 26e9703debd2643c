/* How large the values of a frame can be: its scales say so, and otherwise the values themselves. */
#include "codec/peak.h"

#include <stdatomic.h>

#include "codec/reader.h"
#include "kernels/ranges.h"

#define LARGEST_FLOAT16 UINT32_C(0x477fe000) /* 65504, as float32 */

/* Numbers on the wire of which the largest magnitude is looked for. */
typedef struct looking {
    const tg_kernels *kernels;
    tg_dtype dtype;
    const uint8_t *wire;
    tg_ranges ranges;
    atomic_uint_least32_t largest;
} looking;

static uint32_t largest_float32(const tg_kernels *kernels, const uint8_t *wire, size_t n)
{
    float values[TG_BLOCK];
    kernels->load(TG_FLOAT32, wire, n, values);
    return kernels->max_magnitude(values, n);
}

/* Bfloat16 is the upper half of float32, and compares like it. */
static uint32_t largest_bfloat16(const uint8_t *wire, size_t n)
{
    int16_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        const int16_t magnitude = (int16_t)(tg_load16(wire + 2 * i) & 0x7fff);
        largest = magnitude > largest ? magnitude : largest;
    }
    return (uint32_t)largest << 16;
}

static void look_in_range(void *of, size_t part)
{
    looking *l = of;
    const uint64_t end = tg_range_end(&l->ranges, part);
    uint32_t largest = 0;
    for (uint64_t first = tg_range_first(&l->ranges, part); first < end; first += TG_BLOCK) {
        const uint8_t *wire = l->wire + first * tg_dtype_size(l->dtype);
        const size_t n = tg_block_size(end, first);
        const uint32_t here = l->dtype == TG_FLOAT32 ? largest_float32(l->kernels, wire, n) : largest_bfloat16(wire, n);
        largest = here > largest ? here : largest;
    }
    uint_least32_t before = atomic_load(&l->largest);
    while (largest > before && !atomic_compare_exchange_weak(&l->largest, &before, largest)) {}
}

static uint32_t largest_of(const tg_kernels *kernels, tg_pool *pool, tg_dtype dtype, const uint8_t *wire,
                           uint64_t count)
{
    looking l = {.kernels = kernels, .dtype = dtype, .wire = wire, .ranges = tg_ranges_of(pool, count, TG_BLOCK)};
    if (count > 0)
        tg_parallel(pool, l.ranges.parts, look_in_range, &l);
    return l.largest;
}

/* A value is at most its bucket's radius from the centre, and is limited to what is finite. */
static uint32_t peak_of_levels(const tg_levels_reader *r, const tg_kernels *kernels, tg_pool *pool)
{
    const uint32_t largest = largest_of(kernels, pool, TG_FLOAT32, r->scales, r->scale_bytes / 4);
    const uint32_t doubled = largest + UINT32_C(0x800000);
    return !r->shape.affine ? largest : doubled < TG_MAX_FINITE_BITS ? doubled : TG_MAX_FINITE_BITS;
}

static uint32_t peak_of_plain(const tg_plain_reader *r, const tg_kernels *kernels, tg_pool *pool, uint64_t count)
{
    return r->dtype == TG_FLOAT16 ? LARGEST_FLOAT16 : largest_of(kernels, pool, r->dtype, r->next, count);
}

uint32_t tg_plain_row_peak(const tg_reader *reader, tg_pool *pool, uint64_t count)
{
    return peak_of_plain(&reader->plain, reader->kernels, pool, count);
}

bool tg_plain_peak_sees_all(const tg_reader *reader) { return reader->row->plain && reader->plain.dtype != TG_FLOAT16; }

uint32_t tg_levels_row_peak(const tg_reader *reader, tg_pool *pool, uint64_t count)
{
    (void)count;
    return peak_of_levels(&reader->levels, reader->kernels, pool);
}

uint32_t tg_sparse_row_peak(const tg_reader *reader, tg_pool *pool, uint64_t count)
{
    (void)count;
    if (reader->sparse.values == TG_VALUES_LEVELS)
        return peak_of_levels(&reader->levels, reader->kernels, pool);
    return peak_of_plain(&reader->sparse.plain, reader->kernels, pool, reader->sparse.positions.listed);
}
