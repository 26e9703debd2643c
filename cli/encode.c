/* `tersegrad encode`: .npy vectors to frames, one each. */
#include "commands.h"
#include "gradient.h"
#include "json_writer.h"
#include "outputs.h"
#include "suggest.h"
#include "table.h"
#include "terminal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct encode_settings {
    uint64_t seed, step, tensor, rank;
    int nonfinite;
    bool no_checksum;
    struct output_settings output;
    bool json;
};

static const struct output_rule encode_rule = {.from = ".npy", .to = ".tg", .takes_other_endings = true};

struct encode_result {
    char codec[TG_SPEC_TEXT];
    tg_encode_report report;
    void *frame;
};

/* Encodes into result->frame, which the caller frees, also after a failure. */
static bool encode_tensor(const tg_spec *spec, const tg_tensor *input, const tg_encode_options *options,
                          struct encode_result *result, struct failure *failure)
{
    tg_error error = {""};
    tg_device *device = NULL;
    tg_codec *codec = NULL;
    tg_status status = tg_spec_print(spec, result->codec, sizeof result->codec, &error);
    if (status == TG_OK)
        status = tg_device_open("cpu", NULL, &device, &error);
    if (status == TG_OK)
        status = tg_codec_create(device, spec, input->count, &codec, &error);
    if (status == TG_OK) {
        size_t bound = tg_frame_bound(codec, input->count);
        result->frame = malloc(bound);
        if (result->frame)
            status = tg_encode(codec, input, options, result->frame, bound, &result->report, &error);
        else
            status = TG_OUT_OF_MEMORY;
    }
    tg_codec_free(codec);
    tg_device_free(device);
    return status == TG_OK || fail(failure, "%s", library_message(status, &error));
}

static void put_result(struct json_writer *json, const struct encode_result *result, const tg_tensor *input,
                       const char *in, const char *out)
{
    const tg_encode_report *report = &result->report;
    double count = (double)input->count, bytes = (double)report->bytes;
    json_open_object(json, NULL);
    json_put_text(json, "input", in);
    json_put_text(json, "output", out);
    json_put_text(json, "codec", result->codec);
    json_put_unsigned(json, "count", input->count);
    json_put_unsigned(json, "bytes", report->bytes);
    json_put_real(json, "bits_per_element", input->count ? 8 * bytes / count : NAN);
    json_put_real(json, "ratio", count * (double)tg_dtype_size(input->dtype) / bytes);
    json_put_unsigned(json, "selected", report->selected);
    json_put_unsigned(json, "saturated", report->saturated);
    json_put_unsigned(json, "dropped", report->dropped);
    json_close_object(json);
}

static void print_line(const char *path, const struct encode_result *result, const tg_tensor *input)
{
    const tg_encode_report *report = &result->report;
    FILE *out = is_standard_stream(path) ? stderr : stdout;
    if (out == stdout) {
        print_clean(out, path);
        fputs(": ", out);
    }
    char count[GROUPED_MAX], bytes[GROUPED_MAX], number[GROUPED_MAX];
    fprintf(out, "%s elements, %s bytes", grouped(input->count, count), grouped(report->bytes, bytes));
    if (input->count > 0) {
        double raw = (double)input->count * (double)tg_dtype_size(input->dtype);
        fprintf(out, ", %.4g bits per element, ratio %.4g", 8 * (double)report->bytes / (double)input->count,
                raw / (double)report->bytes);
    }
    if (report->selected < input->count)
        fprintf(out, ", %s selected", grouped(report->selected, number));
    fprintf(out, ", %s dropped", grouped(report->dropped, number));
    fprintf(out, ", %s saturated\n", grouped(report->saturated, number));
}

static bool encode_file(const struct command *command, const struct encode_settings *settings, const tg_spec *spec,
                        const char *in, const char *out, struct json_writer *json, struct failure *failure)
{
    struct gradient gradient;
    if (!gradient_load(in, false, &gradient, failure))
        return false;
    if (!settings->output.quiet)
        gradient_warn(&gradient, command->name, in);

    const tg_encode_options options = {
        .draw = {settings->seed, settings->step, (uint32_t)settings->tensor, (uint32_t)settings->rank},
        .nonfinite = (tg_nonfinite)settings->nonfinite,
        .no_checksum = settings->no_checksum,
    };
    struct encode_result result = {.frame = NULL};
    struct failure reason = {""};
    bool is_done = encode_tensor(spec, &gradient.tensor, &options, &result, &reason) ||
                   fail(failure, "cannot encode '%s': %s", is_standard_stream(in) ? "standard input" : in, reason.text);
    if (is_done) {
        const struct piece piece = {result.frame, result.report.bytes};
        is_done = write_file(out, &piece, 1, failure);
    }
    if (is_done && settings->json)
        put_result(json, &result, &gradient.tensor, in, out);
    else if (is_done && !settings->output.quiet)
        print_line(out, &result, &gradient.tensor);
    free(result.frame);
    gradient_free(&gradient);
    return is_done;
}

