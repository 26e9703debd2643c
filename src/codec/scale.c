/* Scales of buckets: L2 norm, largest magnitude, minimum and maximum, mean magnitude. Each is defined for every finite
 * input, however large or small. */
#include "base/bytes.h"
#include "codec/levels.h"
#include "kernels/quantiser.h"
#include "kernels/ranges.h"
#include "kernels/scales.h"

/* The values of one bucket, which are read block by block: from memory, or computed from the job's source. */
typedef struct bucket_values {
    tg_job *job;
    uint64_t start, n;
    const float *u;
} bucket_values;

/* Where the values from `offset` on lie, if they need not be computed. */
static const float *in_memory(const bucket_values *p, uint64_t offset)
{
    const tg_source *source = &p->job->source;
    if (p->u)
        return p->u + offset;
    if (!source->residual && source->dtype == TG_FLOAT32 && !source->drop_nonfinite)
        return (const float *)source->gradient + p->start + offset;
    return NULL;
}

static void compute(const bucket_values *p, uint64_t offset, size_t n, tg_source_block *block)
{
    (void)tg_source_read(&p->job->source, p->job->kernels, p->start + offset, n, block);
}

/* Functions with a block are not inlined: where values lie in memory, the caller has a block on the stack already. */
#define WITH_BLOCK __attribute__((noinline))

typedef struct scaled_sum {
    const bucket_values *bucket;
    tg_sum_of what;
    float scale1, scale2;
} scaled_sum;

static double sum_of_values(const scaled_sum *s, const float *values, size_t n)
{
    return (double)s->bucket->job->kernels->block_sum(s->what, values, n, s->scale1, s->scale2);
}

static WITH_BLOCK double sum_of_computed(const scaled_sum *s, uint64_t offset, size_t n)
{
    tg_source_block block;
    compute(s->bucket, offset, n, &block);
    return sum_of_values(s, block.u, n);
}

static double sum_of_block(const void *of, uint64_t offset, size_t n)
{
    const scaled_sum *s = of;
    const float *values = in_memory(s->bucket, offset);
    return values ? sum_of_values(s, values, n) : sum_of_computed(s, offset, n);
}

static double sum(const bucket_values *p, tg_sum_of what, float scale1, float scale2)
{
    const scaled_sum s = {p, what, scale1, scale2};
    return p->n <= TG_BLOCK ? sum_of_block(&s, 0, (size_t)p->n) : tg_sum_blocks(p->job->pool, p->n, sum_of_block, &s);
}

/* The largest magnitude of each range, and if `extremes` is set its smallest and largest value. */
typedef struct extent {
    const bucket_values *bucket;
    tg_ranges ranges;
    bool extremes;
    uint32_t *magnitude;
    float *least, *largest;
} extent;

static void extent_of_range(void *of, size_t part)
{
    const extent *e = of;
    const tg_kernels *k = e->bucket->job->kernels;
    const uint64_t start = tg_range_first(&e->ranges, part), end = tg_range_end(&e->ranges, part);
    tg_source_block block;
    e->magnitude[part] = 0;
    for (uint64_t offset = start; offset < end; offset += TG_BLOCK) {
        const size_t n = tg_block_size(end, offset);
        const float *values = in_memory(e->bucket, offset);
        if (!values) {
            compute(e->bucket, offset, n, &block);
            values = block.u;
        }
        uint32_t here = k->max_magnitude(values, n);
        e->magnitude[part] = here > e->magnitude[part] ? here : e->magnitude[part];
        if (!e->extremes || here >= TG_INFINITY_BITS)
            continue;
        float low, high;
        k->extremes(values, n, &low, &high);
        e->least[part] = offset == start || low < e->least[part] ? low : e->least[part];
        e->largest[part] = offset == start || high > e->largest[part] ? high : e->largest[part];
    }
}

