/* A step of two levels: raw parts within the host, frames between hosts, and what these came to within the host again.
 */
#include <string.h>

#include "base/status.h"
#include "reduce/levels.h"

/* ---- the order of exchanges ---- */

/* The next place from `turn` on that has a message; false behind the last. Slot after slot, and in each slot stage
 * after stage: stage s of message b is in slot b + s * TG_STAGE_BEHIND. */
static bool find_turn(const tg_reduction *r, tg_turn *turn, size_t *message)
{
    const unsigned stages = r->reducer->levels->stage_count;
    const size_t messages = r->plan->batch_count, slots = messages + (size_t)(stages - 1) * TG_STAGE_BEHIND;
    while (messages > 0 && turn->slot < slots) {
        const size_t behind = (size_t)turn->stage * TG_STAGE_BEHIND;
        if (turn->slot >= behind && turn->slot - behind < messages) {
            *message = turn->slot - behind;
            return true;
        }
        turn->slot += turn->stage + 1 == stages;
        turn->stage = (turn->stage + 1) % stages;
    }
    return false;
}

static void pass_turn(const tg_reduction *r, tg_turn *turn)
{
    const unsigned stages = r->reducer->levels->stage_count;
    turn->slot += turn->stage + 1 == stages;
    turn->stage = (turn->stage + 1) % stages;
}

bool tg_levels_are_through(const tg_reduction *r)
{
    tg_turn oldest = r->levels->oldest;
    size_t message;
    return !find_turn(r, &oldest, &message);
}

/* ---- what both levels know ---- */

void tg_levels_share_failure(tg_reduction *r)
{
    tg_reduction *inner = r->levels->inner;
    if (!inner)
        return;
    if (r->verdict.status == TG_OK)
        r->verdict = inner->verdict;
    else
        inner->verdict = r->verdict;
    r->peer_failed = inner->peer_failed = r->peer_failed || inner->peer_failed;
    /* Feeding took all of the time; what inner booked elsewhere it has taken off here. */
    r->reducer->stats.verify_seconds += inner->reducer->stats.verify_seconds;
    inner->reducer->stats.verify_seconds = 0;
}

static size_t inner_message(const tg_reduction *r, size_t message)
{
    return r->levels->inner ? r->reducer->levels->inner_message[r->dense][message] : SIZE_MAX;
}

/* ---- raw parts ---- */

/* A rank on which the step is lost still sends what is finite: it is to be in the residuals of the owners. */
static void seal_raw(tg_reduction *r, const tg_transfer *transfer, bool abstain, uint32_t frames, uint32_t extra,
                     uint8_t *bytes)
{
    const tg_message message = {.kind = transfer->kind,
                                .step = r->step,
                                .rank = r->reducer->rank,
                                .world = r->reducer->world,
                                .number = transfer->number,
                                .frames = abstain ? 0 : frames,
                                .layout = r->reducer->layout,
                                .extra = abstain ? 0 : extra,
                                .abstain = abstain};
    tg_message_seal(r->reducer->kernels, &message, bytes);
}

static void send_raw(tg_reduction *r, size_t number)
{
    tg_reducer *reducer = r->reducer;
    const tg_levels *l = reducer->levels;
    tg_transfer *transfer = &r->levels->raw[number % TG_TURNS];
    const tg_batch *batch = &r->plan->batches[number];
    const uint32_t extra = tg_present_size(r, number);
    uint8_t *end = transfer->out;
    if (l->memory.used) {
        tg_shared_send_raw(r, number);
        return;
    }
    transfer->number = (uint32_t)number;
    for (uint32_t share = 0; share < l->shares; share++) {
        uint8_t *start = end;
        end += TG_MESSAGE_HEADER + extra;
        for (size_t i = batch->first; i < batch->first + batch->count; i++) {
            const tg_piece *piece = &r->plan->pieces[i];
            const tg_source source = tg_piece_source(r, piece);
            if (piece->owner == share && r->given[piece->tensor] == TG_GIVEN)
                tg_job_encode(r, i, &source, (uint32_t)i, &end, &r->sent[piece->part]);
        }
        const size_t frames = tg_jobs_encode(r, "gradient");
        bool abstains = false;
        for (size_t j = 0; j < frames; j++) {
            abstains = abstains || reducer->encodings[j].report.status != TG_OK;
            reducer->stats.dropped += reducer->encodings[j].report.dropped;
        }
        tg_present_write(r, number, start + TG_MESSAGE_HEADER);
        seal_raw(r, transfer, abstains, (uint32_t)frames, extra, start);
        transfer->send[l->local[share]] = start;
        transfer->send_size[l->local[share]] = abstains ? TG_MESSAGE_HEADER : (size_t)(end - start);
    }
}

