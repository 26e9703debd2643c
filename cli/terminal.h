/* What depends on a terminal being there: colours, its width, the progress bar; and bars of block characters. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include "common/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum colour { COLOUR_HEADING, COLOUR_GOOD, COLOUR_WARNING, COLOUR_BAD, COLOUR_BAR, COLOUR_FAINT };

/* The escape sequence, or "" where the stream is no terminal, NO_COLOR is set or TERM is dumb. */
const char *colour_on(FILE *stream, enum colour colour);
const char *colour_off(FILE *stream);

/* Columns of the terminal, 80 where there is none; never below 40 nor above 200. */
size_t terminal_width(FILE *stream);

/* Draws `fraction` (0 to 1) of `width` columns in eighths of a block. A fraction above zero shows at least a sliver. */
void draw_bar(FILE *stream, double fraction, size_t width);

/* Prints text from a file or the network: control characters become '?', so that no escape sequence gets through. */
void print_clean(FILE *stream, const char *text);

/* Prints a paragraph in lines no wider than the terminal, `indent` spaces before each; print_rest after that many
 * columns of its first line have been printed. */
void print_wrapped(FILE *stream, const char *text, size_t indent);
void print_rest(FILE *stream, const char *text, size_t indent);

/* Columns that a UTF-8 text takes, one for each code point. */
size_t text_width(const char *text);

/* A bar on stderr. It shows only on a terminal, and only once the work has taken half a second. */
struct progress {
    const char *label;
    bool terminal;
    bool shown;
    uint64_t start_ns;
    uint64_t drawn_ns;
};
void progress_start(struct progress *progress, const char *label);
void progress_update(struct progress *progress, double fraction, const char *detail);
void progress_end(struct progress *progress);

#endif
