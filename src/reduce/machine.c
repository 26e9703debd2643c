/* The step machine: which exchange is next, what is done with what came, and how ranks agree on the outcome. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fpenv.h"
#include "base/status.h"
#include "reduce/levels.h"
#include "transport/transport.h"

void tg_reduction_fail(tg_reduction *r, tg_status status, const char *text, ...)
{
    if (r->verdict.status != TG_OK)
        return;
    va_list arguments;
    va_start(arguments, text);
    (void)vsnprintf(r->verdict.text, sizeof r->verdict.text, text, arguments);
    va_end(arguments);
    r->verdict.status = status;
}

/* ---- begin ---- */

static void reset_transfer(tg_transfer *transfer) { transfer->handed = transfer->fed = transfer->begun = false; }

/* gather: the batches of this step's plan that are handed on from rank to rank. */
static void reset_relays(tg_reduction *r)
{
    r->relay_count = r->relays_handed = r->relays_fed = 0;
    while (r->relay_count < r->reducer->relay_count && r->relays[r->relay_count].batch < r->plan->batch_count) {
        tg_relay *relay = &r->relays[r->relay_count++];
        relay->round = 0;
        for (uint32_t i = 0; i < relay->round_count; i++)
            reset_transfer(&relay->rounds[i]);
    }
}

void tg_reduction_reset(tg_reduction *r, uint64_t step)
{
    tg_reducer *reducer = r->reducer;
    r->active = true;
    r->step = step;
    r->number = reducer->begun++;
    r->dense = step < reducer->options.warmup || tg_bypass_at(reducer, r->number);
    r->begun = tg_seconds();
    r->plan = r->dense ? &reducer->dense : &reducer->coded;
    r->verdict.status = r->outcome.status = TG_OK;
    r->verdict.text[0] = r->outcome.text[0] = '\0';
    r->peer_failed = r->settled = false;
    r->greets = !reducer->greeted && reducer->world > 1;
    r->batches_handed = r->batches_fed = r->results_handed = r->results_fed = 0;
    reset_transfer(&r->greeting);
    tg_agreement_reset(&r->introduction);
    tg_agreement_reset(&r->agreement);
    r->heads_handed = r->heads_fed = r->bodies_handed = r->bodies_fed = 0;
    for (size_t i = 0; i < r->body_count; i++)
        r->bodies[i]->handed = r->bodies[i]->fed = false;
    for (size_t i = 0; i < r->plan->batch_count; i++) {
        reset_transfer(&r->batches[i]);
        if (reducer->functions->has_results)
            reset_transfer(&r->results[i]);
    }
    reset_relays(r);
    memset(r->received, 0, r->plan->received_count * sizeof *r->received);
    memset(r->sent, 0, r->plan->part_count * sizeof *r->sent);
    if (reducer->functions->has_parts)
        tg_shard_list_reset(r);
    if (reducer->functions->has_results) {
        memset(r->means, 0, r->plan->part_count * sizeof *r->means);
        memset(r->is_whole, 0, r->plan->part_count * sizeof *r->is_whole);
    } else {
        memset(r->may_overflow, 0, r->plan->piece_count * sizeof *r->may_overflow);
    }
    memset(r->reports, 0, reducer->tensor_count * sizeof *r->reports);
    tg_given_reset(r);
    if (r->levels)
        tg_levels_begin(r);
}

tg_status tg_reduce_begin(tg_reducer *reducer, const tg_tensor *gradients, uint64_t step, tg_reduction **reduction,
                          tg_error *error)
{
    if (!reducer || !reduction)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_reduce_begin: reducer and reduction must not be NULL");
    tg_status status = TG_OK;
    for (size_t i = 0; gradients && status == TG_OK && i < reducer->tensor_count; i++)
        status = tg_gradient_check(reducer, i, &gradients[i], error);
    if (status != TG_OK)
        return status;
    tg_reduction *r = &reducer->reductions[reducer->begun % reducer->options.depth];
    if (r->active)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "%u reductions are in progress: finish one, or create the reducer with a larger depth",
                       reducer->options.depth);
    tg_reduction_reset(r, step);
    tg_fp_mode before = tg_fp_enter();
    tg_bypass_begin(r);
    for (size_t i = 0; i < reducer->tensor_count; i++) {
        if (gradients)
            tg_give(r, i, &gradients[i]);
        reducer->stats.ring_bytes += (reducer->algorithm == TG_SCATTER ? 4 : 8) * reducer->tensors[i].given.count *
                                     (reducer->world - 1) / reducer->world;
    }
    tg_fp_leave(before);
    *reduction = r;
    return tg_succeed(error);
}

