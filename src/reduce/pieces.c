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

size_t tg_present_frames(const tg_reduction *r, size_t piece, const tg_frame **frames)
{
    const tg_frame *all = tg_received(r, piece);
    size_t count = 0;
    for (uint32_t rank = 0; rank < r->reducer->world; rank++)
        if (all[rank].data)
            r->reducer->present[count++] = all[rank];
    *frames = r->reducer->present;
    return count;
}

static void add_report(tg_encode_report *sum, const tg_encode_report *r)
{
    sum->bytes += r->bytes;
    sum->selected += r->selected;
    sum->saturated += r->saturated;
    sum->dropped += r->dropped;
}

void tg_piece_fail(tg_reduction *r, uint32_t tensor, const char *what, tg_status status, const tg_error *why)
{
    const tg_reducer *reducer = r->reducer;
    if (status == TG_NONFINITE)
        status = reducer->options.nonfinite == TG_NONFINITE_SKIP ? TG_SKIPPED : TG_NONFINITE;
    tg_reduction_fail(r, status, "the %s of tensor '%.60s' on rank %u: %.110s", what, reducer->names[tensor],
                      reducer->rank, why->message);
}

void tg_piece_narrow(const tg_reducer *reducer, const tg_tensor *out)
{
    reducer->device->operations->narrow(reducer->device, reducer->wide, out);
    reducer->device->operations->wait(reducer->device);
}

static bool fail_mean(tg_reduction *r, uint32_t tensor, uint64_t element)
{
    tg_error why;
    (void)tg_fail(&why, TG_NONFINITE, "the mean of element %" PRIu64 " is not finite", element);
    tg_piece_fail(r, tensor, "sum", TG_NONFINITE, &why);
    return false;
}

bool tg_sum_check(tg_reduction *r, uint32_t tensor, uint64_t first, uint64_t count)
{
    tg_device *device = r->reducer->device;
    uint64_t found = count;
    if (tg_policy_of(r->reducer) == TG_NONFINITE_ZERO) {
        device->operations->drop_nonfinite(device, r->reducer->wide, count, &found);
        device->operations->wait(device);
        r->reducer->stats.dropped += found;
        return true;
    }
    const tg_source means = {.gradient = r->reducer->wide, .dtype = TG_FLOAT32, .count = count};
    device->operations->first_nonfinite(device, &means, &found);
    device->operations->wait(device);
    return found == count || fail_mean(r, tensor, first + found);
}

bool tg_list_check(tg_reduction *r, uint32_t tensor, const tg_list *means)
{
    const bool drops = tg_policy_of(r->reducer) == TG_NONFINITE_ZERO;
    for (size_t j = 0; j < means->count; j++) {
        if (means->values[j] - means->values[j] == 0)
            continue;
        if (!drops)
            return fail_mean(r, tensor, means->indices[j]);
        means->values[j] = 0;
        r->reducer->stats.dropped++;
    }
    return true;
}

tg_draw tg_draw_of(const tg_reduction *r, uint32_t rank, uint32_t number)
{
    return (tg_draw){.seed = r->reducer->options.seed, .step = r->step, .tensor = number, .rank = rank};
}

tg_nonfinite tg_policy_of(const tg_reducer *reducer)
{
    return reducer->options.nonfinite == TG_NONFINITE_DROP ? TG_NONFINITE_ZERO : TG_NONFINITE_TRUST;
}

void tg_piece_note(tg_reduction *r, const tg_piece *piece, const tg_encode_report *report)
{
    tg_reducer *reducer = r->reducer;
    tg_reducing_tensor *t = &reducer->tensors[piece->tensor];
    add_report(&r->reports[piece->tensor], report);
    reducer->stats.float32_bytes += 4 * piece->count;
    reducer->stats.frame_bytes += report->bytes;
    reducer->stats.saturated += report->saturated;
    reducer->stats.dropped += report->dropped;
    if (piece->first + piece->count < t->given.count)
        return;
    const tg_encode_report *whole = &r->reports[piece->tensor];
    if (t->feedback) {
        tg_feedback_note(t->feedback, &r->gradients[piece->tensor], whole);
        return;
    }
    t->stats.steps++;
    t->stats.bytes += whole->bytes;
    t->stats.saturated += whole->saturated;
    t->stats.dropped += whole->dropped;
}