static void take_raw_from(tg_reduction *r, size_t number, uint32_t from)
{
    const tg_levels *l = r->reducer->levels;
    const tg_batch *batch = &r->plan->batches[number];
    tg_transfer *transfer = &r->levels->raw[number % TG_TURNS];
    const uint32_t peer = l->local[from];
    tg_message message;
    tg_cursor extra, frames;
    uint32_t due_count = 0;
    if (!tg_transfer_open(r, transfer, peer, &message, &extra, &frames)) {
        r->had_last[peer] = TG_NOT_KNOWN;
        return;
    }
    if (!tg_present_read(r, number, peer, &extra))
        return;
    for (size_t i = batch->first; i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        const tg_due due = {.tensor = piece->tensor,
                            .dtype = r->gradients[piece->tensor].dtype,
                            .count = piece->count,
                            .draw = (uint32_t)i};
        if (piece->owner != l->share || !r->has[piece->tensor])
            continue;
        if (!tg_piece_take(r, peer, &frames, &due, &tg_received(r, i)[from], NULL))
            return;
        due_count++;
    }
    tg_transfer_close(r, peer, &message, due_count, &extra, &frames);
}

/* The sum of what came of a piece, in rank order; what did not come as it should is left out, and the step is lost. */
static void sum_raw(tg_reduction *r, size_t index)
{
    tg_reducer *reducer = r->reducer;
    const tg_levels *l = reducer->levels;
    const tg_piece *piece = &r->plan->pieces[index];
    const tg_reducing_tensor *t = &reducer->tensors[piece->tensor];
    tg_frame *frames = tg_received(r, index);
    size_t count = 0;
    for (uint32_t from = 0; !l->memory.used && from < l->local_count; from++) {
        const tg_frame frame = l->local[from] == reducer->rank ? r->sent[piece->part] : frames[from];
        if (frame.data)
            frames[count++] = frame;
    }
    float *sums = r->levels->sums + r->levels->places[piece->tensor] + (piece->first - t->parts[l->share]);
    const tg_tensor out = {sums, piece->count, TG_FLOAT32};
    tg_reduction *inner = r->levels->inner;
    if (inner->given[piece->tensor] == TG_NOT_GIVEN) { /* the first piece of this tensor */
        inner->given[piece->tensor] = r->anywhere[piece->tensor] ? TG_GIVEN : TG_ABSENT;
        inner->anywhere[piece->tensor] = r->anywhere[piece->tensor];
    }
    if (l->memory.used && r->anywhere[piece->tensor])
        tg_shared_sum_raw(r, index, sums);
    else if (count > 0)
        tg_job_mean(reducer, frames, count, 1, 0, &out);
    else if (r->anywhere[piece->tensor])
        reducer->device->operations->clear(reducer->device, sums, piece->count * sizeof *sums);
}

static void go_alone(tg_reduction *inner, size_t message)
{
    const tg_algorithm_functions *f = inner->reducer->functions;
    f->send(inner, message);
    f->take(inner, message);
    if (f->has_results)
        f->take_results(inner, message);
}

static void take_raw(tg_reduction *r, size_t number)
{
    tg_reducer *reducer = r->reducer;
    const tg_levels *l = reducer->levels;
    const tg_batch *batch = &r->plan->batches[number];
    const size_t message = inner_message(r, number);
    if (l->share == TG_NO_SHARE)
        return;
    if (l->memory.used)
        tg_shared_take_raw(r, number);
    for (uint32_t from = 0; !l->memory.used && from < l->local_count; from++)
        if (l->local[from] != reducer->rank)
            take_raw_from(r, number, from);
    tg_jobs_check(r);
    for (size_t i = batch->first; i < batch->first + batch->count; i++)
        if (r->plan->pieces[i].owner == l->share)
            sum_raw(r, i);
    tg_jobs_add(reducer);
    tg_levels_share_failure(r);
    if (l->hosts == 1 && message != SIZE_MAX) {
        go_alone(r->levels->inner, message);
        tg_levels_share_failure(r);
    }
}