/* ---- next ---- */

static void write_greeting(tg_reduction *r, tg_transfer *transfer)
{
    memcpy(transfer->out + TG_MESSAGE_HEADER, r->reducer->greeting, r->reducer->greeting_size);
    tg_transfer_seal(r, transfer, 0, r->reducer->greeting_size, transfer->out);
    tg_transfer_send_all(r->reducer, transfer,
                         r->reducer->rank == 0 ? TG_MESSAGE_HEADER + r->reducer->greeting_size : TG_NO_MESSAGE);
}

/* How a batch is handed on; NULL: it is not. */
static tg_relay *relay_of(const tg_reduction *r, size_t batch)
{
    for (size_t i = 0; i < r->relay_count; i++)
        if (r->relays[i].batch == batch)
            return &r->relays[i];
    return NULL;
}

static tg_transfer *make_batch(tg_reduction *r)
{
    const double start = tg_seconds();
    const size_t number = r->batches_handed++;
    r->reducer->functions->send(r, number);
    r->reducer->stats.encode_seconds += tg_seconds() - start;
    return &r->batches[number];
}

/* After the first exchange of each batch come the second rounds of those that are handed on, then the third ones. */
static tg_relay *relay_at(const tg_reduction *r, size_t exchange) { return &r->relays[exchange % r->relay_count]; }
static size_t relayed_exchanges(const tg_reduction *r)
{
    return r->relay_count > 0 ? r->relay_count * (r->relays[0].round_count - 1) : 0;
}

static tg_transfer *next_round(tg_reduction *r)
{
    const size_t before = r->relays_handed - r->relays_handed % r->relay_count;
    const bool is_there = before == 0 ? relay_at(r, r->relays_handed)->batch < r->batches_fed
                                      : r->relays_handed - r->relay_count < r->relays_fed;
    return is_there ? tg_relay_next(r, relay_at(r, r->relays_handed++)) : NULL;
}

/* The next transfer, filled in; NULL if there is none for now. */
static tg_transfer *next_transfer(tg_reduction *r)
{
    if (r->settled)
        return NULL;
    if (r->greets && !r->introduction.settled) {
        if (r->greeting.handed)
            return r->greeting.fed ? tg_agreement_next(r, &r->introduction) : NULL;
        write_greeting(r, &r->greeting);
        return &r->greeting;
    }
    const size_t due = r->levels ? 0 : r->plan->batch_count;
    const bool results = r->reducer->functions->has_results;
    if (r->levels && !tg_levels_are_through(r))
        return tg_levels_next(r);
    if (results && tg_results_are_next(r->batches_handed, r->results_handed, due))
        return r->results_handed < r->batches_fed ? &r->results[r->results_handed++] : NULL;
    if (r->aside && r->batches_handed < due && r->batches_handed - r->batches_fed >= r->reducer->gather_window)
        return NULL;
    if (r->batches_handed < due) {
        tg_transfer *made = tg_message_is_given(r, r->batches_handed) ? make_batch(r) : NULL;
        tg_relay *relay = made ? relay_of(r, made->number) : NULL;
        return relay ? tg_relay_next(r, relay) : made;
    }
    if (r->relays_handed < relayed_exchanges(r))
        return next_round(r);
    if (r->relays_fed < relayed_exchanges(r))
        return NULL;
    if (r->missing > 0 || r->batches_fed < due || (results && r->results_fed < due))
        return NULL;
    return tg_agreement_next(r, &r->agreement);
}

/* The next exchange: a body whose heads have come, before anything else; else that of a transfer. */
static tg_exchange *next_exchange(tg_reduction *r)
{
    if (r->bodies_handed < r->heads_fed) {
        tg_body *body = r->headed[r->bodies_handed++]->body;
        body->handed = true;
        return &body->exchange;
    }
    tg_transfer *transfer = next_transfer(r);
    if (!transfer)
        return NULL;
    if (transfer->body)
        r->headed[r->heads_handed++] = transfer;
    transfer->handed = true;
    return &transfer->exchange;
}

