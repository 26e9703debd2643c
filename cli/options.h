/* One parser for the options of every subcommand. A subcommand describes its options in a table and its values in a
 * struct; the same table makes the help text. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "complain.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Says how the text after an option is read, and the type of the field at `offset`. */
enum option_kind {
    OPTION_FLAG,   /* takes no value           bool */
    OPTION_TEXT,   /* anything                 const char * */
    OPTION_LIST,   /* anything, again and again  struct text_list */
    OPTION_NUMBER, /* low ... high             uint64_t */
    OPTION_REAL,   /* real_low ... real_high   double */
    OPTION_CHOICE  /* one of `choices`         int: its place */
};

#define TEXT_LIST_MAX 64
struct text_list {
    const char *items[TEXT_LIST_MAX];
    size_t count;
};

struct option {
    const char *name; /* "--seed" or "-n" */
    char letter;      /* of a short form too: 'f' for -f; 0: there is none */
    enum option_kind kind;
    const char *value; /* what the help calls the value: "N" */
    const char *summary;
    size_t offset; /* of the field in the subcommand's settings */
    uint64_t low, high;
    double real_low, real_high;
    const char *const *choices; /* ends with NULL */
};

/* The option that every subcommand takes, as the last row of its table before the empty row that ends it. */
#define OPTION_JSON(settings)                                                                                 \
    {                                                                                                         \
        .name = "--json", .kind = OPTION_FLAG, .summary = "print one JSON object on stdout and nothing else", \
        .offset = offsetof(settings, json)                                                                    \
    }

/* For commands whose tables have more columns than a terminal of 80. */
#define OPTION_WIDE(settings)                                                                            \
    {                                                                                                    \
        .name = "--wide", .kind = OPTION_FLAG, .summary = "show all columns, also beyond 80 characters", \
        .offset = offsetof(settings, wide)                                                               \
    }

#define OPERANDS_MAX 4
struct command {
    const char *name;
    const char *summary;                /* one line for the list of commands */
    const char *operands[OPERANDS_MAX]; /* what must follow: {"SPEC", "IN.npy"} */
    bool repeats_last;                  /* the last operand may be given again and again */
    const char *description;            /* paragraphs for the help, one on a line */
    const struct option *options;       /* ends with an empty row */
    const char *examples;               /* lines of at most 80 columns that run as they are */
    int (*run)(const struct command *command, int argc, char **argv);
};

/* Reads the arguments after the subcommand's name into `settings` (which holds the defaults already) and `operands`.
 * False when the command is over: help was asked for, or the usage was wrong and has been explained; then `*exit_code`
 * is the answer. */
bool options_parse(const struct command *command, int argc, char **argv, void *settings,
                   const char *operands[OPERANDS_MAX], int *exit_code);

/* The same for a command whose last operand repeats: the operands are moved to the front of argv. */
bool options_parse_all(const struct command *command, int argc, char **argv, void *settings, size_t *operand_count,
                       int *exit_code);

/* The same as options_parse for a caller that prints its own messages. */
enum options_outcome { OPTIONS_READ, OPTIONS_HELP, OPTIONS_WRONG /* why is in the message */ };
enum options_outcome options_read(const struct command *command, int argc, char **argv, void *settings,
                                  const char *operands[OPERANDS_MAX], struct failure *failure);

void print_command_help(const struct command *command);

#endif
