/* The built-in models have as many parameters as their authors' have. */
#include "predict/models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void has(const char *name, uint64_t parameters, size_t tensors)
{
    struct known_model model;
    struct failure failure = {""};
    assert_true(known_model_make(name, &model, &failure));
    assert_int_equal(model.parameters, parameters);
    assert_int_equal(model.count, tensors);
    known_model_free(&model);
}

static void parameters_and_tensors(void **state)
{
    (void)state;
    has("resnet50", 25557032, 161);
    has("resnet152", 60192808, 467);
    has("vgg16", 138357544, 32);
    has("vgg19", 143667240, 38);
    has("alexnet", 61100840, 16);
    has("lstm", 66034000, 11);
    has("gpt2", 124439808, 148);
}

/* Multiplications of one image, as the papers count them: 3.8 to 4.1 G, 11.3 to 11.6 G, 15.5 G, 19.6 G, 0.71 G. */
static void work(void **state)
{
    static const struct {
        const char *name;
        double low, high;
    } papers[] = {{"resnet50", 3.8e9, 4.2e9},
                  {"resnet152", 11.2e9, 11.7e9},
                  {"vgg16", 15.3e9, 15.6e9},
                  {"vgg19", 19.5e9, 19.7e9},
                  {"alexnet", 0.65e9, 0.75e9}};
    (void)state;
    for (size_t i = 0; i < sizeof papers / sizeof *papers; i++) {
        struct known_model model;
        struct failure failure = {""};
        assert_true(known_model_make(papers[i].name, &model, &failure));
        assert_true(model.work / 64 > papers[i].low && model.work / 64 < papers[i].high);
        known_model_free(&model);
    }
}

/* All names are made; no name occurs twice; times do not decrease and end with the backward pass. */
static void ready(void **state)
{
    (void)state;
    for (size_t n = 0; known_models[n]; n++) {
        struct known_model model;
        struct failure failure = {""};
        assert_true(known_model_make(known_models[n], &model, &failure));
        struct predict_tensor *tensors = calloc(model.count, sizeof *tensors);
        assert_non_null(tensors);
        known_model_ready(&model, 0.3, tensors);
        for (size_t i = 0; i < model.count; i++) {
            assert_true(tensors[i].count > 0 && tensors[i].ready <= 0.3);
            assert_true(i == 0 || tensors[i].ready >= tensors[i - 1].ready);
            for (size_t j = 0; j < i; j++)
                assert_true(strcmp(tensors[i].name, tensors[j].name) != 0);
        }
        assert_true(tensors[model.count - 1].ready == 0.3);
        free(tensors);
        known_model_free(&model);
    }
}

static void refused(void **state)
{
    struct known_model model;
    struct failure failure = {""};
    (void)state;
    assert_false(known_model_make("resnet51", &model, &failure));
    assert_string_equal(failure.text, "there is no model 'resnet51'");
    assert_null(model.tensors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parameters_and_tensors), cmocka_unit_test(work),
                                       cmocka_unit_test(ready), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
