/* The third step of two levels: the frames that an owner has of all hosts go to the ranks of its own, which decode
 * them. For each of its pieces of a message, a number says how many there are: under gather one of each host that has
 * the tensor, whose sum is divided by the number of ranks; or, with the highest bit set, frames of the mean, which
 * follow one another and make up the piece. Under gather this is one, where the frames of all hosts would be larger. */
#include <string.h>

#include "base/status.h"
#include "codec/header.h"
#include "frame/verify.h"
#include "reduce/levels.h"

#define IS_MEAN UINT32_C(0x80000000)

/* Whether a piece ends something that the owner of this share spreads. */
static bool is_spread(const tg_reduction *r, const tg_piece *piece, uint32_t share, tg_piece *slice)
{
    return piece->owner == share && tg_share_ends(r->reducer, r->dense, piece, slice);
}

/* ---- out ---- */

typedef struct writer {
    uint8_t *at, *end;
    uint32_t frames;
    bool full;
} writer;

static void put_frame(writer *w, tg_frame frame)
{
    if (w->full || (size_t)(w->end - w->at) < frame.size) {
        w->full = true;
        return;
    }
    memcpy(w->at, frame.data, frame.size);
    w->at += frame.size;
    w->frames++;
}

/* gather: the mean of a piece. It is not finite where no other host has looked at the frame of this one; that is lost.
 */
static uint32_t put_mean(tg_reduction *inner, size_t piece, writer *w)
{
    tg_reducer *reducer = inner->reducer;
    const tg_piece *p = &inner->plan->pieces[piece];
    float *values = inner->aside ? tg_aside_of(inner, p) : reducer->wide;
    const tg_tensor mean = {values, p->count, TG_FLOAT32};
    const tg_source source = {.gradient = values, .dtype = TG_FLOAT32, .count = p->count};
    if ((size_t)(w->end - w->at) < tg_frame_bound(reducer->plain, p->count)) {
        w->full = true;
        return 0;
    }
    if (!inner->aside)
        tg_mean_apply(inner, piece, p->first, 0, &mean);
    tg_jobs_add(reducer);
    tg_frame frame = {w->at, 0};
    tg_job_encode_plain(inner, piece, &source, (uint32_t)piece, &frame);
    (void)tg_jobs_encode(inner, "sum");
    w->at += frame.size;
    w->frames++;
    return 1 | IS_MEAN;
}

/* gather: the mean or the frames of all hosts, whichever is less; but the mean where sums overflow and such elements
 * are dropped, because only here is it known that some do. */
static uint32_t put_gathered(const tg_reduction *r, const tg_piece *slice, size_t piece, writer *w)
{
    tg_reduction *inner = r->levels->inner;
    const size_t count = tg_pack_received(inner, piece);
    const bool drops = inner->may_overflow[piece] && tg_policy_of(inner->reducer) == TG_NONFINITE_ZERO;
    if (count > 0 && (drops || tg_spreads_mean(r->reducer, r->dense, slice)))
        return put_mean(inner, piece, w);
    for (size_t i = 0; i < count; i++)
        put_frame(w, tg_received(inner, piece)[i]);
    return (uint32_t)count;
}

/* shard: results of one piece between hosts, or of all parts of a balanced one. */
static uint32_t put_results(const tg_reduction *inner, size_t piece, writer *w)
{
    const tg_piece *p = &inner->plan->pieces[piece];
    const size_t parts = p->owner == TG_EVERY_OWNER ? inner->reducer->world : 1;
    uint32_t count = 0;
    for (size_t i = 0; i < parts; i++)
        if (inner->means[p->part + i].data) { /* a part may be empty */
            put_frame(w, inner->means[p->part + i]);
            count++;
        }
    return count;
}

