/* Images with labels, bytes both: MNIST's four IDX files, and CIFAR-10's binary batches. Pixels become 0 ... 1. */
#include "data.h"
#include "idx.h"
#include "read.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file, and where in it a row's pixels and label lie. MNIST has them in two files. */
struct part {
    struct content images, labels;
    size_t image_start, image_stride, label_start, label_stride;
    uint64_t rows;
};

enum { MOST_PARTS = 8 };
#define MOST_PIXELS (UINT32_C(1) << 26)
struct images {
    struct part parts[MOST_PARTS];
    size_t part_count;
    uint32_t pixels;
};

static void fetch(const void *state, uint64_t row, float *features, float *target)
{
    const struct images *images = state;
    const struct part *part = images->parts;
    for (; row >= part->rows; part++)
        row -= part->rows;
    const uint8_t *pixels = part->images.bytes + part->image_start + row * part->image_stride;
    const uint8_t *labels = part->labels.bytes ? part->labels.bytes : part->images.bytes;
    for (uint32_t i = 0; i < images->pixels; i++)
        features[i] = (float)pixels[i] * (1.0f / 255);
    *target = (float)labels[part->label_start + row * part->label_stride];
}

static void free_images(void *state)
{
    struct images *images = state;
    for (size_t i = 0; i < MOST_PARTS; i++) {
        free(images->parts[i].images.bytes);
        free(images->parts[i].labels.bytes);
    }
    free(images);
}

/* Classes are 0 ... the largest label. */
static uint32_t count_classes(const struct images *images)
{
    uint32_t largest = 0;
    for (size_t p = 0; p < images->part_count; p++) {
        const struct part *part = &images->parts[p];
        const uint8_t *labels = part->labels.bytes ? part->labels.bytes : part->images.bytes;
        for (uint64_t row = 0; row < part->rows; row++) {
            uint32_t label = labels[part->label_start + row * part->label_stride];
            largest = label > largest ? label : largest;
        }
    }
    return largest + 1;
}

static void describe(struct images *images, uint64_t train_rows, uint64_t test_rows, struct dataset *data)
{
    *data = (struct dataset){
        .train_rows = train_rows,
        .test_rows = test_rows,
        .features = images->pixels,
        .classes = count_classes(images),
        .fetch = fetch,
        .state = images,
        .free_state = free_images,
    };
}

/* ---- MNIST ---- */

