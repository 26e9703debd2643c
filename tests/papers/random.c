/* The random numbers behind stochastic rounding and random selection, seen through frames alone: uniform to the last of
 * their 16 bits, and unrelated between neighbours, steps, tensors, ranks and seeds, however similar these are.
 *
 * With one level and the max norm, a value of F/65536 beside a largest one of 1 is rounded up when its 16 random bits
 * are at least 65536 - F, so sixteen encodes with the same draw find all bits of every element by bisection. */
#include "harness.h"

enum { N = 1 << 18, WORDS = N / 64, BITS = 16, LAGS = 64 };

/* The numbers of one draw, whole and as planes of one bit each. */
typedef struct stream {
    uint16_t *number;
    uint64_t *plane[BITS];
} stream;

static stream observe(tg_draw draw)
{
    static float v[N + 1], out[N + 1];
    coder c = coder_open("qsgd:levels=1,norm=max,bucket=0", N + 1);
    stream s = {.number = memory(N, sizeof *s.number)};
    v[N] = 1; /* the largest */
    for (unsigned bit = BITS; bit-- > 0;) {
        for (size_t i = 0; i < N; i++)
            v[i] = (float)(65536u - (s.number[i] | 1u << bit)) / 65536;
        encode_drawn(&c, v, draw);
        decode(&c, out);
        for (size_t i = 0; i < N; i++)
            s.number[i] = (uint16_t)(s.number[i] | (out[i] == 1) << bit);
    }
    for (unsigned bit = 0; bit < BITS; bit++) {
        s.plane[bit] = memory(WORDS + 1, sizeof *s.plane[bit]);
        for (size_t i = 0; i < N; i++)
            s.plane[bit][i / 64] |= (uint64_t)(s.number[i] >> bit & 1) << i % 64;
    }
    coder_close(&c);
    return s;
}

static void forget(stream *s)
{
    free(s->number);
    for (unsigned bit = 0; bit < BITS; bit++)
        free(s->plane[bit]);
}

/* ---- one stream ---- */

/* All 65536 numbers equally often. The variance of chi-square for n draws into k equal cells is 2(k-1)(1 - 1/n). */
static void uniform(const char *name, const stream *s)
{
    static unsigned count[1 << BITS];
    memset(count, 0, sizeof count);
    for (size_t i = 0; i < N; i++)
        count[s->number[i]]++;
    const double cells = 1 << BITS, expected = N / cells;
    double chi = 0;
    for (size_t i = 0; i < 1 << BITS; i++)
        chi += (count[i] - expected) * (count[i] - expected) / expected;
    check_near(text("%s: chi-square of the 16 bits, in its deviations", name),
               (chi - (cells - 1)) / sqrt(2 * (cells - 1)), 0, 5);
}

/* The z of two bit planes' agreement, the second `lag` elements on; whole words only. */
static double agreement(const uint64_t *a, const uint64_t *b, size_t lag)
{
    size_t words = (N - lag) / 64, skip_words = lag / 64, shift = lag % 64, different = 0;
    for (size_t i = 0; i < words; i++) {
        uint64_t other = b[i + skip_words] >> shift;
        if (shift)
            other |= b[i + skip_words + 1] << (64 - shift);
        different += (size_t)__builtin_popcountll(a[i] ^ other);
    }
    double bits = 64 * (double)words;
    return (bits - 2 * (double)different) / sqrt(bits);
}

/* Many z at once: none beyond five, and together no more than chance. Their z are uncorrelated where the bits are
 * independent, so the sum of their squares has variance 2 each. Of the ninety thousand z in this program one beyond 5
 * had a chance of 5 % when the seeds were chosen; they are fixed, so nothing is corrected for. */
typedef struct scores {
    unsigned pairs;
    double worst, squares;
} scores;

static void add_score(scores *s, double z)
{
    s->pairs++;
    s->worst = fmax(s->worst, fabs(z));
    s->squares += z * z;
}

