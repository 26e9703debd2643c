/* Sparse pieces under `shard`, after Ok-Topk: every rank selects in the whole tensor and sends each owner what lies in
 * its part; owners add up and select again, their share of the k largest means; what did not make it returns to the
 * residuals. Parts are cut so that owners get about equally many elements, by where ranks' selections lay some
 * steps before. */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "codec/nth.h"
#include "frame/decode.h"
#include "reduce/reducer.h"

enum {
    BOUNDARIES_EVERY = 16, /* steps: selections move slowly */
    AHEAD = 24             /* elements that memory is asked for before their turn */
};

static uint32_t *boundaries_of(const tg_reduction *r, const tg_reducing_tensor *t)
{
    return t->boundaries + (r->number % r->reducer->options.depth) * ((uint64_t)r->reducer->world + 1);
}

tg_owned tg_part_of(const tg_reduction *r, const tg_piece *piece, uint32_t owner)
{
    if (piece->owner != TG_EVERY_OWNER)
        return (tg_owned){0, piece->owner == owner ? piece->count : 0};
    const tg_reducing_tensor *t = &r->reducer->tensors[piece->tensor];
    const uint32_t *boundaries = t->parts ? t->parts : boundaries_of(r, t);
    return (tg_owned){boundaries[owner], boundaries[owner + 1] - boundaries[owner]};
}

static bool is_lossy(const tg_reducing_tensor *t) { return tg_spec_values(&t->spec) != TG_VALUES_FP32; }

/* ---- selecting and sending ---- */

void tg_sparse_select(tg_reduction *r, const tg_batch *batch)
{
    tg_reducer *reducer = r->reducer;
    for (size_t i = batch->first; i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        if (!tg_piece_is_sparse(r, piece) || !tg_piece_is_sent(r, piece))
            continue;
        const tg_source source = tg_piece_source(r, piece);
        tg_job_select(r, i, &source, tg_part_draw(r, i, 0), &r->sparse[piece->tensor].sent);
    }
    const size_t count = tg_jobs_encode(r, "gradient");
    for (size_t j = 0; j < count; j++) {
        const tg_encode_report *report = &reducer->encodings[j].report;
        const uint32_t tensor = r->plan->pieces[reducer->encoded[j].piece].tensor;
        r->sparse[tensor].selected = report->status == TG_OK;
        if (report->status == TG_OK)
            tg_report_add(r, tensor, report);
    }
}

void tg_sparse_send(tg_reduction *r, size_t index)
{
    tg_reducer *reducer = r->reducer;
    const tg_piece *piece = &r->plan->pieces[index];
    const tg_sparse_step *step = &r->sparse[piece->tensor];
    const tg_list *sent = &step->sent;
    size_t from = 0;
    for (uint32_t owner = 0; step->selected && owner < reducer->world; owner++) {
        const tg_owned part = tg_part_of(r, piece, owner);
        size_t to = from;
        while (to < sent->count && sent->indices[to] < part.first + part.count)
            to++;
        if (part.count == 0)
            continue;
        const tg_list list = {sent->indices + from, sent->values + from, to - from};
        tg_job_encode_list(r, index, &list, &part, tg_part_draw(r, index, owner), step->result.values + from,
                           &reducer->ends[owner], &r->sent[tg_part_number(r, index, owner)]);
        reducer->frame_counts[owner]++;
        from = to;
    }
}

void tg_sparse_sent(tg_reduction *r, size_t index)
{
    const uint32_t tensor = r->plan->pieces[index].tensor;
    const tg_reducing_tensor *t = &r->reducer->tensors[tensor];
    const tg_sparse_step *step = &r->sparse[tensor];
    if (!step->selected || !is_lossy(t))
        return;
    const tg_list left = {step->sent.indices, step->result.values, step->sent.count};
    for (size_t j = 0; j < left.count; j++) {
        const float exact = step->sent.values[j];
        step->sent.values[j] = left.values[j];
        left.values[j] = exact - left.values[j]; /* what encoding left of it */
    }
    if (t->feedback)
        r->reducer->stats.saturated += tg_feedback_add_list(t->feedback, &left, 1, true, NULL, 0);
}