/* ---- between hosts ---- */

static tg_transfer *inner_transfer(const tg_reduction *inner, tg_stage stage, size_t message)
{
    return stage == TG_STAGE_BETWEEN ? &inner->batches[message] : &inner->results[message];
}

/* An exchange of the reducer between hosts as one of all ranks. Those that own nothing of the message only keep step.
 */
static tg_transfer *map_exchange(tg_reduction *r, tg_stage stage, size_t number)
{
    const tg_levels *l = r->reducer->levels;
    tg_transfer *mapped = &r->levels->between[stage == TG_STAGE_RESULTS][number % TG_TURNS];
    const size_t message = inner_message(r, number);
    const tg_transfer *transfer = message == SIZE_MAX ? NULL : inner_transfer(r->levels->inner, stage, message);
    mapped->number = (uint32_t)number;
    mapped->exchange.kind = TG_ALL_TO_ALL;
    for (uint32_t host = 0; r->levels->inner && host < l->hosts; host++) {
        const uint32_t peer = l->owners[host];
        if (host == l->host)
            continue;
        mapped->send[peer] = transfer ? transfer->send[host] : NULL;
        mapped->send_size[peer] = transfer ? transfer->send_size[host] : TG_NO_MESSAGE;
        mapped->receive[peer] = transfer ? transfer->receive[host] : NULL;
        mapped->capacity[peer] = transfer ? transfer->capacity[host] : TG_NO_MESSAGE;
    }
    return mapped;
}

static tg_transfer *send_between(tg_reduction *r, tg_stage stage, size_t number)
{
    tg_reduction *inner = r->levels->inner;
    const size_t message = inner_message(r, number);
    if (message != SIZE_MAX && stage == TG_STAGE_BETWEEN) {
        tg_levels_share_failure(r);
        inner->reducer->functions->send(inner, message);
        tg_levels_share_failure(r);
    }
    return map_exchange(r, stage, number);
}

static void take_between(tg_reduction *r, tg_stage stage, size_t number)
{
    const tg_levels *l = r->reducer->levels;
    tg_reduction *inner = r->levels->inner;
    const size_t message = inner_message(r, number);
    const tg_transfer *mapped = &r->levels->between[stage == TG_STAGE_RESULTS][number % TG_TURNS];
    if (message == SIZE_MAX)
        return;
    const tg_transfer *transfer = inner_transfer(inner, stage, message);
    for (uint32_t host = 0; host < l->hosts; host++)
        if (host != l->host)
            transfer->received[host] = mapped->received[l->owners[host]];
    const tg_algorithm_functions *f = inner->reducer->functions;
    tg_levels_share_failure(r);
    (stage == TG_STAGE_BETWEEN ? f->take : f->take_results)(inner, message);
    inner->batches_fed += stage == TG_STAGE_BETWEEN;
    tg_levels_share_failure(r);
}

/* ---- next and feed ---- */

/* Whether there is room for what comes between hosts: where means are set aside, it is used in turn. */
static bool has_room(const tg_reduction *r, size_t number)
{
    const tg_reduction *inner = r->levels->inner;
    const size_t message = inner_message(r, number);
    return message == SIZE_MAX || !inner->aside || message < inner->batches_fed + inner->reducer->gather_window;
}

tg_transfer *tg_levels_next(tg_reduction *r)
{
    const tg_levels *l = r->reducer->levels;
    tg_level_step *s = r->levels;
    size_t message;
    if (!find_turn(r, &s->next, &message))
        return NULL;
    const unsigned at = s->next.stage;
    const tg_stage stage = l->stages[at];
    if (at == 0 ? !tg_message_is_given(r, message) : s->fed[at - 1] <= message)
        return NULL;
    if (stage == TG_STAGE_BETWEEN && !has_room(r, message))
        return NULL;
    const double start = tg_seconds();
    tg_transfer *transfer;
    if (stage == TG_STAGE_RAW) {
        send_raw(r, message);
        transfer = &s->raw[message % TG_TURNS];
    } else if (stage == TG_STAGE_SPREAD) {
        tg_spread_send(r, message);
        transfer = &r->batches[message];
    } else {
        transfer = send_between(r, stage, message);
    }
    transfer->fed = false;
    r->reducer->stats.encode_seconds += tg_seconds() - start;
    pass_turn(r, &s->next);
    return transfer;
}

