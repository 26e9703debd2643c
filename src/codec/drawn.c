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
    const tg_selection *selection;
    const tg_ranges *ranges;
    tg_sieve *sieves;
    uint32_t least; /* the key from which on elements are candidates */
    atomic_bool overflows;
} drawing;

/* Whether one of 16 keys is at least `least`: the difference has its highest bit set, for no key has it. */
enum { GROUP = 16 };
static bool has_any(const uint32_t *keys, uint32_t least)
{
    uint32_t differences = 0;
    for (size_t i = 0; i < GROUP; i++)
        differences |= least - 1 - keys[i];
    return differences >> 31;
}

/* Candidates among n keys, to a list that has room for them. */
static void collect(tg_candidates *list, const uint32_t *keys, uint32_t least, uint64_t first, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i % GROUP == 0 && n - i >= GROUP && !has_any(keys + i, least)) {
            i += GROUP - 1;
        } else if (keys[i] >= least) {
            list->indices[list->count] = (uint32_t)(first + i);
            memcpy(&list->values[list->count++], &keys[i], sizeof keys[i]);
        }
    }
}

static void collect_range(void *of, size_t part)
{
    drawing *d = of;
    const tg_job *job = d->selection->job;
    tg_candidates *list = &d->sieves[part].list;
    const uint64_t end = tg_range_end(d->ranges, part);
    uint32_t keys[TG_BLOCK];
    for (uint64_t first = tg_range_first(d->ranges, part); first < end; first += TG_BLOCK) {
        const size_t n = tg_block_size(end, first);
        job->kernels->random_keys(tg_key_of(&job->draw, TG_FOR_SELECTION), (uint32_t)first, n, keys);
        if (list->room - list->count < n && list->room - list->count < job->kernels->count_at_least(keys, n, d->least)) {
            atomic_store(&d->overflows, true);
            return;
        }
        collect(list, keys, d->least, first, n);
    }
}

static void divide(const drawing *d, uint32_t *indices, float *values, double candidates)
{
    size_t room = 0;
    for (size_t i = 0; i < d->ranges->parts; i++) {
        const uint64_t length = tg_range_end(d->ranges, i) - tg_range_first(d->ranges, i);
        tg_candidates list = {.indices = indices + room, .values = values + room, .room = room_of(length, d->ranges->count, candidates)};
        d->sieves[i] = (tg_sieve){.list = list};
        room += list.room;
    }
}

/* The cut through all lists; false if they have too few. */
static bool find_cut(const drawing *d, tg_cut *cut)
{
    const uint64_t wanted = d->selection->wanted;
    tg_key_list keys[TG_MAX_RANGES];
    uint64_t listed = 0;
    for (size_t i = 0; i < d->ranges->parts; i++) {
        keys[i] = (tg_key_list){d->sieves[i].list.values, d->sieves[i].list.count};
        listed += keys[i].n;
    }
    if (listed < wanted)
        return false;
    *cut = tg_nth_of_lists(listed >= 2 * TG_RANGE_LEAST ? d->selection->job->pool : NULL, keys, d->ranges->parts, wanted,
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

bool tg_drawn_select(const tg_selection *s, tg_selected *list, uint32_t *indices, float *values)
{
    const double candidates = candidates_of(list->ranges.count, s->wanted), keys = 0x1p31;
    drawing d = {.selection = s, .ranges = &list->ranges, .sieves = list->sieves};
    d.least = (uint32_t)(keys - keys * (candidates / (double)list->ranges.count));
    divide(&d, indices, values, candidates);
    tg_parallel(s->job->pool, list->ranges.parts, collect_range, &d);
    if (d.overflows || !find_cut(&d, &list->cut))
        return false;
    uint64_t ties = list->cut.ties;
    for (size_t i = 0; i < list->ranges.parts; i++)
        winnow(&list->sieves[i].list, list->cut.above, &ties);
    return true;
}
