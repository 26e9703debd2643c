/* `shard`: the index space is split among owners. Each rank sends every owner its part; the owner adds the parts up,
 * compresses the mean again, with a residual of its own, and sends it to all. Steps for each batch: an all-to-all and
 * an all-gather, to which owners of nothing have nothing to say. Sparse pieces go the same way with boundaries that
 * move (shard_lists.c). */
#include <string.h>

#include "base/status.h"
#include "reduce/reducer.h"

/* Where frames stay on the device: those of a batch for an owner, or by it, in their order. */
static void collect(const tg_reduction *r, const tg_batch *batch, uint32_t owner, const tg_frame *frames)
{
    size_t count = 0;
    for (size_t i = batch->first; r->bodies && i < batch->first + batch->count; i++) {
        const tg_frame frame = tg_goes_to(&r->plan->pieces[i], owner) ? frames[tg_part_number(r, i, owner)]
                                                                      : (tg_frame){NULL, 0};
        if (frame.data)
            r->reducer->outgoing[count++] = frame;
    }
}

/* ---- parts out ---- */

static void send_pieces(tg_reduction *r, const tg_batch *batch)
{
    tg_reducer *reducer = r->reducer;
    tg_shard_list_select(r, batch);
    for (size_t i = batch->first; i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        if (!tg_piece_is_sent(r, piece))
            continue;
        if (tg_piece_is_sparse(r, piece)) {
            tg_shard_list_send(r, i);
        } else {
            tg_piece_encode(r, i, tg_part_draw(r, i, piece->owner), &reducer->ends[piece->owner]);
            reducer->frame_counts[piece->owner]++;
        }
    }
    const size_t frames = tg_jobs_encode(r, "gradient");
    tg_shard_list_sent(r, batch);
    tg_pieces_ask(r, frames);
    reducer->device->operations->wait(reducer->device);
    tg_pieces_note(r, frames);
}

void tg_parts_send(tg_reduction *r, size_t number)
{
    tg_reducer *reducer = r->reducer;
    tg_transfer *transfer = &r->batches[number];
    const tg_batch *batch = &r->plan->batches[number];
    const uint32_t proposals = tg_boundaries_size(r, batch), extra = proposals + tg_present_size(r, number);
    for (uint32_t owner = 0; owner < reducer->world; owner++) {
        reducer->ends[owner] = tg_frames_at(transfer, owner, extra);
        reducer->frame_counts[owner] = 0;
    }
    send_pieces(r, batch);
    tg_boundaries_propose(r, batch);
    for (uint32_t owner = 0; owner < reducer->world; owner++) {
        uint8_t *said = tg_extra_at(transfer, owner);
        tg_boundaries_write(r, batch, owner, said);
        tg_present_write(r, number, said + proposals);
        collect(r, batch, owner, r->sent);
        tg_message_send(r, transfer, owner, extra, reducer->outgoing, reducer->frame_counts[owner],
                        reducer->ends[owner]);
    }
}

/* ---- parts in ---- */

static void bad_boundaries(tg_reduction *r, uint32_t peer)
{
    tg_reduction_fail(r, TG_SKIPPED, "rank %u received invalid partition boundaries from rank %u",
                      tg_named(r->reducer, r->reducer->rank), tg_named(r->reducer, peer));
}

static void take_from(tg_reduction *r, size_t number, uint32_t peer)
{
    const tg_reducer *reducer = r->reducer;
    const tg_batch *batch = &r->plan->batches[number];
    uint32_t due_count = 0;
    tg_message message;
    tg_cursor extra, frames;
    if (!tg_transfer_open(r, &r->batches[number], peer, &message, &extra, &frames))
        return;
    if (!tg_boundaries_read_proposals(r, batch, &extra)) {
        bad_boundaries(r, peer);
        return;
    }
    if (!tg_present_read(r, number, peer, &extra))
        return;
    for (size_t i = batch->first; i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        const bool sparse = tg_piece_is_sparse(r, piece);
        const uint64_t count = sparse ? tg_part_of(r, piece, reducer->rank).count : piece->count;
        const tg_due due = {.tensor = piece->tensor,
                            .spec = tg_spec_in(r, piece->tensor),
                            .dtype = sparse ? TG_FLOAT32 : r->gradients[piece->tensor].dtype,
                            .count = count,
                            .most = sparse ? reducer->tensors[piece->tensor].most : 0,
                            .draw = tg_part_draw(r, i, reducer->rank)};
        if (!tg_goes_to(piece, reducer->rank) || count == 0 || !r->has[piece->tensor])
            continue;
        bool *may_overflow = r->may_overflow ? &r->may_overflow[i] : NULL; /* else encoding the mean will see */
        if (!tg_piece_take(r, peer, &frames, &due, &tg_received(r, i)[peer], may_overflow))
            return;
        due_count++;
    }
    tg_transfer_close(r, peer, &message, due_count, &extra, &frames);
}

