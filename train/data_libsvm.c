/* A file in LIBSVM's format, and its FILE.t for testing where there is one, as a data set. */
#include "data.h"
#include "libsvm.h"
#include "read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct state {
    struct sparse_rows rows; /* those for testing behind those for training */
};

static void fetch(const void *from, uint64_t row, float *features, float *target)
{
    const struct sparse_rows *rows = &((const struct state *)from)->rows;
    memset(features, 0, rows->features * sizeof *features);
    for (uint64_t i = rows->starts[row]; i < rows->starts[row + 1]; i++)
        features[rows->indices[i]] = rows->values[i];
    *target = rows->labels[row];
}

static void free_rows(void *from)
{
    struct state *state = from;
    sparse_rows_free(&state->rows);
    free(state);
}

static bool append(const char *path, struct sparse_rows *rows, struct failure *failure)
{
    struct content content;
    if (!read_content(path, &content, failure))
        return false;
    bool is_read = libsvm_parse((const char *)content.bytes, content.size, path, rows, failure);
    free(content.bytes);
    return is_read;
}

/* FILE.t, or FILE.t.gz and, for FILE.gz, also what belongs to FILE. */
static bool find_test(const char *path, char test[PATH_ROOM])
{
    size_t length = strlen(path);
    if (length > 3 && strcmp(path + length - 3, ".gz") == 0)
        length -= 3;
    static const char *const endings[] = {".t", ".t.gz"};
    struct stat status;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        int used = snprintf(test, PATH_ROOM, "%.*s%s", (int)length, path, endings[i]);
        if (used < PATH_ROOM && stat(test, &status) == 0)
            return true;
    }
    return false;
}

bool libsvm_open(const char *path, bool real_targets, struct dataset *data, struct failure *failure)
{
    struct state *state = calloc(1, sizeof *state);
    if (!state)
        return fail(failure, "out of memory for '%s'", path);
    struct sparse_rows *rows = &state->rows;
    char test[PATH_ROOM];
    bool is_read = append(path, rows, failure);
    uint64_t train_rows = rows->rows;
    if (is_read && train_rows == 0)
        is_read = fail(failure, "'%s' has no rows", path);
    if (is_read && rows->features == 0)
        is_read = fail(failure, "'%s' has no features: every line is a label alone", path);
    if (is_read && find_test(path, test))
        is_read = append(test, rows, failure);
    if (!is_read) {
        free_rows(state);
        return false;
    }
    *data = (struct dataset){
        .train_rows = train_rows,
        .test_rows = rows->rows - train_rows,
        .features = rows->features,
        .classes = real_targets ? 0 : classes_among(rows->labels, rows->rows),
        .fetch = fetch,
        .state = state,
        .free_state = free_rows,
    };
    return true;
}