void tg_spread_send(tg_reduction *r, size_t number)
{
    tg_reducer *reducer = r->reducer;
    const tg_levels *l = reducer->levels;
    tg_reduction *inner = r->levels->inner;
    tg_transfer *transfer = &r->batches[number];
    const tg_batch *batch = &r->plan->batches[number];
    if (!inner)
        return;
    uint32_t own = 0;
    tg_piece slice;
    for (size_t i = batch->first; i < batch->first + batch->count; i++)
        own += is_spread(r, &r->plan->pieces[i], l->share, &slice);
    uint8_t *extra = transfer->out + TG_MESSAGE_HEADER;
    writer w = {.at = extra + 4 * (size_t)own, .end = transfer->out + transfer->out_capacity};
    const size_t message = l->inner_message[r->dense][number];
    size_t at = message == SIZE_MAX ? 0 : inner->plan->batches[message].first;
    for (size_t i = batch->first; own > 0 && i < batch->first + batch->count && !tg_reduction_lost(r); i++) {
        if (!is_spread(r, &r->plan->pieces[i], l->share, &slice))
            continue;
        uint32_t frames = inner->reducer->functions->has_results ? IS_MEAN : 0;
        for (uint64_t done = 0; done < slice.count; done += inner->plan->pieces[at++].count)
            if (inner->anywhere[slice.tensor])
                frames += inner->reducer->functions->has_results ? put_results(inner, at, &w)
                                                                 : put_gathered(r, &slice, at, &w);
        tg_store32(extra, frames == IS_MEAN ? 0 : frames);
        extra += 4;
    }
    tg_levels_share_failure(r);
    if (w.full)
        tg_reduction_fail(r, TG_SKIPPED,
                          "the results of other hosts are too large for the buffer in which rank %u passes them on",
                          reducer->rank);
    const bool lost = tg_reduction_lost(r);
    tg_transfer_seal(r, transfer, lost ? 0 : w.frames, lost ? 0 : 4 * own, transfer->out);
    const size_t size = lost ? TG_MESSAGE_HEADER : (size_t)(w.at - transfer->out);
    transfer->out_size = size;
    if (transfer->notice) {
        tg_shared_send_spread(r, transfer);
        return;
    }
    for (uint32_t i = 0; i < l->local_count; i++) {
        transfer->send[l->local[i]] = transfer->out;
        transfer->send_size[l->local[i]] = size;
    }
}

/* ---- in ---- */

/* Whether a frame may be the next of a piece of which so many elements are left. */
static tg_status check_frame(const tg_reduction *r, const tg_piece *piece, uint32_t share, const tg_frame_info *info,
                             uint64_t left, bool is_mean, tg_error *error)
{
    tg_spec spec = TG_SPEC_NONE;
    if (!r->dense) {
        spec = tg_share_tensor(r->reducer, piece->tensor, share).codec;
        spec.amount = tg_amount_at(r->reducer, &spec, r->step);
    }
    if (memcmp(&info->spec, &spec, sizeof spec) != 0 && !(is_mean && tg_spec_is_lossless(&info->spec)))
        return tg_fail(error, TG_CORRUPT, "its codec is not the expected one");
    if (is_mean ? info->count > left || info->count == 0 : info->count != left)
        return tg_fail(error, TG_CORRUPT, "its number of elements is not the expected one");
    if (info->dtype != TG_FLOAT32 || info->draw.step != r->step)
        return tg_fail(error, TG_CORRUPT, "its dtype or step is not the expected one");
    return TG_OK;
}

/* Collects the checks of the frames of a piece. */
static bool take_piece(tg_reduction *r, const tg_piece *piece, uint32_t peer, uint32_t number, tg_cursor *frames)
{
    const bool is_mean = number & IS_MEAN;
    const uint32_t count = number & ~IS_MEAN;
    uint64_t left = count > 0 ? piece->count : 0;
    tg_error why;
    tg_status status = TG_OK;
    if (count > r->reducer->levels->hosts)
        status = tg_fail(&why, TG_CORRUPT, "the message has %u frames of it, but there are %u hosts", count,
                         r->reducer->levels->hosts);
    for (uint32_t i = 0; status == TG_OK && i < count; i++) {
        tg_frame frame;
        tg_frame_info info;
        if (!tg_message_frame(frames, &frame))
            status = tg_fail(&why, TG_TRUNCATED, "it is longer than the rest of the message");
        if (status == TG_OK)
            status = tg_frame_read(frame, &info, &why);
        if (status == TG_OK)
            status = check_frame(r, piece, piece->owner, &info, left, is_mean, &why);
        if (status != TG_OK)
            break;
        tg_job_check(r, &(tg_check_job){.frame = frame, .count = info.count},
                     &(tg_checked){.due.tensor = piece->tensor, .peer = peer});
        left -= is_mean ? info.count : 0;
    }
    if (status == TG_OK && is_mean && left > 0)
        status = tg_fail(&why, TG_CORRUPT, "frames are missing");
    if (status != TG_OK)
        tg_bad_frame(r, piece->tensor, peer, &why);
    return status == TG_OK;
}

