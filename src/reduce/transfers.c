/* The exchanges of a reduction: their buffers, and messages on their way in and out. */
#include "base/status.h"
#include "reduce/levels.h"

void tg_transfer_prepare(tg_reducer *r, tg_transfer *transfer, tg_message_kind kind, tg_exchange_kind exchange,
                         uint32_t number)
{
    transfer->kind = kind;
    transfer->number = number;
    transfer->send = tg_arena_take(&r->arena, r->world, sizeof *transfer->send);
    transfer->send_size = tg_arena_take(&r->arena, r->world, sizeof *transfer->send_size);
    transfer->receive = tg_arena_take(&r->arena, r->world, sizeof *transfer->receive);
    transfer->capacity = tg_arena_take(&r->arena, r->world, sizeof *transfer->capacity);
    transfer->received = tg_arena_take(&r->arena, r->world, sizeof *transfer->received);
    transfer->exchange = (tg_exchange){.kind = exchange,
                                       .world = r->world,
                                       .send = transfer->send,
                                       .send_size = transfer->send_size,
                                       .receive = transfer->receive,
                                       .capacity = transfer->capacity,
                                       .received = transfer->received};
}

/* Room for what goes out, and for what comes from every other rank. */
void tg_transfer_give_room(tg_reducer *r, tg_transfer *transfer, size_t out, const size_t *in)
{
    transfer->out = tg_arena_take(&r->arena, out, 1);
    transfer->out_capacity = out;
    for (uint32_t peer = 0; !r->arena.failed && peer < r->world; peer++) {
        if (peer == r->rank)
            continue;
        transfer->capacity[peer] = in[peer];
        transfer->receive[peer] = tg_arena_take(&r->arena, in[peer], 1);
    }
}

static void make_transfer(tg_reducer *r, tg_transfer *transfer, tg_message_kind kind, uint32_t number, size_t room,
                          size_t *in)
{
    tg_transfer_prepare(r, transfer, kind, TG_ALL_GATHER, number);
    for (uint32_t peer = 0; peer < r->world; peer++)
        in[peer] = room;
    tg_transfer_give_room(r, transfer, room, in);
}

/* A bit for each tensor of a message. */
static size_t presence_room(const tg_plan *plan, size_t batch)
{
    if (batch >= plan->batch_count)
        return 0;
    const tg_batch *p = &plan->batches[batch];
    return tg_bitmap_bytes(plan->pieces[p->first + p->count - 1].tensor - plan->pieces[p->first].tensor + 1);
}

/* Most bytes of the frames of a batch that `owner` is sent, or sends as a result; 0 where the plan is shorter. */
static size_t batch_room(const tg_reducer *r, const tg_plan *plan, size_t batch, uint32_t owner)
{
    size_t room = 0;
    for (size_t i = 0; batch < plan->batch_count && i < plan->batches[batch].count; i++) {
        const tg_piece *piece = &plan->pieces[plan->batches[batch].first + i];
        if (tg_goes_to(piece, owner))
            room += tg_frame_room(r, plan == &r->dense, piece->tensor, piece->count);
        if (piece->owner == TG_EVERY_OWNER) /* proposals for this piece's boundaries */
            room += 4 * (size_t)r->world;
    }
    return room + presence_room(plan, batch);
}

static size_t message_room(const tg_reducer *r, size_t batch, uint32_t owner)
{
    const size_t coded = batch_room(r, &r->coded, batch, owner), dense = batch_room(r, &r->dense, batch, owner);
    return TG_MESSAGE_HEADER + (coded > dense ? coded : dense);
}

/* gather: everybody's frames to everybody. */
static void make_gather_transfer(tg_reducer *r, tg_reduction *reduction, size_t p, size_t *in)
{
    make_transfer(r, &reduction->batches[p], TG_MESSAGE_GRADIENTS, (uint32_t)p, message_room(r, p, 0), in);
}

/* shard and scatter: to each owner its parts. */
static void make_parts_transfer(tg_reducer *r, tg_reduction *reduction, size_t p, size_t *in)
{
    tg_transfer *parts = &reduction->batches[p];
    tg_transfer_prepare(r, parts, TG_MESSAGE_PARTS, TG_ALL_TO_ALL, (uint32_t)p);
    parts->places = tg_arena_take(&r->arena, r->world + (uint64_t)1, sizeof *parts->places);
    size_t out = 0;
    for (uint32_t peer = 0; parts->places && peer < r->world; peer++) {
        parts->places[peer] = out;
        out += message_room(r, p, peer);
        parts->places[peer + 1] = out;
        in[peer] = message_room(r, p, r->rank);
    }
    if (!r->arena.failed)
        tg_transfer_give_room(r, parts, out, in);
}

