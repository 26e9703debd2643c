/* Two levels with shared memory between the ranks of a host: raw parts are not sent, but read where they lie, and what
 * owners spread is copied from where they made it. The messages of these steps say where that is, and that it is there;
 * so they are waited for, checked and timed out as others are. What is shared is not written again before the verdict,
 * by which all ranks have read it; and messages order what ranks write and read, as they do everywhere. */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "reduce/levels.h"
#include "transport/records.h"

enum { PLACE = 8, LINE = 64 };

static uint64_t lines(uint64_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

static tg_shared *own_memory(const tg_levels *l) { return &l->memory.of[l->memory.own]; }

/* ---- making it ---- */

/* Where what lies in the memory of one reduction; returns its size. */
static uint64_t place_all(tg_reducer *r)
{
    enum { PAGE = 4096 };
    tg_levels *l = r->levels;
    uint64_t at = 0;
    for (size_t i = 0; i < r->tensor_count; i++) {
        l->memory.gradients[i] = at;
        at += sizeof(float) * r->tensors[i].given.count; /* one after the other: the vector of a model */
    }
    at = lines(at);
    for (size_t b = 0; b < r->coded.batch_count || b < r->dense.batch_count; b++) {
        l->memory.spread[b] = at;
        at += lines(r->reductions[0].batches[b].out_capacity);
    }
    return (at + PAGE - 1) / PAGE * PAGE;
}

/* A location on its way: a byte that says whether it is one, and a digest. */
enum { LOCATION_AT = 16, LOCATION_MESSAGE = LOCATION_AT + TG_LOCATION_SIZE };

static uint64_t digest_of(const tg_reducer *r, const uint8_t *message)
{
    return r->kernels->digest(message + 8, LOCATION_MESSAGE - 8);
}

static tg_peers team_of(const tg_levels *l) { return (tg_peers){l->local, l->local_count}; }

/* Makes this rank's memory and maps that of the others; whether all of it is there. */
static tg_status map_all(tg_reducer *r, tg_transport *transport, uint8_t *room, bool *there, tg_error *error)
{
    tg_levels *l = r->levels;
    const tg_peers team = team_of(l);
    uint8_t mine[LOCATION_MESSAGE] = {0};
    const uint64_t all = l->memory.size * r->options.depth;
    *there = r->device->reads_host && tg_policy_of(r) != TG_NONFINITE_ZERO && transport->functions->share &&
             transport->functions->share(transport, (size_t)all, own_memory(l), mine + LOCATION_AT);
    mine[8] = *there;
    tg_store64(mine, digest_of(r, mine));
    const tg_status status = tg_records_exchange(transport, team, team, mine, sizeof mine, room, r->options.timeout,
                                                 error);
    for (uint32_t i = 0; status == TG_OK && *there && i < l->local_count; i++) {
        const uint8_t *theirs = room + i * sizeof mine;
        *there = i == l->memory.own || (theirs[8] == 1 && tg_load64(theirs) == digest_of(r, theirs) &&
                                        transport->functions->look(transport, theirs + LOCATION_AT, &l->memory.of[i]));
    }
    return status;
}

static void use(tg_reducer *r)
{
    tg_levels *l = r->levels;
    l->memory.used = true;
    for (uint32_t d = 0; d < r->options.depth; d++)
        for (size_t b = 0; b < r->coded.batch_count || b < r->dense.batch_count; b++) {
            tg_transfer *transfer = &r->reductions[d].batches[b];
            if (!transfer->out)
                continue; /* this rank spreads nothing */
            transfer->notice = transfer->out;
            transfer->out = own_memory(l)->memory + d * l->memory.size + l->memory.spread[b];
        }
}

static tg_status check(const tg_reducer *r, const tg_transport *transport, tg_error *error)
{
    if (!r || !transport)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_reducer_share_memory: reducer and transport must not be NULL");
    if (transport->rank != r->rank || transport->world != r->world)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "the reducer is for rank %u of %u, but the transport has rank %u of %u", r->rank, r->world,
                       transport->rank, transport->world);
    for (uint32_t i = 0; i < r->options.depth; i++)
        if (r->reductions[i].active)
            return tg_fail(error, TG_INVALID_ARGUMENT,
                           "tg_reducer_share_memory: a reduction is in progress; call it between reductions");
    if (r->levels && r->levels->memory.used)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_reducer_share_memory: memory is shared already; call it once");
    return TG_OK;
}