static tg_transfer *transfer_at(tg_reduction *r, tg_stage stage, size_t message)
{
    tg_level_step *s = r->levels;
    return stage == TG_STAGE_RAW      ? &s->raw[message % TG_TURNS]
           : stage == TG_STAGE_SPREAD ? &r->batches[message]
                                      : &s->between[stage == TG_STAGE_RESULTS][message % TG_TURNS];
}

tg_transfer *tg_levels_oldest(tg_reduction *r)
{
    tg_level_step *s = r->levels;
    size_t message;
    if (!find_turn(r, &s->oldest, &message))
        return NULL;
    const bool handed = s->oldest.slot < s->next.slot ||
                        (s->oldest.slot == s->next.slot && s->oldest.stage < s->next.stage);
    return handed ? transfer_at(r, r->reducer->levels->stages[s->oldest.stage], message) : NULL;
}

void tg_levels_feed(tg_reduction *r)
{
    tg_level_step *s = r->levels;
    size_t message;
    if (!find_turn(r, &s->oldest, &message))
        return;
    const tg_stage stage = r->reducer->levels->stages[s->oldest.stage];
    if (stage == TG_STAGE_RAW)
        take_raw(r, message);
    else if (stage == TG_STAGE_SPREAD)
        tg_spread_take(r, message);
    else
        take_between(r, stage, message);
    s->fed[s->oldest.stage]++;
    pass_turn(r, &s->oldest);
}

/* ---- begin and end ---- */

void tg_levels_begin(tg_reduction *r)
{
    tg_level_step *s = r->levels;
    tg_reducer *inner = r->reducer->levels->inner;
    memset(s->fed, 0, sizeof s->fed);
    s->next = s->oldest = (tg_turn){0, 0};
    if (!inner)
        return;
    inner->begun = r->number;
    tg_reduction_reset(s->inner, r->step);
    for (size_t i = 0; i < inner->tensor_count; i++) {
        const uint64_t count = inner->tensors[i].given.count;
        s->inner->gradients[i] = (tg_tensor){s->sums + s->places[i], count, TG_FLOAT32};
        s->inner->clips[i] = 1;
        s->inner->given[i] = count == 0 ? TG_GIVEN : TG_NOT_GIVEN; /* in no message */
    }
}

/* The mean is in the frames that were spread; what is left to do between hosts is for the residuals. */
static void conclude_inner(tg_reduction *r, bool applied)
{
    tg_reduction *inner = r->levels->inner;
    if (!inner)
        return;
    for (size_t i = 0; applied && i < inner->reducer->tensor_count; i++)
        inner->gradients[i].data = NULL;
    tg_reduction_conclude(inner, applied);
}

static void apply(tg_reduction *r)
{
    tg_spread_apply(r);
    conclude_inner(r, true);
}

static void undo(tg_reduction *r) { conclude_inner(r, false); }

const tg_algorithm_functions tg_two_levels = {.apply = apply, .undo = undo};

/* ---- buffers ---- */

/* Nothing for anybody, until it is said. */
static void silence(tg_reducer *r, tg_transfer *transfer)
{
    for (uint32_t peer = 0; !r->arena.failed && peer < r->world; peer++)
        transfer->send_size[peer] = transfer->capacity[peer] = TG_NO_MESSAGE;
}

/* Most bytes of the raw parts of a message, of one share or (TG_NO_SHARE) of all. */
static size_t raw_room(const tg_reducer *r, const tg_plan *plan, size_t message, uint32_t share)
{
    if (message >= plan->batch_count)
        return 0;
    const tg_batch *batch = &plan->batches[message];
    const tg_piece *first = &plan->pieces[batch->first], *last = first + batch->count - 1;
    size_t room = (TG_MESSAGE_HEADER + tg_bitmap_bytes(last->tensor - first->tensor + 1)) *
                  (share == TG_NO_SHARE ? r->levels->shares : 1);
    for (const tg_piece *piece = first; piece <= last; piece++)
        if (share == TG_NO_SHARE || piece->owner == share)
            room += tg_frame_bound(r->plain, piece->count);
    return room;
}