/* ---- summing and selecting again ---- */

/* Adds up this rank's part in rank order; reducer->scratch becomes the list of what was sent by anybody, with means. */
static void sum_part(tg_reduction *r, size_t index, const tg_owned *part)
{
    tg_reducer *reducer = r->reducer;
    tg_list *all = &reducer->scratch;
    for (uint32_t rank = 0; rank < reducer->world; rank++) {
        const tg_frame frame = tg_received(r, index)[rank];
        const size_t n = frame.data ? tg_frame_list(reducer->device, frame, 0, all->indices, all->values) : 0;
        for (size_t j = 0; j < n; j++) {
            __builtin_prefetch(&reducer->sums[all->indices[j + AHEAD < n ? j + AHEAD : j]], 1); /* they are far apart */
            reducer->sums[all->indices[j]] += all->values[j];
            reducer->touched[all->indices[j] / 64] |= UINT64_C(1) << all->indices[j] % 64;
        }
    }
    const float scale = 1.0f / (float)reducer->world;
    all->count = 0;
    for (uint64_t word = 0; word < (part->count + 63) / 64; word++) {
        for (uint64_t bits = reducer->touched[word]; bits; bits &= bits - 1) {
            const uint64_t i = 64 * word + (uint64_t)__builtin_ctzll(bits);
            all->indices[all->count] = (uint32_t)(part->first + i);
            all->values[all->count++] = reducer->sums[i] * scale;
            reducer->sums[i] = 0;
        }
        reducer->touched[word] = 0;
    }
}

/* How many means an owner may send: its share of what one rank selects. */
static uint64_t share_of(const tg_reduction *r, const tg_piece *piece, uint32_t owner)
{
    const tg_spec spec = tg_spec_in(r, piece->tensor);
    const uint64_t k = tg_spec_selected(&spec, piece->count), world = r->reducer->world;
    if (piece->owner != TG_EVERY_OWNER)
        return k;
    const uint64_t share = k * (owner + 1) / world - k * owner / world;
    return share ? share : 1;
}

/* Keeps the `share` largest of `all`. */
static void choose(tg_reducer *r, const tg_list *all, uint64_t share, tg_list *chosen)
{
    tg_threshold threshold = {.above = 0, .ties = UINT64_MAX};
    chosen->count = 0;
    if (share < all->count)
        threshold = tg_nth_of_array(all->values, all->count, share, (tg_band){0, UINT32_MAX}, r->keys, r->key_room);
    for (size_t j = 0; j < all->count; j++) {
        const uint32_t key = tg_float_bits(all->values[j]) & TG_MAGNITUDE_MASK;
        const bool tie = key == threshold.above && threshold.ties > 0;
        threshold.ties -= tie;
        if (tie || key > threshold.above) {
            chosen->indices[chosen->count] = all->indices[j];
            chosen->values[chosen->count++] = all->values[j];
        }
    }
}

static tg_draw result_draw(const tg_reduction *r, size_t index)
{
    const uint32_t rank = r->reducer->rank;
    return tg_draw_of(r, rank, tg_part_draw(r, index, rank) | TG_RESULT_DRAW);
}

