/* Data sets. A row is fetched by its number, as features and a target; whether it is read from memory or computed is up
 * to the data set. Rows 0 ... train_rows - 1 are for training, the test rows follow. */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include "common/failure.h"

#include <stddef.h>
#include <stdint.h>

struct dataset {
    uint64_t train_rows, test_rows;
    uint32_t features;
    uint32_t classes;     /* targets are 0 ... classes - 1; 0: they are real numbers */
    const float *optimum; /* the weights that the targets were made with, one for each feature; NULL if unknown */
    void (*fetch)(const void *state, uint64_t row, float *features, float *target);
    uint64_t digest; /* of what was read from files; 0 for what is made */
    void *state;
    void (*free_state)(void *state);
};

/* What `name` can be: syn-256, syn-512, syn-1024, syn-20k, synthetic:KEY=VALUE,...; a directory with the files of MNIST
 * or CIFAR-10; X.npy,Y.npy or X.npy,Y.npy,XTEST.npy,YTEST.npy; or a file in LIBSVM's format, whose FILE.t, if there is
 * one, holds the test rows. With `real_targets` they are taken as numbers even where they look like classes. */
bool dataset_open(const char *name, uint64_t seed, bool real_targets, struct dataset *data, struct failure *failure);
void dataset_close(struct dataset *data);
/* Whether that needs no file: then an error in the name can be reported before anything else is done. */
bool dataset_is_synthetic(const char *name);

/* The readers behind it, one file each. */
bool synthetic_open(const char *text, uint64_t seed, struct dataset *data, struct failure *failure);
bool idx_open(const char *directory, struct dataset *data, struct failure *failure);
bool cifar_open(const char *directory, struct dataset *data, struct failure *failure);
bool npy_open(const char *names, bool real_targets, struct dataset *data, struct failure *failure);
bool libsvm_open(const char *path, bool real_targets, struct dataset *data, struct failure *failure);

/* Whether a directory has the files of that kind. */
bool idx_is_in(const char *directory);
bool cifar_is_in(const char *directory);

/* Targets that are whole numbers of at most this many kinds are classes. */
#define MOST_CLASSES 64
/* Renumbers targets 0, 1, ... in increasing order if they look like classes, and returns how many there are; else 0. */
uint32_t classes_among(float *targets, uint64_t count);

#endif