bool tg_piece_encode(tg_reduction *r, const tg_piece *piece, tg_codec *codec, uint32_t draw, uint8_t *frame,
                     size_t capacity, tg_encode_report *report)
{
    tg_reducing_tensor *t = &r->reducer->tensors[piece->tensor];
    const tg_tensor part = tg_piece_of(r, piece);
    const tg_encode_options options = {.draw = tg_draw_of(r, r->reducer->rank, draw),
                                       .nonfinite = tg_policy_of(r->reducer)};
    tg_error why;
    tg_status status = t->feedback
                           ? tg_feedback_encode_piece(codec, t->feedback, &part, piece->first, r->clips[piece->tensor],
                                                      &options, frame, capacity, report, &why)
                           : tg_encode(codec, &part, &options, frame, capacity, report, &why);
    if (status != TG_OK)
        tg_piece_fail(r, piece->tensor, "gradient", status, &why);
    return status == TG_OK;
}

bool tg_piece_select(tg_reduction *r, const tg_piece *piece, tg_codec *codec, uint32_t draw, tg_list *list,
                     tg_encode_report *report)
{
    const tg_tensor part = tg_piece_of(r, piece);
    const tg_encode_options options = {.draw = tg_draw_of(r, r->reducer->rank, draw),
                                       .nonfinite = tg_policy_of(r->reducer)};
    tg_error why;
    tg_status status = tg_feedback_select_piece(codec, r->reducer->tensors[piece->tensor].feedback, &part, piece->first,
                                                r->clips[piece->tensor], &options, list, report, &why);
    if (status != TG_OK)
        tg_piece_fail(r, piece->tensor, "gradient", status, &why);
    return status == TG_OK;
}

/* Whether a frame is the one that is due, by its header. */
static tg_status compare(const tg_reduction *r, uint32_t peer, const tg_frame_info *info, const tg_due *due,
                         tg_error *error)
{
    const tg_draw draw = tg_draw_of(r, peer, due->draw);
    char theirs[TG_SPEC_TEXT] = "", ours[TG_SPEC_TEXT] = "";
    if (memcmp(&info->spec, &due->spec, sizeof due->spec) != 0) {
        (void)!tg_spec_print(&info->spec, theirs, sizeof theirs, NULL);
        (void)!tg_spec_print(&due->spec, ours, sizeof ours, NULL);
        return tg_fail(error, TG_CORRUPT, "it is %.50s, and %.50s is expected", theirs, ours);
    }
    if (info->count != due->count)
        return tg_fail(error, TG_CORRUPT, "it has %" PRIu64 " elements, and %" PRIu64 " are expected", info->count,
                       due->count);
    if (info->dtype != due->dtype || info->draw.seed != draw.seed || info->draw.step != draw.step ||
        info->draw.tensor != draw.tensor || info->draw.rank != draw.rank)
        return tg_fail(error, TG_CORRUPT, "it is another frame than the one that is expected");
    return TG_OK;
}

bool tg_piece_take(tg_reduction *r, uint32_t peer, tg_cursor *frames, const tg_due *due, tg_frame *frame,
                   uint32_t *peak)
{
    tg_frame_info info;
    tg_frame found;
    tg_error why;
    tg_status status = TG_OK;
    if (!tg_message_frame(frames, &found))
        status = tg_fail(&why, TG_TRUNCATED, "the message ends before it does");
    if (status == TG_OK)
        status = tg_frame_read(found, &info, &why);
    /* Counts before contents: a few bytes may stand for four billion elements, and take as long. */
    if (status == TG_OK)
        status = compare(r, peer, &info, due, &why);
    if (status == TG_OK)
        status = tg_frame_check(r->reducer->device, found, &info, peak, &why);
    if (status == TG_OK && due->most > 0 && tg_frame_selected(found) > due->most)
        status = tg_fail(&why, TG_CORRUPT, "it lists more than the %" PRIu64 " elements that a rank selects",
                         due->most);
    if (status != TG_OK)
        tg_reduction_fail(r, TG_SKIPPED, "rank %u got a bad frame of tensor '%.40s' from rank %u: %.110s",
                          r->reducer->rank, r->reducer->names[due->tensor], peer, why.message);
    else
        *frame = found;
    return status == TG_OK;
}
