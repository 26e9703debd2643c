/* From packed codes to the entropy layouts. Where few levels are not zero, it may be shorter to list these with their
 * positions: probabilities have a smallest unit, so among a million zeros hundreds of rare levels would get more
 * probability than they need. */
#include "codec/levels_entropy.h"

#include "codec/entropy_codes.h"
#include "codec/positions.h"
#include "codec/prefix_choice.h"
#include "kernels/ranges.h"

/* Listing is tried where at most this many levels are not zero. */
static size_t most_listed(uint64_t count) { return (size_t)(count / 16); }

/* The number of different codes: of all levels, and of listed levels, which are never zero. */
static uint32_t all_values(const tg_levels_shape *shape) { return 2 * shape->levels + 1; }
static uint32_t listed_values(const tg_levels_shape *shape) { return 2 * shape->levels; }

typedef struct workspace {
    const uint8_t *packed;
    uint32_t *indices; /* of the levels that are not zero */
    uint16_t *codes;   /* their codes */
    size_t listed;
    uint8_t *listed_digits, *digits;
} workspace;

size_t tg_levels_entropy_workspace(const tg_levels_shape *shape)
{
    return most_listed(shape->count) * (sizeof(uint32_t) + sizeof(uint16_t) + 1) + (size_t)shape->count;
}

static workspace workspace_at(const tg_levels_shape *shape, const uint8_t *packed, void *memory)
{
    const size_t most = most_listed(shape->count);
    workspace work = {.packed = packed, .indices = memory};
    work.codes = (uint16_t *)(work.indices + most);
    work.listed_digits = (uint8_t *)(work.codes + most);
    work.digits = work.listed_digits + most;
    return work;
}

size_t tg_levels_entropy_bound(const tg_levels_shape *shape)
{
    const size_t most = most_listed(shape->count), dense = tg_entropy_codes_bound(shape->count, all_values(shape));
    const size_t sparse = tg_positions_bound(shape->count, most) + tg_entropy_codes_bound(most, listed_values(shape));
    const size_t prefix = tg_prefix_bound(shape->count, tg_code_width(shape->levels)),
                 larger = dense > sparse ? dense : sparse;
    return prefix > larger ? prefix : larger;
}

static void take_digits(const uint16_t *restrict codes, size_t n, unsigned low, uint8_t *restrict digits)
{
    for (size_t i = 0; i < n; i++)
        digits[i] = (uint8_t)(codes[i] >> low);
}

/* Removes the low bits of a block of codes and packs them. */
static void put_low_bits(const tg_kernels *k, uint16_t *codes, size_t n, unsigned low, uint8_t *out)
{
    for (size_t i = 0; i < n; i++)
        codes[i] = (uint16_t)(codes[i] & ((1u << low) - 1));
    k->pack(codes, n, low, out);
}

/* ---- all levels ---- */

/* Splitting all codes into digits and low bits, with all threads. */
typedef struct splitting {
    const tg_job *job;
    const tg_levels_shape *shape;
    const workspace *work;
    unsigned low;
    uint8_t *low_bits; /* where low bits are packed; NULL: digits are written */
    tg_ranges ranges;
} splitting;

static void split_range(void *of, size_t part)
{
    const splitting *s = of;
    const uint64_t end = tg_range_end(&s->ranges, part);
    for (uint64_t first = tg_range_first(&s->ranges, part); first < end; first += TG_BLOCK) {
        uint16_t codes[TG_BLOCK];
        const size_t n = tg_block_size(end, first);
        tg_packed_block(s->job, s->shape, s->work->packed, first, n, codes);
        if (s->low_bits)
            put_low_bits(s->job->kernels, codes, n, s->low, s->low_bits + first / 8 * s->low);
        else
            take_digits(codes, n, s->low, s->work->digits + first);
    }
}

static void split_codes(const tg_job *job, const tg_levels_shape *shape, const workspace *work, unsigned low,
                        uint8_t *low_bits)
{
    splitting s = {job, shape, work, low, low_bits, tg_ranges_of(job->pool, shape->count, TG_BLOCK)};
    tg_parallel(job->pool, s.ranges.parts, split_range, &s);
}

static uint8_t *write_dense(tg_job *job, const tg_levels_shape *shape, const workspace *work,
                            const tg_entropy_plan *plan, uint8_t *out)
{
    const unsigned low = tg_code_split_of(all_values(shape)).low;
    uint8_t *directory = tg_entropy_head_write(plan, out), *at = directory + 4 * tg_entropy_chunks(plan, shape->count);
    if (low > 0)
        split_codes(job, shape, work, low, at);
    at = tg_pad(at, tg_packed_size(shape->count, low));
    return tg_entropy_streams_write(job->kernels, job->pool, plan, work->digits, shape->count, directory, at);
}

