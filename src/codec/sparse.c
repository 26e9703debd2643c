/* Encoding a sparse vector: selects, lists the selected elements, and leaves writing the payload to sparse_writer.c. */
#include "codec/sparse.h"

#include "codec/random_select.h"
#include "codec/levels.h"
#include "codec/sparse_writer.h"

const tg_parameter *const tg_sparse_parameters[] = {&tg_parameter_density, &tg_parameter_k,      &tg_parameter_values,
                                                    &tg_parameter_levels,  &tg_parameter_bucket, &tg_parameter_norm,
                                                    &tg_parameter_range,   &tg_parameter_coding, NULL};
TG_PARAMETERS_FIT(tg_sparse_parameters);

size_t tg_fixed_sample_size(uint64_t count) { return (size_t)(count < TG_SAMPLE ? count : TG_SAMPLE); }

/* The most elements that can be selected. */
static uint64_t most_selected(const tg_spec *spec, uint64_t count, const tg_selector *selector)
{
    uint64_t target = tg_spec_selected(spec, count), most = selector->exact ? target : 4 * target / 3;
    return most < count ? most : count;
}

/* Offsets of what the workspace holds. The lists have room for all candidates, of which the selected ones remain. */
typedef struct workspace_layout {
    size_t range_lists, portions, bins, keys, sample, pilot, indices, values, sent, gathered, levels, size;
} workspace_layout;

/* The room of all lists together. */
static size_t most_listed(uint64_t count, uint64_t target, uint64_t most, const tg_selector *selector, unsigned threads)
{
    const uint64_t needed = selector->by_random_key ? 0 : tg_onepass_needed(target, selector->exact);
    const size_t room = tg_onepass_room(count, needed, threads),
                 random_room = selector->by_random_key ? tg_random_select_room(count, target, threads) : most;
    return room > random_room ? room : random_room;
}

static workspace_layout layout_of(const tg_spec *spec, uint64_t count, const tg_selector *selector, unsigned threads)
{
    const size_t most = (size_t)most_selected(spec, count, selector),
                 ranges = threads == 1 ? 1 : TG_RANGES_PER_THREAD * threads;
    const bool levels = tg_spec_values(spec) == TG_VALUES_LEVELS;
    const size_t room = most_listed(count, tg_spec_selected(spec, count), most, selector, threads);
    tg_levels_shape shape = tg_levels_shape_of(spec, most);
    workspace_layout at = {.portions = ranges * sizeof(tg_range_list)};
    at.bins = at.portions + ranges * sizeof(tg_portion);
    at.keys = at.bins + TG_DIGIT_BINS * sizeof(atomic_uint_fast64_t);
    at.sample = at.keys + TG_BLOCK * sizeof(uint32_t);
    at.pilot = at.sample + (selector->sample_size ? selector->sample_size(count) : 0) * sizeof(float);
    at.indices = at.pilot + (selector->by_random_key ? 0 : tg_pilot_size(count)) * sizeof(uint32_t);
    at.values = at.indices + room * sizeof(uint32_t);
    at.sent = at.values + room * sizeof(float);
    at.gathered = at.sent + (tg_spec_values(spec) == TG_VALUES_FP32 ? 0 : most) * sizeof(float);
    at.levels = at.gathered + (levels && threads > 1 ? most : 0) * sizeof(float);
    at.levels = (at.levels + 15) / 16 * 16;
    at.size = at.levels + (levels ? tg_levels_workspace(&shape) : 0);
    return at;
}

size_t tg_sparse_workspace(const tg_spec *spec, uint64_t count, unsigned threads, const tg_selector *selector)
{
    return layout_of(spec, count, selector, threads).size;
}

static size_t values_bound(const tg_spec *spec, uint64_t most)
{
    if (tg_spec_values(spec) == TG_VALUES_LEVELS) {
        tg_levels_shape shape = tg_levels_shape_of(spec, most);
        return tg_levels_bound(&shape);
    }
    return (size_t)most * tg_dtype_size(tg_values_dtype(tg_spec_values(spec)));
}

size_t tg_sparse_list_bound(const tg_spec *spec, uint64_t count, uint64_t most)
{
    return tg_positions_bound(count, most) + values_bound(spec, most);
}