static WITH_BLOCK uint32_t largest_of_ranges(const bucket_values *p, float *least, float *largest)
{
    uint32_t magnitude[TG_MAX_RANGES];
    float low[TG_MAX_RANGES], high[TG_MAX_RANGES];
    extent e = {p, tg_ranges_of(p->job->pool, p->n, TG_BLOCK), least != NULL, magnitude, low, high};
    tg_parallel(p->job->pool, e.ranges.parts, extent_of_range, &e);
    uint32_t found = 0;
    for (size_t part = 0; part < e.ranges.parts; part++)
        found = magnitude[part] > found ? magnitude[part] : found;
    for (size_t part = 0; least && found < TG_INFINITY_BITS && part < e.ranges.parts; part++) {
        *least = part == 0 || low[part] < *least ? low[part] : *least; /* in order: of 0 and -0 the first one counts */
        *largest = part == 0 || high[part] > *largest ? high[part] : *largest;
    }
    return found;
}

/* `least` and `largest` may be NULL, and are not set where a value is not finite. */
static uint32_t largest_magnitude(const bucket_values *p, float *least, float *largest)
{
    const tg_kernels *k = p->job->kernels;
    if (!p->u)
        return largest_of_ranges(p, least, largest);
    const uint32_t found = k->max_magnitude(p->u, (size_t)p->n); /* within a block */
    if (least && found < TG_INFINITY_BITS)
        k->extremes(p->u, (size_t)p->n, least, largest);
    return found;
}

/* A sum of squares or magnitudes. Where float32 lanes would overflow or lose it, all values are first scaled by a power
 * of two to about 1; `exponent` is that power, usually 0. False if a value is not finite. */
static bool safe_sum(const bucket_values *p, tg_sum_of what, double *total, int *exponent)
{
    *exponent = 0;
    *total = sum(p, what, 1, 1);
    if (tg_sum_is_safe(*total, what))
        return true;
    uint32_t largest = largest_magnitude(p, NULL, NULL);
    if (largest >= TG_INFINITY_BITS)
        return false;
    *total = 0;
    if (largest == 0)
        return true;
    *exponent = tg_exponent_of(largest);
    *total = sum(p, what, tg_first_factor(*exponent), tg_second_factor(*exponent));
    return true;
}

static bool l2_norm(const bucket_values *p, float *norm)
{
    double total;
    int exponent;
    if (!safe_sum(p, TG_SUM_OF_SQUARES, &total, &exponent))
        return false;
    *norm = tg_limited_to_float(tg_scale_by(tg_sqrt(total), exponent));
    return true;
}

bool tg_bucket_mean(tg_job *job, uint64_t start, uint64_t n, const float *u, float *mean)
{
    bucket_values p = {job, start, n, u};
    double total;
    int exponent;
    if (!safe_sum(&p, TG_SUM_OF_MAGNITUDES, &total, &exponent))
        return false;
    *mean = tg_limited_to_float(tg_scale_by(total / (double)n, exponent));
    return true;
}

static bool max_norm(const bucket_values *p, float *norm)
{
    uint32_t largest = largest_magnitude(p, NULL, NULL);
    *norm = tg_bits_float(largest);
    return largest < TG_INFINITY_BITS;
}

static float clipped(const bucket_values *p, float radius, uint32_t thousandths)
{
    const double squares = sum(p, TG_SUM_OF_SQUARES, 1, 1), total = sum(p, TG_SUM_OF_VALUES, 1, 1);
    return tg_clipped_radius(squares, total, (double)p->n, radius, thousandths);
}

static bool between_extremes(const bucket_values *p, tg_scale *scale)
{
    float least = 0, largest = 0;
    if (largest_magnitude(p, &least, &largest) >= TG_INFINITY_BITS)
        return false;
    tg_between_extremes(least, largest, &scale->centre, &scale->radius);
    return true;
}

bool tg_bucket_scale(tg_job *job, const tg_levels_shape *shape, uint64_t start, uint64_t n, const float *u,
                     tg_scale *scale)
{
    bucket_values p = {job, start, n, u};
    scale->centre = 0;
    if (shape->affine)
        return between_extremes(&p, scale);
    if (!shape->max_norm)
        return l2_norm(&p, &scale->radius);
    if (!max_norm(&p, &scale->radius))
        return false;
    if (shape->clip > 0)
        scale->radius = clipped(&p, scale->radius, shape->clip);
    return true;
}

tg_quantiser tg_quantiser_of(const tg_levels_shape *shape, tg_scale scale)
{
    return tg_quantiser_from(shape->levels, scale.centre, scale.radius, shape->affine);
}
