/* Collecting candidates, and finding the threshold among them. */
#include "codec/onepass.h"

#include <stdatomic.h>
#include <string.h>

/* Shorter vectors are selected from block by block: they stay in the cache, so further passes are cheap. */
enum { SHORTEST = TG_BLOCK + 1 };

uint64_t tg_onepass_needed(uint64_t target, bool exact) { return exact ? target : tg_max_selected(target) + 1; }

/* The most candidates of one range, without the slack that the kernel needs. */
static uint64_t most_candidates(uint64_t length, uint64_t needed)
{
    const uint64_t most = 2 * needed + TG_BLOCK;
    return most < length ? most : length;
}

size_t tg_onepass_room(uint64_t count, uint64_t needed, unsigned threads)
{
    if (count < SHORTEST)
        return 0;
    const uint64_t lists = threads == 1 ? 1 : (uint64_t)TG_RANGES_PER_THREAD * threads,
                   all = lists * most_candidates(count, needed);
    return (size_t)((all < count ? all : count) + lists * 2 * TG_COLLECT_SLACK);
}

void tg_onepass_divide(tg_onepass *o, uint32_t *indices, float *values)
{
    for (size_t i = 0; i < o->ranges.parts; i++) {
        const uint64_t length = tg_range_end(&o->ranges, i) - tg_range_first(&o->ranges, i);
        const size_t room = (size_t)most_candidates(length, o->needed) + 2 * TG_COLLECT_SLACK;
        o->range_lists[i] = (tg_range_list){.list = {.indices = indices, .values = values, .room = room},
                                            .committed = tg_range_first(&o->ranges, i)};
        indices += room;
        values += room;
    }
}

bool tg_onepass_suits(const tg_selection *s) { return s->job->kernels->collect && s->job->source.count >= SHORTEST; }

/* ---- collecting ---- */

/* Whether the kernel computes u and writes the residual by itself. */
static bool is_fused(const tg_source *source)
{
    /* Without feedback alpha and beta are 0. */
    return source->dtype == TG_FLOAT32 && !source->drop_nonfinite && !source->momentum && source->alpha == source->beta;
}

/* Whether the rest of an element is u. Then the residual may be written at once, because u can still be read from
 * it. */
static bool rest_is_u(const tg_source *source)
{
    return source->residual && !source->momentum && source->alpha == source->beta;
}

float *tg_onepass_cleared(const tg_onepass *o)
{
    return o->residual == TG_RESIDUAL_CLEARED ? o->selection->job->source.residual : NULL;
}

/* Writes the values of all candidates of a range back to the residual that they were cleared from. */
static void put_back(void *of, size_t part)
{
    const tg_onepass *o = of;
    tg_candidates *list = &o->range_lists[part].list;
    float *residual = tg_onepass_cleared(o);
    for (size_t j = 0; residual && j < list->count; j++)
        residual[list->indices[j]] = list->values[j];
    list->count = 0;
}

/* The list is full: keeps the `needed` largest, and raises the threshold above the smallest of these, because among
 * equal keys those with the lowest index are selected. */
static void prune(const tg_onepass *o, tg_range_list *range_list, uint32_t *scratch)
{
    tg_candidates *list = &range_list->list;
    tg_threshold threshold = tg_threshold_of_list(o, range_list, o->needed, scratch, TG_BLOCK);
    /* The remaining candidates stay cleared or not cleared as they were. */
    float *residual = threshold.above >= o->clear_from ? tg_onepass_cleared(o) : NULL;
    list->count = o->selection->job->kernels->filter(list->indices, list->values, list->count, threshold.above,
                                                     &threshold.ties, residual, o->clear_from, list->indices,
                                                     list->values);
    range_list->lowest = threshold.above;
    list->least = threshold.above + 1;
}

/* How many elements of the residual are saved to the undo buffer at a time, before the kernel reads the same elements:
 * few enough that they are still in the cache then. */
enum { SAVED_AT_ONCE = 512 };

