/* Recursive descent with a limit on the depth; see json_reader.h. */
#include "json_reader.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 32

struct reader {
    const char *text, *at, *end;
    struct json_document *document;
    struct message *message;
};

static bool wrong(const struct reader *r, const char *what)
{
    return fail(r->message, "%s at byte %zu", what, (size_t)(r->at - r->text));
}

static void skip_space(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static bool take(struct reader *r, char wanted)
{
    skip_space(r);
    if (r->at == r->end || *r->at != wanted)
        return false;
    r->at++;
    return true;
}

/* Appends a node; its place goes to *place. */
static bool add_node(struct reader *r, enum json_type type, size_t *place)
{
    struct json_document *document = r->document;
    if (document->count == document->capacity) {
        size_t capacity = document->capacity * 2 + 64;
        struct json_node *nodes = realloc(document->nodes, capacity * sizeof *nodes);
        if (!nodes)
            return fail(r->message, "no memory for its JSON");
        document->nodes = nodes;
        document->capacity = capacity;
    }
    *place = document->count++;
    document->nodes[*place] = (struct json_node){.type = type, .start = r->at};
    return true;
}

static bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

static bool read_text(struct reader *r, size_t *place)
{
    if (!take(r, '"'))
        return wrong(r, "a text was expected");
    if (!add_node(r, JSON_TEXT, place))
        return false;
    const char *start = r->at;
    while (r->at < r->end && *r->at != '"') {
        if ((unsigned char)*r->at < 0x20)
            return wrong(r, "a control character inside a text");
        if (*r->at == '\\') {
            if (r->end - r->at < 2 || !strchr("\"\\/bfnrtu", r->at[1]) || r->at[1] == '\0')
                return wrong(r, "an unknown escape");
            if (r->at[1] == 'u') {
                for (int i = 2; i < 6; i++)
                    if (r->end - r->at <= i || !is_hex(r->at[i]))
                        return wrong(r, "an unknown escape");
            }
            r->at++;
        }
        r->at++;
    }
    r->document->nodes[*place].length = (size_t)(r->at - start);
    return take(r, '"') || wrong(r, "a text that does not end");
}

static bool take_digits(struct reader *r)
{
    const char *start = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    return r->at > start;
}

static bool read_number(struct reader *r, size_t *place)
{
    if (!add_node(r, JSON_NUMBER, place))
        return false;
    const char *start = r->at;
    if (*r->at == '-')
        r->at++;
    const char *digits = r->at;
    if (!take_digits(r) || (*digits == '0' && r->at - digits > 1))
        return wrong(r, "a value was expected");
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        if (!take_digits(r))
            return wrong(r, "digits were expected");
    }
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        r->at++;
        if (r->at < r->end && (*r->at == '+' || *r->at == '-'))
            r->at++;
        if (!take_digits(r))
            return wrong(r, "digits were expected");
    }
    r->document->nodes[*place].length = (size_t)(r->at - start);
    return true;
}

static bool read_word(struct reader *r, const char *word, enum json_type type, size_t *place)
{
    size_t length = strlen(word);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0)
        return wrong(r, "a value was expected");
    if (!add_node(r, type, place))
        return false;
    r->document->nodes[*place].length = length;
    r->at += length;
    return true;
}

static bool read_value(struct reader *r, unsigned depth, size_t *place);

/* The items of an array, or the keys and values of an object, up to and with the closing bracket. */
static bool read_items(struct reader *r, bool is_object, unsigned depth, size_t *place)
{
    if (depth == MAX_DEPTH)
        return wrong(r, "too many brackets within each other");
    if (!add_node(r, is_object ? JSON_OBJECT : JSON_ARRAY, place))
        return false;
    r->at++;
    char bracket = is_object ? '}' : ']';
    if (take(r, bracket))
        return true;
    size_t last = 0;
    for (;;) {
        size_t item = 0, key = 0;
        if (is_object && (!read_text(r, &key) || !(take(r, ':') || wrong(r, "a ':' was expected"))))
            return false;
        if (!read_value(r, depth + 1, &item))
            return false;
        if (is_object)
            r->document->nodes[key].next = item;
        size_t first = is_object ? key : item;
        if (last)
            r->document->nodes[last].next = first;
        else
            r->document->nodes[*place].child = first;
        last = item;
        if (take(r, bracket))
            return true;
        if (!take(r, ','))
            return wrong(r, "a ',' was expected");
    }
}

