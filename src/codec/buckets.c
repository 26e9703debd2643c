/* Threads divide the buckets among themselves, or where buckets are large, work together on each. */
#include "codec/buckets.h"

#include <stdatomic.h>

#include "kernels/ranges.h"

typedef struct buckets {
    tg_job *job;
    uint64_t bucket;
    tg_bucket_step *step;
    const void *shape;
    tg_ranges ranges;
    atomic_bool failed;
} buckets;

/* The buckets that start in a range. */
static void step_range(void *of, size_t part)
{
    buckets *b = of;
    tg_job job = *b->job;
    const uint64_t count = job.source.count, end = tg_range_end(&b->ranges, part);
    uint64_t at = (tg_range_first(&b->ranges, part) + b->bucket - 1) / b->bucket * b->bucket;
    if (b->ranges.parts > 1)
        job.pool = NULL;
    for (; at < end && !atomic_load_explicit(&b->failed, memory_order_relaxed); at += b->bucket)
        if (!b->step(&job, b->shape, at, count - at < b->bucket ? count - at : b->bucket))
            atomic_store(&b->failed, true);
}

bool tg_each_bucket(tg_job *job, uint64_t bucket, tg_bucket_step *step, const void *shape)
{
    const bool large = bucket >= 2 * TG_RANGE_LEAST;
    tg_pool *pool = large ? NULL : job->pool;
    buckets b = {.job = job, .bucket = bucket, .step = step, .shape = shape};
    if (job->source.count == 0)
        return true;
    b.ranges = tg_ranges_of(pool, job->source.count, TG_BLOCK);
    tg_parallel(pool, b.ranges.parts, step_range, &b);
    return !b.failed;
}