static void check_scores(const char *name, const scores *s)
{
    double together = (s->squares - s->pairs) / sqrt(2.0 * s->pairs);
    (void)check(s->worst <= 5 && fabs(together) <= 5, name,
                "largest |z| %.2f of %u, at most 5; sum of squares off by %.2f of its deviations, at most 5", s->worst,
                s->pairs, together);
}

/* Every bit of an element against every bit of its neighbours, and of elements at powers of two. */
static void neighbours(const char *name, const stream *s)
{
    scores near = {.pairs = 0}, far = {.pairs = 0}, within = {.pairs = 0};
    for (unsigned a = 0; a < BITS; a++) {
        for (unsigned b = 0; b < BITS; b++) {
            for (size_t lag = 1; lag <= LAGS; lag++)
                add_score(&near, agreement(s->plane[a], s->plane[b], lag));
            for (size_t lag = 2 * LAGS; lag <= N / 2; lag *= 2)
                add_score(&far, agreement(s->plane[a], s->plane[b], lag));
            if (a < b)
                add_score(&within, agreement(s->plane[a], s->plane[b], 0));
        }
    }
    check_scores(text("%s: bits of one element", name), &within);
    check_scores(text("%s: neighbours, lags 1 to 64, all pairs of bits", name), &near);
    check_scores(text("%s: lags 128 to 2^17, all pairs of bits", name), &far);
}

/* The decisions themselves, for values at several places between two levels: both of two neighbours rounded up. */
static void decisions(const char *name, const stream *s)
{
    static const unsigned places[] = {256, 4096, 21845, 32768, 60000}; /* of 65536 */
    static uint8_t up[N];
    for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
        scores all = {.pairs = 0};
        double p = places[k] / 65536.0;
        for (size_t i = 0; i < N; i++)
            up[i] = s->number[i] >= 65536u - places[k];
        for (size_t lag = 1; lag <= LAGS; lag++) {
            double covariance = 0;
            for (size_t i = 0; i < N - lag; i++)
                covariance += (up[i] - p) * (up[i + lag] - p);
            add_score(&all, covariance / (p * (1 - p) * sqrt((double)(N - lag))));
        }
        check_scores(text("%s: neighbours' decisions at %u/65536 of a level", name, places[k]), &all);
    }
}

/* ---- two streams ---- */

static void unrelated(const char *name, const stream *a, const stream *b)
{
    scores all = {.pairs = 0};
    for (unsigned x = 0; x < BITS; x++) {
        for (unsigned y = 0; y < BITS; y++)
            add_score(&all, agreement(a->plane[x], b->plane[y], 0));
        for (size_t lag = 1; lag <= LAGS; lag++) {
            add_score(&all, agreement(a->plane[x], b->plane[x], lag));
            add_score(&all, agreement(b->plane[x], a->plane[x], lag));
        }
    }
    check_scores(name, &all);
}

/* ---- all draws together ---- */

static const struct {
    const char *name;
    tg_draw draw;
} related[] = {
    {"the first draw", {.seed = 7, .step = 1000, .tensor = 3, .rank = 5}},
    {"next step", {.seed = 7, .step = 1001, .tensor = 3, .rank = 5}},
    {"previous step", {.seed = 7, .step = 999, .tensor = 3, .rank = 5}},
    {"next tensor", {.seed = 7, .step = 1000, .tensor = 4, .rank = 5}},
    {"next rank", {.seed = 7, .step = 1000, .tensor = 3, .rank = 6}},
    {"tensor and rank exchanged", {.seed = 7, .step = 1000, .tensor = 5, .rank = 3}},
    {"next tensor, previous rank", {.seed = 7, .step = 1000, .tensor = 4, .rank = 4}},
    {"seed xor 1", {.seed = 6, .step = 1000, .tensor = 3, .rank = 5}},
    {"seed with its highest bit", {.seed = 7 | UINT64_C(1) << 63, .step = 1000, .tensor = 3, .rank = 5}},
    {"seed and step exchanged", {.seed = 1000, .step = 7, .tensor = 3, .rank = 5}},
    {"next seed, previous step", {.seed = 8, .step = 999, .tensor = 3, .rank = 5}},
    {"step with bit 32", {.seed = 7, .step = 1000 | UINT64_C(1) << 32, .tensor = 3, .rank = 5}},
};
enum { RELATED = sizeof related / sizeof *related };

