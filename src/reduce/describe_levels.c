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
    for (uint32_t round = 0; round < tg_agreement_exchanges(r); round++, d->entry_count++)
        d->entries[d->entry_count] = (tg_described_entry){TG_ROLE_VERDICT, 0,
                                                          d->entry_count > 0 ? d->entry_count - 1 : SIZE_MAX, 0};
}

static void place_ranks(tg_description *d)
{
    const tg_reducer *r = d->reducer;
    for (uint32_t rank = 0; rank < r->world; rank++)
        d->place[rank] = d->host_size[r->levels->host_of_rank[rank]]++;
    for (uint32_t host = 0; host < r->levels->hosts; host++)
        d->largest_host = d->host_size[host] > d->largest_host ? d->host_size[host] : d->largest_host;
}

static void number_messages(tg_description *d, uint32_t share)
{
    const tg_plan *plan = &d->reducer->coded;
    size_t next = 0;
    for (size_t b = 0; b < plan->batch_count; b++) {
        bool owns = false;
        tg_piece slice;
        for (size_t i = plan->batches[b].first; i < plan->batches[b].first + plan->batches[b].count; i++)
            owns = owns ||
                   (plan->pieces[i].owner == share && tg_share_ends(d->reducer, false, &plan->pieces[i], &slice));
        d->inner_message[share][b] = owns ? next++ : SIZE_MAX;
    }
}

/* ---- parts ---- */

static tg_described_part *part_of(const tg_description *d, size_t message, uint32_t share)
{
    return &d->parts[message * d->reducer->levels->shares + share];
}

