/* Selecting among candidates. */
#ifndef TG_KERNELS_WIDE_CANDIDATES_H
#define TG_KERNELS_WIDE_CANDIDATES_H

#include "base/bytes.h"
#include "kernels/kernels.h"

enum { STASH = 128 };

TG_INLINE size_t keys_below(const float *values, size_t n, uint32_t bound, uint32_t *keys, size_t room)
{
    const v_ints bounds = v_int((int)bound);
    size_t found = 0, i = 0;
    for (; i + V_LANES <= n; i += V_LANES) {
        const v_ints here = v_keys(v_load(values + i));
        const unsigned below = v_greater(bounds, here);
        if (found + V_LANES > room)
            return room + 1;
        v_store_bits(keys + found, v_left_pack(here, below));
        found += (size_t)__builtin_popcount(below);
    }
    for (; i < n; i++) {
        const uint32_t key = tg_float_bits(values[i]) & TG_MAGNITUDE_MASK;
        if (found >= room)
            return room + 1;
        keys[found] = key;
        found += key < bound;
    }
    return found;
}

/* What is to be put right in the residual. It lies far apart, so the memory is asked for a stash of it while the next
 * one fills. */
typedef struct stash {
    size_t count;
    uint32_t indices[STASH + V_LANES];
    float values[STASH + V_LANES];
} stash;

static void ask_for(const stash *losers, const float *residual)
{
    for (size_t j = 0; j < losers->count; j++)
        __builtin_prefetch(&residual[losers->indices[j]], 0, 2);
}

static void put_back(stash *losers, float *residual)
{
    for (size_t j = 0; j < losers->count; j++)
        residual[losers->indices[j]] = losers->values[j];
    losers->count = 0;
}

TG_INLINE void put_aside(stash *losers, v_ints indices, v_floats values, unsigned mask)
{
    v_store_bits(losers->indices + losers->count, v_left_pack(indices, mask));
    v_store(losers->values + losers->count, v_left_pack_floats(values, mask));
    losers->count += (size_t)__builtin_popcount(mask);
}

/* The lowest bits of a mask, as many as `most` says. */
static unsigned first_bits(unsigned mask, uint64_t most)
{
    unsigned taken = 0;
    for (; mask && most > 0; mask &= mask - 1, most--)
        taken |= mask & -mask;
    return taken;
}

TG_INLINE size_t winnow(const uint32_t *indices, const float *values, size_t n, uint32_t above, uint64_t *ties,
                        float *residual, uint32_t taken, uint32_t *kept_indices, float *kept_values)
{
    const v_ints bound = v_int((int)above), not_taken = v_int((int)(taken - 1));
    /* Either some losers were taken, whose values go back, or some winners were not, who leave a 0. */
    const bool back = above >= taken;
    const unsigned all = (1u << V_LANES) - 1;
    stash stashes[2];
    stashes[0].count = stashes[1].count = 0;
    unsigned turn = 0;
    size_t kept = 0, i = 0;
    for (; i + V_LANES <= n; i += V_LANES) {
        const v_floats value = v_load(values + i);
        const v_ints index = v_load_bits(indices + i), key = v_keys(value);
        unsigned winners = v_greater(key, bound);
        const unsigned equal = v_equal(key, bound);
        if (equal && *ties > 0) {
            const unsigned taken = first_bits(equal, *ties);
            *ties -= (unsigned)__builtin_popcount(taken);
            winners |= taken;
        }
        if (residual) {
            put_aside(&stashes[turn], index, back ? value : v_float(0), (winners ^ v_greater(key, not_taken)) & all);
            if (stashes[turn].count >= STASH) {
                ask_for(&stashes[turn], residual);
                turn ^= 1;
                put_back(&stashes[turn], residual);
            }
        }
        /* Written over what has been read already, at most. */
        v_store(kept_values + kept, v_left_pack_floats(value, winners));
        v_store_bits(kept_indices + kept, v_left_pack(index, winners));
        kept += (size_t)__builtin_popcount(winners);
    }
    ask_for(&stashes[turn], residual);
    put_back(&stashes[turn ^ 1], residual);
    put_back(&stashes[turn], residual);
    for (; i < n; i++) {
        const uint32_t index = indices[i], key = tg_float_bits(values[i]) & TG_MAGNITUDE_MASK;
        const float value = values[i];
        const bool tie = key == above && *ties > 0;
        *ties -= tie;
        if (key > above || tie) {
            kept_indices[kept] = index;
            kept_values[kept++] = value;
            if (residual)
                residual[index] = 0;
        } else if (residual) {
            residual[index] = value;
        }
    }
    return kept;
}

#endif
