/* Finding the threshold among the candidates: by rank, and by counting. */
#include <stdatomic.h>

#include "base/bytes.h"
#include "codec/nth.h"
#include "codec/onepass.h"

uint64_t tg_listed(const tg_onepass *o)
{
    uint64_t listed = 0;
    for (size_t i = 0; i < o->ranges.parts; i++)
        listed += o->range_lists[i].list.count;
    return listed;
}

/* Threads are used only for lists that are long enough. */
static tg_pool *pool_for(const tg_onepass *o, uint64_t elements)
{
    return elements >= 2 * TG_RANGE_LEAST ? o->selection->job->pool : NULL;
}

/* ---- by rank ---- */

/* Copies the keys below `high` to the unused room of the list. The key of the rank asked for is most likely one of
 * these, and they are few. */
static uint32_t *single_out(const tg_onepass *o, const tg_candidates *list, size_t *below)
{
    uint32_t *keys = list->indices + list->count;
    *below = o->selection->job->kernels->keys_below(list->values, list->count, o->high, keys, list->room - list->count);
    return keys;
}

static bool fits(const tg_candidates *list, size_t below) { return below <= list->room - list->count; }

tg_threshold tg_threshold_of_list(const tg_onepass *o, const tg_range_list *range_list, uint64_t rank,
                                  uint32_t *scratch, size_t room)
{
    const tg_candidates *list = &range_list->list;
    size_t below;
    const uint32_t *keys = single_out(o, list, &below);
    const uint64_t above = list->count - below;
    if (fits(list, below) && rank > above) {
        tg_threshold threshold = tg_nth_of_keys(keys, below, rank - above, (tg_band){range_list->lowest, o->high});
        threshold.selected += above;
        return threshold;
    }
    return tg_nth_of_array(list->values, list->count, rank, (tg_band){range_list->lowest, TG_INFINITY_BITS}, scratch,
                           room);
}

static void single_out_range(void *of, size_t part)
{
    tg_onepass *o = of;
    (void)single_out(o, &o->range_lists[part].list, &o->range_lists[part].below);
}

tg_threshold tg_threshold_of_lists(tg_onepass *o, uint64_t rank)
{
    if (o->ranges.parts == 1)
        return tg_threshold_of_list(o, &o->range_lists[0], rank, o->pilot, tg_pilot_size(o->source.count));
    const uint64_t listed = tg_listed(o);
    tg_parallel(pool_for(o, listed), o->ranges.parts, single_out_range, o);
    tg_key_list keys[TG_MAX_RANGES], values[TG_MAX_RANGES];
    uint64_t below = 0;
    uint32_t lowest = TG_INFINITY_BITS;
    bool all_fit = true;
    for (size_t i = 0; i < o->ranges.parts; i++) {
        const tg_range_list *s = &o->range_lists[i];
        all_fit &= fits(&s->list, s->below);
        below += s->below;
        lowest = s->lowest < lowest ? s->lowest : lowest;
        /* A key is the bits of a magnitude, so keys and values can be read alike. */
        keys[i] = (tg_key_list){s->list.indices + s->list.count, s->below};
        values[i] = (tg_key_list){s->list.values, s->list.count};
    }
    if (!all_fit || rank <= listed - below)
        return tg_nth_of_lists(pool_for(o, listed), values, o->ranges.parts, rank, (tg_band){lowest, TG_INFINITY_BITS});
    tg_threshold threshold = tg_nth_of_lists(pool_for(o, below), keys, o->ranges.parts, rank - (listed - below),
                                             (tg_band){lowest, o->high});
    threshold.selected = rank;
    return threshold;
}

/* ---- by counting ---- */

typedef struct counting {
    const tg_onepass *onepass;
    uint32_t key;
    atomic_uint_fast64_t passing;
} counting;

static void count_range(void *of, size_t part)
{
    counting *c = of;
    const tg_kernels *k = c->onepass->selection->job->kernels;
    const tg_candidates *list = &c->onepass->range_lists[part].list;
    uint32_t keys[TG_BLOCK];
    uint64_t passing = 0;
    for (size_t first = 0; first < list->count; first += TG_BLOCK) {
        size_t n = tg_block_size(list->count, first);
        k->magnitude_keys(list->values + first, n, keys);
        passing += k->count_at_least(keys, n, c->key);
    }
    atomic_fetch_add(&c->passing, passing);
}

uint64_t tg_count_lists(const tg_onepass *o, uint32_t key)
{
    counting c = {.onepass = o, .key = key};
    tg_parallel(pool_for(o, tg_listed(o)), o->ranges.parts, count_range, &c);
    return c.passing;
}
