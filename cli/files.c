/* Reading and writing whole files; see files.h. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "files.h"

#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One system call moves at most this much, so that the progress bar moves too. */
#define STEP ((size_t)16 << 20)

bool is_standard_stream(const char *path) { return strcmp(path, "-") == 0; }

bool is_same_file(const char *one, const char *other)
{
    struct stat a, b;
    if (stat(one, &a) == 0 && stat(other, &b) == 0)
        return S_ISREG(a.st_mode) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    return strcmp(one, other) == 0;
}

/* ---- reading ---- */

static bool make_room(struct file_bytes *file, size_t *capacity)
{
    if (file->size < *capacity)
        return true;
    size_t larger = *capacity + *capacity / 2 + 65536;
    uint8_t *bytes = larger > *capacity ? realloc(file->bytes, larger) : NULL;
    if (!bytes)
        return false;
    file->bytes = bytes;
    *capacity = larger;
    return true;
}

static bool read_all(int descriptor, const char *name, struct file_bytes *file, struct failure *failure)
{
    struct stat status;
    size_t expected = 0;
    if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
        expected = (size_t)status.st_size;
    size_t capacity = expected + 1; /* one more, so that the end shows without growing */
    file->bytes = malloc(capacity);
    if (!file->bytes)
        return fail(failure, "cannot read '%s': out of memory for its %zu bytes", name, expected);

    struct progress progress;
    progress_start(&progress, "reading");
    for (;;) {
        if (!make_room(file, &capacity)) {
            progress_end(&progress);
            return fail(failure, "cannot read '%s': out of memory for more than %zu bytes", name, file->size);
        }
        size_t room = capacity - file->size;
        ssize_t got = read(descriptor, file->bytes + file->size, room < STEP ? room : STEP);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            progress_end(&progress);
            return got == 0 || fail(failure, "cannot read '%s': %s", name, strerror(errno));
        }
        file->size += (size_t)got;
        progress_update(&progress, expected ? (double)file->size / (double)expected : 0, name);
    }
}

bool read_file(const char *path, struct file_bytes *file, struct failure *failure)
{
    *file = (struct file_bytes){0};
    bool is_stream = is_standard_stream(path);
    int descriptor = is_stream ? STDIN_FILENO : open(path, O_RDONLY);
    if (descriptor < 0)
        return fail(failure, "cannot open '%s': %s", path, strerror(errno));
    bool is_read = read_all(descriptor, is_stream ? "standard input" : path, file, failure);
    if (!is_stream)
        close(descriptor);
    if (!is_read) {
        free(file->bytes);
        *file = (struct file_bytes){0};
    }
    return is_read;
}

/* ---- writing ---- */

static bool write_all(int descriptor, const struct piece *pieces, size_t piece_count)
{
    struct progress progress;
    progress_start(&progress, "writing");
    for (size_t i = 0; i < piece_count; i++) {
        const uint8_t *at = pieces[i].bytes;
        for (size_t left = pieces[i].size; left > 0;) {
            ssize_t put = write(descriptor, at, left < STEP ? left : STEP);
            if (put < 0 && errno == EINTR)
                continue;
            if (put < 0) {
                progress_end(&progress);
                return false;
            }
            at += put;
            left -= (size_t)put;
            progress_update(&progress, 1 - (double)left / (double)pieces[i].size, NULL);
        }
    }
    progress_end(&progress);
    return true;
}

/* Some file systems cannot sync; that alone is no failure. */
static bool sync_file(int descriptor) { return fsync(descriptor) == 0 || errno == EINVAL || errno == ENOTSUP; }

static bool write_directly(const char *path, const struct piece *pieces, size_t piece_count, struct failure *failure)
{
    int descriptor = open(path, O_WRONLY | O_TRUNC);
    if (descriptor < 0)
        return fail(failure, "cannot write '%s': %s", path, strerror(errno));
    bool is_written = write_all(descriptor, pieces, piece_count);
    int reason = errno;
    if (close(descriptor) != 0 && is_written) {
        is_written = false;
        reason = errno;
    }
    return is_written || fail(failure, "cannot write '%s': %s", path, strerror(reason));
}

/* Opens a file of a new name beside `path`; the caller frees the name. NULL if that cannot be. */
static char *open_beside(const char *path, int *descriptor, struct failure *failure)
{
    size_t length = strlen(path) + sizeof ".XXXXXX";
    char *temporary = malloc(length);
    if (!temporary) {
        fail(failure, "cannot write '%s': out of memory", path);
        return NULL;
    }
    snprintf(temporary, length, "%s.XXXXXX", path);
    *descriptor = mkstemp(temporary);
    if (*descriptor >= 0)
        return temporary;
    fail(failure, "cannot write '%s': %s", path, strerror(errno));
    free(temporary);
    return NULL;
}

static bool write_by_rename(const char *path, const struct stat *existing, const struct piece *pieces,
                            size_t piece_count, struct failure *failure)
{
    int descriptor;
    char *temporary = open_beside(path, &descriptor, failure);
    if (!temporary)
        return false;
    mode_t mask = umask(0);
    umask(mask);
    mode_t mode = existing ? existing->st_mode & 0777 : 0666 & ~mask;
    bool is_written = fchmod(descriptor, mode) == 0 && write_all(descriptor, pieces, piece_count) &&
                      sync_file(descriptor);
    int reason = errno;
    if (close(descriptor) != 0 && is_written) {
        is_written = false;
        reason = errno;
    }
    if (is_written && rename(temporary, path) != 0) {
        is_written = false;
        reason = errno;
    }
    if (!is_written)
        unlink(temporary);
    free(temporary);
    return is_written || fail(failure, "cannot write '%s': %s", path, strerror(reason));
}

bool write_file(const char *path, const struct piece *pieces, size_t piece_count, struct failure *failure)
{
    if (is_standard_stream(path)) {
        if (write_all(STDOUT_FILENO, pieces, piece_count))
            return true;
        return fail(failure, "cannot write to standard output: %s", strerror(errno));
    }
    struct stat status;
    if (stat(path, &status) != 0)
        return write_by_rename(path, NULL, pieces, piece_count, failure);
    if (S_ISDIR(status.st_mode))
        return fail(failure, "cannot write '%s': it is a directory", path);
    if (!S_ISREG(status.st_mode))
        return write_directly(path, pieces, piece_count, failure);

    /* A link stays a link: the file that it points to is the one replaced. */
    char *target = realpath(path, NULL);
    bool is_written = write_by_rename(target ? target : path, &status, pieces, piece_count, failure);
    free(target);
    return is_written;
}

bool can_write_file(const char *path, struct failure *failure)
{
    struct stat status;
    bool exists = stat(path, &status) == 0;
    if (exists && S_ISDIR(status.st_mode))
        return fail(failure, "cannot write '%s': it is a directory", path);
    if (exists && !S_ISREG(status.st_mode))
        return access(path, W_OK) == 0 || fail(failure, "cannot write '%s': %s", path, strerror(errno));
    char *target = exists ? realpath(path, NULL) : NULL;
    int descriptor;
    char *temporary = open_beside(target ? target : path, &descriptor, failure);
    if (temporary) {
        close(descriptor);
        unlink(temporary);
    }
    const bool can = temporary != NULL;
    free(target);
    free(temporary);
    return can;
}
