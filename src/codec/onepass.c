/* Collecting candidates, and selecting among them. */
#include "codec/onepass.h"

#include <stdatomic.h>
#include <string.h>

/* Shorter vectors are selected from block by block: they are in the cache anyway. */
enum { SHORTEST = TG_BLOCK + 1 };

uint64_t tg_onepass_reach(uint64_t wanted, bool exact) { return exact ? wanted : tg_most(wanted) + 1; }

/* Candidates of one range; without what sifting leaves free. */
static uint64_t most_candidates(uint64_t length, uint64_t reach)
{
    const uint64_t most = 2 * reach + TG_BLOCK;
    return most < length ? most : length;
}

size_t tg_onepass_room(uint64_t count, uint64_t reach, unsigned threads)
{
    if (count < SHORTEST)
        return 0;
    const uint64_t lists = threads == 1 ? 1 : (uint64_t)TG_RANGES_PER_THREAD * threads,
                   all = lists * most_candidates(count, reach);
    return (size_t)((all < count ? all : count) + lists * 2 * TG_SIFT_SLACK);
}

void tg_onepass_divide(tg_onepass *o, uint32_t *indices, float *values)
{
    for (size_t i = 0; i < o->ranges.parts; i++) {
        const uint64_t length = tg_range_end(&o->ranges, i) - tg_range_first(&o->ranges, i);
        const size_t room = (size_t)most_candidates(length, o->reach) + 2 * TG_SIFT_SLACK;
        o->sieves[i] = (tg_sieve){.list = {.indices = indices, .values = values, .room = room},
                                  .committed = tg_range_first(&o->ranges, i)};
        indices += room;
        values += room;
    }
}

bool tg_onepass_suits(const tg_selection *s) { return s->job->kernels->sift && s->job->source.count >= SHORTEST; }

/* ---- collecting ---- */

/* The kernel computes u, and writes the residual, by itself. */
static bool is_fused(const tg_source *source)
{
    /* Without feedback alpha and beta are 0. */
    return source->dtype == TG_FLOAT32 && !source->drop_nonfinite && !source->momentum && source->alpha == source->beta;
}

/* u is what is left in the residual, so that it may be written at once and u is still there. */
static bool rest_is_u(const tg_source *source)
{
    return source->residual && !source->momentum && source->alpha == source->beta;
}

float *tg_onepass_losers(const tg_onepass *o)
{
    return o->residual == TG_RESIDUAL_IS_TAKEN ? o->selection->job->source.residual : NULL;
}

/* All candidates of a range go back to the residual that they were taken from. */
static void put_back(void *of, size_t part)
{
    const tg_onepass *o = of;
    tg_candidates *list = &o->sieves[part].list;
    float *residual = tg_onepass_losers(o);
    for (size_t j = 0; residual && j < list->count; j++)
        residual[list->indices[j]] = list->values[j];
    list->count = 0;
}

/* The list is full: all but the largest are let go, and the threshold rises above the least of those that stay, for
 * among equal keys the first win. */
static void prune(const tg_onepass *o, tg_sieve *sieve, uint32_t *scratch)
{
    tg_candidates *list = &sieve->list;
    tg_cut cut = tg_cut_of_list(o, sieve, o->reach, scratch, TG_BLOCK);
    /* Those that stay are still candidates, and taken or not as before. */
    float *residual = cut.above >= o->taken ? tg_onepass_losers(o) : NULL;
    list->count = o->selection->job->kernels->winnow(list->indices, list->values, list->count, cut.above, &cut.ties,
                                                     residual, o->taken, list->indices, list->values);
    sieve->lowest = cut.above;
    list->least = cut.above + 1;
}

/* How much of the residual is kept at once, before it is sifted: what is read for the one is in the cache for the
 * other. */
enum { KEPT_AT_ONCE = 512 };

