/* See models.h. Models are those of torchvision 0.x and of GPT-2's authors; the LSTM is that of the Gaussian-k paper:
 * Penn Treebank, two layers of 1500. */
#include "models.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES = 32, VOCABULARY = 10000 };

/* A model being made, and what its next layer gets. */
struct maker {
    struct known_model *model;
    uint64_t channels, side; /* of the image before the next layer */
    uint64_t batch;          /* positions, for models of text */
    bool failed;
};

PRINTF_LIKE(4, 5) static void add(struct maker *m, uint64_t count, double work, const char *name, ...)
{
    struct known_model *model = m->model;
    if (model->count == model->room) {
        const size_t room = 2 * model->room + 64;
        struct known_tensor *tensors = realloc(model->tensors, room * sizeof *tensors);
        if (!tensors) {
            m->failed = true;
            return;
        }
        model->tensors = tensors;
        model->room = room;
    }
    struct known_tensor *tensor = &model->tensors[model->count++];
    va_list arguments;
    va_start(arguments, name);
    vsnprintf(tensor->name, sizeof tensor->name, name, arguments);
    va_end(arguments);
    tensor->count = count;
    tensor->work = work;
    model->parameters += count;
    model->work += work;
}

/* ---- images ---- */

static void convolve(struct maker *m, uint64_t out, uint64_t kernel, uint64_t stride, bool bias, const char *name)
{
    m->side = (m->side + stride - 1) / stride;
    const uint64_t weights = out * m->channels * kernel * kernel;
    add(m, weights, 2.0 * IMAGES * (double)(weights * m->side * m->side), "%s.weight", name);
    if (bias)
        add(m, out, 0, "%s.bias", name);
    m->channels = out;
}

static void normalise(struct maker *m, const char *name)
{
    add(m, m->channels, 0, "%s.weight", name);
    add(m, m->channels, 0, "%s.bias", name);
}

static void connect(struct maker *m, uint64_t in, uint64_t out, const char *name)
{
    add(m, in * out, 2.0 * IMAGES * (double)(in * out), "%s.weight", name);
    add(m, out, 0, "%s.bias", name);
}

static void make_bottleneck(struct maker *m, uint64_t width, uint64_t stride, bool first, unsigned stage,
                            unsigned block)
{
    const uint64_t in = m->channels, side = m->side;
    char name[40];
    for (unsigned i = 1; i <= 3; i++) {
        snprintf(name, sizeof name, "layer%u.%u.conv%u", stage, block, i);
        convolve(m, i == 3 ? 4 * width : width, i == 2 ? 3 : 1, i == 2 ? stride : 1, false, name);
        snprintf(name, sizeof name, "layer%u.%u.bn%u", stage, block, i);
        normalise(m, name);
    }
    if (!first)
        return;
    m->channels = in;
    m->side = side;
    snprintf(name, sizeof name, "layer%u.%u.downsample.0", stage, block);
    convolve(m, 4 * width, 1, stride, false, name);
    snprintf(name, sizeof name, "layer%u.%u.downsample.1", stage, block);
    normalise(m, name);
}

static void make_resnet(struct maker *m, const unsigned blocks[4])
{
    m->channels = 3;
    m->side = 224;
    convolve(m, 64, 7, 2, false, "conv1");
    normalise(m, "bn1");
    m->side = 56;
    for (unsigned stage = 1; stage <= 4; stage++)
        for (unsigned block = 0; block < blocks[stage - 1]; block++)
            make_bottleneck(m, UINT64_C(32) << stage, stage > 1 && block == 0 ? 2 : 1, block == 0, stage, block);
    connect(m, 2048, 1000, "fc");
}

static void make_resnet50(struct maker *m) { make_resnet(m, (const unsigned[]){3, 4, 6, 3}); }

static void make_resnet152(struct maker *m) { make_resnet(m, (const unsigned[]){3, 8, 36, 3}); }

/* Convolutions of 3 x 3 in five groups, each followed by a pooling. Places are those of torchvision's list of layers.
 */
static void make_vgg(struct maker *m, const unsigned layers[5])
{
    unsigned place = 0;
    m->channels = 3;
    m->side = 224;
    for (unsigned group = 0; group < 5; group++, place++, m->side /= 2)
        for (unsigned i = 0; i < layers[group]; i++, place += 2) {
            char name[24];
            snprintf(name, sizeof name, "features.%u", place);
            convolve(m, group == 4 ? 512 : UINT64_C(64) << group, 3, 1, true, name);
        }
    connect(m, UINT64_C(512) * 7 * 7, 4096, "classifier.0");
    connect(m, 4096, 4096, "classifier.3");
    connect(m, 4096, 1000, "classifier.6");
}

static void make_vgg16(struct maker *m) { make_vgg(m, (const unsigned[]){2, 2, 3, 3, 3}); }

static void make_vgg19(struct maker *m) { make_vgg(m, (const unsigned[]){2, 2, 4, 4, 4}); }

