/* Which reader a name needs; see data.h. */
#include "data.h"

#include "blob.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool begins_with(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

bool dataset_is_synthetic(const char *name)
{
    static const char *const names[] = {"syn-256", "syn-512", "syn-1024", "syn-20k", "synthetic"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return begins_with(name, "synthetic:");
}

static bool open_directory(const char *name, struct dataset *data, struct failure *failure)
{
    if (idx_is_in(name))
        return idx_open(name, data, failure);
    if (cifar_is_in(name))
        return cifar_open(name, data, failure);
    return fail(failure,
                "'%s' has neither MNIST's files (train-images-idx3-ubyte, ..., gzipped or not) nor CIFAR-10's "
                "(data_batch_1.bin, ...)",
                name);
}

static bool open_any(const char *name, uint64_t seed, bool real_targets, struct dataset *data, struct failure *failure)
{
    if (dataset_is_synthetic(name))
        return synthetic_open(name, seed, data, failure);
    if (strchr(name, ',') && ends_with(name, ".npy"))
        return npy_open(name, real_targets, data, failure);
    struct stat status;
    if (stat(name, &status) != 0)
        return fail(
            failure,
            "cannot open the data '%s': %s (syn-256, syn-512, syn-1024, syn-20k and synthetic:... need no file)", name,
            strerror(errno));
    if (S_ISDIR(status.st_mode))
        return open_directory(name, data, failure);
    if (ends_with(name, ".npy"))
        return fail(failure, "'%s' is one array; training needs two, features and targets: X.npy,Y.npy", name);
    return libsvm_open(name, real_targets, data, failure);
}

/* Of all rows; if they have more than 16 M values, of as many rows as have 16 M, at equal distances. That is quick, and
 * files that differ usually differ in more than a few rows. */
static bool digest_rows(struct dataset *data, struct failure *failure)
{
    const uint64_t most = (UINT64_C(1) << 24) / data->features + 1, rows = data->train_rows + data->test_rows;
    const uint64_t looked_at = rows < most ? rows : most;
    float *row = calloc((size_t)data->features + 1, sizeof *row);
    if (!row)
        return fail(failure, "out of memory for a row of %" PRIu32 " features", data->features);
    for (uint64_t i = 0; i < looked_at; i++) {
        data->fetch(data->state, i * rows / looked_at, row, row + data->features);
        const uint64_t both[2] = {data->digest, digest_bytes(row, ((size_t)data->features + 1) * sizeof *row)};
        data->digest = digest_bytes(both, sizeof both);
    }
    free(row);
    return true;
}

bool dataset_open(const char *name, uint64_t seed, bool real_targets, struct dataset *data, struct failure *failure)
{
    *data = (struct dataset){0};
    if (!open_any(name, seed, real_targets, data, failure))
        return false;
    if (real_targets)
        data->classes = 0;
    if (dataset_is_synthetic(name) || digest_rows(data, failure))
        return true;
    dataset_close(data);
    return false;
}

void dataset_close(struct dataset *data)
{
    if (data->free_state)
        data->free_state(data->state);
    *data = (struct dataset){0};
}

uint32_t classes_among(float *targets, uint64_t count)
{
    float kinds[MOST_CLASSES];
    uint32_t found = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t at = 0;
        while (at < found && kinds[at] < targets[i])
            at++;
        if (at < found && kinds[at] == targets[i])
            continue;
        if (found == MOST_CLASSES || targets[i] != floorf(targets[i]))
            return 0;
        memmove(kinds + at + 1, kinds + at, (found - at) * sizeof *kinds);
        kinds[at] = targets[i];
        found++;
    }
    if (found < 2)
        return 0;
    for (uint64_t i = 0; i < count; i++)
        for (uint32_t at = 0; at < found; at++)
            if (kinds[at] == targets[i]) {
                targets[i] = (float)at;
                break;
            }
    return found;
}