/* Buffers of raw parts are used in turn. */
static size_t raw_room_of_turn(const tg_reducer *r, size_t turn, uint32_t share)
{
    size_t most = 0;
    for (size_t b = turn; b < r->coded.batch_count || b < r->dense.batch_count; b += TG_TURNS) {
        const size_t coded = raw_room(r, &r->coded, b, share), dense = raw_room(r, &r->dense, b, share);
        most = coded > most ? coded : most;
        most = dense > most ? dense : most;
    }
    return most;
}

static void make_raw(tg_reducer *r, tg_transfer *transfer, size_t turn)
{
    const tg_levels *l = r->levels;
    const size_t in = l->share == TG_NO_SHARE ? 0 : raw_room_of_turn(r, turn, l->share);
    tg_transfer_prepare(r, transfer, TG_MESSAGE_PARTS, TG_ALL_TO_ALL, 0);
    silence(r, transfer);
    transfer->out = tg_message_room(r, raw_room_of_turn(r, turn, TG_NO_SHARE));
    for (uint32_t i = 0; !r->arena.failed && l->share != TG_NO_SHARE && i < l->local_count; i++)
        if (l->local[i] != r->rank) {
            transfer->capacity[l->local[i]] = in;
            transfer->receive[l->local[i]] = tg_message_room(r, in);
        }
}

static size_t spread_room(const tg_reducer *r, size_t message, uint32_t share)
{
    const size_t least = TG_MESSAGE_HEADER + 2 * sizeof(uint64_t); /* a notice, see shared.c */
    const size_t coded = tg_spread_room(r, &r->coded, message, share),
                 dense = tg_spread_room(r, &r->dense, message, share), room = coded > dense ? coded : dense;
    return room > least ? room : least;
}

static void make_spread(tg_reducer *r, tg_transfer *transfer, size_t message)
{
    const tg_levels *l = r->levels;
    tg_transfer_prepare(r, transfer, TG_MESSAGE_RESULTS, TG_ALL_GATHER, (uint32_t)message);
    silence(r, transfer);
    if (l->share != TG_NO_SHARE) {
        transfer->out_capacity = spread_room(r, message, l->share);
        transfer->out = tg_message_room(r, transfer->out_capacity);
    }
    for (uint32_t share = 0; !r->arena.failed && share < l->shares; share++)
        if (share != l->share) {
            transfer->capacity[l->local[share]] = spread_room(r, message, share);
            transfer->receive[l->local[share]] = tg_message_room(r, transfer->capacity[l->local[share]]);
        }
}

void tg_levels_transfers(tg_reduction *reduction)
{
    tg_reducer *r = reduction->reducer;
    const tg_levels *l = r->levels;
    tg_level_step *s = reduction->levels = tg_arena_take(&r->arena, 1, sizeof *s);
    for (size_t turn = 0; !r->arena.failed && turn < TG_TURNS; turn++) {
        make_raw(r, &s->raw[turn], turn);
        for (size_t i = 0; l->hosts > 1 && i < 2 && !r->arena.failed; i++) {
            tg_transfer_prepare(r, &s->between[i][turn], TG_MESSAGE_PARTS, TG_ALL_TO_ALL, 0);
            silence(r, &s->between[i][turn]);
        }
    }
    for (size_t b = 0; !r->arena.failed && (b < r->coded.batch_count || b < r->dense.batch_count); b++)
        make_spread(r, &reduction->batches[b], b);
    if (r->arena.failed || l->share == TG_NO_SHARE)
        return;
    s->inner = &l->inner->reductions[reduction - r->reductions];
    s->places = tg_arena_take(&r->arena, r->tensor_count, sizeof *s->places);
    uint64_t total = 0;
    for (size_t i = 0; s->places && i < r->tensor_count; i++) {
        s->places[i] = total;
        total += (tg_share_count(&r->tensors[i], l->share) + 15) / 16 * 16;
    }
    s->sums = r->device->operations->allocate(r->device, (size_t)total * sizeof *s->sums, 0);
    r->arena.failed |= !s->sums;
}
