/* Forward and back; see model.h. */
#include "blas.h"
#include "model.h"

#include <math.h>

static const float *weights_of(const struct model *model, const float *all, unsigned layer)
{
    return all + model->tensors[layer * (model->has_bias ? 2 : 1)].offset;
}

/* ---- forward ---- */

static void forward(const struct model *model, const float *weights, struct model_work *work, uint64_t rows)
{
    for (unsigned layer = 0; layer < model->layers; layer++) {
        uint32_t inputs = model->sizes[layer], outputs = model->sizes[layer + 1];
        float *out = work->outputs[layer + 1];
        multiply(false, true, rows, outputs, inputs, work->outputs[layer], weights_of(model, weights, layer), false,
                 out);
        const float *bias = model->has_bias ? weights + model->tensors[2 * layer + 1].offset : NULL;
        bool is_hidden = layer + 1 < model->layers;
        for (uint64_t row = 0; row < rows; row++, out += outputs) {
            if (bias)
                for (uint32_t i = 0; i < outputs; i++)
                    out[i] += bias[i];
            if (is_hidden)
                for (uint32_t i = 0; i < outputs; i++)
                    out[i] = out[i] > 0 ? out[i] : 0;
        }
    }
}

/* ---- losses: of one row, with the derivative by its outputs ---- */

static double squared(const float *out, float target, float *delta)
{
    double difference = (double)out[0] - (double)target;
    delta[0] = (float)difference;
    return difference * difference / 2;
}

static double logistic(const float *out, float target, float *delta, bool *is_correct)
{
    double z = (double)out[0], sign = target > 0 ? 1 : -1;
    double margin = sign * z, shrunk = exp(-fabs(z));
    /* log(1 + exp(-margin)) without overflow */
    double loss = log1p(shrunk) + (margin < 0 ? -margin : 0);
    double probability = (z >= 0 ? 1 : shrunk) / (1 + shrunk);
    delta[0] = (float)(probability - (target > 0 ? 1 : 0));
    *is_correct = margin > 0;
    return loss;
}

static double softmax(const float *out, uint32_t classes, float target, float *delta, bool *is_correct)
{
    uint32_t best = 0, wanted = (uint32_t)target;
    for (uint32_t i = 1; i < classes; i++)
        best = out[i] > out[best] ? i : best;
    double sum = 0; /* at least 1, for the best of them */
    for (uint32_t i = 0; i < classes; i++) {
        delta[i] = expf(out[i] - out[best]);
        sum += (double)delta[i];
    }
    for (uint32_t i = 0; i < classes; i++)
        delta[i] = (float)((double)delta[i] / sum);
    delta[wanted] -= 1;
    const double loss = log(sum > 0 ? sum : 1) - ((double)out[wanted] - (double)out[best]);
    *is_correct = best == wanted && isfinite(loss); /* outputs that are not numbers choose nothing */
    return loss;
}

static struct model_score score_rows(const struct model *model, struct model_work *work, uint64_t rows, float *deltas)
{
    struct model_score score = {0};
    uint32_t outputs = model->sizes[model->layers];
    const float *out = work->outputs[model->layers];
    for (uint64_t row = 0; row < rows; row++, out += outputs, deltas += outputs) {
        float target = work->targets[row];
        bool is_correct = false;
        switch (model->loss) {
        case LOSS_SQUARED:
            score.loss += squared(out, target, deltas);
            break;
        case LOSS_LOGISTIC:
            score.loss += logistic(out, target, deltas, &is_correct);
            break;
        case LOSS_SOFTMAX:
            score.loss += softmax(out, outputs, target, deltas, &is_correct);
            break;
        }
        score.correct += is_correct;
    }
    return score;
}

/* ---- back ---- */

static void sum_columns(const float *matrix, uint64_t rows, uint32_t columns, float *sums)
{
    for (uint32_t i = 0; i < columns; i++)
        sums[i] = 0;
    for (uint64_t row = 0; row < rows; row++, matrix += columns)
        for (uint32_t i = 0; i < columns; i++)
            sums[i] += matrix[i];
}

static void backward(const struct model *model, const float *weights, struct model_work *work, uint64_t rows,
                     float *gradient)
{
    const float *delta = work->deltas[0];
    for (unsigned layer = model->layers; layer-- > 0;) {
        uint32_t inputs = model->sizes[layer], outputs = model->sizes[layer + 1];
        float *slope = gradient + model->tensors[layer * (model->has_bias ? 2 : 1)].offset;
        multiply(true, false, outputs, inputs, rows, delta, work->outputs[layer], false, slope);
        if (model->has_bias)
            sum_columns(delta, rows, outputs, gradient + model->tensors[2 * layer + 1].offset);
        if (layer == 0)
            break;
        float *before = work->deltas[delta == work->deltas[0]];
        multiply(false, false, rows, inputs, outputs, delta, weights_of(model, weights, layer), false, before);
        const float *out = work->outputs[layer];
        for (uint64_t i = 0; i < rows * inputs; i++)
            before[i] = out[i] > 0 ? before[i] : 0;
        delta = before;
    }
}

struct model_score model_run(const struct model *model, const float *weights, struct model_work *work, uint64_t rows,
                             float *gradient)
{
    forward(model, weights, work, rows);
    struct model_score score = score_rows(model, work, rows, work->deltas[0]);
    if (!gradient)
        return score;
    const float share = 1 / (float)rows;
    for (uint64_t i = 0; i < rows * model->sizes[model->layers]; i++)
        work->deltas[0][i] *= share;
    backward(model, weights, work, rows, gradient);
    return score;
}

struct model_score model_evaluate(const struct model *model, const float *weights, const struct dataset *data,
                                  uint64_t first, uint64_t count, struct model_work *work)
{
    struct model_score score = {0};
    for (uint64_t done = 0; done < count;) {
        uint64_t rows = count - done < work->rows ? count - done : work->rows;
        for (uint64_t i = 0; i < rows; i++)
            data->fetch(data->state, first + done + i, work->features + i * data->features, work->targets + i);
        struct model_score part = model_run(model, weights, work, rows, NULL);
        score.loss += part.loss;
        score.correct += part.correct;
        done += rows;
    }
    return score;
}
