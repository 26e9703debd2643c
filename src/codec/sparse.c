/* Encoding a sparse vector: select, collect, code the values and the indices, put the residual right. */
#include "codec/sparse.h"

#include <string.h>

#include "base/bytes.h"
#include "codec/levels.h"
#include "codec/onepass.h"

const tg_parameter *const tg_sparse_parameters[] = {&tg_parameter_density, &tg_parameter_k,     &tg_parameter_values,
                                                    &tg_parameter_levels,  &tg_parameter_bucket, &tg_parameter_norm,
                                                    &tg_parameter_range,   &tg_parameter_coding, NULL};

enum { HEAD = 8, ENTRY = 8 }; /* bytes of the payload's head and of a directory entry */

size_t tg_fixed_sample_size(uint64_t count) { return (size_t)(count < TG_SAMPLE ? count : TG_SAMPLE); }

/* The most elements that can be selected. */
static uint64_t most_selected(const tg_spec *spec, uint64_t count, const tg_selector *selector)
{
    uint64_t wanted = tg_spec_selected(spec, count), most = selector->exact ? wanted : 4 * wanted / 3;
    return most < count ? most : count;
}

static tg_dtype values_dtype(tg_values values)
{
    return values == TG_VALUES_FP16 ? TG_FLOAT16 : values == TG_VALUES_BF16 ? TG_BFLOAT16 : TG_FLOAT32;
}

/* What the workspace holds, in this order. Lists have room for candidates, of which the selected ones stay. */
typedef struct workspace_layout {
    size_t block, keys, sample, pilot, indices, values, sent, levels, size, room;
} workspace_layout;

static workspace_layout layout_of(const tg_spec *spec, uint64_t count, const tg_selector *selector)
{
    const size_t most = (size_t)most_selected(spec, count, selector);
    const bool one_pass = !selector->by_random_key;
    const size_t candidates = tg_onepass_room(count, tg_onepass_reach(tg_spec_selected(spec, count), selector->exact));
    tg_levels_shape shape = tg_levels_shape_of(spec, most);
    workspace_layout at = {.room = one_pass && candidates > most ? candidates : most};
    at.keys = at.block + sizeof(tg_source_block);
    at.sample = at.keys + TG_BLOCK * sizeof(uint32_t);
    at.pilot = at.sample + (selector->sample_size ? selector->sample_size(count) : 0) * sizeof(float);
    at.indices = at.pilot + (one_pass ? tg_pilot_size(count) : 0) * sizeof(uint32_t);
    at.values = at.indices + at.room * sizeof(uint32_t);
    at.sent = at.values + at.room * sizeof(float);
    at.levels = at.sent + (tg_spec_values(spec) == TG_VALUES_FP32 ? 0 : most) * sizeof(float);
    at.levels = (at.levels + 15) / 16 * 16;
    at.size = at.levels + (tg_spec_values(spec) == TG_VALUES_LEVELS ? tg_levels_workspace(&shape) : 0);
    return at;
}

size_t tg_sparse_workspace(const tg_spec *spec, uint64_t count, const tg_selector *selector)
{
    return layout_of(spec, count, selector).size;
}

size_t tg_sparse_bound(const tg_spec *spec, uint64_t count, const tg_selector *selector)
{
    const uint64_t most = most_selected(spec, count, selector);
    /* Segments are shortest, so most numerous, when most elements are selected; each ends in at most one byte of padding. */
    uint64_t segments = count == 0 ? 0 : ((count - 1) >> tg_segment_log(count, most)) + 1;
    uint64_t bound = HEAD + segments * (ENTRY + 1) + count / 8;
    if (tg_spec_values(spec) == TG_VALUES_LEVELS) {
        tg_levels_shape shape = tg_levels_shape_of(spec, most);
        return (size_t)bound + tg_levels_bound(&shape);
    }
    return (size_t)(bound + most * tg_dtype_size(values_dtype(tg_spec_values(spec))));
}

/* The list of selected elements, at first with others among them. */
typedef struct selected {
    uint32_t *indices;
    uint32_t origin;      /* the index of the vector's first element */
    float *values, *sent; /* `sent` is `values` where those are sent as they are */
    size_t offered;       /* entries that the list starts with */
    size_t count;         /* of those, the selected ones that have been moved to the front */
    tg_cut cut;
    bool winnowed;        /* all that are offered are selected */
    float *losers;        /* if not NULL, where the values of the others belong */
    tg_residual_state residual;
} selected;

