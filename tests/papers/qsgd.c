/* QSGD (Alistarh et al. 2017) and its relatives TernGrad and 1-bit: unbiasedness, the exact variance, the bounds on
 * error and on non-zeros, and the exact cases. What the codes cost is in lengths.c. */
#include "harness.h"

/* ---- the quantiser by the formula, in double ---- */

typedef enum norm { L2, MAX, MINMAX, TERNARY } norm;
static const char *const norm_keys[] = {"norm=l2", "norm=max", "range=minmax", NULL};

typedef struct cell {
    double target; /* what the expectation ought to be: the input, or the clipped input */
    double unit;   /* N / s */
    double chance; /* of the upper of the two levels around it */
    double bias;   /* the most that 16 random bits and float32 can move the expectation, in levels */
} cell;

typedef struct scale {
    double centre, radius;
} scale;

static scale scale_of(const float *v, size_t n, norm kind, double clip)
{
    if (kind == L2)
        return (scale){0, sqrt(square_norm(v, n))};
    if (kind == MAX)
        return (scale){0, largest_magnitude(v, n)};
    double least = (double)v[0], largest = (double)v[0], sum = 0;
    for (size_t i = 0; i < n; i++) {
        least = fmin(least, (double)v[i]);
        largest = fmax(largest, (double)v[i]);
        sum += (double)v[i];
    }
    if (kind == MINMAX)
        return (scale){(least + largest) / 2, (largest - least) / 2};
    double mean = sum / (double)n, deviation = sqrt(square_norm(v, n) / (double)n - mean * mean);
    double radius = largest_magnitude(v, n);
    return (scale){0, clip > 0 ? fmin(radius, clip * deviation) : radius};
}

static cell cell_of(double value, scale s, norm kind, unsigned levels)
{
    cell c = {.unit = s.radius / levels};
    double place = fmax(-(double)levels, fmin((double)levels, (value - s.centre) / c.unit));
    c.target = s.centre + place * c.unit;
    c.chance = place - floor(place);
    /* Rounding to 2^-16 of a level: 2^-17. Each float32 operation on the way adds half an ulp of its result: the
     * difference from the centre, the two factors that become the gain, the product, N/s (a whole ulp, it is rounded
     * up), q N/s, and the sum with the centre. Ten cover them and the radius of minmax, which is itself rounded. A
     * clipped radius comes from float32 sums of up to 32 terms a lane, hence 20 half ulps more for TernGrad. */
    c.bias = 0x1p-17 + (kind == TERNARY ? 30 : 10) * HALF_ULP * (fabs(place) + 1 + fabs(s.centre) / c.unit);
    return c;
}

static void model(const float *v, size_t n, size_t bucket, norm kind, unsigned levels, double clip, cell *cells)
{
    bucket = bucket == 0 ? n : bucket;
    for (size_t start = 0; start < n; start += bucket) {
        size_t size = n - start < bucket ? n - start : bucket;
        scale s = scale_of(v + start, size, kind, clip);
        for (size_t i = start; i < start + size; i++)
            cells[i] = cell_of((double)v[i], s, kind, levels);
    }
}

/* ---- expectation and variance ---- */

/* The most that a sum of independent centred errors in -1...1 of this variance strays with the chance of five
 * sigma, 5.7e-7: by Bernstein's inequality, so it also holds where the sum is far from normal. */
static double bernstein(double variance)
{
    const double l = log(2 / 5.7e-7);
    return l / 3 + sqrt(l * l / 9 + 2 * l * variance);
}

/* Many draws of one vector, summed up. */
typedef struct errors {
    double *drift;   /* each element's sum of errors, in levels */
    double squares;  /* of all errors */
    double farthest; /* single error, in levels beyond what float32 explains */
} errors;

static errors draw_many(const char *spec, const float *v, size_t n, const cell *cells, unsigned steps)
{
    static uint64_t seed = 100; /* its own for each spec, so that the checks are independent */
    errors e = {.drift = memory(n, sizeof(double))};
    coder c = coder_open(spec, n);
    float *out = floats(n);
    seed++;
    for (unsigned step = 0; step < steps; step++) {
        encode_drawn(&c, v, (tg_draw){.seed = seed, .step = step});
        decode(&c, out);
        for (size_t i = 0; i < n; i++) {
            double error = (double)out[i] - cells[i].target;
            e.drift[i] += error / cells[i].unit;
            e.squares += error * error;
            e.farthest = fmax(e.farthest, fabs(error) / cells[i].unit - cells[i].bias);
        }
    }
    free(out);
    coder_close(&c);
    return e;
}

