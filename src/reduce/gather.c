/* `gather`: every frame to every rank, which adds them up in rank order. Steps: one all-gather for each batch. */
#include <string.h>

#include "base/status.h"
#include "reduce/levels.h"

enum { MOST_AT_ONCE = 8, WINDOW_BYTES = 1 << 30 };

uint32_t tg_gather_window(const tg_reducer *r)
{
    const size_t coded = r->coded.batch_count, dense = r->dense.batch_count, batches = coded > dense ? coded : dense;
    uint64_t all = 0, largest = 0, peers = r->world - UINT64_C(1);
    /* Few ranks are faster if they write once; between hosts frames may have to stay until they are spread. */
    if (r->functions != &tg_gather || tg_agreement_rounds(r->world) < 2 ||
        (r->share.whole && !tg_share_spreads_means(r->share.whole, r->share.number)))
        return 0;
    for (size_t i = 0; i < batches; i++) {
        const uint64_t room = tg_is_relayed(r, i) ? 0 : tg_batch_bound(r, i);
        all += room * peers;
        largest = room > largest ? room : largest;
    }
    if (largest == 0)
        return 0;
    const uint64_t fit = WINDOW_BYTES / (largest * peers), window = fit > MOST_AT_ONCE ? MOST_AT_ONCE
                                                                    : fit > 1          ? fit
                                                                                       : 1;
    return all > 2 * (sizeof(float) * r->coded.total + window * largest * peers) ? (uint32_t)window : 0;
}

/* ---- out ---- */

/* Puts the encodings of a message on the device's stream, and those norms behind them that go with their reports. */
static void begin_message(tg_reduction *r, size_t number)
{
    tg_reducer *reducer = r->reducer;
    tg_transfer *transfer = &r->batches[number];
    const tg_batch *batch = &r->plan->batches[number];
    transfer->end = tg_frames_at(transfer, TG_EVERY_OWNER, tg_present_size(r, number));
    for (size_t i = batch->first; i < batch->first + batch->count; i++)
        if (tg_piece_is_sent(r, &r->plan->pieces[i]))
            tg_piece_encode(r, i, (uint32_t)i, &transfer->end);
    tg_pieces_ask(r, tg_jobs_begin(reducer));
    transfer->begun = true;
    reducer->begun_message = transfer;
    reducer->begun_by = r;
}

void tg_message_reports(tg_reducer *reducer)
{
    tg_transfer *transfer = reducer->begun_message;
    if (!transfer)
        return;
    reducer->begun_message = NULL;
    reducer->device->operations->wait_for_reports(reducer->device);
    transfer->frames = tg_jobs_take(reducer->begun_by, "gradient");
    tg_pieces_note(reducer->begun_by, transfer->frames);
}

/* Whether the next message is begun before one is handed out, so that a card codes while frames are copied to the host.
 * On a CPU it would only delay this one; a share's tensors may be given before all of their pieces are there. */
static bool begins_next(const tg_reduction *r, size_t number)
{
    const tg_reducer *reducer = r->reducer;
    return !reducer->device->reads_host && !reducer->options.on_device && !reducer->share.whole &&
           number + 1 < r->plan->batch_count && tg_message_is_given(r, number + 1);
}