/* The chance of rounding up is the fraction of a level, to the last of 2^16 steps, over all draws together. */
static void chances(const uint64_t above[], const unsigned *places, size_t count)
{
    const double draws = (double)RELATED * N;
    for (size_t i = 0; i < count; i++) {
        double p = places[i] / 65536.0, variance = draws * p * (1 - p);
        /* Five sigma; and where only some dozens are expected, as far as a Poisson number strays at that chance. */
        check_near(text("chance of rounding up at %u/65536 of a level, times %.0f draws", places[i], draws),
                   (double)above[i], draws * p, 5 * sqrt(variance) + 5);
    }
}

static void streams(void)
{
    static const unsigned places[] = {1, 2, 16, 257, 4096, 32767, 32768, 50000, 65279, 65535};
    enum { PLACES = sizeof places / sizeof *places };
    uint64_t above[PLACES] = {0};
    stream first = observe(related[0].draw), again = observe(related[0].draw), previous = first;
    (void)check(memcmp(first.number, again.number, N * sizeof *first.number) == 0, "the same draw again", "%s",
                "the same numbers expected");
    forget(&again);
    for (size_t k = 0; k < RELATED; k++) {
        stream s = k == 0 ? first : observe(related[k].draw);
        uniform(related[k].name, &s);
        for (size_t p = 0; p < PLACES; p++)
            for (size_t i = 0; i < N; i++)
                above[p] += s.number[i] >= 65536u - places[p];
        if (k > 0)
            unrelated(text("%s against the first: lags -64 to 64", related[k].name), &first, &s);
        if (k > 1)
            unrelated(text("%s against %s", related[k].name, related[k - 1].name), &previous, &s);
        if (k == 0 || k == 4)
            neighbours(related[k].name, &s);
        if (k < 2)
            decisions(related[k].name, &s);
        if (k > 1)
            forget(&previous);
        previous = s;
    }
    forget(&previous);
    forget(&first);
    chances(above, places, PLACES);
}

/* ---- very many draws ---- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* No piece of a stream comes again in another, as would happen if draws only chose where in one long stream to begin:
 * 64 decisions in a row, half way between two levels, starting at any multiple of 32. Two of these two million are
 * equal by chance once in ten million programs; streams that were windows of one of 2^32 numbers would share some
 * dozens. */
static void repeats(void)
{
    enum { DRAWS = 1 << 14, D = 4096, WINDOWS = D / 32 - 1 };
    static float v[D + 1], out[D + 1];
    uint64_t *window = memory((size_t)DRAWS * WINDOWS, sizeof *window);
    coder c = coder_open("qsgd:levels=1,norm=max,bucket=0", D + 1);
    for (size_t i = 0; i <= D; i++)
        v[i] = i < D ? 0.5f : 1;
    for (uint32_t draw = 0; draw < DRAWS; draw++) {
        encode_drawn(&c, v, (tg_draw){.seed = 1, .step = draw / 16, .tensor = draw / 4 % 4, .rank = draw % 4});
        decode(&c, out);
        uint64_t last = 0;
        for (size_t i = 0; i < D; i++) {
            last = last >> 1 | (uint64_t)(out[i] == 1) << 63;
            if (i % 32 == 31 && i > 32)
                window[(size_t)draw * WINDOWS + i / 32 - 1] = last;
        }
    }
    qsort(window, (size_t)DRAWS * WINDOWS, sizeof *window, by_value);
    size_t equal = 0;
    for (size_t i = 1; i < (size_t)DRAWS * WINDOWS; i++)
        equal += window[i] == window[i - 1];
    (void)check(equal == 0, "no draw repeats a piece of another",
                "%zu of %d windows of 64 decisions in %d draws, expected 0", equal, DRAWS * WINDOWS, DRAWS);
    free(window);
    coder_close(&c);
}