size_t tg_sparse_list_most(const tg_spec *spec, uint64_t count, uint64_t most)
{
    return tg_positions_most(count, most) + values_bound(spec, most);
}

size_t tg_sparse_bound(const tg_spec *spec, uint64_t count, const tg_selector *selector)
{
    return tg_sparse_list_bound(spec, count, most_selected(spec, count, selector));
}

/* ---- where the kernels have nothing for one pass ---- */

typedef struct key_counts {
    uint64_t above, equal; /* than the threshold's, to the threshold's */
} key_counts;

/* Listing what a threshold selects. */
typedef struct listing {
    tg_selection *selection;
    tg_selected *list;
    key_counts *counts; /* of each range; in the end only of the selected elements */
} listing;

static void count_range(void *of, size_t part)
{
    const listing *l = of;
    const tg_kernels *k = l->selection->job->kernels;
    const uint32_t above = l->list->threshold.above;
    const uint64_t end = tg_range_end(&l->list->ranges, part);
    tg_select_scratch scratch;
    uint64_t more = 0, least = 0;
    for (uint64_t first = tg_range_first(&l->list->ranges, part); first < end; first += TG_BLOCK) {
        const size_t n = tg_block_size(end, first);
        (void)tg_keys_of(l->selection, first, n, &scratch);
        least += k->count_at_least(scratch.keys, n, above);
        more += k->count_at_least(scratch.keys, n, above + 1);
    }
    l->counts[part].above = more;
    l->counts[part].equal = least - more;
}

/* Lists the selected elements of a range in order. */
static void list_range(void *of, size_t part)
{
    const listing *l = of;
    tg_range_list *range_list = &l->list->range_lists[part];
    const tg_job *job = l->selection->job;
    const uint32_t above = l->list->threshold.above;
    const uint64_t end = tg_range_end(&l->list->ranges, part);
    tg_select_scratch scratch;
    uint64_t ties = l->counts[part].equal;
    range_list->dropped = 0;
    for (uint64_t first = tg_range_first(&l->list->ranges, part); first < end; first += TG_BLOCK) {
        const size_t n = tg_block_size(end, first);
        range_list->dropped += tg_keys_of(l->selection, first, n, &scratch);
        if (l->selection->by_random_key)
            range_list->dropped += tg_source_read(&job->source, job->kernels, first, n, &scratch.block);
        for (size_t i = 0; i < n; i++) {
            bool tie = scratch.keys[i] == above && ties > 0;
            ties -= tie;
            if (tie || scratch.keys[i] > above) {
                range_list->list.indices[range_list->list.count] = (uint32_t)(first + i);
                range_list->list.values[range_list->list.count++] = scratch.block.u[i];
            }
        }
    }
}

/* With several ranges the counts of each are needed first, to know where its list starts and which ties it has. */
static void list_selected(tg_selection *s, tg_selected *list, uint32_t *indices, float *values)
{
    tg_pool *pool = s->job->pool;
    key_counts counts[TG_MAX_RANGES] = {{.equal = list->threshold.ties}};
    listing l = {s, list, counts};
    if (list->ranges.parts > 1)
        tg_parallel(pool, list->ranges.parts, count_range, &l);
    uint64_t ties = list->threshold.ties, before = 0;
    for (size_t i = 0; i < list->ranges.parts; i++) {
        list->range_lists[i] = (tg_range_list){.list = {.indices = indices + before, .values = values + before}};
        if (list->ranges.parts > 1) {
            counts[i].equal = counts[i].equal < ties ? counts[i].equal : ties;
            ties -= counts[i].equal;
            before += counts[i].above + counts[i].equal;
        }
    }
    tg_parallel(pool, list->ranges.parts, list_range, &l);
    list->all_selected = true;
    list->threshold.selected = 0;
    for (size_t i = 0; i < list->ranges.parts; i++) {
        list->threshold.selected += list->range_lists[i].list.count;
        s->job->dropped += list->range_lists[i].dropped;
    }
}

