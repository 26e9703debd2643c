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

static bool proposes(const tg_reduction *r) { return r->number / r->reducer->options.depth % TG_BOUNDARIES_EVERY == 0; }

static bool is_balanced(const tg_reduction *r, const tg_piece *piece)
{
    return piece->owner == TG_EVERY_OWNER && tg_piece_is_sparse(r, piece);
}

uint32_t tg_boundaries_size(const tg_reduction *r, const tg_batch *batch)
{
    uint32_t size = 0;
    for (size_t i = batch->first; proposes(r) && i < batch->first + batch->count; i++)
        size += is_balanced(r, &r->plan->pieces[i]) ? tg_proposal_size(r->reducer) : 0;
    return size;
}

static void cut_equally(uint64_t count, uint32_t world, uint32_t *boundaries)
{
    for (uint32_t owner = 0; owner < world; owner++)
        boundaries[owner] = (uint32_t)(count * owner / world);
}

/* So that all owners get equally many of this rank's elements. A rank without an opinion leaves them where they are. */
void tg_boundaries_propose(tg_reduction *r, const tg_batch *batch)
{
    tg_device *device = r->reducer->device;
    const uint32_t world = r->reducer->world;
    for (size_t i = batch->first; proposes(r) && i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        if (!is_balanced(r, piece))
            continue;
        const tg_sparse_step *step = &r->sparse[piece->tensor];
        if (r->given[piece->tensor] != TG_GIVEN)
            memcpy(step->proposals, boundaries_of(r, &r->reducer->tensors[piece->tensor]), world * sizeof(uint32_t));
        else if (step->sent.count > 0)
            device->operations->cut_list(device, &step->sent, world, step->proposals);
        else
            cut_equally(piece->count, world, step->proposals);
    }
    if (proposes(r))
        device->operations->wait(device);
}

void tg_boundaries_write(const tg_reduction *r, const tg_batch *batch, uint8_t *extra)
{
    for (size_t i = batch->first; proposes(r) && i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        const tg_sparse_step *step = &r->sparse[piece->tensor];
        for (uint32_t owner = 1; is_balanced(r, piece) && owner < r->reducer->world; owner++, extra += 4) {
            tg_store32(extra, step->proposals[owner]);
            step->boundary_sums[owner] += step->proposals[owner];
        }
    }
}

bool tg_boundaries_read(tg_reduction *r, const tg_batch *batch, tg_cursor *extra)
{
    for (size_t i = batch->first; proposes(r) && i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        uint32_t before = 0;
        for (uint32_t owner = 1; is_balanced(r, piece) && owner < r->reducer->world; owner++) {
            const uint32_t boundary = tg_cursor_u32(extra);
            if (boundary < before || boundary > piece->count)
                return false;
            r->sparse[piece->tensor].boundary_sums[owner] += boundary;
            before = boundary;
        }
    }
    return !extra->short_read;
}

void tg_boundaries_move(tg_reduction *r)
{
    for (size_t i = 0; proposes(r) && i < r->plan->piece_count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        uint32_t *boundaries = is_balanced(r, piece) ? boundaries_of(r, &r->reducer->tensors[piece->tensor]) : NULL;
        for (uint32_t owner = 1; boundaries && owner < r->reducer->world; owner++)
            boundaries[owner] = (uint32_t)(r->sparse[piece->tensor].boundary_sums[owner] / r->reducer->world);
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
