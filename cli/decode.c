/* `tersegrad decode`: frames to .npy vectors, one each. */
#include "commands.h"
#include "files.h"
#include "common/npy.h"
#include "json_writer.h"
#include "outputs.h"
#include "table.h"
#include "terminal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct decode_settings {
    int dtype; /* place among dtype_choices, or -1: as the frame says */
    struct output_settings output;
    bool json;
};

static const struct output_rule decode_rule = {.from = ".tg", .to = ".npy"};

struct decode_result {
    tg_frame_info info;
    char codec[TG_SPEC_TEXT];
    enum npy_type type;
    void *values; /* the caller frees */
};

static enum npy_type output_type(int dtype, tg_dtype frame_dtype)
{
    if (dtype >= 0)
        return dtype == 0 ? NPY_F4 : NPY_F2;
    /* .npy has no bfloat16; float32 holds every one of its values. */
    return frame_dtype == TG_FLOAT16 ? NPY_F2 : NPY_F4;
}

static tg_status decode_frame(tg_device *device, tg_frame frame, int dtype, struct decode_result *result,
                              tg_error *error)
{
    tg_status status = tg_frame_verify(device, frame, &result->info, error);
    if (status == TG_OK)
        status = tg_spec_print(&result->info.spec, result->codec, sizeof result->codec, error);
    if (status != TG_OK)
        return status;
    result->type = output_type(dtype, result->info.dtype);
    size_t size = (size_t)result->info.count * result->type;
    result->values = malloc(size ? size : 1);
    if (!result->values) {
        snprintf(error->message, sizeof error->message, "out of memory for its %zu bytes", size);
        return TG_OUT_OF_MEMORY;
    }
    const tg_tensor out = {result->values, result->info.count, result->type == NPY_F2 ? TG_FLOAT16 : TG_FLOAT32};
    return tg_decode(device, &frame, 1, 1.0f, TG_VERIFIED, &out, error);
}

static void put_result(struct json_writer *json, const struct decode_result *result, const char *in, const char *out)
{
    const tg_frame_info *info = &result->info;
    double count = (double)info->count, bytes = (double)info->bytes;
    json_open_object(json, NULL);
    json_put_text(json, "input", in);
    json_put_text(json, "output", out);
    json_put_text(json, "codec", result->codec);
    json_put_unsigned(json, "count", info->count);
    json_put_text(json, "dtype", result->type == NPY_F2 ? "float16" : "float32");
    json_put_unsigned(json, "bytes", info->bytes);
    json_put_real(json, "bits_per_element", info->count ? 8 * bytes / count : NAN);
    json_put_real(json, "ratio", count * (double)tg_dtype_size(info->dtype) / bytes);
    json_close_object(json);
}

static void print_line(const char *path, const struct decode_result *result)
{
    FILE *out = is_standard_stream(path) ? stderr : stdout;
    if (out == stdout) {
        print_clean(out, path);
        fputs(": ", out);
    }
    char count[GROUPED_MAX], bytes[GROUPED_MAX];
    fprintf(out, "%s elements of %s from %s bytes of %s\n", grouped(result->info.count, count),
            result->type == NPY_F2 ? "float16" : "float32", grouped(result->info.bytes, bytes), result->codec);
}

static bool decode_file(const struct decode_settings *settings, const char *in, const char *out,
                        struct json_writer *json, struct failure *failure)
{
    struct file_bytes file;
    if (!read_file(in, &file, failure))
        return false;
    tg_error error = {""};
    tg_device *device = NULL;
    struct decode_result result = {.values = NULL};
    tg_status status = tg_device_open("cpu", NULL, &device, &error);
    if (status == TG_OK)
        status = decode_frame(device, (tg_frame){file.bytes, file.size}, settings->dtype, &result, &error);
    tg_device_free(device);
    free(file.bytes);

    bool is_done;
    if (status == TG_OK) {
        char header[NPY_HEADER_MAX];
        npy_pack(result.values, result.info.count, result.type);
        const struct piece pieces[] = {
            {header, npy_write_header(result.type, result.info.count, header)},
            {result.values, (size_t)result.info.count * result.type},
        };
        is_done = write_file(out, pieces, 2, failure);
    } else {
        is_done = fail(failure, "cannot decode '%s': %s", is_standard_stream(in) ? "standard input" : in,
                       library_message(status, &error));
    }
    if (is_done && settings->json)
        put_result(json, &result, in, out);
    else if (is_done && !settings->output.quiet)
        print_line(out, &result);
    free(result.values);
    return is_done;
}

/* One that fails does not stop the others. */
static int decode_files(const struct command *command, const struct decode_settings *settings,
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
        char *output = choose_output(&decode_rule, &settings->output, plan, plan->inputs[i], &failure);
        if (!output || !decode_file(settings, plan->inputs[i], output, &json, &failure)) {
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

static int run_decode(const struct command *command, int argc, char **argv)
{
    struct decode_settings settings = {.dtype = -1};
    size_t count;
    int exit_code;
    if (!options_parse_all(command, argc, argv, &settings, &count, &exit_code))
        return exit_code;
    struct file_plan plan;
    struct failure failure = {""};
    if (!plan_files(&decode_rule, &settings.output, argv, count, settings.json, &plan, &failure)) {
        complain(command->name, "%s", failure.text);
        return EXIT_USAGE;
    }
    return decode_files(command, &settings, &plan);
}

static const char *const dtype_choices[] = {"f4", "f2", NULL};

static const struct option decode_options[] = {
    {.name = "--dtype",
     .kind = OPTION_CHOICE,
     .value = "f4|f2",
     .choices = dtype_choices,
     .summary = "write float32 or float16 (default: the type that was encoded; bfloat16, which .npy lacks, "
                "becomes f4)",
     .offset = offsetof(struct decode_settings, dtype)},
    OUTPUT_OPTIONS(struct decode_settings, "IN.npy for IN.tg"),
    OPTION_JSON(struct decode_settings),
    {0},
};

const struct command decode_command = {
    .name = "decode",
    .summary = "turn a frame back into a .npy vector",
    .operands = {"IN.tg"},
    .repeats_last = true,
    .description =
        "Checks each frame IN.tg, decodes it and writes a flat vector: IN.npy, or the file after -o. A damaged "
        "frame is refused, and nothing is written for it. '-' is stdin or stdout. The second of two names is "
        "the output if it ends in .npy.",
    .options = decode_options,
    .examples = "  tersegrad decode gradient.tg -o restored.npy\n"
                "  tersegrad decode --dtype f2 --force gradient.tg\n"
                "  tersegrad encode fp16 gradient.npy -o - | tersegrad decode - -o restored.npy",
    .run = run_decode,
};
