/* `tersegrad report`: the logs of several trainings on one page. */
#include "commands.h"
#include "files.h"
#include "json_reader.h"
#include "outputs.h"
#include "train.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct report_settings {
    struct output_settings output;
    bool json;
};

#ifdef CLI_HAS_JANSSON

/* What was read: the runs' codecs and logs beside the report that points to them. */
struct logs {
    struct train_report report;
    struct train_codec codecs[TRAIN_MOST_RUNS];
    const char *sources[TRAIN_MOST_RUNS];
    const char *commands[TRAIN_MOST_RUNS]; /* each in `texts` */
    char texts[TRAIN_MOST_RUNS + 1][ORIGIN_TEXT + 256];
    size_t text_count;
};

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

static void copy_at(const json_t *line, const char *name, char *text, size_t capacity)
{
    const char *value = json_string_value(json_object_get(line, name));
    snprintf(text, capacity, "%s", value ? value : "");
}

/* The first line: what the trainings had in common. The first log speaks for all. */
static void read_header(const json_t *line, struct logs *logs)
{
    struct train_report *report = &logs->report;
    struct origin origin;
    copy_at(line, "command", origin.command, sizeof origin.command);
    copy_at(line, "date", origin.date, sizeof origin.date);
    copy_at(line, "host", origin.host, sizeof origin.host);
    snprintf(logs->texts[logs->text_count], sizeof logs->texts[0], "%s (%s, %s, seed %" PRIu64 ")", origin.command,
             origin.date, origin.host, count_at(line, "seed"));
    if (count_at(line, "hosts") > report->hosts)
        report->hosts = (uint32_t)count_at(line, "hosts");
    if (report->data[0])
        return;
    copy_at(line, "data", report->data, sizeof report->data);
    copy_at(line, "model", report->model, sizeof report->model);
    copy_at(line, "link", report->link, sizeof report->link);
    report->world = (uint32_t)count_at(line, "workers");
    report->steps = count_at(line, "steps");
    report->on_test_rows = json_is_true(json_object_get(line, "on_test_rows"));
    report->point_rows = count_at(line, "point_rows");
    report->result_rows = count_at(line, "rows");
}

