/* Products of matrices. OpenBLAS does them, looked for when training starts, with one thread per call, so that the
 * result depends only on the shapes, not on how many ranks share the process. If it is not installed, plain loops are
 * used.
 */
#ifndef TRAIN_BLAS_H
#define TRAIN_BLAS_H

#include <stdbool.h>
#include <stddef.h>

/* Call it once, before any thread starts. With `plain`, the loops are used even where there is a BLAS. */
void blas_open(bool plain);

/* "openblas" or "plain". */
const char *blas_name(void);

/* Matrices are dense, row by row. C (m x n) = A (m x k) B (k x n) [+ C]. With `turn_a`, A is stored as k x m; with
 * `turn_b`, B is stored as n x k. */
void multiply(bool turn_a, bool turn_b, size_t m, size_t n, size_t k, const float *a, const float *b, bool add,
              float *c);

#endif
