/* Seeded generators and vectors from files; see bench_data.h. */
#include "bench_data.h"

#include "gradient.h"
#include "terminal.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TWO_PI 6.283185307179586

/* ---- vectors ---- */

bool vector_create(struct bench_vector *vector, size_t count, size_t place, struct failure *failure)
{
    enum { PAGE = 4096, SHIFT = 9 * 64 };
    *vector = (struct bench_vector){0};
    size_t shift = place * SHIFT % PAGE;
    if (posix_memalign(&vector->storage, PAGE, count * sizeof(float) + PAGE) != 0) {
        vector->storage = NULL;
        return fail(failure, "out of memory for a vector of %zu elements", count);
    }
    vector->values = (float *)(void *)((char *)vector->storage + shift);
    memset(vector->storage, 0, count * sizeof(float) + PAGE);
    return true;
}

void vector_free(struct bench_vector *vector)
{
    free(vector->storage);
    *vector = (struct bench_vector){0};
}

/* ---- random numbers: xoshiro256++ by Blackman and Vigna, seeded by splitmix64 ---- */

struct generator {
    uint64_t state[4];
    double spare; /* Box and Muller's method makes two normal numbers at once */
    bool has_spare;
};

static struct generator generator_from(uint64_t seed)
{
    struct generator g = {.has_spare = false};
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        g.state[i] = z ^ z >> 31;
    }
    return g;
}

static uint64_t rotate(uint64_t x, unsigned by) { return x << by | x >> (64 - by); }

static uint64_t next_bits(struct generator *g)
{
    uint64_t *s = g->state;
    uint64_t result = rotate(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

/* Above 0 and at most 1, so that its logarithm exists. */
static double next_uniform(struct generator *g) { return (double)((next_bits(g) >> 11) + 1) * 0x1p-53; }

static double next_normal(struct generator *g)
{
    if (g->has_spare) {
        g->has_spare = false;
        return g->spare;
    }
    double radius = sqrt(-2 * log(next_uniform(g))), angle = TWO_PI * next_uniform(g);
    g->spare = radius * sin(angle);
    g->has_spare = true;
    return radius * cos(angle);
}

/* ---- distributions ---- */

static void fill_gaussian(struct generator *g, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (float)next_normal(g);
}

static void fill_laplace(struct generator *g, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double magnitude = -log(next_uniform(g));
        out[i] = (float)(next_bits(g) >> 63 ? -magnitude : magnitude);
    }
}

/* Student's t with three degrees of freedom: tails so heavy that the fourth moment does not exist. */
static void fill_student(struct generator *g, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double a = next_normal(g), b = next_normal(g), c = next_normal(g);
        out[i] = (float)(next_normal(g) / sqrt((a * a + b * b + c * c) / 3));
    }
}

static void fill_uniform(struct generator *g, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(2 * next_uniform(g) - 1);
}

/* Layers of 256 to 65536 elements whose scales spread over two decades; in each, nine elements out of ten are small. */
static void fill_mixture(struct generator *g, float *out, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t length = (size_t)(256 * exp2(8 * next_uniform(g)));
        double scale = pow(10, -2 * next_uniform(g));
        size_t end = length < count - i ? i + length : count;
        for (; i < end; i++) {
            bool is_large = next_uniform(g) < 0.1;
            out[i] = (float)(next_normal(g) * scale * (is_large ? 1 : 0.01));
        }
    }
}

/* ---- unkind ones: they are made as a whole, for it matters where their values are ---- */

static void fill_equal(struct generator *g, float *out, size_t count)
{
    (void)g;
    for (size_t i = 0; i < count; i++)
        out[i] = 0.7f;
}

static void fill_signs(struct generator *g, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = next_bits(g) >> 63 ? -1 : 1;
}

static void fill_sorted(struct generator *g, float *out, size_t count)
{
    (void)g;
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(i + 1) / (float)count;
}