/* Among the ranks of a host; `agreed`: all of them have mapped everything. */
static tg_status share(tg_reducer *r, tg_transport *transport, uint8_t *room, bool *agreed, tg_error *error)
{
    tg_levels *l = r->levels;
    const tg_peers team = team_of(l);
    bool there = false;
    l->memory.size = place_all(r);
    tg_status status = map_all(r, transport, room, &there, error);
    const uint8_t mine = there;
    if (status == TG_OK)
        status = tg_records_exchange(transport, team, team, &mine, sizeof mine, room, r->options.timeout, error);
    *agreed = status == TG_OK && there;
    for (uint32_t i = 0; i < l->local_count; i++)
        *agreed = *agreed && (i == l->memory.own || room[i] == 1);
    if (*agreed)
        use(r);
    else
        tg_shared_free(r);
    return status;
}

tg_status tg_reducer_share_memory(tg_reducer *r, tg_transport *transport, bool *shared, tg_error *error)
{
    tg_status status = check(r, transport, error);
    if (status != TG_OK)
        return status;
    const tg_levels *l = r->levels;
    uint8_t *room = l ? calloc(l->local_count, LOCATION_MESSAGE) : NULL;
    bool agreed = false;
    /* Ranks with different lists of hosts would wait for each other. The greeting of the first step will say so. */
    status = tg_records_agree(transport, l ? l->digest : 0, !l || room, &agreed, r->options.timeout, error);
    if (status == TG_OK && agreed && l)
        status = share(r, transport, room, &agreed, error);
    free(room);
    if (status == TG_OK && shared)
        *shared = agreed && l;
    return status == TG_OK ? tg_succeed(error) : status;
}

bool tg_shared_make(tg_reducer *r)
{
    tg_levels *l = r->levels;
    const size_t messages = r->coded.batch_count > r->dense.batch_count ? r->coded.batch_count : r->dense.batch_count;
    l->memory.of = tg_arena_take(&r->arena, l->local_count, sizeof *l->memory.of);
    l->memory.gradients = tg_arena_take(&r->arena, r->tensor_count, sizeof *l->memory.gradients);
    l->memory.spread = tg_arena_take(&r->arena, messages, sizeof *l->memory.spread);
    l->memory.values = tg_arena_take(&r->arena, l->local_count, sizeof *l->memory.values);
    while (l->local[l->memory.own] != r->rank)
        l->memory.own++;
    return !r->arena.failed;
}

void tg_shared_free(tg_reducer *r)
{
    for (uint32_t i = 0; r->levels->memory.of && i < r->levels->local_count; i++)
        if (r->levels->memory.of[i].memory)
            r->levels->memory.of[i].release(&r->levels->memory.of[i]);
}

float *tg_reducer_gradient_memory(const tg_reducer *r, size_t index)
{
    if (!r || !r->levels || !r->levels->memory.used || r->options.depth > 1 || index >= r->tensor_count ||
        r->tensors[index].given.dtype != TG_FLOAT32)
        return NULL;
    return (float *)(void *)(own_memory(r->levels)->memory + r->levels->memory.gradients[index]);
}

/* ---- raw parts ---- */

/* A piece of the gradient as float32, where the ranks of the host can read it; or only this one, if it is `alone`. */
static const uint8_t *shared_part(tg_reduction *r, const tg_piece *piece, bool alone)
{
    const tg_levels *l = r->reducer->levels;
    const tg_shared *own = own_memory(l);
    const tg_tensor part = tg_piece_of(r, piece);
    const uintptr_t at = (uintptr_t)part.data, start = (uintptr_t)own->memory;
    if (part.dtype == TG_FLOAT32 && (alone || (at >= start && at - start < own->size)))
        return part.data;
    const uint64_t place = (uint64_t)(r - r->reducer->reductions) * l->memory.size +
                           l->memory.gradients[piece->tensor] + sizeof(float) * piece->first;
    float *copy = (float *)(void *)(own->memory + place);
    tg_device *device = r->reducer->device;
    const tg_source source = {.gradient = part.data, .dtype = part.dtype, .count = part.count};
    if (part.dtype == TG_FLOAT32)
        device->operations->copy(device, copy, part.data, (size_t)part.count * sizeof *copy);
    else
        device->operations->compensate(device, &source, copy);
    return (const uint8_t *)copy;
}

