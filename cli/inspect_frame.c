/* A frame: its fields, what its bytes are used for, and whether it is valid. */
#include "inspect.h"
#include "json_writer.h"
#include "table.h"
#include "terminal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct frame_view {
    uint64_t size; /* of the file */
    tg_status status;
    char verdict[sizeof(tg_error) + 16];
    bool has_info; /* the header could be read */
    tg_frame_info info;
    char codec[TG_SPEC_TEXT];
    bool has_parts;
    tg_frame_parts parts;
};

static const char *dtype_text(tg_dtype dtype)
{
    switch (dtype) {
    case TG_FLOAT32:
        return "float32";
    case TG_FLOAT16:
        return "float16";
    case TG_BFLOAT16:
        return "bfloat16";
    }
    return "unknown";
}

static void look_at(tg_device *device, tg_frame frame, struct frame_view *view)
{
    tg_error error = {""};
    view->size = frame.size;
    view->has_info = tg_frame_read(frame, &view->info, NULL) == TG_OK &&
                     tg_spec_print(&view->info.spec, view->codec, sizeof view->codec, NULL) == TG_OK;
    view->status = tg_frame_verify(device, frame, NULL, &error);
    if (view->status == TG_OK)
        view->has_parts = tg_frame_measure(device, frame, &view->parts, NULL) == TG_OK;
    if (view->status == TG_OK)
        snprintf(view->verdict, sizeof view->verdict, "%s",
                 view->info.has_checksum ? "valid" : "valid, but without a checksum changed values cannot be found");
    else
        snprintf(view->verdict, sizeof view->verdict, "refused: %s", library_message(view->status, &error));
}

/* The bytes that were written are those that are there. A frame whose rules are broken under a checksum that holds was
 * written so. */
static bool checksum_holds(const struct frame_view *view)
{
    return view->has_info && (view->status == TG_OK || view->status == TG_CORRUPT);
}

static double bits_per_element(const struct frame_view *view)
{
    return view->has_info && view->info.count > 0 ? 8 * (double)view->size / (double)view->info.count : NAN;
}

/* ---- JSON ---- */

static void put_fields(struct json_writer *json, const struct frame_view *view)
{
    static const char *const numbers[] = {"seed", "step", "tensor", "rank"};
    const tg_frame_info *info = &view->info;
    const uint64_t values[] = {info->draw.seed, info->draw.step, info->draw.tensor, info->draw.rank};
    json_put_text(json, "codec", view->has_info ? view->codec : NULL);
    if (view->has_info)
        json_put_unsigned(json, "count", info->count);
    else
        json_put_null(json, "count");
    json_put_text(json, "dtype", view->has_info ? dtype_text(info->dtype) : NULL);
    json_put_unsigned(json, "bytes", view->size);
    json_put_real(json, "bits_per_element", bits_per_element(view));
    for (size_t i = 0; i < 4; i++) {
        if (view->has_info)
            json_put_unsigned(json, numbers[i], values[i]);
        else
            json_put_null(json, numbers[i]);
    }
    if (view->has_info && !info->has_checksum)
        json_put_null(json, "checksum_ok");
    else
        json_put_bool(json, "checksum_ok", checksum_holds(view));
}

static void print_json(const struct frame_view *view)
{
    struct json_writer json = json_writer_on(stdout);
    json_open_object(&json, NULL);
    put_fields(&json, view);
    json_put_text(&json, "verdict", view->verdict);
    if (view->has_info) {
        json_put_unsigned(&json, "version", view->info.version);
        json_put_text(&json, "layout", tg_layout_text(view->info.layout));
    }
    if (view->has_parts) {
        json_put_unsigned(&json, "selected", view->parts.selected);
        json_put_unsigned(&json, "scale_bytes", view->parts.scale_bytes);
        json_put_unsigned(&json, "index_bytes", view->parts.index_bytes);
        json_put_unsigned(&json, "value_bytes", view->parts.value_bytes);
        json_put_real(&json, "level_entropy", view->parts.level_entropy);
    }
    json_close_object(&json);
}

/* ---- text ---- */

static void print_part(const char *name, uint64_t bytes, uint64_t total)
{
    enum { BAR = 32 };
    if (bytes == 0)
        return;
    char number[GROUPED_MAX];
    printf("    %-9s %13s bytes  ", name, grouped(bytes, number));
    fputs(colour_on(stdout, COLOUR_BAR), stdout);
    draw_bar(stdout, (double)bytes / (double)total, BAR);
    printf("%s\n", colour_off(stdout));
}

static void print_sizes(const struct frame_view *view)
{
    char number[GROUPED_MAX];
    printf("  size      %s bytes", grouped(view->size, number));
    if (view->info.count > 0)
        printf(", %.4g bits per element, ratio %.4g", bits_per_element(view),
               (double)view->info.count * (double)tg_dtype_size(view->info.dtype) / (double)view->size);
    puts("");
    if (!view->has_parts)
        return;
    const tg_frame_parts *parts = &view->parts;
    uint64_t header = view->size - parts->scale_bytes - parts->index_bytes - parts->value_bytes;
    print_part("header", header, view->size);
    print_part("scales", parts->scale_bytes, view->size);
    print_part("indices", parts->index_bytes, view->size);
    print_part("values", parts->value_bytes, view->size);
}

static void print_text(const struct frame_view *view, const char *path)
{
    const tg_frame_info *info = &view->info;
    char number[GROUPED_MAX];
    print_clean(stdout, path);
    puts(view->has_info ? ": a frame" : ": a frame that cannot be read");
    if (view->has_info) {
        printf("  codec     %s\n", view->codec);
        printf("  elements  %s of %s", grouped(info->count, number), dtype_text(info->dtype));
        if (view->has_parts && view->parts.selected < info->count)
            printf(", %s sent", grouped(view->parts.selected, number));
        puts("");
    }
    print_sizes(view);
    if (view->has_info) {
        printf("  layout    %s\n", tg_layout_text(info->layout));
        printf("  draw      seed %" PRIu64 ", step %" PRIu64 ", tensor %" PRIu32 ", rank %" PRIu32 "\n",
               info->draw.seed, info->draw.step, info->draw.tensor, info->draw.rank);
        printf("  version   %u\n", info->version);
        printf("  checksum  %s\n", !info->has_checksum ? "none" : checksum_holds(view) ? "valid" : "wrong");
    }
    bool is_valid = view->status == TG_OK;
    printf("  verdict   %s%s%s\n", colour_on(stdout, is_valid ? COLOUR_GOOD : COLOUR_BAD), view->verdict,
           colour_off(stdout));
}

int inspect_frame(const struct command *command, const struct inspect_settings *settings, const char *path,
                  struct file_bytes *file)
{
    tg_error error = {""};
    tg_device *device = NULL;
    tg_status status = tg_device_open("cpu", NULL, &device, &error);
    if (status != TG_OK) {
        complain(command->name, "%s", library_message(status, &error));
        free(file->bytes);
        return EXIT_FAILED;
    }
    struct frame_view view = {0};
    look_at(device, (tg_frame){file->bytes, file->size}, &view);
    tg_device_free(device);
    free(file->bytes);
    if (settings->json)
        print_json(&view);
    else
        print_text(&view, path);
    if (view.status == TG_OK)
        return EXIT_DONE;
    complain(command->name, "'%s' is %s", path, view.verdict);
    return EXIT_FAILED;
}
