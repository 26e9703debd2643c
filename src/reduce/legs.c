/* The exchanges of a reduction: their buffers, and messages on their way in and out. */
#include "base/status.h"
#include "reduce/reducer.h"

static void prepare(tg_reducer *r, tg_leg *leg, tg_message_kind kind, tg_exchange_kind exchange, uint32_t number)
{
    leg->kind = kind;
    leg->number = number;
    leg->send = tg_pool_take(&r->pool, r->world, sizeof *leg->send);
    leg->send_size = tg_pool_take(&r->pool, r->world, sizeof *leg->send_size);
    leg->receive = tg_pool_take(&r->pool, r->world, sizeof *leg->receive);
    leg->capacity = tg_pool_take(&r->pool, r->world, sizeof *leg->capacity);
    leg->received = tg_pool_take(&r->pool, r->world, sizeof *leg->received);
    leg->exchange = (tg_exchange){.kind = exchange,
                                  .world = r->world,
                                  .send = leg->send,
                                  .send_size = leg->send_size,
                                  .receive = leg->receive,
                                  .capacity = leg->capacity,
                                  .received = leg->received};
}

/* Room for what goes out, and for what comes from every other rank. */
static void give_room(tg_reducer *r, tg_leg *leg, size_t out, const size_t *in)
{
    leg->out = tg_pool_take(&r->pool, out, 1);
    leg->out_capacity = out;
    for (uint32_t peer = 0; !r->pool.failed && peer < r->world; peer++) {
        if (peer == r->rank)
            continue;
        leg->capacity[peer] = in[peer];
        leg->receive[peer] = tg_pool_take(&r->pool, in[peer], 1);
    }
}

static void make_leg(tg_reducer *r, tg_leg *leg, tg_message_kind kind, uint32_t number, size_t room, size_t *in)
{
    prepare(r, leg, kind, TG_ALL_GATHER, number);
    for (uint32_t peer = 0; peer < r->world; peer++)
        in[peer] = room;
    give_room(r, leg, room, in);
}

/* Most bytes of the frames that one rank sends of a parcel of a plan; 0 where the plan is shorter. */
static size_t parcel_room(const tg_reducer *r, const tg_plan *plan, size_t parcel)
{
    size_t room = 0;
    for (size_t i = 0; parcel < plan->parcel_count && i < plan->parcels[parcel].count; i++) {
        const tg_piece *piece = &plan->pieces[plan->parcels[parcel].first + i];
        room += tg_frame_room(r, plan == &r->dense, piece->tensor, piece->count);
    }
    return room;
}

bool tg_legs_make(tg_reducer *r, tg_reduction *reduction)
{
    size_t *in = malloc(r->world * sizeof *in);
    const size_t parcels = r->coded.parcel_count > r->dense.parcel_count ? r->coded.parcel_count : r->dense.parcel_count;
    reduction->parcels = tg_pool_take(&r->pool, parcels, sizeof *reduction->parcels);
    if (!in || r->pool.failed) {
        free(in);
        return false;
    }
    make_leg(r, &reduction->greeting, TG_MESSAGE_GREETING, 0, TG_MESSAGE_HEADER + TG_GREETING_MOST, in);
    make_leg(r, &reduction->greeting_verdict, TG_MESSAGE_VERDICT, 0, TG_MESSAGE_HEADER + TG_VERDICT_BYTES, in);
    make_leg(r, &reduction->verdicts, TG_MESSAGE_VERDICT, 1, TG_MESSAGE_HEADER + TG_VERDICT_BYTES, in);
    for (size_t p = 0; p < parcels && !r->pool.failed; p++) {
        const size_t coded = parcel_room(r, &r->coded, p), dense = parcel_room(r, &r->dense, p);
        make_leg(r, &reduction->parcels[p], TG_MESSAGE_GRADIENTS, (uint32_t)p, TG_MESSAGE_HEADER + (coded > dense ? coded : dense), in);
    }
    free(in);
    return !r->pool.failed;
}

void tg_leg_send_all(tg_reducer *r, tg_leg *leg, size_t size)
{
    for (uint32_t peer = 0; peer < r->world; peer++) {
        leg->send[peer] = leg->out;
        leg->send_size[peer] = peer == r->rank ? 0 : size;
    }
}

void tg_leg_seal(tg_reduction *r, const tg_leg *leg, uint32_t frames, uint32_t extra, uint8_t *bytes)
{
    const tg_reducer *reducer = r->reducer;
    const tg_message message = {.kind = leg->kind,
                                .step = r->step,
                                .rank = reducer->rank,
                                .world = reducer->world,
                                .number = leg->number,
                                .frames = frames,
                                .layout = reducer->layout,
                                .extra = extra,
                                .abstain = r->verdict.status != TG_OK && leg->kind != TG_MESSAGE_VERDICT &&
                                           leg->kind != TG_MESSAGE_GREETING};
    tg_message_seal(reducer->kernels, &message, bytes);
}

bool tg_leg_open(tg_reduction *r, tg_leg *leg, uint32_t peer, tg_message *message, tg_cursor *extra, tg_cursor *frames)
{
    tg_reducer *reducer = r->reducer;
    const tg_message expected = {.kind = leg->kind,
                                 .step = r->step,
                                 .rank = peer,
                                 .world = reducer->world,
                                 .number = leg->number,
                                 .layout = reducer->layout};
    tg_error why;
    tg_status status = tg_message_open(reducer->kernels, leg->receive[peer], leg->received[peer], &expected, message, extra, frames, &why);
    if (status != TG_OK)
        tg_reduction_fail(r, status == TG_LAYOUT_MISMATCH ? status : TG_SKIPPED, "rank %u on a message from rank %u: %.150s", reducer->rank,
                          peer, why.message);
    else if (message->abstain)
        r->doomed = true;
    return status == TG_OK && !message->abstain;
}
