/* See json_reader.h. */
#include "json_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef CLI_HAS_JANSSON

json_t *json_read(const char *text, size_t size, struct failure *failure)
{
    json_error_t error;
    json_t *value = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!value) {
        /* Of this one jansson says how a program could allow it. */
        const char *what = strstr(error.text, "JSON_") ? "a text has the character \\u0000 in it" : error.text;
        fail(failure,
             error.line > 1
                 ? "it is not valid JSON: %s (column %d of line %d); correct the file there, or make it again"
                 : "it is not valid JSON: %s (column %d); correct the file there, or make it again",
             what, error.column, error.line);
    }
    return value;
}

bool json_is_count(const json_t *value, uint64_t *count)
{
    const json_int_t number = json_integer_value(value); /* 0 where it is none */
    if (!json_is_integer(value) || number < 0)
        return false;
    *count = (uint64_t)number;
    return true;
}

const char *json_shown(const json_t *value, char text[JSON_SHOWN])
{
    const char *kind = !value                  ? "missing"
                       : json_is_array(value)  ? "a list"
                       : json_is_object(value) ? "an object"
                                               : NULL;
    char *written = kind ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
    const char *shown = kind ? kind : written ? written : "a value";
    const bool is_long = strlen(shown) >= JSON_SHOWN;
    snprintf(text, JSON_SHOWN, "%.*s%s", is_long ? JSON_SHOWN - 4 : JSON_SHOWN, shown, is_long ? "..." : "");
    free(written);
    return text;
}

#endif