/* One that fails does not stop the others. */
static int encode_files(const struct command *command, const struct encode_settings *settings, const tg_spec *spec,
                        const struct file_plan *plan)
{
    struct json_writer json = json_writer_on(stdout);
    int exit_code = EXIT_DONE;
    if (settings->json && plan->count > 1) {
        json_open_object(&json, NULL);
        json_open_array(&json, "files");
    }
    for (size_t i = 0; i < plan->count; i++) {
        struct failure failure = {""};
        char *output = choose_output(&encode_rule, &settings->output, plan, plan->inputs[i], &failure);
        if (!output || !encode_file(command, settings, spec, plan->inputs[i], output, &json, &failure)) {
            complain(command->name, "%s", failure.text);
            exit_code = EXIT_FAILED;
        }
        free(output);
    }
    if (settings->json && plan->count > 1) {
        json_close_array(&json);
        json_close_object(&json);
    }
    return exit_code;
}

static int run_encode(const struct command *command, int argc, char **argv)
{
    struct encode_settings settings = {0};
    size_t count;
    int exit_code;
    if (!options_parse_all(command, argc, argv, &settings, &count, &exit_code))
        return exit_code;
    tg_spec spec;
    struct failure failure = {""};
    if (!parse_spec(argv[0], &spec, &failure)) {
        complain(command->name, "%s", failure.text);
        fputs("Try 'tersegrad codecs'.\n", stderr);
        return EXIT_USAGE;
    }
    struct file_plan plan;
    if (!plan_files(&encode_rule, &settings.output, argv + 1, count - 1, settings.json, &plan, &failure)) {
        complain(command->name, "%s", failure.text);
        return EXIT_USAGE;
    }
    return encode_files(command, &settings, &spec, &plan);
}

const char *const nonfinite_choices[] = {
    [TG_NONFINITE_REJECT] = "reject", [TG_NONFINITE_ZERO] = "zero", [TG_NONFINITE_TRUST] = "trust", NULL};

static const struct option encode_options[] = {
    {.name = "--seed",
     .kind = OPTION_NUMBER,
     .value = "N",
     .high = UINT64_MAX,
     .summary = "seed of the random numbers (default 0)",
     .offset = offsetof(struct encode_settings, seed)},
    {.name = "--step",
     .kind = OPTION_NUMBER,
     .value = "N",
     .high = UINT64_MAX,
     .summary = "training step; other steps have other random numbers (default 0)",
     .offset = offsetof(struct encode_settings, step)},
    {.name = "--tensor",
     .kind = OPTION_NUMBER,
     .value = "N",
     .high = UINT32_MAX,
     .summary = "number of the tensor, likewise (default 0)",
     .offset = offsetof(struct encode_settings, tensor)},
    {.name = "--rank",
     .kind = OPTION_NUMBER,
     .value = "N",
     .high = UINT32_MAX,
     .summary = "rank of the sender, likewise (default 0)",
     .offset = offsetof(struct encode_settings, rank)},
    {.name = "--nonfinite",
     .kind = OPTION_CHOICE,
     .value = "NAME",
     .choices = nonfinite_choices,
     .summary = "reject|zero|trust: with infinities or NaN, refuse the vector, put zeros there, or do not look for "
                "them (default reject)",
     .offset = offsetof(struct encode_settings, nonfinite)},
    {.name = "--no-checksum",
     .kind = OPTION_FLAG,
     .summary = "leave the checksum out of the frame",
     .offset = offsetof(struct encode_settings, no_checksum)},
    OUTPUT_OPTIONS(struct encode_settings, "IN.tg for IN.npy"),
    OPTION_JSON(struct encode_settings),
    {0},
};

const struct command encode_command = {
    .name = "encode",
    .summary = "compress a .npy vector into a frame",
    .operands = {"SPEC", "IN.npy"},
    .repeats_last = true,
    .description =
        "Compresses each IN.npy (float16 or float32; float64 becomes float32) with the codec SPEC and writes one "
        "frame for it: IN.tg, or the file after -o. Any shape is taken as one flat vector. '-' is stdin or stdout. The "
        "second of two names is the output if it ends in .tg.",
    .options = encode_options,
    .examples = "  tersegrad encode qsgd:levels=7,bucket=512 gradient.npy\n"
                "  tersegrad encode topk:density=0.01 layer1.npy layer2.npy\n"
                "  tersegrad encode topk:density=0.01 --json gradient.npy -o small.tg\n"
                "  tersegrad encode terngrad --seed 7 --step 100 gradient.npy -o - | wc -c",
    .run = run_encode,
};
