/* See message.h. */
#include "message.h"

#include <stdarg.h>
#include <stdio.h>

bool fail(struct message *message, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message->text, sizeof message->text, format, arguments);
    va_end(arguments);
    return false;
}
