/* Any bytes as the files of a data set: LIBSVM text with its test rows, a directory of MNIST's four files or of CIFAR-10's batches, .npy pairs; gzipped
 * where they happen to be. The input: which kind, whether targets are taken as numbers, then for each file a length (two bytes) and its
 * bytes; the last file has what is left. CIFAR's rows are long: there the bytes are repeated, and a length above 32767 leaves a row incomplete.
 * Promises: what is refused says why; of what is accepted every row can be fetched, with finite features and targets that are classes. */
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <unistd.h>

#include "train/data.h"

enum { KINDS = 4, MOST_FILES = 4, MOST_FEATURES = 1 << 20, MOST_ROWS = 512, CIFAR_ROW = 3073 };

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

static void write_file(const char *name, const uint8_t *data, size_t size, size_t length)
{
    char path[64];
    name_file(name, path);
    FILE *file = fopen(path, "wb");
    REQUIRE(file, "cannot write %s", path);
    for (size_t done = 0; done < length && size > 0; done += size)
        REQUIRE(fwrite(data, 1, length - done < size ? length - done : size, file) > 0, "cannot write %s", path);
    REQUIRE(fclose(file) == 0, "cannot write %s", path);
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
        write_file(kinds[kind].files[i], data, own, kind == 2 ? rows : own);
        data += own;
        size -= own;
    }
    return i;
}

static void fetch_rows(const struct dataset *data)
{
    const uint64_t rows = data->train_rows + data->test_rows;
    float target, *features = exact_buffer((size_t)data->features * sizeof *features, 0);
    for (uint64_t row = 0; row < rows; row += 1 + rows / MOST_ROWS) {
        data->fetch(data->state, row, features, &target);
        for (uint32_t i = 0; i < data->features; i++)
            REQUIRE(isfinite(features[i]), "row %llu, feature %u", (unsigned long long)row, i);
        REQUIRE(isfinite(target), "row %llu has the target %g", (unsigned long long)row, (double)target);
        if (data->classes > 0)
            REQUIRE(target >= 0 && target < (float)data->classes && target == floorf(target), "row %llu is of class %g", (unsigned long long)row,
                    (double)target);
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
    for (unsigned i = 0; i < (kind == 0 ? 1 : files) && !kinds[kind].is_directory; i++)
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s%s/%s", i ? "," : "", folder, kinds[kind].files[i]);
    struct dataset set;
    struct message message = {{0}};
    if (dataset_open(kinds[kind].is_directory ? folder : name, 0, data[1] & 1, &set, &message)) {
        REQUIRE(set.train_rows > 0 && set.features > 0, "nothing to train on");
        REQUIRE(!(data[1] & 1) || set.classes == 0, "classes where numbers were wanted");
        if (set.features <= MOST_FEATURES)
            fetch_rows(&set);
        dataset_close(&set);
    } else {
        REQUIRE(message.text[0] != 0, "refused without a reason");
    }
    return 0;
}