void tg_shared_send_raw(tg_reduction *r, size_t number)
{
    tg_reducer *reducer = r->reducer;
    const tg_levels *l = reducer->levels;
    tg_transfer *transfer = &r->levels->raw[number % TG_TURNS];
    const tg_batch *batch = &r->plan->batches[number];
    uint8_t *end = transfer->out;
    transfer->number = (uint32_t)number;
    for (uint32_t share = 0; share < l->shares; share++) {
        uint8_t *start = end;
        end += TG_MESSAGE_HEADER;
        for (size_t i = batch->first; i < batch->first + batch->count; i++) {
            const tg_piece *piece = &r->plan->pieces[i];
            if (piece->owner != share)
                continue;
            const bool given = r->given[piece->tensor] == TG_GIVEN;
            const uint8_t *values = given ? shared_part(r, piece, share == l->share) : NULL;
            if (share == l->share && given)
                tg_received(r, i)[l->memory.own] = (tg_frame){values, sizeof(float) * piece->count};
            tg_store64(end, given && share != l->share ? (uint64_t)(values - own_memory(l)->memory) : 0);
            end += PLACE;
        }
        tg_present_write(r, number, end);
        end += tg_present_size(r, number);
        const tg_message message = {.kind = transfer->kind,
                                    .step = r->step,
                                    .rank = reducer->rank,
                                    .world = reducer->world,
                                    .number = transfer->number,
                                    .layout = reducer->layout,
                                    .extra = (uint32_t)(end - start) - TG_MESSAGE_HEADER};
        tg_message_seal(reducer->kernels, &message, start);
        transfer->send[l->local[share]] = start;
        transfer->send_size[l->local[share]] = (size_t)(end - start);
    }
    reducer->device->operations->wait(reducer->device);
}

/* Whether so many bytes at a place are in the shared memory of another rank. */
static bool is_inside(const tg_shared *of, uint64_t place, uint64_t bytes)
{
    return place <= of->size && bytes <= of->size - place && place % sizeof(float) == 0;
}

static void take_from(tg_reduction *r, size_t number, uint32_t from)
{
    const tg_levels *l = r->reducer->levels;
    const tg_batch *batch = &r->plan->batches[number];
    const tg_shared *theirs = &l->memory.of[from];
    const uint32_t peer = l->local[from];
    tg_message message;
    tg_cursor extra, frames;
    size_t due = 0;
    for (size_t i = batch->first; i < batch->first + batch->count; i++)
        due += r->plan->pieces[i].owner == l->share;
    if (!tg_transfer_open(r, &r->levels->raw[number % TG_TURNS], peer, &message, &extra, &frames)) {
        r->had_last[peer] = TG_NOT_KNOWN;
        return;
    }
    const uint8_t *places = tg_cursor_take(&extra, due * PLACE);
    if (extra.short_read) {
        tg_reduction_fail(r, TG_SKIPPED, "rank %u sent a message without its places in shared memory", peer);
        return;
    }
    if (!tg_present_read(r, number, peer, &extra))
        return;
    for (size_t i = batch->first; i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        if (piece->owner != l->share)
            continue;
        const uint64_t place = tg_load64(places), bytes = sizeof(float) * piece->count;
        places += PLACE;
        if (!r->has[piece->tensor])
            continue;
        if (is_inside(theirs, place, bytes))
            tg_received(r, i)[from] = (tg_frame){theirs->memory + place, (size_t)bytes};
        else
            tg_reduction_fail(r, TG_SKIPPED, "rank %u sent an invalid place in shared memory for tensor '%.60s'", peer,
                              r->reducer->names[piece->tensor]);
    }
    tg_transfer_close(r, peer, &message, 0, &extra, &frames);
}

void tg_shared_take_raw(tg_reduction *r, size_t number)
{
    const tg_levels *l = r->reducer->levels;
    for (uint32_t from = 0; from < l->local_count; from++)
        if (from != l->memory.own)
            take_from(r, number, from);
}

