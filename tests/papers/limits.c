/* How near the coders come to what information theory allows, on whole frames: index gaps to log2 C(d,k), the entropy
 * coder to the Shannon entropy of the levels, each within 3 % and 64 bytes. The first argument names the folder of the
 * real gradients. */
#include "harness.h"

/* The stated limit for what theory puts at so many bits, in bytes. */
static double allowed(double bits) { return 1.03 * bits / 8 + 64; }

/* The nearest to failing of several frames. */
typedef struct nearest {
    unsigned frames, beyond;
    double margin, bytes, limit; /* of the worst one; margin = bytes / allowed */
    char what[160];
} nearest;

static void look(nearest *n, double bytes, double bits, const char *what)
{
    double margin = bytes / allowed(bits);
    n->frames++;
    n->beyond += margin > 1;
    if (margin <= n->margin)
        return;
    n->margin = margin;
    n->bytes = bytes;
    n->limit = bits / 8;
    (void)snprintf(n->what, sizeof n->what, "%s", what);
}

static void check_nearest(const char *name, const nearest *n)
{
    (void)check(n->beyond == 0, name,
                "%u of %u frames beyond 3 %% + 64 bytes; worst %s: %.0f bytes, theory %.1f (%+.2f %%)", n->beyond,
                n->frames, n->what, n->bytes, n->limit, 100 * (n->bytes / n->limit - 1));
}

/* ---- indices ---- */

static double log2_choose(double d, double k) { return (lgamma(d + 1) - lgamma(k + 1) - lgamma(d - k + 1)) / log(2); }

/* Uniformly spread indices: those of Rand-k, and of Top-k on independent values. */
static void spread_indices(void)
{
    static const char *const densities[] = {"0.0001", "0.0002", "0.0005", "0.001", "0.002", "0.005",
                                            "0.01",   "0.015",  "0.02",   "0.03",  "0.04",  "0.05",
                                            "0.0575", "0.06",   "0.07",   "0.085", "0.1"};
    static const size_t sizes[] = {1000, 100000, 1 << 20, 3000000};
    static const char *const codecs[] = {"randk", "topk"};
    float *v = floats(3000000);
    fill(v, 3000000, GAUSSIAN, 91);
    for (size_t s = 0; s < 4; s++) {
        for (size_t k = 0; k < 2; k++) {
            nearest worst = {.frames = 0};
            for (size_t d = 0; d < sizeof densities / sizeof *densities; d++) {
                coder c = coder_open(text("%s:density=%s", codecs[k], densities[d]), sizes[s]);
                encode(&c, v, d);
                tg_frame_parts parts = measure(&c);
                look(&worst, (double)parts.index_bytes, log2_choose((double)sizes[s], (double)parts.selected),
                     text("density %s", densities[d]));
                coder_close(&c);
            }
            check_nearest(text("%s, d=%zu: indices against log2 C(d,k)", codecs[k], sizes[s]), &worst);
        }
    }
    free(v);
}

/* In real gradients large elements cluster, so blocks that choose their own parameter may even go below the limit. */
static void real_indices(const char *name, const float *v, size_t n)
{
    static const char *const densities[] = {"0.0001", "0.001", "0.01", "0.1"};
    nearest worst = {.frames = 0};
    for (size_t d = 0; d < 4; d++) {
        coder c = coder_open(text("topk:density=%s", densities[d]), n);
        encode(&c, v, 0);
        tg_frame_parts parts = measure(&c);
        look(&worst, (double)parts.index_bytes, log2_choose((double)n, (double)parts.selected),
             text("density %s", densities[d]));
        coder_close(&c);
    }
    check_nearest(text("topk, %s: indices against log2 C(d,k)", name), &worst);
}

/* ---- levels ---- */

static void look_at_levels(nearest *worst, const float *v, size_t n, const char *spec)
{
    coder c = coder_open(spec, n);
    encode(&c, v, 0);
    tg_frame_parts parts = measure(&c);
    look(worst, (double)parts.value_bytes, parts.level_entropy, text("%s, n=%zu", spec, n));
    coder_close(&c);
}