/* Lists the selected elements in order. */
static void list_selected(tg_selection *s, tg_cut cut, selected *list)
{
    tg_job *job = s->job;
    const tg_kernels *k = job->kernels;
    const uint64_t count = job->source.count;
    for (uint64_t first = 0; first < count; first += TG_BLOCK) {
        size_t n = tg_block_size(count, first);
        job->dropped += tg_source_read(&job->source, k, first, n, s->block);
        if (s->by_random_key)
            k->random_keys(tg_key_of(&job->draw, TG_FOR_SELECTION), (uint32_t)first, n, s->keys);
        else
            k->magnitude_keys(s->block->u, n, s->keys);
        for (size_t i = 0; i < n; i++) {
            bool tie = s->keys[i] == cut.above && cut.ties > 0;
            cut.ties -= tie;
            if (tie || s->keys[i] > cut.above) {
                list->indices[list->offered] = (uint32_t)(first + i);
                list->values[list->offered++] = s->block->u[i];
            }
        }
    }
}

/* Moves every element's rest into the residual. */
static void commit(tg_selection *s)
{
    tg_job *job = s->job;
    for (uint64_t first = 0; first < job->source.count; first += TG_BLOCK) {
        size_t n = tg_block_size(job->source.count, first);
        (void)tg_source_read(&job->source, job->kernels, first, n, s->block);
        tg_source_commit(&job->source, job->kernels, first, n, s->block, NULL);
    }
}

