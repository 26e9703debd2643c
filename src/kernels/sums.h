/* The defined order of sums whose result is sent: float32 lanes within blocks of 4096 (tg_kernels.block_sum), then a
 * binary tree over the blocks in double, (b0 + b1) + (b2 + b3) and so on; the last block of an odd number is carried
 * up. docs/numerics.md. */
#ifndef TG_KERNELS_SUMS_H
#define TG_KERNELS_SUMS_H

#include <stdint.h>

#include "base/any_device.h"

/* A tree that is fed block by block: partial[j] holds the sum of 2^j blocks while bit j of `blocks` is set. */
typedef struct tg_tree_sum {
    double partial[32];
    uint32_t blocks;
} tg_tree_sum;

TG_ANY_DEVICE void tg_tree_add(tg_tree_sum *tree, double block)
{
    unsigned level = 0;
    for (uint32_t bits = tree->blocks++; bits & 1; bits >>= 1)
        block = tree->partial[level++] + block;
    tree->partial[level] = block;
}

TG_ANY_DEVICE double tg_tree_total(const tg_tree_sum *tree)
{
    double total = 0;
    int first = 1;
    for (unsigned level = 0; level < 32; level++) {
        if (!(tree->blocks >> level & 1))
            continue;
        total = first ? tree->partial[level] : tree->partial[level] + total;
        first = 0;
    }
    return total;
}

#endif
