/* Whole files into memory, gzipped or not. */
#ifndef TRAIN_READ_H
#define TRAIN_READ_H

#include "common/failure.h"

#include <stddef.h>
#include <stdint.h>

struct content {
    uint8_t *bytes; /* from malloc, with a 0 behind the last one */
    size_t size;
};

/* Reads `path`, unpacked where it is gzip. */
bool read_content(const char *path, struct content *content, struct failure *failure);

/* FOLDER/NAME, or FOLDER/NAME.gz where only that is there; false where neither is. */
#define PATH_ROOM 4096
bool find_in(const char *folder, const char *name, char path[PATH_ROOM]);

#endif
