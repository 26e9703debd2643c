/* Selectors that look for a threshold (Gaussian-k, DGC-k, trimmed top-k, SIDCo): whatever the distribution, the number
 * they send lies in [2k/3, 4k/3], on fresh gradients, on real ones, and on what hundreds of steps of error feedback
 * leave behind. The first argument names the folder of the real gradients. */
#include "harness.h"

static const char *const selectors[] = {"gaussiank", "dgck", "trimk", "sidco"};
enum { SELECTORS = 4 };
static const char *const densities[] = {"0.1", "0.01", "0.001", "0.0001"};
enum { DENSITIES = 4 };

/* How counts came out over several selections, as shares of k. */
typedef struct counts {
    unsigned selections, outside;
    double least, most;
} counts;

static void count_one(counts *c, uint64_t selected, uint64_t k)
{
    double share = (double)selected / (double)k;
    c->least = c->selections == 0 ? share : fmin(c->least, share);
    c->most = c->selections == 0 ? share : fmax(c->most, share);
    c->selections++;
    c->outside += 3 * selected < 2 * k || 3 * selected > 4 * k;
}

static void check_counts(const char *name, const counts *c)
{
    (void)check(c->outside == 0, name, "count/k from %.3f to %.3f in %u selections, expected 0.667 to 1.333", c->least,
                c->most, c->selections);
}

/* The elements sent are the largest: none that stayed is larger. */
static bool sends_largest(const float *v, const float *out, size_t n)
{
    float least_sent = INFINITY, largest_kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (out[i] != 0)
            least_sent = fminf(least_sent, fabsf(out[i]));
        else
            largest_kept = fmaxf(largest_kept, fabsf(v[i]));
    }
    return largest_kept <= least_sent;
}

static bool select_at_all_densities(const char *selector, const float *v, size_t n, float *out, counts *count)
{
    bool largest = true;
    for (size_t d = 0; d < DENSITIES; d++) {
        coder c = coder_open(text("%s:density=%s", selector, densities[d]), n);
        encode(&c, v, 3);
        decode(&c, out);
        largest &= sends_largest(v, out, n);
        count_one(count, c.report.selected, tg_spec_selected(&c.spec, n));
        coder_close(&c);
    }
    return largest;
}

/* ---- made vectors ---- */

typedef struct shape {
    const char *name;
    distribution base;
    void (*change)(float *v, size_t n);
} shape;

static void all_equal(float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i] = -0.37f;
}

static void shifted(float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i] += 5;
}

static void one_spike(float *v, size_t n) { v[n / 3] = 1e30f; }

/* Layers whose scales differ by orders of magnitude, and rows of zeros. */
static void layered(float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i] *= i * 8 / n % 3 == 2 ? 0 : powf(10, -(float)(i * 8 / n));
}

static void subnormal(float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i] *= 1e-41f;
}

static void huge(float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i] *= 1e37f;
}

static void sorted_by_index(float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i] = (float)i * 1e-3f;
}

static void few_values(float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i] = rintf(v[i]);
}

static const shape shapes[] = {
    {"Gaussian", GAUSSIAN, NULL},
    {"Laplace", LAPLACE, NULL},
    {"Student t3", STUDENT3, NULL},
    {"uniform", UNIFORM, NULL},
    {"+-1", SIGNS, NULL},
    {"all equal", SIGNS, all_equal},
    {"Gaussian about 5", GAUSSIAN, shifted},
    {"Gaussian with one spike", GAUSSIAN, one_spike},
    {"layers and zeros", LAPLACE, layered},
    {"subnormal", GAUSSIAN, subnormal},
    {"huge", GAUSSIAN, huge},
    {"sorted", GAUSSIAN, sorted_by_index},
    {"integers", GAUSSIAN, few_values},
};

static void made_vectors(void)
{
    /* Below and above the 65536 elements that thresholds are guessed from, and some where k is 1 or 2. */
    static const size_t sizes[] = {17, 3000, 30011, 65537, 150000};
    enum { MOST = 150000 };
    float *v = floats(MOST), *out = floats(MOST);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        counts count[SELECTORS] = {{.selections = 0}};
        bool largest[SELECTORS] = {true, true, true, true};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            fill(v, sizes[i], shapes[s].base, 41 + i);
            if (shapes[s].change)
                shapes[s].change(v, sizes[i]);
            for (size_t k = 0; k < SELECTORS; k++)
                largest[k] &= select_at_all_densities(selectors[k], v, sizes[i], out, &count[k]);
        }
        for (size_t k = 0; k < SELECTORS; k++) {
            check_counts(text("%s, %s", selectors[k], shapes[s].name), &count[k]);
            (void)check(largest[k], text("%s, %s: sends the largest", selectors[k], shapes[s].name), "%s",
                        largest[k] ? "always" : "NOT always");
        }
    }
    free(v);
    free(out);
}