static void take_from(tg_reduction *r, size_t number, uint32_t share)
{
    const tg_batch *batch = &r->plan->batches[number];
    const uint32_t peer = r->reducer->levels->local[share];
    tg_message message;
    tg_cursor extra, frames;
    uint32_t due = 0;
    if (!tg_transfer_open(r, &r->batches[number], peer, &message, &extra, &frames))
        return;
    for (size_t i = batch->first; i < batch->first + batch->count; i++) {
        tg_piece slice;
        if (!is_spread(r, &r->plan->pieces[i], share, &slice))
            continue;
        const uint32_t count = tg_cursor_u32(&extra);
        if (!take_piece(r, &slice, peer, count, &frames))
            return;
        r->anywhere[slice.tensor] |= (count & ~IS_MEAN) > 0;
        due += count & ~IS_MEAN;
    }
    if (extra.short_read)
        tg_reduction_fail(r, TG_SKIPPED, "rank %u received a message from rank %u that is too short", r->reducer->rank,
                          peer);
    tg_transfer_close(r, peer, &message, due, &extra, &frames);
}

void tg_spread_take(tg_reduction *r, size_t number)
{
    const tg_levels *l = r->reducer->levels;
    if (l->memory.used)
        tg_shared_take_spread(r, &r->batches[number]);
    for (uint32_t share = 0; share < l->shares && !tg_reduction_lost(r); share++)
        if (share != l->share)
            take_from(r, number, share);
    tg_jobs_check(r);
    const tg_batch *batch = &r->plan->batches[number];
    for (size_t i = batch->first; r->levels->inner && i < batch->first + batch->count; i++)
        if (r->plan->pieces[i].owner == l->share)
            r->anywhere[r->plan->pieces[i].tensor] |= r->levels->inner->anywhere[r->plan->pieces[i].tensor];
}

/* ---- the end ---- */

static void apply_piece(tg_reduction *r, const tg_piece *piece, uint32_t number, tg_frame *frames)
{
    tg_reducer *reducer = r->reducer;
    const tg_tensor out = tg_piece_of(r, piece);
    const uint32_t count = number & ~IS_MEAN;
    if (count == 0 || !out.data)
        return;
    if (!(number & IS_MEAN)) {
        tg_job_mean(reducer, frames, count, 1.0f / (float)reducer->world, r->plan->total, &out);
        return;
    }
    char *data = out.data;
    for (uint32_t i = 0; i < count; i++) {
        tg_frame_info info;
        (void)!tg_frame_read(frames[i], &info, NULL);
        tg_job_mean(reducer, &frames[i], 1, 1, r->plan->total, &(tg_tensor){data, info.count, out.dtype});
        data += info.count * tg_dtype_size(out.dtype);
    }
}

void tg_spread_apply(tg_reduction *r)
{
    tg_reducer *reducer = r->reducer;
    const tg_levels *l = reducer->levels;
    for (size_t b = 0; b < r->plan->batch_count; b++) {
        const tg_batch *batch = &r->plan->batches[b];
        const tg_transfer *transfer = &r->batches[b];
        tg_frame *room = l->frames;
        for (uint32_t share = 0; share < l->shares; share++) {
            const uint32_t peer = l->local[share];
            const uint8_t *bytes = share == l->share ? transfer->out : transfer->receive[peer];
            const size_t size = share == l->share ? transfer->out_size : transfer->received[peer];
            const uint32_t extra_size = tg_message_fields(bytes).extra;
            tg_cursor extra = tg_cursor_over(bytes + TG_MESSAGE_HEADER, extra_size),
                      frames = tg_cursor_over(bytes + TG_MESSAGE_HEADER + extra_size,
                                              size - TG_MESSAGE_HEADER - extra_size);
            for (size_t i = batch->first; i < batch->first + batch->count; i++) {
                tg_piece slice;
                if (!is_spread(r, &r->plan->pieces[i], share, &slice))
                    continue;
                const uint32_t number = tg_cursor_u32(&extra), count = number & ~IS_MEAN;
                for (uint32_t f = 0; f < count; f++)
                    (void)tg_message_frame(&frames, &room[f]);
                apply_piece(r, &slice, number, room);
                room += count;
            }
        }
        tg_jobs_add(reducer);
    }
}