/* Lists the candidates among values that lie in memory; false where one is not finite. */
static bool collect_values(const tg_onepass *o, tg_range_list *range_list, const float *values, float *residual,
                           uint64_t first, size_t n, uint32_t *scratch)
{
    const tg_kernels *k = o->selection->job->kernels;
    const bool save = residual && o->source.undo;
    for (size_t done = 0; done < n;) {
        const size_t piece = save && n - done > SAVED_AT_ONCE ? SAVED_AT_ONCE : n - done;
        if (save)
            tg_source_save(&o->source, k, first + done, piece);
        const size_t collected = k->collect(&range_list->list, values + done, residual ? residual + done : NULL,
                                            o->source.alpha, (uint32_t)(first + done), piece);
        done += collected;
        if (residual)
            range_list->committed = first + done;
        if (range_list->list.nonfinite)
            return false;
        if (collected < piece)
            prune(o, range_list, scratch);
    }
    return true;
}

static bool collect_block(const tg_onepass *o, tg_range_list *range_list, uint64_t first, size_t n,
                          tg_select_scratch *scratch)
{
    const tg_kernels *k = o->selection->job->kernels;
    const tg_source *source = &o->source;
    if (is_fused(source))
        return collect_values(o, range_list, (const float *)source->gradient + first,
                              source->residual ? source->residual + first : NULL, first, n, scratch->keys);
    range_list->dropped += tg_source_read(source, k, first, n, &scratch->block);
    if (!collect_values(o, range_list, scratch->block.u, NULL, first, n, scratch->keys))
        return false;
    if (rest_is_u(source)) {
        tg_source_save(source, k, first, n);
        tg_source_commit(source, k, first, n, &scratch->block, NULL);
        range_list->committed = first + n;
    }
    return true;
}

typedef struct collection {
    const tg_onepass *onepass;
    atomic_bool nonfinite;
} collection;

/* Called for each block from the limit on, acts once. A list that was pruned has a higher threshold by now. */
static void pass_limit(const tg_onepass *o, tg_range_list *range_list)
{
    if (range_list->before_limit != SIZE_MAX)
        return;
    range_list->before_limit = range_list->list.count;
    if (range_list->list.least == o->least)
        range_list->list.least++;
}

static void collect_range(void *of, size_t part)
{
    collection *c = of;
    const tg_onepass *o = c->onepass;
    tg_range_list *range_list = &o->range_lists[part];
    tg_select_scratch scratch;
    const uint64_t end = tg_range_end(&o->ranges, part);
    range_list->list.least = range_list->lowest = o->least;
    range_list->list.clear_from = o->clear_from;
    range_list->list.share = (float)o->needed / (float)o->source.count;
    range_list->before_limit = SIZE_MAX;
    range_list->dropped = 0;
    for (uint64_t first = tg_range_first(&o->ranges, part);
         first < end && !atomic_load_explicit(&c->nonfinite, memory_order_relaxed); first += TG_BLOCK) {
        if (first >= o->limit)
            pass_limit(o, range_list);
        if (!collect_block(o, range_list, first, tg_block_size(end, first), &scratch))
            atomic_store(&c->nonfinite, true);
    }
    if (range_list->before_limit == SIZE_MAX)
        range_list->before_limit = range_list->list.count;
    if (o->source.undo)
        o->selection->job->kernels->nontemporal_fence();
}

/* Lists all elements with the key `least` or a larger one. False where a value is not finite. */
static bool collect(tg_onepass *o, uint32_t least)
{
    collection c = {.onepass = o};
    if (rest_is_u(&o->source))
        o->residual = is_fused(&o->source) ? TG_RESIDUAL_CLEARED : TG_RESIDUAL_REST;
    o->least = least;
    tg_parallel(o->selection->job->pool, o->ranges.parts, collect_range, &c);
    if (is_fused(&o->source))
        return !c.nonfinite;
    o->selection->job->dropped = 0; /* they are counted again in every pass */
    for (size_t i = 0; i < o->ranges.parts; i++)
        o->selection->job->dropped += o->range_lists[i].dropped;
    return !c.nonfinite;
}

/* From now on u is read from where it is: a residual that holds u is read like a gradient without feedback. The result
 * is the same bits, for u + 0 * u is u. */
static void read_what_is_left(tg_onepass *o)
{
    if (rest_is_u(&o->source))
        o->source = (tg_source){.gradient = o->source.residual,
                                .dtype = TG_FLOAT32,
                                .count = o->source.count,
                                .residual = o->source.residual};
}

