/* Frames of pieces: made with feedback, and checked. */
#include <inttypes.h>

#include "base/status.h"
#include "frame/decode.h"
#include "reduce/reducer.h"

tg_tensor tg_piece_of(const tg_reduction *r, const tg_piece *piece)
{
    const tg_tensor *whole = &r->gradients[piece->tensor];
    return (tg_tensor){(char *)whole->data + piece->first * tg_dtype_size(whole->dtype), piece->count, whole->dtype};
}

static void add_report(tg_encode_report *sum, const tg_encode_report *r)
{
    sum->bytes += r->bytes;
    sum->selected += r->selected;
    sum->saturated += r->saturated;
    sum->dropped += r->dropped;
}

static void fail_encoding(tg_reduction *r, uint32_t tensor, tg_status status, const tg_error *why)
{
    const tg_reducer *reducer = r->reducer;
    if (status == TG_NONFINITE)
        status = reducer->options.nonfinite == TG_NONFINITE_SKIP ? TG_SKIPPED : TG_NONFINITE;
    tg_reduction_fail(r, status, "the gradient of tensor '%.60s' on rank %u: %.120s", reducer->names[tensor], reducer->rank, why->message);
}

bool tg_piece_encode(tg_reduction *r, size_t index, uint8_t *frame, size_t capacity, size_t *size)
{
    tg_reducer *reducer = r->reducer;
    const tg_piece *piece = &r->plan->pieces[index];
    tg_reducing_tensor *t = &reducer->tensors[piece->tensor];
    const tg_tensor part = tg_piece_of(r, piece);
    const tg_encode_options options = {
        .draw = {.seed = reducer->options.seed, .step = r->step, .tensor = (uint32_t)index, .rank = reducer->rank},
        .nonfinite = reducer->options.nonfinite == TG_NONFINITE_DROP ? TG_NONFINITE_ZERO : TG_NONFINITE_TRUST};
    tg_codec *codec = tg_codec_in(r, piece->tensor);
    tg_encode_report report;
    tg_error why;
    tg_status status = t->feedback ? tg_feedback_encode_piece(codec, t->feedback, &part, piece->first, r->clips[piece->tensor], &options,
                                                              frame, capacity, &report, &why)
                                   : tg_encode(codec, &part, &options, frame, capacity, &report, &why);
    if (status != TG_OK) {
        fail_encoding(r, piece->tensor, status, &why);
        return false;
    }
    *size = report.bytes;
    add_report(&r->reports[piece->tensor], &report);
    reducer->stats.frame_bytes += report.bytes;
    reducer->stats.saturated += report.saturated;
    reducer->stats.dropped += report.dropped;
    if (t->feedback && piece->first + piece->count == t->given.count)
        tg_feedback_note(t->feedback, &r->gradients[piece->tensor], &r->reports[piece->tensor]);
    return true;
}

/* Whether a frame is the one that is due, by its header. */
static tg_status compare(const tg_reduction *r, uint32_t peer, const tg_frame_info *info, const tg_reducing_tensor *t, const tg_spec *spec,
                         uint64_t count, uint32_t draw, tg_error *error)
{
    char theirs[TG_SPEC_TEXT] = "", ours[TG_SPEC_TEXT] = "";
    if (memcmp(&info->spec, spec, sizeof *spec) != 0 && tg_spec_print(&info->spec, theirs, sizeof theirs, NULL) == TG_OK &&
        tg_spec_print(spec, ours, sizeof ours, NULL) == TG_OK)
        return tg_fail(error, TG_CORRUPT, "it is %.70s, and %.70s is due", theirs, ours);
    if (info->count != count)
        return tg_fail(error, TG_CORRUPT, "it has %" PRIu64 " elements, and %" PRIu64 " are due", info->count, count);
    if (info->dtype != t->given.dtype || info->draw.seed != r->reducer->options.seed || info->draw.step != r->step ||
        info->draw.tensor != draw || info->draw.rank != peer)
        return tg_fail(error, TG_CORRUPT, "it is another frame than the one that is due");
    return TG_OK;
}

bool tg_piece_check(tg_reduction *r, uint32_t peer, tg_frame frame, uint32_t tensor, const tg_spec *spec, uint64_t count, uint32_t draw)
{
    const tg_reducing_tensor *t = &r->reducer->tensors[tensor];
    tg_frame_info info;
    tg_error why;
    tg_status status = tg_frame_read(frame, &info, &why);
    /* Counts before contents: a few bytes may stand for four billion elements, and take as long. */
    if (status == TG_OK)
        status = compare(r, peer, &info, t, spec, count, draw, &why);
    if (status == TG_OK)
        status = tg_frame_check(r->reducer->kernels, frame, &info, &why);
    if (status != TG_OK)
        tg_reduction_fail(r, TG_SKIPPED, "rank %u got a bad frame of tensor '%.40s' from rank %u: %.110s", r->reducer->rank,
                          r->reducer->names[tensor], peer, why.message);
    return status == TG_OK;
}