static void check_expectation(const char *spec, const errors *e, size_t n, const cell *cells, unsigned steps)
{
    double worst = 0, worst_z = 0, sum_z = 0, sum_bias = 0, chi = 0, chi_variance = 0, most_bias = 0;
    unsigned summed = 0, normal = 0;
    for (size_t i = 0; i < n; i++) {
        double p = cells[i].chance, variance = steps * p * (1 - p), bias = steps * cells[i].bias;
        worst = fmax(worst, (fabs(e->drift[i]) - bias) / bernstein(variance));
        most_bias = fmax(most_bias, cells[i].bias);
        if (variance < 25)
            continue;
        double z = e->drift[i] / sqrt(variance);
        summed++;
        sum_z += z;
        sum_bias += bias / sqrt(variance);
        chi += z * z;
        chi_variance += 2 + (1 - 6 * p * (1 - p)) / variance;
        if (fabs(1 - 2 * p) / sqrt(variance) * 125 / 6 > 1)
            continue;
        normal++;
        worst_z = fmax(worst_z, fabs(z) - bias / sqrt(variance));
    }
    /* Every element on its own, at the chance of five sigma; bias allowed for. */
    (void)check(worst <= 1, text("%s: E Q(v) = v, every element", spec),
                "worst error %.2f of Bernstein's bound at 5.7e-7 (%zu elements, %u steps)", worst, n, steps);
    /* Elements so little skewed that this changes the chance of five sigma by less than a factor e: exp(skewness 5^3 /
     * 6) < e. Over the ten thousand or so of this program, one beyond 5 had a chance of about one per cent when the
     * seeds were chosen; the seeds are fixed, so nothing is corrected for. */
    if (normal > 0)
        (void)check(worst_z <= 5, text("%s: largest |z| of an element", spec), "measured %.2f, at most 5 (%u elements)",
                    worst_z, normal);
    /* Elements that moved 25 times and more. Their z are independent, so the sum has deviation sqrt(m). */
    check_near(text("%s: mean z, in its own deviations", spec), sum_z / sqrt(summed), 0, 5 + sum_bias / sqrt(summed));
    /* The variance of z^2 is 2 and the excess kurtosis of a sum of coin flips, (1 - 6pq)/(steps pq). Left out where
     * float32 itself is worth a noticeable part of a level. */
    if (most_bias < 1e-4)
        check_near(text("%s: mean z^2", spec), chi / summed, 1, 5 * sqrt(chi_variance) / summed);
}

static void check_variance(const char *spec, const errors *e, size_t n, const cell *cells, unsigned steps)
{
    double expected = 0, variance = 0, most_bias = 0;
    for (size_t i = 0; i < n; i++) {
        double pq = cells[i].chance * (1 - cells[i].chance);
        expected += steps * cells[i].unit * cells[i].unit * pq;
        variance += steps * pow(cells[i].unit, 4) * pq * (1 - 4 * pq);
        most_bias = fmax(most_bias, cells[i].bias);
    }
    /* A squared error's own variance is pq(1 - 4pq) (N/s)^4, and all are independent. The bias moves E(Q-v)^2 by its
     * square, the rounding of N by two half ulps and the error of a float32 sum: 2e-6 is ample for both. */
    check_near(text("%s: |Q-v|^2 of sum (N/s)^2 p(1-p)", spec), e->squares / expected, 1,
               5 * sqrt(variance) / expected + 2e-6 + most_bias * most_bias);
}

static void expectation_and_variance(const char *spec, const float *v, size_t n, const cell *cells, unsigned steps)
{
    errors e = draw_many(spec, v, n, cells, steps);
    (void)check(e.farthest <= 1, text("%s: Q is one of the two levels around v", spec),
                "farthest %.6f levels beyond rounding, at most 1", e.farthest);
    check_expectation(spec, &e, n, cells, steps);
    check_variance(spec, &e, n, cells, steps);
    free(e.drift);
}

