/* Colours, width, bars and progress; see terminal.h. */
#include "terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define NS_PER_SECOND UINT64_C(1000000000)
#define PROGRESS_DELAY_NS (NS_PER_SECOND / 2)
#define PROGRESS_INTERVAL_NS (NS_PER_SECOND / 10)

static bool is_colourful(FILE *stream)
{
    const char *refusal = getenv("NO_COLOR");
    const char *kind = getenv("TERM");
    /* OpenMPI gives ranks a terminal of its own, whatever its launcher prints to. */
    return isatty(fileno(stream)) && !getenv("OMPI_COMM_WORLD_SIZE") && !(refusal && refusal[0]) && kind &&
           strcmp(kind, "dumb") != 0;
}

const char *colour_on(FILE *stream, enum colour colour)
{
    static const char *const codes[] = {
        [COLOUR_HEADING] = "\033[1m", [COLOUR_GOOD] = "\033[32m", [COLOUR_WARNING] = "\033[33m",
        [COLOUR_BAD] = "\033[1;31m",  [COLOUR_BAR] = "\033[36m",  [COLOUR_FAINT] = "\033[2m",
    };
    return is_colourful(stream) ? codes[colour] : "";
}

const char *colour_off(FILE *stream) { return is_colourful(stream) ? "\033[0m" : ""; }

size_t terminal_width(FILE *stream)
{
    size_t width = 80;
#ifdef TIOCGWINSZ
    struct winsize size;
    if (isatty(fileno(stream)) && ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        width = size.ws_col;
#else
    (void)stream;
#endif
    return width < 40 ? 40 : width > 200 ? 200 : width;
}

void draw_bar(FILE *stream, double fraction, size_t width)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    if (!(fraction > 0))
        return;
    if (fraction > 1)
        fraction = 1;
    size_t parts = (size_t)(fraction * (double)width * 8 + 0.5);
    if (parts == 0)
        parts = 1;
    for (size_t i = 0; i < parts / 8; i++)
        fputs("█", stream);
    fputs(eighths[parts % 8], stream);
}

void print_clean(FILE *stream, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text, next = (unsigned char)text[1];
        bool upper_control = c == 0xc2 && next >= 0x80 && next < 0xa0; /* U+0080 ... U+009F */
        fputc(c < 0x20 || c == 0x7f || upper_control ? '?' : c, stream);
        text += upper_control;
    }
}

size_t text_width(const char *text)
{
    size_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static size_t width_of(const char *text, size_t bytes)
{
    size_t width = 0;
    for (size_t i = 0; i < bytes; i++)
        width += ((unsigned char)text[i] & 0xc0) != 0x80;
    return width;
}

/* Bytes of what stays on one line: a word, or of one that no line holds, a long spec, as much as ends with a comma. */
static size_t unbroken(const char *text, size_t most)
{
    const size_t word = strcspn(text, " "), item = strcspn(text, " ,");
    return width_of(text, word) > most && text[item] == ',' ? item + 1 : word;
}

void print_rest(FILE *stream, const char *text, size_t indent)
{
    const size_t most = terminal_width(stream);
    size_t column = indent;
    bool spaced = false;
    while (*text) {
        const size_t bytes = unbroken(text, most - indent), width = width_of(text, bytes);
        if (column > indent && column + spaced + width > most) {
            fprintf(stream, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent && spaced) {
            fputc(' ', stream);
            column++;
        }
        fwrite(text, 1, bytes, stream);
        column += width;
        text += bytes;
        spaced = *text == ' ';
        text += strspn(text, " ");
    }
    fputc('\n', stream);
}

void print_wrapped(FILE *stream, const char *text, size_t indent)
{
    fprintf(stream, "%*s", (int)indent, "");
    print_rest(stream, text, indent);
}

void progress_start(struct progress *progress, const char *label)
{
    const char *kind = getenv("TERM");
    *progress = (struct progress){
        .label = label,
        .terminal = isatty(STDERR_FILENO) && kind && strcmp(kind, "dumb") != 0,
        .start_ns = clock_ns(),
    };
}

enum { AROUND_BAR = 9 /* " " before it and "  50 %  " behind */, LONGEST_BAR = 24, SHORTEST_BAR = 8 };

/* The figures say more than the bar: it gives way to them, and they are cut only where that is not enough. */
static size_t bar_width(const char *label, const char *detail, size_t room)
{
    size_t needed = text_width(label) + AROUND_BAR + (detail ? text_width(detail) : 0) +
                    1; /* no terminal wraps before its last column */
    size_t left = room > needed ? room - needed : 0;
    return left > LONGEST_BAR ? LONGEST_BAR : left < SHORTEST_BAR ? SHORTEST_BAR : left;
}

void progress_update(struct progress *progress, double fraction, const char *detail)
{
    if (!progress->terminal)
        return;
    uint64_t now = clock_ns();
    if (now - progress->start_ns < PROGRESS_DELAY_NS || now - progress->drawn_ns < PROGRESS_INTERVAL_NS)
        return;
    progress->drawn_ns = now;
    progress->shown = true;

    double limited = fraction < 0 ? 0 : fraction > 1 ? 1 : fraction;
    size_t room = terminal_width(stderr), bar = bar_width(progress->label, detail, room),
           filled = (size_t)(limited * (double)bar);
    fprintf(stderr, "\r\033[K%s ", progress->label);
    fputs(colour_on(stderr, COLOUR_BAR), stderr);
    draw_bar(stderr, (double)filled / (double)bar, bar);
    fputs(colour_off(stderr), stderr);
    fputs(colour_on(stderr, COLOUR_FAINT), stderr);
    for (size_t i = filled; i < bar; i++)
        fputs("░", stderr);
    fputs(colour_off(stderr), stderr);
    fprintf(stderr, " %3.0f %%", limited * 100);

    /* The detail is cut to what is left of the line: a line that wraps could not be erased. */
    size_t used = text_width(progress->label) + bar + AROUND_BAR;
    if (detail && used + 2 < room)
        fprintf(stderr, "  %.*s", (int)(room - used - 1), detail);
    fflush(stderr);
}

void progress_end(struct progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}
