/* See read.h. zlib reads both kinds; a build without it reads plain files and refuses gzip by its magic number. */
#include "read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#ifdef TRAIN_HAS_ZLIB
#include <zlib.h>
#endif

#define STEP ((size_t)1 << 20)

#ifdef TRAIN_HAS_ZLIB

typedef gzFile source;

static source source_open(const char *path) { return gzopen(path, "rb"); }

static bool source_read(source from, void *room, size_t size, size_t *got, const char **reason)
{
    int count = gzread(from, room, (unsigned)size);
    int code = Z_OK;
    if (count < (int)size) {
        *reason = gzerror(from, &code);
        if (code == Z_ERRNO)
            *reason = strerror(errno);
        if (code == Z_BUF_ERROR)
            *reason = "it is truncated: the gzip stream has no end";
    }
    *got = count < 0 ? 0 : (size_t)count;
    return count >= 0 && (code == Z_OK || code == Z_STREAM_END);
}

static void source_close(source from) { gzclose(from); }

#else

typedef FILE *source;

static source source_open(const char *path) { return fopen(path, "rb"); }

static bool source_read(source from, void *room, size_t size, size_t *got, const char **reason)
{
    errno = 0;
    bool at_start = ftell(from) == 0;
    *got = fread(room, 1, size, from);
    *reason = strerror(errno);
    if (at_start && *got >= 2 && memcmp(room, "\x1f\x8b", 2) == 0) {
        *reason = "it is gzipped, but this build has no zlib; unpack it with gunzip";
        return false;
    }
    return !ferror(from);
}

static void source_close(source from) { fclose(from); }

#endif

static bool read_all(source from, const char *path, struct content *content, struct failure *failure)
{
    size_t capacity = 0;
    for (;;) {
        if (content->size + STEP + 1 > capacity) {
            size_t larger = capacity + capacity / 2 + STEP + 1;
            uint8_t *bytes = larger > capacity ? realloc(content->bytes, larger) : NULL;
            if (!bytes)
                return fail(failure, "cannot read '%s': out of memory for more than %zu bytes", path, content->size);
            content->bytes = bytes;
            capacity = larger;
        }
        size_t got;
        const char *reason = "";
        if (!source_read(from, content->bytes + content->size, STEP, &got, &reason))
            return fail(failure, "cannot read '%s': %s", path, reason);
        content->size += got;
        content->bytes[content->size] = 0;
        if (got < STEP)
            return true;
    }
}

bool read_content(const char *path, struct content *content, struct failure *failure)
{
    *content = (struct content){0};
    struct stat status;
    if (stat(path, &status) != 0)
        return fail(failure, "cannot open '%s': %s", path, strerror(errno));
    if (S_ISDIR(status.st_mode))
        return fail(failure, "cannot read '%s': it is a directory", path);
    errno = 0;
    source from = source_open(path);
    if (!from)
        return fail(failure, "cannot open '%s': %s", path, strerror(errno ? errno : ENOMEM));
    bool is_read = read_all(from, path, content, failure);
    source_close(from);
    uint8_t *fitting = is_read ? realloc(content->bytes, content->size + 1)
                               : NULL; /* data sets are kept: no room to spare */
    if (fitting)
        content->bytes = fitting;
    if (!is_read) {
        free(content->bytes);
        *content = (struct content){0};
    }
    return is_read;
}

bool find_in(const char *folder, const char *name, char path[PATH_ROOM])
{
    static const char *const endings[] = {"", ".gz"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        struct stat status;
        int length = snprintf(path, PATH_ROOM, "%s/%s%s", folder, name, endings[i]);
        if (length < PATH_ROOM && stat(path, &status) == 0 && !S_ISDIR(status.st_mode))
            return true;
    }
    return false;
}
