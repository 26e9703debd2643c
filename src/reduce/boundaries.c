/* Where the parts of a sparse tensor begin under `shard`. They are cut so that owners get about equally many elements,
 * by where ranks' selections lay some steps before. */
#include <string.h>

#include "reduce/reducer.h"

static uint32_t *boundaries_of(const tg_reduction *r, const tg_reducing_tensor *t)
{
    return t->boundaries + (r->number % r->reducer->options.depth) * ((uint64_t)r->reducer->world + 1);
}

tg_owned tg_part_of(const tg_reduction *r, const tg_piece *piece, uint32_t owner)
{
    if (piece->owner != TG_EVERY_OWNER)
        return (tg_owned){0, piece->owner == owner ? piece->count : 0};
    const tg_reducing_tensor *t = &r->reducer->tensors[piece->tensor];
    const uint32_t *boundaries = t->parts ? t->parts : boundaries_of(r, t);
    return (tg_owned){boundaries[owner], boundaries[owner + 1] - boundaries[owner]};
}

static bool proposes(const tg_reduction *r)
{
    return r->reducer->functions->has_results && r->number / r->reducer->options.depth % TG_BOUNDARIES_EVERY == 0;
}

static bool is_balanced(const tg_reduction *r, const tg_piece *piece)
{
    return piece->owner == TG_EVERY_OWNER && tg_piece_is_sparse(r, piece);
}

uint32_t tg_boundaries_size(const tg_reduction *r, const tg_batch *batch)
{
    uint32_t size = 0;
    for (size_t i = batch->first; proposes(r) && i < batch->first + batch->count; i++)
        size += is_balanced(r, &r->plan->pieces[i]) ? TG_PROPOSAL_SIZE : 0;
    return size;
}

static void cut_equally(uint64_t count, uint32_t world, uint32_t *boundaries)
{
    for (uint32_t owner = 0; owner < world; owner++)
        boundaries[owner] = (uint32_t)(count * owner / world);
}

/* ---- parts that are not too long ---- */

enum { LONGEST = 4 }; /* times an equal part */

uint64_t tg_part_limit(uint64_t count, uint32_t world)
{
    const uint64_t limit = (LONGEST * count + world - 1) / world + 1; /* one for rounding */
    return limit < count ? limit : count;
}

static bool has_long_part(uint64_t count, uint32_t world, const uint32_t *boundaries)
{
    const uint64_t limit = tg_part_limit(count, world);
    uint64_t from = 0;
    for (uint32_t owner = 1; owner <= world; owner++) {
        const uint64_t to = owner < world ? boundaries[owner] : count;
        if (to - from > limit)
            return true;
        from = to;
    }
    return false;
}

/* Parts are cut anew, each a `world`th of a measure of which three quarters lie evenly in the parts as they were, and a
 * quarter evenly in the tensor. So a part has at most four times an equal part of the tensor's elements, and at most
 * 4/3 of what it had of those by which parts were balanced. In whole numbers, all of the measure is 4 count world. */
void tg_boundaries_limit(uint64_t count, uint32_t world, uint32_t *boundaries, uint32_t *old)
{
    if (!has_long_part(count, world, boundaries))
        return;
    memcpy(old, boundaries, world * sizeof *old);
    const double by_parts = (LONGEST - 1) * (double)count;
    uint64_t from = 0, to = old[1]; /* of an old part */
    uint32_t part = 0;
    double before = 0, here = by_parts + (double)world * (double)to; /* measure of the old parts before it, and of it */
    for (uint32_t owner = 1; owner < world; owner++) {
        const double due = LONGEST * (double)count * owner;
        for (; part + 1 < world && before + here <= due; part++) {
            before += here;
            from = to;
            to = part + 2 < world ? old[part + 2] : count;
            here = by_parts + (double)world * (double)(to - from);
        }
        const double place = (due - before) / here * (double)(to - from);
        boundaries[owner] = (uint32_t)(from + (place > 0 ? (uint64_t)place : 0));
        if (boundaries[owner] > to)
            boundaries[owner] = (uint32_t)to;
    }
}

