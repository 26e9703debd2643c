/* Collecting candidates, and selecting among them. */
#include "codec/onepass.h"

#include <string.h>

#include "base/bytes.h"
#include "codec/nth.h"

/* Shorter vectors are selected from block by block: they are in the cache anyway. */
enum { SHORTEST = TG_BLOCK + 1 };

uint64_t tg_onepass_reach(uint64_t wanted, bool exact) { return exact ? wanted : tg_most(wanted) + 1; }

size_t tg_onepass_room(uint64_t count, uint64_t reach)
{
    if (count < SHORTEST)
        return 0;
    uint64_t room = 2 * reach + TG_BLOCK;
    return (size_t)(room < count ? room : count) + 2 * TG_SIFT_SLACK;
}

bool tg_onepass_suits(const tg_selection *s)
{
    return s->job->kernels->sift && !s->by_random_key && s->job->source.count >= SHORTEST;
}

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

/* All candidates go back to the residual that they were taken from. */
static void put_back(tg_onepass *o)
{
    float *residual = tg_onepass_losers(o);
    for (size_t j = 0; residual && j < o->list.count; j++)
        residual[o->list.indices[j]] = o->list.values[j];
    o->list.count = 0;
}

/* The cut that takes exactly `rank` of the list. */
static tg_cut cut_at(tg_onepass *o, uint64_t rank)
{
    const tg_candidates *list = &o->list;
    /* The key is most likely below `high`, where few are: those are singled out, in the list's unused room. */
    uint32_t *keys = list->indices + list->count;
    const size_t room = list->room - list->count;
    const size_t below = o->selection->job->kernels->keys_below(list->values, list->count, o->high, keys, room);
    const uint64_t above = list->count - below;
    if (below <= room && rank > above) {
        tg_cut cut = tg_nth_of_keys(keys, below, rank - above, (tg_band){o->lowest, o->high});
        cut.taken += above;
        return cut;
    }
    return tg_nth_of_array(list->values, list->count, rank, (tg_band){o->lowest, TG_INFINITY_BITS}, o->pilot,
                           tg_pilot_size(o->source.count));
}

/* The list is full: all but the largest are let go, and the threshold rises above the least of those that stay, for among equal keys the first
 * win. */
static void prune(tg_onepass *o)
{
    tg_candidates *list = &o->list;
    tg_cut cut = cut_at(o, o->reach);
    list->count = o->selection->job->kernels->winnow(list->indices, list->values, list->count, cut.above, &cut.ties,
                                                     tg_onepass_losers(o), list->indices, list->values);
    o->lowest = cut.above;
    list->least = cut.above + 1;
    o->pruned = true;
}

/* Sifts values that lie in memory; false where one is not finite. */
static bool sift(tg_onepass *o, const float *values, float *residual, uint64_t first, size_t n)
{
    for (size_t done = 0;;) {
        done += o->selection->job->kernels->sift(&o->list, values + done, residual ? residual + done : NULL, o->source.alpha,
                                                 (uint32_t)(first + done), n - done);
        if (residual)
            o->committed = first + done;
        if (o->list.nonfinite)
            return false;
        if (done == n)
            return true;
        prune(o);
    }
}

static bool sift_block(tg_onepass *o, uint64_t first, size_t n)
{
    const tg_selection *s = o->selection;
    const tg_kernels *k = s->job->kernels;
    const tg_source *source = &o->source;
    if (is_fused(source))
        return sift(o, (const float *)source->gradient + first, source->residual ? source->residual + first : NULL, first, n);
    s->job->dropped += tg_source_read(source, k, first, n, s->block);
    if (!sift(o, s->block->u, NULL, first, n))
        return false;
    if (rest_is_u(source)) {
        tg_source_commit(source, k, first, n, s->block, NULL);
        o->committed = first + n;
    }
    return true;
}

/* Collects from a threshold on. False where a value is not finite. */
static bool collect(tg_onepass *o, uint32_t least)
{
    const uint64_t count = o->source.count;
    if (rest_is_u(&o->source))
        o->residual = is_fused(&o->source) ? TG_RESIDUAL_IS_TAKEN : TG_RESIDUAL_IS_REST;
    o->list.least = o->lowest = least;
    o->list.share = (float)o->reach / (float)count;
    if (!is_fused(&o->source))
        o->selection->job->dropped = 0; /* they are met again */
    for (uint64_t first = 0; first < count; first += TG_BLOCK)
        if (!sift_block(o, first, tg_block_size(count, first)))
            return false;
    return true;
}

/* The threshold was too high: whatever was collected goes back, and u is to be read from where it is now. A residual that holds u is
 * collected from like a gradient to which nothing is added: u + 0 * u is u, to the bit. */
static void start_again(tg_onepass *o)
{
    put_back(o);
    if (rest_is_u(&o->source))
        o->source = (tg_source){.gradient = o->source.residual,
                                .dtype = TG_FLOAT32,
                                .count = o->source.count,
                                .residual = o->source.residual};
    o->pruned = false;
}

/* A value is not finite: what was committed so far is put back to rounding. */
static void undo(tg_onepass *o)
{
    tg_selection *s = o->selection;
    const tg_source *source = &s->job->source;
    put_back(o);
    memset(s->keys, 0, TG_BLOCK * sizeof *s->keys);
    for (uint64_t first = 0; first < o->committed; first += TG_BLOCK)
        tg_source_undo(source, s->job->kernels, first, tg_block_size(o->committed, first), (const float *)s->keys, s->block);
}

/* ---- selecting among the candidates ---- */

static bool holds_reach(const tg_onepass *o) { return o->list.count >= o->reach || o->pruned || o->list.least == 0; }

/* Elements with at least this key. Below the candidates there are too many, or it is not known. */
static uint64_t count_list(void *data, uint32_t key)
{
    const tg_onepass *o = data;
    const tg_selection *s = o->selection;
    if (key == o->list.least && !o->pruned)
        return o->list.count;
    if (key < o->list.least)
        return holds_reach(o) ? o->reach : TG_NOT_KNOWN;
    uint64_t passing = 0;
    for (size_t first = 0; first < o->list.count; first += TG_BLOCK) {
        size_t n = tg_block_size(o->list.count, first);
        s->job->kernels->magnitude_keys(o->list.values + first, n, s->keys);
        passing += s->job->kernels->count_at_least(s->keys, n, key);
    }
    return passing;
}

static tg_cut exact_of_list(void *data)
{
    tg_onepass *o = data;
    return cut_at(o, o->selection->wanted);
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
        if (!collect(o, attempt < 2 ? tg_pilot_key(o, guesses, attempt > 0) : 0)) {
            undo(o);
            return TG_NONFINITE;
        }
        if (find_cut(o, guesses, &o->cut))
            return TG_OK;
        start_again(o);
    }
}