static const char *const idx_names[2][2] = {
    {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
    {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"},
};

bool idx_is_in(const char *directory)
{
    char path[PATH_ROOM];
    return find_in(directory, idx_names[0][0], path);
}

static bool load_idx(const char *directory, const char *name, struct content *content, struct idx *idx,
                     struct failure *failure)
{
    char path[PATH_ROOM];
    if (!find_in(directory, name, path))
        return fail(failure, "'%s' lacks %s (or %s.gz)", directory, name, name);
    struct failure reason;
    if (!read_content(path, content, failure))
        return false;
    if (!idx_parse(content->bytes, content->size, idx, &reason))
        return fail(failure, "cannot read '%s': %s", path, reason.text);
    return true;
}

/* Height, width and what else there is of one image; the number of images comes before it. */
static bool is_same_shape(const struct part *a, const struct part *b)
{
    enum { SHAPE = 8 };
    return a->image_start == b->image_start &&
           memcmp(a->images.bytes + SHAPE, b->images.bytes + SHAPE, a->image_start - SHAPE) == 0;
}

static bool load_pair(const char *directory, const char *const names[2], struct images *images, struct failure *failure)
{
    struct part *part = &images->parts[images->part_count++];
    struct idx pixels = {0}, labels = {0};
    if (!load_idx(directory, names[0], &part->images, &pixels, failure) ||
        !load_idx(directory, names[1], &part->labels, &labels, failure))
        return false;
    if (labels.row_bytes != 1 || pixels.rows != labels.rows)
        return fail(failure, "'%s' has %" PRIu64 " images in %s and %" PRIu64 " labels in %s", directory, pixels.rows,
                    names[0], labels.rows * labels.row_bytes, names[1]);
    if (pixels.rows == 0 || pixels.row_bytes == 0)
        return fail(failure, "%s in '%s' holds no pixels", names[0], directory);
    if (pixels.row_bytes > MOST_PIXELS)
        return fail(failure, "the images of %s in '%s' have %" PRIu64 " pixels; the limit is %" PRIu32, names[0],
                    directory, pixels.row_bytes, MOST_PIXELS);
    if (images->pixels && images->pixels != pixels.row_bytes)
        return fail(failure, "the images of %s in '%s' have %" PRIu64 " pixels, and those for training have %" PRIu32,
                    names[0], directory, pixels.row_bytes, images->pixels);
    images->pixels = (uint32_t)pixels.row_bytes;
    part->image_start = pixels.data_offset;
    if (!is_same_shape(&images->parts[0], part))
        return fail(failure, "the images of %s in '%s' have another height and width than those for training", names[0],
                    directory);
    part->image_stride = (size_t)pixels.row_bytes;
    part->label_start = labels.data_offset;
    part->label_stride = 1;
    part->rows = pixels.rows;
    return true;
}

bool idx_open(const char *directory, struct dataset *data, struct failure *failure)
{
    struct images *images = calloc(1, sizeof *images);
    if (!images)
        return fail(failure, "out of memory");
    if (!load_pair(directory, idx_names[0], images, failure) || !load_pair(directory, idx_names[1], images, failure)) {
        free_images(images);
        return false;
    }
    describe(images, images->parts[0].rows, images->parts[1].rows, data);
    return true;
}

/* ---- CIFAR-10: a byte for the label, then 3 * 32 * 32 for the image ---- */

enum { CIFAR_PIXELS = 3 * 32 * 32, CIFAR_ROW = CIFAR_PIXELS + 1, CIFAR_CLASSES = 10 };

bool cifar_is_in(const char *directory)
{
    char path[PATH_ROOM];
    return find_in(directory, "data_batch_1.bin", path);
}

static bool load_batch(const char *path, struct images *images, struct failure *failure)
{
    struct part *part = &images->parts[images->part_count++];
    if (!read_content(path, &part->images, failure))
        return false;
    if (part->images.size == 0 || part->images.size % CIFAR_ROW != 0)
        return fail(failure, "cannot read '%s': its %zu bytes are not rows of %d", path, part->images.size, CIFAR_ROW);
    part->rows = part->images.size / CIFAR_ROW;
    part->image_start = 1;
    part->image_stride = part->label_stride = CIFAR_ROW;
    for (uint64_t row = 0; row < part->rows; row++)
        if (part->images.bytes[row * CIFAR_ROW] >= CIFAR_CLASSES)
            return fail(failure, "cannot read '%s': row %" PRIu64 " has the label %u, and there are %d classes", path,
                        row, (unsigned)part->images.bytes[row * CIFAR_ROW], CIFAR_CLASSES);
    return true;
}

bool cifar_open(const char *directory, struct dataset *data, struct failure *failure)
{
    struct images *images = calloc(1, sizeof *images);
    if (!images)
        return fail(failure, "out of memory");
    images->pixels = CIFAR_PIXELS;
    uint64_t train_rows = 0, test_rows = 0;
    char path[PATH_ROOM], name[32];
    bool is_read = true;
    int missing = 0;
    for (int i = 1; i <= 5 && is_read; i++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        if (!find_in(directory, name, path)) {
            missing = missing ? missing : i; /* the first few batches are data too, but a gap is a mistake */
            continue;
        }
        is_read = missing ? fail(failure, "'%s' has %s and lacks data_batch_%d.bin", directory, name, missing)
                          : load_batch(path, images, failure);
        train_rows += is_read ? images->parts[images->part_count - 1].rows : 0;
    }
    if (is_read && find_in(directory, "test_batch.bin", path)) {
        is_read = load_batch(path, images, failure);
        test_rows = is_read ? images->parts[images->part_count - 1].rows : 0;
    }
    if (!is_read) {
        free_images(images);
        return false;
    }
    describe(images, train_rows, test_rows, data);
    data->classes = CIFAR_CLASSES;
    return true;
}
