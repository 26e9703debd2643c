/* Jobs for the device. Those of a message are collected, handed over in one call and waited for together: a model has
 * hundreds of small tensors, and on a card a wait for each would take longer than their work. */
#include <float.h>
#include <inttypes.h>

#include "base/status.h"
#include "frame/decode.h"
#include "reduce/reducer.h"

enum { MOST_JOBS = 4096 }; /* of a kind that are collected: more are done in several calls */

static void wait(const tg_reducer *r) { r->device->operations->wait(r->device); }

/* ---- encoding ---- */

static tg_encode_job *add_encoding(tg_reduction *r, size_t index, tg_codec *codec, const tg_source *source,
                                   uint32_t draw)
{
    tg_reducer *reducer = r->reducer;
    const tg_encode_options options = {.draw = tg_draw_of(r, reducer->rank, draw),
                                       .nonfinite = tg_policy_of(reducer),
                                       .on_device = reducer->options.on_device};
    tg_encode_job *job = &reducer->encodings[reducer->encoding_count];
    *job = tg_encode_job_of(codec, source, &options);
    reducer->encoded[reducer->encoding_count++] = (tg_encoded){.piece = index};
    return job;
}

static tg_codec *codec_of(tg_reduction *r, size_t index) { return tg_codec_in(r, r->plan->pieces[index].tensor); }

void tg_job_encode(tg_reduction *r, size_t index, const tg_source *source, uint32_t draw, uint8_t **end,
                   tg_frame *frame)
{
    add_encoding(r, index, codec_of(r, index), source, draw)->end = end;
    r->reducer->encoded[r->reducer->encoding_count - 1].frame = frame;
}

void tg_job_select(tg_reduction *r, size_t index, const tg_source *source, uint32_t draw, tg_list *list)
{
    add_encoding(r, index, codec_of(r, index), source, draw)->list = list;
}

void tg_job_encode_list(tg_reduction *r, size_t index, const tg_list *list, const tg_owned *part, uint32_t draw,
                        float *sent, uint8_t **end, tg_frame *frame)
{
    const tg_source source = {.dtype = TG_FLOAT32, .count = part->count};
    tg_encode_job *job = add_encoding(r, index, codec_of(r, index), &source, draw);
    r->reducer->encoded[r->reducer->encoding_count - 1].frame = frame;
    job->options.nonfinite = TG_NONFINITE_REJECT;
    job->selected = list;
    job->first = part->first;
    job->sent = sent;
    job->end = end;
}

void tg_job_encode_plain(tg_reduction *r, size_t index, const tg_source *source, uint32_t draw, tg_frame *frame)
{
    tg_encode_job *job = add_encoding(r, index, r->reducer->plain, source, draw);
    r->reducer->encoded[r->reducer->encoding_count - 1].frame = frame;
    job->options.nonfinite = TG_NONFINITE_REJECT;
    job->frame = (void *)(uintptr_t)frame->data;
}

/* Those that would go on where a value is not finite. */
static const char *other_policies(const tg_reducer *r)
{
    return r->options.nonfinite == TG_NONFINITE_STOP ? "skip or drop" : "drop";
}

size_t tg_jobs_begin(tg_reducer *r)
{
    if (r->encoding_count > 0)
        r->device->operations->encode(r->device, r->encodings, r->encoding_count);
    return r->encoding_count;
}

size_t tg_jobs_take(tg_reduction *r, const char *what)
{
    tg_reducer *reducer = r->reducer;
    const size_t count = reducer->encoding_count;
    reducer->encoding_count = 0;
    for (size_t j = 0; j < count; j++) {
        const tg_encode_job *job = &reducer->encodings[j];
        tg_encoded *encoded = &reducer->encoded[j];
        tg_error why;
        const tg_piece *piece = &r->plan->pieces[encoded->piece];
        const uint64_t first = tg_named_element(reducer, piece->tensor,
                                                piece->first + (job->selected ? job->first : 0));
        const tg_status status = tg_encode_outcome(reducer->device, job, first, other_policies(reducer), &why);
        if (status != TG_OK)
            tg_piece_fail(r, piece->tensor, what, status, &why);
        if (encoded->frame && job->report.bytes > 0) /* with a damaged residual there is one too, to be returned */
            *encoded->frame = (tg_frame){job->frame, job->report.bytes};
    }
    return count;
}

size_t tg_jobs_encode(tg_reduction *r, const char *what)
{
    if (tg_jobs_begin(r->reducer) > 0)
        wait(r->reducer);
    return tg_jobs_take(r, what);
}

/* ---- checking ---- */

void tg_job_check(tg_reduction *r, const tg_check_job *job, const tg_checked *checked)
{
    tg_reducer *reducer = r->reducer;
    if (reducer->check_count == reducer->check_room)
        tg_jobs_check(r);
    reducer->checks[reducer->check_count] = *job;
    reducer->checks[reducer->check_count].on_device = reducer->options.on_device;
    reducer->checked[reducer->check_count++] = *checked;
}

/* Half of what `world` ranks can add up; the other half is for rounding. */
static bool can_overflow(const tg_reducer *r, uint32_t peak)
{
    return peak > tg_float_bits(FLT_MAX / 2 / (float)r->world);
}