/* One layer of a fiftieth is large, all others tiny. */
static void fill_layer(struct generator *g, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(next_normal(g) * (i * 50 / count == 17 ? 1 : 1e-6));
}

/* A little larger just where src/codec/pilot.c looks, so that at density 0.01 its first guess is too high and its
 * second, more cautious, is not: what a missed guess costs. If the places there change, this is an ordinary vector. */
static void fill_ambush(struct generator *g, float *out, size_t count)
{
    enum { RUN = 16, RUNS = 2048, SHARE = 16 };
    fill_gaussian(g, out, count);
    size_t runs = count / (SHARE * RUN) < RUNS ? count / (SHARE * RUN) : RUNS;
    for (size_t run = 0; run < runs; run++) {
        uint64_t part = count / runs, places = (part - RUN) / RUN + 1, draw = run * UINT64_C(0x9e3779b97f4a7c15) >> 32;
        float *at = out + run * part + (draw * places >> 32) * RUN;
        for (int i = 0; i < RUN; i++)
            at[i] *= 1.045f;
    }
}

static const struct distribution {
    const char *name;
    void (*fill)(struct generator *g, float *out, size_t count);
    bool whole; /* not to be made in pieces */
} distributions[] = {
    {"gaussian", fill_gaussian, false}, {"laplace", fill_laplace, false}, {"student", fill_student, false},
    {"uniform", fill_uniform, false},   {"mixture", fill_mixture, false}, {"equal", fill_equal, false},
    {"signs", fill_signs, false},       {"sorted", fill_sorted, true},    {"layer", fill_layer, true},
    {"ambush", fill_ambush, true},
};
enum { DISTRIBUTION_COUNT = sizeof distributions / sizeof distributions[0] };

static const struct distribution *find_distribution(const char *name)
{
    for (size_t i = 0; i < DISTRIBUTION_COUNT; i++)
        if (strcmp(distributions[i].name, name) == 0)
            return &distributions[i];
    return NULL;
}

bool is_distribution(const char *name) { return find_distribution(name) != NULL; }

/* ---- files ---- */

static bool fill_from_file(const char *path, struct bench_vector *vectors, size_t number_of_vectors, size_t count,
                           const char *command, struct failure *failure)
{
    struct gradient gradient;
    if (!gradient_load(path, true, &gradient, failure))
        return false;
    gradient_warn(&gradient, command, path);
    size_t length = (size_t)gradient.tensor.count;
    if (length == 0) {
        gradient_free(&gradient);
        return fail(failure, "'%s' has no elements; a benchmark needs some", path);
    }
    const float *values = gradient.tensor.data;
    for (size_t v = 0; v < number_of_vectors; v++) {
        struct generator g = generator_from(v);
        for (size_t i = 0, from = 0; i < count; i++, from = from + 1 == length ? 0 : from + 1) {
            double factor = v == 0 ? 1 : 1 + 0.5 * next_normal(&g);
            vectors[v].values[i] = (float)(values[from] * factor);
        }
    }
    gradient_free(&gradient);
    return true;
}

bool fill_gradients(const char *distribution, struct bench_vector *vectors, size_t number_of_vectors, size_t count,
                    const char *command, struct failure *failure)
{
    const struct distribution *found = find_distribution(distribution);
    if (!found)
        return fill_from_file(distribution, vectors, number_of_vectors, count, command, failure);
    /* In pieces, so that the progress bar moves; the generator goes on from one to the next. */
    enum { PIECE = 1 << 20 };
    struct progress progress;
    progress_start(&progress, "making gradients");
    for (size_t v = 0; v < number_of_vectors; v++) {
        struct generator g = generator_from(v);
        const size_t piece = found->whole ? count : PIECE;
        for (size_t i = 0; i < count; i += piece) {
            found->fill(&g, vectors[v].values + i, count - i < piece ? count - i : piece);
            progress_update(&progress, ((double)v + (double)i / (double)count) / (double)number_of_vectors, NULL);
        }
    }
    progress_end(&progress);
    return true;
}
