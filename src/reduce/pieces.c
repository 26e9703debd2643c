/* Frames of pieces: made with feedback, and checked. */
#include <inttypes.h>

#include "base/status.h"
#include "frame/decode.h"
#include "frame/verify.h"
#include "reduce/reducer.h"

tg_tensor tg_piece_of(const tg_reduction *r, const tg_piece *piece)
{
    const tg_tensor *whole = &r->gradients[piece->tensor];
    char *data = whole->data ? (char *)whole->data + piece->first * tg_dtype_size(whole->dtype) : NULL;
    return (tg_tensor){data, piece->count, whole->dtype};
}

bool tg_piece_is_sent(const tg_reduction *r, const tg_piece *piece)
{
    return r->given[piece->tensor] == TG_GIVEN &&
           (!tg_reduction_lost(r) || r->reducer->tensors[piece->tensor].feedback);
}

void tg_receive_own(tg_reduction *r, const tg_batch *batch)
{
    for (size_t i = batch->first; i < batch->first + batch->count; i++) {
        const bool gathers = !r->reducer->functions->has_parts;
        if (gathers || tg_goes_to(&r->plan->pieces[i], r->reducer->rank))
            tg_received(r, i)[r->reducer->rank] = r->sent[tg_part_number(r, i, r->reducer->rank)];
    }
}

size_t tg_pack_received(const tg_reduction *r, size_t piece)
{
    tg_frame *frames = tg_received(r, piece);
    size_t count = 0;
    for (uint32_t rank = 0; rank < r->reducer->world; rank++) {
        const tg_frame frame = frames[rank];
        frames[rank].data = NULL;
        if (frame.data)
            frames[count++] = frame;
    }
    return count;
}

void tg_piece_fail(tg_reduction *r, uint32_t tensor, const char *what, tg_status status, const tg_error *why)
{
    const tg_reducer *reducer = r->reducer;
    if (status == TG_NONFINITE)
        status = reducer->options.nonfinite == TG_NONFINITE_SKIP ? TG_SKIPPED : TG_NONFINITE;
    tg_reduction_fail(r, status, "the %s of tensor '%.60s' on rank %u: %.110s", what, reducer->names[tensor],
                      tg_named(reducer, reducer->rank), why->message);
}

void tg_mean_fail(tg_reduction *r, uint32_t tensor, uint64_t element)
{
    tg_error why;
    (void)tg_fail(&why, TG_NONFINITE, "the mean of element %" PRIu64 " is not finite",
                  tg_named_element(r->reducer, tensor, element));
    tg_piece_fail(r, tensor, "sum", TG_NONFINITE, &why);
}

tg_mean tg_mean_of(const tg_reduction *r, size_t piece, float *values, void *narrow, tg_dtype dtype)
{
    const uint64_t count = r->plan->pieces[piece].count;
    return (tg_mean){.piece = piece,
                     .first = r->plan->pieces[piece].first,
                     .values = {.gradient = values, .dtype = TG_FLOAT32, .count = count},
                     .narrow = {narrow, count, dtype}};
}

bool tg_means_check(tg_reduction *r, tg_mean *means, size_t count)
{
    tg_device *device = r->reducer->device;
    const bool drops = tg_policy_of(r->reducer) == TG_NONFINITE_ZERO;
    for (tg_mean *m = means; m < means + count; m++) {
        float *values = (float *)(uintptr_t)m->values.gradient;
        if (drops)
            device->operations->drop_nonfinite(device, values, m->values.count, &m->found);
        else
            device->operations->first_nonfinite(device, &m->values, &m->found);
        if (m->narrow.data)
            device->operations->narrow(device, values, &m->narrow);
    }
    device->operations->wait(device);
    bool finite = true;
    for (tg_mean *m = means; m < means + count; m++) {
        if (drops) {
            r->reducer->stats.dropped += m->found;
        } else if (m->found < m->values.count) {
            tg_mean_fail(r, r->plan->pieces[m->piece].tensor, m->first + m->found);
            finite = false;
        }
    }
    return finite;
}

tg_draw tg_draw_of(const tg_reduction *r, uint32_t rank, uint32_t number)
{
    return (tg_draw){.seed = r->reducer->options.seed, .step = r->step, .tensor = number, .rank = rank};
}

tg_nonfinite tg_policy_of(const tg_reducer *reducer)
{
    return reducer->options.nonfinite == TG_NONFINITE_DROP ? TG_NONFINITE_ZERO : TG_NONFINITE_TRUST;
}

void tg_report_add(tg_reduction *r, uint32_t tensor, const tg_encode_report *report)
{
    tg_encode_report *sum = &r->reports[tensor];
    sum->bytes += report->bytes;
    sum->selected += report->selected;
    sum->saturated += report->saturated;
    sum->dropped += report->dropped;
    r->reducer->stats.frame_bytes += report->bytes;
    r->reducer->stats.saturated += report->saturated;
    r->reducer->stats.dropped += report->dropped;
}

/* The tensor whose last piece is that of encoding j, of `count`; NULL: none is. */
static tg_reducing_tensor *tensor_ended_by(const tg_reduction *r, size_t j, size_t count)
{
    const tg_reducer *reducer = r->reducer;
    const size_t index = reducer->encoded[j].piece;
    const tg_piece *piece = &r->plan->pieces[index];
    const bool last_part = j + 1 == count || reducer->encoded[j + 1].piece != index;
    return last_part && piece->last ? &reducer->tensors[piece->tensor] : NULL;
}

