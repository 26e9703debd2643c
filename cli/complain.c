/* One way to report an error; see complain.h. */
#include "complain.h"

#include "terminal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void print_line(const char *command, enum colour colour, const char *kind, const char *format, va_list arguments)
{
    char text[1024], line[1280] = "";
    vsnprintf(text, sizeof text, format, arguments);
    /* What was printed so far comes first where stdout and stderr are the same place. */
    fflush(stdout);
    /* Whole lines: the ranks of an MPI job speak at the same time. */
    FILE *stream = fmemopen(line, sizeof line, "w");
    if (!stream)
        return;
    fprintf(stream, "%stersegrad%s%s:%s %s", colour_on(stderr, colour), command ? " " : "", command ? command : "",
            colour_off(stderr), kind);
    print_clean(stream, text);
    fputc('\n', stream);
    fclose(stream);
    fputs(line, stderr);
}

void complain(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_line(command, COLOUR_BAD, "", format, arguments);
    va_end(arguments);
}

void warn(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_line(command, COLOUR_WARNING, "warning: ", format, arguments);
    va_end(arguments);
}

const char *library_message(tg_status status, tg_error *error)
{
    if (!error->message[0])
        return tg_status_text(status);
    size_t length = strlen(error->message);
    if (status == TG_NONFINITE)
        snprintf(error->message + length, sizeof error->message - length, " (--nonfinite zero)");
    return error->message;
}
