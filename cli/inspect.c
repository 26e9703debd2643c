/* `tersegrad inspect`: finds out by its first bytes what a file is, and shows it. */
#include "inspect.h"

#include "commands.h"
#include "common/npy.h"

#include <stdlib.h>
#include <string.h>

static int run_inspect(const struct command *command, int argc, char **argv)
{
    struct inspect_settings settings = {.density = 0.01};
    const char *operands[OPERANDS_MAX];
    int exit_code;
    if (!options_parse(command, argc, argv, &settings, operands, &exit_code))
        return exit_code;
    struct file_bytes file;
    struct failure failure = {""};
    if (!read_file(operands[0], &file, &failure)) {
        complain(command->name, "%s", failure.text);
        return EXIT_FAILED;
    }
    const char *path = is_standard_stream(operands[0]) ? "standard input" : operands[0];
    if (npy_has_magic(file.bytes, file.size))
        return inspect_gradient(command, &settings, path, &file);
    if (file.size >= 4 && memcmp(file.bytes, "TGRD", 4) == 0)
        return inspect_frame(command, &settings, path, &file);
    complain(command->name, "'%s' is neither a frame (TGRD) nor a .npy file (\\x93NUMPY)", path);
    free(file.bytes);
    return EXIT_FAILED;
}

static const struct option inspect_options[] = {
    {.name = "--density",
     .kind = OPTION_REAL,
     .value = "D",
     .real_low = 1e-9,
     .real_high = 1,
     .summary = "gradient: the share of elements for the top-k figures (default 0.01)",
     .offset = offsetof(struct inspect_settings, density)},
    {.name = "--layout",
     .kind = OPTION_TEXT,
     .value = "FILE",
     .summary = "gradient: its layers (default: NAME.layout.json for NAME.npy and for NAME-SUFFIX.npy)",
     .offset = offsetof(struct inspect_settings, layout)},
    OPTION_WIDE(struct inspect_settings),
    OPTION_JSON(struct inspect_settings),
    {0},
};

const struct command inspect_command = {
    .name = "inspect",
    .summary = "show what is in a frame or a gradient, and which codecs suit it",
    .operands = {"FILE"},
    .description =
        "For a frame: its fields, what its bytes are used for, and whether it is valid (exit code 1 if not).\n\n"
        "For a .npy gradient: moments, zeros, a histogram of magnitudes, the layers if there is a layout, what top-k "
        "leaves out (|u - Top_k(u)|^2 / |u|^2) beside the bounds (1 - k/d)^2 and 1 - k/d; and for every codec the bits "
        "per element and the error |decoded - x|^2 / |x|^2 of one encode without feedback.",
    .options = inspect_options,
    .examples = "  tersegrad inspect gradient.tg\n"
                "  tersegrad inspect --density 0.001 gradient.npy\n"
                "  tersegrad inspect --layout model.layout.json --json gradient.npy",
    .run = run_inspect,
};