/* All means of the part, where that is no larger than the chosen ones were; returns the frame's bytes, or 0. */
static size_t send_dense(tg_reduction *r, size_t index, const tg_owned *part, size_t sparse_bytes, uint8_t *frame)
{
    tg_reducer *reducer = r->reducer;
    const tg_list *all = &reducer->scratch;
    if (tg_frame_bound(reducer->plain, part->count) > sparse_bytes)
        return 0;
    for (size_t j = 0; j < all->count; j++)
        reducer->sums[all->indices[j] - part->first] = all->values[j];
    tg_device *device = reducer->device;
    float *place = reducer->wide + r->plan->pieces[index].place;
    device->operations->copy_in(device, place, reducer->sums, part->count * sizeof *reducer->sums);
    const tg_tensor means = {place, part->count, TG_FLOAT32};
    const tg_encode_options options = {.draw = result_draw(r, index)};
    tg_encode_report report = {.bytes = 0};
    (void)!tg_encode(reducer->plain, &means, &options, frame, sparse_bytes, &report, NULL); /* the means are finite */
    memset(reducer->sums, 0, part->count * sizeof *reducer->sums);
    reducer->stats.dense_parts += report.bytes > 0;
    return report.bytes;
}

/* The chosen means as a frame, and what encoding left of them. */
static size_t send_chosen(tg_reduction *r, size_t index, const tg_owned *part, uint8_t *frame)
{
    tg_reducer *reducer = r->reducer;
    const uint32_t tensor = r->plan->pieces[index].tensor;
    const tg_list *chosen = &reducer->chosen;
    tg_list *left = &r->sparse[tensor].result;
    tg_frame made;
    tg_job_encode_list(r, index, chosen, part, tg_part_draw(r, index, reducer->rank) | TG_RESULT_DRAW, left->values,
                       &frame, &made);
    (void)tg_jobs_encode(r, "sum"); /* cannot fail: the means are finite */
    left->count = is_lossy(&reducer->tensors[tensor]) ? chosen->count : 0;
    for (size_t j = 0; j < left->count; j++) {
        left->indices[j] = chosen->indices[j];
        left->values[j] = chosen->values[j] - left->values[j];
    }
    return made.size;
}

void tg_sparse_sum(tg_reduction *r, size_t index, uint8_t **end)
{
    tg_reducer *reducer = r->reducer;
    const tg_piece *piece = &r->plan->pieces[index];
    const tg_owned part = tg_part_of(r, piece, reducer->rank);
    const double start = tg_seconds();
    sum_part(r, index, &part);
    const tg_list *all = &reducer->scratch;
    if (!tg_list_check(r, piece->tensor, all))
        return;
    const double summed = tg_seconds();
    reducer->stats.decode_seconds += summed - start;
    choose(reducer, all, share_of(r, piece, reducer->rank), &reducer->chosen);
    size_t bytes = send_chosen(r, index, &part, *end);
    const size_t dense = send_dense(r, index, &part, bytes, *end);
    if (dense > 0) {
        bytes = dense;
        r->sparse[piece->tensor].result.count = 0;
    }
    r->means[tg_part_number(r, index, reducer->rank)] = (tg_frame){*end, bytes};
    *end += bytes;
    reducer->stats.encode_seconds += tg_seconds() - summed;
}

bool tg_travels_dense(const tg_cursor *frames)
{
    tg_cursor ahead = *frames;
    tg_frame frame;
    tg_frame_info info;
    return tg_message_frame(&ahead, &frame) && tg_frame_read(frame, &info, NULL) == TG_OK &&
           tg_spec_is_lossless(&info.spec);
}

/* ---- boundaries ---- */

static bool proposes(const tg_reduction *r) { return r->number / r->reducer->options.depth % BOUNDARIES_EVERY == 0; }

static bool is_balanced(const tg_reduction *r, const tg_piece *piece)
{
    return piece->owner == TG_EVERY_OWNER && tg_piece_is_sparse(r, piece);
}

uint32_t tg_boundaries_size(const tg_reduction *r, const tg_batch *batch)
{
    uint32_t size = 0;
    for (size_t i = batch->first; proposes(r) && i < batch->first + batch->count; i++)
        size += is_balanced(r, &r->plan->pieces[i]) ? 4 * (r->reducer->world - 1) : 0;
    return size;
}

