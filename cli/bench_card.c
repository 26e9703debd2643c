/* The benchmark on a card. Calls that do not wait are put on the stream one behind the other, as a CUDA graph where the
 * driver makes one, so that what is timed is the card's work and not the host's launches. Beside that, calls that wait
 * for their reports. */
#include "bench_card.h"

#include "bench_graph.h"
#include "layout.h"
#include "predict/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOGETHER = 16 }; /* calls behind each other */

/* What lies on the card. */
struct card {
    tg_device *device;
    struct graphs graphs;
    void *gradients[BENCH_GRADIENTS], *sum;
    size_t gradient_count;
};

/* ---- memory ---- */

static tg_status prepare(const struct bench *bench, struct card *card, tg_error *error)
{
    const size_t bytes = bench->count * sizeof(float);
    tg_status status = tg_device_allocate(card->device, bytes, &card->sum, error);
    if (status == TG_OK)
        status = tg_device_copy_in(card->device, card->sum, bench->sum.values, bytes, error);
    for (size_t i = 0; i < card->gradient_count && status == TG_OK; i++) {
        status = tg_device_allocate(card->device, bytes, &card->gradients[i], error);
        if (status == TG_OK)
            status = tg_device_copy_in(card->device, card->gradients[i], bench->gradients[i].values, bytes, error);
    }
    return status;
}

static void dispose(struct card *card)
{
    for (size_t i = 0; i < BENCH_GRADIENTS; i++)
        tg_device_release(card->device, card->gradients[i]);
    tg_device_release(card->device, card->sum);
}

/* One tensor of a row: its frames are the same, each in memory of its own. */
struct card_tensor {
    struct card_part part;
    tg_codec *codec;
    tg_feedback *feedback;
    void *frames[BENCH_PEERS];
    tg_frame peers[BENCH_PEERS];
    tg_frame_info like;
    size_t room;
};

struct card_work {
    struct card_tensor *tensors;
    tg_encode_call *encodes;
    tg_decode_call *decodes;
    tg_encode_report *reports; /* shared with the card */
    tg_status *verdicts;
    size_t count;
    uint64_t step;
};

static void end(const struct card *card, struct card_work *work)
{
    for (size_t t = 0; work->tensors && t < work->count; t++) {
        for (int i = 0; i < BENCH_PEERS; i++)
            tg_device_release(card->device, work->tensors[t].frames[i]);
        tg_feedback_free(work->tensors[t].feedback);
        tg_codec_free(work->tensors[t].codec);
    }
    tg_device_release_shared(card->device, work->reports);
    tg_device_release_shared(card->device, work->verdicts);
    free(work->tensors);
    free(work->encodes);
    free(work->decodes);
}

static tg_status begin_tensor(const struct bench *bench, const struct card *card, const tg_spec *spec,
                              struct card_tensor *t, tg_error *error)
{
    tg_feedback_spec ef;
    tg_status status = tg_codec_create(card->device, spec, t->part.count, &t->codec, error);
    if (status == TG_OK && bench->feedback)
        status = tg_feedback_parse("ef", &ef, error);
    if (status == TG_OK && bench->feedback)
        status = tg_feedback_create(card->device, &ef, spec, t->part.count, false, &t->feedback, error);
    if (status == TG_OK)
        t->room = tg_frame_bound(t->codec, t->part.count);
    for (int i = 0; status == TG_OK && i < BENCH_PEERS; i++)
        status = tg_device_allocate(card->device, t->room, &t->frames[i], error);
    if (status == TG_OK)
        status = tg_device_reserve(card->device, spec, t->part.count, BENCH_PEERS, error);
    return status;
}

static tg_status begin(const struct bench *bench, const struct card *card, const tg_spec *spec,
                       const struct card_part *parts, size_t count, struct card_work *work, tg_error *error)
{
    *work = (struct card_work){.tensors = calloc(count, sizeof *work->tensors),
                               .encodes = calloc(count, sizeof *work->encodes),
                               .decodes = calloc(count, sizeof *work->decodes),
                               .count = count};
    if (!work->tensors || !work->encodes || !work->decodes)
        return TG_OUT_OF_MEMORY;
    tg_status status = tg_device_allocate_shared(card->device, count * sizeof *work->reports, (void **)&work->reports,
                                                 error);
    if (status == TG_OK)
        status = tg_device_allocate_shared(card->device, count * sizeof *work->verdicts, (void **)&work->verdicts,
                                           error);
    for (size_t t = 0; t < count && status == TG_OK; t++) {
        work->tensors[t].part = parts[t];
        status = begin_tensor(bench, card, spec, &work->tensors[t], error);
    }
    return status;
}