void tg_parts_take(tg_reduction *r, size_t number)
{
    const tg_reducer *reducer = r->reducer;
    tg_receive_own(r, &r->plan->batches[number]);
    for (uint32_t peer = 0; peer < reducer->world; peer++)
        if (peer != reducer->rank && !tg_reduction_lost(r))
            take_from(r, number, peer);
}

/* ---- sums and results ---- */

/* In how many bits the mean of a piece travels: `none` narrows once, and this is where. */
static tg_dtype result_dtype(const tg_reduction *r, const tg_piece *piece)
{
    const tg_spec spec = tg_spec_in(r, piece->tensor);
    return tg_spec_is_lossless(&spec) ? r->gradients[piece->tensor].dtype : TG_FLOAT32;
}

bool tg_is_summed(const tg_reduction *r, const tg_piece *piece)
{
    const uint32_t rank = r->reducer->rank;
    return r->anywhere[piece->tensor] && tg_goes_to(piece, rank) &&
           !(tg_piece_is_sparse(r, piece) && tg_part_of(r, piece, rank).count == 0);
}

static void add_mean(const tg_reduction *r, size_t index, float *mean)
{
    tg_reducer *reducer = r->reducer;
    const tg_tensor out = {mean, r->plan->pieces[index].count, TG_FLOAT32};
    tg_job_mean(reducer, tg_received(r, index), tg_pack_received(r, index), 1.0f / (float)tg_divisor(reducer), 0, &out);
}

/* Where the mean of a piece owned here lies while it is encoded. */
static tg_tensor place_of(const tg_reduction *r, const tg_piece *piece)
{
    const tg_reducer *reducer = r->reducer;
    const tg_dtype dtype = result_dtype(r, piece);
    void *data = dtype == TG_FLOAT32 ? (void *)(reducer->wide + piece->place)
                                     : (void *)((uint16_t *)reducer->narrow + piece->place);
    return (tg_tensor){data, piece->count, dtype};
}

/* The means of the pieces of a batch that are owned here. */
static void sum_pieces(tg_reduction *r, const tg_batch *batch)
{
    tg_reducer *reducer = r->reducer;
    const double start = tg_seconds();
    size_t narrow = 0;
    for (size_t i = batch->first; i < batch->first + batch->count && !tg_reduction_lost(r); i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        if (!tg_is_summed(r, piece) || tg_piece_is_sparse(r, piece))
            continue;
        const tg_tensor mean = place_of(r, piece);
        add_mean(r, i, reducer->wide + piece->place);
        if (mean.dtype != TG_FLOAT32) /* else encoding will see what is not finite */
            reducer->checked_means[narrow++] = tg_mean_of(r, i, reducer->wide + piece->place, mean.data, mean.dtype);
    }
    tg_jobs_add(reducer);
    if (narrow > 0)
        (void)tg_means_check(r, reducer->checked_means, narrow);
    tg_shard_list_sum(r, batch);
    reducer->stats.decode_seconds += tg_seconds() - start;
}

/* Does the encodings that were collected, of a batch whose frames then end at *end. */
static void encode_results(tg_reduction *r, const tg_batch *batch, uint8_t **end)
{
    tg_reducer *reducer = r->reducer;
    const double start = tg_seconds();
    const size_t count = tg_jobs_encode(r, "sum");
    for (size_t j = 0; j < count; j++) {
        reducer->stats.saturated += reducer->encodings[j].report.saturated;
        reducer->stats.dropped += reducer->encodings[j].report.dropped;
    }
    tg_shard_list_shrink(r, batch, end);
    reducer->stats.encode_seconds += tg_seconds() - start;
}