/* The first place from `from` on whose index is `limit` or more. */
static size_t first_from(const selected *list, size_t from, uint64_t limit)
{
    size_t step = 1;
    while (from + step < list->offered && list->indices[from + step] < limit)
        step *= 2;
    size_t to = from + step < list->offered ? from + step : list->offered;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (list->indices[middle] < limit)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Moves the selected ones of those offered from `from` to `to` to the front. */
static void winnow(const tg_kernels *k, selected *list, size_t from, size_t to)
{
    if (list->winnowed)
        list->count = to;
    else
        list->count += k->winnow(list->indices + from, list->values + from, to - from, list->cut.above, &list->cut.ties,
                                 list->losers, list->indices + list->count, list->values + list->count);
}

/* Directory and index streams; returns the end. The list is winnowed segment by segment, while it is in the cache. */
static uint8_t *write_indices(const tg_kernels *k, selected *list, uint64_t count, uint8_t *payload)
{
    const unsigned log = tg_segment_log(count, list->cut.taken);
    tg_store32(payload, (uint32_t)list->cut.taken);
    tg_store32(payload + 4, log);
    if (count == 0)
        return payload + HEAD;
    const uint64_t segments = ((count - 1) >> log) + 1;
    uint8_t *entry = payload + HEAD, *at = entry + ENTRY * segments;
    size_t next = 0;
    for (uint64_t segment = 0; segment < segments; segment++, entry += ENTRY) {
        uint64_t base = segment << log, length = count - base < UINT64_C(1) << log ? count - base : UINT64_C(1) << log;
        const size_t before = list->count, to = first_from(list, next, list->origin + base + length);
        winnow(k, list, next, to);
        next = to;
        unsigned mode;
        const size_t m = list->count - before;
        uint8_t *end = tg_index_write(list->indices + before, m, list->origin + (uint32_t)base, (uint32_t)length, at, &mode);
        tg_store32(entry, (uint32_t)m);
        tg_store32(entry + 4, mode << 30 | (uint32_t)(end - at));
        at = end;
    }
    return at;
}

/* The values; fills list->sent with what the decoder will see; returns the end. */
static uint8_t *write_values(tg_job *job, const selected *list, void *levels_workspace, uint8_t *at)
{
    const tg_values values = tg_spec_values(job->spec);
    if (values == TG_VALUES_LEVELS) {
        tg_levels_shape shape = tg_levels_shape_of(job->spec, list->count);
        tg_job inner = {.kernels = job->kernels,
                        .spec = job->spec,
                        .source = {.gradient = list->values, .dtype = TG_FLOAT32, .count = list->count},
                        .draw = job->draw,
                        .workspace = levels_workspace,
                        .sent = list->sent,
                        .payload = at};
        (void)tg_levels_encode(&inner, &shape); /* the values are finite: it cannot fail */
        job->layout = inner.layout;
        return at + inner.payload_size;
    }
    const tg_dtype dtype = values_dtype(values);
    const bool as_is = list->sent == list->values;
    for (size_t first = 0; first < list->count; first += TG_BLOCK) {
        size_t n = tg_block_size(list->count, first);
        uint8_t *wire = at + first * tg_dtype_size(dtype);
        job->saturated += job->kernels->store(dtype, list->values + first, n, wire);
        if (!as_is)
            job->kernels->load(dtype, wire, n, list->sent + first);
    }
    return at + list->count * tg_dtype_size(dtype);
}

/* Takes what was sent off the residual. */
static void settle(tg_job *job, const selected *list)
{
    float *residual = job->source.residual;
    if (list->residual == TG_RESIDUAL_IS_REST)
        for (size_t j = 0; j < list->count; j++)
            residual[list->indices[j]] -= list->sent[j];
    else if (list->sent != list->values)
        for (size_t j = 0; j < list->count; j++)
            residual[list->indices[j]] = list->values[j] - list->sent[j];
    for (size_t j = 0; job->source.momentum && j < list->count; j++)
        job->source.momentum[list->indices[j]] = 0;
}

/* Selects over and over the vector, and lists what was selected. */
static tg_status select_composed(tg_selection *s, const tg_guesses *guesses, selected *list)
{
    tg_job *job = s->job;
    tg_cut cut = tg_select(s, guesses);
    /* A selector that did not look at every magnitude has not noticed a bad one; look before it is in the residual. */
    if (job->check_finite && !s->seen_all)
        s->nonfinite = tg_source_first_nonfinite(&job->source, job->kernels, s->block) < job->source.count;
    if (job->check_finite && s->nonfinite)
        return TG_NONFINITE;
    list_selected(s, cut, list);
    list->winnowed = true;
    list->cut.taken = list->offered;
    return TG_OK;
}

static tg_status select_in_one_pass(tg_selection *s, const tg_guesses *guesses, const tg_selector *selector, size_t room,
                                    uint32_t *pilot, selected *list)
{
    tg_onepass o = {.selection = s,
                    .list = {.indices = list->indices, .values = list->values, .room = room},
                    .reach = tg_onepass_reach(s->wanted, selector->exact),
                    .pilot = pilot};
    tg_status status = tg_onepass_select(&o, guesses);
    list->offered = o.list.count;
    list->cut = o.cut;
    list->winnowed = o.cut.taken == o.list.count;
    list->losers = tg_onepass_losers(&o);
    list->residual = o.residual;
    return status;
}

tg_status tg_sparse_encode(tg_job *job, const tg_selector *selector)
{
    const workspace_layout at = layout_of(job->spec, job->source.count, selector);
    char *base = job->workspace;
    tg_selection s = {.job = job,
                      .wanted = tg_spec_selected(job->spec, job->source.count),
                      .by_random_key = selector->by_random_key,
                      .block = (tg_source_block *)(base + at.block),
                      .keys = (uint32_t *)(base + at.keys),
                      .sample = (float *)(base + at.sample)};
    selected list = {.indices = (uint32_t *)(base + at.indices), .values = (float *)(base + at.values)};
    list.sent = tg_spec_values(job->spec) == TG_VALUES_FP32 ? list.values : (float *)(base + at.sent);
    job->layout = 0;
    if (job->source.count > 0) {
        const tg_guesses guesses = selector->guess ? selector->guess(&s) : (tg_guesses){.count = 0};
        tg_status status = tg_onepass_suits(&s) ? select_in_one_pass(&s, &guesses, selector, at.room,
                                                                    (uint32_t *)(base + at.pilot), &list)
                                                : select_composed(&s, &guesses, &list);
        if (status != TG_OK)
            return status;
        if (job->source.residual && list.residual == TG_RESIDUAL_UNTOUCHED) {
            /* With alpha different from beta the rest may overflow where u does not. */
            if (job->check_finite && job->source.alpha != job->source.beta &&
                tg_source_first_nonfinite(&job->source, job->kernels, s.block) < job->source.count)
                return TG_NONFINITE;
            commit(&s);
            list.residual = TG_RESIDUAL_IS_REST;
        }
    }
    uint8_t *values = write_indices(job->kernels, &list, job->source.count, job->payload);
    uint8_t *end = write_values(job, &list, base + at.levels, values);
    job->payload_size = (size_t)(end - job->payload);
    job->selected = list.count;
    if (job->source.residual)
        settle(job, &list);
    return TG_OK;
}

void tg_sparse_encode_list(tg_job *job, uint32_t origin, uint32_t *indices, float *values, size_t n)
{
    selected list = {.indices = indices, .origin = origin, .values = values, .offered = n, .cut.taken = n, .winnowed = true};
    list.sent = tg_spec_values(job->spec) == TG_VALUES_FP32 ? values : job->sent;
    job->layout = 0;
    uint8_t *at = write_indices(job->kernels, &list, job->source.count, job->payload);
    uint8_t *end = write_values(job, &list, job->workspace, at);
    job->payload_size = (size_t)(end - job->payload);
    job->selected = n;
}

double tg_sparse_gamma(const tg_spec *spec, uint64_t count, const tg_selector *selector)
{
    if (count == 0)
        return 0;
    uint64_t k = tg_spec_selected(spec, count);
    double share = (double)(selector->exact ? k : (2 * k + 2) / 3) / (double)count;
    double of_values = tg_spec_values(spec) == TG_VALUES_FP16 ? 0x1p-22 : tg_spec_values(spec) == TG_VALUES_BF16 ? 0x1p-16 : 0;
    if (tg_spec_values(spec) == TG_VALUES_LEVELS) {
        tg_levels_shape shape = tg_levels_shape_of(spec, most_selected(spec, count, selector));
        of_values = tg_levels_gamma(&shape);
    }
    /* |u - C(u)|^2 is what was left out, at most (1 - k/d) |u|^2, and the error of what was sent, at most `of_values` |u|^2. */
    return 1 - share + of_values;
}