/* So that all owners get equally many of this rank's elements. A rank without a proposal leaves them where they are. */
void tg_boundaries_propose(tg_reduction *r, const tg_batch *batch)
{
    tg_device *device = r->reducer->device;
    const uint32_t world = r->reducer->world;
    for (size_t i = batch->first; proposes(r) && i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        if (!is_balanced(r, piece))
            continue;
        const tg_shard_list_step *step = &r->sparse[piece->tensor];
        if (r->given[piece->tensor] != TG_GIVEN)
            memcpy(step->proposals, boundaries_of(r, &r->reducer->tensors[piece->tensor]), world * sizeof(uint32_t));
        else if (step->sent.count > 0)
            device->operations->cut_list(device, &step->sent, world, step->proposals);
        else
            cut_equally(piece->count, world, step->proposals);
    }
    if (proposes(r))
        device->operations->wait(device);
    for (size_t i = batch->first; proposes(r) && i < batch->first + batch->count; i++) {
        tg_shard_list_step *step = &r->sparse[r->plan->pieces[i].tensor];
        if (!is_balanced(r, &r->plan->pieces[i]))
            continue;
        step->proposals[0] = 0;
        tg_boundaries_limit(r->plan->pieces[i].count, world, step->proposals, r->reducer->old_boundaries);
        step->proposal_sum += step->proposals[r->reducer->rank];
    }
}

void tg_boundaries_write(const tg_reduction *r, const tg_batch *batch, uint32_t owner, uint8_t *extra)
{
    for (size_t i = batch->first; proposes(r) && i < batch->first + batch->count; i++)
        if (is_balanced(r, &r->plan->pieces[i])) {
            tg_store32(extra, r->sparse[r->plan->pieces[i].tensor].proposals[owner]);
            extra += TG_PROPOSAL_SIZE;
        }
}

bool tg_boundaries_read_proposals(tg_reduction *r, const tg_batch *batch, tg_cursor *extra)
{
    for (size_t i = batch->first; proposes(r) && i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        const uint32_t boundary = is_balanced(r, piece) ? tg_cursor_u32(extra) : 0;
        if (boundary > piece->count)
            return false;
        r->sparse[piece->tensor].proposal_sum += boundary;
    }
    return !extra->short_read;
}

void tg_boundaries_decide(tg_reduction *r, const tg_batch *batch)
{
    for (size_t i = batch->first; proposes(r) && i < batch->first + batch->count; i++) {
        tg_shard_list_step *step = &r->sparse[r->plan->pieces[i].tensor];
        if (is_balanced(r, &r->plan->pieces[i]))
            step->proposals[r->reducer->rank] = (uint32_t)(step->proposal_sum / r->reducer->world);
    }
}

bool tg_boundaries_read(tg_reduction *r, const tg_batch *batch, uint32_t owner, tg_cursor *extra)
{
    for (size_t i = batch->first; proposes(r) && i < batch->first + batch->count; i++)
        if (is_balanced(r, &r->plan->pieces[i]))
            r->sparse[r->plan->pieces[i].tensor].proposals[owner] = tg_cursor_u32(extra);
    return !extra->short_read;
}

/* Whether the parts from 0 to `count` may be these. */
static bool are_parts(uint64_t count, uint32_t world, const uint32_t *boundaries)
{
    for (uint32_t owner = 1; owner < world; owner++)
        if (boundaries[owner] < boundaries[owner - 1])
            return false;
    return boundaries[0] == 0 && boundaries[world - 1] <= count && !has_long_part(count, world, boundaries);
}

bool tg_boundaries_check(const tg_reduction *r, const tg_batch *batch)
{
    for (size_t i = batch->first; proposes(r) && i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        if (is_balanced(r, piece) && !are_parts(piece->count, r->reducer->world, r->sparse[piece->tensor].proposals))
            return false;
    }
    return true;
}

void tg_boundaries_move(tg_reduction *r)
{
    for (size_t i = 0; proposes(r) && i < r->plan->piece_count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        if (is_balanced(r, piece))
            memcpy(boundaries_of(r, &r->reducer->tensors[piece->tensor]), r->sparse[piece->tensor].proposals,
                   r->reducer->world * sizeof(uint32_t));
    }
}

void tg_boundaries_reset(tg_reducer *r)
{
    for (size_t i = 0; i < r->tensor_count; i++) {
        tg_reducing_tensor *t = &r->tensors[i];
        for (uint64_t slot = 0; t->boundaries && slot < r->options.depth; slot++)
            for (uint32_t owner = 0; owner <= r->world; owner++)
                t->boundaries[slot * ((uint64_t)r->world + 1) + owner] = (uint32_t)(t->given.count * owner / r->world);
    }
}
