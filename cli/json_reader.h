/* JSON is read with jansson, by whoever includes this. Where the command was built without it, readers say NO_JSON. */
#ifndef CLI_JSON_READER_H
#define CLI_JSON_READER_H

#include "complain.h"

#define NO_JSON "this tersegrad was built without jansson, which reads JSON; install libjansson-dev and build it again"

#ifdef CLI_HAS_JANSSON
#include <jansson.h>
#include <stdint.h>

/* The value that `text` is, to be released with json_decref; NULL and why not. Safe on any bytes. */
json_t *json_read(const char *text, size_t size, struct failure *failure);

/* A whole number that is not negative; false for anything else, and for NULL. */
bool json_is_count(const json_t *value, uint64_t *count);

/* A value for a message: as it would be written, cut where it is long; "missing", "a list", "an object". Returns
 * `text`. */
#define JSON_SHOWN 48
const char *json_shown(const json_t *value, char text[JSON_SHOWN]);
#endif

#endif
