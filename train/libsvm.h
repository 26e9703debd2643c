/* LIBSVM's text: a line for each row, "LABEL INDEX:VALUE INDEX:VALUE ...", indices from 1 and increasing, '#' to the
 * end of the line is a comment. What a line leaves out is 0. */
#ifndef TRAIN_LIBSVM_H
#define TRAIN_LIBSVM_H

#include "common/failure.h"

#include <stddef.h>
#include <stdint.h>

/* Row r has the entries starts[r] ... starts[r + 1] - 1. */
struct sparse_rows {
    uint64_t rows, entries;
    uint32_t features; /* the largest index */
    float *labels;
    uint64_t *starts;  /* rows + 1 of them */
    uint32_t *indices; /* from 0 */
    float *values;
    uint64_t row_room, entry_room;
};

#define LIBSVM_MOST_FEATURES (UINT32_C(1) << 26)

/* Appends the rows of `text`, which has a 0 at text[size]. `name` is what errors call it: "NAME:LINE: ...". On failure
 * the rows must still be freed. */
bool libsvm_parse(const char *text, size_t size, const char *name, struct sparse_rows *rows, struct failure *failure);
void sparse_rows_free(struct sparse_rows *rows);

#endif
