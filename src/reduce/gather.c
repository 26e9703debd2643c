/* `gather`: every frame to every rank, which adds them up in rank order. Steps: one all-gather for each batch. */
#include <float.h>
#include <string.h>

#include "base/status.h"
#include "frame/decode.h"
#include "frame/verify.h"
#include "reduce/reducer.h"

static void send(tg_reduction *r, size_t number)
{
    tg_reducer *reducer = r->reducer;
    tg_transfer *transfer = &r->batches[number];
    const tg_batch *batch = &r->plan->batches[number];
    const uint32_t extra = tg_present_size(r, number);
    size_t at = TG_MESSAGE_HEADER + extra;
    uint32_t frames = 0;
    for (size_t i = batch->first; i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        tg_encode_report report;
        if (!tg_piece_is_sent(r, piece) || !tg_piece_encode(r, piece, tg_codec_in(r, piece->tensor), (uint32_t)i,
                                                            transfer->out + at, transfer->out_capacity - at, &report))
            continue;
        tg_piece_note(r, piece, &report);
        tg_received(r, i)[reducer->rank] = (tg_frame){transfer->out + at, report.bytes};
        at += report.bytes;
        frames++;
    }
    const bool whole = !tg_reduction_lost(r);
    tg_present_write(r, number, transfer->out + TG_MESSAGE_HEADER);
    tg_transfer_seal(r, transfer, whole ? frames : 0, whole ? extra : 0, transfer->out);
    tg_transfer_send_all(reducer, transfer, whole ? at : TG_MESSAGE_HEADER);
}

/* ---- sums that are not finite ----
 *
 * Finite values may add up to an infinity. To find out by looking at every sum would be another pass, and too late:
 * sums are written over the gradients, which stay as they are where a step is not applied. So ranks look at how large
 * the values of others' frames can be, which their scales say, and add up beforehand what may come to too much. Every
 * frame is looked at by another rank than its own, and all hear of what one finds by its verdict; under
 * TG_NONFINITE_DROP, where they say nothing, ranks look at their own as well. */

/* Half of what `world` ranks can add up; the other half is for rounding. */
static bool can_overflow(const tg_reducer *r, uint32_t peak)
{
    return peak > tg_float_bits(FLT_MAX / 2 / (float)r->world);
}

static bool drops(const tg_reducer *r) { return r->options.nonfinite == TG_NONFINITE_DROP; }

/* The mean of a piece, in reducer->wide. */
static void wide_mean(const tg_reduction *r, size_t index)
{
    const tg_reducer *reducer = r->reducer;
    const tg_frame *frames;
    const size_t count = tg_present_frames(r, index, &frames);
    const tg_tensor mean = {reducer->wide, r->plan->pieces[index].count, TG_FLOAT32};
    (void)!tg_decode_mean(reducer->device, frames, count, 1.0f / (float)reducer->world, NULL, 0, &mean, NULL);
}

static void weigh(tg_reduction *r, size_t index)
{
    const tg_piece *piece = &r->plan->pieces[index];
    wide_mean(r, index);
    (void)tg_sum_check(r, piece->tensor, piece->first, piece->count);
}

/* The mean into the gradient, but 0 for what is not finite; every rank has the same sums, and does the same. */
static void apply_dropping(tg_reduction *r, size_t index, const tg_tensor *out)
{
    tg_reducer *reducer = r->reducer;
    wide_mean(r, index);
    (void)tg_sum_check(r, r->plan->pieces[index].tensor, 0, out->count);
    tg_piece_narrow(reducer, out);
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
        uint32_t peak = 0;
        if (!r->has[piece->tensor])
            continue;
        if (!tg_piece_take(r, peer, &frames, &due, &tg_received(r, i)[peer], &peak))
            return;
        r->may_overflow[i] |= can_overflow(r->reducer, peak);
        due_count++;
    }
    tg_transfer_close(r, peer, &message, due_count, &extra, &frames);
}

static void take(tg_reduction *r, size_t number)
{
    for (uint32_t peer = 0; peer < r->reducer->world; peer++)
        if (peer != r->reducer->rank && !tg_reduction_lost(r))
            take_from(r, number, peer);
    const tg_batch *batch = &r->plan->batches[number];
    for (size_t i = batch->first; i < batch->first + batch->count && !tg_reduction_lost(r); i++) {
        const tg_frame own = tg_received(r, i)[r->reducer->rank];
        if (drops(r->reducer) && own.data)
            r->may_overflow[i] |= can_overflow(r->reducer, tg_frame_peak(r->reducer->device, own));
        else if (!drops(r->reducer) && r->may_overflow[i])
            weigh(r, i);
    }
}

static void apply(tg_reduction *r)
{
    tg_reducer *reducer = r->reducer;
    for (size_t i = 0; i < r->plan->piece_count; i++) {
        const tg_tensor out = tg_piece_of(r, &r->plan->pieces[i]);
        const tg_frame *frames;
        const size_t count = tg_present_frames(r, i, &frames);
        if (count == 0 || !out.data)
            continue;
        if (r->may_overflow[i] && drops(reducer)) {
            apply_dropping(r, i, &out);
            continue;
        }
        /* The frames were checked or made here, so this cannot fail. */
        (void)!tg_decode_mean(reducer->device, frames, count, 1.0f / (float)reducer->world, reducer->wide,
                              r->plan->total, &out, NULL);
    }
}

static void undo(tg_reduction *r)
{
    for (size_t i = 0; i < r->plan->piece_count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        const tg_frame sent = tg_received(r, i)[r->reducer->rank];
        if (sent.data && r->reducer->tensors[piece->tensor].feedback)
            r->reducer->stats.saturated += tg_feedback_return_piece(r->reducer->tensors[piece->tensor].feedback, sent,
                                                                    piece->first);
    }
}

const tg_algorithm_functions tg_gather = {
    .algorithm = TG_GATHER, .send = send, .take = take, .apply = apply, .undo = undo};