/* ---- what is timed ---- */

static tg_tensor part_of(const void *vector, struct card_part part)
{
    return (tg_tensor){(float *)(uintptr_t)vector + part.first, part.count, TG_FLOAT32};
}

static tg_status encode_later(const struct bench *bench, const struct card *card, struct card_work *work,
                              tg_error *error)
{
    for (size_t t = 0; t < work->count; t++) {
        struct card_tensor *tensor = &work->tensors[t];
        work->encodes[t] = (tg_encode_call){
            .codec = tensor->codec,
            .feedback = tensor->feedback,
            .gradient = part_of(card->gradients[work->step % card->gradient_count], tensor->part),
            .options = {.draw = {.step = work->step, .tensor = (uint32_t)t},
                        .nonfinite = bench->nonfinite,
                        .on_device = true},
            .frame = tensor->frames[0],
            .capacity = tensor->room,
            .report = &work->reports[t]};
    }
    work->step++;
    return tg_encode_later(work->encodes, work->count, error);
}

static size_t frames_of(enum card_kind kind) { return kind == VERIFY_ADD_PEERS || kind == ADD_PEERS ? BENCH_PEERS : 1; }

static tg_status add_later(const struct card *card, struct card_work *work, enum card_kind kind, tg_error *error)
{
    for (size_t t = 0; t < work->count; t++)
        work->decodes[t] = (tg_decode_call){.frames = work->tensors[t].peers,
                                            .frame_count = frames_of(kind),
                                            .like = &work->tensors[t].like,
                                            .weight = 0.25f,
                                            .verified = kind == ADD || kind == ADD_PEERS,
                                            .out = part_of(card->sum, work->tensors[t].part),
                                            .status = &work->verdicts[t]};
    return tg_decode_add_later(card->device, work->decodes, work->count, error);
}

static tg_status call_later(const struct bench *bench, const struct card *card, struct card_work *work,
                            enum card_kind kind, tg_error *error)
{
    return kind == ENCODE ? encode_later(bench, card, work, error) : add_later(card, work, kind, error);
}

/* Of one vector. */
static tg_status call_and_wait(const struct bench *bench, const struct card *card, struct card_work *work,
                               enum card_kind kind, tg_error *error)
{
    struct card_tensor *t = &work->tensors[0];
    if (kind != ENCODE) {
        const tg_tensor sum = part_of(card->sum, t->part);
        const unsigned verified = kind == ADD || kind == ADD_PEERS ? TG_VERIFIED : 0;
        return tg_decode_add(card->device, t->peers, frames_of(kind), 0.25f, TG_ON_DEVICE | verified, &sum, error);
    }
    const tg_tensor gradient = part_of(card->gradients[work->step % card->gradient_count], t->part);
    const tg_encode_options options = {.draw.step = work->step++, .nonfinite = bench->nonfinite, .on_device = true};
    return t->feedback ? tg_encode_with_feedback(t->codec, t->feedback, &gradient, &options, t->frames[0], t->room,
                                                 &work->reports[0], error)
                       : tg_encode(t->codec, &gradient, &options, t->frames[0], t->room, &work->reports[0], error);
}

/* ---- time ---- */

static bool goes_on(const struct bench *bench, uint64_t began, int round)
{
    return round < 3 || (double)(clock_ns() - began) * 1e-9 < bench->seconds / 2;
}

static tg_status time_waiting(const struct bench *bench, const struct card *card, struct card_work *work,
                              enum card_kind kind, double *seconds, tg_error *error)
{
    const uint64_t began = clock_ns();
    tg_status status = TG_OK;
    *seconds = INFINITY;
    for (int round = 0; status == TG_OK && goes_on(bench, began, round); round++) {
        const uint64_t started = clock_ns();
        status = call_and_wait(bench, card, work, kind, error);
        if (status == TG_OK)
            status = tg_device_wait(card->device, error);
        *seconds = fmin(*seconds, (double)(clock_ns() - started) * 1e-9);
    }
    return status;
}

/* What puts one of several calls on the stream. */
struct timed {
    const struct bench *bench;
    const struct card *card;
    struct card_work *work; /* NULL: a copy */
    enum card_kind kind;
};

static tg_status call_once(const struct timed *timed, tg_error *error)
{
    const struct card *card = timed->card;
    if (timed->work)
        return call_later(timed->bench, card, timed->work, timed->kind, error);
    return tg_device_copy(card->device, card->sum, card->gradients[0], timed->bench->count * sizeof(float), error);
}

