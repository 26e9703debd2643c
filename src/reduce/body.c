/* Messages whose frames lie in device memory, and never leave it. Each goes in two exchanges: the head, from host to
 * host, is header and extra part, which ends with an entry for each frame, place and size; then the body, from device
 * to device, has the frames. So both sides know how long the body is before it sets out, and the host reads nothing of
 * it. Bodies set out in the order of their heads. */
#include <string.h>

#include "base/status.h"
#include "reduce/reducer.h"

void tg_body_make(tg_reducer *r, tg_reduction *reduction, tg_transfer *transfer, size_t out, const size_t *in)
{
    const tg_operations *on = r->device->operations;
    tg_body *b = transfer->body = tg_arena_take(&r->arena, 1, sizeof *b);
    if (!b)
        return;
    reduction->bodies[reduction->body_count++] = b; /* first, so that what is allocated is released after a failure */
    b->send = tg_arena_take(&r->arena, r->world, sizeof *b->send);
    b->send_size = tg_arena_take(&r->arena, r->world, sizeof *b->send_size);
    b->receive = tg_arena_take(&r->arena, r->world, sizeof *b->receive);
    b->capacity = tg_arena_take(&r->arena, r->world, sizeof *b->capacity);
    b->received = tg_arena_take(&r->arena, r->world, sizeof *b->received);
    b->room = tg_arena_take(&r->arena, r->world, sizeof *b->room);
    uint64_t all = 0;
    for (uint32_t peer = 0; in && peer < r->world; peer++)
        all += peer == r->rank ? 0 : tg_frame_place(in[peer]);
    b->memory[0] = on->allocate(r->device, out, 0);
    b->memory[1] = all > 0 ? on->allocate(r->device, (size_t)all, 0) : NULL;
    r->arena.failed |= !b->memory[0] || (all > 0 && !b->memory[1]);
    if (r->arena.failed)
        return;
    on->clear(r->device, b->memory[0], out); /* what lies between frames is sent too */
    b->out = b->memory[0];
    uint8_t *at = b->memory[1];
    for (uint32_t peer = 0; at && peer < r->world; peer++)
        if (peer != r->rank) {
            b->receive[peer] = at;
            b->room[peer] = in[peer];
            at += tg_frame_place(in[peer]);
        }
    b->exchange = (tg_exchange){.kind = transfer->exchange.kind,
                                .world = r->world,
                                .send = b->send,
                                .send_size = b->send_size,
                                .receive = b->receive,
                                .capacity = b->capacity,
                                .received = b->received,
                                .on_device = true};
}

void tg_bodies_free(tg_reducer *r)
{
    for (uint32_t i = 0; r->options.on_device && r->reductions && i < r->options.depth; i++) {
        tg_reduction *reduction = &r->reductions[i];
        for (size_t p = 0; p < reduction->body_count; p++)
            for (int m = 0; m < 2; m++)
                r->device->operations->release(r->device, reduction->bodies[p]->memory[m]);
        r->device->operations->release(r->device, reduction->window);
    }
}

/* ---- out ---- */

static uint8_t *message_at(const tg_transfer *t, uint32_t owner)
{
    return t->out + (owner == TG_EVERY_OWNER ? 0 : t->places[owner]);
}

uint8_t *tg_extra_at(const tg_transfer *t, uint32_t owner) { return message_at(t, owner) + TG_MESSAGE_HEADER; }

uint8_t *tg_frames_at(const tg_transfer *t, uint32_t owner, uint32_t extra)
{
    return !t->body                  ? tg_extra_at(t, owner) + extra
           : owner == TG_EVERY_OWNER ? t->body->out
                                     : t->body->out + t->body->places[owner];
}

/* Writes the entries; returns how long the body is. */
static size_t write_entries(const tg_transfer *t, uint32_t owner, const tg_frame *frames, uint32_t count,
                            uint8_t *entries)
{
    const uint8_t *start = tg_frames_at(t, owner, 0);
    size_t end = 0;
    for (uint32_t i = 0; i < count; i++) {
        const size_t place = (size_t)((const uint8_t *)frames[i].data - start);
        tg_entry_write(&(tg_entry){place, frames[i].size}, entries + (size_t)TG_ENTRY_BYTES * i);
        end = tg_frame_place(place + frames[i].size);
    }
    return end;
}

