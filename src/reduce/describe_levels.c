/* What a reduction of two levels exchanges: between hosts that of the reducer of each share, and what goes before and
 * after within them. */
#include <string.h>

#include "base/status.h"
#include "codec/header.h"
#include "reduce/describe.h"

/* ---- shares ---- */

static tg_status describe_share(tg_description *d, uint32_t share, tg_error *error)
{
    tg_reducer *r = d->reducer, *inner = calloc(1, sizeof *inner);
    tg_description *made = d->levels[share] = calloc(1, sizeof *made);
    tg_reducer_tensor *tensors = malloc((r->tensor_count + 1) * sizeof *tensors);
    if (!inner || !made || !tensors) {
        free(inner);
        free(tensors);
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for a description");
    }
    made->reducer = inner;
    inner->world = r->levels->hosts;
    inner->tensor_count = r->tensor_count;
    inner->share = (tg_share){.whole = r, .number = share};
    for (size_t i = 0; i < r->tensor_count; i++)
        tensors[i] = tg_share_tensor(r, i, share);
    const tg_reducer_options options = tg_share_options(r, share);
    tg_status status = tg_reducer_keep(inner, tensors, &options, error);
    if (status == TG_OK)
        status = tg_description_fill_in(made, error);
    free(tensors);
    d->estimated = d->estimated || made->estimated;
    return status;
}

/* The order in which exchanges are handed out. */
static void order(tg_description *d)
{
    const tg_reducer *r = d->reducer;
    const bool shards = r->algorithm == TG_SHARD, between = r->levels->hosts > 1;
    tg_exchange_role roles[TG_STAGES];
    unsigned stages = 0;
    roles[stages++] = TG_ROLE_RAW;
    if (between)
        roles[stages++] = shards ? TG_ROLE_PARTS : TG_ROLE_GRADIENTS;
    if (between && shards)
        roles[stages++] = TG_ROLE_RESULTS;
    roles[stages++] = TG_ROLE_SPREAD;
    const size_t messages = r->coded.batch_count, slots = messages + (size_t)(stages - 1) * TG_STAGE_BEHIND;
    size_t made[TG_STAGES][TG_TURNS] = {{0}}; /* where the last were handed out */
    for (size_t slot = 0; messages > 0 && slot < slots; slot++)
        for (unsigned stage = 0; stage < stages; stage++) {
            const size_t behind = (size_t)stage * TG_STAGE_BEHIND, message = slot - behind;
            if (slot < behind || message >= messages)
                continue;
            d->entries[d->entry_count] = (tg_described_entry){
                roles[stage], message, stage > 0 ? made[stage - 1][message % TG_TURNS] : SIZE_MAX, 0};
            made[stage][message % TG_TURNS] = d->entry_count++;
        }
    for (uint32_t round = 0; round < tg_agreement_rounds(r->world); round++, d->entry_count++)
        d->entries[d->entry_count] = (tg_described_entry){TG_ROLE_VERDICT, 0,
                                                          d->entry_count > 0 ? d->entry_count - 1 : SIZE_MAX, 0};
}

static void place_ranks(tg_description *d)
{
    const tg_reducer *r = d->reducer;
    for (uint32_t rank = 0; rank < r->world; rank++)
        d->place[rank] = d->host_size[r->levels->host_of_rank[rank]]++;
}

static void number_messages(tg_description *d, uint32_t share)
{
    const tg_plan *plan = &d->reducer->coded;
    size_t next = 0;
    for (size_t b = 0; b < plan->batch_count; b++) {
        bool owns = false;
        tg_piece run;
        for (size_t i = plan->batches[b].first; i < plan->batches[b].first + plan->batches[b].count; i++)
            owns = owns || (plan->pieces[i].owner == share && tg_share_ends(d->reducer, false, &plan->pieces[i], &run));
        d->inner_message[share][b] = owns ? next++ : SIZE_MAX;
    }
}