/* Sifts values that lie in memory; false where one is not finite. */
static bool sift(const tg_onepass *o, tg_sieve *sieve, const float *values, float *residual, uint64_t first, size_t n,
                 uint32_t *scratch)
{
    const tg_kernels *k = o->selection->job->kernels;
    const bool keep = residual && o->source.kept;
    for (size_t done = 0; done < n;) {
        const size_t piece = keep && n - done > KEPT_AT_ONCE ? KEPT_AT_ONCE : n - done;
        if (keep)
            tg_source_keep(&o->source, k, first + done, piece);
        const size_t sifted = k->sift(&sieve->list, values + done, residual ? residual + done : NULL, o->source.alpha,
                                      (uint32_t)(first + done), piece);
        done += sifted;
        if (residual)
            sieve->committed = first + done;
        if (sieve->list.nonfinite)
            return false;
        if (sifted < piece)
            prune(o, sieve, scratch);
    }
    return true;
}

static bool sift_block(const tg_onepass *o, tg_sieve *sieve, uint64_t first, size_t n, tg_select_scratch *scratch)
{
    const tg_kernels *k = o->selection->job->kernels;
    const tg_source *source = &o->source;
    if (is_fused(source))
        return sift(o, sieve, (const float *)source->gradient + first,
                    source->residual ? source->residual + first : NULL, first, n, scratch->keys);
    sieve->dropped += tg_source_read(source, k, first, n, &scratch->block);
    if (!sift(o, sieve, scratch->block.u, NULL, first, n, scratch->keys))
        return false;
    if (rest_is_u(source)) {
        tg_source_keep(source, k, first, n);
        tg_source_commit(source, k, first, n, &scratch->block, NULL);
        sieve->committed = first + n;
    }
    return true;
}

typedef struct collection {
    const tg_onepass *onepass;
    atomic_bool nonfinite;
} collection;

/* Once. The list may have been pruned, and want more by now. */
static void pass_limit(const tg_onepass *o, tg_sieve *sieve)
{
    if (sieve->before_limit != SIZE_MAX)
        return;
    sieve->before_limit = sieve->list.count;
    if (sieve->list.least == o->least)
        sieve->list.least++;
}

static void collect_range(void *of, size_t part)
{
    collection *c = of;
    const tg_onepass *o = c->onepass;
    tg_sieve *sieve = &o->sieves[part];
    tg_select_scratch scratch;
    const uint64_t end = tg_range_end(&o->ranges, part);
    sieve->list.least = sieve->lowest = o->least;
    sieve->list.taken = o->taken;
    sieve->list.share = (float)o->reach / (float)o->source.count;
    sieve->before_limit = SIZE_MAX;
    sieve->dropped = 0;
    for (uint64_t first = tg_range_first(&o->ranges, part);
         first < end && !atomic_load_explicit(&c->nonfinite, memory_order_relaxed); first += TG_BLOCK) {
        if (first >= o->limit)
            pass_limit(o, sieve);
        if (!sift_block(o, sieve, first, tg_block_size(end, first), &scratch))
            atomic_store(&c->nonfinite, true);
    }
    if (sieve->before_limit == SIZE_MAX)
        sieve->before_limit = sieve->list.count;
    if (o->source.kept)
        o->selection->job->kernels->aside_is_set();
}

/* Collects from a threshold on. False where a value is not finite. */
static bool collect(tg_onepass *o, uint32_t least)
{
    collection c = {.onepass = o};
    if (rest_is_u(&o->source))
        o->residual = is_fused(&o->source) ? TG_RESIDUAL_IS_TAKEN : TG_RESIDUAL_IS_REST;
    o->least = least;
    tg_parallel(o->selection->job->pool, o->ranges.parts, collect_range, &c);
    if (is_fused(&o->source))
        return !c.nonfinite;
    o->selection->job->dropped = 0; /* they are met again */
    for (size_t i = 0; i < o->ranges.parts; i++)
        o->selection->job->dropped += o->sieves[i].dropped;
    return !c.nonfinite;
}