static tg_status call_together(const struct timed *timed, tg_error *error)
{
    tg_status status = TG_OK;
    for (int i = 0; i < TOGETHER && status == TG_OK; i++)
        status = call_once(timed, error);
    return status;
}

/* A graph of such calls; NULL where none can be made. */
static void *record(const struct timed *timed, tg_status *status, tg_error *error)
{
    *status = tg_device_wait(timed->card->device, error);
    if (*status != TG_OK || !graph_begin(&timed->card->graphs))
        return NULL;
    *status = call_together(timed, error);
    return graph_end(&timed->card->graphs);
}

static tg_status time_together(const struct timed *timed, double *seconds, tg_error *error)
{
    const struct graphs *graphs = &timed->card->graphs;
    tg_status status = call_once(timed, error); /* it may be refused */
    /* copies are quicker outside of graphs */
    void *graph = status == TG_OK && timed->work ? record(timed, &status, error) : NULL;
    const uint64_t began = clock_ns();
    *seconds = INFINITY;
    for (int round = 0; status == TG_OK && goes_on(timed->bench, began, round); round++) {
        const uint64_t started = clock_ns();
        if (!graph || !graph_launch(graphs, graph))
            status = call_together(timed, error);
        if (status == TG_OK)
            status = tg_device_wait(timed->card->device, error);
        *seconds = fmin(*seconds, (double)(clock_ns() - started) * 1e-9 / TOGETHER);
    }
    graph_free(graphs, graph);
    return status;
}

/* ---- rows ---- */

/* What the encoder has left becomes the peers' frames. */
static tg_status share_frames(const struct card *card, struct card_work *work, struct card_row *row, tg_error *error)
{
    uint8_t header[64];
    tg_status status = TG_OK;
    row->bytes = 0;
    for (size_t t = 0; t < work->count && status == TG_OK; t++) {
        struct card_tensor *tensor = &work->tensors[t];
        const size_t bytes = work->reports[t].bytes;
        row->bytes += bytes;
        tensor->peers[0] = (tg_frame){tensor->frames[0], bytes};
        for (int i = 1; i < BENCH_PEERS && status == TG_OK; i++) {
            status = tg_device_copy(card->device, tensor->frames[i], tensor->frames[0], bytes, error);
            tensor->peers[i] = (tg_frame){tensor->frames[i], bytes};
        }
        if (status == TG_OK)
            status = tg_device_copy_out(card->device, header, tensor->frames[0], sizeof header, error);
        if (status == TG_OK && tg_frame_read((tg_frame){header, sizeof header}, &tensor->like, error) == TG_TRUNCATED) {
            uint64_t payload = bytes - sizeof header;
            uint8_t *whole = malloc(bytes);
            status = whole ? tg_device_copy_out(card->device, whole, tensor->frames[0], bytes, error)
                           : TG_OUT_OF_MEMORY;
            if (status == TG_OK)
                status = tg_frame_read((tg_frame){whole, (size_t)payload + sizeof header}, &tensor->like, error);
            free(whole);
        }
    }
    return status;
}

static tg_status run_kinds(const struct bench *bench, const struct card *card, struct card_work *work,
                           struct card_row *row, tg_error *error)
{
    tg_status status = TG_OK;
    for (enum card_kind kind = 0; kind < KINDS && status == TG_OK; kind++) {
        const struct timed timed = {bench, card, work, kind};
        row->seconds[kind] = row->waiting[kind] = NAN;
        if (work->count == 1)
            status = time_waiting(bench, card, work, kind, &row->waiting[kind], error);
        if (status == TG_OK)
            status = time_together(&timed, &row->seconds[kind], error);
        if (status == TG_UNAVAILABLE && kind != ENCODE) { /* some frames cannot be added later */
            row->seconds[kind] = NAN;
            status = TG_OK;
        }
        if (status == TG_OK && kind == ENCODE)
            status = share_frames(card, work, row, error);
    }
    return status;
}

static tg_status run_row(const struct bench *bench, const struct card *card, const struct listed_spec *spec,
                         const struct card_part *parts, size_t count, struct card_row *row, tg_error *error)
{
    struct card_work work;
    row->label = spec->label;
    row->parts = count;
    tg_status status = begin(bench, card, &spec->spec, parts, count, &work, error);
    if (status == TG_UNAVAILABLE || status == TG_UNSTABLE) { /* an answer, and no reason to stop */
        snprintf(row->refusal, sizeof row->refusal, "%s", error->message);
        status = TG_OK;
    } else if (status == TG_OK) {
        status = run_kinds(bench, card, &work, row, error);
    }
    end(card, &work);
    return status;
}

/* ---- tensors ---- */