static void encode_mean(tg_reduction *r, size_t index, uint8_t **end)
{
    const tg_piece *piece = &r->plan->pieces[index];
    const uint32_t rank = r->reducer->rank;
    tg_feedback *second = r->dense ? NULL : r->reducer->second[index];
    const tg_tensor mean = place_of(r, piece);
    const tg_source source = tg_feedback_piece(second, &mean, 0, 1);
    tg_job_encode(r, index, &source, tg_part_draw(r, index, rank) | TG_RESULT_DRAW, end,
                  &r->means[tg_part_number(r, index, rank)]);
}

static void make_results(tg_reduction *r, size_t number)
{
    tg_reducer *reducer = r->reducer;
    tg_transfer *transfer = &r->results[number];
    const tg_batch *batch = &r->plan->batches[number];
    const uint32_t extra = tg_boundaries_size(r, batch);
    uint8_t *end = tg_frames_at(transfer, TG_EVERY_OWNER, extra);
    uint32_t frames = 0;
    if (!tg_has_results(reducer, number, reducer->rank)) {
        tg_message_none(reducer, transfer);
        return;
    }
    sum_pieces(r, batch);
    for (size_t i = batch->first; i < batch->first + batch->count && !tg_reduction_lost(r); i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        if (!tg_is_summed(r, piece))
            continue;
        if (tg_piece_is_sparse(r, piece))
            tg_shard_list_result(r, i, &end);
        else
            encode_mean(r, i, &end);
        frames++;
    }
    encode_results(r, batch, &end);
    tg_boundaries_decide(r, batch);
    tg_boundaries_write(r, batch, reducer->rank, tg_extra_at(transfer, TG_EVERY_OWNER));
    collect(r, batch, reducer->rank, r->means);
    tg_message_send(r, transfer, TG_EVERY_OWNER, extra, reducer->outgoing, frames, end);
}

static void take(tg_reduction *r, size_t number)
{
    tg_reducer *reducer = r->reducer;
    tg_parts_take(r, number);
    tg_jobs_check(r);
    const double elsewhere = reducer->stats.decode_seconds + reducer->stats.encode_seconds;
    make_results(r, number); /* if only to abstain */
    reducer->stats.verify_seconds -= reducer->stats.decode_seconds + reducer->stats.encode_seconds - elsewhere;
}

/* ---- results in ---- */

static void take_results_from(tg_reduction *r, size_t number, uint32_t owner)
{
    const tg_batch *batch = &r->plan->batches[number];
    uint32_t due_count = 0;
    tg_message message;
    tg_cursor extra, frames;
    if (!tg_transfer_open(r, &r->results[number], owner, &message, &extra, &frames))
        return;
    if (!tg_boundaries_read(r, batch, owner, &extra)) {
        bad_boundaries(r, owner);
        return;
    }
    for (size_t i = batch->first; i < batch->first + batch->count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        const bool sparse = tg_piece_is_sparse(r, piece);
        tg_due due = {.tensor = piece->tensor,
                      .spec = tg_spec_in(r, piece->tensor),
                      .dtype = result_dtype(r, piece),
                      .count = sparse ? tg_part_of(r, piece, owner).count : piece->count,
                      .most = sparse ? tg_most_chosen(r->reducer, piece) : 0,
                      .draw = tg_part_draw(r, i, owner) | TG_RESULT_DRAW};
        if (!tg_goes_to(piece, owner) || due.count == 0 || !r->anywhere[piece->tensor])
            continue;
        due.is_whole = sparse ? &r->is_whole[tg_part_number(r, i, owner)] : NULL;
        if (!tg_piece_take(r, owner, &frames, &due, &r->means[tg_part_number(r, i, owner)], NULL))
            return;
        due_count++;
    }
    tg_transfer_close(r, owner, &message, due_count, &extra, &frames);
}

static void take_results(tg_reduction *r, size_t number)
{
    for (uint32_t owner = 0; owner < r->reducer->world; owner++)
        if (owner != r->reducer->rank && tg_receives_from(&r->results[number], owner) && !tg_reduction_lost(r))
            take_results_from(r, number, owner);
    tg_jobs_check(r);
    if (!tg_reduction_lost(r) && !tg_boundaries_check(r, &r->plan->batches[number]))
        tg_reduction_fail(r, TG_SKIPPED, "rank %u received partition boundaries that do not follow one another",
                          r->reducer->rank);
}