static void quantisers(void)
{
    enum { N = 1024, STEPS = 2000 };
    static const size_t buckets[] = {0, 512, 300};
    static const unsigned levels[] = {1, 4, 7, 127, 32767};
    float *v = floats(N);
    cell *cells = memory(N, sizeof *cells);
    fill(v, N, GAUSSIAN, 11);
    v[17] = 0;
    for (norm kind = L2; kind <= MINMAX; kind++) {
        for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
            size_t bucket = buckets[i % 3];
            model(v, N, bucket, kind, levels[i], 0, cells);
            expectation_and_variance(text("qsgd:levels=%u,bucket=%zu,%s", levels[i], bucket, norm_keys[kind]), v, N,
                                     cells, STEPS);
        }
    }
    /* TernGrad: the expectation is the clipped input, sigma taken over the bucket. */
    model(v, N, 512, TERNARY, 1, 2.5, cells);
    expectation_and_variance("terngrad:clip=2.5,bucket=512", v, N, cells, STEPS);
    model(v, N, 0, TERNARY, 1, 0, cells);
    expectation_and_variance("terngrad:bucket=0", v, N, cells, STEPS);
    free(v);
    free(cells);
}

/* ---- bounds ---- */

typedef struct moments {
    double mean, error; /* of the mean */
} moments;

typedef enum quantity { SQUARE_ERROR, NON_ZEROS } quantity;

static moments many(const char *spec, const float *v, size_t n, quantity what, unsigned steps)
{
    coder c = coder_open(spec, n);
    float *out = floats(n);
    double sum = 0, squares = 0;
    for (unsigned step = 0; step < steps; step++) {
        encode(&c, v, step);
        decode(&c, out);
        double x = 0;
        if (what == SQUARE_ERROR)
            x = square_distance(out, v, n);
        for (size_t i = 0; what == NON_ZEROS && i < n; i++)
            x += out[i] != 0;
        sum += x;
        squares += x * x;
    }
    free(out);
    coder_close(&c);
    double mean = sum / steps;
    return (moments){mean, sqrt(fmax(0, squares / steps - mean * mean) / (steps - 1))};
}

/* E |Q-v|^2 <= min(n/s^2, sqrt(n)/s) |v|^2 and E |Q|_0 <= s(s + sqrt(n)), on vectors that come close. For +-1 at s = 1
 * the error is (sqrt(n) - 1) |v|^2, and the non-zeros are sqrt(n); for +-1 with sqrt(n)/s = 2 every p is a half and the
 * error n/(4s^2). */
static void l2_bounds(void)
{
    enum { N = 4096, STEPS = 200 };
    static const distribution kinds[] = {GAUSSIAN, STUDENT3, SIGNS};
    static const unsigned levels[] = {1, 2, 8, 32, 64, 128};
    float *v = floats(N);
    for (size_t k = 0; k < 3; k++) {
        fill(v, N, kinds[k], 12);
        double square = square_norm(v, N), norm = sqrt(square);
        for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
            double s = levels[i], gamma = fmin(N / (s * s), sqrt(N) / s);
            const char *spec = text("qsgd:levels=%u,bucket=0,norm=l2", levels[i]);
            moments error = many(spec, v, N, SQUARE_ERROR, STEPS), nonzero = many(spec, v, N, NON_ZEROS, STEPS);
            /* A bound on an expectation: the mean may pass it by five of its own standard errors. */
            (void)check(error.mean / square <= gamma + 5 * error.error / square,
                        text("%s, %s: E|Q-v|^2 / |v|^2", distribution_names[kinds[k]], spec),
                        "measured %.5f +- %.5f, bound min(n/s^2, sqrt(n)/s) = %.5f", error.mean / square,
                        error.error / square, gamma);
            (void)check(nonzero.mean <= s * (s + sqrt(N)) + 5 * nonzero.error,
                        text("%s, %s: E|Q|_0", distribution_names[kinds[k]], spec),
                        "measured %.2f +- %.2f, bound s(s + sqrt(n)) = %.0f", nonzero.mean, nonzero.error,
                        s * (s + sqrt(N)));
            /* Exactly: an element is non-zero with chance min(1, s|v|/N). At s = 1 the sum is |v|_1 / |v|_2. */
            double expected = 0, variance = 0;
            for (size_t j = 0; j < N; j++) {
                double chance = fmin(1, s * fabs((double)v[j]) / norm);
                expected += chance;
                variance += chance * (1 - chance);
            }
            if (levels[i] == 1)
                expected = sum_of_magnitudes(v, N) / norm;
            /* Five deviations of the mean over the steps, and 2^-17 for each element. */
            check_near(text("%s, %s: E|Q|_0 exactly%s", distribution_names[kinds[k]], spec,
                            levels[i] == 1 ? " |v|_1/|v|_2" : ""),
                       nonzero.mean, expected, 5 * sqrt(variance / STEPS) + N * 0x1p-17);
        }
    }
    free(v);
}