static void make_alexnet(struct maker *m)
{
    static const struct {
        const char *name;
        uint64_t out, kernel, side; /* of its output */
    } layers[] = {{"features.0", 64, 11, 55},
                  {"features.3", 192, 5, 27},
                  {"features.6", 384, 3, 13},
                  {"features.8", 256, 3, 13},
                  {"features.10", 256, 3, 13}};
    m->channels = 3;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        m->side = layers[i].side;
        convolve(m, layers[i].out, layers[i].kernel, 1, true, layers[i].name);
    }
    connect(m, UINT64_C(256) * 6 * 6, 4096, "classifier.1");
    connect(m, 4096, 4096, "classifier.4");
    connect(m, 4096, 1000, "classifier.6");
}

/* ---- text ---- */

/* A matrix that every position of the batch is multiplied by. */
static void multiply(struct maker *m, uint64_t in, uint64_t out, const char *name)
{
    add(m, in * out, 2.0 * (double)(m->batch * in * out), "%s", name);
}

static void make_lstm(struct maker *m)
{
    enum { HIDDEN = 1500 };
    m->batch = UINT64_C(20) * 35;
    add(m, UINT64_C(1) * VOCABULARY * HIDDEN, 0, "encoder.weight");
    for (unsigned layer = 0; layer < 2; layer++) {
        char name[24];
        snprintf(name, sizeof name, "lstm.weight_ih_l%u", layer);
        multiply(m, HIDDEN, UINT64_C(4) * HIDDEN, name);
        snprintf(name, sizeof name, "lstm.weight_hh_l%u", layer);
        multiply(m, HIDDEN, UINT64_C(4) * HIDDEN, name);
        add(m, UINT64_C(4) * HIDDEN, 0, "lstm.bias_ih_l%u", layer);
        add(m, UINT64_C(4) * HIDDEN, 0, "lstm.bias_hh_l%u", layer);
    }
    multiply(m, HIDDEN, VOCABULARY, "decoder.weight");
    add(m, VOCABULARY, 0, "decoder.bias");
}

static void make_gpt2(struct maker *m)
{
    enum { WIDTH = 768, CONTEXT = 1024, WORDS = 50257, LAYERS = 12 };
    static const struct {
        const char *name;
        unsigned in, out; /* times the width; 0: a norm */
    } parts[] = {{"ln_1", 0, 1}, {"attn.c_attn", 1, 3}, {"attn.c_proj", 1, 1},
                 {"ln_2", 0, 1}, {"mlp.c_fc", 1, 4},    {"mlp.c_proj", 4, 1}};
    m->batch = UINT64_C(8) * CONTEXT;
    /* The embedding is the last layer's matrix too; its gradient is complete when the first layer's is. */
    multiply(m, WIDTH, WORDS, "wte.weight");
    add(m, UINT64_C(1) * CONTEXT * WIDTH, 0, "wpe.weight");
    for (unsigned layer = 0; layer < LAYERS; layer++)
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            char name[40];
            snprintf(name, sizeof name, "h.%u.%s.weight", layer, parts[i].name);
            if (parts[i].in > 0)
                multiply(m, (uint64_t)parts[i].in * WIDTH, (uint64_t)parts[i].out * WIDTH, name);
            else
                add(m, WIDTH, 0, "%s", name);
            add(m, (uint64_t)parts[i].out * WIDTH, 0, "h.%u.%s.bias", layer, parts[i].name);
        }
    add(m, WIDTH, 0, "ln_f.weight");
    add(m, WIDTH, 0, "ln_f.bias");
}

/* ---- all of them ---- */

static const struct {
    void (*make)(struct maker *m);
    const char *batch;
} makers[] = {{make_resnet50, "32 images"},
              {make_resnet152, "32 images"},
              {make_vgg16, "32 images"},
              {make_vgg19, "32 images"},
              {make_alexnet, "32 images"},
              {make_lstm, "20 texts of 35 words"},
              {make_gpt2, "8 texts of 1024 tokens"}};
const char *const known_models[] = {"resnet50", "resnet152", "vgg16", "vgg19", "alexnet", "lstm", "gpt2", NULL};

bool known_model_make(const char *name, struct known_model *model, struct failure *failure)
{
    *model = (struct known_model){0};
    for (size_t i = 0; known_models[i]; i++) {
        if (strcmp(known_models[i], name) != 0)
            continue;
        struct maker maker = {.model = model};
        makers[i].make(&maker);
        snprintf(model->batch, sizeof model->batch, "%s", makers[i].batch);
        if (!maker.failed)
            return true;
        known_model_free(model);
        return fail(failure, "out of memory for the tensors of '%s'", name);
    }
    return fail(failure, "there is no model '%s'", name);
}

void known_model_free(struct known_model *model)
{
    free(model->tensors);
    *model = (struct known_model){0};
}

void known_model_ready(const struct known_model *model, double backward, struct predict_tensor *tensors)
{
    double done = 0;
    for (size_t i = 0; i < model->count; i++) {
        const struct known_tensor *from = &model->tensors[model->count - 1 - i];
        done += from->work;
        const double share = model->work > 0 && done < model->work ? done / model->work : 1;
        tensors[i] = (struct predict_tensor){from->name, from->count, backward * share};
    }
}
