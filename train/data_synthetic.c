/* Rows that are computed when they are needed: y = w*.x + noise, or points around the centres of classes. Syn-20K would
 * be 4 GB. */
#include "data.h"
#include "random.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct recipe {
    uint64_t rows, test, features, classes, clusters;
    double noise, spread;
};

struct synthetic {
    struct recipe recipe;
    uint64_t seed;
    float *weights; /* w*, or the centres, clusters of them for each class */
};

/* ---- the recipe ---- */

/* As the ECQ-SGD paper describes them; the noise is our choice. */
static const struct {
    const char *name;
    struct recipe recipe;
} named[] = {
    {"syn-256", {.rows = 10000, .test = 2000, .features = 256, .noise = 0.1}},
    {"syn-512", {.rows = 10000, .test = 2000, .features = 512, .noise = 0.1}},
    {"syn-1024", {.rows = 10000, .test = 2000, .features = 1024, .noise = 0.1}},
    {"syn-20k", {.rows = 50000, .test = 500, .features = 20000, .noise = 0.1}},
};

static const struct recipe standard = {
    .rows = 10000, .test = 2000, .features = 256, .classes = 0, .clusters = 4, .noise = 0.1, .spread = 4};

static const struct key {
    const char *name;
    size_t offset;
    bool is_real;
    double low, high;
} keys[] = {
    {"rows", offsetof(struct recipe, rows), false, 1, 1e12},
    {"test", offsetof(struct recipe, test), false, 0, 1e9},
    {"features", offsetof(struct recipe, features), false, 1, 1e8},
    {"classes", offsetof(struct recipe, classes), false, 0, 1000},
    {"clusters", offsetof(struct recipe, clusters), false, 1, 1000},
    {"noise", offsetof(struct recipe, noise), true, 0, 1e6},
    {"spread", offsetof(struct recipe, spread), true, 0, 1e6},
};
enum { KEY_COUNT = sizeof keys / sizeof keys[0] };

static const struct key *find_key(const char *text, size_t length)
{
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (strlen(keys[i].name) == length && strncmp(keys[i].name, text, length) == 0)
            return &keys[i];
    return NULL;
}

/* One KEY=VALUE; returns what follows it, or NULL. */
static const char *read_pair(const char *text, struct recipe *recipe, struct failure *failure)
{
    size_t length = strcspn(text, "=,");
    const struct key *key = find_key(text, length);
    if (!key || text[length] != '=') {
        fail(
            failure,
            "synthetic data have no '%.*s'; there are rows=, test=, features=, classes=, clusters=, noise= and spread=",
            (int)strcspn(text, ","), text);
        return NULL;
    }
    const char *start = text + length + 1;
    char *end;
    double value = strtod(start, &end);
    bool is_plain = end > start && strspn(start, "0123456789.eE+-") >= (size_t)(end - start) &&
                    (*end == ',' || *end == '\0');
    if (!is_plain || !(value >= key->low && value <= key->high) || (!key->is_real && value != floor(value))) {
        fail(failure, "synthetic data take %s from %g to %g%s, not '%.*s'", key->name, key->low, key->high,
             key->is_real ? "" : ", a whole number", (int)strcspn(start, ","), start);
        return NULL;
    }
    void *field = (char *)recipe + key->offset;
    if (key->is_real)
        *(double *)field = value;
    else
        *(uint64_t *)field = (uint64_t)value;
    return *end == ',' ? end + 1 : end;
}

static bool read_recipe(const char *text, struct recipe *recipe, struct failure *failure)
{
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (strcmp(named[i].name, text) == 0) {
            *recipe = named[i].recipe;
            return true;
        }
    }
    *recipe = standard;
    const char *colon = strchr(text, ':');
    for (const char *at = colon ? colon + 1 : ""; *at;) {
        at = read_pair(at, recipe, failure);
        if (!at)
            return false;
    }
    if (recipe->classes == 1)
        return fail(failure, "synthetic data with one class have nothing to learn; classes=0 makes real targets");
    return true;
}

/* ---- rows ---- */

/* Four sums side by side, in double: the order is fixed, and the time is small beside that of the row itself.
 */
static double product(const float *a, const float *b, size_t count)
{
    double sums[4] = {0};
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (size_t lane = 0; lane < 4; lane++)
            sums[lane] += (double)a[i + lane] * (double)b[i + lane];
    for (; i < count; i++)
        sums[0] += (double)a[i] * (double)b[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

static void fetch_regression(const void *state, uint64_t row, float *features, float *target)
{
    const struct synthetic *s = state;
    fill_normal(random_key(s->seed, FOR_ROWS, row), features, s->recipe.features);
    float noise;
    fill_normal(random_key(s->seed, FOR_ROWS, ~row), &noise, 1);
    *target = (float)(product(s->weights, features, s->recipe.features) + s->recipe.noise * (double)noise);
}

static void fetch_class(const void *state, uint64_t row, float *features, float *target)
{
    const struct synthetic *s = state;
    fill_normal(random_key(s->seed, FOR_ROWS, row), features, s->recipe.features);
    uint64_t centre = random_key(s->seed, FOR_ROWS, ~row) % (s->recipe.classes * s->recipe.clusters);
    const float *at = s->weights + centre * s->recipe.features;
    for (uint64_t i = 0; i < s->recipe.features; i++)
        features[i] += at[i];
    *target = (float)(centre % s->recipe.classes);
}

static void free_synthetic(void *state)
{
    struct synthetic *s = state;
    free(s->weights);
    free(s);
}

bool synthetic_open(const char *text, uint64_t seed, struct dataset *data, struct failure *failure)
{
    struct recipe recipe;
    if (!read_recipe(text, &recipe, failure))
        return false;
    uint64_t vectors = recipe.classes ? recipe.classes * recipe.clusters : 1;
    struct synthetic *s = calloc(1, sizeof *s);
    float *weights = malloc(vectors * recipe.features * sizeof *weights);
    if (!s || !weights) {
        free(s);
        free(weights);
        return fail(failure, "out of memory for the %" PRIu64 " features of '%s'", recipe.features, text);
    }
    *s = (struct synthetic){recipe, seed, weights};
    /* |w*|^2 is about 1; two centres are about spread * sqrt(2) deviations apart. */
    double scale = (recipe.classes ? recipe.spread : 1) / sqrt((double)recipe.features);
    for (uint64_t v = 0; v < vectors; v++)
        fill_normal(random_key(seed, recipe.classes ? FOR_CENTRES : FOR_OPTIMUM, v), weights + v * recipe.features,
                    recipe.features);
    for (uint64_t i = 0; i < vectors * recipe.features; i++)
        weights[i] = (float)((double)weights[i] * scale);
    *data = (struct dataset){
        .train_rows = recipe.rows,
        .test_rows = recipe.test,
        .features = (uint32_t)recipe.features,
        .classes = (uint32_t)recipe.classes,
        .optimum = recipe.classes ? NULL : weights,
        .fetch = recipe.classes ? fetch_class : fetch_regression,
        .state = s,
        .free_state = free_synthetic,
    };
    return true;
}
