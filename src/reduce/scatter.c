/* `scatter`: the first half of `shard`, with parts that the caller has chosen. Each rank sends every other one its part
 * and is left with the mean of its own. Steps: one all-to-all for each batch. */
#include <inttypes.h>

#include "base/status.h"
#include "reduce/reducer.h"

/* ---- boundaries ---- */

static tg_status check_boundaries(const tg_reducer_tensor *t, uint32_t world, tg_error *error)
{
    const uint64_t *b = t->boundaries;
    if (b[0] != 0 || b[world] != t->count)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "the boundaries of tensor '%.60s' are from %" PRIu64 " to %" PRIu64
                       ": they must be from 0 to its count, %" PRIu64,
                       t->name, b[0], b[world], t->count);
    for (uint32_t rank = 0; rank < world; rank++)
        if (b[rank] > b[rank + 1])
            return tg_fail(error, TG_INVALID_ARGUMENT,
                           "the boundaries of tensor '%.60s' decrease: the part of rank %u is from %" PRIu64
                           " to %" PRIu64,
                           t->name, rank, b[rank], b[rank + 1]);
    return TG_OK;
}

tg_status tg_scatter_boundaries(tg_reducer *r, const tg_reducer_tensor *given, size_t number, tg_error *error)
{
    tg_reducing_tensor *t = &r->tensors[number];
    t->given.boundaries = NULL; /* the caller's memory */
    if (r->options.algorithm != TG_SCATTER)
        return given->boundaries
                   ? tg_fail(error, TG_INVALID_ARGUMENT,
                             "tensor '%.60s' has boundaries, which are for TG_SCATTER; this reducer's algorithm is %s",
                             t->given.name, tg_algorithm_text(r->options.algorithm))
                   : TG_OK;
    tg_status status = given->boundaries ? check_boundaries(given, r->world, error) : TG_OK;
    if (status != TG_OK)
        return status;
    t->parts = tg_arena_take(&r->arena, r->world + UINT64_C(1), sizeof *t->parts);
    if (!t->parts)
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for a tensor's boundaries");
    for (uint32_t rank = 0; rank <= r->world; rank++)
        t->parts[rank] = (uint32_t)(given->boundaries ? given->boundaries[rank] : given->count * rank / r->world);
    return TG_OK;
}

/* ---- a step ---- */

/* What this rank sums of a piece, as elements of its tensor. */
static tg_owned own_part(const tg_reduction *r, const tg_piece *piece)
{
    const tg_owned part = tg_part_of(r, piece, r->reducer->rank);
    return (tg_owned){piece->first + part.first, part.count};
}

static void take(tg_reduction *r, size_t number)
{
    const tg_batch *batch = &r->plan->batches[number];
    tg_parts_take(r, number);
    tg_look_at_own(r, batch);
    tg_jobs_check(r);
    for (size_t i = batch->first; i < batch->first + batch->count && !tg_reduction_lost(r); i++) {
        const tg_owned part = own_part(r, &r->plan->pieces[i]);
        if (part.count > 0)
            tg_overflow_check(r, i, &part);
    }
}

static void apply(tg_reduction *r)
{
    for (size_t i = 0; i < r->plan->piece_count; i++) {
        const tg_tensor *whole = &r->gradients[r->plan->pieces[i].tensor];
        const tg_owned part = own_part(r, &r->plan->pieces[i]);
        if (part.count == 0 || !whole->data)
            continue;
        char *data = (char *)whole->data + part.first * tg_dtype_size(whole->dtype);
        const tg_tensor out = {data, part.count, whole->dtype};
        tg_mean_apply(r, i, part.first, r->plan->total / r->reducer->world, &out);
    }
    tg_jobs_add(r->reducer);
}

const tg_algorithm_functions tg_scatter = {.algorithm = TG_SCATTER,
                                           .has_parts = true,
                                           .send = tg_parts_send,
                                           .take = take,
                                           .apply = apply,
                                           .undo = tg_parts_undo};