/* The tensors that --tensors names: those of a model, or of a layout file. */
struct card_parts {
    struct card_part *of;
    size_t count, elements;
};

static bool add_part(struct card_parts *parts, uint64_t count, struct failure *failure)
{
    if (count == 0 || count > TG_MAX_COUNT || parts->elements + count > TG_MAX_COUNT)
        return fail(failure, "a tensor of --tensors has no elements, or there are more than %u altogether",
                    (unsigned)TG_MAX_COUNT);
    parts->of[parts->count++] = (struct card_part){parts->elements, (size_t)count};
    parts->elements += (size_t)count;
    return true;
}

static bool is_known(const char *name)
{
    for (size_t i = 0; known_models[i]; i++)
        if (strcmp(known_models[i], name) == 0)
            return true;
    return false;
}

static bool find_parts(const char *name, struct card_parts *parts, struct failure *failure)
{
    struct known_model model = {.count = 0};
    struct layout layout = {.count = 0};
    *parts = (struct card_parts){.count = 0};
    bool is_done = is_known(name) ? known_model_make(name, &model, failure)
                                  : layout_load(name, UINT64_MAX, &layout, failure);
    const size_t count = model.count + layout.count;
    parts->of = is_done ? calloc(count + 1, sizeof *parts->of) : NULL;
    if (is_done && !parts->of)
        is_done = fail(failure, "no memory for %zu tensors", count);
    for (size_t i = 0; is_done && parts->of && i < count; i++)
        is_done = add_part(parts, model.count ? model.tensors[i].count : layout.layers[i].count, failure);
    known_model_free(&model);
    layout_free(&layout);
    return is_done && (count > 0 || fail(failure, "%s has no tensors", name));
}

/* ---- all of it ---- */

static tg_status run_all(const struct bench *bench, struct card *card, const struct spec_list *specs,
                         const struct card_parts *parts, struct card_report *report, tg_error *error)
{
    const struct card_part whole = {0, bench->count};
    const struct timed copying = {bench, card, NULL, ENCODE};
    double seconds = NAN;
    tg_status status = prepare(bench, card, error);
    if (status == TG_OK)
        status = time_together(&copying, &seconds, error);
    report->copied = 8 * (double)bench->count / seconds;
    for (size_t i = 0; i < specs->count && status == TG_OK; i++) {
        status = run_row(bench, card, &specs->items[i], &whole, 1, &report->rows[report->row_count++], error);
        if (status == TG_OK && parts->count > 1 && !report->rows[report->row_count - 1].refusal[0])
            status = run_row(bench, card, &specs->items[i], parts->of, parts->count, &report->rows[report->row_count++],
                             error);
    }
    return status;
}

/* With a stream of its own, which can be captured. */
static tg_status open_card(const struct bench *bench, struct card *card, tg_error *error)
{
    (void)graphs_open(&card->graphs, tg_device_name(bench->device));
    return tg_device_open(tg_device_name(bench->device), card->graphs.stream, &card->device, error);
}

static bool measure(struct bench *bench, const struct spec_list *specs, const struct card_parts *parts,
                    struct card_report *report, struct failure *failure)
{
    struct card card = {.gradient_count = bench->gradient_count};
    tg_error error = {""};
    tg_status status = open_card(bench, &card, &error);
    if (status == TG_OK) {
        status = run_all(bench, &card, specs, parts, report, &error);
        dispose(&card);
    }
    tg_device_free(card.device);
    graphs_close(&card.graphs);
    return status == TG_OK || fail(failure, "%s", library_message(status, &error));
}

bool bench_run_card(struct bench *bench, const struct spec_list *specs, const struct card_settings *settings,
                    struct failure *failure)
{
    struct card_parts parts = {.count = 0};
    struct card_report report = {.device = tg_device_name(bench->device), .feedback = bench->feedback};
    bool is_done = !settings->tensors || find_parts(settings->tensors, &parts, failure);
    if (is_done && parts.count > 0)
        bench->count = parts.elements;
    report.count = bench->count;
    report.rows = calloc(2 * specs->count, sizeof *report.rows);
    if (is_done && !report.rows)
        is_done = fail(failure, "no memory for %zu rows", specs->count);
    is_done = is_done && report.rows && bench_make_vectors(bench, failure) &&
              measure(bench, specs, &parts, &report, failure);
    bench_free_vectors(bench);
    is_done = is_done && (!settings->compare || comparison_run(bench, &report.comparison, failure));
    if (is_done && settings->json)
        card_print_json(&report);
    else if (is_done)
        card_print_text(&report, settings->wide);
    free(report.comparison);
    free(report.rows);
    free(parts.of);
    return is_done;
}
