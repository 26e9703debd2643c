/* Where results come from: the command line, the time, the host. */
#ifndef CLI_ORIGIN_H
#define CLI_ORIGIN_H

#include <stddef.h>
#include <stdio.h>

#define ORIGIN_TEXT 2048
struct origin {
    char command[ORIGIN_TEXT]; /* as a shell reads it */
    char date[32];             /* 2026-01-31 12:00:00 UTC */
    char host[128];
};

/* Of this process, now. The arguments are those behind the name of the subcommand. */
void origin_fill(struct origin *origin, const char *subcommand, int argc, char **argv);

/* One argument more, in quotes where the shell needs them. */
void origin_add(struct origin *origin, const char *argument);

#endif
