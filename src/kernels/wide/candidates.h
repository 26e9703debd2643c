/* The kernels that select among candidates: keys_below and filter. */
#ifndef TG_KERNELS_WIDE_CANDIDATES_H
#define TG_KERNELS_WIDE_CANDIDATES_H

#include "base/bytes.h"
#include "kernels/kernels.h"

enum { CORRECTIONS = 128 };

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

/* Elements of the residual that must be corrected. They lie far apart, so one list of them is prefetched while the next
 * one fills. */
typedef struct corrections {
    size_t count;
    uint32_t indices[CORRECTIONS + V_LANES];
    float values[CORRECTIONS + V_LANES];
} corrections;

static void prefetch(const corrections *list, const float *residual)
{
    for (size_t j = 0; j < list->count; j++)
        __builtin_prefetch(&residual[list->indices[j]], 0, 2);
}

static void write_corrections(corrections *list, float *residual)
{
    for (size_t j = 0; j < list->count; j++)
        residual[list->indices[j]] = list->values[j];
    list->count = 0;
}

TG_INLINE void add_corrections(corrections *list, v_ints indices, v_floats values, unsigned mask)
{
    v_store_bits(list->indices + list->count, v_left_pack(indices, mask));
    v_store(list->values + list->count, v_left_pack_floats(values, mask));
    list->count += (size_t)__builtin_popcount(mask);
}

/* The lowest `most` set bits of a mask. */
static unsigned first_bits(unsigned mask, uint64_t most)
{
    unsigned first = 0;
    for (; mask && most > 0; mask &= mask - 1, most--)
        first |= mask & -mask;
    return first;
}

TG_INLINE size_t filter(const uint32_t *indices, const float *values, size_t n, uint32_t above, uint64_t *ties,
                        float *residual, uint32_t clear_from, uint32_t *selected_indices, float *selected_values)
{
    const v_ints bound = v_int((int)above), not_cleared = v_int((int)(clear_from - 1));
    /* Where the threshold is above clear_from, some candidates that are not selected were cleared, and their values go
     * back. Otherwise some selected ones were not cleared, and become 0. */
    const bool back = above >= clear_from;
    const unsigned all = (1u << V_LANES) - 1;
    corrections lists[2];
    lists[0].count = lists[1].count = 0;
    unsigned turn = 0;
    size_t count = 0, i = 0;
    for (; i + V_LANES <= n; i += V_LANES) {
        const v_floats value = v_load(values + i);
        const v_ints index = v_load_bits(indices + i), key = v_keys(value);
        unsigned selected = v_greater(key, bound);
        const unsigned equal = v_equal(key, bound);
        if (equal && *ties > 0) {
            const unsigned ties_here = first_bits(equal, *ties);
            *ties -= (unsigned)__builtin_popcount(ties_here);
            selected |= ties_here;
        }
        if (residual) {
            add_corrections(&lists[turn], index, back ? value : v_float(0),
                            (selected ^ v_greater(key, not_cleared)) & all);
            if (lists[turn].count >= CORRECTIONS) {
                prefetch(&lists[turn], residual);
                turn ^= 1;
                write_corrections(&lists[turn], residual);
            }
        }
        /* The output may overlap the input: it only overwrites what has been read. */
        v_store(selected_values + count, v_left_pack_floats(value, selected));
        v_store_bits(selected_indices + count, v_left_pack(index, selected));
        count += (size_t)__builtin_popcount(selected);
    }
    prefetch(&lists[turn], residual);
    write_corrections(&lists[turn ^ 1], residual);
    write_corrections(&lists[turn], residual);
    for (; i < n; i++) {
        const uint32_t index = indices[i], key = tg_float_bits(values[i]) & TG_MAGNITUDE_MASK;
        const float value = values[i];
        const bool tie = key == above && *ties > 0;
        *ties -= tie;
        if (key > above || tie) {
            selected_indices[count] = index;
            selected_values[count++] = value;
            if (residual)
                residual[index] = 0;
        } else if (residual) {
            residual[index] = value;
        }
    }
    return count;
}

#endif