/* E |Q-v|^2 <= n max^2 / (4 s^2), reached but for the largest element when all others lie half way between levels. */
static void max_norm_bound(void)
{
    enum { N = 512, STEPS = 400 };
    static const unsigned levels[] = {1, 7, 15, 127};
    float *v = floats(N);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        const char *spec = text("qsgd:levels=%u,bucket=512,norm=max", levels[i]);
        double s = levels[i], bound = N * 9.0 / (4 * s * s);
        for (size_t j = 0; j < N; j++)
            v[j] = j == 0 ? 3 : (float)(3 * ((double)(j % levels[i]) + 0.5) / s);
        moments error = many(spec, v, N, SQUARE_ERROR, STEPS);
        /* Half way every error is half a level, whichever way the coin falls: no sampling error. float32 puts "half
         * way" off by |place| half ulps, and p(1-p) by the square of that, but (Q-v)^2 by itself: 4 s 2^-24 relative is
         * ample. */
        check_near(text("%s: half-way values, E|Q-v|^2 of n max^2/(4 s^2)", spec), error.mean / bound, (N - 1.0) / N,
                   4 * (s + 1) * HALF_ULP + 5 * error.error / bound);
        fill(v, N, GAUSSIAN, 13);
        error = many(spec, v, N, SQUARE_ERROR, STEPS);
        bound = N * pow(largest_magnitude(v, N), 2) / (4 * s * s);
        check_below(text("%s: Gaussian, E|Q-v|^2 of n max^2/(4 s^2)", spec), error.mean / bound, 1);
    }
    free(v);
}

/* The measured constants, and the error of 8 bits. */
static void gaussian_error(void)
{
    enum { N = 1 << 22, BUCKET = 512, BUCKETS = N / BUCKET };
    static const struct {
        unsigned levels;
        double expected;
    } cases[] = {{7, 0.0361}, {15, 0.0078}};
    float *v = floats(N), *out = floats(N);
    fill(v, N, GAUSSIAN, 14);
    for (size_t i = 0; i < 2; i++) {
        coder c = coder_open(text("qsgd:levels=%u,bucket=512,norm=max", cases[i].levels), N);
        encode(&c, v, 0);
        decode(&c, out);
        double ratio = square_distance(out, v, N) / square_norm(v, N), squares = 0;
        for (size_t b = 0; b < BUCKETS; b++) {
            const float *at = v + b * BUCKET;
            double residue = square_distance(out + b * BUCKET, at, BUCKET) - ratio * square_norm(at, BUCKET);
            squares += residue * residue;
        }
        /* A ratio of sums over 8192 independent buckets: five of its standard errors, and half a unit of the last digit
         * given. */
        check_near(text("levels=%u, bucket 512, Gaussian: |Q-v|^2 / |v|^2", cases[i].levels), ratio, cases[i].expected,
                   5 * sqrt(squares) / square_norm(v, N) + 0.00005);
        coder_close(&c);
    }
    static const char *const eight_bits[] = {"qsgd:levels=127,bucket=512,norm=max", "qsgd:levels=127,bucket=0,norm=max",
                                             "qsgd:levels=127,bucket=512,range=minmax"};
    for (size_t i = 0; i < 3; i++) {
        coder c = coder_open(eight_bits[i], 1 << 20);
        encode(&c, v, 0);
        decode(&c, out);
        check_below(text("%s: mean square error on N(0,1)", eight_bits[i]),
                    square_distance(out, v, 1 << 20) / (1 << 20), 8e-4);
        coder_close(&c);
    }
    free(v);
    free(out);
}