static void send(tg_reduction *r, size_t number)
{
    tg_reducer *reducer = r->reducer;
    tg_transfer *transfer = &r->batches[number];
    tg_message_reports(reducer); /* of this message, if it was begun; or of another reduction's next one */
    if (!transfer->begun) {
        begin_message(r, number);
        tg_message_reports(reducer);
    }
    for (size_t j = 0; transfer->body && !tg_reduction_lost(r) && j < transfer->frames; j++)
        reducer->outgoing[j] = *reducer->encoded[j].frame;
    tg_present_write(r, number, tg_extra_at(transfer, TG_EVERY_OWNER));
    tg_message_send(r, transfer, TG_EVERY_OWNER, tg_present_size(r, number), reducer->outgoing,
                    (uint32_t)transfer->frames, transfer->end);
    if (begins_next(r, number))
        begin_message(r, number + 1);
    reducer->device->operations->wait_for_frames(reducer->device);
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

float *tg_aside_of(const tg_reduction *r, const tg_piece *piece)
{
    return r->aside + r->reducer->tensors[piece->tensor].aside_at + piece->first;
}

/* The means of a batch, before its messages' room is used again. */
static void set_aside(tg_reduction *r, const tg_batch *batch)
{
    tg_reducer *reducer = r->reducer;
    const double start = tg_seconds();
    size_t large = 0;
    for (size_t i = batch->first; i < batch->first + batch->count && !tg_reduction_lost(r); i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        const size_t count = tg_pack_received(r, i);
        const tg_tensor mean = {tg_aside_of(r, piece), piece->count, TG_FLOAT32};
        if (count == 0)
            continue;
        tg_job_mean(reducer, tg_received(r, i), count, 1.0f / (float)tg_divisor(reducer), r->plan->total, &mean);
        if (r->may_overflow[i])
            reducer->checked_means[large++] = tg_mean_of(r, i, tg_aside_of(r, piece), NULL, TG_FLOAT32);
    }
    tg_jobs_add(reducer);
    if (large > 0)
        (void)tg_means_check(r, reducer->checked_means, large);
    reducer->stats.decode_seconds += tg_seconds() - start;
    reducer->stats.verify_seconds -= tg_seconds() - start; /* which this is part of */
}

static void take(tg_reduction *r, size_t number)
{
    const tg_batch *batch = &r->plan->batches[number];
    tg_receive_own(r, batch);
    for (uint32_t peer = 0; peer < r->reducer->world; peer++)
        if (peer != r->reducer->rank && !tg_reduction_lost(r))
            take_from(r, number, peer);
    if (tg_policy_of(r->reducer) == TG_NONFINITE_ZERO)
        tg_look_at_own(r, batch);
    tg_jobs_check(r);
    if (r->aside) {
        set_aside(r, batch);
        return;
    }
    for (size_t i = batch->first; i < batch->first + batch->count && !tg_reduction_lost(r); i++)
        tg_overflow_check(r, i, &(tg_owned){r->plan->pieces[i].first, r->plan->pieces[i].count});
}

static void apply_aside(tg_reduction *r)
{
    const tg_operations *on = r->reducer->device->operations;
    for (size_t i = 0; i < r->reducer->tensor_count; i++) {
        const tg_tensor *out = &r->gradients[i];
        const float *mean = r->aside + r->reducer->tensors[i].aside_at;
        if (!out->data || !r->anywhere[i] || out->count == 0)
            continue;
        if (out->dtype == TG_FLOAT32)
            on->copy(r->reducer->device, out->data, mean, (size_t)out->count * sizeof *mean);
        else
            on->narrow(r->reducer->device, mean, out);
    }
    on->wait(r->reducer->device);
}

static void apply(tg_reduction *r)
{
    if (r->aside) {
        apply_aside(r);
        return;
    }
    for (size_t i = 0; i < r->plan->piece_count; i++) {
        const tg_tensor out = tg_piece_of(r, &r->plan->pieces[i]);
        if (out.data)
            tg_mean_apply(r, i, r->plan->pieces[i].first, r->plan->total, &out);
    }
    tg_jobs_add(r->reducer);
}

static void undo(tg_reduction *r)
{
    for (size_t i = 0; i < r->plan->piece_count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        const tg_frame sent = r->sent[piece->part];
        if (sent.data && r->reducer->tensors[piece->tensor].feedback)
            r->reducer->stats.saturated += tg_feedback_return_piece(r->reducer->tensors[piece->tensor].feedback, sent,
                                                                    r->reducer->options.on_device, piece->first);
    }
}

const tg_algorithm_functions tg_gather = {
    .algorithm = TG_GATHER, .send = send, .take = take, .apply = apply, .undo = undo};