/* Forgets parts with a value that is not finite: each of them is its rank's alone to lose. */
static void forget_nonfinite(tg_reduction *r, const tg_piece *piece, tg_frame *parts)
{
    tg_reducer *reducer = r->reducer;
    const tg_levels *l = reducer->levels;
    for (uint32_t from = 0; from < l->local_count; from++) {
        const tg_source source = {.gradient = parts[from].data, .dtype = TG_FLOAT32, .count = piece->count};
        uint64_t found;
        if (!parts[from].data)
            continue;
        reducer->device->operations->first_nonfinite(reducer->device, &source, &found);
        reducer->device->operations->wait(reducer->device);
        if (found == piece->count)
            continue;
        parts[from].data = NULL;
        tg_reduction_fail(r, reducer->options.nonfinite == TG_NONFINITE_SKIP ? TG_SKIPPED : TG_NONFINITE,
                          "the gradient of tensor '%.60s' on rank %u: element %" PRIu64 " is not finite",
                          reducer->names[piece->tensor], l->local[from], piece->first + found);
    }
}

/* The sum of what is there; how many parts that were. */
static uint32_t add_up(const tg_reduction *r, const tg_piece *piece, const tg_frame *parts, float *sums)
{
    const tg_reducer *reducer = r->reducer;
    const tg_levels *l = reducer->levels;
    uint32_t count = 0;
    for (uint32_t from = 0; from < l->local_count; from++)
        if (parts[from].data)
            l->memory.values[count++] = (const float *)(const void *)parts[from].data;
    if (count > 0)
        reducer->device->operations->sum(reducer->device, l->memory.values, count, 1, piece->count, sums);
    else
        reducer->device->operations->clear(reducer->device, sums, (size_t)piece->count * sizeof *sums);
    reducer->device->operations->wait(reducer->device);
    return count;
}

void tg_shared_sum_raw(tg_reduction *r, size_t index, float *sums)
{
    tg_reducer *reducer = r->reducer;
    const tg_piece *piece = &r->plan->pieces[index];
    const tg_source sum = {.gradient = sums, .dtype = TG_FLOAT32, .count = piece->count};
    tg_frame *parts = tg_received(r, index);
    uint64_t found = piece->count;
    if (add_up(r, piece, parts, sums) > 0)
        reducer->device->operations->first_nonfinite(reducer->device, &sum, &found);
    reducer->device->operations->wait(reducer->device);
    if (found == piece->count)
        return;
    forget_nonfinite(r, piece, parts);
    (void)add_up(r, piece, parts, sums); /* what overflows is found when it is compressed */
}

/* ---- what owners spread ---- */

enum { NOTICE = 2 * PLACE };

void tg_shared_send_spread(tg_reduction *r, tg_transfer *transfer)
{
    const tg_levels *l = r->reducer->levels;
    const bool lost = tg_reduction_lost(r);
    tg_store64(transfer->notice + TG_MESSAGE_HEADER, (uint64_t)(transfer->out - own_memory(l)->memory));
    tg_store64(transfer->notice + TG_MESSAGE_HEADER + PLACE, transfer->out_size);
    tg_transfer_seal(r, transfer, 0, lost ? 0 : NOTICE, transfer->notice);
    for (uint32_t i = 0; i < l->local_count; i++) {
        transfer->send[l->local[i]] = transfer->notice;
        transfer->send_size[l->local[i]] = TG_MESSAGE_HEADER + (lost ? 0 : NOTICE);
    }
}

void tg_shared_take_spread(tg_reduction *r, tg_transfer *transfer)
{
    const tg_levels *l = r->reducer->levels;
    for (uint32_t share = 0; share < l->shares && !tg_reduction_lost(r); share++) {
        const uint32_t peer = l->local[share];
        tg_message message;
        tg_cursor extra, frames;
        if (share == l->share || !tg_transfer_open(r, transfer, peer, &message, &extra, &frames))
            continue;
        const uint8_t *notice = tg_cursor_take(&extra, NOTICE);
        const uint64_t place = notice ? tg_load64(notice) : 0, size = notice ? tg_load64(notice + PLACE) : 0;
        tg_transfer_close(r, peer, &message, 0, &extra, &frames);
        if (!notice || size > transfer->capacity[peer] || !is_inside(&l->memory.of[share], place, size))
            tg_reduction_fail(r, TG_SKIPPED, "rank %u sent an invalid place in shared memory for its results", peer);
        else
            memcpy(transfer->receive[peer], l->memory.of[share].memory + place, (size_t)size);
        transfer->received[peer] = (size_t)size;
    }
}
