/* The exchanges of a reduction: their buffers, and messages on their way in and out. */
#include <string.h>

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

uint8_t *tg_message_room(tg_reducer *r, uint64_t bytes)
{
    enum { HEAD = 64, PAGE = 4096 };
    const tg_operations *on = r->device->operations;
    const uint64_t most = sizeof(float) * r->coded.total * r->options.depth;
    const bool copies = !r->device->reads_host && bytes >= PAGE && bytes <= most - r->room_bytes;
    void **piece = copies ? on->allocate_shared(r->device, HEAD + (size_t)bytes) : NULL;
    if (!piece)
        return tg_arena_take(&r->arena, bytes, 1);
    memset(piece, 0, HEAD + (size_t)bytes);
    *piece = r->rooms;
    r->rooms = piece;
    r->room_bytes += bytes;
    r->arena.bytes += bytes;
    return (uint8_t *)piece + HEAD;
}

void tg_message_rooms_free(tg_reducer *r)
{
    while (r->rooms) {
        void *piece = r->rooms;
        r->rooms = *(void **)piece;
        r->device->operations->release_shared(r->device, piece);
    }
}

/* Whole lines of memory for so many bytes, of which there may be none. */
static uint64_t room_of(size_t bytes)
{
    enum { LINE = 64 };
    return bytes == TG_NO_MESSAGE ? 0 : ((uint64_t)bytes / LINE + 1) * LINE;
}

/* Room for what goes out, and for what comes from every other rank. */
void tg_transfer_give_room(tg_reducer *r, tg_transfer *transfer, size_t out, const size_t *in)
{
    uint64_t all = 0;
    for (uint32_t peer = 0; peer < r->world; peer++)
        all += peer == r->rank ? 0 : room_of(in[peer]);
    transfer->out = tg_message_room(r, out);
    transfer->out_capacity = out;
    uint8_t *at = tg_message_room(r, all);
    for (uint32_t peer = 0; !r->arena.failed && peer < r->world; peer++) {
        if (peer == r->rank)
            continue;
        transfer->capacity[peer] = in[peer];
        transfer->receive[peer] = at;
        at += room_of(in[peer]);
    }
}

/* Nothing is sent to any rank in particular. */
static void make_minimum(tg_reducer *r, tg_transfer *transfer, uint32_t number)
{
    tg_transfer_prepare(r, transfer, TG_MESSAGE_VERDICT, TG_ALL_MINIMUM, number);
    uint8_t *numbers = tg_arena_take(&r->arena, (uint64_t)2 * TG_MINIMUM_BYTES, 1);
    for (uint32_t peer = 0; !r->arena.failed && peer < r->world; peer++)
        transfer->send_size[peer] = transfer->capacity[peer] = TG_NO_MESSAGE;
    if (r->arena.failed)
        return;
    transfer->out = numbers;
    transfer->receive[0] = numbers + TG_MINIMUM_BYTES;
    transfer->capacity[0] = TG_MINIMUM_BYTES;
}

static void make_agreement(tg_reducer *r, tg_agreement *a, uint32_t number, size_t *in)
{
    a->round_count = tg_agreement_exchanges(r);
    a->rounds = tg_arena_take(&r->arena, a->round_count, sizeof *a->rounds);
    a->heard = tg_arena_take(&r->arena, TG_MESSAGE_HEADER + TG_VERDICT_TEXT, 1);
    if (r->options.minimum && !r->arena.failed && a->round_count > 0)
        make_minimum(r, &a->rounds[0], number);
    for (uint32_t round = 0; !r->options.minimum && !r->arena.failed && round < a->round_count; round++) {
        tg_transfer_prepare(r, &a->rounds[round], TG_MESSAGE_VERDICT, TG_ALL_GATHER,
                            TG_VERDICT_NUMBERS * round + number);
        for (uint32_t peer = 0; peer < r->world; peer++)
            in[peer] = tg_agreement_hears(r, round, peer) ? TG_MESSAGE_HEADER + TG_TIMED_BYTES : TG_NO_MESSAGE;
        if (!r->arena.failed)
            tg_transfer_give_room(r, &a->rounds[round], TG_MESSAGE_HEADER + TG_TIMED_BYTES, in);
    }
    tg_transfer_prepare(r, &a->sentence, TG_MESSAGE_SENTENCE, TG_ALL_GATHER, number);
    a->sentence.out = tg_arena_take(&r->arena, TG_MESSAGE_HEADER + TG_VERDICT_TEXT, 1);
}

