/* X.npy,Y.npy, and perhaps a second pair for testing, as a data set. */
#include "data.h"
#include "common/npy.h"
#include "read.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FILES = 4 };

struct pair {
    float *features, *targets;
    uint64_t rows;
};

struct arrays {
    struct pair pairs[2];
    uint32_t features;
};

static void fetch(const void *state, uint64_t row, float *features, float *target)
{
    const struct arrays *arrays = state;
    const struct pair *pair = arrays->pairs;
    if (row >= pair->rows) {
        row -= pair->rows;
        pair++;
    }
    memcpy(features, pair->features + row * arrays->features, arrays->features * sizeof *features);
    *target = pair->targets[row];
}

static void free_arrays(void *state)
{
    struct arrays *arrays = state;
    for (size_t i = 0; i < 2; i++) {
        free(arrays->pairs[i].features);
        free(arrays->pairs[i].targets);
    }
    free(arrays);
}

static bool is_finite(const float *values, uint64_t count, uint64_t *where)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!(values[i] - values[i] == 0)) {
            *where = i;
            return false;
        }
    }
    return true;
}

/* Integers take the place of the file's bytes as float32. */
static bool load_integers(const char *path, const struct npy *npy, float **values, struct failure *failure)
{
    uint64_t where;
    float *numbers = malloc((size_t)npy->count * sizeof *numbers + 1);
    const bool fits = numbers && npy_integers((const uint8_t *)*values, npy, numbers, &where);
    free(*values);
    *values = numbers;
    if (!numbers)
        return fail(failure, "cannot read '%s': out of memory for its numbers", path);
    return fits ||
           fail(failure, "cannot read '%s': element %" PRIu64 " has more digits than float32, which training uses",
                path, where);
}

static bool load(const char *path, float **values, struct npy *npy, struct failure *failure)
{
    struct content content;
    struct failure reason;
    if (!read_content(path, &content, failure))
        return false;
    *values = (float *)(void *)content.bytes;
    if (!npy_parse_any(content.bytes, content.size, npy, &reason))
        return fail(failure, "cannot read '%s': %s", path, reason.text);
    if (npy->type == NPY_INTEGER)
        return load_integers(path, npy, values, failure);
    if (npy->type == NPY_F2 && (size_t)npy->count * 4 > content.size) {
        uint8_t *larger = realloc(content.bytes, (size_t)npy->count * 4);
        if (!larger)
            return fail(failure, "cannot read '%s': out of memory for its conversion to float32", path);
        content.bytes = larger;
        *values = (float *)(void *)larger;
    }
    npy_unpack(content.bytes, npy, true);
    uint64_t where;
    if (!is_finite(*values, npy->count, &where))
        return fail(failure, "cannot read '%s': element %" PRIu64 " is not finite", path, where);
    return true;
}

static bool load_pair(const char *x, const char *y, struct arrays *arrays, struct pair *pair, struct failure *failure)
{
    struct npy features = {0}, targets = {0};
    if (!load(x, &pair->features, &features, failure) || !load(y, &pair->targets, &targets, failure))
        return false;
    if (features.dimensions < 2)
        return fail(failure, "'%s' has %u dimensions; features need two or more, the first for the rows", x,
                    features.dimensions);
    if (targets.count != features.first)
        return fail(failure, "'%s' has %" PRIu64 " rows and '%s' has %" PRIu64 " targets", x, features.first, y,
                    targets.count);
    if (features.count == 0 || features.first == 0)
        return fail(failure, "'%s' is empty", x);
    uint64_t width = features.count / features.first;
    if (width > UINT32_MAX / 2 || (arrays->features && arrays->features != width))
        return fail(failure, "'%s' has %" PRIu64 " features per row, but %" PRIu32 " are expected", x, width,
                    arrays->features);
    arrays->features = (uint32_t)width;
    pair->rows = targets.count;
    return true;
}

/* Classes of both pairs are numbered together. */
static uint32_t find_classes(struct arrays *arrays)
{
    uint64_t first = arrays->pairs[0].rows, second = arrays->pairs[1].rows;
    float *all = malloc((first + second + 1) * sizeof *all);
    if (!all)
        return 0;
    memcpy(all, arrays->pairs[0].targets, first * sizeof *all);
    if (second)
        memcpy(all + first, arrays->pairs[1].targets, second * sizeof *all);
    uint32_t classes = classes_among(all, first + second);
    memcpy(arrays->pairs[0].targets, all, first * sizeof *all);
    if (second)
        memcpy(arrays->pairs[1].targets, all + first, second * sizeof *all);
    free(all);
    return classes;
}

bool npy_open(const char *names, bool real_targets, struct dataset *data, struct failure *failure)
{
    char text[4 * PATH_ROOM];
    const char *files[MOST_FILES];
    size_t count = 0;
    if (strlen(names) >= sizeof text)
        return fail(failure, "the names of the data are too long");
    strcpy(text, names);
    char *at = text;
    for (; at && count < MOST_FILES; count++) {
        files[count] = at;
        at = strchr(at, ',');
        if (at)
            *at++ = '\0';
    }
    if (at || (count != 2 && count != 4))
        return fail(failure, "'%s' must be X.npy,Y.npy or X.npy,Y.npy,XTEST.npy,YTEST.npy", names);
    struct arrays *arrays = calloc(1, sizeof *arrays);
    if (!arrays)
        return fail(failure, "out of memory");
    for (size_t i = 0; i < count; i += 2) {
        if (!load_pair(files[i], files[i + 1], arrays, &arrays->pairs[i / 2], failure)) {
            free_arrays(arrays);
            return false;
        }
    }
    *data = (struct dataset){
        .train_rows = arrays->pairs[0].rows,
        .test_rows = arrays->pairs[1].rows,
        .features = arrays->features,
        .classes = real_targets ? 0 : find_classes(arrays),
        .fetch = fetch,
        .state = arrays,
        .free_state = free_arrays,
    };
    return true;
}