/* ---- what independence is for ---- */

/* The mean of P frames of one vector errs by 1/P of one frame's square error, whichever part of the draw tells them
 * apart. */
static void averages(void)
{
    enum { D = 1 << 16, FRAMES = 64, LEVELS = 7 };
    static const char *const names[] = {"steps", "tensors", "ranks", "seeds"};
    coder c = coder_open("qsgd:levels=7,norm=max,bucket=0", D);
    float *v = floats(D), *out = floats(D);
    double *sum = memory(D, sizeof *sum);
    fill(v, D, GAUSSIAN, 81);
    double unit = largest_magnitude(v, D) / LEVELS, expected = 0, variance = 0;
    for (size_t i = 0; i < D; i++) {
        double place = fabs((double)v[i]) / unit, p = place - floor(place), pq = p * (1 - p) * unit * unit;
        expected += pq / FRAMES;
        /* A square of a sum of P independent errors: 2 (pq/P)^2, and the fourth cumulant, which is at most as much
         * divided by P where p is near a half, and p/P^3 where p is small. */
        variance += 2 * pq * pq / (FRAMES * FRAMES) + pq * unit * unit / pow(FRAMES, 3);
    }
    for (size_t what = 0; what < 4; what++) {
        memset(sum, 0, D * sizeof *sum);
        for (uint32_t k = 0; k < FRAMES; k++) {
            tg_draw draw = {.seed = 1, .step = 1, .tensor = 1, .rank = 1};
            draw.step += what == 0 ? k : 0;
            draw.tensor += what == 1 ? k : 0;
            draw.rank += what == 2 ? k : 0;
            draw.seed += what == 3 ? k : 0;
            encode_drawn(&c, v, draw);
            decode(&c, out);
            for (size_t i = 0; i < D; i++)
                sum[i] += ((double)out[i] - (double)v[i]) / FRAMES;
        }
        double square = 0;
        for (size_t i = 0; i < D; i++)
            square += sum[i] * sum[i];
        check_near(text("mean over 64 %s: square error of 1/64 of the exact variance", names[what]), square / expected,
                   1, 5 * sqrt(variance) / expected);
    }
    free(v);
    free(out);
    free(sum);
    coder_close(&c);
}

/* Rand-k: two draws' selections share k^2/d indices, give or take a hypergeometric deviation. */
static void selections(void)
{
    enum { D = 1 << 18, K = D / 16 };
    float *v = floats(D), *first = floats(D), *out = floats(D);
    coder c = coder_open(text("randk:k=%d", K), D);
    for (size_t i = 0; i < D; i++)
        v[i] = 1;
    encode_drawn(&c, v, related[0].draw);
    decode(&c, first);
    double share = (double)K / D, deviation = sqrt(K * share * (1 - share) * (1 - share));
    for (size_t k = 1; k < RELATED; k++) {
        encode_drawn(&c, v, related[k].draw);
        decode(&c, out);
        double common = 0;
        for (size_t i = 0; i < D; i++)
            common += first[i] != 0 && out[i] != 0 ? 1 : 0;
        check_near(text("randk, %s: indices in common with the first draw", related[k].name), common, K * share,
                   5 * deviation);
    }
    /* And neighbours: chosen together as often as chance has it. */
    scores all = {.pairs = 0};
    for (size_t lag = 1; lag <= LAGS; lag++) {
        double both = 0;
        for (size_t i = 0; i + lag < D; i++)
            both += first[i] != 0 && first[i + lag] != 0 ? 1 : 0;
        add_score(&all, (both - (double)(D - lag) * share * share) /
                            sqrt((double)D * share * share * (1 - share) * (1 - share)));
    }
    check_scores("randk: neighbours chosen together, lags 1 to 64", &all);
    free(v);
    free(first);
    free(out);
    coder_close(&c);
}

int main(void)
{
    streams();
    repeats();
    averages();
    selections();
    return finish();
}
