/* Default names and what may be overwritten; see outputs.h. */
#include "outputs.h"

#include "files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool has_ending(const char *text, const char *ending)
{
    size_t length = strlen(text), ending_length = strlen(ending);
    return length > ending_length && strcmp(text + length - ending_length, ending) == 0;
}

bool plan_files(const struct output_rule *rule, const struct output_settings *settings, char **operands, size_t count,
                bool json, struct file_plan *plan, struct failure *failure)
{
    *plan = (struct file_plan){.inputs = operands, .count = count, .output = settings->path};
    bool names_output = count == 2 && (has_ending(operands[1], rule->to) || is_standard_stream(operands[1]));
    if (!plan->output && names_output) {
        plan->output = operands[1];
        plan->count = 1;
    }
    if (plan->output && plan->count > 1)
        return fail(failure, "-o names one output, but there are %zu inputs; without -o, each gets a %s file beside it",
                    plan->count, rule->to);
    for (size_t i = 0; i < plan->count && plan->count > 1; i++)
        if (is_standard_stream(operands[i]))
            return fail(failure, "'-' cannot be one of several inputs");
    bool to_stdout = plan->output ? is_standard_stream(plan->output) : is_standard_stream(operands[0]);
    if (json && to_stdout)
        return fail(failure, "--json and the output would both go to stdout; name a file with -o");
    return true;
}

/* x.npy to x.tg; NULL without memory. */
static char *default_name(const struct output_rule *rule, const char *input)
{
    size_t stem = strlen(input) - (has_ending(input, rule->from) ? strlen(rule->from) : 0);
    const size_t size = stem + strlen(rule->to) + 1;
    char *name = malloc(size);
    if (name)
        snprintf(name, size, "%.*s%s", (int)stem, input, rule->to);
    return name;
}

static bool may_write(const char *output, const struct output_settings *settings, const char *input,
                      struct failure *failure)
{
    struct stat status;
    if (is_standard_stream(output))
        return !isatty(STDOUT_FILENO) ||
               fail(failure,
                    "the output is binary and is not written to a terminal; name a file with -o, or use a pipe");
    if (!is_standard_stream(input) && is_same_file(input, output))
        return fail(failure, "'%s' is the input, and is not overwritten; name another file with -o", output);
    if (!settings->force && stat(output, &status) == 0 && S_ISREG(status.st_mode))
        return fail(failure, "'%s' exists; overwrite it with --force, or name another file with -o", output);
    return true;
}

char *choose_output(const struct output_rule *rule, const struct output_settings *settings,
                    const struct file_plan *plan, const char *input, struct failure *failure)
{
    const char *given = plan->output ? plan->output : is_standard_stream(input) ? "-" : NULL;
    if (!given && !rule->takes_other_endings && !has_ending(input, rule->from)) {
        fail(failure, "'%s' does not end in %s; name the output with -o", input, rule->from);
        return NULL;
    }
    char *output = given ? strdup(given) : default_name(rule, input);
    if (!output)
        fail(failure, "out of memory");
    else if (may_write(output, settings, input, failure))
        return output;
    free(output);
    return NULL;
}
