/* The parser of LIBSVM's text; see libsvm.h. */
#include "libsvm.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct line_reader {
    const char *at, *end; /* the end of the line */
    const char *name;
    uint64_t line;
    struct failure *failure;
};

/* ---- room ---- */

static bool grow(void **array, uint64_t room, size_t size)
{
    void *larger = room <= SIZE_MAX / size ? realloc(*array, (size_t)room * size) : NULL;
    if (larger)
        *array = larger;
    return larger != NULL;
}

static bool row_room(struct sparse_rows *rows)
{
    if (rows->row_room > rows->rows + 1)
        return true;
    uint64_t room = rows->row_room * 2 + 1024;
    if (!grow((void **)&rows->labels, room, sizeof *rows->labels) ||
        !grow((void **)&rows->starts, room, sizeof *rows->starts))
        return false;
    rows->row_room = room;
    return true;
}

static bool entry_room(struct sparse_rows *rows)
{
    if (rows->entry_room > rows->entries)
        return true;
    uint64_t room = rows->entry_room * 2 + 65536;
    if (!grow((void **)&rows->indices, room, sizeof *rows->indices) ||
        !grow((void **)&rows->values, room, sizeof *rows->values))
        return false;
    rows->entry_room = room;
    return true;
}

void sparse_rows_free(struct sparse_rows *rows)
{
    free(rows->labels);
    free(rows->starts);
    free(rows->indices);
    free(rows->values);
    *rows = (struct sparse_rows){0};
}

/* ---- words ---- */

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static void skip_blanks(struct line_reader *reader)
{
    while (reader->at < reader->end && is_blank(*reader->at))
        reader->at++;
}

/* The text at this place, for a message: up to the next blank, and not too long. */
static int word_length(const struct line_reader *reader)
{
    int length = 0;
    while (length < 40 && reader->at + length < reader->end && !is_blank(reader->at[length]))
        length++;
    return length;
}

static bool refuse(const struct line_reader *reader, const char *what)
{
    return fail(reader->failure, "%s:%" PRIu64 ": %s: '%.*s'", reader->name, reader->line, what, word_length(reader),
                reader->at);
}

/* A decimal number of at most 15 digits is one exact division in double; the rest is for strtod. */
static bool take_real(struct line_reader *reader, float *value)
{
    static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const char *at = reader->at;
    bool is_negative = at < reader->end && *at == '-';
    at += at < reader->end && (*at == '-' || *at == '+');
    uint64_t digits = 0;
    unsigned digit_count = 0, behind_point = 0;
    bool has_point = false;
    for (; at < reader->end && ((*at >= '0' && *at <= '9') || (*at == '.' && !has_point)); at++) {
        if (*at == '.') {
            has_point = true;
            continue;
        }
        digits = digits * 10 + (uint64_t)(*at - '0');
        digit_count++;
        behind_point += has_point;
        if (digit_count > 15)
            break;
    }
    bool is_short = digit_count > 0 && digit_count <= 15 && (at == reader->end || is_blank(*at) || *at == ':');
    if (is_short) {
        double magnitude = (double)digits / powers[behind_point];
        *value = (float)(is_negative ? -magnitude : magnitude);
        reader->at = at;
        return true;
    }
    /* Letters other than an exponent's would let strtod take "inf", "nan" and hexadecimal. */
    const char *stop = reader->at;
    while (stop < reader->end && strchr("0123456789+-.eE", *stop) && *stop)
        stop++;
    char *end;
    double number = strtod(reader->at, &end);
    if (end == reader->at || end != stop || !isfinite((float)number))
        return false;
    *value = (float)number;
    reader->at = end;
    return true;
}

/* A whole word that is a number; where it is not, the reader stays at its beginning. */
static bool take_real_word(struct line_reader *reader, float *value)
{
    const char *start = reader->at;
    if (take_real(reader, value) && (reader->at == reader->end || is_blank(*reader->at)))
        return true;
    reader->at = start;
    return false;
}

static bool take_index(struct line_reader *reader, uint32_t *index)
{
    uint64_t value = 0;
    const char *start = reader->at;
    for (; reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9'; reader->at++) {
        value = value * 10 + (uint64_t)(*reader->at - '0');
        if (value > LIBSVM_MOST_FEATURES)
            break;
    }
    bool is_good = reader->at > start && reader->at < reader->end && *reader->at == ':' && value >= 1;
    if (!is_good || value > LIBSVM_MOST_FEATURES) {
        reader->at = start;
        return false;
    }
    reader->at++;
    *index = (uint32_t)(value - 1);
    return true;
}

/* ---- lines ---- */

static bool no_memory(const struct line_reader *reader)
{
    return fail(reader->failure, "%s:%" PRIu64 ": out of memory for the rows so far", reader->name, reader->line);
}

static bool take_entry(struct line_reader *reader, struct sparse_rows *rows, int64_t *last)
{
    uint32_t index;
    float value;
    if (!take_index(reader, &index))
        return refuse(reader, "an entry must be INDEX:VALUE with an index from 1 to 67108864");
    if ((int64_t)index <= *last)
        return fail(reader->failure,
                    "%s:%" PRIu64 ": index %" PRIu32 " comes after index %" PRId64 "; they must increase", reader->name,
                    reader->line, index + 1, *last + 1);
    if (!take_real_word(reader, &value))
        return refuse(reader, "a value must be a finite number");
    if (!entry_room(rows))
        return no_memory(reader);
    rows->indices[rows->entries] = index;
    rows->values[rows->entries] = value;
    rows->entries++;
    *last = index;
    if (index >= rows->features)
        rows->features = index + 1;
    return true;
}

static bool take_line(struct line_reader *reader, struct sparse_rows *rows)
{
    skip_blanks(reader);
    if (reader->at == reader->end)
        return true; /* nothing there, or only a comment */
    float label;
    if (!take_real_word(reader, &label))
        return refuse(reader, "a line must begin with a label, a finite number");
    if (!row_room(rows))
        return no_memory(reader);
    int64_t last = -1;
    for (skip_blanks(reader); reader->at < reader->end; skip_blanks(reader))
        if (!take_entry(reader, rows, &last))
            return false;
    rows->labels[rows->rows] = label;
    rows->rows++;
    rows->starts[rows->rows] = rows->entries;
    return true;
}

bool libsvm_parse(const char *text, size_t size, const char *name, struct sparse_rows *rows, struct failure *failure)
{
    struct line_reader reader = {.name = name, .failure = failure};
    const char *end = text + size;
    if (!row_room(rows))
        return no_memory(&reader);
    if (rows->rows == 0)
        rows->starts[0] = 0;
    for (const char *at = text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *next = newline ? newline : end;
        const char *comment = memchr(at, '#', (size_t)(next - at));
        reader.at = at;
        reader.end = comment ? comment : next;
        reader.line++;
        if (!take_line(&reader, rows))
            return false;
        at = next + 1;
    }
    return true;
}
