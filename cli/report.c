/* `tersegrad report`: the logs of several trainings on one page. */
#include "commands.h"
#include "files.h"
#include "json_reader.h"
#include "outputs.h"
#include "report_logs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct report_settings {
    struct output_settings output;
    bool json;
};

#ifdef CLI_HAS_JANSSON

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static bool read_logs(struct report_logs *logs, char **paths, size_t count, struct failure *failure)
{
    for (size_t i = 0; i < count; i++) {
        struct file_bytes file;
        if (!read_file(paths[i], &file, failure))
            return false;
        const bool is_read = report_logs_read(logs, &file, name_of(paths[i]), failure);
        free(file.bytes);
        if (!is_read)
            return false;
    }
    report_logs_settle(logs);
    return true;
}

static bool write_report(const struct report_settings *settings, const struct origin *origin, char **paths,
                         size_t count, struct failure *failure)
{
    struct report_logs *logs = calloc(1, sizeof *logs);
    char description[640];
    if (!logs)
        return fail(failure, "out of memory for the logs");
    bool is_done = read_logs(logs, paths, count, failure);
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
        is_done = page_write(settings->output.path, &page, failure);
    }
    if (is_done && settings->json)
        train_print_json(&logs->report, NULL, NULL, stdout);
    else if (is_done && !settings->output.quiet)
        printf("%s: %zu runs from %zu log%s\n", settings->output.path, logs->report.run_count, count,
               count == 1 ? "" : "s");
    report_logs_free(logs);
    free(logs);
    return is_done;
}

#else

static bool write_report(const struct report_settings *settings, const struct origin *origin, char **paths,
                         size_t count, struct failure *failure)
{
    (void)settings, (void)origin, (void)paths, (void)count;
    return fail(failure, NO_JSON);
}

#endif

static int run_report(const struct command *command, int argc, char **argv)
{
    struct report_settings settings = {.output.path = "report.html"};
    static const struct output_rule rule = {.from = ".jsonl", .to = ".html", .takes_other_endings = true};
    struct failure failure = {""};
    struct origin origin;
    size_t count;
    int exit_code;
    origin_fill(&origin, command->name, argc, argv);
    if (!options_parse_all(command, argc, argv, &settings, &count, &exit_code))
        return exit_code;
    for (size_t i = 0; i < count; i++) {
        const struct file_plan plan = {.inputs = argv, .count = 1, .output = settings.output.path};
        char *output = choose_output(&rule, &settings.output, &plan, argv[i], &failure);
        if (!output) {
            complain(command->name, "%s", failure.text);
            return EXIT_FAILED;
        }
        free(output);
    }
    if (!write_report(&settings, &origin, argv, count, &failure)) {
        complain(command->name, "%s", failure.text);
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
