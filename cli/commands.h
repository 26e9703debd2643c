/* The subcommands. Each is one row, defined beside the code that runs it. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "options.h"

extern const struct command codecs_command;
extern const struct command encode_command;
extern const struct command decode_command;
extern const struct command inspect_command;
extern const struct command bench_command;
extern const struct command train_command;
extern const struct command report_command;
extern const struct command plan_command;

/* The words for --nonfinite, each at its tg_nonfinite. */
extern const char *const nonfinite_choices[];

#endif
