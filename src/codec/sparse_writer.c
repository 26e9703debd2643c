/* Portion by portion: filters the lists and codes the indices, then the values. These lie before the index streams,
 * which start behind the room that values can take, and are moved if they take less. */
#include "codec/sparse_writer.h"

#include <stdatomic.h>
#include <string.h>

#include "base/bytes.h"
#include "base/numeric.h"
#include "codec/levels.h"
#include "codec/positions.h"
#include "codec/streams.h"

tg_dtype tg_values_dtype(tg_values values)
{
    return values == TG_VALUES_FP16 ? TG_FLOAT16 : values == TG_VALUES_BF16 ? TG_BFLOAT16 : TG_FLOAT32;
}

typedef struct writing {
    tg_job *job;
    const tg_selected *list;
    tg_positions_writer begun;
    size_t portions, ranges_each; /* ranges in a portion */
    uint64_t step;                /* elements in a portion */
    uint8_t *values;              /* on the wire */
    atomic_uint_fast64_t saturated;
} writing;

static size_t first_range(const writing *w, size_t portion) { return portion * w->ranges_each; }

static size_t end_range(const writing *w, size_t portion)
{
    const size_t end = (portion + 1) * w->ranges_each;
    return end < w->list->ranges.parts ? end : w->list->ranges.parts;
}

/* A portion is a range, or where segments are longer than ranges, the ranges of one segment. */
static void divide(writing *w)
{
    const tg_ranges *ranges = &w->list->ranges;
    w->ranges_each = 1;
    while (ranges->parts > w->ranges_each && ranges->step * w->ranges_each < UINT64_C(1) << w->begun.log)
        w->ranges_each *= 2;
    w->step = ranges->step * w->ranges_each;
    w->portions = (ranges->parts + w->ranges_each - 1) / w->ranges_each;
    for (size_t i = 0; i < w->portions; i++) {
        const tg_candidates *list = &w->list->range_lists[first_range(w, i)].list;
        w->list->portions[i] = (tg_portion){
            .indices = list->indices, .values = list->values, .ties = w->list->threshold.ties};
    }
}

/* ---- indices ---- */

static void count_ties(void *of, size_t portion)
{
    const writing *w = of;
    uint64_t equal = 0;
    for (size_t i = first_range(w, portion); i < end_range(w, portion); i++) {
        const tg_candidates *list = &w->list->range_lists[i].list;
        for (size_t j = 0; j < list->count; j++)
            equal += (tg_float_bits(list->values[j]) & TG_MAGNITUDE_MASK) == w->list->threshold.above;
    }
    w->list->portions[portion].ties = equal;
}

/* Of equal keys those that come first in the vector are selected. */
static void share_out_ties(writing *w)
{
    if (w->portions == 1 || w->list->all_selected || w->list->threshold.ties == 0)
        return;
    tg_parallel(w->job->pool, w->portions, count_ties, w);
    uint64_t left = w->list->threshold.ties;
    for (size_t i = 0; i < w->portions; i++) {
        tg_portion *p = &w->list->portions[i];
        p->ties = p->ties < left ? p->ties : left;
        left -= p->ties;
    }
}

