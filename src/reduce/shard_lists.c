/* Sparse pieces under `shard`, after Ok-Topk: every rank selects in the whole tensor and sends each owner what lies in
 * its part; owners add up and select again, their share of the k largest means; what did not make it returns to the
 * residuals. Lists of elements stay on the device; what is known here is how many they have. */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "frame/decode.h"
#include "reduce/reducer.h"

enum { LIST_SLACK = 128 }; /* elements of room that the device wants behind a selection */

static bool is_lossy(const tg_reducing_tensor *t) { return tg_spec_values(&t->spec) != TG_VALUES_FP32; }

/* ---- selecting and sending ---- */

void tg_shard_list_select(tg_reduction *r, const tg_batch *batch)
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

void tg_shard_list_send(tg_reduction *r, size_t index)
{
    tg_reducer *reducer = r->reducer;
    const tg_piece *piece = &r->plan->pieces[index];
    const tg_shard_list_step *step = &r->sparse[piece->tensor];
    const bool every = piece->owner == TG_EVERY_OWNER;
    const uint32_t first = every ? 0 : piece->owner, end = every ? reducer->world : piece->owner + 1;
    for (uint32_t owner = first; step->selected && owner < end; owner++) {
        const tg_owned part = tg_part_of(r, piece, owner);
        if (part.count == 0)
            continue;
        tg_job_encode_list(r, index, &step->sent, &part, tg_part_draw(r, index, owner), step->seen,
                           &reducer->ends[owner], &r->sent[tg_part_number(r, index, owner)]);
        reducer->frame_counts[owner]++;
    }
}

void tg_shard_list_sent(tg_reduction *r, const tg_batch *batch)
{
    for (size_t i = batch->first; i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        const tg_reducing_tensor *t = &r->reducer->tensors[piece->tensor];
        const tg_shard_list_step *step = &r->sparse[piece->tensor];
        if (tg_piece_is_sparse(r, piece) && step->selected && is_lossy(t) && t->feedback)
            tg_job_add_list(
                r->reducer, t->feedback,
                &(tg_list_job){
                    .list = &step->sent, .count = piece->count, .sent = step->seen, .factor = 1, .limits = true});
    }
    tg_jobs_add_lists(r->reducer);
}

/* ---- summing and selecting again ---- */

/* How many means an owner may send: its part of what one rank selects. */
static uint64_t most_means_of(const tg_reduction *r, const tg_piece *piece, uint32_t owner)
{
    const tg_spec spec = tg_spec_in(r, piece->tensor);
    const uint64_t k = tg_spec_selected(&spec, piece->count), world = r->reducer->world;
    if (piece->owner != TG_EVERY_OWNER)
        return k;
    const uint64_t share = k * (owner + 1) / world - k * owner / world;
    return share ? share : 1;
}

static uint32_t result_draw(const tg_reduction *r, size_t index)
{
    return tg_part_draw(r, index, r->reducer->rank) | TG_RESULT_DRAW;
}

/* Elements that all ranks' lists of what an owner sums of a piece can have together. */
static uint64_t most_together(const tg_reducer *r, const tg_piece *piece)
{
    const uint64_t lists = r->tensors[piece->tensor].most * r->world,
                   count = piece->owner == TG_EVERY_OWNER ? tg_part_limit(piece->count, r->world) : piece->count;
    return lists < count ? lists : count;
}

static void collect_sums(tg_reduction *r, const tg_batch *batch)
{
    tg_reducer *reducer = r->reducer;
    uint32_t *indices = reducer->sum_memory;
    uint64_t at = 0;
    reducer->sum_count = 0;
    if (!indices) /* nothing is sparse */
        return;
    float *values = (float *)(void *)(indices + reducer->sum_room);
    for (size_t i = batch->first; i < batch->first + batch->count && !tg_reduction_lost(r); i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        if (!tg_piece_is_sparse(r, piece) || !tg_is_summed(r, piece))
            continue;
        const tg_owned part = tg_part_of(r, piece, reducer->rank);
        const size_t n = reducer->sum_count++;
        reducer->sums[n] = (tg_list){indices + at, values + at, 0};
        reducer->summed[n] = i;
        reducer->sum_jobs[n] = (tg_sum_job){.workspace = reducer->list_workspace,
                                            .frames = tg_received(r, i),
                                            .frame_count = reducer->world,
                                            .on_device = reducer->options.on_device,
                                            .first = part.first,
                                            .count = part.count,
                                            .factor = 1.0f / (float)tg_divisor(reducer),
                                            .drops = tg_policy_of(reducer) == TG_NONFINITE_ZERO,
                                            .sums = &reducer->sums[n],
                                            .chosen_count = most_means_of(r, piece, reducer->rank),
                                            .chosen = &r->sparse[piece->tensor].result};
        at += most_together(reducer, piece);
    }
}

