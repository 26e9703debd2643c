/* What `tersegrad inspect` can look at. Each function prints what it finds and returns the exit code. */
#ifndef CLI_INSPECT_H
#define CLI_INSPECT_H

#include "files.h"
#include "options.h"

struct inspect_settings {
    double density;     /* for the top-k figures */
    const char *layout; /* path, or NULL: look for one beside the gradient */
    bool wide;
    bool json;
};

/* Both take over file->bytes. */
int inspect_frame(const struct command *command, const struct inspect_settings *settings, const char *path,
                  struct file_bytes *file);
int inspect_gradient(const struct command *command, const struct inspect_settings *settings, const char *path,
                     struct file_bytes *file);

#endif