/* Where this rank would have the boundary before `owner`: so that all get equally many of its elements. */
static uint32_t proposal(const tg_reduction *r, const tg_piece *piece, uint32_t owner)
{
    const tg_list *sent = &r->sparse[piece->tensor].sent;
    const uint64_t world = r->reducer->world;
    if (r->given[piece->tensor] != TG_GIVEN) /* no opinion: where it is */
        return boundaries_of(r, &r->reducer->tensors[piece->tensor])[owner];
    return sent->count == 0 ? (uint32_t)(piece->count * owner / world) : sent->indices[sent->count * owner / world];
}

void tg_boundaries_write(const tg_reduction *r, const tg_batch *batch, uint8_t *extra)
{
    for (size_t i = batch->first; proposes(r) && i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        for (uint32_t owner = 1; is_balanced(r, piece) && owner < r->reducer->world; owner++, extra += 4) {
            const uint32_t boundary = proposal(r, piece, owner);
            tg_store32(extra, boundary);
            r->sparse[piece->tensor].boundary_sums[owner] += boundary;
        }
    }
}

bool tg_boundaries_read(tg_reduction *r, const tg_batch *batch, tg_cursor *extra)
{
    for (size_t i = batch->first; proposes(r) && i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        uint32_t before = 0;
        for (uint32_t owner = 1; is_balanced(r, piece) && owner < r->reducer->world; owner++) {
            const uint32_t boundary = tg_cursor_u32(extra);
            if (boundary < before || boundary > piece->count)
                return false;
            r->sparse[piece->tensor].boundary_sums[owner] += boundary;
            before = boundary;
        }
    }
    return !extra->short_read;
}

void tg_boundaries_move(tg_reduction *r)
{
    for (size_t i = 0; proposes(r) && i < r->plan->piece_count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        uint32_t *boundaries = is_balanced(r, piece) ? boundaries_of(r, &r->reducer->tensors[piece->tensor]) : NULL;
        for (uint32_t owner = 1; boundaries && owner < r->reducer->world; owner++)
            boundaries[owner] = (uint32_t)(r->sparse[piece->tensor].boundary_sums[owner] / r->reducer->world);
    }
}

void tg_boundaries_reset(tg_reducer *r)
{
    for (size_t i = 0; i < r->tensor_count; i++) {
        tg_reducing_tensor *t = &r->tensors[i];
        for (uint64_t slot = 0; t->boundaries && slot < r->options.depth; slot++)
            for (uint32_t owner = 0; owner <= r->world; owner++)
                t->boundaries[slot * ((uint64_t)r->world + 1) + owner] = (uint32_t)(t->given.count * owner / r->world);
    }
}

/* ---- the end ---- */

void tg_sparse_apply(tg_reduction *r, size_t index)
{
    tg_reducer *reducer = r->reducer;
    const tg_piece *piece = &r->plan->pieces[index];
    tg_feedback *feedback = reducer->tensors[piece->tensor].feedback;
    const tg_tensor whole = tg_piece_of(r, piece);
    const tg_list *sent = &r->sparse[piece->tensor].sent, *left = &r->sparse[piece->tensor].result;
    size_t from = 0;
    for (uint32_t owner = 0; owner < reducer->world; owner++) {
        const tg_owned part = tg_part_of(r, piece, owner);
        const tg_frame *result = &r->means[tg_part_number(r, index, owner)];
        if (part.count == 0)
            continue;
        if (whole.data) {
            char *data = (char *)whole.data + part.first * tg_dtype_size(whole.dtype);
            const tg_tensor out = {data, part.count, whole.dtype};
            tg_job_mean(reducer, result, 1, 1, r->plan->total, &out);
        }
        size_t to = from;
        while (to < sent->count && sent->indices[to] < part.first + part.count)
            to++;
        const tg_cursor bytes = tg_cursor_over(result->data, result->size);
        if (feedback && !tg_travels_dense(&bytes)) {
            const size_t m = tg_frame_list(reducer->device, *result, part.first, reducer->scratch.indices, NULL);
            const tg_list mine = {sent->indices + from, sent->values + from, to - from};
            reducer->stats.saturated += tg_feedback_add_list(feedback, &mine, 1, true, reducer->scratch.indices, m);
        }
        from = to;
    }
    /* An error of the mean is as large as `world` ranks' of theirs; one that no residual can hold is lost. */
    if (feedback)
        reducer->stats.dropped += tg_feedback_add_list(feedback, left, (float)reducer->world, false, NULL, 0);
}