/* Selects in several passes over the vector, and lists what was selected. */
static tg_status select_composed(tg_selection *s, const tg_guesses *guesses, tg_selected *list, uint32_t *indices,
                                 float *values)
{
    tg_job *job = s->job;
    list->threshold = tg_select(s, guesses);
    /* A selector that has not read every magnitude has not noticed a non-finite one. Check before it enters the
     * residual. */
    if (job->check_finite && !s->seen_all)
        s->nonfinite = tg_source_first_nonfinite(&job->source, job->kernels, job->pool) < job->source.count;
    if (s->nonfinite) /* if such values are dropped, only the residual can bring one */
        return TG_NONFINITE;
    list_selected(s, list, indices, values);
    return TG_OK;
}

/* ---- all of it ---- */

static tg_status select_in_one_pass(tg_selection *s, const tg_guesses *guesses, const tg_selector *selector,
                                    tg_selected *list, uint32_t *indices, float *values, uint32_t *pilot)
{
    tg_onepass o = {.selection = s,
                    .ranges = list->ranges,
                    .range_lists = list->range_lists,
                    .needed = tg_onepass_needed(s->target, selector->exact),
                    .pilot = pilot};
    tg_onepass_divide(&o, indices, values);
    tg_status status = tg_onepass_select(&o, guesses);
    list->threshold = o.threshold;
    list->cleared = tg_onepass_cleared(&o);
    list->clear_from = o.clear_from;
    list->all_selected = status == TG_OK && o.threshold.selected == tg_listed(&o) &&
                         (!list->cleared || o.clear_from <= o.least);
    list->residual = o.residual;
    return status;
}

/* randk: one pass over the vector writes the residual, another over the random keys selects. */
static tg_status select_at_random(tg_selection *s, const tg_guesses *guesses, tg_selected *list, uint32_t *indices,
                                  float *values)
{
    tg_job *job = s->job;
    tg_onepass o = {.selection = s, .ranges = list->ranges, .range_lists = list->range_lists};
    tg_onepass_divide(&o, indices, values);
    if (tg_onepass_commit(&o) != TG_OK)
        return TG_NONFINITE;
    list->residual = o.residual;
    if (tg_random_select(&o, list, indices, values))
        return TG_OK;
    const tg_source source = job->source;
    const uint64_t dropped = job->dropped;
    job->source = o.source;
    list->threshold = tg_select(s, guesses);
    list_selected(s, list, indices, values);
    job->source = source;
    job->dropped = dropped; /* they were counted again */
    return TG_OK;
}

typedef struct committing {
    const tg_job *job;
    tg_ranges ranges;
} committing;

/* Writes the rest of every element to the residual. */
static void commit_range(void *of, size_t part)
{
    const committing *c = of;
    const tg_job *job = c->job;
    tg_source_block block;
    const uint64_t end = tg_range_end(&c->ranges, part);
    for (uint64_t first = tg_range_first(&c->ranges, part); first < end; first += TG_BLOCK) {
        const size_t n = tg_block_size(end, first);
        (void)tg_source_read(&job->source, job->kernels, first, n, &block);
        tg_source_commit(&job->source, job->kernels, first, n, &block, NULL);
    }
}

static tg_status commit(const tg_job *job, tg_selected *list)
{
    committing c = {job, list->ranges};
    /* With alpha different from beta the rest may overflow where u does not. */
    if (job->check_finite && job->source.alpha != job->source.beta &&
        tg_source_first_nonfinite(&job->source, job->kernels, job->pool) < job->source.count)
        return TG_NONFINITE;
    tg_parallel(job->pool, c.ranges.parts, commit_range, &c);
    list->residual = TG_RESIDUAL_REST;
    return TG_OK;
}

