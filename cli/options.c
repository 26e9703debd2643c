/* The table-driven option parser; see options.h. */
#include "options.h"

#include "suggest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void join_choices(const char *const *choices, char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; choices[i] && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", i ? "|" : "", choices[i]);
}

static bool read_number(const struct option *option, const char *text, uint64_t *number, struct failure *failure)
{
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    bool digits_only = text[0] >= '0' && text[0] <= '9' && *end == '\0';
    if (!digits_only || errno == ERANGE || value < option->low || value > option->high)
        return fail(failure, "%s takes a whole number from %" PRIu64 " to %" PRIu64 ", not '%s'", option->name,
                    option->low, option->high, text);
    *number = value;
    return true;
}

static bool read_real(const struct option *option, const char *text, double *real, struct failure *failure)
{
    char *end;
    double value = strtod(text, &end);
    bool is_plain = text[0] != '\0' && strspn(text, "0123456789.eE+-") == strlen(text) && *end == '\0';
    if (!is_plain || !(value >= option->real_low && value <= option->real_high))
        return fail(failure, "%s takes a number from %g to %g, not '%s'", option->name, option->real_low,
                    option->real_high, text);
    *real = value;
    return true;
}

static bool read_choice(const struct option *option, const char *text, int *choice, struct failure *failure)
{
    for (int i = 0; option->choices[i]; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            *choice = i;
            return true;
        }
    }
    char all[160];
    join_choices(option->choices, all, sizeof all);
    return fail(failure, "%s takes one of %s, not '%s'", option->name, all, text);
}

static bool store_value(const struct option *option, const char *text, void *settings, struct failure *failure)
{
    void *field = (char *)settings + option->offset;
    switch (option->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return true;
    case OPTION_TEXT:
        *(const char **)field = text;
        return true;
    case OPTION_LIST: {
        struct text_list *list = field;
        if (list->count == TEXT_LIST_MAX)
            return fail(failure, "%s may be given at most %d times", option->name, TEXT_LIST_MAX);
        list->items[list->count++] = text;
        return true;
    }
    case OPTION_NUMBER:
        return read_number(option, text, field, failure);
    case OPTION_REAL:
        return read_real(option, text, field, failure);
    case OPTION_CHOICE:
        return read_choice(option, text, field, failure);
    }
    return false;
}

static const struct option *find_option(const struct command *command, const char *text, size_t length)
{
    for (const struct option *option = command->options; option->name; option++)
        if ((strlen(option->name) == length && strncmp(option->name, text, length) == 0) ||
            (option->letter && length == 2 && text[1] == option->letter))
            return option;
    return NULL;
}

static bool refuse_unknown(const struct command *command, const char *text, size_t length, struct failure *failure)
{
    enum { MOST = 64 };
    const char *names[MOST];
    size_t count = 0;
    for (const struct option *option = command->options; option->name && count < MOST - 2; option++)
        names[count++] = option->name;
    names[count++] = "--help";
    names[count] = NULL;

    char typed[64];
    snprintf(typed, sizeof typed, "%.*s", (int)(length < sizeof typed ? length : sizeof typed - 1), text);
    const char *near = length > 2 ? nearest_text(typed, names) : NULL;
    if (near)
        return fail(failure, "there is no option '%s'; did you mean '%s'?", typed, near);
    return fail(failure, "there is no option '%s'", typed);
}

/* Reads the option at argv[*at] and moves *at past it. */
static bool read_option(const struct command *command, int argc, char **argv, int *at, void *settings,
                        struct failure *failure)
{
    const char *text = argv[(*at)++];
    bool is_long = text[1] == '-';
    size_t length = is_long ? strcspn(text, "=") : 2;
    const struct option *option = find_option(command, text, length);
    if (!option)
        return refuse_unknown(command, text, is_long ? length : strlen(text), failure);

    const char *attached = text[length] ? text + length + (is_long ? 1 : 0) : NULL;
    if (option->kind == OPTION_FLAG) {
        if (attached)
            return fail(failure, "%s takes no value, but '%s' was given", option->name, attached);
        return store_value(option, "", settings, failure);
    }
    if (attached)
        return store_value(option, attached, settings, failure);
    if (*at == argc)
        return fail(failure, "%s needs a value: %s %s", option->name, option->name, option->value);
    return store_value(option, argv[(*at)++], settings, failure);
}

/* Operands are moved to the front of argv, where they never catch up with what is still to be read. */
static bool read_arguments(const struct command *command, int argc, char **argv, void *settings, size_t *operand_count,
                           struct failure *failure)
{
    size_t wanted = 0, found = 0;
    while (wanted < OPERANDS_MAX && command->operands[wanted])
        wanted++;
    bool options_over = false;
    for (int at = 0; at < argc;) {
        char *text = argv[at];
        if (!options_over && strcmp(text, "--") == 0) {
            options_over = true;
            at++;
        } else if (!options_over && text[0] == '-' && text[1] != '\0') {
            if (!read_option(command, argc, argv, &at, settings, failure))
                return false;
        } else if (found >= wanted && !command->repeats_last) {
            return fail(failure, "unexpected argument '%s'", text);
        } else {
            argv[found++] = text;
            at++;
        }
    }
    *operand_count = found;
    return found >= wanted || fail(failure, "%s is missing", command->operands[found]);
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

enum options_outcome options_read(const struct command *command, int argc, char **argv, void *settings,
                                  const char *operands[OPERANDS_MAX], struct failure *failure)
{
    size_t count = 0;
    if (asks_for_help(argc, argv))
        return OPTIONS_HELP;
    if (!read_arguments(command, argc, argv, settings, &count, failure))
        return OPTIONS_WRONG;
    for (size_t i = 0; i < count && i < OPERANDS_MAX; i++)
        operands[i] = argv[i];
    return OPTIONS_READ;
}

bool options_parse_all(const struct command *command, int argc, char **argv, void *settings, size_t *operand_count,
                       int *exit_code)
{
    struct failure failure = {""};
    if (asks_for_help(argc, argv)) {
        print_command_help(command);
        *exit_code = EXIT_DONE;
        return false;
    }
    if (read_arguments(command, argc, argv, settings, operand_count, &failure))
        return true;
    complain(command->name, "%s", failure.text);
    fprintf(stderr, "Try 'tersegrad %s --help'.\n", command->name);
    *exit_code = EXIT_USAGE;
    return false;
}

bool options_parse(const struct command *command, int argc, char **argv, void *settings,
                   const char *operands[OPERANDS_MAX], int *exit_code)
{
    size_t count = 0;
    if (!options_parse_all(command, argc, argv, settings, &count, exit_code))
        return false;
    for (size_t i = 0; i < count && i < OPERANDS_MAX; i++)
        operands[i] = argv[i];
    return true;
}