/* From rank 0 to all others. */
static void make_greeting_transfer(tg_reducer *r, tg_reduction *reduction, size_t *in)
{
    const size_t room = TG_MESSAGE_HEADER + TG_GREETING_MOST;
    tg_transfer_prepare(r, &reduction->greeting, TG_MESSAGE_GREETING, TG_ALL_TO_ALL, 0);
    for (uint32_t peer = 0; peer < r->world; peer++)
        in[peer] = peer == 0 ? room : TG_NO_MESSAGE;
    tg_transfer_give_room(r, &reduction->greeting, room, in);
}

/* A bit for each tensor of a message. */
static size_t presence_room(const tg_plan *plan, size_t batch)
{
    if (batch >= plan->batch_count)
        return 0;
    const tg_batch *p = &plan->batches[batch];
    return tg_bitmap_bytes(plan->pieces[p->first + p->count - 1].tensor - plan->pieces[p->first].tensor + 1);
}

/* Most bytes of a message: all of it, or head and body. */
typedef struct rooms {
    size_t message, body;
} rooms;

/* Room for what comes from each rank. */
typedef struct incoming {
    size_t *messages, *bodies;
} incoming;

/* What room is asked for: for what `owner` is sent, or for its results; where it is made, or where it arrives. */
typedef struct asked {
    uint32_t owner;
    bool results, arrives;
} asked;