/* A world of one: everything that would come from others is there already. As far as tensors are given. */
static void go_alone(tg_reduction *r)
{
    const tg_algorithm_functions *f = r->reducer->functions;
    while (r->batches_handed < r->plan->batch_count && tg_message_is_given(r, r->batches_handed)) {
        const size_t i = r->batches_handed;
        (void)make_batch(r);
        const double start = tg_seconds();
        f->take(r, i); /* which takes off what it books elsewhere */
        if (f->has_results)
            f->take_results(r, i);
        r->reducer->stats.verify_seconds += tg_seconds() - start;
    }
    if (r->missing > 0)
        return;
    r->outcome = r->verdict;
    r->agreement.lowest.microseconds = r->microseconds;
    r->settled = true;
}

tg_status tg_reduce_next(tg_reduction *reduction, tg_exchange **exchange, tg_error *error)
{
    if (!reduction || !exchange || !reduction->active)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "tg_reduce_next needs a reduction in progress, and exchange must not be NULL");
    tg_fp_mode before = tg_fp_enter();
    tg_exchange *next = NULL;
    if (reduction->reducer->world > 1)
        next = next_exchange(reduction);
    else if (!reduction->settled)
        go_alone(reduction);
    tg_fp_leave(before);
    for (uint32_t peer = 0; next && peer < reduction->reducer->world; peer++)
        if (tg_sends(next, peer) && (next->kind == TG_ALL_MINIMUM || !tg_share_a_host(reduction->reducer, peer)))
            reduction->reducer->stats.bytes_sent += next->send_size[peer];
    *exchange = next;
    return tg_succeed(error);
}

/* ---- feed ---- */

static void take_greeting(tg_reduction *r)
{
    const tg_reducer *reducer = r->reducer;
    tg_message message;
    tg_cursor extra, frames;
    tg_error why;
    if (reducer->rank == 0 || !tg_transfer_open(r, &r->greeting, 0, &message, &extra, &frames))
        return;
    tg_status status = tg_greeting_compare(reducer->greeting, extra, reducer->names, &why);
    if (status != TG_OK)
        tg_reduction_fail(r, status, "rank %u differs from rank 0: %.150s", reducer->rank, why.message);
}

static tg_status take_verdict(tg_reduction *r, tg_transfer *transfer, tg_error *error)
{
    const bool on_step = transfer->number % TG_VERDICT_NUMBERS == TG_VERDICT_ON_STEP;
    tg_agreement *a = on_step ? &r->agreement : &r->introduction;
    tg_status status = tg_agreement_take(r, a, transfer, error);
    if (status != TG_OK || !a->settled)
        return status;
    if (on_step && a->outcome.status == TG_OK && r->peer_failed)
        return tg_fail(error, TG_EXCHANGE,
                       "a rank sent no frames in step %" PRIu64
                       ", but the verdict is that all went well, so rank %u cannot know "
                       "whether the others applied it",
                       r->step, r->reducer->rank);
    if (on_step || a->outcome.status != TG_OK) {
        r->outcome = a->outcome;
        r->settled = true;
    } else {
        r->reducer->greeted = true;
    }
    return TG_OK;
}

static tg_transfer *in_progress(tg_agreement *a)
{
    return a->round < a->round_count ? &a->rounds[a->round] : &a->sentence;
}

/* What is fed next of the exchanges that a batch starts with. */
static tg_transfer *batch_due(tg_reduction *r)
{
    if (r->batches_fed == r->batches_handed)
        return NULL;
    tg_relay *relay = relay_of(r, r->batches_fed);
    return relay ? &relay->rounds[0] : &r->batches[r->batches_fed];
}

static tg_transfer *round_due(tg_reduction *r)
{
    if (r->relays_fed == r->relays_handed)
        return NULL;
    tg_relay *relay = relay_at(r, r->relays_fed);
    return &relay->rounds[relay->round];
}

/* The transfer that an exchange belongs to, if it was handed out and has not been fed; they are fed in order. */
static tg_transfer *transfer_of(tg_reduction *r, const tg_exchange *exchange)
{
    enum { CANDIDATES = 8 };
    const bool whole = !r->bodies;
    tg_transfer *candidates[CANDIDATES] = {&r->greeting,
                                           in_progress(&r->introduction),
                                           in_progress(&r->agreement),
                                           whole ? batch_due(r) : NULL,
                                           round_due(r),
                                           r->levels ? tg_levels_oldest(r) : NULL,
                                           whole && r->results_fed < r->results_handed ? &r->results[r->results_fed]
                                                                                       : NULL,
                                           r->heads_fed < r->heads_handed ? r->headed[r->heads_fed] : NULL};
    for (size_t i = 0; i < CANDIDATES; i++)
        if (candidates[i] && &candidates[i]->exchange == exchange && candidates[i]->handed && !candidates[i]->fed)
            return candidates[i];
    return NULL;
}