tg_status tg_describe_levels(tg_description *d, tg_error *error)
{
    tg_reducer *r = d->reducer;
    const uint32_t shares = r->levels->shares;
    const size_t messages = r->coded.batch_count;
    d->levels = tg_arena_take(&r->arena, shares, sizeof(tg_description *));
    d->batches = tg_arena_take(&r->arena, messages, sizeof *d->batches);
    d->entries = tg_arena_take(&r->arena, TG_STAGES * messages + tg_agreement_rounds(r->world), sizeof *d->entries);
    d->place = tg_arena_take(&r->arena, r->world, sizeof *d->place);
    d->host_size = tg_arena_take(&r->arena, r->levels->hosts, sizeof *d->host_size);
    d->inner_message = tg_arena_take(&r->arena, shares, sizeof(size_t *));
    for (uint32_t share = 0; !r->arena.failed && share < shares; share++)
        d->inner_message[share] = tg_arena_take(&r->arena, messages, sizeof(size_t));
    if (r->arena.failed)
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for a description of %zu tensors", r->tensor_count);
    place_ranks(d);
    for (size_t b = 0; b < messages; b++) {
        const tg_batch *batch = &r->coded.batches[b];
        const uint32_t first = r->coded.pieces[batch->first].tensor;
        d->batches[b].first_tensor = first;
        d->batches[b].tensor_count = r->coded.pieces[batch->first + batch->count - 1].tensor - first + (size_t)1;
    }
    d->elements = r->coded.total;
    tg_status status = TG_OK;
    for (uint32_t share = 0; status == TG_OK && share < shares; share++) {
        number_messages(d, share);
        status = describe_share(d, share, error);
    }
    order(d);
    return status == TG_OK ? tg_succeed(error) : status;
}

void tg_describe_levels_free(tg_description *d)
{
    for (uint32_t share = 0; d->levels && share < d->reducer->levels->shares; share++)
        if (d->levels[share])
            tg_description_free(d->levels[share]);
}

/* ---- exchanges ---- */

/* What there is of one share in a message. */
typedef struct part {
    uint64_t pieces, elements;
    uint64_t runs, ended; /* what goes between hosts then: runs of elements, and so many elements */
    uint64_t raw;         /* bytes of a message of raw parts */
    uint64_t spread;      /* and of one of results */
    uint64_t frames;      /* of the latter */
} part;

static part part_of(const tg_description *d, size_t message, uint32_t share)
{
    const tg_reducer *r = d->reducer;
    const tg_batch *batch = &r->coded.batches[message];
    part p = {.raw = TG_MESSAGE_HEADER, .spread = TG_MESSAGE_HEADER};
    for (size_t i = batch->first; i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->coded.pieces[i];
        if (piece->owner != share)
            continue;
        p.pieces++;
        p.elements += piece->count;
        tg_piece run;
        if (tg_share_ends(r, false, piece, &run)) {
            p.runs++;
            p.ended += run.count;
        }
        p.raw += TG_HEADER_SIZE + tg_dtype_size(r->tensors[piece->tensor].given.dtype) * piece->count;
    }
    const size_t inner = d->inner_message[share][message];
    if (inner == SIZE_MAX)
        return p;
    const tg_description *between = d->levels[share];
    const uint64_t copies = r->algorithm == TG_SHARD ? 1 : r->levels->hosts;
    p.spread += sizeof(uint32_t) * p.runs + copies * tg_described_bytes(between, inner);
    p.frames = copies * between->batches[inner].frames;
    return p;
}

static void describe_raw(const tg_description *d, uint32_t rank, size_t message, tg_described_exchange *e)
{
    const tg_levels *l = d->reducer->levels;
    const uint32_t local = d->host_size[l->host_of_rank[rank]], place = d->place[rank];
    uint32_t largest_host = 0;
    for (uint32_t host = 0; host < l->hosts; host++)
        largest_host = d->host_size[host] > largest_host ? d->host_size[host] : largest_host;
    uint64_t all = 0, smallest = UINT64_MAX, largest = 0;
    e->kind = TG_ALL_TO_ALL;
    for (uint32_t share = 0; share < l->shares; share++) {
        const part p = part_of(d, message, share);
        all += p.raw;
        smallest = p.raw < smallest ? p.raw : smallest;
        largest = p.raw > largest ? p.raw : largest;
        e->encoded += p.elements;
        e->frames += p.pieces;
        if (share == place) {
            e->bytes_received = (local - 1) * p.raw;
            e->checked = (local - 1) * p.elements;
            e->frames += (local - 1) * p.pieces;
        } else {
            e->bytes_sent += p.raw;
        }
    }
    e->peers = place < l->shares ? local - 1 : l->shares;
    e->largest_sent = largest_host > l->shares ? all : all - smallest;
    e->largest_received = (largest_host - 1) * largest;
}

