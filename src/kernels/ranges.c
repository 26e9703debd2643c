/* Sums over blocks, range by range. */
#include "kernels/ranges.h"

#include "kernels/sums.h"

typedef struct summing {
    tg_ranges ranges;
    tg_block_total *block;
    const void *context;
    double *totals;
} summing;

static void sum_range(void *of, size_t part)
{
    const summing *s = of;
    tg_tree_sum tree = {.blocks = 0};
    const uint64_t end = tg_range_end(&s->ranges, part);
    for (uint64_t first = tg_range_first(&s->ranges, part); first < end; first += TG_BLOCK)
        tg_tree_add(&tree, s->block(s->context, first, tg_block_size(end, first)));
    s->totals[part] = tg_tree_total(&tree);
}

double tg_sum_blocks(tg_pool *pool, uint64_t count, tg_block_total *block, const void *context)
{
    double totals[TG_MAX_RANGES];
    summing s = {tg_ranges_of(pool, count, TG_BLOCK), block, context, totals};
    tg_parallel(pool, s.ranges.parts, sum_range, &s);
    tg_tree_sum tree = {.blocks = 0};
    for (size_t part = 0; part < s.ranges.parts; part++)
        tg_tree_add(&tree, totals[part]);
    return tg_tree_total(&tree);
}