static const char *const scales[] = {"norm=max,bucket=512", "norm=l2,bucket=0", "range=minmax,bucket=512",
                                     "norm=max,bucket=0", "norm=l2,bucket=512"};

static void made_levels(void)
{
    static const unsigned levels[] = {1, 2, 3, 7, 8, 15, 31, 63, 127};
    enum { SMALL = 1 << 16, LARGE = (1 << 18) + 1000 }; /* above 2^18 small alphabets are coded in pairs */
    float *v = floats(LARGE);
    for (distribution kind = GAUSSIAN; kind < DISTRIBUTIONS; kind++) {
        nearest worst = {.frames = 0};
        fill(v, LARGE, kind, 92);
        for (size_t l = 0; l < sizeof levels / sizeof *levels; l++)
            for (size_t s = 0; s < 4; s++)
                look_at_levels(&worst, v, SMALL, text("qsgd:levels=%u,%s,coding=entropy", levels[l], scales[s]));
        for (size_t l = 0; l < sizeof levels / sizeof *levels; l += 3)
            for (size_t s = 0; s < 2; s++)
                look_at_levels(&worst, v, LARGE, text("qsgd:levels=%u,%s,coding=entropy", levels[l], scales[s]));
        look_at_levels(&worst, v, LARGE, "terngrad:clip=2.5,coding=entropy");
        look_at_levels(&worst, v, LARGE, "topk:density=0.5,values=levels,levels=15,coding=entropy");
        check_nearest(text("%s: entropy coder against the entropy of the levels", distribution_names[kind]), &worst);
    }
    free(v);
}

static void real_levels(const char *name, const float *v, size_t n)
{
    static const unsigned levels[] = {1, 7, 127, 3, 15};
    nearest worst = {.frames = 0};
    bool large = n > 1000000; /* fewer, for time */
    for (size_t l = 0; l < (large ? 3 : 5); l++)
        for (size_t s = 0; s < (large ? 2 : 5); s++)
            look_at_levels(&worst, v, n, text("qsgd:levels=%u,%s,coding=entropy", levels[l], scales[s]));
    check_nearest(text("%s: entropy coder against the entropy of the levels", name), &worst);
}

/* The hardest levels: many symbols that are each rare. A small share of the elements belongs to a layer of 10^4 times
 * the scale, so nearly all levels are zero and the others spread over the whole alphabet. The entropy of the levels
 * does not count what it takes to tell a decoder their frequencies, nor that a frequency may have a least value; the
 * limit must be kept all the same. */
static void rare_levels(void)
{
    static const distribution kinds[] = {LAPLACE, STUDENT3, UNIFORM};
    static const struct {
        size_t n;
        double share;
    } cases[] = {{1 << 16, 0.1},    {1 << 16, 0.01},   {1 << 16, 0.001},  {1 << 20, 0.003},
                 {1 << 20, 0.0003}, {5000000, 0.0003}, {5000000, 0.00001}};
    float *v = floats(5000000);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nearest worst = {.frames = 0};
        size_t n = cases[i].n;
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            fill(v, n, kinds[k], 93);
            for (size_t j = (size_t)(cases[i].share * (double)n); j < n; j++)
                v[j] *= 1e-4f;
            look_at_levels(&worst, v, n, "qsgd:levels=127,norm=max,bucket=0,coding=entropy");
        }
        check_nearest(text("%g of %zu elements in a large layer: entropy coder against the entropy of the levels",
                           cases[i].share, n),
                      &worst);
    }
    free(v);
}

/* So many levels that are not zero, at places of their own, from few of many kinds to many of few: what a table and the
 * lists of positions cost shows most where it is spread over the fewest. */
