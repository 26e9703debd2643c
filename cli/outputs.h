/* Where encode and decode write, as users of zstd expect it: beside the input, or where -o says; never over the input,
 * and over another file only with --force. */
#ifndef CLI_OUTPUTS_H
#define CLI_OUTPUTS_H

#include "options.h"

struct output_settings {
    const char *path; /* of -o; NULL: not given */
    bool force;
    bool quiet;
};

struct output_rule {
    const char *from, *to;    /* endings: x.npy becomes x.tg */
    bool takes_other_endings; /* x becomes x.tg; else the output's name must be given */
};

/* The inputs of a command and where the one output goes that was named. */
struct file_plan {
    char **inputs;
    size_t count;
    const char *output; /* NULL: each input has its default */
};

/* From the operands behind the codec. The second of two is the output where it ends so, or is "-". */
bool plan_files(const struct output_rule *rule, const struct output_settings *settings, char **operands, size_t count,
                bool json, struct file_plan *plan, struct failure *failure);

/* The name to write for one input, from malloc; NULL, with the reason, where there is none or it may not be written. */
char *choose_output(const struct output_rule *rule, const struct output_settings *settings,
                    const struct file_plan *plan, const char *input, struct failure *failure);

/* The three options, as rows of a command's table. */
#define OUTPUT_OPTIONS(settings, default_name)                                                 \
    {.name = "-o",                                                                             \
     .kind = OPTION_TEXT,                                                                      \
     .value = "FILE",                                                                          \
     .summary = "write there (default " default_name ")",                                      \
     .offset = offsetof(settings, output.path)},                                               \
        {.name = "--force",                                                                    \
         .letter = 'f',                                                                        \
         .kind = OPTION_FLAG,                                                                  \
         .summary = "overwrite an output that exists; an input is never overwritten",          \
         .offset = offsetof(settings, output.force)},                                          \
    {                                                                                          \
        .name = "--quiet", .letter = 'q', .kind = OPTION_FLAG, .summary = "print errors only", \
        .offset = offsetof(settings, output.quiet)                                             \
    }

#endif
