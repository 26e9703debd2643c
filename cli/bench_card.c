/* The benchmark on a card. What is timed is a call of the library, from the host: launches and the wait for its report
 * are part of it. */
#include "bench.h"

#include "json_writer.h"
#include "table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENCODE, VERIFY_ADD, VERIFY_ADD_PEERS, ADD, ADD_PEERS, KINDS };
static const char *const kind_names[KINDS] = {"encode", "verify + add", "verify + add 4", "add", "add 4"};
static const char *const kind_keys[KINDS] = {"encode", "verify_add", "verify_add_peers", "add", "add_peers"};

/* What lies on the card. */
struct card {
    tg_device *device;
    void *gradients[BENCH_GRADIENTS], *sum;
    size_t gradient_count;
    double copied; /* bytes read and written by a copy in a second */
};

struct card_row {
    const char *label;
    size_t bytes;
    double seconds[KINDS];
    char refusal[sizeof(tg_error)];
};

/* Bytes that an operation must read and write. */
static double bytes_of(const struct bench *bench, const struct card_row *row, int kind)
{
    const double vector = 4 * (double)bench->count, frame = (double)row->bytes;
    switch (kind) {
    case ENCODE:
        return (bench->feedback ? 3 : 1) * vector + frame;
    case VERIFY_ADD:
    case ADD:
        return 2 * vector + frame;
    default:
        return 2 * vector + BENCH_PEERS * frame;
    }
}

static double fraction(const struct bench *bench, const struct card *card, const struct card_row *row, int kind)
{
    return bytes_of(bench, row, kind) / row->seconds[kind] / card->copied;
}

/* ---- measuring ---- */

static tg_status measure_copy(const struct bench *bench, struct card *card, tg_error *error)
{
    const size_t bytes = bench->count * sizeof(float);
    double best = INFINITY;
    uint64_t began = clock_ns();
    tg_status status = TG_OK;
    for (int round = 0; status == TG_OK && (round < 3 || (double)(clock_ns() - began) * 1e-9 < bench->seconds);
         round++) {
        uint64_t started = clock_ns();
        status = tg_device_copy(card->device, card->sum, card->gradients[0], bytes, error);
        if (status == TG_OK)
            status = tg_device_wait(card->device, error);
        best = fmin(best, (double)(clock_ns() - started) * 1e-9);
    }
    card->copied = 2 * (double)bytes / best;
    return status;
}

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

/* One codec. */
struct card_work {
    tg_codec *codec;
    tg_feedback *feedback;
    void *frames[BENCH_PEERS]; /* the same frame, each in memory of its own */
    size_t room;
    uint64_t step;
};

static tg_status encode_on(const struct bench *bench, const struct card *card, struct card_work *work, size_t *bytes,
                           tg_error *error)
{
    const tg_tensor gradient = {card->gradients[work->step % card->gradient_count], bench->count, TG_FLOAT32};
    const tg_encode_options options = {.draw.step = work->step, .nonfinite = bench->nonfinite, .on_device = true};
    tg_encode_report report;
    tg_status status = work->feedback
                           ? tg_encode_with_feedback(work->codec, work->feedback, &gradient, &options, work->frames[0],
                                                     work->room, &report, error)
                           : tg_encode(work->codec, &gradient, &options, work->frames[0], work->room, &report, error);
    work->step++;
    *bytes = report.bytes;
    return status;
}

static tg_status run_kind(const struct bench *bench, const struct card *card, struct card_work *work, int kind,
                          size_t *bytes, tg_error *error)
{
    if (kind == ENCODE)
        return encode_on(bench, card, work, bytes, error);
    const size_t frame_count = kind == VERIFY_ADD_PEERS || kind == ADD_PEERS ? BENCH_PEERS : 1;
    const unsigned flags = TG_ON_DEVICE | (kind == ADD || kind == ADD_PEERS ? TG_VERIFIED : 0);
    const tg_tensor sum = {card->sum, bench->count, TG_FLOAT32};
    tg_frame frames[BENCH_PEERS];
    for (size_t i = 0; i < frame_count; i++)
        frames[i] = (tg_frame){work->frames[i], *bytes};
    return tg_decode_add(card->device, frames, frame_count, 0.25f, flags, &sum, error);
}

static tg_status time_kind(const struct bench *bench, const struct card *card, struct card_work *work, int kind,
                           struct card_row *row, tg_error *error)
{
    tg_status status = TG_OK;
    const uint64_t began = clock_ns();
    row->seconds[kind] = INFINITY;
    for (int round = 0; status == TG_OK && (round < 3 || (double)(clock_ns() - began) * 1e-9 < bench->seconds);
         round++) {
        const uint64_t started = clock_ns();
        status = run_kind(bench, card, work, kind, &row->bytes, error);
        if (status == TG_OK)
            status = tg_device_wait(card->device, error);
        row->seconds[kind] = fmin(row->seconds[kind], (double)(clock_ns() - started) * 1e-9);
    }
    for (int i = 1; kind == ENCODE && status == TG_OK && i < BENCH_PEERS; i++)
        status = tg_device_copy(card->device, work->frames[i], work->frames[0], row->bytes, error);
    return status;
}