/* The first place from `from` on whose index is at least `limit`. Doubling steps, then a binary search. */
static size_t first_from(const tg_candidates *list, size_t from, uint64_t limit)
{
    size_t step = 1;
    while (from + step < list->count && list->indices[from + step] < limit)
        step *= 2;
    size_t to = from + step < list->count ? from + step : list->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (list->indices[middle] < limit)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Appends the selected elements among places `from` to `to` of a list to the portion. */
static void move_selected(const writing *w, tg_portion *p, const tg_candidates *list, size_t from, size_t to)
{
    if (!w->list->all_selected) {
        p->count += w->job->kernels->filter(list->indices + from, list->values + from, to - from,
                                            w->list->threshold.above, &p->ties, w->list->cleared, w->list->clear_from,
                                            p->indices + p->count, p->values + p->count);
        return;
    }
    if (p->indices + p->count != list->indices + from) {
        memmove(p->indices + p->count, list->indices + from, (to - from) * sizeof *list->indices);
        memmove(p->values + p->count, list->values + from, (to - from) * sizeof *list->values);
    }
    p->count += to - from;
}

/* Lists are filtered segment by segment, and a segment's indices are coded while they are in the cache. */
static void write_indices(void *of, size_t portion)
{
    writing *w = of;
    tg_portion *p = &w->list->portions[portion];
    tg_positions_writer positions = tg_positions_from(&w->begun, portion * w->step);
    const uint64_t end = portion + 1 < w->portions ? (portion + 1) * w->step : w->job->source.count;
    size_t range_list = first_range(w, portion), next = 0;
    p->stream = positions.at;
    while (positions.next < end) {
        const uint64_t limit = tg_positions_limit(&positions);
        const size_t before = p->count;
        for (;; range_list++, next = 0) {
            const tg_candidates *list = &w->list->range_lists[range_list].list;
            const size_t to = first_from(list, next, w->list->origin + limit);
            move_selected(w, p, list, next, to);
            next = to;
            if (range_list + 1 == end_range(w, portion) || tg_range_end(&w->list->ranges, range_list) >= limit)
                break;
        }
        tg_positions_put(&positions, p->indices + before, p->count - before);
    }
    p->end = positions.at;
}

/* How many selected elements come before each portion. */
static void count_before(writing *w)
{
    w->list->portions[0].before = 0;
    for (size_t i = 1; i < w->portions; i++)
        w->list->portions[i].before = w->list->portions[i - 1].before + w->list->portions[i - 1].count;
}

/* Moves the streams of all portions together, from `at` on; returns their end. Not inlined, so that its list is not on
 * the stack while values are written. */
__attribute__((noinline)) static uint8_t *join(const writing *w, uint8_t *at)
{
    tg_stream streams[TG_MAX_RANGES];
    for (size_t i = 0; i < w->portions; i++) {
        const tg_portion *p = &w->list->portions[i];
        streams[i] = (tg_stream){p->stream, (size_t)(p->end - p->stream)};
    }
    return tg_streams_join(w->job->pool, streams, w->portions, at);
}

/* ---- values ---- */

static const float *sent_of(const writing *w, const tg_portion *p)
{
    return w->list->sent ? w->list->sent + p->before : p->values;
}

/* Subtracts what was sent from the residual, and clears the momentum of the sent elements. With alpha different from
 * beta the difference may overflow, as in dense.c. */
static void settle(writing *w, const tg_portion *p)
{
    const tg_source *source = &w->job->source;
    const float *sent = sent_of(w, p);
    uint64_t limited = 0;
    if (source->residual && w->list->residual == TG_RESIDUAL_REST)
        for (size_t j = 0; j < p->count; j++)
            source->residual[p->indices[j]] = tg_limited(source->residual[p->indices[j]] - sent[j], &limited);
    else if (source->residual && w->list->sent)
        for (size_t j = 0; j < p->count; j++)
            source->residual[p->indices[j]] = p->values[j] - sent[j];
    for (size_t j = 0; source->momentum && j < p->count; j++)
        source->momentum[p->indices[j]] = 0;
    atomic_fetch_add(&w->saturated, limited);
}

static void write_plain(void *of, size_t portion)
{
    writing *w = of;
    const tg_portion *p = &w->list->portions[portion];
    const tg_kernels *k = w->job->kernels;
    const tg_dtype dtype = tg_values_dtype(tg_spec_values(w->job->spec));
    uint8_t *wire = w->values + p->before * tg_dtype_size(dtype);
    uint64_t saturated = 0;
    for (size_t first = 0; first < p->count; first += TG_BLOCK, wire += TG_BLOCK * tg_dtype_size(dtype)) {
        size_t n = tg_block_size(p->count, first);
        saturated += k->store(dtype, p->values + first, n, wire);
        if (w->list->sent)
            k->load(dtype, wire, n, w->list->sent + p->before + first);
    }
    atomic_fetch_add(&w->saturated, saturated);
    settle(w, p);
}

static void gather(void *of, size_t portion)
{
    const writing *w = of;
    const tg_portion *p = &w->list->portions[portion];
    memcpy(w->list->gathered + p->before, p->values, p->count * sizeof *p->values);
}

static void settle_portion(void *of, size_t portion)
{
    writing *w = of;
    settle(w, &w->list->portions[portion]);
}

static tg_levels_shape levels_of(const writing *w)
{
    return tg_levels_shape_of(w->job->spec, w->list->threshold.selected);
}

/* Returns the end. */
static uint8_t *write_levels(writing *w)
{
    tg_job *job = w->job;
    const float *values = w->list->portions[0].values;
    if (w->portions > 1 && w->list->gathered) {
        tg_parallel(job->pool, w->portions, gather, w);
        values = w->list->gathered;
    }
    const tg_levels_shape shape = levels_of(w);
    tg_job inner = {.kernels = job->kernels,
                    .pool = job->pool,
                    .spec = job->spec,
                    .source = {.gradient = values, .dtype = TG_FLOAT32, .count = job->selected},
                    .draw = job->draw,
                    .workspace = w->list->levels_workspace,
                    .sent = w->list->sent,
                    .payload = w->values};
    (void)tg_levels_encode(&inner, &shape); /* cannot fail: the values are finite */
    job->layout = inner.layout;
    tg_parallel(job->pool, w->portions, settle_portion, w);
    return w->values + inner.payload_size;
}

void tg_selected_write(tg_job *job, const tg_selected *list)
{
    writing w = {.job = job, .list = list};
    w.begun = tg_positions_begin(job->source.count, list->threshold.selected, job->payload, job->kernels->gaps);
    w.begun.origin = list->origin;
    const bool as_levels = tg_spec_values(job->spec) == TG_VALUES_LEVELS;
    const tg_levels_shape shape = levels_of(&w);
    job->selected = list->threshold.selected;
    w.values = w.begun.at;
    w.begun.at += as_levels ? tg_levels_bound(&shape)
                            : job->selected * tg_dtype_size(tg_values_dtype(tg_spec_values(job->spec)));
    divide(&w);
    share_out_ties(&w);
    tg_parallel(job->pool, w.portions, write_indices, &w);
    count_before(&w);
    uint8_t *values_end = w.begun.at;
    if (as_levels)
        values_end = write_levels(&w);
    else
        tg_parallel(job->pool, w.portions, write_plain, &w);
    job->saturated += w.saturated;
    job->payload_size = (size_t)(join(&w, values_end) - job->payload);
}

/* ---- a list in place of a payload ---- */

static void select_portion(void *of, size_t portion)
{
    writing *w = of;
    const tg_candidates *list = &w->list->range_lists[portion].list;
    move_selected(w, &w->list->portions[portion], list, 0, list->count);
}

static void copy_portion(void *of, size_t portion)
{
    writing *w = of;
    const tg_portion *p = &w->list->portions[portion];
    if (w->portions > 1) {
        memcpy(w->job->list.indices + p->before, p->indices, p->count * sizeof *p->indices);
        memcpy(w->job->list.values + p->before, p->values, p->count * sizeof *p->values);
    }
    settle(w, p);
}

void tg_selected_list(tg_job *job, const tg_selected *list)
{
    writing w = {.job = job, .list = list}; /* without segments, a portion is a range */
    divide(&w);
    if (w.portions == 1) {
        list->portions[0].indices = job->list.indices;
        list->portions[0].values = job->list.values;
    }
    share_out_ties(&w);
    tg_parallel(job->pool, w.portions, select_portion, &w);
    count_before(&w);
    tg_parallel(job->pool, w.portions, copy_portion, &w);
    job->saturated += w.saturated;
    job->selected = list->threshold.selected;
}
