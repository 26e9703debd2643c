/* `tersegrad bench`: how long the codecs take, how small the frames are and what is lost. */
#include "bench.h"

#include "commands.h"
#include "json_writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench_settings {
    uint64_t count;
    const char *distribution;
    struct text_list codecs;
    const char *device;
    const char *tensors;
    bool feedback;
    int nonfinite;
    double seconds;
    bool devices;
    bool decades;
    bool compare;
    bool wide;
    bool json;
};

bool bench_make_vectors(struct bench *bench, struct failure *failure)
{
    size_t place = 0;
    for (size_t i = 0; i < bench->gradient_count; i++)
        if (!vector_create(&bench->gradients[i], bench->count, place++, failure))
            return false;
    return vector_create(&bench->sum, bench->count, place, failure) &&
           vector_create(&bench->copy, bench->count, place + 1, failure) &&
           fill_gradients(bench->distribution, bench->gradients, bench->gradient_count, bench->count, bench->command,
                          failure);
}

void bench_free_vectors(struct bench *bench)
{
    for (size_t i = 0; i < bench->gradient_count; i++)
        vector_free(&bench->gradients[i]);
    vector_free(&bench->copy);
    vector_free(&bench->sum);
}

static bool run_rows(struct bench *bench, const struct spec_list *specs, struct bench_row *rows,
                     struct failure *failure)
{
    progress_start(&bench->progress, "measuring");
    bench->row_count = specs->count;
    bool is_done = true;
    bench_time_floors(bench);
    for (size_t i = 0; i < specs->count && is_done; i++) {
        bench->rows_done = i;
        rows[i].spec = &specs->items[i];
        is_done = bench_row_run(bench, &rows[i], failure);
    }
    progress_end(&bench->progress);
    return is_done;
}

bool bench_measure(struct bench *bench, const struct spec_list *specs, struct bench_row *rows, struct failure *failure)
{
    for (int i = 0; i < FLOOR_COUNT; i++)
        bench->floors_ms[i] = INFINITY;
    bool is_done = bench_make_vectors(bench, failure) && run_rows(bench, specs, rows, failure);
    bench_free_vectors(bench);
    return is_done;
}

static bool run_all(struct bench *bench, const struct spec_list *specs, const struct bench_settings *settings,
                    struct failure *failure)
{
    if (strncmp(tg_device_name(bench->device), "cuda", 4) == 0)
        return bench_run_card(bench, specs,
                              &(struct card_settings){.tensors = settings->tensors,
                                                      .compare = settings->compare,
                                                      .wide = settings->wide,
                                                      .json = settings->json},
                              failure);
    if (settings->decades)
        return bench_run_decades(bench, specs, settings->json, failure);
    struct comparison *comparison = NULL;
    struct bench_row *rows = calloc(specs->count, sizeof *rows);
    if (!rows)
        return fail(failure, "out of memory for %zu rows", specs->count);
    bool is_done = bench_measure(bench, specs, rows, failure) &&
                   (!settings->compare || comparison_run(bench, &comparison, failure));
    if (is_done && settings->json)
        bench_print_json(bench, rows, specs->count, comparison);
    else if (is_done)
        bench_print_text(bench, rows, specs->count, settings->wide, comparison);
    free(comparison);
    free(rows);
    return is_done;
}

/* Whatever is wrong with the options shows here, before anything runs. */
static int run_with(const struct command *command, const struct bench_settings *settings, struct spec_list *specs)
{
    struct failure failure = {""};
    if (!spec_list_fill(specs, &settings->codecs, &failure)) {
        complain(command->name, "%s", failure.text);
        fputs("Try 'tersegrad codecs'.\n", stderr);
        return EXIT_USAGE;
    }
    struct bench bench = {
        .command = command->name,
        .distribution = settings->distribution,
        .count = (size_t)settings->count,
        .feedback = settings->feedback,
        .nonfinite = (tg_nonfinite)settings->nonfinite,
        .seconds = settings->seconds,
        .gradient_count = settings->feedback ? BENCH_GRADIENTS : 1,
        .one_ruler = settings->compare, /* ours and theirs against the same floors */
    };
    tg_error error = {""};
    tg_status status = tg_device_open(settings->device, NULL, &bench.device, &error);
    if (status != TG_OK) {
        complain(command->name, "%s", library_message(status, &error));
        return status == TG_UNKNOWN_DEVICE ? EXIT_USAGE : EXIT_FAILED;
    }
    int exit_code = EXIT_DONE;
    if (!team_create(&bench.team, device_threads(tg_device_name(bench.device)), &failure) ||
        !run_all(&bench, specs, settings, &failure)) {
        complain(command->name, "%s", failure.text);
        exit_code = EXIT_FAILED;
    }
    team_free(bench.team);
    tg_device_free(bench.device);
    return exit_code;
}

