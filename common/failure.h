/* How readers and the training loop report failures: one sentence in a struct failure, and false. */
#ifndef COMMON_FAILURE_H
#define COMMON_FAILURE_H

#include <stdbool.h>

#if defined(__GNUC__)
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))
#else
#define PRINTF_LIKE(text, first)
#endif

struct failure {
    char text[768];
};

/* Writes the sentence and returns false, so that a helper can end with `return fail(message, ...)`. */
bool fail(struct failure *failure, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
