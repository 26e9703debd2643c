/* How a vector is divided among threads: into ranges of a power of two of blocks. All results depend only on where
 * blocks lie, so no byte depends on the number of threads; and a tree sum over blocks equals a tree sum over ranges of
 * the tree sums of their blocks. */
#ifndef TG_KERNELS_RANGES_H
#define TG_KERNELS_RANGES_H

#include "base/pool.h"
#include "kernels/kernels.h"

/* A vector shorter than two of these is one range, and is not worth waking another thread. */
#define TG_RANGE_LEAST (16u * TG_BLOCK)
/* Several ranges for each thread, so that one thread that is delayed does not delay all. */
#define TG_RANGES_PER_THREAD 4u
#define TG_MAX_RANGES (TG_RANGES_PER_THREAD * TG_MAX_THREADS)

typedef struct tg_ranges {
    uint64_t count, step;
    size_t parts; /* at least 1, at most TG_MAX_RANGES, and 1 for a pool of one thread */
} tg_ranges;

/* Ranges of `count` elements, each but the last a multiple of `grain`, which is a power of two. */
static inline tg_ranges tg_ranges_of(const tg_pool *pool, uint64_t count, uint64_t grain)
{
    const uint64_t most = (uint64_t)TG_RANGES_PER_THREAD * tg_pool_threads(pool);
    uint64_t step = TG_RANGE_LEAST;
    if (tg_pool_threads(pool) == 1 || count == 0)
        return (tg_ranges){count, count, 1};
    while (step < grain || step * most < count)
        step *= 2;
    return (tg_ranges){count, step, (size_t)((count - 1) / step + 1)};
}

static inline uint64_t tg_range_first(const tg_ranges *ranges, size_t part) { return part * ranges->step; }

static inline uint64_t tg_range_end(const tg_ranges *ranges, size_t part)
{
    return part + 1 < ranges->parts ? (part + 1) * ranges->step : ranges->count;
}

/* The sum over blocks in the defined order: `block` returns the sum of the n elements from `first` on, which are one
 * block. */
typedef double tg_block_total(const void *context, uint64_t first, size_t n);
double tg_sum_blocks(tg_pool *pool, uint64_t count, tg_block_total *block, const void *context);

#endif
