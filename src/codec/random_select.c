/* Collects the indices of the largest keys, with the keys in the place of the values; then selects the k largest. */
#include "codec/random_select.h"

#include <stdatomic.h>
#include <string.h>

#include "base/numeric.h"
#include "codec/nth.h"

/* An upper bound of a random count with this expectation: exceeded once in millions of cases. */
static double at_most(double expected) { return expected + 6 * tg_sqrt(expected) + 32; }

static double candidates_of(uint64_t count, uint64_t target)
{
    const double all = at_most((double)target);
    return all < (double)count ? all : (double)count;
}

/* The most candidates of a range, given how many the vector has. */
static size_t room_of(uint64_t length, uint64_t count, double candidates)
{
    const double most = at_most(candidates * (double)length / (double)count);
    return (size_t)(most < (double)length ? most : (double)length);
}

size_t tg_random_select_room(uint64_t count, uint64_t target, unsigned threads)
{
    const size_t lists = threads == 1 ? 1 : (size_t)TG_RANGES_PER_THREAD * threads;
    const double candidates = candidates_of(count, target);
    return (size_t)candidates + lists * (size_t)(at_most(candidates) - candidates + 1);
}

typedef struct random_selection {
    const tg_onepass *onepass;
    const tg_job *job;
    const tg_ranges *ranges;
    tg_range_list *range_lists;
    uint32_t least; /* elements with this key or a larger one are candidates */
    atomic_bool overflows;
} random_selection;

/* Scratch memory of one thread, for one block. */
typedef struct block_scratch {
    uint32_t counts[TG_BLOCK]; /* 0, 1, ... */
    union {
        uint32_t bits[TG_BLOCK];
        float as_values[TG_BLOCK];
    } keys;
    uint32_t indices[TG_BLOCK]; /* of the block's candidates */
    float values[TG_BLOCK];
} block_scratch;

/* The candidates of a block. */
static size_t collect_block(const random_selection *d, block_scratch *at, uint64_t first, size_t n)
{
    const tg_kernels *k = d->job->kernels;
    uint64_t ties = d->least > 0 ? 0 : UINT64_MAX;
    k->random_keys(tg_hash_key_of(&d->job->draw, TG_FOR_SELECTION), (uint32_t)first, n, at->keys.bits);
    return k->filter(at->counts, at->keys.as_values, n, d->least > 0 ? d->least - 1 : 0, &ties, NULL, 0, at->indices,
                     at->values);
}

static void collect_range(void *of, size_t part)
{
    random_selection *d = of;
    tg_candidates *list = &d->range_lists[part].list;
    const uint64_t end = tg_range_end(d->ranges, part);
    block_scratch at;
    for (size_t i = 0; i < TG_BLOCK; i++)
        at.counts[i] = (uint32_t)i;
    for (uint64_t first = tg_range_first(d->ranges, part); first < end; first += TG_BLOCK) {
        const size_t found = collect_block(d, &at, first, tg_block_size(end, first));
        if (found > list->room - list->count) {
            atomic_store(&d->overflows, true);
            return;
        }
        for (size_t j = 0; j < found; j++)
            list->indices[list->count + j] = (uint32_t)first + at.indices[j];
        memcpy(list->values + list->count, at.values, found * sizeof *at.values);
        list->count += found;
    }
}

static void divide(const random_selection *d, uint32_t *indices, float *values, double candidates)
{
    size_t room = 0;
    for (size_t i = 0; i < d->ranges->parts; i++) {
        const uint64_t length = tg_range_end(d->ranges, i) - tg_range_first(d->ranges, i);
        tg_candidates list = {
            .indices = indices + room, .values = values + room, .room = room_of(length, d->ranges->count, candidates)};
        d->range_lists[i] = (tg_range_list){.list = list};
        room += list.room;
    }
}

/* The threshold for all lists; false if they have too few elements. */
static bool find_threshold(const random_selection *d, uint64_t target, tg_threshold *threshold)
{
    tg_key_list keys[TG_MAX_RANGES];
    uint64_t listed = 0;
    for (size_t i = 0; i < d->ranges->parts; i++) {
        keys[i] = (tg_key_list){d->range_lists[i].list.values, d->range_lists[i].list.count};
        listed += keys[i].n;
    }
    if (listed < target)
        return false;
    *threshold = tg_nth_of_lists(listed >= 2 * TG_RANGE_LEAST ? d->job->pool : NULL, keys, d->ranges->parts, target,
                                 (tg_band){d->least, TG_MAGNITUDE_MASK});
    return true;
}

/* Keeps the selected elements of a list, in order. */
static void filter(tg_candidates *list, uint32_t above, uint64_t *ties)
{
    size_t count = 0;
    for (size_t j = 0; j < list->count; j++) {
        uint32_t key;
        memcpy(&key, &list->values[j], sizeof key);
        const bool is_tie = key == above && *ties > 0;
        *ties -= is_tie;
        list->indices[count] = list->indices[j];
        count += is_tie || key > above;
    }
    list->count = count;
}

/* Whether u lies in memory and need not be computed. */
static bool is_plain(const tg_source *source)
{
    return source->dtype == TG_FLOAT32 && !source->drop_nonfinite &&
           (!source->residual || source->gradient == source->residual);
}

/* Fills in the values of the selected elements. */
static void fill_range(void *of, size_t part)
{
    const random_selection *d = of;
    const tg_source *source = &d->onepass->source;
    const tg_candidates *list = &d->range_lists[part].list;
    const float *u = is_plain(source) ? source->gradient : NULL;
    tg_source_block block;
    for (size_t j = 0; j < list->count; j++) {
        if (!u)
            (void)tg_source_read(source, d->job->kernels, list->indices[j], 1, &block);
        list->values[j] = u ? u[list->indices[j]] : block.u[0];
    }
}

bool tg_random_select(const tg_onepass *o, tg_selected *list, uint32_t *indices, float *values)
{
    const tg_selection *s = o->selection;
    const double candidates = candidates_of(list->ranges.count, s->target), keys = 0x1p31;
    random_selection d = {.onepass = o, .job = s->job, .ranges = &list->ranges, .range_lists = list->range_lists};
    d.least = (uint32_t)(keys - keys * (candidates / (double)list->ranges.count));
    divide(&d, indices, values, candidates);
    tg_parallel(s->job->pool, list->ranges.parts, collect_range, &d);
    if (d.overflows || !find_threshold(&d, s->target, &list->threshold))
        return false;
    uint64_t ties = list->threshold.ties;
    for (size_t i = 0; i < list->ranges.parts; i++)
        filter(&list->range_lists[i].list, list->threshold.above, &ties);
    tg_parallel(s->job->pool, list->ranges.parts, fill_range, &d);
    list->all_selected = true;
    return true;
}