static uint64_t lesser(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* What comes back of a slice from between hosts: under gather one frame of each host, or the mean. */
static void add_gathered(const tg_description *d, const tg_piece *slice, tg_described_part *part)
{
    const tg_reducer *r = d->reducer;
    const bool mean = tg_spreads_mean(r, false, slice);
    const uint64_t copies = mean ? 1 : r->levels->hosts;
    part->spread += mean ? TG_HEADER_SIZE + sizeof(float) * slice->count
                         : copies * tg_described_frame(d->levels[slice->owner]->reducer, slice->tensor, slice->count);
    part->frames += copies;
    part->carried += copies * slice->count;
    part->meant += mean ? slice->count : 0;
}

/* What a piece adds to the message of its owner. */
static void add_piece(const tg_description *d, const tg_piece *piece, tg_described_part *part)
{
    const tg_reducer *r = d->reducer;
    tg_piece slice;
    part->pieces++;
    part->elements += piece->count;
    part->raw += TG_HEADER_SIZE + tg_dtype_size(r->tensors[piece->tensor].given.dtype) * piece->count;
    if (!tg_share_ends(r, false, piece, &slice))
        return;
    part->spread += sizeof(uint32_t);
    part->ended += slice.count;
    if (r->algorithm != TG_SHARD)
        add_gathered(d, &slice, part);
}

/* The same under shard, of all slices of a message. */
static void add_results(const tg_description *d, size_t message, uint32_t share, tg_described_part *part)
{
    const size_t inner = d->inner_message[share][message];
    if (inner == SIZE_MAX || d->reducer->algorithm != TG_SHARD)
        return;
    part->spread += tg_described_results(d->levels[share], inner);
    part->frames = d->levels[share]->batches[inner].frames;
    part->carried = part->ended;
}

/* The most that an owner has of exchange `which` between hosts; it is the same for all owners of a share. */
static void find_most(const tg_description *d, size_t message, uint32_t share, unsigned which, tg_exchange_role role)
{
    tg_described_exchange e = {.role = role};
    tg_described_message *m = &d->messages[message];
    tg_describe(d->levels[share], 0, role, d->inner_message[share][message], &e);
    m->most[which].sent = larger(m->most[which].sent, e.largest_sent);
    m->most[which].received = larger(m->most[which].received, e.largest_received);
}

static void sum_up(const tg_description *d, size_t message)
{
    const tg_reducer *r = d->reducer;
    const bool between = r->levels->hosts > 1, shards = r->algorithm == TG_SHARD;
    tg_described_message *m = &d->messages[message];
    m->smallest = (tg_described_part){.raw = UINT64_MAX, .spread = UINT64_MAX};
    for (uint32_t share = 0; share < r->levels->shares; share++) {
        const tg_described_part *part = part_of(d, message, share);
        m->all.pieces += part->pieces;
        m->all.elements += part->elements;
        m->all.raw += part->raw;
        m->all.spread += part->spread;
        m->all.frames += part->frames;
        m->all.carried += part->carried;
        m->smallest.raw = lesser(m->smallest.raw, part->raw);
        m->smallest.spread = lesser(m->smallest.spread, part->spread);
        m->largest.raw = larger(m->largest.raw, part->raw);
        m->largest.spread = larger(m->largest.spread, part->spread);
        if (!between || d->inner_message[share][message] == SIZE_MAX)
            continue;
        find_most(d, message, share, 0, shards ? TG_ROLE_PARTS : TG_ROLE_GRADIENTS);
        if (shards)
            find_most(d, message, share, 1, TG_ROLE_RESULTS);
    }
}

/* Every rank's exchanges are made up from these: one pass over pieces and shares, not one for each rank. */
static void add_up_parts(tg_description *d)
{
    const tg_reducer *r = d->reducer;
    for (size_t message = 0; message < r->coded.batch_count; message++) {
        const tg_batch *batch = &r->coded.batches[message];
        for (uint32_t share = 0; share < r->levels->shares; share++)
            *part_of(d, message, share) = (tg_described_part){.raw = TG_MESSAGE_HEADER, .spread = TG_MESSAGE_HEADER};
        for (size_t i = batch->first; i < batch->first + batch->count; i++)
            add_piece(d, &r->coded.pieces[i], part_of(d, message, r->coded.pieces[i].owner));
        for (uint32_t share = 0; share < r->levels->shares; share++)
            add_results(d, message, share, part_of(d, message, share));
        sum_up(d, message);
        d->spread += d->messages[message].all.carried;
    }
}

/* ---- making ---- */

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
    d->parts = tg_arena_take(&r->arena, (uint64_t)messages * shares, sizeof *d->parts);
    d->messages = tg_arena_take(&r->arena, messages, sizeof *d->messages);
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
    if (status == TG_OK)
        add_up_parts(d);
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

/* What a rank owns of a message: nothing, where its host has more ranks than there are shares. */
static tg_described_part owned(const tg_description *d, uint32_t rank, size_t message)
{
    const uint32_t place = d->place[rank];
    return place < d->reducer->levels->shares ? *part_of(d, message, place) : (tg_described_part){0};
}

/* Messages within the host. */
static uint32_t peers_of(const tg_description *d, uint32_t rank, uint32_t local)
{
    const uint32_t shares = d->reducer->levels->shares;
    return d->place[rank] < shares ? local - 1 : shares;
}

static void describe_raw(const tg_description *d, uint32_t rank, size_t message, tg_described_exchange *e)
{
    const tg_levels *l = d->reducer->levels;
    const uint32_t local = d->host_size[l->host_of_rank[rank]];
    const tg_described_message *m = &d->messages[message];
    const tg_described_part own = owned(d, rank, message);
    e->kind = TG_ALL_TO_ALL;
    e->peers = peers_of(d, rank, local);
    e->bytes_sent = m->all.raw - own.raw;
    e->bytes_received = (local - 1) * own.raw;
    e->encoded = m->all.elements;
    e->checked = (local - 1) * own.elements;
    e->frames = m->all.pieces + (local - 1) * own.pieces;
    e->largest_sent = d->largest_host > l->shares ? m->all.raw : m->all.raw - m->smallest.raw;
    e->largest_received = (d->largest_host - 1) * m->largest.raw;
}

static void describe_between(const tg_description *d, uint32_t rank, tg_exchange_role role, size_t message,
                             tg_described_exchange *e)
{
    const tg_levels *l = d->reducer->levels;
    const uint32_t host = l->host_of_rank[rank], place = d->place[rank];
    const tg_described_message *m = &d->messages[message];
    const unsigned which = role == TG_ROLE_RESULTS;
    const size_t inner = place < l->shares ? d->inner_message[place][message] : SIZE_MAX;
    e->peers = 0;
    if (inner != SIZE_MAX) {
        e->peers = l->hosts - 1;
        tg_describe(d->levels[place], host, role, inner, e);
        if (role != TG_ROLE_RESULTS) /* made of what came within the host */
            e->summed += (uint64_t)d->host_size[host] * part_of(d, message, place)->ended;
    }
    e->kind = TG_ALL_TO_ALL; /* of all ranks, it is one among the owners of each share */
    e->largest_sent = m->most[which].sent;
    e->largest_received = m->most[which].received;
}

static void describe_spread(const tg_description *d, uint32_t rank, size_t message, tg_described_exchange *e)
{
    const tg_levels *l = d->reducer->levels;
    const uint32_t local = d->host_size[l->host_of_rank[rank]];
    const tg_described_message *m = &d->messages[message];
    const tg_described_part own = owned(d, rank, message);
    e->kind = TG_ALL_GATHER;
    e->peers = peers_of(d, rank, local);
    e->bytes_sent = (local - 1) * own.spread;
    e->bytes_received = m->all.spread - own.spread;
    e->checked = m->all.carried - own.carried;
    e->encoded = own.meant;
    e->summed = l->hosts == 1 ? local * own.elements : l->hosts * own.meant; /* one host has nothing between */
    e->frames = m->all.frames - own.frames;
    e->largest_sent = (d->largest_host - 1) * m->largest.spread;
    e->largest_received = d->largest_host > l->shares ? m->all.spread : m->all.spread - m->smallest.spread;
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