/* u is to be read from where it is now: a residual that holds it is read like a gradient to which nothing is added, for
 * u + 0 * u is u, to the bit. */
static void read_what_is_left(tg_onepass *o)
{
    if (rest_is_u(&o->source))
        o->source = (tg_source){.gradient = o->source.residual,
                                .dtype = TG_FLOAT32,
                                .count = o->source.count,
                                .residual = o->source.residual};
}

/* The threshold was too high: whatever was collected goes back. */
static void start_again(tg_onepass *o)
{
    tg_parallel(o->selection->job->pool, o->ranges.parts, put_back, o);
    read_what_is_left(o);
}

/* A value is not finite: what was committed so far of a range is put back, exactly if it was kept, else to rounding. It
 * is met in the first collection, so u is still computed from gradient and residual. */
static void undo(void *of, size_t part)
{
    const tg_onepass *o = of;
    const tg_job *job = o->selection->job;
    const uint64_t end = o->sieves[part].committed;
    tg_source_block block;
    float nothing[TG_BLOCK] = {0};
    if (job->source.kept) {
        tg_source_restore(&job->source, tg_range_first(&o->ranges, part), end);
        return;
    }
    put_back(of, part);
    for (uint64_t first = tg_range_first(&o->ranges, part); first < end; first += TG_BLOCK)
        tg_source_undo(&job->source, job->kernels, first, tg_block_size(end, first), nothing, &block);
}

/* ---- selecting among the candidates ---- */

/* Below this key, some may be missing in a list. */
static uint32_t complete_from(const tg_onepass *o)
{
    uint32_t key = o->least;
    for (size_t i = 0; i < o->ranges.parts; i++)
        key = o->sieves[i].list.least > key ? o->sieves[i].list.least : key;
    return key;
}

/* Whether the lists have the `reach` largest of the vector. A list that was pruned has that many by itself; and what
 * was left out from the limit on comes after that many. */
static bool holds_reach(const tg_onepass *o)
{
    uint64_t before_limit = 0;
    for (size_t i = 0; i < o->ranges.parts; i++)
        before_limit += o->sieves[i].before_limit;
    if (o->limit < o->source.count)
        return before_limit >= o->reach;
    return o->least == 0 || tg_listed(o) >= o->reach;
}

/* Elements with at least this key. Below the candidates there are too many, or it is not known. */
static uint64_t count_list(void *data, uint32_t key)
{
    const tg_onepass *o = data;
    const uint32_t complete = complete_from(o);
    if (key == complete && complete == o->least)
        return tg_listed(o);
    if (key < complete)
        return holds_reach(o) ? o->reach : TG_NOT_KNOWN;
    return tg_count_lists(o, key);
}

static tg_cut exact_of_list(void *data)
{
    tg_onepass *o = data;
    return tg_cut_of_lists(o, o->selection->wanted);
}

/* False if the list does not reach far enough. */
static bool find_cut(tg_onepass *o, const tg_guesses *guesses, tg_cut *cut)
{
    const tg_selection *s = o->selection;
    if (guesses->count > 0) {
        const tg_inquiry inquiry = {o, s->wanted, s->job->source.count, count_list, exact_of_list};
        return tg_search_threshold(&inquiry, guesses, cut);
    }
    if (!holds_reach(o))
        return false;
    *cut = exact_of_list(o);
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
        if (find_cut(o, guesses, &o->cut))
            return TG_OK;
        start_again(o);
    }
}

tg_status tg_onepass_commit(tg_onepass *o)
{
    o->source = o->selection->job->source;
    o->limit = o->source.count;
    o->taken = TG_INFINITY_BITS;
    if (!collect(o, TG_INFINITY_BITS)) {
        tg_parallel(o->selection->job->pool, o->ranges.parts, undo, o);
        return TG_NONFINITE;
    }
    if (rest_is_u(&o->source))
        o->residual = TG_RESIDUAL_IS_REST;
    read_what_is_left(o);
    return TG_OK;
}