static void take_check(tg_reduction *r, const tg_check_job *job, const tg_checked *checked)
{
    tg_error why = job->error;
    tg_status status = job->status;
    tg_due due = checked->due;
    if (status == TG_OK && checked->compares)
        status = tg_piece_compare(r, checked->peer, &job->info, &due, &why);
    if (status == TG_OK && due.most > 0 && job->selected > due.most)
        status = tg_fail(&why, TG_CORRUPT, "it lists more than the %" PRIu64 " elements that a rank may select",
                         due.most);
    if (status != TG_OK && checked->frame)
        checked->frame->data = NULL;
    if (status != TG_OK)
        tg_bad_frame(r, due.tensor, checked->peer, &why);
    else if (checked->may_overflow)
        *checked->may_overflow |= can_overflow(r->reducer, job->peak);
}

void tg_jobs_check(tg_reduction *r)
{
    tg_reducer *reducer = r->reducer;
    const size_t count = reducer->check_count;
    reducer->check_count = 0;
    /* Within a host, what comes is needed for residuals even where the step is lost. */
    if (count == 0 || (tg_reduction_lost(r) && !r->levels))
        return;
    reducer->device->operations->check(reducer->device, reducer->checks, count);
    wait(reducer);
    for (size_t j = 0; j < count; j++)
        take_check(r, &reducer->checks[j], &reducer->checked[j]);
}

/* ---- adding ---- */

void tg_job_mean(tg_reducer *r, const tg_frame *frames, size_t frame_count, float scale, uint64_t among,
                 const tg_tensor *out)
{
    if (r->adding_count == r->adding_room)
        tg_jobs_add(r);
    r->addings[r->adding_count] = tg_mean_job(frames, frame_count, scale, r->wide, among, out);
    r->addings[r->adding_count++].on_device = r->options.on_device;
}

void tg_jobs_add(tg_reducer *r)
{
    const size_t count = r->adding_count;
    r->adding_count = 0;
    if (count == 0)
        return;
    /* The frames were checked or made here, so this can fail only for want of memory on a card. */
    r->device->operations->add(r->device, r->addings, count);
    wait(r);
    for (size_t i = 0; i < count; i++)
        if (r->addings[i].status != TG_OK)
            r->adding_status = r->addings[i].status;
}

/* ---- lists ---- */

void tg_job_add_list(tg_reducer *r, tg_feedback *feedback, const tg_list_job *job)
{
    if (r->list_count == r->list_room)
        tg_jobs_add_lists(r);
    r->list_feedbacks[r->list_count] = feedback;
    r->list_jobs[r->list_count] = *job;
    r->list_jobs[r->list_count].on_device = r->options.on_device;
    r->list_jobs[r->list_count++].workspace = r->list_workspace;
}

void tg_jobs_add_lists(tg_reducer *r)
{
    const size_t count = r->list_count;
    r->list_count = 0;
    if (count == 0)
        return;
    tg_feedback_add_lists(r->device, r->list_feedbacks, r->list_jobs, count);
    for (size_t i = 0; i < count; i++)
        *(r->list_jobs[i].limits ? &r->stats.saturated : &r->stats.dropped) += r->list_jobs[i].overflows;
}

/* ---- room ---- */

/* The most parts that a batch has. */
static size_t largest_batch(const tg_plan *plan)
{
    size_t most = 0;
    for (size_t i = 0; i < plan->batch_count; i++) {
        const size_t next = plan->batches[i].first + plan->batches[i].count;
        const size_t end = next < plan->piece_count ? plan->pieces[next].part : plan->part_count;
        const size_t parts = end - plan->pieces[plan->batches[i].first].part;
        most = parts > most ? parts : most;
    }
    return most;
}

static size_t limited(uint64_t count) { return count < MOST_JOBS ? (size_t)count : MOST_JOBS; }

void tg_jobs_make(tg_reducer *r)
{
    const size_t coded = largest_batch(&r->coded), dense = largest_batch(&r->dense);
    const size_t parts = coded > dense ? coded : dense;
    const size_t all = r->coded.part_count > r->dense.part_count ? r->coded.part_count : r->dense.part_count;
    r->check_room = limited((uint64_t)parts * r->world);
    r->adding_room = limited(all);
    r->encodings = tg_arena_take(&r->arena, parts, sizeof *r->encodings);
    r->encoded = tg_arena_take(&r->arena, parts, sizeof *r->encoded);
    r->checks = tg_arena_take(&r->arena, r->check_room, sizeof *r->checks);
    r->checked = tg_arena_take(&r->arena, r->check_room, sizeof *r->checked);
    r->addings = tg_arena_take(&r->arena, r->adding_room, sizeof *r->addings);
    r->list_room = r->functions->has_parts ? limited(all + r->coded.piece_count) : 0;
    r->list_jobs = tg_arena_take(&r->arena, r->list_room, sizeof *r->list_jobs);
    r->list_feedbacks = tg_arena_take(&r->arena, r->list_room, sizeof(tg_feedback *));
    r->checked_means = tg_arena_take(&r->arena, parts, sizeof *r->checked_means);
    r->outgoing = tg_arena_take(&r->arena, r->options.on_device ? parts : 0, sizeof *r->outgoing);
}