/* The threshold was too high: everything that was collected is written back. */
static void start_again(tg_onepass *o)
{
    tg_parallel(o->selection->job->pool, o->ranges.parts, put_back, o);
    read_what_is_left(o);
}

/* A value is not finite: restores what has been written of a range, exactly if it was saved, otherwise to rounding.
 * This happens in the first pass only, so u is still computed from gradient and residual. */
static void undo(void *of, size_t part)
{
    const tg_onepass *o = of;
    const tg_job *job = o->selection->job;
    const uint64_t end = o->range_lists[part].committed;
    tg_source_block block;
    float nothing[TG_BLOCK] = {0};
    if (job->source.undo) {
        tg_source_restore(&job->source, tg_range_first(&o->ranges, part), end);
        return;
    }
    put_back(of, part);
    for (uint64_t first = tg_range_first(&o->ranges, part); first < end; first += TG_BLOCK)
        tg_source_recompute(&job->source, job->kernels, first, tg_block_size(end, first), nothing, &block);
}

/* ---- selecting among the candidates ---- */

/* The lists are complete for this key and larger ones. */
static uint32_t complete_from(const tg_onepass *o)
{
    uint32_t key = o->least;
    for (size_t i = 0; i < o->ranges.parts; i++)
        key = o->range_lists[i].list.least > key ? o->range_lists[i].list.least : key;
    return key;
}

/* Whether the lists contain the `needed` largest elements of the vector. A list that was pruned contains that many by
 * itself. Elements that were left out because of the limit come after that many equal ones. */
static bool holds_needed(const tg_onepass *o)
{
    uint64_t before_limit = 0;
    for (size_t i = 0; i < o->ranges.parts; i++)
        before_limit += o->range_lists[i].before_limit;
    if (o->limit < o->source.count)
        return before_limit >= o->needed;
    return o->least == 0 || tg_listed(o) >= o->needed;
}

/* How many elements have at least this key. For keys below those of the candidates the answer is "too many", or
 * unknown. */
static uint64_t count_list(void *data, uint32_t key)
{
    const tg_onepass *o = data;
    const uint32_t complete = complete_from(o);
    if (key == complete && complete == o->least)
        return tg_listed(o);
    if (key < complete)
        return holds_needed(o) ? o->needed : TG_COUNT_UNKNOWN;
    return tg_count_lists(o, key);
}

static tg_threshold exact_of_list(void *data)
{
    tg_onepass *o = data;
    return tg_threshold_of_lists(o, o->selection->target);
}

/* False if the lists do not have enough candidates. */
static bool find_threshold(tg_onepass *o, const tg_guesses *guesses, tg_threshold *threshold)
{
    const tg_selection *s = o->selection;
    if (guesses->count > 0) {
        const tg_threshold_search search = {o, s->target, s->job->source.count, count_list, exact_of_list};
        return tg_search_threshold(&search, guesses, threshold);
    }
    if (!holds_needed(o))
        return false;
    *threshold = exact_of_list(o);
    return true;
}

tg_status tg_onepass_select(tg_onepass *o, const tg_guesses *guesses)
{
    o->source = o->selection->job->source;
    for (int attempt = 0;; attempt++) {
        o->limit = o->source.count;
        if (!collect(o, attempt < 2 ? tg_pilot_key(o, guesses, attempt > 0) : 0)) {
            tg_parallel(o->selection->job->pool, o->ranges.parts, undo, o);
            return TG_NONFINITE;
        }
        if (find_threshold(o, guesses, &o->threshold))
            return TG_OK;
        start_again(o);
    }
}

tg_status tg_onepass_commit(tg_onepass *o)
{
    o->source = o->selection->job->source;
    o->limit = o->source.count;
    o->clear_from = TG_INFINITY_BITS;
    if (!collect(o, TG_INFINITY_BITS)) {
        tg_parallel(o->selection->job->pool, o->ranges.parts, undo, o);
        return TG_NONFINITE;
    }
    if (rest_is_u(&o->source))
        o->residual = TG_RESIDUAL_REST;
    read_what_is_left(o);
    return TG_OK;
}