/* The same for a body, whose transfer this is. */
static tg_transfer *body_of(const tg_reduction *r, const tg_exchange *exchange)
{
    tg_transfer *oldest = r->bodies_fed < r->bodies_handed ? r->headed[r->bodies_fed] : NULL;
    return oldest && &oldest->body->exchange == exchange ? oldest : NULL;
}

static void take_batch(tg_reduction *r, const tg_transfer *transfer)
{
    tg_relay *relay = transfer->relay;
    if (!relay || relay->round == 0)
        r->batches_fed++;
    else
        r->relays_fed++;
    if (!relay || tg_relay_take(r, relay))
        r->reducer->functions->take(r, transfer->number);
}

static tg_status feed(tg_reduction *r, tg_transfer *transfer, tg_error *error)
{
    const tg_algorithm_functions *f = r->reducer->functions;
    if (r->levels && (transfer->kind == TG_MESSAGE_PARTS || transfer->kind == TG_MESSAGE_RESULTS)) {
        tg_levels_feed(r);
        return TG_OK;
    }
    switch (transfer->kind) {
    case TG_MESSAGE_GREETING:
        take_greeting(r);
        break;
    case TG_MESSAGE_VERDICT:
    case TG_MESSAGE_SENTENCE:
        return take_verdict(r, transfer, error);
    case TG_MESSAGE_RESULTS:
        r->results_fed++;
        f->take_results(r, transfer->number);
        break;
    default:
        take_batch(r, transfer);
    }
    return TG_OK;
}

/* How much has come. */
static tg_status measure(const tg_reduction *r, tg_transfer *transfer, tg_error *error)
{
    if (transfer->exchange.kind == TG_ALL_MINIMUM) {
        r->reducer->stats.bytes_received += TG_MINIMUM_BYTES; /* it has one size, which is looked at there */
        return TG_OK;
    }
    for (uint32_t peer = 0; peer < r->reducer->world; peer++) {
        if (peer == r->reducer->rank || !tg_receives(&transfer->exchange, peer))
            continue;
        if (transfer->received[peer] == TG_UNKNOWN_SIZE)
            transfer->received[peer] = transfer->relay ? tg_relay_size(r, transfer, peer)
                                       : transfer->body
                                           ? tg_head_size(transfer->receive[peer], transfer->capacity[peer])
                                           : tg_message_size(transfer->receive[peer], transfer->capacity[peer]);
        if (transfer->received[peer] > transfer->capacity[peer])
            return tg_fail(error, TG_INVALID_ARGUMENT, "received[%u] is %zu, but the buffer has %zu bytes", peer,
                           transfer->received[peer], transfer->capacity[peer]);
        if (!tg_share_a_host(r->reducer, peer))
            r->reducer->stats.bytes_received += transfer->received[peer];
    }
    return TG_OK;
}

/* A head has come, or a body, which is as long as its head has said. */
static tg_status feed_head(tg_reduction *r, tg_transfer *transfer, tg_error *error)
{
    r->heads_fed++;
    return tg_body_expect(r, transfer, error);
}
static tg_status feed_body(tg_reduction *r, tg_transfer *transfer, tg_error *error)
{
    for (uint32_t peer = 0; peer < r->reducer->world; peer++)
        if (tg_receives(&transfer->body->exchange, peer))
            r->reducer->stats.bytes_received += transfer->body->capacity[peer];
    r->bodies_fed++;
    transfer->body->fed = true;
    return feed(r, transfer, error);
}

tg_status tg_reduce_feed(tg_reduction *reduction, tg_exchange *exchange, tg_error *error)
{
    if (!reduction || !exchange || !reduction->active)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_reduce_feed needs a reduction in progress and its exchange");
    tg_transfer *with_body = body_of(reduction, exchange),
                *transfer = with_body ? with_body : transfer_of(reduction, exchange);
    if (!transfer)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "this exchange is not the next one: feed exchanges in the order of tg_reduce_next");
    tg_status status = with_body ? TG_OK : measure(reduction, transfer, error);
    if (status != TG_OK)
        return status;
    transfer->fed = true;
    const double start = tg_seconds();
    tg_fp_mode before = tg_fp_enter();
    status = with_body        ? feed_body(reduction, transfer, error)
             : transfer->body ? feed_head(reduction, transfer, error)
                              : feed(reduction, transfer, error);
    tg_fp_leave(before);
    reduction->reducer->stats.verify_seconds += tg_seconds() - start;
    return status == TG_OK ? tg_succeed(error) : status;
}

