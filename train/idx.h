/* The IDX format of MNIST: two zero bytes, a type, the number of dimensions, their lengths as big-endian 32-bit
 * integers, the data. */
#ifndef TRAIN_IDX_H
#define TRAIN_IDX_H

#include "common/failure.h"

#include <stddef.h>
#include <stdint.h>

struct idx {
    unsigned dimensions;
    uint64_t rows;      /* the first length */
    uint64_t row_bytes; /* the product of the others */
    size_t data_offset; /* rows * row_bytes bytes start there, and nothing follows them */
};

/* Reads the header of an array of bytes (type 8) and checks that the data agree with it. Safe on any bytes. */
bool idx_parse(const uint8_t *bytes, size_t size, struct idx *idx, struct failure *failure);

#endif
