/* Small messages of many ranks under `gather`, handed on (Bruck's algorithm): in round i a rank passes on the messages
 * that it has of up to 2^i ranks, its own and those after it, and gets those of the next ones. So each rank sends one
 * message in each of log2(world) rounds, where it would send one to everybody. What is passed on are whole messages, as
 * their senders made them: each rank checks all of them, and adds up in rank order as ever. */
#include <string.h>

#include "base/bytes.h"
#include "reduce/reducer.h"

enum { SMALL = 8 << 10 }; /* bytes of a message: larger ones would wait for links, not for rounds */

/* Whether a batch begins or ends within a tensor: then ranks compare its messages with those before and after, which
 * must have come. */
static bool is_joined(const tg_plan *plan, size_t batch)
{
    if (batch >= plan->batch_count)
        return false;
    const size_t first = plan->batches[batch].first, next = first + plan->batches[batch].count;
    const tg_piece *pieces = plan->pieces;
    return (first > 0 && pieces[first - 1].tensor == pieces[first].tensor) ||
           (next < plan->piece_count && pieces[next - 1].tensor == pieces[next].tensor);
}

bool tg_is_relayed(const tg_reducer *r, size_t batch)
{
    return r->functions == &tg_gather && !r->share.whole && !r->options.on_device &&
           tg_agreement_rounds(r->world) > 1 && tg_batch_bound(r, batch) <= SMALL && !is_joined(&r->coded, batch) &&
           !is_joined(&r->dense, batch);
}

uint32_t tg_relay_blocks(uint32_t world, uint32_t round)
{
    const uint64_t have = UINT64_C(1) << round, lack = world - have;
    return (uint32_t)(have < lack ? have : lack);
}

static uint32_t rank_after(const tg_reducer *r, uint64_t places) { return (uint32_t)((r->rank + places) % r->world); }

/* Where block `place` lies: the message of the rank so many places after this one. */
static tg_block *block_of(const tg_relay *relay, uint64_t place) { return &relay->blocks[place]; }

/* ---- out ---- */

tg_transfer *tg_relay_next(tg_reduction *r, tg_relay *relay)
{
    const tg_reducer *reducer = r->reducer;
    const tg_transfer *own = &r->batches[relay->batch];
    tg_transfer *t = &relay->rounds[relay->round];
    const uint32_t count = tg_relay_blocks(reducer->world, relay->round),
                   to = rank_after(reducer, reducer->world - (UINT64_C(1) << relay->round));
    if (relay->round == 0)
        *block_of(relay, 0) = (tg_block){own->out, own->send_size[to]};
    uint8_t *end = t->out + (size_t)TG_RELAY_ENTRY * count;
    for (uint32_t i = 0; i < count; i++) {
        const tg_block *block = block_of(relay, i);
        tg_store32(t->out + (size_t)TG_RELAY_ENTRY * i, (uint32_t)block->size);
        if (block->size > 0)
            memcpy(end, block->data, block->size);
        end += block->size;
    }
    tg_transfer_send_all(r->reducer, t, TG_NO_MESSAGE);
    t->send_size[to] = (size_t)(end - t->out);
    return t;
}

/* ---- in ---- */

/* Whether what came is so many blocks; they are not looked at. */
static bool take_blocks(tg_relay *relay, const uint8_t *bytes, size_t size, uint32_t count, uint64_t first)
{
    size_t at = (size_t)TG_RELAY_ENTRY * count;
    for (uint32_t i = 0; i < count && at <= size; i++) {
        const uint32_t length = tg_load32(bytes + (size_t)TG_RELAY_ENTRY * i);
        *block_of(relay, first + i) = (tg_block){bytes + at, length};
        at = length <= relay->room && length <= size - at ? at + length : SIZE_MAX;
    }
    return at == size;
}

bool tg_relay_take(tg_reduction *r, tg_relay *relay)
{
    const tg_reducer *reducer = r->reducer;
    const uint64_t first = UINT64_C(1) << relay->round;
    const uint32_t count = tg_relay_blocks(reducer->world, relay->round), from = rank_after(reducer, first);
    const tg_transfer *t = &relay->rounds[relay->round];
    if (!take_blocks(relay, t->receive[from], t->received[from], count, first))
        for (uint32_t i = 0; i < count; i++) /* passed on as nothing, which no rank takes for a message */
            *block_of(relay, first + i) = (tg_block){t->receive[from], 0};
    if (++relay->round < relay->round_count)
        return false;
    tg_transfer *batch = &r->batches[relay->batch];
    for (uint32_t i = 1; i < reducer->world; i++) {
        batch->receive[rank_after(reducer, i)] = (void *)(uintptr_t)block_of(relay, i)->data;
        batch->received[rank_after(reducer, i)] = block_of(relay, i)->size;
    }
    return true;
}

size_t tg_relay_size(const tg_reduction *r, const tg_transfer *round, uint32_t from)
{
    const uint8_t *bytes = round->receive[from];
    const size_t room = round->capacity[from];
    const uint32_t count = tg_relay_blocks(r->reducer->world, (uint32_t)(round - round->relay->rounds));
    size_t at = (size_t)TG_RELAY_ENTRY * count; /* there is room for these */
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t length = tg_load32(bytes + (size_t)TG_RELAY_ENTRY * i);
        at = length <= room - at ? at + length : room;
    }
    return at;
}
