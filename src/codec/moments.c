/* Sums over a sample. */
#include "codec/moments.h"

#include "codec/dense.h"
#include "kernels/sums.h"

double tg_sample_sum(const tg_selection *s, tg_sum_of what, size_t n)
{
    tg_tree_sum tree = {.blocks = 0};
    for (size_t first = 0; first < n; first += TG_BLOCK)
        tg_tree_add(&tree, (double)s->job->kernels->block_sum(what, s->sample + first, tg_block_size(n, first), 1, 1));
    return tg_tree_total(&tree);
}