/* ---- real gradients ---- */

static void real_vectors(int argc, char **argv)
{
    for (size_t i = 0; i < REAL_GRADIENTS; i++) {
        size_t n;
        float *v = real_gradient(argc, argv, i, &n);
        if (!v)
            continue;
        float *out = floats(n);
        for (size_t k = 0; k < SELECTORS; k++) {
            counts count = {.selections = 0};
            bool largest = select_at_all_densities(selectors[k], v, n, out, &count);
            check_counts(text("%s, %s", selectors[k], real_gradients[i]), &count);
            (void)check(largest, text("%s, %s: sends the largest", selectors[k], real_gradients[i]), "%s",
                        largest ? "always" : "NOT always");
        }
        free(v);
        free(out);
    }
}

/* ---- residuals ---- */

enum { RESIDUAL = 20000, STEPS = 400 };

typedef void gradient_source(void *data, unsigned step, float *gradient);

/* The true loop: u = g + h, send, h = u - sent; counts at every one of the 400 steps. */
static void with_feedback(const char *name, const char *selector, gradient_source *source, void *data)
{
    tg_feedback_spec ef = {.kind = TG_FEEDBACK_EF, .alpha = 1, .beta = 1};
    tg_error error;
    float *gradient = floats(RESIDUAL);
    counts count = {.selections = 0};
    for (size_t d = 0; d < 3; d++) { /* at 0.0001 k would be 2 */
        coder c = coder_open(text("%s:density=%s", selector, densities[d]), RESIDUAL);
        tg_feedback *feedback;
        must(tg_feedback_create(c.device, &ef, &c.spec, RESIDUAL, false, &feedback, &error), &error);
        for (unsigned step = 0; step < STEPS; step++) {
            source(data, step, gradient);
            tg_tensor input = tensor_of(gradient, RESIDUAL);
            tg_encode_options options = {.draw = {.seed = 2, .step = step}, .no_checksum = true};
            must(tg_encode_with_feedback(c.codec, feedback, &input, &options, c.frame, c.capacity, &c.report, &error),
                 &error);
            count_one(&count, c.report.selected, tg_spec_selected(&c.spec, RESIDUAL));
        }
        tg_feedback_free(feedback);
        coder_close(&c);
    }
    check_counts(text("%s, 400 steps of error feedback, %s", selector, name), &count);
    free(gradient);
}

/* Fresh noise at every step about a mean that stays, as gradients have: a pool of values, entered at a different place
 * each step. */
typedef struct made_source {
    float *pool, *mean;
    size_t pool_size;
} made_source;

static void next_made(void *data, unsigned step, float *gradient)
{
    made_source *m = data;
    size_t start = (size_t)step * 7919 % (m->pool_size - RESIDUAL);
    for (size_t i = 0; i < RESIDUAL; i++)
        gradient[i] = m->pool[start + i] + m->mean[i];
}

/* Four workers' gradients of the same layers in turn, scaled up and down as steps differ. */
static void next_real(void *data, unsigned step, float *gradient)
{
    float **workers = data;
    float scale = 1 + (float)(step * 37 % 11) / 10;
    for (size_t i = 0; i < RESIDUAL; i++)
        gradient[i] = scale * workers[step % 4][i];
}

static void residuals(int argc, char **argv)
{
    made_source made = {.pool_size = 10 * RESIDUAL};
    made.pool = floats(made.pool_size);
    made.mean = floats(RESIDUAL);
    for (distribution kind = GAUSSIAN; kind < DISTRIBUTIONS; kind++) {
        fill(made.pool, made.pool_size, kind, 51);
        fill(made.mean, RESIDUAL, kind, 52);
        for (size_t i = 0; i < RESIDUAL; i++)
            made.mean[i] *= 0.1f;
        /* Gaussian-k on all; the others, whose bracketing is the same, on the two that differ most. */
        for (size_t k = 0; k < (kind == GAUSSIAN || kind == STUDENT3 ? SELECTORS : 1); k++)
            with_feedback(distribution_names[kind], selectors[k], next_made, &made);
    }
    free(made.pool);
    free(made.mean);

    float *workers[4];
    bool all = true;
    for (size_t i = 0; i < 4; i++) {
        size_t n = 0;
        workers[i] = real_gradient(argc, argv, 2 + i, &n);
        all &= workers[i] && n >= RESIDUAL;
    }
    for (size_t k = 0; all && k < SELECTORS; k++)
        with_feedback("four workers' real gradients", selectors[k], next_real, workers);
    for (size_t i = 0; i < 4; i++)
        free(workers[i]);
}

int main(int argc, char **argv)
{
    made_vectors();
    real_vectors(argc, argv);
    residuals(argc, argv);
    return finish();
}
