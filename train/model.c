/* What a model is made of, and its first weights; see model.h. */
#include "model.h"

#include "random.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t most_parameters = UINT64_C(1) << 31;

static void add_tensor(struct model *model, unsigned layer, const char *kind, uint64_t count)
{
    struct model_tensor *tensor = &model->tensors[model->tensor_count++];
    if (model->layers > 1)
        snprintf(tensor->name, sizeof tensor->name, "layer%u.%s", layer + 1, kind);
    else
        snprintf(tensor->name, sizeof tensor->name, "%s", kind);
    tensor->offset = model->parameters;
    tensor->count = count;
    model->parameters += count;
}

static bool finish(struct model *model, const char *text, struct failure *failure)
{
    for (unsigned layer = 0; layer < model->layers; layer++) {
        add_tensor(model, layer, "weight", (uint64_t)model->sizes[layer] * model->sizes[layer + 1]);
        if (model->has_bias)
            add_tensor(model, layer, "bias", model->sizes[layer + 1]);
        if (model->parameters > most_parameters)
            return fail(failure, "the model '%s' has more than %" PRIu64 " parameters", text, most_parameters);
    }
    return true;
}

/* SIZE,SIZE,... after "mlp:" */
static bool read_sizes(const char *text, struct model *model, struct failure *failure)
{
    const char *at = text + strlen("mlp:");
    for (;;) {
        char *end;
        unsigned long size = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || size < 1 || size > 65536 || (*end != ',' && *end != '\0'))
            return fail(failure,
                        "--model mlp takes the sizes of its hidden layers, 1 to 65536 each, as mlp:256,128, not '%s'",
                        text);
        if (model->layers == MODEL_MOST_LAYERS - 1)
            return fail(failure, "--model mlp takes up to %d hidden layers", MODEL_MOST_LAYERS - 1);
        model->sizes[++model->layers] = (uint32_t)size;
        if (*end == '\0')
            return true;
        at = end + 1;
    }
}

bool model_wants_real_targets(const char *text) { return text && strncmp(text, "linear", 6) == 0; }

bool model_create(const char *text, const struct dataset *data, struct model *model, struct failure *failure)
{
    *model = (struct model){.sizes = {data->features}};
    if (!text)
        text = data->classes == 0 ? "linear" : data->classes == 2 ? "logistic:bias" : "mlp:128";
    uint32_t outputs = data->classes > 1 ? data->classes : 1;
    model->loss = data->classes > 1 ? LOSS_SOFTMAX : LOSS_SQUARED;
    model->has_bias = true;
    bool is_logistic = strcmp(text, "logistic") == 0 || strcmp(text, "logistic:bias") == 0;
    if (strcmp(text, "linear") == 0 || strcmp(text, "linear:bias") == 0 || is_logistic) {
        model->loss = is_logistic ? LOSS_LOGISTIC : LOSS_SQUARED;
        model->has_bias = strchr(text, ':') != NULL;
        outputs = 1;
        if (is_logistic && data->classes != 2)
            return fail(failure, "--model %s needs targets of two classes, and these data have %s", text,
                        data->classes ? "more (softmax takes them)" : "real numbers (linear takes them)");
    } else if (strcmp(text, "softmax") == 0) {
        if (data->classes == 0)
            return fail(
                failure,
                "--model softmax needs classes, and these data have real numbers for targets (linear takes them)");
    } else if (strncmp(text, "mlp:", 4) == 0) {
        if (!read_sizes(text, model, failure))
            return false;
    } else {
        return fail(
            failure,
            "--model takes linear, linear:bias, logistic, logistic:bias, softmax or mlp:SIZE,SIZE,..., not '%s'", text);
    }
    model->sizes[++model->layers] = outputs;
    return finish(model, text, failure);
}

void model_start(const struct model *model, uint64_t seed, float *weights)
{
    memset(weights, 0, model->parameters * sizeof *weights);
    if (model->layers == 1)
        return;
    for (unsigned layer = 0; layer < model->layers; layer++) {
        const struct model_tensor *tensor = &model->tensors[layer * (model->has_bias ? 2 : 1)];
        float *at = weights + tensor->offset;
        const float scale = (float)sqrt(2.0 / (double)model->sizes[layer]);
        fill_normal(random_key(seed, FOR_WEIGHTS, layer), at, tensor->count);
        for (uint64_t i = 0; i < tensor->count; i++)
            at[i] *= scale;
    }
}

bool model_work_create(const struct model *model, uint64_t rows, struct model_work *work, struct failure *failure)
{
    *work = (struct model_work){.rows = rows};
    uint64_t widest = 0, width = 1; /* the targets */
    for (unsigned i = 0; i <= model->layers; i++) {
        width += model->sizes[i];
        if (i > 0 && model->sizes[i] > widest)
            widest = model->sizes[i];
    }
    /* Each begins at a multiple of 16 floats. */
    uint64_t floats = rows * (width + 2 * widest) + 16 * (model->layers + 4);
    void *storage;
    if (floats > SIZE_MAX / sizeof(float) || posix_memalign(&storage, 64, (size_t)floats * sizeof(float)) != 0)
        return fail(failure, "out of memory for batches of %" PRIu64 " rows of %" PRIu32 " features", rows,
                    model->sizes[0]);
    memset(storage, 0, (size_t)floats * sizeof(float));
    work->storage = storage;
    float *next = storage;
    for (unsigned i = 0; i <= model->layers; i++) {
        work->outputs[i] = next;
        next += (rows * model->sizes[i] + 15) / 16 * 16;
    }
    work->features = work->outputs[0];
    work->targets = next;
    next += (rows + 15) / 16 * 16;
    for (unsigned i = 0; i < 2; i++) {
        work->deltas[i] = next;
        next += (rows * widest + 15) / 16 * 16;
    }
    return true;
}

void model_work_free(struct model_work *work)
{
    free(work->storage);
    *work = (struct model_work){0};
}
