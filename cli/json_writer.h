/* Writes one JSON document, indented. Keys are NULL inside arrays. A number that is not finite becomes null. */
#ifndef CLI_JSON_WRITER_H
#define CLI_JSON_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_DEPTH 8

struct json_writer {
    FILE *out;
    unsigned depth;
    bool has_items[JSON_DEPTH + 1]; /* of the array or object at each depth */
    bool on_one_line[JSON_DEPTH + 1];
};

struct json_writer json_writer_on(FILE *out);

void json_open_object(struct json_writer *json, const char *key);
void json_close_object(struct json_writer *json);
void json_open_array(struct json_writer *json, const char *key);
/* The same with its items on one line, for numbers. */
void json_open_row(struct json_writer *json, const char *key);
void json_close_array(struct json_writer *json);

void json_put_text(struct json_writer *json, const char *key, const char *text); /* NULL gives null */
void json_put_unsigned(struct json_writer *json, const char *key, uint64_t number);
void json_put_real(struct json_writer *json, const char *key, double number);
void json_put_bool(struct json_writer *json, const char *key, bool value);
void json_put_null(struct json_writer *json, const char *key);

#endif
