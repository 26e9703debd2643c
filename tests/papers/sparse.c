/* Top-k and Rand-k (Shi et al. 2019): exactly k elements, how much of the vector they hold, and how far the selection
 * contracts the error. The selectors that look for a threshold are in selectors.c. */
#include "harness.h"

static int by_magnitude(const void *a, const void *b)
{
    float x = fabsf(*(const float *)a), y = fabsf(*(const float *)b);
    return (x < y) - (x > y);
}

/* ---- exactly k ---- */

static size_t count_non_zero(const float *values, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += values[i] != 0;
    return count;
}

/* Exactly k leave whatever the ties, they are the largest, and of equals the first. */
static void exactly_k(void)
{
    enum { N = 9000 };
    static const char *const names[] = {"+-1", "all equal", "all zero", "two values", "Gaussian", "mostly zero"};
    static const unsigned amounts[] = {1, 2, 3, 100, 4096, 4097, 8999, 9000, 20000};
    float *v = floats(N), *sorted = floats(N), *out = floats(N);
    for (size_t kind = 0; kind < 6; kind++) {
        fill(v, N, kind == 4 ? GAUSSIAN : SIGNS, 31);
        for (size_t i = 0; i < N; i++) {
            if (kind == 1 || kind == 2)
                v[i] = kind == 1 ? 0.7f : 0;
            else if (kind == 3)
                v[i] *= i % 7 == 0 ? 2 : 1;
            else if (kind == 5)
                v[i] = i % 100 == 0 ? v[i] : 0;
        }
        memcpy(sorted, v, N * sizeof *v);
        qsort(sorted, N, sizeof *v, by_magnitude);
        size_t wrong_count = 0, wrong_choice = 0;
        for (size_t a = 0; a < sizeof amounts / sizeof *amounts; a++) {
            unsigned k = amounts[a] < N ? amounts[a] : N;
            coder c = coder_open(text("topk:k=%u", amounts[a]), N);
            encode(&c, v, 0);
            decode(&c, out);
            wrong_count += c.report.selected != k || measure(&c).selected != k;
            /* Above the k-th magnitude all are sent; of those equal to it the first ones, as many as are left. */
            float threshold = fabsf(sorted[k - 1]);
            size_t above = 0;
            while (above < k && fabsf(sorted[above]) > threshold)
                above++;
            size_t ties = threshold > 0 ? k - above : 0;
            for (size_t i = 0; i < N; i++) {
                bool tie = fabsf(v[i]) == threshold && ties > 0, sent = fabsf(v[i]) > threshold || tie;
                ties -= tie;
                wrong_choice += out[i] != (sent ? v[i] : 0);
            }
            coder_close(&c);
        }
        (void)check(wrong_count == 0 && wrong_choice == 0,
                    text("topk, %s: exactly k, the largest, ties by index", names[kind]),
                    "%zu wrong counts, %zu wrong elements, expected 0", wrong_count, wrong_choice);
    }
    coder c = coder_open("randk:k=100", N);
    size_t wrong = 0;
    fill(v, N, SIGNS, 32);
    for (unsigned step = 0; step < 50; step++) {
        encode(&c, v, step);
        decode(&c, out);
        wrong += c.report.selected != 100 || count_non_zero(out, N) != 100;
    }
    (void)check(wrong == 0, "randk: exactly k", "%zu wrong counts in 50 steps, expected 0", wrong);
    coder_close(&c);
    free(v);
    free(sorted);
    free(out);
}

/* ---- contraction ---- */

/* |u - C(u)|^2 <= (1 - k/d) |u|^2 for whatever sends the k largest: always. */
static void contraction_always(void)
{
    static const char *const codecs[] = {"topk", "gaussiank", "dgck", "trimk", "sidco"};
    static const char *const densities[] = {"0.0001", "0.001", "0.01", "0.1", "0.5", "1"};
    static const size_t sizes[] = {1, 7, 1000, 50000};
    float *v = floats(50000), *out = floats(50000);
    for (size_t codec = 0; codec < 5; codec++) {
        double worst = 0;
        unsigned cases = 0;
        for (distribution kind = GAUSSIAN; kind < DISTRIBUTIONS; kind++) {
            fill(v, 50000, kind, 33);
            for (size_t s = 0; s < 4; s++) {
                for (size_t d = 0; d < 6; d++, cases++) {
                    size_t n = sizes[s];
                    coder c = coder_open(text("%s:density=%s", codecs[codec], densities[d]), n);
                    encode(&c, v, 0);
                    decode(&c, out);
                    double left = square_distance(out, v, n) / square_norm(v, n);
                    double bound = 1 - (double)c.report.selected / (double)n;
                    worst = fmax(worst, left - bound);
                    coder_close(&c);
                }
            }
        }
        /* What is sent is exact and the rest exactly zero, so only these sums in double are rounded. */
        (void)check(worst <= 1e-12, text("%s: |u-C(u)|^2 <= (1-k/d)|u|^2", codecs[codec]),
                    "exceeded by at most %.2g in %u cases, expected 0", worst, cases);
    }
    free(v);
    free(out);
}

/* The share of the energy that lies below the threshold which a share rho of all magnitudes exceeds. */
static double left_by_theory(distribution kind, double rho)
{
    if (kind == GAUSSIAN) {
        double low = 0, high = 10; /* the t with P(|x| > t) = rho */
        for (int i = 0; i < 100; i++) {
            double t = (low + high) / 2;
            *(erfc(t / sqrt(2)) > rho ? &low : &high) = t;
        }
        return 1 - (2 * low * exp(-low * low / 2) / sqrt(2 * acos(-1)) + rho);
    }
    if (kind == LAPLACE) {
        double t = -log(rho);
        return 1 - (t * t + 2 * t + 2) * rho / 2;
    }
    if (kind == STUDENT3) {
        double pi = acos(-1), low = 0, high = 1e6; /* in units of sqrt(3) */
        for (int i = 0; i < 100; i++) {
            double t = (low + high) / 2;
            *(1 - 2 / pi * (atan(t) + t / (1 + t * t)) > rho ? &low : &high) = t;
        }
        return 2 / pi * (atan(low) - low / (1 + low * low));
    }
    if (kind == UNIFORM)
        return pow(1 - rho, 3);
    return 1 - rho;
}

