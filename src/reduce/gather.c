/* `gather`: every frame to every rank, which adds them up in rank order. Steps: one all-gather for each batch. */
#include <string.h>

#include "base/status.h"
#include "reduce/reducer.h"

static void send(tg_reduction *r, size_t number)
{
    tg_transfer *transfer = &r->batches[number];
    const tg_batch *batch = &r->plan->batches[number];
    const uint32_t extra = tg_present_size(r, number);
    uint8_t *end = transfer->out + TG_MESSAGE_HEADER + extra;
    for (size_t i = batch->first; i < batch->first + batch->count; i++)
        if (tg_piece_is_sent(r, &r->plan->pieces[i]))
            tg_piece_encode(r, i, (uint32_t)i, &end);
    const size_t frames = tg_jobs_encode(r, "gradient");
    tg_pieces_note(r, frames);
    const bool whole = !tg_reduction_lost(r);
    tg_present_write(r, number, transfer->out + TG_MESSAGE_HEADER);
    tg_transfer_seal(r, transfer, whole ? (uint32_t)frames : 0, whole ? extra : 0, transfer->out);
    tg_transfer_send_all(r->reducer, transfer, whole ? (size_t)(end - transfer->out) : TG_MESSAGE_HEADER);
}

/* ---- sums that are not finite ----
 *
 * Finite values may add up to an infinity. To find out by looking at every sum would be another pass, and too late:
 * sums are written over the gradients, which stay as they are where a step is not applied. So ranks look at how large
 * the values of others' frames can be, which their scales say, and add up beforehand what may come to too much. Every
 * frame is looked at by another rank than its own, and all hear of what one finds by its verdict; under
 * TG_NONFINITE_DROP, where they say nothing, ranks look at their own as well. */

static bool drops(const tg_reducer *r) { return r->options.nonfinite == TG_NONFINITE_DROP; }

/* The mean of a piece in reducer->wide, looked at, and then in `narrow` unless that is NULL. Where it is not finite,
 * 0 takes its place if that is the policy; every rank has the same sums, and does the same. */
static void weigh(tg_reduction *r, size_t index, const tg_tensor *narrow)
{
    tg_reducer *reducer = r->reducer;
    const tg_tensor wide = {reducer->wide, r->plan->pieces[index].count, TG_FLOAT32};
    tg_job_mean(reducer, tg_received(r, index), tg_pack_received(r, index), 1.0f / (float)reducer->world, 0, &wide);
    tg_jobs_add(reducer);
    tg_mean mean = tg_mean_of(r, index, reducer->wide, narrow ? narrow->data : NULL,
                              narrow ? narrow->dtype : TG_FLOAT32);
    (void)tg_means_check(r, &mean, 1);
}

/* ---- frames in, sums out ---- */

static void take_from(tg_reduction *r, size_t number, uint32_t peer)
{
    const tg_batch *batch = &r->plan->batches[number];
    tg_message message;
    tg_cursor extra, frames;
    uint32_t due_count = 0;
    if (!tg_transfer_open(r, &r->batches[number], peer, &message, &extra, &frames) ||
        !tg_present_read(r, number, peer, &extra))
        return;
    for (size_t i = batch->first; i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        const tg_due due = {.tensor = piece->tensor,
                            .spec = tg_spec_in(r, piece->tensor),
                            .dtype = r->gradients[piece->tensor].dtype,
                            .count = piece->count,
                            .draw = (uint32_t)i};
        if (!r->has[piece->tensor])
            continue;
        if (!tg_piece_take(r, peer, &frames, &due, &tg_received(r, i)[peer], &r->may_overflow[i]))
            return;
        due_count++;
    }
    tg_transfer_close(r, peer, &message, due_count, &extra, &frames);
}

/* Only how large the values of this rank's own frames are: they were made here. */
static void look_at_own(tg_reduction *r, const tg_batch *batch)
{
    for (size_t i = batch->first; i < batch->first + batch->count; i++) {
        const tg_frame own = tg_received(r, i)[r->reducer->rank];
        if (own.data)
            tg_job_check(r,
                         &(tg_check_job){.frame = own, .count = TG_ANY_COUNT, .header_only = true, .wants_peak = true},
                         &(tg_checked){.may_overflow = &r->may_overflow[i]});
    }
}

static void take(tg_reduction *r, size_t number)
{
    const tg_batch *batch = &r->plan->batches[number];
    tg_receive_own(r, batch);
    for (uint32_t peer = 0; peer < r->reducer->world; peer++)
        if (peer != r->reducer->rank && !tg_reduction_lost(r))
            take_from(r, number, peer);
    if (drops(r->reducer))
        look_at_own(r, batch);
    tg_jobs_check(r);
    for (size_t i = batch->first; i < batch->first + batch->count && !tg_reduction_lost(r); i++)
        if (!drops(r->reducer) && r->may_overflow[i])
            weigh(r, i, NULL);
}

static void apply(tg_reduction *r)
{
    tg_reducer *reducer = r->reducer;
    for (size_t i = 0; i < r->plan->piece_count; i++) {
        const tg_tensor out = tg_piece_of(r, &r->plan->pieces[i]);
        const size_t count = tg_pack_received(r, i);
        if (count == 0 || !out.data)
            continue;
        if (r->may_overflow[i] && drops(reducer)) {
            tg_jobs_add(reducer); /* some of which may use reducer->wide */
            weigh(r, i, &out);
        } else {
            tg_job_mean(reducer, tg_received(r, i), count, 1.0f / (float)reducer->world, r->plan->total, &out);
        }
    }
    tg_jobs_add(reducer);
}

static void undo(tg_reduction *r)
{
    for (size_t i = 0; i < r->plan->piece_count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        const tg_frame sent = r->sent[piece->part];
        if (sent.data && r->reducer->tensors[piece->tensor].feedback)
            r->reducer->stats.saturated += tg_feedback_return_piece(r->reducer->tensors[piece->tensor].feedback, sent,
                                                                    piece->first);
    }
}

const tg_algorithm_functions tg_gather = {
    .algorithm = TG_GATHER, .send = send, .take = take, .apply = apply, .undo = undo};
