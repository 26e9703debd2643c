/* The help text of a subcommand, made from its row and its table of options. */
#include "options.h"
#include "terminal.h"

#include <stdio.h>
#include <string.h>

static void print_heading(const char *text)
{
    printf("\n%s%s%s\n", colour_on(stdout, COLOUR_HEADING), text, colour_off(stdout));
}

/* "--seed N" or "-f, --force" */
static size_t option_form(const struct option *option, char *text, size_t capacity)
{
    bool has_value = option->kind != OPTION_FLAG;
    const char letter[] = {'-', option->letter, ',', ' ', '\0'};
    return (size_t)snprintf(text, capacity, "%s%s%s%s", option->letter ? letter : "", option->name,
                            has_value ? " " : "", has_value ? option->value : "");
}

void print_command_help(const struct command *command)
{
    printf("usage: tersegrad %s [OPTION]...", command->name);
    for (size_t i = 0; i < OPERANDS_MAX && command->operands[i]; i++)
        printf(" %s", command->operands[i]);
    if (command->repeats_last)
        printf("...");
    printf("\n\n%s\n", command->description);

    print_heading("Options");
    char form[80];
    size_t widest = 0;
    for (const struct option *option = command->options; option->name; option++) {
        size_t width = option_form(option, form, sizeof form);
        widest = width > widest ? width : widest;
    }
    for (const struct option *option = command->options; option->name; option++) {
        option_form(option, form, sizeof form);
        printf("  %-*s  ", (int)widest, form);
        /* A summary of several lines goes on below its own start. */
        for (const char *line = option->summary; line;) {
            const char *end = strchr(line, '\n');
            printf("%.*s\n", end ? (int)(end - line) : (int)strlen(line), line);
            if (end)
                printf("  %-*s  ", (int)widest, "");
            line = end ? end + 1 : NULL;
        }
    }
    printf("  %-*s  %s\n", (int)widest, "--help", "show this help");

    print_heading("Examples");
    printf("%s\n", command->examples);
}