static void send_body(const tg_reducer *r, tg_body *b, uint32_t owner, const uint8_t *from, size_t size)
{
    for (uint32_t peer = 0; peer < r->world; peer++)
        if (owner == TG_EVERY_OWNER || owner == peer) {
            b->send[peer] = from;
            b->send_size[peer] = peer == r->rank || size == 0 ? TG_NO_MESSAGE : size;
        }
}

void tg_message_send(tg_reduction *r, tg_transfer *t, uint32_t owner, uint32_t extra, const tg_frame *frames,
                     uint32_t count, const uint8_t *end)
{
    const bool lost = tg_reduction_lost(r);
    uint8_t *message = message_at(t, owner);
    extra = lost ? 0 : extra;
    count = lost ? 0 : count;
    size_t size = lost ? TG_MESSAGE_HEADER : (size_t)(end - message);
    if (t->body) {
        const size_t body = write_entries(t, owner, frames, count, message + TG_MESSAGE_HEADER + extra);
        extra += count * TG_ENTRY_BYTES;
        size = TG_MESSAGE_HEADER + extra;
        send_body(r->reducer, t->body, owner, tg_frames_at(t, owner, 0), body);
    }
    tg_transfer_seal(r, t, count, extra, message);
    if (owner == TG_EVERY_OWNER) {
        tg_transfer_send_all(r->reducer, t, size);
    } else {
        t->send[owner] = message;
        t->send_size[owner] = owner == r->reducer->rank ? 0 : size;
    }
}

void tg_message_none(tg_reducer *r, tg_transfer *t)
{
    if (t->body)
        send_body(r, t->body, TG_EVERY_OWNER, NULL, 0);
    tg_transfer_send_all(r, t, TG_NO_MESSAGE);
}

/* ---- in ---- */

tg_status tg_body_expect(const tg_reduction *r, const tg_transfer *t, tg_error *error)
{
    const tg_reducer *reducer = r->reducer;
    tg_body *b = t->body;
    for (uint32_t peer = 0; peer < reducer->world; peer++) {
        uint64_t size = 0;
        b->capacity[peer] = TG_NO_MESSAGE;
        if (peer == reducer->rank || !tg_receives_from(t, peer))
            continue;
        if (!tg_message_body(reducer->kernels, t->receive[peer], t->received[peer], &size) || size > b->room[peer])
            return tg_fail(error, TG_EXCHANGE,
                           "the head of a message from rank %u to rank %u is damaged, and the number of bytes that "
                           "follow is unknown: restart from a checkpoint",
                           peer, reducer->rank);
        if (size > 0)
            b->capacity[peer] = (size_t)size;
    }
    return TG_OK;
}

void tg_body_open(tg_reduction *r, const tg_transfer *t, uint32_t peer, const tg_message *message, tg_cursor *extra,
                  tg_cursor *frames)
{
    const size_t entries = (size_t)message->frames * TG_ENTRY_BYTES; /* they were there when the body was expected */
    const size_t size = t->body->capacity[peer];
    r->opened = (tg_opened){.bytes = t->body->receive[peer], .left = size == TG_NO_MESSAGE ? 0 : size};
    *frames = tg_cursor_over(extra->at + extra->left - entries, entries);
    extra->left -= entries;
}

bool tg_body_frame(tg_reduction *r, tg_cursor *frames, tg_frame *frame)
{
    enum { SHORTEST = 64 };
    tg_entry entry;
    if (!tg_entry_read(frames, &entry) || entry.place % TG_FRAME_ALIGNMENT != 0 || entry.place < r->opened.used ||
        entry.place > r->opened.left || entry.size > r->opened.left - entry.place || entry.size < SHORTEST)
        return false;
    *frame = (tg_frame){r->opened.bytes + entry.place, (size_t)entry.size};
    r->opened.used = entry.place + entry.size;
    return true;
}
