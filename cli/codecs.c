/* `tersegrad codecs`: the library's table of codecs, as text or JSON. */
#include "commands.h"
#include "json_writer.h"
#include "table.h"
#include "terminal.h"

#include <stdio.h>
#include <string.h>

struct codecs_settings {
    bool names;
    bool json;
};

static void print_json(void)
{
    struct json_writer json = json_writer_on(stdout);
    tg_codec_info info;
    json_open_object(&json, NULL);
    json_open_array(&json, "codecs");
    for (size_t i = 0; tg_codec_list(i, &info) == TG_OK; i++) {
        json_open_object(&json, NULL);
        json_put_text(&json, "name", info.name);
        json_put_text(&json, "summary", info.summary);
        json_put_bool(&json, "sparse", info.sparse);
        json_put_bool(&json, "unbiased", info.unbiased);
        json_open_array(&json, "parameters");
        for (size_t p = 0; p < info.parameter_count; p++) {
            json_open_object(&json, NULL);
            json_put_text(&json, "name", info.parameters[p].name);
            json_put_text(&json, "range", info.parameters[p].range);
            json_put_text(&json, "default", info.parameters[p].standard);
            json_put_text(&json, "summary", info.parameters[p].summary);
            json_close_object(&json);
        }
        json_close_array(&json);
        json_close_object(&json);
    }
    json_close_array(&json);
    json_open_array(&json, "devices");
    for (size_t i = 0; tg_device_list(i); i++)
        json_put_text(&json, NULL, tg_device_list(i));
    json_close_array(&json);
    json_close_object(&json);
}

static void print_names(void)
{
    tg_codec_info info;
    for (size_t i = 0; tg_codec_list(i, &info) == TG_OK; i++)
        puts(info.name);
}

static bool have_same_parameters(const tg_codec_info *a, const tg_codec_info *b)
{
    if (a->parameter_count != b->parameter_count)
        return false;
    for (size_t p = 0; p < a->parameter_count; p++) {
        const tg_parameter_info *x = &a->parameters[p], *y = &b->parameters[p];
        if (strcmp(x->name, y->name) || strcmp(x->range, y->range) || strcmp(x->standard, y->standard) ||
            strcmp(x->summary, y->summary))
            return false;
    }
    return true;
}

static void print_parameters(const tg_codec_info *info)
{
    struct table table;
    table_start(&table, "llll");
    table_cell(&table, "key");
    table_cell(&table, "values");
    table_cell(&table, "default");
    table_cell(&table, "meaning");
    for (size_t p = 0; p < info->parameter_count; p++) {
        table_cell(&table, "%s", info->parameters[p].name);
        table_cell(&table, "%s", info->parameters[p].range);
        table_cell(&table, "%s", info->parameters[p].standard);
        table_cell(&table, "%s", info->parameters[p].summary);
    }
    table_fit(&table, 3, terminal_width(stdout));
    table_end(&table, stdout);
}

static void print_codec(const tg_codec_info *info)
{
    char text[256];
    snprintf(text, sizeof text, "%s%s%s", info->summary, info->sparse ? " [sparse]" : "",
             info->unbiased ? " [unbiased]" : "");
    printf("%s%-9s%s  ", colour_on(stdout, COLOUR_HEADING), info->name, colour_off(stdout));
    print_rest(stdout, text, 11);
}

static void print_text(void)
{
    print_wrapped(
        stdout, "A codec is written NAME or NAME:KEY=VALUE,KEY=VALUE; keys that are left out take their defaults.", 0);
    puts("");
    tg_codec_info info, next;
    bool is_more = tg_codec_list(0, &info) == TG_OK;
    for (size_t i = 1; is_more; i++, info = next) {
        print_codec(&info);
        is_more = tg_codec_list(i, &next) == TG_OK;
        /* Neighbours that take the same parameters share one table, below the last of them. */
        if (is_more && have_same_parameters(&info, &next))
            continue;
        if (info.parameter_count > 0)
            print_parameters(&info);
        puts("");
    }
    printf("Devices of this machine:");
    for (size_t i = 0; tg_device_list(i); i++)
        printf(" %s", tg_device_list(i));
    puts("");
}

static int run_codecs(const struct command *command, int argc, char **argv)
{
    struct codecs_settings settings = {0};
    const char *operands[OPERANDS_MAX];
    int exit_code;
    if (!options_parse(command, argc, argv, &settings, operands, &exit_code))
        return exit_code;
    if (settings.json)
        print_json();
    else if (settings.names)
        print_names();
    else
        print_text();
    return EXIT_DONE;
}

static const struct option codecs_options[] = {
    {.name = "--names",
     .kind = OPTION_FLAG,
     .summary = "print the names alone, one on a line",
     .offset = offsetof(struct codecs_settings, names)},
    OPTION_JSON(struct codecs_settings),
    {0},
};

const struct command codecs_command = {
    .name = "codecs",
    .summary = "list the codecs, their parameters and the devices",
    .description = "Lists the codecs that this library has, with the parameters that each one takes.",
    .options = codecs_options,
    .examples = "  tersegrad codecs\n"
                "  tersegrad codecs --names\n"
                "  tersegrad codecs --json",
    .run = run_codecs,
};
