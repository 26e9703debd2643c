/* See json_reader.h. */
#include "json_reader.h"

#ifdef CLI_HAS_JANSSON

json_t *json_read(const char *text, size_t size, struct message *message)
{
    json_error_t error;
    json_t *value = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!value)
        fail(message,
             error.line > 1 ? "it is not valid JSON: %s (column %d of line %d)"
                            : "it is not valid JSON: %s (column %d)",
             error.text, error.column, error.line);
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

#endif