/* shard: from each owner its results. */
static void make_results_transfer(tg_reducer *r, tg_reduction *reduction, size_t p, size_t *in)
{
    tg_transfer *results = &reduction->results[p];
    tg_transfer_prepare(r, results, TG_MESSAGE_RESULTS, TG_ALL_GATHER, (uint32_t)p);
    for (uint32_t peer = 0; peer < r->world; peer++)
        in[peer] = message_room(r, p, peer);
    if (!r->arena.failed)
        tg_transfer_give_room(r, results, in[r->rank], in);
}

static void make_batches(tg_reducer *r, tg_reduction *reduction, size_t batches, size_t *in)
{
    for (size_t p = 0; p < batches && !r->arena.failed; p++) {
        if (r->functions->has_parts)
            make_parts_transfer(r, reduction, p, in);
        else
            make_gather_transfer(r, reduction, p, in);
        if (r->functions->has_results)
            make_results_transfer(r, reduction, p, in);
    }
}

bool tg_transfers_make(tg_reducer *r, tg_reduction *reduction)
{
    size_t *in = calloc(r->world, sizeof *in);
    const size_t batches = r->coded.batch_count > r->dense.batch_count ? r->coded.batch_count : r->dense.batch_count;
    reduction->batches = tg_arena_take(&r->arena, batches, sizeof *reduction->batches);
    reduction->results = tg_arena_take(&r->arena, r->functions->has_results ? batches : 0, sizeof *reduction->results);
    if (!in || r->arena.failed) {
        r->arena.failed = true;
        free(in);
        return false;
    }
    if (!r->share.whole) { /* else these are the whole's */
        make_transfer(r, &reduction->greeting, TG_MESSAGE_GREETING, 0, TG_MESSAGE_HEADER + TG_GREETING_MOST, in);
        make_transfer(r, &reduction->greeting_verdict, TG_MESSAGE_VERDICT, TG_VERDICT_ON_GREETING,
                      TG_MESSAGE_HEADER + TG_VERDICT_BYTES, in);
        make_transfer(r, &reduction->verdicts, TG_MESSAGE_VERDICT, TG_VERDICT_ON_STEP,
                      TG_MESSAGE_HEADER + TG_VERDICT_BYTES, in);
    }
    if (r->levels)
        tg_levels_transfers(reduction, in);
    else
        make_batches(r, reduction, batches, in);
    free(in);
    return !r->arena.failed;
}

void tg_transfer_send_all(tg_reducer *r, tg_transfer *transfer, size_t size)
{
    for (uint32_t peer = 0; peer < r->world; peer++) {
        transfer->send[peer] = transfer->out;
        transfer->send_size[peer] = peer == r->rank ? 0 : size;
    }
}

void tg_transfer_seal(tg_reduction *r, const tg_transfer *transfer, uint32_t frames, uint32_t extra, uint8_t *bytes)
{
    const tg_reducer *reducer = r->reducer;
    const tg_message message = {.kind = transfer->kind,
                                .step = r->step,
                                .rank = reducer->rank,
                                .world = reducer->world,
                                .number = transfer->number,
                                .frames = frames,
                                .layout = reducer->layout,
                                .extra = extra,
                                .abstain = tg_reduction_lost(r) && transfer->kind != TG_MESSAGE_VERDICT &&
                                           transfer->kind != TG_MESSAGE_GREETING};
    tg_message_seal(reducer->kernels, &message, bytes);
}

bool tg_transfer_open(tg_reduction *r, tg_transfer *transfer, uint32_t peer, tg_message *message, tg_cursor *extra,
                      tg_cursor *frames)
{
    tg_reducer *reducer = r->reducer;
    const tg_message expected = {.kind = transfer->kind,
                                 .step = r->step,
                                 .rank = peer,
                                 .world = reducer->world,
                                 .number = transfer->number,
                                 .layout = reducer->layout};
    tg_error why;
    tg_status status = tg_message_open(reducer->kernels, transfer->receive[peer], transfer->received[peer], &expected,
                                       message, extra, frames, &why);
    if (status != TG_OK)
        tg_reduction_fail(r, status == TG_LAYOUT_MISMATCH ? status : TG_SKIPPED,
                          "rank %u received an invalid message from rank %u: %.150s", tg_named(reducer, reducer->rank),
                          tg_named(reducer, peer), why.message);
    else if (message->abstain)
        r->peer_failed = true;
    return status == TG_OK && !message->abstain;
}

void tg_transfer_close(tg_reduction *r, uint32_t peer, const tg_message *message, uint32_t due, const tg_cursor *extra,
                       const tg_cursor *frames)
{
    if (frames->left > 0 || extra->left > 0 || message->frames != due)
        tg_reduction_fail(r, TG_SKIPPED, "rank %u received a message from rank %u that is longer than expected",
                          tg_named(r->reducer, r->reducer->rank), tg_named(r->reducer, peer));
}