/* The deviation of a sample's ratio R = (energy outside the top share) / energy, from its influence function: one more
 * x moves the top's energy by x^2 - t^2 where |x| > t (t moves so that the count stays), and R for the energy that it
 * adds. */
static double ratio_deviation(const float *v, size_t n, double threshold, double rho, double ratio)
{
    double mean = square_norm(v, n) / (double)n, sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        double square = (double)v[i] * (double)v[i], t = threshold * threshold;
        double influence = ((square > t ? square - t : 0) + rho * t - (1 - ratio) * square) / mean;
        sum += influence;
        squares += influence * influence;
    }
    double average = sum / (double)n;
    return sqrt((squares / (double)n - average * average) / (double)n);
}

static void contraction_measured(void)
{
    enum { N = 1 << 20 };
    static const double stated[] = {0.98733, 0.96798, 0.82884, 0.99701, 0.999001};
    float *v = floats(N), *out = floats(N);
    for (distribution kind = GAUSSIAN; kind < DISTRIBUTIONS; kind++) {
        fill(v, N, kind, 34);
        coder c = coder_open("topk:density=0.001", N);
        encode(&c, v, 0);
        decode(&c, out);
        const char *name = distribution_names[kind];
        double ratio = square_distance(out, v, N) / square_norm(v, N);
        double rho = (double)c.report.selected / N, threshold = INFINITY;
        for (size_t i = 0; i < N; i++)
            threshold = out[i] != 0 ? fmin(threshold, fabs((double)out[i])) : threshold;
        double deviation = ratio_deviation(v, N, threshold, rho, ratio), theory = left_by_theory(kind, rho);
        /* One sample against theory: five deviations. Against another sample: 1.41 times that, and half of the last
         * digit. Student t3 has no fourth moment: one element of size y adds y^2/(3d) to the energy, all of it at the
         * top, and with chance 1 % some element of 2^20 exceeds 614, worth 0.12 of the energy: hence 0.1 for the ratio,
         * down to 0.74. */
        double tolerance = kind == STUDENT3 ? 0.1 : 5 * deviation + (kind == SIGNS ? 1e-12 : 0);
        check_near(text("topk 0.001, %s: |u-C(u)|^2/|u|^2, theory", name), ratio, theory, tolerance);
        check_near(text("topk 0.001, %s: |u-C(u)|^2/|u|^2, as measured elsewhere", name), ratio, stated[kind],
                   1.42 * tolerance + (kind == SIGNS ? 5e-7 : 5e-6));
        double tighter = (1 - rho) * (1 - rho);
        bool holds = ratio <= tighter;
        (void)check(holds == (kind != SIGNS),
                    text("topk 0.001, %s: (1-k/d)^2 %s", name, kind == SIGNS ? "is broken" : "holds"),
                    "measured %.6f, (1-k/d)^2 = %.6f, 1-k/d = %.6f", ratio, tighter, 1 - rho);
        coder_close(&c);
    }
    free(v);
    free(out);
}

/* ---- Rand-k ---- */

static void rand_k(void)
{
    enum { N = 2000, K = 50, STEPS = 20000 };
    float *v = floats(N), *out = floats(N);
    double *chosen = memory(N, sizeof *chosen);
    fill(v, N, STUDENT3, 35);
    coder c = coder_open(text("randk:k=%d", K), N);
    double energy = square_norm(v, N), fourth = 0, left = 0;
    for (size_t i = 0; i < N; i++)
        fourth += pow((double)v[i], 4);
    for (unsigned step = 0; step < STEPS; step++) {
        encode(&c, v, step);
        decode(&c, out);
        for (size_t i = 0; i < N; i++)
            chosen[i] += out[i] != 0;
        left += square_distance(out, v, N) / STEPS;
    }
    /* A sample of k from d without replacement: the variance of its sum is k (1 - k/d) times the population's, d/(d-1)
     * of it. */
    double variance = K * (1 - (double)K / N) * (fourth / N - pow(energy / N, 2)) * N / (N - 1.0);
    check_near("randk: E|u-C(u)|^2 / ((1-k/d)|u|^2)", left / ((1 - (double)K / N) * energy), 1,
               5 * sqrt(variance / STEPS) / ((1 - (double)K / N) * energy));
    /* Every index equally likely. The counts of one step sum to k, which takes one degree of freedom. */
    double expected = (double)STEPS * K / N, spread = expected * (1 - (double)K / N), chi = 0, worst = 0;
    for (size_t i = 0; i < N; i++) {
        double z = (chosen[i] - expected) / sqrt(spread);
        chi += z * z * (N - 1) / N;
        worst = fmax(worst, fabs(z));
    }
    check_near("randk: chi-square of the indices over d - 1", chi / (N - 1), 1, 5 * sqrt(2.0 / (N - 1)));
    /* Among 2000, one beyond 5 had a chance of 0.1 % when the seed was chosen. */
    check_below("randk: largest |z| of an index", worst, 5);
    coder_close(&c);
    free(v);
    free(out);
    free(chosen);
}

int main(void)
{
    exactly_k();
    contraction_always();
    contraction_measured();
    rand_k();
    return finish();
}
