/* A JSON writer; see json_writer.h. */
#include "json_writer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct json_writer json_writer_on(FILE *out) { return (struct json_writer){.out = out}; }

static void break_line(const struct json_writer *json)
{
    fputc('\n', json->out);
    for (unsigned i = 0; i < json->depth; i++)
        fputs("  ", json->out);
}

/* The length of the UTF-8 sequence at `text`, or 0 where there is none. */
static size_t utf8_length(const unsigned char *text)
{
    static const struct {
        unsigned char low, high;
        size_t length;
    } kinds[] = {{0xc2, 0xdf, 2}, {0xe0, 0xef, 3}, {0xf0, 0xf4, 4}};
    for (size_t k = 0; k < 3; k++) {
        if (text[0] < kinds[k].low || text[0] > kinds[k].high)
            continue;
        for (size_t i = 1; i < kinds[k].length; i++)
            if ((text[i] & 0xc0) != 0x80)
                return 0;
        bool is_overlong = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xf0 && text[1] < 0x90);
        bool is_surrogate = text[0] == 0xed && text[1] >= 0xa0;
        bool is_beyond = text[0] == 0xf4 && text[1] >= 0x90;
        return is_overlong || is_surrogate || is_beyond ? 0 : kinds[k].length;
    }
    return 0;
}

static void put_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        size_t length = *at < 0x80 ? 1 : utf8_length(at);
        if (length == 0) {
            fputs("\\ufffd", out);
            length = 1;
        } else if (*at == '"' || *at == '\\') {
            fprintf(out, "\\%c", *at);
        } else if (*at < 0x20 || *at == 0x7f) {
            fprintf(out, "\\u%04x", (unsigned)*at);
        } else {
            fwrite(at, 1, length, out);
        }
        at += length;
    }
    fputc('"', out);
}

/* What goes before every item: a comma, a line, a key. */
static void begin_item(struct json_writer *json, const char *key)
{
    if (json->depth > 0) {
        if (json->has_items[json->depth])
            fputc(',', json->out);
        if (!json->on_one_line[json->depth])
            break_line(json);
        else if (json->has_items[json->depth])
            fputc(' ', json->out);
        json->has_items[json->depth] = true;
    }
    if (key) {
        put_string(json->out, key);
        fputs(": ", json->out);
    }
}

static void open_level(struct json_writer *json, const char *key, char bracket, bool on_one_line)
{
    begin_item(json, key);
    fputc(bracket, json->out);
    if (json->depth == JSON_DEPTH)
        abort(); /* the documents here are at most five deep */
    json->depth++;
    json->has_items[json->depth] = false;
    json->on_one_line[json->depth] = on_one_line;
}

static void close_level(struct json_writer *json, char bracket)
{
    bool breaks = json->has_items[json->depth] && !json->on_one_line[json->depth];
    json->depth--;
    if (breaks)
        break_line(json);
    fputc(bracket, json->out);
    if (json->depth == 0)
        fputc('\n', json->out);
}

void json_open_object(struct json_writer *json, const char *key) { open_level(json, key, '{', false); }

void json_close_object(struct json_writer *json) { close_level(json, '}'); }

void json_open_array(struct json_writer *json, const char *key) { open_level(json, key, '[', false); }

void json_open_row(struct json_writer *json, const char *key) { open_level(json, key, '[', true); }

void json_close_array(struct json_writer *json) { close_level(json, ']'); }

void json_put_text(struct json_writer *json, const char *key, const char *text)
{
    begin_item(json, key);
    if (text)
        put_string(json->out, text);
    else
        fputs("null", json->out);
}

void json_put_unsigned(struct json_writer *json, const char *key, uint64_t number)
{
    begin_item(json, key);
    fprintf(json->out, "%" PRIu64, number);
}

void json_put_real(struct json_writer *json, const char *key, double number)
{
    begin_item(json, key);
    if (!isfinite(number)) {
        fputs("null", json->out);
        return;
    }
    /* The shortest text that reads back as the same number. */
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    fputs(text, json->out);
}

void json_put_bool(struct json_writer *json, const char *key, bool value)
{
    begin_item(json, key);
    fputs(value ? "true" : "false", json->out);
}

void json_put_null(struct json_writer *json, const char *key)
{
    begin_item(json, key);
    fputs("null", json->out);
}