/* ---- the end ---- */

static void apply(tg_reduction *r)
{
    tg_reducer *reducer = r->reducer;
    for (size_t i = 0; i < r->plan->piece_count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        const tg_tensor out = tg_piece_of(r, piece);
        if (!r->anywhere[piece->tensor])
            continue;
        if (tg_piece_is_sparse(r, piece))
            tg_shard_list_apply(r, i);
        else if (out.data)
            tg_job_mean(reducer, &r->means[piece->part], 1, 1, r->plan->total, &out);
    }
    tg_jobs_add(reducer);
    tg_jobs_add_lists(reducer);
    tg_boundaries_move(r);
}

/* The second residual has taken in a mean that is not applied, and whose parts go back to where they came from. */
static void undo_second(tg_reduction *r, size_t index)
{
    tg_reducer *reducer = r->reducer;
    tg_feedback *second = r->dense ? NULL : reducer->second[index];
    const tg_frame result = r->means[tg_part_number(r, index, reducer->rank)];
    if (!second || !result.data)
        return;
    reducer->stats.saturated += tg_feedback_return_piece(second, result, reducer->options.on_device, 0);
    add_mean(r, index, reducer->wide);
    tg_jobs_add(reducer);
    reducer->stats.saturated += tg_feedback_add(second, reducer->wide, -1);
}

void tg_parts_undo(tg_reduction *r)
{
    tg_reducer *reducer = r->reducer;
    for (size_t i = 0; i < r->plan->piece_count; i++) {
        const tg_piece *piece = &r->plan->pieces[i];
        if (tg_piece_is_sparse(r, piece)) {
            tg_shard_list_undo(r, i);
            continue;
        }
        if (reducer->second && piece->owner == reducer->rank)
            undo_second(r, i);
        const tg_frame sent = r->sent[piece->part];
        if (sent.data && reducer->tensors[piece->tensor].feedback)
            reducer->stats.saturated += tg_feedback_return_piece(reducer->tensors[piece->tensor].feedback, sent,
                                                                 reducer->options.on_device, piece->first);
    }
    tg_jobs_add_lists(reducer);
}

/* ---- what it keeps ---- */

static tg_status make_second(tg_reducer *r, size_t index, tg_error *error)
{
    const tg_piece *piece = &r->coded.pieces[index];
    const tg_reducing_tensor *t = &r->tensors[piece->tensor];
    if (piece->owner != r->rank || !t->feedback || t->sparse || tg_spec_is_lossless(&t->spec))
        return TG_OK;
    /* Stability was decided for the tensor; the first residual has been made. */
    return tg_feedback_create(r->device, &t->given.feedback, &t->spec, piece->count, true, &r->second[index], error);
}

tg_status tg_parts_make(tg_reducer *r, tg_error *error)
{
    r->ends = tg_arena_take(&r->arena, r->world, sizeof(uint8_t *));
    r->frame_counts = tg_arena_take(&r->arena, r->world, sizeof *r->frame_counts);
    return r->arena.failed ? tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for the parts of %u ranks", r->world)
                           : TG_OK;
}

tg_status tg_shard_make(tg_reducer *r, tg_error *error)
{
    r->second = tg_arena_take(&r->arena, r->coded.piece_count, sizeof(tg_feedback *));
    r->narrow = r->device->operations->allocate(r->device, (size_t)tg_wide_room(r) * sizeof(uint16_t), 1);
    tg_status status = r->arena.failed || !r->narrow
                           ? tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for the residuals of %u owners", r->world)
                           : TG_OK;
    for (size_t i = 0; status == TG_OK && i < r->coded.piece_count; i++)
        status = make_second(r, i, error);
    return status == TG_OK ? tg_shard_list_make(r, error) : status;
}

const tg_algorithm_functions tg_shard = {.algorithm = TG_SHARD,
                                         .has_parts = true,
                                         .has_results = true,
                                         .send = tg_parts_send,
                                         .take = take,
                                         .take_results = take_results,
                                         .apply = apply,
                                         .undo = tg_parts_undo};
