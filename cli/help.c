/* The help text of a subcommand, made from its row and its table of options, in lines that fit the terminal. */
#include "options.h"
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_FORM = 23, /* columns for "--seed N"; what is wider has a line of its own */
    INDENT = 2,
    GAP = 2
};

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

/* Each line of the text is a paragraph. */
static void print_paragraphs(const char *text)
{
    for (const char *end = text; end; text = end + 1) {
        end = strchr(text, '\n');
        char *paragraph = strndup(text, end ? (size_t)(end - text) : strlen(text));
        print_wrapped(stdout, paragraph ? paragraph : text, 0);
        free(paragraph);
        if (!end)
            return;
    }
}

static void print_option(const char *form, const char *summary, size_t width)
{
    const size_t start = INDENT + width + GAP;
    printf("%*s%-*s%*s", INDENT, "", (int)width, form, GAP, "");
    if (strlen(form) > width)
        printf("\n%*s", (int)start, "");
    print_rest(stdout, summary, start);
}

void print_command_help(const struct command *command)
{
    printf("usage: tersegrad %s [OPTION]...", command->name);
    for (size_t i = 0; i < OPERANDS_MAX && command->operands[i]; i++)
        printf(" %s", command->operands[i]);
    if (command->repeats_last)
        printf("...");
    printf("\n\n");
    print_paragraphs(command->description);

    print_heading("Options");
    char form[80];
    size_t widest = 0;
    for (const struct option *option = command->options; option->name; option++) {
        size_t width = option_form(option, form, sizeof form);
        widest = width > widest && width <= MOST_FORM ? width : widest;
    }
    for (const struct option *option = command->options; option->name; option++) {
        option_form(option, form, sizeof form);
        print_option(form, option->summary, widest);
    }
    print_option("--help", "show this help", widest);

    print_heading("Examples");
    printf("%s\n", command->examples);
}
