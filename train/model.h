/* Models: layers of weights with rectified units between them, and a loss behind the last. Without hidden layers it is
 * least squares, logistic regression or softmax regression. All parameters are one vector; its tensors have names. */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include "data.h"

enum model_loss {
    LOSS_SQUARED,  /* half the squared difference */
    LOSS_LOGISTIC, /* of two classes, with one output */
    LOSS_SOFTMAX
};

enum { MODEL_MOST_LAYERS = 8, MODEL_MOST_TENSORS = 2 * MODEL_MOST_LAYERS };

struct model_tensor {
    char name[24]; /* "layer1.weight" */
    uint64_t offset, count;
};

struct model {
    enum model_loss loss;
    bool has_bias;
    unsigned layers;
    uint32_t sizes[MODEL_MOST_LAYERS + 1]; /* features, hidden units..., outputs */
    uint64_t parameters;
    unsigned tensor_count;
    struct model_tensor
        tensors[MODEL_MOST_TENSORS]; /* of layer i: 2i the weights, 2i + 1 the bias; i and no bias without one */
};

/* linear, linear:bias, logistic, logistic:bias, softmax, mlp:SIZE,SIZE,...; NULL picks what suits the data. */
bool model_create(const char *text, const struct dataset *data, struct model *model, struct failure *failure);

/* Whether the model of this name takes targets as numbers. */
bool model_wants_real_targets(const char *text);

/* The weights that a run begins with: all zero without hidden layers, else normal, of variance 2 / inputs. */
void model_start(const struct model *model, uint64_t seed, float *weights);

/* Room for the work on batches of up to `rows` rows. */
struct model_work {
    uint64_t rows;
    float *features, *targets;             /* the batch: put it here */
    float *outputs[MODEL_MOST_LAYERS + 1]; /* [0] is `features` */
    float *deltas[2];
    void *storage;
};
bool model_work_create(const struct model *model, uint64_t rows, struct model_work *work, struct failure *failure);
void model_work_free(struct model_work *work);

struct model_score {
    double loss;      /* summed over the rows */
    uint64_t correct; /* rows whose class was the likeliest; 0 for real targets */
};

/* The loss of the batch in `work`, and with `gradient` its gradient, both means over the rows (the score is a sum). */
struct model_score model_run(const struct model *model, const float *weights, struct model_work *work, uint64_t rows,
                             float *gradient);

/* Score over rows first ... first + count - 1 of the data. */
struct model_score model_evaluate(const struct model *model, const float *weights, const struct dataset *data,
                                  uint64_t first, uint64_t count, struct model_work *work);

#endif