static void describe_between(const tg_description *d, uint32_t rank, tg_exchange_role role, size_t message,
                             tg_described_exchange *e)
{
    const tg_levels *l = d->reducer->levels;
    const uint32_t host = l->host_of_rank[rank], place = d->place[rank];
    const size_t first_tensor = e->first_tensor, tensor_count = e->tensor_count;
    uint64_t largest_sent = 0, largest_received = 0;
    e->kind = TG_ALL_TO_ALL; /* of all ranks, it is one among the owners of each share */
    e->peers = 0;
    for (uint32_t share = 0; share < l->shares; share++) {
        const size_t inner = d->inner_message[share][message];
        tg_described_exchange own = {.kind = TG_ALL_TO_ALL};
        if (inner == SIZE_MAX)
            continue;
        tg_describe(d->levels[share], host, role, inner, &own);
        largest_sent = own.largest_sent > largest_sent ? own.largest_sent : largest_sent;
        largest_received = own.largest_received > largest_received ? own.largest_received : largest_received;
        if (share != place)
            continue;
        const size_t after = e->after;
        *e = own;
        e->role = role;
        e->kind = TG_ALL_TO_ALL;
        e->after = after;
        e->peers = l->hosts - 1;
        if (role != TG_ROLE_RESULTS) /* made of what came within the host */
            e->summed += (uint64_t)d->host_size[host] * part_of(d, message, share).ended;
    }
    e->first_tensor = first_tensor;
    e->tensor_count = tensor_count;
    e->largest_sent = largest_sent;
    e->largest_received = largest_received;
}

static void describe_spread(const tg_description *d, uint32_t rank, size_t message, tg_described_exchange *e)
{
    const tg_levels *l = d->reducer->levels;
    const uint32_t local = d->host_size[l->host_of_rank[rank]], place = d->place[rank];
    const uint64_t copies = d->reducer->algorithm == TG_SHARD ? 1 : l->hosts;
    uint32_t largest_host = 0;
    for (uint32_t host = 0; host < l->hosts; host++)
        largest_host = d->host_size[host] > largest_host ? d->host_size[host] : largest_host;
    uint64_t all = 0, smallest = UINT64_MAX, largest = 0;
    e->kind = TG_ALL_GATHER;
    for (uint32_t share = 0; share < l->shares; share++) {
        const part p = part_of(d, message, share);
        all += p.spread;
        smallest = p.spread < smallest ? p.spread : smallest;
        largest = p.spread > largest ? p.spread : largest;
        if (share == place) {
            e->bytes_sent = (local - 1) * p.spread;
        } else {
            e->bytes_received += p.spread;
            e->checked += copies * p.ended;
            e->frames += p.frames;
        }
        if (share == place && l->hosts == 1) /* one host has nothing between */
            e->summed = local * p.elements;
    }
    e->peers = place < l->shares ? local - 1 : l->shares;
    e->largest_sent = (largest_host - 1) * largest;
    e->largest_received = largest_host > l->shares ? all : all - smallest;
}

void tg_describe_level(const tg_description *d, uint32_t rank, tg_exchange_role role, size_t message,
                       tg_described_exchange *e)
{
    if (role == TG_ROLE_RAW)
        describe_raw(d, rank, message, e);
    else if (role == TG_ROLE_SPREAD)
        describe_spread(d, rank, message, e);
    else
        describe_between(d, rank, role, message, e);
}