void tg_shard_list_sum(tg_reduction *r, const tg_batch *batch)
{
    tg_reducer *reducer = r->reducer;
    tg_device *device = reducer->device;
    collect_sums(r, batch);
    if (reducer->sum_count == 0)
        return;
    device->operations->sum_lists(device, reducer->sum_jobs, reducer->sum_count);
    device->operations->wait(device);
    for (size_t n = 0; n < reducer->sum_count; n++) {
        const tg_sum_job *job = &reducer->sum_jobs[n];
        reducer->stats.dropped += job->dropped;
        if (job->nonfinite < job->first + job->count)
            tg_mean_fail(r, r->plan->pieces[reducer->summed[n]].tensor, job->nonfinite);
    }
}

void tg_shard_list_result(tg_reduction *r, size_t index, uint8_t **end)
{
    const tg_piece *piece = &r->plan->pieces[index];
    const uint32_t rank = r->reducer->rank;
    const tg_owned part = tg_part_of(r, piece, rank);
    const tg_shard_list_step *step = &r->sparse[piece->tensor];
    tg_job_encode_list(r, index, &step->result, &part, result_draw(r, index), step->seen, end,
                       &r->means[tg_part_number(r, index, rank)]);
}

/* All means of a part in the place of the chosen ones, where that is no larger. */
static size_t collect_dense(tg_reduction *r)
{
    tg_reducer *reducer = r->reducer;
    tg_device *device = reducer->device;
    size_t count = 0;
    for (size_t n = 0; n < reducer->sum_count; n++) {
        const size_t i = reducer->summed[n];
        const tg_piece *piece = &r->plan->pieces[i];
        const tg_owned part = tg_part_of(r, piece, reducer->rank);
        tg_frame *frame = &r->means[tg_part_number(r, i, reducer->rank)];
        float *place = reducer->wide + piece->place;
        if (tg_frame_bound(reducer->plain, part.count) > frame->size)
            continue;
        device->operations->spread_list(device, &reducer->sums[n], part.first, part.count, place);
        const tg_source means = {.gradient = place, .dtype = TG_FLOAT32, .count = part.count};
        tg_job_encode_plain(r, i, &means, result_draw(r, i), frame);
        r->is_whole[tg_part_number(r, i, reducer->rank)] = true;
        r->sparse[piece->tensor].result.count = 0; /* nothing is left of it */
        count++;
    }
    return count;
}

void tg_shard_list_shrink(tg_reduction *r, const tg_batch *batch, uint8_t **end)
{
    if (tg_reduction_lost(r))
        return;
    const size_t dense = collect_dense(r);
    if (dense == 0)
        return;
    (void)tg_jobs_encode(r, "sum"); /* cannot fail: the means are finite */
    r->reducer->stats.dense_parts += dense;
    if (r->bodies) /* entries say where frames lie: gaps may stay */
        return;
    uint8_t *to = NULL;
    for (size_t i = batch->first; i < batch->first + batch->count; i++) {
        if (!tg_is_summed(r, &r->plan->pieces[i]))
            continue;
        tg_frame *frame = &r->means[tg_part_number(r, i, r->reducer->rank)];
        to = to ? to : (uint8_t *)(uintptr_t)frame->data;
        memmove(to, frame->data, frame->size);
        frame->data = to;
        to += frame->size;
    }
    *end = to;
}

/* ---- the end ---- */

/* What this rank sent of a part, and the owner did not choose, returns to the residual. */
static void return_part(tg_reduction *r, const tg_piece *piece, const tg_owned *part, size_t result)
{
    tg_feedback *feedback = r->reducer->tensors[piece->tensor].feedback;
    if (!feedback || r->is_whole[result])
        return;
    tg_job_add_list(r->reducer, feedback,
                    &(tg_list_job){.list = &r->sparse[piece->tensor].sent,
                                   .first = part->first,
                                   .count = part->count,
                                   .applied = r->means[result],
                                   .factor = 1,
                                   .limits = true});
}

void tg_shard_list_apply(tg_reduction *r, size_t index)
{
    tg_reducer *reducer = r->reducer;
    const tg_piece *piece = &r->plan->pieces[index];
    const tg_reducing_tensor *t = &reducer->tensors[piece->tensor];
    const tg_shard_list_step *step = &r->sparse[piece->tensor];
    const tg_tensor whole = tg_piece_of(r, piece);
    for (uint32_t owner = 0; owner < reducer->world; owner++) {
        const tg_owned part = tg_part_of(r, piece, owner);
        const size_t result = tg_part_number(r, index, owner);
        if (part.count == 0)
            continue;
        if (whole.data) {
            char *data = (char *)whole.data + part.first * tg_dtype_size(whole.dtype);
            const tg_tensor out = {data, part.count, whole.dtype};
            tg_job_mean(reducer, &r->means[result], 1, 1, r->plan->total, &out);
        }
        return_part(r, piece, &part, result);
    }
    /* An error of the mean is as large as `world` ranks' of theirs; one that no residual can hold is lost. */
    if (t->feedback && is_lossy(t) && step->result.count > 0)
        tg_job_add_list(reducer, t->feedback,
                        &(tg_list_job){.list = &step->result,
                                       .count = piece->count,
                                       .sent = step->seen,
                                       .factor = (float)tg_divisor(reducer)});
}