tg_status tg_sparse_encode(tg_job *job, const tg_selector *selector)
{
    const uint64_t count = job->source.count;
    const workspace_layout at = layout_of(job->spec, count, selector, tg_pool_threads(job->pool));
    char *base = job->workspace;
    uint32_t *indices = (uint32_t *)(base + at.indices), *pilot = (uint32_t *)(base + at.pilot);
    float *values = (float *)(base + at.values);
    tg_selection s = {.job = job,
                      .target = tg_spec_selected(job->spec, count),
                      .by_random_key = selector->by_random_key,
                      .keys = (uint32_t *)(base + at.keys),
                      .bins = (atomic_uint_fast64_t *)(void *)(base + at.bins),
                      .sample = (float *)(base + at.sample)};
    tg_selected list = {.ranges = tg_ranges_of(job->pool, count, TG_BLOCK),
                        .range_lists = (tg_range_list *)base,
                        .portions = (tg_portion *)(base + at.portions),
                        .gathered = (float *)(base + at.gathered),
                        .levels_workspace = base + at.levels};
    const bool as_they_are = job->list.indices || tg_spec_values(job->spec) == TG_VALUES_FP32;
    list.sent = as_they_are ? NULL : (float *)(base + at.sent);
    list.range_lists[0] = (tg_range_list){.list = {.count = 0}};
    job->layout = 0;
    if (count > 0) {
        const tg_guesses guesses = selector->guess ? selector->guess(&s) : (tg_guesses){.count = 0};
        tg_status status;
        if (!tg_onepass_suits(&s))
            status = select_composed(&s, &guesses, &list, indices, values);
        else if (s.by_random_key)
            status = select_at_random(&s, &guesses, &list, indices, values);
        else
            status = select_in_one_pass(&s, &guesses, selector, &list, indices, values, pilot);
        if (status == TG_OK && job->source.residual && list.residual == TG_RESIDUAL_UNTOUCHED)
            status = commit(job, &list);
        if (status != TG_OK)
            return status;
    }
    if (!job->list.indices)
        tg_selected_write(job, &list);
    else if (count > 0)
        tg_selected_list(job, &list);
    return TG_OK;
}

/* The first place from `from` on with an index of at least `limit`. */
static size_t place_of(const uint32_t *indices, size_t from, size_t n, uint64_t limit)
{
    size_t to = n;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (indices[middle] < limit)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

void tg_sparse_encode_list(tg_job *job, uint32_t origin, uint32_t *indices, float *values, size_t n)
{
    enum { FEW = 1 << 14, ALIGNED = 16 }; /* elements that are not worth waking threads for */
    if (n < FEW)
        job->pool = NULL;
    const tg_ranges ranges = tg_ranges_of(job->pool, job->source.count, TG_BLOCK);
    tg_range_list *lists = job->workspace;
    tg_portion *portions = (tg_portion *)(lists + ranges.parts);
    const size_t levels = ranges.parts * (sizeof *lists + sizeof *portions);
    for (size_t i = 0, at = 0; i < ranges.parts; i++) {
        const size_t end = place_of(indices, at, n, origin + tg_range_end(&ranges, i));
        lists[i] = (tg_range_list){.list = {.indices = indices + at, .values = values + at, .count = end - at}};
        at = end;
    }
    const tg_selected list = {.ranges = ranges,
                              .origin = origin,
                              .range_lists = lists,
                              .portions = portions,
                              .threshold = {.selected = n},
                              .all_selected = true,
                              .sent = tg_spec_values(job->spec) == TG_VALUES_FP32 ? NULL : job->sent,
                              .levels_workspace = (char *)job->workspace + (levels + ALIGNED - 1) / ALIGNED * ALIGNED};
    job->layout = 0;
    tg_selected_write(job, &list);
}

double tg_sparse_gamma(const tg_spec *spec, uint64_t count, const tg_selector *selector)
{
    if (count == 0)
        return 0;
    uint64_t k = tg_spec_selected(spec, count);
    double share = (double)(selector->exact ? k : (2 * k + 2) / 3) / (double)count;
    double of_values = tg_spec_values(spec) == TG_VALUES_FP16   ? 0x1p-22
                       : tg_spec_values(spec) == TG_VALUES_BF16 ? 0x1p-16
                                                                : 0;
    if (tg_spec_values(spec) == TG_VALUES_LEVELS) {
        tg_levels_shape shape = tg_levels_shape_of(spec, most_selected(spec, count, selector));
        of_values = tg_levels_gamma(&shape);
    }
    /* u - C(u)|^2 is the sum of what was left out, at most (1 - k/d) |u|^2, and of the error of what was sent, at
     * most `of_values` |u|^2. */
    return 1 - share + of_values;
}
