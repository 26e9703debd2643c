/* Any bytes as LIBSVM's text. What is accepted has increasing indices within the features, finite values, and reads the
 * same when it is written again. */
#include "train/libsvm.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>

static void check_rows(const struct sparse_rows *rows)
{
    REQUIRE(rows->starts[0] == 0 && rows->starts[rows->rows] == rows->entries, "starts do not cover the entries");
    for (uint64_t row = 0; row < rows->rows; row++) {
        REQUIRE(isfinite(rows->labels[row]), "a label that is not finite");
        REQUIRE(rows->starts[row] <= rows->starts[row + 1], "a row that ends before it starts");
        for (uint64_t i = rows->starts[row]; i < rows->starts[row + 1]; i++) {
            REQUIRE(rows->indices[i] < rows->features, "index %u of %u", rows->indices[i], rows->features);
            REQUIRE(i == rows->starts[row] || rows->indices[i] > rows->indices[i - 1], "indices that do not increase");
            REQUIRE(isfinite(rows->values[i]), "a value that is not finite");
        }
    }
}

static char *write_rows(const struct sparse_rows *rows, size_t *size)
{
    char *text = exact_buffer((rows->rows + rows->entries) * 48 + 1, 0), *at = text;
    for (uint64_t row = 0; row < rows->rows; row++) {
        at += sprintf(at, "%.9g", (double)rows->labels[row]);
        for (uint64_t i = rows->starts[row]; i < rows->starts[row + 1]; i++)
            at += sprintf(at, " %u:%.9g", rows->indices[i] + 1, (double)rows->values[i]);
        at += sprintf(at, "\n");
    }
    *size = (size_t)(at - text);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = exact_buffer(size + 1, 0);
    memcpy(text, data, size);
    struct sparse_rows rows = {0}, again = {0};
    struct failure failure = {{0}};
    if (libsvm_parse(text, size, "fuzz", &rows, &failure)) {
        check_rows(&rows);
        size_t written;
        char *copy = write_rows(&rows, &written);
        REQUIRE(libsvm_parse(copy, written, "copy", &again, &failure), "our own text: %s", failure.text);
        REQUIRE(again.rows == rows.rows && again.entries == rows.entries && again.features == rows.features,
                "another shape");
        REQUIRE(memcmp(again.labels, rows.labels, rows.rows * sizeof *rows.labels) == 0, "other labels");
        if (rows.entries > 0)
            REQUIRE(memcmp(again.values, rows.values, rows.entries * sizeof *rows.values) == 0 &&
                        memcmp(again.indices, rows.indices, rows.entries * sizeof *rows.indices) == 0,
                    "other entries");
        free(copy);
    } else {
        REQUIRE(strncmp(failure.text, "fuzz:", 5) == 0, "refused without a line: %s", failure.text);
    }
    sparse_rows_free(&rows);
    sparse_rows_free(&again);
    free(text);
    return 0;
}