static void few_levels(void)
{
    static const unsigned levels[] = {1, 7, 31, 127};
    enum { N = 1 << 18 };
    static const char *const names[] = {"uniform", "geometric", "largest or small"};
    float *v = floats(N), *draws = floats(2 * 20000);
    for (unsigned kind = 0; kind < 3; kind++) {
        nearest worst = {.frames = 0};
        fill(draws, (size_t)2 * 20000, UNIFORM, 94 + kind);
        for (size_t l = 0; l < sizeof levels / sizeof *levels; l++)
            for (size_t count = 5; count < 20000; count = 3 * count / 2) {
                const double s = levels[l];
                memset(v, 0, N * sizeof *v);
                for (size_t i = 0; i < count; i++) {
                    const double x = fabs((double)draws[2 * i]), place = 0.5 + 0.5 * (double)draws[2 * i + 1];
                    double level = 1 + floor(s * x); /* of the kind "uniform" */
                    if (kind == 1 || (kind == 2 && x > 0.3))
                        level = 1 + floor(-0.1 * s * log(x + 1e-9));
                    else if (kind == 2)
                        level = s;
                    v[(size_t)(place * (N - 1))] = (float)copysign(fmin(level, s) / s, (double)draws[2 * i]);
                }
                v[N / 2] = 1; /* so that the scale is 1 and every level is met exactly */
                look_at_levels(&worst, v, N, text("qsgd:levels=%u,norm=max,bucket=0,coding=entropy", levels[l]));
            }
        check_nearest(text("5 to 20000 levels that are not zero, %s: entropy coder against the entropy of the levels",
                           names[kind]),
                      &worst);
    }
    free(v);
    free(draws);
}

/* Long vectors of few bits are coded for speed, by a code that is made from a quarter of them, and nearer to the limit
 * than it asks: 1.5 % for four bits by the maximum. What the sample does not see must not spoil it. */
static void fast_levels(void)
{
    enum { N = (1 << 21) + 777, PART = 8192 }; /* elements of a part that is counted or not, at four bits */
    float *v = floats(N);
    fill(v, N, GAUSSIAN, 97);
    coder c = coder_open("qsgd:levels=7,norm=max,bucket=512,coding=entropy", N);
    encode(&c, v, 0);
    tg_frame_parts parts = measure(&c);
    (void)check(info_of(&c).layout == 5, "four bits have a prefix code", "layout %u", info_of(&c).layout);
    check_below("four bits by the maximum: bytes over 1.015 times the entropy of the levels and 64",
                (double)parts.value_bytes / (1.015 * parts.level_entropy / 8 + 64), 1);
    coder_close(&c);
    static const double shares[] = {0.001, 0.1, 1, 10};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        nearest worst = {.frames = 0};
        fill(v, N, GAUSSIAN, 98);
        for (size_t j = 0; j < N; j++)
            v[j] *= (float)(j / PART % 4 == 0 ? 1 : shares[i]);
        look_at_levels(&worst, v, N, "qsgd:levels=7,norm=max,bucket=0,coding=entropy");
        look_at_levels(&worst, v, N, "qsgd:levels=7,norm=max,bucket=512,coding=entropy");
        look_at_levels(&worst, v, N, "qsgd:levels=7,norm=l2,bucket=512,coding=entropy");
        for (size_t j = 0; j < N; j++)
            v[j] = j / PART % 4 == 0 ? v[j] : (float)(j % 3 == 0 ? shares[i] : -shares[i]);
        look_at_levels(&worst, v, N, "qsgd:levels=7,norm=max,bucket=0,coding=entropy");
        look_at_levels(&worst, v, N, "qsgd:levels=7,norm=max,bucket=512,coding=entropy");
        check_nearest(
            text("%g times as large where a sample does not look: entropy coder against the entropy of the levels",
                 shares[i]),
            &worst);
    }
    free(v);
}

int main(int argc, char **argv)
{
    spread_indices();
    made_levels();
    rare_levels();
    few_levels();
    fast_levels();
    for (size_t i = 0; i < REAL_GRADIENTS; i++) {
        size_t n;
        float *v = real_gradient(argc, argv, i, &n);
        if (!v)
            continue;
        real_indices(real_gradients[i], v, n);
        real_levels(real_gradients[i], v, n);
        free(v);
    }
    return finish();
}