/* Most bytes of a batch without the header; 0 where the plan is shorter. */
static rooms batch_room(const tg_reducer *r, const tg_plan *plan, size_t batch, const asked *a)
{
    const bool dense = plan == &r->dense, has_bodies = r->options.on_device;
    rooms room = {presence_room(plan, batch), 0};
    for (size_t i = 0; batch < plan->batch_count && i < plan->batches[batch].count; i++) {
        const tg_piece *piece = &plan->pieces[plan->batches[batch].first + i];
        if (!tg_goes_to(piece, a->owner))
            continue;
        const bool sparse = !dense && r->tensors[piece->tensor].sparse;
        const size_t frame = sparse ? tg_list_room(r, piece, a->owner, a->results, a->arrives)
                                    : tg_frame_room(r, dense, piece->tensor, piece->count);
        room.message += (sparse ? TG_PROPOSAL_SIZE : 0) + (has_bodies ? TG_ENTRY_BYTES : frame);
        room.body += has_bodies ? tg_frame_place(frame) : 0;
    }
    return room;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static rooms message_room(const tg_reducer *r, size_t batch, asked a)
{
    const rooms coded = batch_room(r, &r->coded, batch, &a), dense = batch_room(r, &r->dense, batch, &a);
    return (rooms){TG_MESSAGE_HEADER + larger(coded.message, dense.message), larger(coded.body, dense.body)};
}

/* What a transfer of frames sends and gets. */
static void give_room(tg_reducer *r, tg_reduction *reduction, tg_transfer *transfer, rooms out, const incoming *in)
{
    if (!r->arena.failed)
        tg_transfer_give_room(r, transfer, out.message, in->messages);
    if (!r->arena.failed && reduction->bodies)
        tg_body_make(r, reduction, transfer, out.body, in->bodies);
}

static void expect_from(const incoming *in, uint32_t peer, rooms room)
{
    in->messages[peer] = room.message;
    in->bodies[peer] = room.body;
}

/* gather: everybody's frames to everybody. */
static void make_gather_transfer(tg_reducer *r, tg_reduction *reduction, size_t p, const incoming *in)
{
    tg_transfer *gradients = &reduction->batches[p];
    tg_transfer_prepare(r, gradients, TG_MESSAGE_GRADIENTS, TG_ALL_GATHER, (uint32_t)p);
    for (uint32_t peer = 0; peer < r->world; peer++)
        expect_from(in, peer, message_room(r, p, (asked){.arrives = true}));
    give_room(r, reduction, gradients, message_room(r, p, (asked){.owner = 0}), in);
}

/* gather, where means are set aside: the same, in room that batches use in turn. */
static void make_windowed_transfer(tg_reducer *r, tg_reduction *reduction, size_t p, uint8_t *room, size_t most)
{
    tg_transfer *gradients = &reduction->batches[p];
    const size_t capacity = message_room(r, p, (asked){.arrives = true}).message;
    tg_transfer_prepare(r, gradients, TG_MESSAGE_GRADIENTS, TG_ALL_GATHER, (uint32_t)p);
    gradients->out = tg_message_room(r, message_room(r, p, (asked){.owner = 0}).message);
    for (uint32_t peer = 0; !r->arena.failed && peer < r->world; peer++) {
        gradients->capacity[peer] = capacity;
        gradients->receive[peer] = room + ((uint64_t)(p % r->gather_window) * r->world + peer) * most;
    }
}

/* The same for bodies; heads are short. */
static void make_windowed_body(tg_reducer *r, tg_reduction *reduction, size_t p, uint8_t *room, size_t most,
                               const incoming *in)
{
    tg_transfer *gradients = &reduction->batches[p];
    const rooms arrives = message_room(r, p, (asked){.arrives = true});
    tg_transfer_prepare(r, gradients, TG_MESSAGE_GRADIENTS, TG_ALL_GATHER, (uint32_t)p);
    for (uint32_t peer = 0; peer < r->world; peer++)
        expect_from(in, peer, arrives);
    give_room(r, reduction, gradients, message_room(r, p, (asked){.owner = 0}), &(incoming){in->messages, NULL});
    for (uint32_t peer = 0; !r->arena.failed && peer < r->world; peer++) {
        gradients->body->room[peer] = arrives.body;
        gradients->body->receive[peer] = room + ((uint64_t)(p % r->gather_window) * r->world + peer) * most;
    }
}

/* Room for the messages of so many batches, each of all ranks; and for the means. */
static uint8_t *make_aside(tg_reducer *r, tg_reduction *reduction, size_t batches, size_t *most)
{
    uint64_t at = 0;
    *most = 0;
    for (size_t p = 0; p < batches; p++) {
        const rooms room = message_room(r, p, (asked){.arrives = true});
        *most = larger(*most, tg_is_relayed(r, p)    ? 0
                              : r->options.on_device ? room.body
                                                     : (size_t)room_of(room.message));
    }
    for (size_t i = 0; i < r->tensor_count; i++) {
        r->tensors[i].aside_at = at;
        at += r->tensors[i].given.count;
    }
    reduction->aside = r->device->operations->allocate(r->device, (size_t)at * sizeof(float), 0);
    r->arena.failed |= !reduction->aside;
    const uint64_t all = (uint64_t)r->gather_window * r->world * *most;
    if (!r->options.on_device)
        return tg_message_room(r, all);
    reduction->window = r->device->operations->allocate(r->device, (size_t)all, 0);
    r->arena.failed |= !reduction->window;
    return reduction->window;
}

/* gather: the rounds of a batch whose messages are handed on. */
static void make_relay(tg_reducer *r, tg_reduction *reduction, size_t p, size_t *in)
{
    tg_relay *relay = &reduction->relays[reduction->relay_count++];
    relay->room = message_room(r, p, (asked){.owner = 0}).message;
    const size_t room = TG_RELAY_ENTRY + relay->room;
    tg_transfer *batch = &reduction->batches[p];
    tg_transfer_prepare(r, batch, TG_MESSAGE_GRADIENTS, TG_ALL_GATHER, (uint32_t)p);
    batch->out = tg_message_room(r, room);
    relay->batch = p;
    relay->round_count = tg_agreement_rounds(r->world);
    relay->rounds = tg_arena_take(&r->arena, relay->round_count, sizeof *relay->rounds);
    relay->blocks = tg_arena_take(&r->arena, r->world, sizeof *relay->blocks);
    for (uint32_t round = 0; !r->arena.failed && round < relay->round_count; round++) {
        const uint64_t from = (r->rank + (UINT64_C(1) << round)) % r->world;
        const size_t bytes = room * tg_relay_blocks(r->world, round);
        tg_transfer_prepare(r, &relay->rounds[round], TG_MESSAGE_GRADIENTS, TG_ALL_TO_ALL, (uint32_t)p);
        relay->rounds[round].relay = relay;
        for (uint32_t peer = 0; peer < r->world; peer++)
            in[peer] = peer == from ? bytes : TG_NO_MESSAGE;
        if (!r->arena.failed)
            tg_transfer_give_room(r, &relay->rounds[round], bytes, in);
    }
}

/* shard and scatter: to each owner its parts. */
static void make_parts_transfer(tg_reducer *r, tg_reduction *reduction, size_t p, const incoming *in)
{
    tg_transfer *parts = &reduction->batches[p];
    tg_transfer_prepare(r, parts, TG_MESSAGE_PARTS, TG_ALL_TO_ALL, (uint32_t)p);
    parts->places = tg_arena_take(&r->arena, r->world + (uint64_t)1, sizeof *parts->places);
    size_t *bodies = tg_arena_take(&r->arena, r->world, sizeof *bodies);
    rooms out = {0, 0};
    for (uint32_t peer = 0; !r->arena.failed && peer < r->world; peer++) {
        const rooms room = message_room(r, p, (asked){.owner = peer});
        parts->places[peer] = out.message;
        bodies[peer] = out.body;
        out = (rooms){out.message + room.message, out.body + room.body};
        parts->places[peer + 1] = out.message;
        expect_from(in, peer, message_room(r, p, (asked){.owner = r->rank, .arrives = true}));
    }
    give_room(r, reduction, parts, out, in);
    if (parts->body)
        parts->body->places = bodies;
}

/* shard: from each owner its results. */
static void make_results_transfer(tg_reducer *r, tg_reduction *reduction, size_t p, const incoming *in)
{
    tg_transfer *results = &reduction->results[p];
    tg_transfer_prepare(r, results, TG_MESSAGE_RESULTS, TG_ALL_GATHER, (uint32_t)p);
    for (uint32_t peer = 0; peer < r->world; peer++)
        expect_from(in, peer,
                    tg_has_results(r, p, peer)
                        ? message_room(r, p, (asked){.owner = peer, .results = true, .arrives = true})
                        : (rooms){TG_NO_MESSAGE, 0});
    give_room(r, reduction, results, message_room(r, p, (asked){.owner = r->rank, .results = true}), in);
}

static void make_batches(tg_reducer *r, tg_reduction *reduction, size_t batches, const incoming *in)
{
    size_t most = 0;
    r->gather_window = tg_gather_window(r);
    uint8_t *window = r->gather_window > 0 ? make_aside(r, reduction, batches, &most) : NULL;
    for (size_t p = 0; p < batches && !r->arena.failed; p++) {
        if (r->functions->has_parts)
            make_parts_transfer(r, reduction, p, in);
        else if (tg_is_relayed(r, p))
            make_relay(r, reduction, p, in->messages);
        else if (window && reduction->bodies)
            make_windowed_body(r, reduction, p, window, most, in);
        else if (window)
            make_windowed_transfer(r, reduction, p, window, most);
        else
            make_gather_transfer(r, reduction, p, in);
        if (r->functions->has_results)
            make_results_transfer(r, reduction, p, in);
    }
    r->relay_count = reduction->relay_count;
}

bool tg_transfers_make(tg_reducer *r, tg_reduction *reduction)
{
    size_t *in = calloc(2 * (size_t)r->world, sizeof *in);
    const size_t batches = r->coded.batch_count > r->dense.batch_count ? r->coded.batch_count : r->dense.batch_count;
    reduction->batches = tg_arena_take(&r->arena, batches, sizeof *reduction->batches);
    reduction->results = tg_arena_take(&r->arena, r->functions->has_results ? batches : 0, sizeof *reduction->results);
    size_t relays = 0;
    for (size_t p = 0; p < batches; p++)
        relays += tg_is_relayed(r, p);
    reduction->relays = tg_arena_take(&r->arena, relays, sizeof *reduction->relays);
    if (r->options.on_device) {
        reduction->bodies = tg_arena_take(&r->arena, 2 * batches, sizeof(void *));
        reduction->headed = tg_arena_take(&r->arena, 2 * batches, sizeof(void *));
    }
    if (!in || r->arena.failed) {
        r->arena.failed = true;
        free(in);
        return false;
    }
    if (!r->share.whole) { /* else these are the whole's */
        make_greeting_transfer(r, reduction, in);
        make_agreement(r, &reduction->introduction, TG_VERDICT_ON_GREETING, in);
        make_agreement(r, &reduction->agreement, TG_VERDICT_ON_STEP, in);
    }
    if (r->levels)
        tg_levels_transfers(reduction);
    else
        make_batches(r, reduction, batches, &(incoming){in, in + r->world});
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
                                           transfer->kind != TG_MESSAGE_SENTENCE &&
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
    if (status != TG_OK || message->abstain)
        return false;
    if (transfer->body)
        tg_body_open(r, transfer, peer, message, extra, frames);
    return true;
}

void tg_transfer_close(tg_reduction *r, uint32_t peer, const tg_message *message, uint32_t due, const tg_cursor *extra,
                       const tg_cursor *frames)
{
    if (frames->left > 0 || extra->left > 0 || message->frames != due)
        tg_reduction_fail(r, TG_SKIPPED, "rank %u received a message from rank %u that is longer than expected",
                          tg_named(r->reducer, r->reducer->rank), tg_named(r->reducer, peer));
}