static bool start_run(struct logs *logs, const json_t *line, const char *source, struct message *message)
{
    const size_t at = logs->report.run_count;
    if (at == TRAIN_MOST_RUNS)
        return fail(message, "a page shows at most %d runs", TRAIN_MOST_RUNS);
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

static bool add_point(struct train_result *run, const json_t *line, struct message *message)
{
    if (run->point_count == run->point_room) {
        size_t room = run->point_room * 2 + 64;
        struct train_point *points = realloc(run->points, room * sizeof *points);
        if (!points)
            return fail(message, "out of memory for %zu points", room);
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

static bool read_step(struct train_result *run, const json_t *line, struct message *message)
{
    const double wire_ratio = real_at(line, "wire_ratio");
    run->steps = count_at(line, "step");
    run->skipped += json_is_true(json_object_get(line, "skipped"));
    run->bytes_sent = count_at(line, "bytes_sent");
    run->dense_bytes = isfinite(wire_ratio) ? (uint64_t)(wire_ratio * (double)run->bytes_sent + 0.5) : 0;
    run->ratio = real_at(line, "frame_ratio");
    return !json_object_get(line, "loss") || add_point(run, line, message);
}

/* ---- a log ---- */

/* Runs of one log follow each other; a run whose number is that of the line before goes on. */
static bool read_line(struct logs *logs, const json_t *line, const char *source, size_t first, struct message *message)
{
    struct train_report *report = &logs->report;
    if (json_object_get(line, "tersegrad")) {
        read_header(line, logs);
        return true;
    }
    uint64_t run;
    if (!json_is_count(json_object_get(line, "run"), &run) || !json_object_get(line, "step"))
        return fail(message, "it is not from a log of 'tersegrad train --log'");
    if (run > report->run_count - first || run + 1 < report->run_count - first)
        return fail(message, "run %" PRIu64 " is out of order", run);
    if (run == report->run_count - first && !start_run(logs, line, source, message))
        return false;
    return read_step(&report->runs[report->run_count - 1], line, message);
}

static bool read_lines(struct logs *logs, const struct file_bytes *file, const char *source, struct message *message)
{
    const size_t first = logs->report.run_count;
    size_t number = 1;
    logs->text_count += first > 0; /* every log has a run at least, and a text */
    for (const char *at = (const char *)file->bytes, *end = at + file->size; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline)
            break; /* it was being written: the steps before it count */
        struct message reason = {""};
        json_t *line = json_read(at, (size_t)(newline - at), &reason);
        const bool is_read = line && read_line(logs, line, source, first, &reason);
        json_decref(line);
        if (!is_read)
            return fail(message, "cannot read the log '%s': line %zu: %s", source, number, reason.text);
        at = newline + 1;
    }
    return logs->report.run_count > first || fail(message, "the log '%s' has no steps", source);
}

/* The figures of a log's last point; of a run that was cut short they are over a part of the rows. */
static void settle(struct train_report *report)
{
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

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static bool read_logs(struct logs *logs, char **paths, size_t count, struct message *message)
{
    for (size_t i = 0; i < count; i++) {
        struct file_bytes file;
        if (!read_file(paths[i], &file, message))
            return false;
        const bool is_read = read_lines(logs, &file, name_of(paths[i]), message);
        free(file.bytes);
        if (!is_read)
            return false;
    }
    settle(&logs->report);
    return true;
}

static bool write_report(const struct report_settings *settings, const struct origin *origin, char **paths,
                         size_t count, struct message *message)
{
    struct logs *logs = calloc(1, sizeof *logs);
    char description[640];
    if (!logs)
        return fail(message, "out of memory for the logs");
    bool is_done = read_logs(logs, paths, count, message);
    if (is_done) {
        snprintf(description, sizeof description, "%s%s%s, %" PRIu32 " workers, from %zu log%s.", logs->report.data,
                 logs->report.model[0] ? "; " : "", logs->report.model, logs->report.world, count,
                 count == 1 ? "" : "s");
        const struct page page = {.report = &logs->report,
                                  .origin = origin,
                                  .heading = count == 1 ? "Run" : "Runs compared",
                                  .description = description,
                                  .sources = logs->sources,
                                  .commands = logs->commands};
        is_done = page_write(settings->output.path, &page, message);
    }
    if (is_done && settings->json)
        train_print_json(&logs->report, NULL, NULL, stdout);
    else if (is_done && !settings->output.quiet)
        printf("%s: %zu runs from %zu log%s\n", settings->output.path, logs->report.run_count, count,
               count == 1 ? "" : "s");
    train_report_free(&logs->report);
    free(logs);
    return is_done;
}

#else

static bool write_report(const struct report_settings *settings, const struct origin *origin, char **paths,
                         size_t count, struct message *message)
{
    (void)settings, (void)origin, (void)paths, (void)count;
    return fail(message, NO_JSON);
}

#endif

static int run_report(const struct command *command, int argc, char **argv)
{
    struct report_settings settings = {.output.path = "report.html"};
    static const struct output_rule rule = {.from = ".jsonl", .to = ".html", .takes_other_endings = true};
    struct message message = {""};
    struct origin origin;
    size_t count;
    int exit_code;
    origin_fill(&origin, command->name, argc, argv);
    if (!options_parse_all(command, argc, argv, &settings, &count, &exit_code))
        return exit_code;
    for (size_t i = 0; i < count; i++) {
        const struct file_plan plan = {.inputs = argv, .count = 1, .output = settings.output.path};
        char *output = choose_output(&rule, &settings.output, &plan, argv[i], &message);
        if (!output) {
            complain(command->name, "%s", message.text);
            return EXIT_FAILED;
        }
        free(output);
    }
    if (!write_report(&settings, &origin, argv, count, &message)) {
        complain(command->name, "%s", message.text);
        return EXIT_FAILED;
    }
    return EXIT_DONE;
}

static const struct option report_options[] = {
    OUTPUT_OPTIONS(struct report_settings, "report.html"),
    OPTION_JSON(struct report_settings),
    {0},
};

const struct command report_command = {
    .name = "report",
    .summary = "compare saved logs of training on one page",
    .operands = {"LOG.jsonl"},
    .repeats_last = true,
    .description =
        "Draws the page of 'tersegrad train --report' from one or more logs that --log has written, with all runs side "
        "by side. The log of a run that has not ended, or was killed, is read up to its last whole line.",
    .options = report_options,
    .examples = "  tersegrad report monday.jsonl tuesday.jsonl -o compared.html\n"
                "  tersegrad report run.jsonl --force",
    .run = run_report,
};
