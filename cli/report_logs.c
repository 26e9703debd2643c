/* See report_logs.h. */
#include "report_logs.h"
#include "json_reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef CLI_HAS_JANSSON

/* ---- a line ---- */

static double real_at(const json_t *line, const char *name)
{
    const json_t *value = json_object_get(line, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static uint64_t count_at(const json_t *line, const char *name)
{
    uint64_t count;
    return json_is_count(json_object_get(line, name), &count) ? count : 0;
}

static uint32_t count32_at(const json_t *line, const char *name)
{
    const uint64_t count = count_at(line, name);
    return count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
}

/* What is too long is cut between two characters. */
static void copy_at(const json_t *line, const char *name, char *text, size_t capacity)
{
    const char *value = json_string_value(json_object_get(line, name));
    size_t length = value ? strlen(value) : 0;
    if (length >= capacity)
        for (length = capacity - 1; length > 0 && ((unsigned char)value[length] & 0xc0) == 0x80;)
            length--;
    snprintf(text, capacity, "%.*s", (int)length, value ? value : "");
}

/* The first line: what the trainings had in common. The first log speaks for all. */
static void read_header(const json_t *line, struct report_logs *logs)
{
    struct train_report *report = &logs->report;
    struct origin origin;
    copy_at(line, "command", origin.command, sizeof origin.command);
    copy_at(line, "date", origin.date, sizeof origin.date);
    copy_at(line, "host", origin.host, sizeof origin.host);
    snprintf(logs->texts[logs->text_count], sizeof logs->texts[0], "%s (%s, %s, seed %" PRIu64 ")", origin.command,
             origin.date, origin.host, count_at(line, "seed"));
    if (count32_at(line, "hosts") > report->hosts)
        report->hosts = count32_at(line, "hosts");
    if (report->data[0])
        return;
    copy_at(line, "data", report->data, sizeof report->data);
    copy_at(line, "model", report->model, sizeof report->model);
    copy_at(line, "link", report->link, sizeof report->link);
    report->world = count32_at(line, "workers");
    report->steps = count_at(line, "steps");
    report->on_test_rows = json_is_true(json_object_get(line, "on_test_rows"));
    report->point_rows = count_at(line, "point_rows");
    report->result_rows = count_at(line, "rows");
}

static bool start_run(struct report_logs *logs, const json_t *line, const char *source, struct failure *failure)
{
    const size_t at = logs->report.run_count;
    if (at == TRAIN_MOST_RUNS)
        return fail(failure, "a page shows at most %d runs", TRAIN_MOST_RUNS);
    struct train_codec *codec = &logs->codecs[at];
    copy_at(line, "codec", codec->codec_text, sizeof codec->codec_text);
    copy_at(line, "feedback", codec->feedback_text, sizeof codec->feedback_text);
    if (tg_feedback_parse(codec->feedback_text, &codec->feedback, NULL) != TG_OK)
        codec->feedback = (tg_feedback_spec){.kind = TG_FEEDBACK_NONE};
    logs->sources[at] = source;
    logs->commands[at] = logs->texts[logs->text_count];
    logs->report.runs[at].codec = codec;
    logs->report.run_count++;
    return true;
}

static bool add_point(struct train_result *run, const json_t *line, struct failure *failure)
{
    if (run->point_count == run->point_room) {
        size_t room = run->point_room * 2 + 64;
        struct train_point *points = realloc(run->points, room * sizeof *points);
        if (!points)
            return fail(failure, "out of memory for %zu points", room);
        run->points = points;
        run->point_room = room;
    }
    run->points[run->point_count++] = (struct train_point){
        .step = count_at(line, "step"),
        .bytes_sent = count_at(line, "bytes_sent"),
        .batch_loss = real_at(line, "batch_loss"),
        .loss = real_at(line, "loss"),
        .accuracy = real_at(line, "accuracy"),
        .distance = real_at(line, "distance_to_optimum"),
        .residual_norm = real_at(line, "residual_norm"),
        .selected = real_at(line, "selected"),
        .seconds = real_at(line, "seconds"),
    };
    return true;
}

/* What so many bytes would have been; of ratios that no training has, 0 or the largest number of a log. */
static uint64_t dense_bytes(double ratio, uint64_t sent)
{
    const double bytes = ratio * (double)sent + 0.5;
    return !(bytes >= 0) ? 0 : bytes < 0x1p63 ? (uint64_t)bytes : INT64_MAX;
}

static bool read_step(struct train_result *run, const json_t *line, struct failure *failure)
{
    run->steps = count_at(line, "step");
    run->skipped += json_is_true(json_object_get(line, "skipped"));
    run->bytes_sent = count_at(line, "bytes_sent");
    run->dense_bytes = dense_bytes(real_at(line, "wire_ratio"), run->bytes_sent);
    run->ratio = real_at(line, "frame_ratio");
    return !json_object_get(line, "loss") || add_point(run, line, failure);
}

/* ---- a log ---- */

/* Runs of one log follow each other; a run whose number is that of the line before goes on. */
static bool read_line(struct report_logs *logs, const json_t *line, const char *source, size_t first,
                      struct failure *failure)
{
    struct train_report *report = &logs->report;
    if (json_object_get(line, "tersegrad")) {
        read_header(line, logs);
        return true;
    }
    uint64_t run;
    if (!json_is_count(json_object_get(line, "run"), &run) || !json_object_get(line, "step"))
        return fail(failure, "it is not from a log of 'tersegrad train --log'");
    if (run > report->run_count - first || run + 1 < report->run_count - first)
        return fail(failure, "run %" PRIu64 " is out of order", run);
    if (run == report->run_count - first && !start_run(logs, line, source, failure))
        return false;
    return read_step(&report->runs[report->run_count - 1], line, failure);
}

bool report_logs_read(struct report_logs *logs, const struct file_bytes *file, const char *source,
                      struct failure *failure)
{
    const size_t first = logs->report.run_count;
    size_t number = 1;
    logs->text_count += first > 0; /* every log has a run at least, and a text */
    for (const char *at = (const char *)file->bytes, *end = at + file->size; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline)
            break; /* it was being written: the steps before it count */
        struct failure reason = {""};
        json_t *line = json_read(at, (size_t)(newline - at), &reason);
        const bool is_read = line && read_line(logs, line, source, first, &reason);
        json_decref(line);
        if (!is_read)
            return fail(failure, "cannot read the log '%s': line %zu: %s", source, number, reason.text);
        at = newline + 1;
    }
    return logs->report.run_count > first || fail(failure, "the log '%s' has no steps", source);
}

/* Of a run that was cut short they are over a part of the rows. */
void report_logs_settle(struct report_logs *logs)
{
    struct train_report *report = &logs->report;
    for (size_t i = 0; i < report->run_count; i++) {
        struct train_result *run = &report->runs[i];
        const struct train_point none = {.loss = NAN, .accuracy = NAN, .distance = NAN};
        const struct train_point *last = run->point_count ? &run->points[run->point_count - 1] : &none;
        run->final_loss = last->loss;
        run->accuracy = last->accuracy;
        run->distance = last->distance;
        run->stopped = report->steps > 0 && run->steps < report->steps;
    }
}

void report_logs_free(struct report_logs *logs) { train_report_free(&logs->report); }

#endif