/* ---- those that are not zero ---- */

/* False where there are too many. */
static bool list_levels(tg_job *job, const tg_levels_shape *shape, workspace *work)
{
    const size_t most = most_listed(shape->count);
    work->listed = 0;
    for (uint64_t first = 0; first < shape->count; first += TG_BLOCK) {
        const size_t n = tg_block_size(shape->count, first);
        uint16_t codes[TG_BLOCK];
        tg_packed_block(job, shape, work->packed, first, n, codes);
        for (size_t i = 0; i < n; i++) {
            if (codes[i] == shape->levels)
                continue;
            if (work->listed == most)
                return false;
            work->indices[work->listed] = (uint32_t)(first + i);
            work->codes[work->listed++] = (uint16_t)(codes[i] - (codes[i] > shape->levels));
        }
    }
    return true;
}

/* The codes of the listed levels. */
static uint8_t *write_listed(tg_job *job, const tg_levels_shape *shape, const workspace *work,
                             const tg_entropy_plan *plan, uint8_t *out)
{
    const unsigned low = tg_code_split_of(listed_values(shape)).low;
    uint8_t *directory = tg_entropy_head_write(plan, out), *at = directory + 4 * tg_entropy_chunks(plan, work->listed);
    for (size_t first = 0; low > 0 && first < work->listed; first += TG_BLOCK) {
        uint16_t codes[TG_BLOCK];
        const size_t n = tg_block_size(work->listed, first);
        for (size_t i = 0; i < n; i++)
            codes[i] = work->codes[first + i];
        put_low_bits(job->kernels, codes, n, low, at + first / 8 * low);
    }
    at = tg_pad(at, tg_packed_size(work->listed, low));
    return tg_entropy_streams_write(job->kernels, job->pool, plan, work->listed_digits, work->listed, directory, at);
}

static uint8_t *write_sparse(tg_job *job, const tg_levels_shape *shape, const workspace *work,
                             const tg_entropy_plan *plan, uint8_t *out)
{
    tg_positions_writer positions = tg_positions_begin(shape->count, work->listed, out, job->kernels->gaps);
    if (work->listed > 0)
        positions.at = write_listed(job, shape, work, plan, positions.at);
    return tg_positions_write(&positions, work->indices, work->listed);
}

static tg_entropy_plan plan_for(const uint8_t *digits, size_t n, uint32_t values)
{
    const tg_code_split split = tg_code_split_of(values);
    tg_entropy_plan plan;
    tg_entropy_plan_make(&plan, digits, n, split.alphabet, split.zero_digit);
    return plan;
}

uint8_t *tg_levels_entropy_write(tg_job *job, const tg_levels_shape *shape, const uint8_t *packed, void *memory,
                                 uint8_t *out, unsigned *layout)
{
    const unsigned width = tg_code_width(shape->levels);
    uint8_t *prefix_end = tg_prefix_try(job->pool, packed, shape->count, width, (uint8_t)(2 * shape->levels), out);
    if (prefix_end) {
        *layout = TG_LAYOUT_PREFIX;
        return prefix_end;
    }
    workspace work = workspace_at(shape, packed, memory);
    split_codes(job, shape, &work, tg_code_split_of(all_values(shape)).low, NULL);
    const tg_entropy_plan dense = plan_for(work.digits, (size_t)shape->count, all_values(shape));
    *layout = TG_LAYOUT_ENTROPY;
    if (shape->count - dense.zeros > most_listed(shape->count) || !list_levels(job, shape, &work))
        return write_dense(job, shape, &work, &dense, out);
    take_digits(work.codes, work.listed, tg_code_split_of(listed_values(shape)).low, work.listed_digits);
    const tg_entropy_plan sparse = plan_for(work.listed_digits, work.listed, listed_values(shape));
    /* The sizes are known only after writing. */
    uint8_t *sparse_end = write_sparse(job, shape, &work, &sparse, out),
            *dense_end = write_dense(job, shape, &work, &dense, out);
    if (dense_end <= sparse_end)
        return dense_end;
    *layout = TG_LAYOUT_ENTROPY_SPARSE;
    return write_sparse(job, shape, &work, &sparse, out);
}
