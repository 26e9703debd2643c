/* Collect the indices of the largest keys, with the keys in the place of values; then keep the k largest. */
#include "codec/drawn.h"

#include <stdatomic.h>
#include <string.h>

#include "base/numeric.h"
#include "codec/nth.h"

/* So many are more than expected only once in millions of times. */
static double at_most(double expected) { return expected + 6 * tg_sqrt(expected) + 32; }

static double candidates_of(uint64_t count, uint64_t wanted)
{
    const double all = at_most((double)wanted);
    return all < (double)count ? all : (double)count;
}

/* Candidates of a range, given how many the vector has. */
static size_t room_of(uint64_t length, uint64_t count, double candidates)
{
    const double most = at_most(candidates * (double)length / (double)count);
    return (size_t)(most < (double)length ? most : (double)length);
}

size_t tg_drawn_room(uint64_t count, uint64_t wanted, unsigned threads)
{
    const size_t lists = threads == 1 ? 1 : (size_t)TG_RANGES_PER_THREAD * threads;
    const double candidates = candidates_of(count, wanted);
    return (size_t)candidates + lists * (size_t)(at_most(candidates) - candidates + 1);
}

typedef struct drawing {
    const tg_onepass *onepass;
    const tg_job *job;
    const tg_ranges *ranges;
    tg_sieve *sieves;
    uint32_t least; /* the key from which on elements are candidates */
    atomic_bool overflows;
} drawing;

/* What a thread works in, block by block. */
typedef struct workplace {
    uint32_t counts[TG_BLOCK]; /* 0, 1, ... */
    union {
        uint32_t bits[TG_BLOCK];
        float as_values[TG_BLOCK];
    } keys;
    uint32_t indices[TG_BLOCK]; /* of the block's candidates */
    float values[TG_BLOCK];
} workplace;

/* The candidates of a block. */
static size_t collect_block(const drawing *d, workplace *at, uint64_t first, size_t n)
{
    const tg_kernels *k = d->job->kernels;
    uint64_t ties = d->least > 0 ? 0 : UINT64_MAX;
    k->random_keys(tg_key_of(&d->job->draw, TG_FOR_SELECTION), (uint32_t)first, n, at->keys.bits);
    return k->winnow(at->counts, at->keys.as_values, n, d->least > 0 ? d->least - 1 : 0, &ties, NULL, 0, at->indices,
                     at->values);
}

static void collect_range(void *of, size_t part)
{
    drawing *d = of;
    tg_candidates *list = &d->sieves[part].list;
    const uint64_t end = tg_range_end(d->ranges, part);
    workplace at;
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

static void divide(const drawing *d, uint32_t *indices, float *values, double candidates)
{
    size_t room = 0;
    for (size_t i = 0; i < d->ranges->parts; i++) {
        const uint64_t length = tg_range_end(d->ranges, i) - tg_range_first(d->ranges, i);
        tg_candidates list = {
            .indices = indices + room, .values = values + room, .room = room_of(length, d->ranges->count, candidates)};
        d->sieves[i] = (tg_sieve){.list = list};
        room += list.room;
    }
}

/* The cut through all lists; false if they have too few. */
static bool find_cut(const drawing *d, uint64_t wanted, tg_cut *cut)
{
    tg_key_list keys[TG_MAX_RANGES];
    uint64_t listed = 0;
    for (size_t i = 0; i < d->ranges->parts; i++) {
        keys[i] = (tg_key_list){d->sieves[i].list.values, d->sieves[i].list.count};
        listed += keys[i].n;
    }
    if (listed < wanted)
        return false;
    *cut = tg_nth_of_lists(listed >= 2 * TG_RANGE_LEAST ? d->job->pool : NULL, keys, d->ranges->parts, wanted,
                           (tg_band){d->least, TG_MAGNITUDE_MASK});
    return true;
}

/* Keeps what the cut takes, in order. */
static void winnow(tg_candidates *list, uint32_t above, uint64_t *ties)
{
    size_t kept = 0;
    for (size_t j = 0; j < list->count; j++) {
        uint32_t key;
        memcpy(&key, &list->values[j], sizeof key);
        const bool is_tie = key == above && *ties > 0;
        *ties -= is_tie;
        list->indices[kept] = list->indices[j];
        kept += is_tie || key > above;
    }
    list->count = kept;
}

/* Whether u lies in memory as it is. */
static bool is_plain(const tg_source *source)
{
    return source->dtype == TG_FLOAT32 && !source->drop_nonfinite &&
           (!source->residual || source->gradient == source->residual);
}

/* The values of a list of indices. */
static void fill_range(void *of, size_t part)
{
    const drawing *d = of;
    const tg_source *source = &d->onepass->source;
    const tg_candidates *list = &d->sieves[part].list;
    const float *u = is_plain(source) ? source->gradient : NULL;
    tg_source_block block;
    for (size_t j = 0; j < list->count; j++) {
        if (!u)
            (void)tg_source_read(source, d->job->kernels, list->indices[j], 1, &block);
        list->values[j] = u ? u[list->indices[j]] : block.u[0];
    }
}

bool tg_drawn_select(const tg_onepass *o, tg_selected *list, uint32_t *indices, float *values)
{
    const tg_selection *s = o->selection;
    const double candidates = candidates_of(list->ranges.count, s->wanted), keys = 0x1p31;
    drawing d = {.onepass = o, .job = s->job, .ranges = &list->ranges, .sieves = list->sieves};
    d.least = (uint32_t)(keys - keys * (candidates / (double)list->ranges.count));
    divide(&d, indices, values, candidates);
    tg_parallel(s->job->pool, list->ranges.parts, collect_range, &d);
    if (d.overflows || !find_cut(&d, s->wanted, &list->cut))
        return false;
    uint64_t ties = list->cut.ties;
    for (size_t i = 0; i < list->ranges.parts; i++)
        winnow(&list->sieves[i].list, list->cut.above, &ties);
    tg_parallel(s->job->pool, list->ranges.parts, fill_range, &d);
    list->winnowed = true;
    return true;
}