void tg_shard_list_undo(tg_reduction *r, size_t index)
{
    const tg_piece *piece = &r->plan->pieces[index];
    tg_feedback *feedback = r->reducer->tensors[piece->tensor].feedback;
    const tg_list *sent = &r->sparse[piece->tensor].sent;
    if (feedback && sent->count > 0)
        tg_job_add_list(r->reducer, feedback,
                        &(tg_list_job){.list = sent, .count = piece->count, .factor = 1, .limits = true});
}

/* ---- what it keeps ---- */

void tg_shard_list_reset(tg_reduction *r)
{
    for (size_t i = 0; i < r->reducer->tensor_count; i++) {
        tg_shard_list_step *step = &r->sparse[i];
        step->selected = false;
        step->sent.count = step->result.count = 0;
        step->proposal_sum = 0;
    }
}

/* Elements of device memory for the lists of a tensor: two, and what is seen of one. */
static uint64_t list_room(const tg_reducing_tensor *t) { return t->sparse ? 5 * (t->most + LIST_SLACK) : 0; }

bool tg_shard_list_make_steps(tg_reducer *r, tg_reduction *reduction)
{
    uint64_t room = 0;
    for (size_t i = 0; i < r->tensor_count; i++)
        room += list_room(&r->tensors[i]);
    reduction->sparse = tg_arena_take(&r->arena, r->tensor_count, sizeof *reduction->sparse);
    reduction->lists = room > 0 ? r->device->operations->allocate(r->device, (size_t)room * sizeof(float), 0) : NULL;
    r->arena.failed |= room > 0 && !reduction->lists;
    uint32_t *at = reduction->lists;
    for (size_t i = 0; !r->arena.failed && i < r->tensor_count; i++) {
        tg_shard_list_step *step = &reduction->sparse[i];
        const uint64_t most = r->tensors[i].most + LIST_SLACK;
        if (!r->tensors[i].sparse)
            continue;
        step->sent = (tg_list){at, (float *)(void *)(at + most), 0};
        step->result = (tg_list){at + 2 * most, (float *)(void *)(at + 3 * most), 0};
        step->seen = (float *)(void *)(at + 4 * most);
        at += list_room(&r->tensors[i]);
        if (r->tensors[i].boundaries)
            step->proposals = tg_arena_take(&r->arena, r->world, sizeof *step->proposals);
    }
    return !r->arena.failed;
}

/* Room for the sums of a batch, and for the jobs that make them. */
static bool make_sums(tg_reducer *r, uint64_t longest, uint64_t most)
{
    uint64_t together = 0;
    size_t jobs = 0;
    for (size_t b = 0; b < r->coded.batch_count; b++) {
        uint64_t room = 0;
        size_t count = 0;
        for (size_t i = r->coded.batches[b].first; i < r->coded.batches[b].first + r->coded.batches[b].count; i++) {
            const tg_piece *piece = &r->coded.pieces[i];
            if (!r->tensors[piece->tensor].sparse || !tg_goes_to(piece, r->rank))
                continue;
            const uint64_t sums = most_together(r, piece);
            together = sums > together ? sums : together;
            room += sums;
            count++;
        }
        r->sum_room = room > r->sum_room ? room : r->sum_room;
        jobs = count > jobs ? count : jobs;
    }
    r->sum_jobs = tg_arena_take(&r->arena, jobs, sizeof *r->sum_jobs);
    r->sums = tg_arena_take(&r->arena, jobs, sizeof *r->sums);
    r->summed = tg_arena_take(&r->arena, jobs, sizeof *r->summed);
    if (most == 0)
        return true;
    tg_device *device = r->device;
    r->sum_memory = device->operations->allocate(device, (size_t)r->sum_room * 2 * sizeof(float), 0);
    r->list_workspace = device->operations->make_list_workspace(device, longest, most, together);
    return r->sum_memory && r->list_workspace;
}

tg_status tg_shard_list_make(tg_reducer *r, tg_error *error)
{
    uint64_t longest = 0, most = 0;
    for (size_t i = 0; i < r->tensor_count; i++) {
        tg_reducing_tensor *t = &r->tensors[i];
        if (!t->sparse)
            continue;
        longest = t->given.count > longest ? t->given.count : longest;
        most = t->most > most ? t->most : most;
        t->boundaries = tg_arena_take(&r->arena, r->options.depth * ((uint64_t)r->world + 1), sizeof *t->boundaries);
    }
    r->old_boundaries = tg_arena_take(&r->arena, r->world, sizeof *r->old_boundaries);
    if (!make_sums(r, longest, most) || r->arena.failed)
        return tg_fail(error, TG_OUT_OF_MEMORY,
                       "out of memory for the sums of sparse tensors of up to %" PRIu64 " elements", longest);
    tg_boundaries_reset(r);
    return TG_OK;
}

void tg_shard_list_free(tg_reducer *r)
{
    tg_device *device = r->device;
    for (uint32_t i = 0; r->reductions && i < r->options.depth; i++)
        device->operations->release(device, r->reductions[i].lists);
    device->operations->release(device, r->sum_memory);
    device->operations->free_list_workspace(device, r->list_workspace);
}