static bool read_value(struct reader *r, unsigned depth, size_t *place)
{
    skip_space(r);
    if (r->at == r->end)
        return wrong(r, "the end came too early");
    switch (*r->at) {
    case '{':
        return read_items(r, true, depth, place);
    case '[':
        return read_items(r, false, depth, place);
    case '"':
        return read_text(r, place);
    case 't':
        return read_word(r, "true", JSON_BOOL, place);
    case 'f':
        return read_word(r, "false", JSON_BOOL, place);
    case 'n':
        return read_word(r, "null", JSON_NULL, place);
    default:
        return read_number(r, place);
    }
}

bool json_parse(const char *text, size_t size, struct json_document *document, struct message *message)
{
    *document = (struct json_document){0};
    struct reader reader = {text, text, text + size, document, message};
    size_t root = 0;
    if (!read_value(&reader, 0, &root))
        return false;
    skip_space(&reader);
    return reader.at == reader.end || wrong(&reader, "something follows the document");
}

void json_free(struct json_document *document)
{
    free(document->nodes);
    *document = (struct json_document){0};
}

const struct json_node *json_member(const struct json_document *document, const struct json_node *object,
                                    const char *key)
{
    if (object->type != JSON_OBJECT)
        return NULL;
    for (size_t at = object->child; at;) {
        const struct json_node *name = &document->nodes[at];
        const struct json_node *value = &document->nodes[name->next];
        if (name->length == strlen(key) && memcmp(name->start, key, name->length) == 0)
            return value;
        at = value->next;
    }
    return NULL;
}

static size_t put_code_point(unsigned code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = length; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead[length] | code);
    return length;
}

static unsigned hex_value(const char *digits)
{
    char text[5];
    memcpy(text, digits, 4);
    text[4] = '\0';
    return (unsigned)strtoul(text, NULL, 16);
}

/* The escape at *at (after the backslash), which json_parse has found well formed. */
static size_t undo_escape(const char **at, const char *end, char out[4])
{
    static const char names[] = "bfnrt", meanings[] = "\b\f\n\r\t";
    char kind = *(*at)++;
    const char *found = strchr(names, kind);
    if (kind != 'u') {
        out[0] = found ? meanings[found - names] : kind;
        return 1;
    }
    unsigned code = hex_value(*at);
    *at += 4;
    if (code >= 0xd800 && code < 0xdc00 && end - *at >= 6 && (*at)[0] == '\\' && (*at)[1] == 'u') {
        unsigned low = hex_value(*at + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            *at += 6;
            return put_code_point(0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00), out);
        }
    }
    bool is_unpaired = code >= 0xd800 && code < 0xe000;
    return put_code_point(is_unpaired || code == 0 ? 0xfffd : code, out);
}

bool json_get_text(const struct json_node *node, char *text, size_t capacity)
{
    if (!node || node->type != JSON_TEXT)
        return false;
    size_t used = 0;
    for (const char *at = node->start, *end = node->start + node->length; at < end;) {
        char decoded[4];
        size_t length = 1;
        decoded[0] = *at++;
        if (decoded[0] == '\\')
            length = undo_escape(&at, end, decoded);
        if (used + length >= capacity)
            return false;
        memcpy(text + used, decoded, length);
        used += length;
    }
    text[used] = '\0';
    return true;
}

bool json_get_unsigned(const struct json_node *node, uint64_t *number)
{
    if (!node || node->type != JSON_NUMBER)
        return false;
    uint64_t value = 0;
    for (size_t i = 0; i < node->length; i++) {
        if (node->start[i] < '0' || node->start[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(node->start[i] - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *number = value;
    return true;
}