static tg_status begin(const struct bench *bench, const struct card *card, const struct listed_spec *spec,
                       struct card_work *work, tg_error *error)
{
    tg_feedback_spec ef;
    tg_status status = tg_codec_create(card->device, &spec->spec, bench->count, &work->codec, error);
    if (status == TG_OK && bench->feedback)
        status = tg_feedback_parse("ef", &ef, error);
    if (status == TG_OK && bench->feedback)
        status = tg_feedback_create(card->device, &ef, &spec->spec, bench->count, false, &work->feedback, error);
    if (status == TG_OK)
        work->room = tg_frame_bound(work->codec, bench->count);
    for (int i = 0; status == TG_OK && i < BENCH_PEERS; i++)
        status = tg_device_allocate(card->device, work->room, &work->frames[i], error);
    return status;
}

static tg_status run_row(const struct bench *bench, const struct card *card, const struct listed_spec *spec,
                         struct card_row *row, tg_error *error)
{
    struct card_work work = {0};
    row->label = spec->label;
    tg_status status = begin(bench, card, spec, &work, error);
    if (status == TG_UNAVAILABLE || status == TG_UNSTABLE) { /* an answer, and no reason to stop */
        snprintf(row->refusal, sizeof row->refusal, "%s", error->message);
        status = TG_OK;
    } else {
        for (int kind = 0; kind < KINDS && status == TG_OK; kind++)
            status = time_kind(bench, card, &work, kind, row, error);
    }
    for (int i = 0; i < BENCH_PEERS; i++)
        tg_device_release(card->device, work.frames[i]);
    tg_feedback_free(work.feedback);
    tg_codec_free(work.codec);
    return status;
}

/* ---- printing ---- */

static void print_text(const struct bench *bench, const struct card *card, const struct card_row *rows, size_t count)
{
    struct table table;
    printf("%s, %zu elements%s; copy %.2f TB/s read and written\n\n", tg_device_name(card->device), bench->count,
           bench->feedback ? ", with feedback" : "", card->copied * 1e-12);
    table_start(&table, "lrrrrrr");
    table_cell(&table, "microseconds (fraction of copy)");
    table_cell(&table, "bits");
    for (int kind = 0; kind < KINDS; kind++)
        table_cell(&table, "%s", kind_names[kind]);
    for (size_t i = 0; i < count; i++) {
        if (rows[i].refusal[0])
            continue;
        table_cell(&table, "%s", rows[i].label);
        table_cell(&table, "%.3f", 8 * (double)rows[i].bytes / (double)bench->count);
        for (int kind = 0; kind < KINDS; kind++)
            table_cell(&table, "%.1f (%.2f)", rows[i].seconds[kind] * 1e6, fraction(bench, card, &rows[i], kind));
    }
    table_end(&table, stdout);
    for (size_t i = 0; i < count; i++)
        if (rows[i].refusal[0])
            printf("%s: %s\n", rows[i].label, rows[i].refusal);
}

static void print_json(const struct bench *bench, const struct card *card, const struct card_row *rows, size_t count)
{
    struct json_writer json = json_writer_on(stdout);
    json_open_object(&json, NULL);
    json_put_text(&json, "device", tg_device_name(card->device));
    json_put_unsigned(&json, "count", bench->count);
    json_put_bool(&json, "feedback", bench->feedback);
    json_put_real(&json, "copy_bytes_per_second", card->copied);
    json_open_array(&json, "rows");
    for (size_t i = 0; i < count; i++) {
        json_open_object(&json, NULL);
        json_put_text(&json, "codec", rows[i].label);
        json_put_text(&json, "refusal", rows[i].refusal[0] ? rows[i].refusal : NULL);
        json_put_unsigned(&json, "bytes", rows[i].bytes);
        for (int kind = 0; !rows[i].refusal[0] && kind < KINDS; kind++) {
            json_open_object(&json, kind_keys[kind]);
            json_put_real(&json, "microseconds", rows[i].seconds[kind] * 1e6);
            json_put_real(&json, "fraction_of_copy", fraction(bench, card, &rows[i], kind));
            json_close_object(&json);
        }
        json_close_object(&json);
    }
    json_close_array(&json);
    json_close_object(&json);
}

bool bench_run_card(struct bench *bench, const struct spec_list *specs, bool as_json, struct message *message)
{
    struct card card = {.device = bench->device, .gradient_count = bench->gradient_count};
    tg_error error = {""};
    struct card_row *rows = calloc(specs->count, sizeof *rows);
    if (!rows)
        return fail(message, "no memory for %zu rows", specs->count);
    if (!bench_make_vectors(bench, message)) {
        bench_free_vectors(bench);
        free(rows);
        return false;
    }
    tg_status status = prepare(bench, &card, &error);
    if (status == TG_OK)
        status = measure_copy(bench, &card, &error);
    for (size_t i = 0; i < specs->count && status == TG_OK; i++)
        status = run_row(bench, &card, &specs->items[i], &rows[i], &error);
    if (status == TG_OK && as_json)
        print_json(bench, &card, rows, specs->count);
    else if (status == TG_OK)
        print_text(bench, &card, rows, specs->count);
    dispose(&card);
    bench_free_vectors(bench);
    free(rows);
    return status == TG_OK || fail(message, "%s", library_message(status, &error));
}