static int print_devices(bool as_json)
{
    if (!as_json) {
        for (size_t i = 0; tg_device_list(i); i++)
            puts(tg_device_list(i));
        return EXIT_DONE;
    }
    struct json_writer json = json_writer_on(stdout);
    json_open_object(&json, NULL);
    json_open_array(&json, "devices");
    for (size_t i = 0; tg_device_list(i); i++)
        json_put_text(&json, NULL, tg_device_list(i));
    json_close_array(&json);
    json_close_object(&json);
    return EXIT_DONE;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static int run_bench(const struct command *command, int argc, char **argv)
{
    struct bench_settings settings = {.count = 1000000, .distribution = "gaussian", .device = "cpu", .seconds = 0.2};
    const char *operands[OPERANDS_MAX];
    int exit_code;
    if (!options_parse(command, argc, argv, &settings, operands, &exit_code))
        return exit_code;
    if (settings.devices)
        return print_devices(settings.json);
    if (settings.tensors && strncmp(settings.device, "cuda", 4) != 0) {
        complain(command->name, "--tensors is for cards: give --device cuda too");
        return EXIT_USAGE;
    }
    if (settings.decades && settings.compare) {
        complain(command->name, "--decades and --compare cannot be combined");
        return EXIT_USAGE;
    }
    if (!is_distribution(settings.distribution) && !ends_with(settings.distribution, ".npy")) {
        complain(command->name, "--distribution takes " DISTRIBUTION_NAMES ", or a FILE.npy, not '%s'",
                 settings.distribution);
        return EXIT_USAGE;
    }
    struct spec_list *specs = malloc(sizeof *specs);
    if (!specs) {
        complain(command->name, "out of memory");
        return EXIT_FAILED;
    }
    exit_code = run_with(command, &settings, specs);
    free(specs);
    return exit_code;
}

static const struct option bench_options[] = {
    {.name = "-n",
     .kind = OPTION_NUMBER,
     .value = "COUNT",
     .low = 1,
     .high = TG_MAX_COUNT,
     .summary = "elements of the vector (default 1000000)",
     .offset = offsetof(struct bench_settings, count)},
    {.name = "--distribution",
     .kind = OPTION_TEXT,
     .value = "NAME",
     .summary = DISTRIBUTION_NAMES ", or FILE.npy, cut or repeated to COUNT (default gaussian)",
     .offset = offsetof(struct bench_settings, distribution)},
    {.name = "--codec",
     .kind = OPTION_LIST,
     .value = "SPEC",
     .summary = "a codec to measure; may be given again (default: all, and some variants)",
     .offset = offsetof(struct bench_settings, codecs)},
    {.name = "--device",
     .kind = OPTION_TEXT,
     .value = "NAME",
     .summary = "where to run; --devices lists them; NAME:threads=N uses N threads, 0 for all processors (default cpu)",
     .offset = offsetof(struct bench_settings, device)},
    {.name = "--devices",
     .kind = OPTION_FLAG,
     .summary = "print the names of the devices and nothing else",
     .offset = offsetof(struct bench_settings, devices)},
    {.name = "--feedback",
     .kind = OPTION_FLAG,
     .summary = "encode with error feedback, in one pass, with four gradients in rotation",
     .offset = offsetof(struct bench_settings, feedback)},
    {.name = "--nonfinite",
     .kind = OPTION_CHOICE,
     .value = "NAME",
     .choices = nonfinite_choices,
     .summary = "reject|zero|trust: what encoding does about infinities and NaN (default reject)",
     .offset = offsetof(struct bench_settings, nonfinite)},
    {.name = "--seconds",
     .kind = OPTION_REAL,
     .value = "S",
     .real_low = 0,
     .real_high = 3600,
     .summary = "time for each row; at least three rounds are run (default 0.2)",
     .offset = offsetof(struct bench_settings, seconds)},
    {.name = "--decades",
     .kind = OPTION_FLAG,
     .summary = "time per element in vectors of 10000, 100000, ... up to COUNT",
     .offset = offsetof(struct bench_settings, decades)},
    {.name = "--tensors",
     .kind = OPTION_TEXT,
     .value = "NAME",
     .summary = "on a card, also the tensors of a model (resnet50, gpt2, ...) or of a FILE.layout.json in one call",
     .offset = offsetof(struct bench_settings, tensors)},
    {.name = "--compare",
     .kind = OPTION_FLAG,
     .summary = "also time other libraries, where the python3 on PATH has them: torch, numpy, pypiquant, hivemind, "
                "zstd",
     .offset = offsetof(struct bench_settings, compare)},
    OPTION_WIDE(struct bench_settings),
    OPTION_JSON(struct bench_settings),
    {0},
};

const struct command bench_command = {
    .name = "bench",
    .summary = "time the codecs against what the memory allows",
    .description =
        "Times encode, decode, verify and decode-add of each codec, and alternately five floors, which are plain loops "
        "over a vector of COUNT floats: a read-only sum, a scale in place, e += g in place, a non-temporal copy and "
        "memcpy. The floors use as many threads as the codec. Every time is the minimum over all rounds. Speeds are "
        "in GB/s of float32 gradient. The error is |decoded - x|^2 / |x|^2 of one encode without feedback. Below the "
        "table is a short verdict that helps to choose a codec.\n\n"
        "On a card (--device cuda) gradients, sums and frames stay in its memory. Each time comes with the fraction of "
        "the speed of a copy there that it reaches; every byte that must be read or written counts once. Calls follow "
        "each other in a CUDA graph, so a time is that of the card's work; --wide adds calls that wait for their "
        "report. --tensors adds a row for each codec in which one call takes all tensors of a model.\n\n"
        "With --wide: encoding is divided by the read (with feedback: by e += g) and decode-add by the scale. '4 "
        "peers' "
        "is four frames added in one pass, divided by the scale. The limit is the Shannon entropy of the levels plus "
        "the scales; for sparsifiers, log2 C(d,k) plus the values. 'pays below' is the speed of a rank's link, in "
        "Gbit/s, below which sending frames takes less time than sending float32, with encoding and adding counted.",
    .options = bench_options,
    .examples = "  tersegrad bench\n"
                "  tersegrad bench -n 25600000 --codec topk:density=0.01 --feedback\n"
                "  tersegrad bench -n 100000000 --decades --codec qsgd --codec topk:density=0.01\n"
                "  tersegrad bench --distribution mixture --codec qsgd:levels=127 --json",
    .run = run_bench,
};
