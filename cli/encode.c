/* `tersegrad encode`: one .npy vector to one frame. */
#include "commands.h"
#include "gradient.h"
#include "json_writer.h"
#include "table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct encode_settings {
    uint64_t seed, step, tensor, rank;
    int nonfinite;
    bool no_checksum;
    bool json;
};

struct encode_result {
    char codec[TG_SPEC_TEXT];
    tg_encode_report report;
    void *frame;
};

/* Encodes into result->frame, which the caller frees, also after a failure. */
static bool encode_tensor(const tg_spec *spec, const tg_tensor *input, const tg_encode_options *options,
                          struct encode_result *result, struct message *message)
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
    return status == TG_OK || fail(message, "%s", library_message(status, &error));
}

static void print_json(const struct encode_result *result, const tg_tensor *input)
{
    const tg_encode_report *report = &result->report;
    double count = (double)input->count, bytes = (double)report->bytes;
    struct json_writer json = json_writer_on(stdout);
    json_open_object(&json, NULL);
    json_put_text(&json, "codec", result->codec);
    json_put_unsigned(&json, "count", input->count);
    json_put_unsigned(&json, "bytes", report->bytes);
    json_put_real(&json, "bits_per_element", input->count ? 8 * bytes / count : NAN);
    json_put_real(&json, "ratio", count * (double)tg_dtype_size(input->dtype) / bytes);
    json_put_unsigned(&json, "selected", report->selected);
    json_put_unsigned(&json, "saturated", report->saturated);
    json_put_unsigned(&json, "dropped", report->dropped);
    json_close_object(&json);
}

static void print_line(FILE *out, const struct encode_result *result, const tg_tensor *input)
{
    const tg_encode_report *report = &result->report;
    char count[GROUPED_MAX], bytes[GROUPED_MAX], number[GROUPED_MAX];
    fprintf(out, "%s elements, %s bytes", grouped(input->count, count), grouped(report->bytes, bytes));
    if (input->count > 0) {
        double raw = (double)input->count * (double)tg_dtype_size(input->dtype);
        fprintf(out, ", %.4g bits an element, ratio %.4g", 8 * (double)report->bytes / (double)input->count,
                raw / (double)report->bytes);
    }
    if (report->selected < input->count)
        fprintf(out, ", %s selected", grouped(report->selected, number));
    fprintf(out, ", %s dropped", grouped(report->dropped, number));
    fprintf(out, ", %s saturated\n", grouped(report->saturated, number));
}

static bool encode_file(const struct command *command, const struct encode_settings *settings, const tg_spec *spec,
                        const char *in, const char *out, struct message *message)
{
    struct gradient gradient;
    if (!gradient_load(in, false, &gradient, message))
        return false;
    gradient_warn(&gradient, command->name, in);

    const tg_encode_options options = {
        .draw = {settings->seed, settings->step, (uint32_t)settings->tensor, (uint32_t)settings->rank},
        .nonfinite = (tg_nonfinite)settings->nonfinite,
        .no_checksum = settings->no_checksum,
    };
    struct encode_result result = {.frame = NULL};
    bool is_done = encode_tensor(spec, &gradient.tensor, &options, &result, message);
    if (is_done) {
        const struct piece piece = {result.frame, result.report.bytes};
        is_done = write_file(out, &piece, 1, message);
    }
    if (is_done && settings->json)
        print_json(&result, &gradient.tensor);
    else if (is_done)
        print_line(is_standard_stream(out) ? stderr : stdout, &result, &gradient.tensor);
    free(result.frame);
    gradient_free(&gradient);
    return is_done;
}

static int run_encode(const struct command *command, int argc, char **argv)
{
    struct encode_settings settings = {0};
    const char *operands[OPERANDS_MAX];
    int exit_code;
    if (!options_parse(command, argc, argv, &settings, operands, &exit_code))
        return exit_code;
    tg_spec spec;
    tg_error error = {""};
    tg_status status = tg_spec_parse(operands[0], &spec, &error);
    if (status != TG_OK) {
        complain(command->name, "%s", library_message(status, &error));
        fputs("Try 'tersegrad codecs'.\n", stderr);
        return EXIT_USAGE;
    }
    if (settings.json && is_standard_stream(operands[2])) {
        complain(command->name, "--json prints on stdout, where OUT.tg '-' goes too; give a file name");
        return EXIT_USAGE;
    }
    struct message message = {""};
    if (!encode_file(command, &settings, &spec, operands[1], operands[2], &message)) {
        complain(command->name, "%s", message.text);
        return EXIT_FAILED;
    }
    return EXIT_DONE;
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
     .summary = "training step, part of the random numbers' identity (default 0)",
     .offset = offsetof(struct encode_settings, step)},
    {.name = "--tensor",
     .kind = OPTION_NUMBER,
     .value = "N",
     .high = UINT32_MAX,
     .summary = "tensor number, likewise (default 0)",
     .offset = offsetof(struct encode_settings, tensor)},
    {.name = "--rank",
     .kind = OPTION_NUMBER,
     .value = "N",
     .high = UINT32_MAX,
     .summary = "rank of the sender, likewise (default 0)",
     .offset = offsetof(struct encode_settings, rank)},
    {.name = "--nonfinite",
     .kind = OPTION_CHOICE,
     .value = "reject|zero|trust",
     .choices = nonfinite_choices,
     .summary = "infinities and NaN: refuse the vector, put zeros there,\n"
                "or trust that there are none (default reject)",
     .offset = offsetof(struct encode_settings, nonfinite)},
    {.name = "--no-checksum",
     .kind = OPTION_FLAG,
     .summary = "leave the checksum out of the frame",
     .offset = offsetof(struct encode_settings, no_checksum)},
    OPTION_JSON(struct encode_settings),
    {0},
};

const struct command encode_command = {
    .name = "encode",
    .summary = "compress a .npy vector into a frame",
    .operands = {"SPEC", "IN.npy", "OUT.tg"},
    .description = "Compresses the floats of IN.npy (float16, float32; float64 is narrowed) with the codec SPEC and\n"
                   "writes one frame to OUT.tg. Any shape is taken as one flat vector. '-' is stdin or stdout.",
    .options = encode_options,
    .examples = "  tersegrad encode qsgd:levels=7,bucket=512 gradient.npy gradient.tg\n"
                "  tersegrad encode topk:density=0.01 --json gradient.npy gradient.tg\n"
                "  tersegrad encode terngrad --seed 7 --step 100 --rank 3 gradient.npy - | wc -c",
    .run = run_encode,
};
