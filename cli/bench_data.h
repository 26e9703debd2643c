/* Synthetic gradients for the benchmark, the same on every run, and gradients from a file. */
#ifndef CLI_BENCH_DATA_H
#define CLI_BENCH_DATA_H

#include "complain.h"

#include <stddef.h>

/* A float32 vector on a multiple of 64 bytes, every page touched. */
struct bench_vector {
    float *values;
    void *storage;
};

/* Vectors made one after the other start at different places within a page (`place` counts them): two streams that
 * collide modulo 4096 slow each other down. */
bool vector_create(struct bench_vector *vector, size_t count, size_t place, struct failure *failure);
void vector_free(struct bench_vector *vector);

/* True for "gaussian", "laplace" and so on; anything else is the name of a .npy file. */
bool is_distribution(const char *name);

/* The distributions as one text: "gaussian|laplace|...". Those from "equal" on are unkind to selection. */
#define DISTRIBUTION_NAMES "gaussian, laplace, student, uniform, mixture, equal, signs, sorted, layer, ambush"

/* Fills `number_of_vectors` vectors with different gradients of one kind. A file's values are cut or repeated to
 * `count`; the second vector and those that follow hold them times 1 + N(0, 1/4), so that layers keep their scales and
 * zeros stay zeros. `command` is for warnings. */
bool fill_gradients(const char *distribution, struct bench_vector *vectors, size_t number_of_vectors, size_t count,
                    const char *command, struct failure *failure);

#endif