void tg_pieces_ask(tg_reduction *r, size_t count)
{
    for (size_t j = 0; j < count; j++) {
        const uint32_t tensor = r->plan->pieces[r->reducer->encoded[j].piece].tensor;
        if (tensor_ended_by(r, j, count) && tg_feedback_in(r, tensor))
            tg_feedback_ask(tg_feedback_in(r, tensor), &r->gradients[tensor]);
    }
}

static void note_end(tg_reduction *r, uint32_t tensor)
{
    tg_reducing_tensor *t = &r->reducer->tensors[tensor];
    const tg_encode_report *whole = &r->reports[tensor];
    if (tg_feedback_in(r, tensor)) {
        tg_feedback_note(t->feedback, whole);
    } else {
        tg_stats *stats = t->feedback ? &t->feedback->stats : &t->stats;
        stats->steps++;
        stats->bytes += whole->bytes;
        stats->saturated += whole->saturated;
        stats->dropped += whole->dropped;
    }
}

void tg_pieces_note(tg_reduction *r, size_t count)
{
    tg_reducer *reducer = r->reducer;
    for (size_t j = 0; j < count; j++) {
        tg_encode_report report = reducer->encodings[j].report;
        const tg_piece *piece = &r->plan->pieces[reducer->encoded[j].piece];
        if (report.status != TG_OK)
            continue;
        if (reducer->encodings[j].selected)
            report.selected = 0; /* they were counted when they were selected */
        tg_report_add(r, piece->tensor, &report);
        if (j == 0 || reducer->encoded[j - 1].piece != reducer->encoded[j].piece)
            reducer->stats.float32_bytes += 4 * piece->count;
        if (tensor_ended_by(r, j, count))
            note_end(r, piece->tensor);
    }
}

tg_source tg_piece_source(const tg_reduction *r, const tg_piece *piece)
{
    const tg_tensor part = tg_piece_of(r, piece);
    const tg_source source = tg_feedback_piece(tg_feedback_in(r, piece->tensor), &part, piece->first,
                                               r->clips[piece->tensor]);
    return tg_source_in(r, &source);
}

void tg_piece_encode(tg_reduction *r, size_t index, uint32_t draw, uint8_t **end)
{
    const tg_piece *piece = &r->plan->pieces[index];
    const tg_source source = tg_piece_source(r, piece);
    tg_job_encode(r, index, &source, draw, end, &r->sent[piece->part]);
}

tg_status tg_piece_compare(const tg_reduction *r, uint32_t peer, const tg_frame_info *info, tg_due *due,
                           tg_error *error)
{
    const tg_draw draw = tg_draw_of(r, peer, due->draw);
    if (due->is_whole && tg_spec_is_lossless(&info->spec)) {
        *due->is_whole = true;
        due->spec = TG_SPEC_NONE;
        due->most = 0;
    }
    char theirs[TG_SPEC_TEXT] = "", ours[TG_SPEC_TEXT] = "";
    if (memcmp(&info->spec, &due->spec, sizeof due->spec) != 0) {
        (void)!tg_spec_print(&info->spec, theirs, sizeof theirs, NULL);
        (void)!tg_spec_print(&due->spec, ours, sizeof ours, NULL);
        return tg_fail(error, TG_CORRUPT, "its codec is %.50s, but %.50s was expected", theirs, ours);
    }
    if (info->count != due->count)
        return tg_fail(error, TG_CORRUPT, "it has %" PRIu64 " elements, and %" PRIu64 " are expected", info->count,
                       due->count);
    if (info->dtype != due->dtype || info->draw.seed != draw.seed || info->draw.step != draw.step ||
        info->draw.tensor != draw.tensor || info->draw.rank != draw.rank)
        return tg_fail(error, TG_CORRUPT, "its dtype, seed, step, tensor or rank is not the expected one");
    return TG_OK;
}

void tg_bad_frame(tg_reduction *r, uint32_t tensor, uint32_t peer, const tg_error *why)
{
    tg_reduction_fail(r, TG_SKIPPED, "rank %u received an invalid frame of tensor '%.40s' from rank %u: %.110s",
                      tg_named(r->reducer, r->reducer->rank), r->reducer->names[tensor], tg_named(r->reducer, peer),
                      why->message);
}

bool tg_piece_take(tg_reduction *r, uint32_t peer, tg_cursor *frames, const tg_due *given, tg_frame *frame,
                   bool *may_overflow)
{
    const bool on_device = r->reducer->options.on_device;
    tg_due due = *given;
    tg_frame_info info;
    tg_error why;
    tg_status status = TG_OK;
    if (on_device ? !tg_body_frame(r, frames, frame) : !tg_message_frame(frames, frame))
        status = tg_fail(&why, TG_TRUNCATED, "it is longer than the rest of the message");
    if (status == TG_OK && !on_device)
        status = tg_frame_read(*frame, &info, &why);
    /* Counts before contents: a few bytes may stand for four billion elements, and take as long. */
    if (status == TG_OK && !on_device)
        status = tg_piece_compare(r, peer, &info, &due, &why);
    if (status != TG_OK) {
        frame->data = NULL; /* within a host, what came is added up even where the step is lost */
        tg_bad_frame(r, due.tensor, peer, &why);
        return false;
    }
    tg_job_check(
        r, &(tg_check_job){.frame = *frame, .count = due.count, .wants_peak = may_overflow != NULL},
        &(tg_checked){.due = due, .peer = peer, .compares = on_device, .may_overflow = may_overflow, .frame = frame});
    return true;
}
