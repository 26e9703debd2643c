/* Whole files in and out. "-" stands for stdin or stdout. A file that is written appears complete or not at all. */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include "complain.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file_bytes {
    uint8_t *bytes; /* from malloc: the caller frees */
    size_t size;
};

struct piece {
    const void *bytes;
    size_t size;
};

bool is_standard_stream(const char *path);

bool read_file(const char *path, struct file_bytes *file, struct failure *failure);

/* Writes the pieces one after the other, to a temporary name beside `path` first, which then takes its place. What is
 * not a regular file (a device, a pipe) is written directly. */
bool write_file(const char *path, const struct piece *pieces, size_t piece_count, struct failure *failure);

/* Whether both names stand for one file, also through links. */
bool is_same_file(const char *one, const char *other);

/* Whether write_file could begin to write there. Leaves nothing behind. */
bool can_write_file(const char *path, struct failure *failure);

#endif