/* ---- end ---- */

/* Whether a part of a tensor's residual may have returned since it was compressed. */
static bool residual_changed(const tg_reduction *r, const tg_reducing_tensor *t, bool applied)
{
    return t->feedback && (!applied || (t->sparse && !r->dense && r->reducer->functions->has_results));
}

/* The residuals' norm over all tensors, and how it grows, as tg_stats has it for one. */
static void note_residuals(const tg_reduction *reduction, bool applied)
{
    tg_reducer *r = reduction->reducer;
    double squares = 0;
    bool asked = false;
    for (size_t i = 0; i < r->tensor_count; i++)
        if (residual_changed(reduction, &r->tensors[i], applied)) {
            tg_feedback_ask(r->tensors[i].feedback, NULL);
            asked = true;
        }
    if (asked)
        r->device->operations->wait(r->device);
    for (size_t i = 0; i < r->tensor_count; i++) {
        const tg_feedback *f = r->tensors[i].feedback;
        if (!f)
            continue;
        const double norm = residual_changed(reduction, &r->tensors[i], applied) ? f->norms[1] : f->stats.residual_norm;
        squares += norm * norm;
    }
    const double before = r->stats.residual_norm, norm = __builtin_sqrt(squares);
    const uint64_t steps = r->stats.applied + r->stats.skipped;
    r->stats.residual_norm = norm;
    if (steps > 1 && before > 0)
        r->stats.residual_growth += (norm / before - r->stats.residual_growth) /
                                    (double)(steps - 1 < 32 ? steps - 1 : 32);
}

void tg_reduction_conclude(tg_reduction *r, bool applied)
{
    tg_reducer *reducer = r->reducer;
    const double start = tg_seconds();
    tg_fp_mode before = tg_fp_enter();
    tg_message_reports(reducer); /* if it is given up: of a message that has not been sent, and returns too */
    reducer->device->operations->wait_for_frames(reducer->device);
    if (applied)
        reducer->functions->apply(r);
    else
        reducer->functions->undo(r);
    reducer->stats.applied += applied;
    reducer->stats.skipped += !applied;
    reducer->stats.selected = 0;
    for (size_t i = 0; i < reducer->tensor_count; i++)
        reducer->stats.selected += r->reports[i].selected;
    note_residuals(r, applied);
    tg_bypass_end(r, applied);
    tg_fp_leave(before);
    reducer->stats.decode_seconds += tg_seconds() - start;
    r->active = false;
}

/* What the next reduction in this place will tell of this one. Those that had to be dense say nothing. */
static void take_time(tg_reduction *r, bool applied)
{
    const double microseconds = 1e6 * (tg_seconds() - r->begun);
    r->timed = applied && r->step >= r->reducer->options.warmup;
    r->timed_dense = r->dense;
    r->microseconds = microseconds < 4e9 ? (uint32_t)microseconds : UINT32_C(4000000000);
}

tg_status tg_reduce_end(tg_reduction *reduction, tg_error *error)
{
    if (!reduction || !reduction->active)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_reduce_end needs a reduction in progress");
    if (reduction->missing > 0)
        return tg_missing_fail(reduction, error);
    if (!reduction->settled)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "the reduction has exchanges left: feed them first, or call tg_reduce_abandon");
    const tg_verdict outcome = reduction->outcome;
    tg_reduction_conclude(reduction, outcome.status == TG_OK);
    tg_bypass_note(reduction, reduction->agreement.lowest.microseconds);
    take_time(reduction, outcome.status == TG_OK);
    const tg_reducer *reducer = reduction->reducer;
    if (reducer->device->failure)
        return tg_device_outcome(reducer->device, error);
    const tg_reducer *inner = reducer->levels ? reducer->levels->inner : NULL;
    const tg_status adding = reducer->adding_status != TG_OK || !inner ? reducer->adding_status : inner->adding_status;
    if (adding != TG_OK)
        return tg_fail(error, adding, "step %" PRIu64 ": device %s could not add the frames; restart from a checkpoint",
                       reduction->step, reducer->device->name);
    if (outcome.status == TG_OK)
        return tg_succeed(error);
    return tg_fail(error, outcome.status, "step %" PRIu64 " was not applied: %s", reduction->step, outcome.text);
}

void tg_reduce_abandon(tg_reduction *reduction)
{
    if (reduction && reduction->active) {
        tg_reduction_conclude(reduction, false);
        reduction->timed = false;
    }
}
