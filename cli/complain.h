/* How the command speaks about failures: a helper leaves one sentence in a struct failure and returns false; the
 * subcommand prints it once, on stderr, behind its own name. */
#ifndef CLI_COMPLAIN_H
#define CLI_COMPLAIN_H

#include "tersegrad.h"

#include "common/failure.h"

/* The exit codes of the command. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

/* "tersegrad COMMAND: ..." and a newline on stderr. `command` may be NULL before one is known. */
void complain(const char *command, const char *format, ...) PRINTF_LIKE(2, 3);

/* The same for what is worth knowing but does not stop the work: "tersegrad COMMAND: warning: ...". */
void warn(const char *command, const char *format, ...) PRINTF_LIKE(2, 3);

/* The library's sentence, with the option that helps where there is one; or the status in words where it left none. */
const char *library_message(tg_status status, tg_error *error);

#endif