/* ---- exact cases ---- */

static size_t differing(const float *a, const float *b, size_t n)
{
    size_t different = 0;
    for (size_t i = 0; i < n; i++)
        different += a[i] != b[i];
    return different;
}

/* Constants come back to the bit, zeros stay zeros, whatever the draw: |v| = N is the highest level, and p = 0. */
static void exact_values(void)
{
    enum { N = 1500 };
    static const char *const constant_specs[] = {
        "qsgd:levels=7,norm=max",     "qsgd:levels=127,norm=max,bucket=0",     "qsgd:levels=1000,norm=max",
        "qsgd:levels=7,range=minmax", "qsgd:levels=127,range=minmax,bucket=0", "terngrad",
        "terngrad:clip=2.5"};
    static const char *const zero_specs[] = {"qsgd:levels=4,norm=l2", "qsgd:levels=1,norm=l2,bucket=0", "onebit"};
    static const float constants[] = {1, -3, 0.1f, -0.3333333f, 1e-30f, 3e38f, 1e-44f};
    float *v = floats(N), *out = floats(N);
    for (size_t i = 0; i < sizeof constant_specs / sizeof *constant_specs; i++) {
        coder c = coder_open(constant_specs[i], N);
        size_t wrong = 0;
        for (size_t k = 0; k < sizeof constants / sizeof *constants; k++) {
            for (size_t j = 0; j < N; j++)
                v[j] = constants[k];
            for (unsigned step = 0; step < 20; step++) {
                encode(&c, v, step);
                decode(&c, out);
                wrong += differing(out, v, N);
            }
        }
        (void)check(wrong == 0, text("%s: constant vectors are exact", constant_specs[i]),
                    "%zu elements differ, expected 0", wrong);
        coder_close(&c);
    }
    memset(v, 0, N * sizeof *v);
    for (size_t i = 0; i < sizeof constant_specs / sizeof *constant_specs + 3; i++) {
        const char *spec = i < 3 ? zero_specs[i] : constant_specs[i - 3];
        coder c = coder_open(spec, N);
        encode(&c, v, 5);
        decode(&c, out);
        (void)check(differing(out, v, N) == 0, text("%s: all zeros stay zeros", spec),
                    "%zu elements differ, expected 0", differing(out, v, N));
        coder_close(&c);
    }
    free(v);
    free(out);
}

/* |x - C(x)|^2 = |x|^2 - |x|_1^2 / d in every bucket, C(x) = sign(x) |x|_1 / d. */
static void one_bit(void)
{
    enum { N = 10000 };
    static const size_t buckets[] = {0, 512, 777};
    float *v = floats(N), *out = floats(N);
    for (distribution kind = GAUSSIAN; kind < DISTRIBUTIONS; kind++) {
        for (size_t b = 0; b < 3; b++) {
            fill(v, N, kind, 15);
            coder c = coder_open(text("onebit:bucket=%zu", buckets[b]), N);
            encode(&c, v, 0);
            decode(&c, out);
            size_t bucket = buckets[b] ? buckets[b] : N;
            double worst = 0;
            for (size_t at = 0; at < N; at += bucket) {
                size_t n = N - at < bucket ? N - at : bucket;
                double square = square_norm(v + at, n), one = sum_of_magnitudes(v + at, n);
                double difference = square_distance(out + at, v + at, n) - (square - one * one / (double)n);
                worst = fmax(worst, fabs(difference) / square);
            }
            /* The mean minimises the error, so its own rounding (under 1e-6) counts squared: 1e-12. */
            check_below(text("onebit, %s, bucket %zu: |x-C(x)|^2 - (|x|^2 - |x|_1^2/d), relative",
                             distribution_names[kind], buckets[b]),
                        worst, 2e-12);
            coder_close(&c);
        }
    }
    free(v);
    free(out);
}

int main(void)
{
    quantisers();
    l2_bounds();
    max_norm_bound();
    gaussian_error();
    exact_values();
    one_bit();
    return finish();
}