void tg_sparse_undo(tg_reduction *r, size_t index)
{
    const uint32_t tensor = r->plan->pieces[index].tensor;
    const tg_list *sent = &r->sparse[tensor].sent;
    if (r->reducer->tensors[tensor].feedback)
        r->reducer->stats.saturated += tg_feedback_add_list(r->reducer->tensors[tensor].feedback, sent, 1, true, NULL,
                                                            0);
}

/* ---- what it keeps ---- */

void tg_sparse_reset(tg_reduction *r)
{
    for (size_t i = 0; i < r->reducer->tensor_count; i++) {
        tg_sparse_step *step = &r->sparse[i];
        step->selected = false;
        step->sent.count = step->result.count = 0;
        if (step->boundary_sums)
            memset(step->boundary_sums, 0, r->reducer->world * sizeof *step->boundary_sums);
    }
}

static tg_list take_list(tg_arena *arena, uint64_t room)
{
    return (tg_list){tg_arena_take(arena, room + 128, sizeof(uint32_t)),
                     tg_arena_take(arena, room + 128, sizeof(float)), 0};
}

bool tg_sparse_make_steps(tg_reducer *r, tg_reduction *reduction)
{
    reduction->sparse = tg_arena_take(&r->arena, r->tensor_count, sizeof *reduction->sparse);
    for (size_t i = 0; !r->arena.failed && i < r->tensor_count; i++) {
        if (!r->tensors[i].sparse)
            continue;
        reduction->sparse[i].sent = take_list(&r->arena, r->tensors[i].most);
        reduction->sparse[i].result = take_list(&r->arena, r->tensors[i].most);
        if (!r->functions->has_results)
            continue;
        reduction->sparse[i].boundary_sums = tg_arena_take(&r->arena, r->world,
                                                           sizeof *reduction->sparse[i].boundary_sums);
    }
    return !r->arena.failed;
}

tg_status tg_sparse_make(tg_reducer *r, tg_error *error)
{
    uint64_t longest = 0, most = 0, together = 0;
    for (size_t i = 0; i < r->tensor_count; i++) {
        tg_reducing_tensor *t = &r->tensors[i];
        if (!t->sparse)
            continue;
        longest = t->given.count > longest ? t->given.count : longest;
        most = t->most > most ? t->most : most;
        const uint64_t all = t->most * r->world < t->given.count ? t->most * r->world : t->given.count;
        together = all > together ? all : together;
        t->boundaries = tg_arena_take(&r->arena, r->options.depth * ((uint64_t)r->world + 1), sizeof *t->boundaries);
    }
    r->sums = tg_arena_take(&r->arena, longest, sizeof *r->sums);
    r->touched = tg_arena_take(&r->arena, longest / 64 + 1, sizeof *r->touched);
    r->scratch = take_list(&r->arena, together);
    r->chosen = take_list(&r->arena, most);
    r->key_room = (size_t)together;
    r->keys = tg_arena_take(&r->arena, together, sizeof *r->keys);
    if (r->arena.failed)
        return tg_fail(error, TG_OUT_OF_MEMORY,
                       "out of memory for the sums of sparse tensors of up to %" PRIu64 " elements", longest);
    tg_boundaries_reset(r);
    return TG_OK;
}
