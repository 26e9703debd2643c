/* Aligned columns; see table.h. */
#include "table.h"

#include "terminal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void table_start(struct table *table, const char *alignment)
{
    *table = (struct table){.alignment = alignment, .columns = strlen(alignment)};
}

void table_cell(struct table *table, const char *format, ...)
{
    if (table->count == table->capacity) {
        size_t capacity = table->capacity * 2 + 64;
        char **cells = realloc(table->cells, capacity * sizeof *cells);
        if (!cells) {
            table->out_of_memory = true;
            return;
        }
        table->cells = cells;
        table->capacity = capacity;
    }
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *cell = malloc((size_t)length + 1);
    if (cell)
        vsnprintf(cell, (size_t)length + 1, format, again);
    else
        table->out_of_memory = true;
    va_end(again);
    table->cells[table->count++] = cell;
}

static size_t column_width(const struct table *table, size_t column)
{
    size_t widest = 0;
    for (size_t i = column; i < table->count; i += table->columns) {
        size_t width = table->cells[i] ? text_width(table->cells[i]) : 0;
        widest = width > widest ? width : widest;
    }
    return widest;
}

void table_fit(struct table *table, size_t column, size_t width)
{
    table->fitted_column = column;
    table->fitted_width = width;
}

/* Two spaces stand before each column. */
static void fit_widths(const struct table *table, size_t *widths)
{
    enum { SHORTEST = 8 };
    size_t total = 0, *fitted = &widths[table->fitted_column];
    for (size_t column = 0; column < table->columns; column++)
        total += 2 + widths[column];
    if (table->fitted_width == 0 || total <= table->fitted_width)
        return;
    size_t excess = total - table->fitted_width;
    *fitted = *fitted > excess + SHORTEST ? *fitted - excess : SHORTEST;
}

/* The bytes of the first `width` characters. */
static size_t bytes_of(const char *text, size_t width)
{
    size_t bytes = 0;
    for (size_t shown = 0; text[bytes]; bytes++)
        if (((unsigned char)text[bytes] & 0xc0) != 0x80 && shown++ == width)
            break;
    return bytes;
}

static void print_bytes(FILE *out, const char *text, size_t bytes)
{
    char *start = malloc(bytes + 1);
    if (!start)
        return;
    memcpy(start, text, bytes);
    start[bytes] = '\0';
    print_clean(out, start);
    free(start);
}

/* At most `width` characters; what is cut ends with "…". */
static void print_cut(FILE *out, const char *text, size_t width)
{
    if (text_width(text) <= width) {
        print_clean(out, text);
        return;
    }
    print_bytes(out, text, bytes_of(text, width - 1));
    fputs("…", out);
}

/* Words in lines of at most `width` characters, each but the first behind `indent` spaces. */
static void print_folded(FILE *out, const char *text, size_t width, size_t indent)
{
    while (text_width(text) > width) {
        size_t bytes = bytes_of(text, width), end = bytes;
        while (end > 0 && text[end] != ' ')
            end--;
        print_bytes(out, text, end > 0 ? end : bytes);
        fprintf(out, "\n%*s", (int)indent, "");
        text += end > 0 ? end + 1 : bytes;
    }
    print_clean(out, text);
}

static void print_cell(FILE *out, const struct table *table, size_t column, const char *text, const size_t *widths)
{
    const bool is_last = column + 1 == table->columns, is_left = table->alignment[column] == 'l';
    if (!is_last || !is_left) {
        print_cut(out, text, widths[column]);
        return;
    }
    size_t indent = 2;
    for (size_t i = 0; i < column; i++)
        indent += widths[i] + 2;
    print_folded(out, text, widths[column], indent);
}

void table_end(struct table *table, FILE *out)
{
    enum { MOST_COLUMNS = 16 };
    size_t widths[MOST_COLUMNS] = {0};
    for (size_t column = 0; column < table->columns; column++)
        widths[column] = column_width(table, column);
    fit_widths(table, widths);

    for (size_t i = 0, column = 0; i < table->count; i++, column = column + 1 < table->columns ? column + 1 : 0) {
        const char *text = table->cells[i] ? table->cells[i] : "";
        size_t width = text_width(text), pad = width < widths[column] ? widths[column] - width : 0;
        bool is_right = table->alignment[column] == 'r', is_last = column + 1 == table->columns;
        if (i < table->columns)
            fputs(colour_on(out, COLOUR_HEADING), out);
        if (text[0] || !is_last)
            fprintf(out, "  %*s", is_right ? (int)pad : 0, "");
        print_cell(out, table, column, text, widths);
        if (i < table->columns)
            fputs(colour_off(out), out);
        if (is_last)
            fputc('\n', out);
        else if (!is_right)
            fprintf(out, "%*s", (int)pad, "");
    }
    if (table->out_of_memory)
        complain(NULL, "out of memory for the whole table");
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct table){0};
}

const char *grouped(uint64_t number, char text[GROUPED_MAX])
{
    char digits[GROUPED_MAX];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, number);
    char *out = text;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *out++ = ' ';
        *out++ = digits[i];
    }
    *out = '\0';
    return text;
}
