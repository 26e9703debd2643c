/* Well-known models: their tensors, and about how long each takes. */
#ifndef PREDICT_MODELS_H
#define PREDICT_MODELS_H

#include "predict.h"

struct known_tensor {
    char name[64];
    uint64_t count;
    double work; /* multiplications and additions of the forward pass for one step's batch that belong to it */
};

struct known_model {
    struct known_tensor *tensors; /* from malloc, in the order of the forward pass */
    size_t count, room;
    uint64_t parameters;
    double work;    /* of all */
    char batch[48]; /* what a step of a rank has: "32 images" */
};

/* Their names, ends with NULL. */
extern const char *const known_models[];

/* False without memory, or for a name that is not one of these. */
bool known_model_make(const char *name, struct known_model *model, struct failure *failure);
void known_model_free(struct known_model *model);

/* What the assumed card does: 1e13 operations a second. So a forward pass takes work / KNOWN_MODEL_SPEED seconds, and a
 * backward pass, with its two products for each of the forward pass, twice that. */
#define KNOWN_MODEL_SPEED 1e13

/* Tensors as they become ready in a backward pass of so many seconds: last first, each when its share of the work is
 * done. `tensors` has room for model->count. Names are those of the model. */
void known_model_ready(const struct known_model *model, double backward, struct predict_tensor *tensors);

#endif
