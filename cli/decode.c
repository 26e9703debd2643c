/* `tersegrad decode`: one frame to one .npy vector. */
#include "commands.h"
#include "files.h"
#include "json_writer.h"
#include "common/npy.h"
#include "table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct decode_settings {
    int dtype; /* place among dtype_choices, or -1: as the frame says */
    bool json;
};

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
        snprintf(error->message, sizeof error->message, "no memory for its %zu bytes", size);
        return TG_OUT_OF_MEMORY;
    }
    const tg_tensor out = {result->values, result->info.count, result->type == NPY_F2 ? TG_FLOAT16 : TG_FLOAT32};
    return tg_decode(device, &frame, 1, 1.0f, TG_VERIFIED, &out, error);
}

static void print_json(const struct decode_result *result)
{
    const tg_frame_info *info = &result->info;
    double count = (double)info->count, bytes = (double)info->bytes;
    struct json_writer json = json_writer_on(stdout);
    json_open_object(&json, NULL);
    json_put_text(&json, "codec", result->codec);
    json_put_unsigned(&json, "count", info->count);
    json_put_text(&json, "dtype", result->type == NPY_F2 ? "float16" : "float32");
    json_put_unsigned(&json, "bytes", info->bytes);
    json_put_real(&json, "bits_per_element", info->count ? 8 * bytes / count : NAN);
    json_put_real(&json, "ratio", count * (double)tg_dtype_size(info->dtype) / bytes);
    json_close_object(&json);
}

static void print_line(FILE *out, const struct decode_result *result)
{
    char count[GROUPED_MAX], bytes[GROUPED_MAX];
    fprintf(out, "%s elements of %s from %s bytes of %s\n", grouped(result->info.count, count),
            result->type == NPY_F2 ? "float16" : "float32", grouped(result->info.bytes, bytes), result->codec);
}

static bool decode_file(const struct decode_settings *settings, const char *in, const char *out,
                        struct message *message)
{
    struct file_bytes file;
    if (!read_file(in, &file, message))
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
        is_done = write_file(out, pieces, 2, message);
    } else {
        is_done = fail(message, "cannot decode '%s': %s", is_standard_stream(in) ? "standard input" : in,
                       library_message(status, &error));
    }
    if (is_done && settings->json)
        print_json(&result);
    else if (is_done)
        print_line(is_standard_stream(out) ? stderr : stdout, &result);
    free(result.values);
    return is_done;
}

static int run_decode(const struct command *command, int argc, char **argv)
{
    struct decode_settings settings = {.dtype = -1};
    const char *operands[OPERANDS_MAX];
    int exit_code;
    if (!options_parse(command, argc, argv, &settings, operands, &exit_code))
        return exit_code;
    if (settings.json && is_standard_stream(operands[1])) {
        complain(command->name, "--json prints on stdout, where OUT.npy '-' goes too; give a file name");
        return EXIT_USAGE;
    }
    struct message message = {""};
    if (!decode_file(&settings, operands[0], operands[1], &message)) {
        complain(command->name, "%s", message.text);
        return EXIT_FAILED;
    }
    return EXIT_DONE;
}

static const char *const dtype_choices[] = {"f4", "f2", NULL};

static const struct option decode_options[] = {
    {.name = "--dtype",
     .kind = OPTION_CHOICE,
     .value = "f4|f2",
     .choices = dtype_choices,
     .summary = "write float32 or float16 (default: as it was encoded;\nbfloat16, which .npy lacks, becomes f4)",
     .offset = offsetof(struct decode_settings, dtype)},
    OPTION_JSON(struct decode_settings),
    {0},
};

const struct command decode_command = {
    .name = "decode",
    .summary = "turn a frame back into a .npy vector",
    .operands = {"IN.tg", "OUT.npy"},
    .description = "Checks the frame IN.tg, decodes it and writes a flat vector to OUT.npy. A frame that is damaged\n"
                   "is refused, and nothing is written. '-' is stdin or stdout.",
    .options = decode_options,
    .examples = "  tersegrad decode gradient.tg restored.npy\n"
                "  tersegrad decode --dtype f2 gradient.tg restored.npy\n"
                "  tersegrad encode fp16 gradient.npy - | tersegrad decode - restored.npy",
    .run = run_decode,
};
