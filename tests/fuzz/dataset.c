/* Any bytes as the files of a data set: LIBSVM text with its test rows, a directory of MNIST's four files or of
 * CIFAR-10's batches, .npy pairs; gzipped where they happen to be. The input: which kind, whether targets are taken as
 * numbers, then for each file a length (two bytes) and its bytes; the last file has what is left. CIFAR's rows are
 * long: there the bytes are repeated, and a length above 32767 leaves a row incomplete. Promises: what is refused says
 * why; of what is accepted every row can be fetched, with finite features and targets that are classes; and a row has
 * what the files say, as far as that is easily read in another way: of plain files, not of gzipped ones, and of .npy in
 * float32. */
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <unistd.h>

#include "train/data.h"

enum { LIBSVM, MNIST, CIFAR, NPY, KINDS };
enum { MOST_FILES = 4, MOST_FEATURES = 1 << 20, MOST_ROWS = 512, MOST_VALUES = 1 << 20, CIFAR_ROW = 3073 };

/* A data set's name is the directory, or what follows it here, with the directory before every file. */
static const struct {
    const char *files[MOST_FILES];
    bool is_directory;
} kinds[KINDS] = {
    {{"text", "text.t"}, false},
    {{"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}, true},
    {{"data_batch_1.bin", "test_batch.bin"}, true},
    {{"x.npy", "y.npy", "xt.npy", "yt.npy"}, false},
};

static char folder[] = "/tmp/fuzz-dataset-XXXXXX";

static void name_file(const char *file, char path[64]) { snprintf(path, 64, "%s/%s", folder, file); }

static void leave(void)
{
    char path[64];
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (unsigned i = 0; i < MOST_FILES && kinds[kind].files[i]; i++) {
            name_file(kinds[kind].files[i], path);
            unlink(path);
        }
    rmdir(folder);
}

/* What the files were written with, and a 0 behind it. */
static struct written {
    char *bytes;
    size_t size;
} written[MOST_FILES];

static void write_file(const char *name, const uint8_t *data, size_t size, size_t length, struct written *to)
{
    char path[64];
    name_file(name, path);
    free(to->bytes);
    *to = (struct written){exact_buffer(length + 1, 0), length};
    for (size_t done = 0; done < length && size > 0; done += size)
        memcpy(to->bytes + done, data, length - done < size ? length - done : size);
    FILE *file = fopen(path, "wb");
    REQUIRE(file, "cannot write %s", path);
    REQUIRE(fwrite(to->bytes, 1, length, file) == length && fclose(file) == 0, "cannot write %s", path);
}

/* Returns how many files there are. */
static unsigned write_files(unsigned kind, const uint8_t *data, size_t size)
{
    unsigned i = 0;
    leave();
    REQUIRE(mkdtemp(strcpy(folder, "/tmp/fuzz-dataset-XXXXXX")), "no folder");
    for (; i < MOST_FILES && kinds[kind].files[i] && size >= 2; i++) {
        const size_t said = (size_t)data[0] | (size_t)data[1] << 8;
        const bool is_last = i + 1 == MOST_FILES || !kinds[kind].files[i + 1];
        data += 2;
        size -= 2;
        const size_t own = is_last || said > size ? size : said;
        const size_t rows = own > 0 ? said % 8 * CIFAR_ROW + (said >> 15) : 0;
        write_file(kinds[kind].files[i], data, own, kind == CIFAR ? rows : own, &written[i]);
        data += own;
        size -= own;
    }
    return i;
}

/* ---- what a row must be ---- */

static bool is_plain(const struct written *file) { return file->size < 2 || memcmp(file->bytes, "\x1f\x8b", 2) != 0; }

static void compare_pixels(const struct dataset *data, const float *features, float target, const char *pixels,
                           const char *label)
{
    for (uint32_t i = 0; i < data->features; i++)
        REQUIRE(features[i] * 255 > (float)(uint8_t)pixels[i] - 0.5f &&
                    features[i] * 255 < (float)(uint8_t)pixels[i] + 0.5f,
                "pixel %u is %g", i, (double)features[i]);
    REQUIRE(target == (float)(uint8_t)*label, "a label is %g", (double)target);
}

/* '<' or '>' if a .npy file that was accepted, of version 1, has floats in that order of bytes. */
static char order_of_floats(const struct written *file)
{
    const char *header = file->bytes + 10, *type = is_plain(file) ? strstr(header, "f4'") : NULL;
    return type && type < header + strcspn(header, "}") ? type[-1] : 0;
}

/* `values`, where the file has them in float32, begin that many elements before its end. */
static void compare_floats(const float *values, size_t count, const struct written *file, size_t before_end)
{
    const char order = order_of_floats(file), *bytes = file->bytes + file->size - 4 * before_end;
    if (order != '<' && order != '>')
        return;
    for (size_t i = 0; i < count; i++) {
        uint32_t found, wanted = 0;
        for (unsigned j = 0; j < 4; j++)
            wanted |= (uint32_t)(uint8_t)bytes[4 * i + j] << 8 * (order == '<' ? j : 3 - j);
        memcpy(&found, &values[i], 4);
        REQUIRE(found == wanted, "float %zu is %08x", i, found);
    }
}

/* `left` rows from here on, to the end of their file: that is where IDX and .npy have their data. */
static void compare_row(const struct dataset *data, unsigned kind, bool is_test, uint64_t row, uint64_t left,
                        const float *features, float target)
{
    const struct written *x = &written[kind == CIFAR ? is_test : 2 * is_test], *y = x + 1;
    const size_t width = data->features;
    if (kind == CIFAR && is_plain(x))
        compare_pixels(data, features, target, x->bytes + row * CIFAR_ROW + 1, x->bytes + row * CIFAR_ROW);
    if (kind == MNIST && is_plain(x) && is_plain(y))
        compare_pixels(data, features, target, x->bytes + x->size - left * width, y->bytes + y->size - left);
    if (kind == NPY)
        compare_floats(features, width, x, left * width);
    if (kind == NPY && data->classes == 0)
        compare_floats(&target, 1, y, left);
}

/* A line without its comment. */
static void compare_line(char *line, const struct dataset *data, const float *features, float target)
{
    uint32_t entries = 0, found = 0;
    const float label = (float)strtod(line, &line);
    REQUIRE(data->classes > 0 || target == label, "the label %g is %g", (double)label, (double)target);
    while (line[strspn(line, " \t\r")]) {
        const unsigned long index = strtoul(line, &line, 10);
        REQUIRE(*line == ':' && index >= 1 && index <= data->features, "index %lu", index);
        const float value = (float)strtod(line + 1, &line);
        REQUIRE(features[index - 1] == value, "feature %lu, %g, is %g", index, (double)value,
                (double)features[index - 1]);
        entries += value != 0;
    }
    for (uint32_t i = 0; i < data->features; i++)
        found += features[i] != 0;
    REQUIRE(found == entries, "%u features, and %u entries", found, entries);
}

/* Cuts the text. */
static void compare_text(const struct dataset *data, struct written *file, uint64_t row, uint64_t end)
{
    float target, *features = exact_buffer((size_t)data->features * sizeof *features, 0);
    char *next;
    for (char *line = file->bytes; line < file->bytes + file->size; line = next) {
        char *newline = memchr(line, '\n', (size_t)(file->bytes + file->size - line));
        next = newline ? newline + 1 : file->bytes + file->size;
        if (newline)
            *newline = 0;
        line[strcspn(line, "#")] = 0;
        if (line[strspn(line, " \t\r")] == 0)
            continue;
        REQUIRE(row < end, "fewer rows than lines");
        data->fetch(data->state, row++, features, &target);
        compare_line(line, data, features, target);
    }
    REQUIRE(row == end, "more rows than lines");
    free(features);
}

static void compare_texts(const struct dataset *data, unsigned files)
{
    const uint64_t rows = data->train_rows + data->test_rows;
    if (rows * data->features > MOST_VALUES || !is_plain(&written[0]) || (files > 1 && !is_plain(&written[1])))
        return;
    compare_text(data, &written[0], 0, data->train_rows);
    if (files > 1)
        compare_text(data, &written[1], data->train_rows, rows);
}

static void fetch_rows(const struct dataset *data, unsigned kind)
{
    const uint64_t rows = data->train_rows + data->test_rows;
    float target, *features = exact_buffer((size_t)data->features * sizeof *features, 0);
    for (uint64_t row = 0; row < rows; row += 1 + rows / MOST_ROWS) {
        data->fetch(data->state, row, features, &target);
        for (uint32_t i = 0; i < data->features; i++)
            REQUIRE(isfinite(features[i]), "row %llu, feature %u", (unsigned long long)row, i);
        REQUIRE(isfinite(target), "row %llu has the target %g", (unsigned long long)row, (double)target);
        if (data->classes > 0)
            REQUIRE(target >= 0 && target < (float)data->classes && target == floorf(target), "row %llu is of class %g",
                    (unsigned long long)row, (double)target);
        const bool is_test = row >= data->train_rows;
        compare_row(data, kind, is_test, is_test ? row - data->train_rows : row,
                    (is_test ? rows : data->train_rows) - row, features, target);
    }
    free(features);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_ready;
    char name[4 * 64] = "";
    if (!is_ready)
        REQUIRE(mkdtemp(folder) && atexit(leave) == 0, "no folder");
    is_ready = true;
    if (size < 2)
        return 0;
    const unsigned kind = data[0] % KINDS, files = write_files(kind, data + 2, size - 2);
    for (unsigned i = 0; i < (kind == LIBSVM ? 1 : files) && !kinds[kind].is_directory; i++)
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s%s/%s", i ? "," : "", folder,
                 kinds[kind].files[i]);
    struct dataset set;
    struct failure failure = {{0}};
    if (dataset_open(kinds[kind].is_directory ? folder : name, 0, data[1] & 1, &set, &failure)) {
        REQUIRE(set.train_rows > 0 && set.features > 0, "nothing to train on");
        REQUIRE(!(data[1] & 1) || set.classes == 0, "classes where numbers were wanted");
        if (set.features <= MOST_FEATURES)
            fetch_rows(&set, kind);
        if (kind == LIBSVM)
            compare_texts(&set, files);
        dataset_close(&set);
    } else {
        REQUIRE(failure.text[0] != 0, "refused without a reason");
    }
    return 0;
}
