/* A small JSON reader, safe on any bytes: the text becomes an array of nodes, each with its first child and its next
 * sibling. Good for configuration-sized documents. */
#ifndef CLI_JSON_READER_H
#define CLI_JSON_READER_H

#include "message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_TEXT, JSON_ARRAY, JSON_OBJECT };

struct json_node {
    enum json_type type;
    const char *start; /* of a text: after its quote */
    size_t length;
    size_t child; /* the first child's place among the nodes, 0 for none; an object has key, value, key, ... */
    size_t next;  /* the next sibling's, 0 for none */
};

struct json_document {
    struct json_node *nodes; /* node 0 is the whole document */
    size_t count, capacity;
};

/* The nodes point into `text`, which must stay. Free the document with json_free, also after a failure. */
bool json_parse(const char *text, size_t size, struct json_document *document, struct message *message);
void json_free(struct json_document *document);

/* The value of an object's key, or NULL. */
const struct json_node *json_member(const struct json_document *document, const struct json_node *object,
                                    const char *key);

/* A text's characters with escapes undone; false if the node is no text or does not fit. */
bool json_get_text(const struct json_node *node, char *text, size_t capacity);

/* A whole number from 0 to 2^64 - 1; false for anything else. */
bool json_get_unsigned(const struct json_node *node, uint64_t *number);

#endif
