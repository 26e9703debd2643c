/* Error feedback (ECQ-SGD, Wu et al. 2018; DGC, Lin et al. 2018): the residual's recursion, what is conserved, the sizes that the
 * paper states, when a residual stays bounded, and that compensation brings SGD nearer to the optimum. */
#include "harness.h"

static tg_feedback_spec parse_feedback(const char *how)
{
    tg_feedback_spec spec;
    tg_error error;
    must(tg_feedback_parse(how, &spec, &error), &error);
    return spec;
}

static tg_feedback *open_feedback(const coder *c, const char *how, bool insist)
{
    tg_feedback_spec spec = parse_feedback(how);
    tg_feedback *feedback;
    tg_error error;
    must(tg_feedback_create(c->device, &spec, &c->spec, c->count, insist, &feedback, &error), &error);
    return feedback;
}

static void encode_step(coder *c, tg_feedback *feedback, const float *gradient, uint64_t step, uint32_t rank)
{
    tg_tensor input = tensor_of(gradient, c->count);
    tg_encode_options options = {.draw = {.seed = 4, .step = step, .rank = rank}, .no_checksum = true};
    tg_error error;
    must(tg_encode_with_feedback(c->codec, feedback, &input, &options, c->frame, c->capacity, &c->report, &error), &error);
}

static float *copy_of(const float *values, size_t n)
{
    float *copy = floats(n);
    memcpy(copy, values, n * sizeof *values);
    return copy;
}

static tg_stats stats_of(const tg_feedback *feedback)
{
    tg_stats stats;
    tg_error error;
    must(tg_feedback_stats(feedback, &stats, &error), &error);
    return stats;
}

/* ---- the recursion ---- */

/* h' = (beta - alpha) h - e with e = Q(u) - u and u = g + alpha h, in other words beta h + (g - sent). */
static void recursion(const char *spec, const char *how)
{
    enum { N = 6000, STEPS = 30 };
    coder c = coder_open(spec, N), plain = coder_open(spec, N);
    tg_feedback *feedback = open_feedback(&c, how, true);
    tg_feedback_spec parsed = parse_feedback(how);
    double alpha = (double)parsed.alpha, beta = (double)parsed.beta, worst = 0;
    float *g = floats(N), *u = floats(N), *sent = floats(N);
    size_t wrong_u = 0, wrong_frames = 0;
    for (unsigned step = 0; step < STEPS; step++) {
        fill(g, N, LAPLACE, 100 + step);
        float *h = copy_of(tg_feedback_residual(feedback), N);
        tg_tensor gradient = tensor_of(g, N), compensated = tensor_of(u, N);
        tg_error error;
        must(tg_feedback_compensate(feedback, &gradient, &compensated, &error), &error);
        for (size_t i = 0; i < N; i++) {
            float product = parsed.alpha * h[i], expected = g[i] + product;
            wrong_u += u[i] != expected;
        }
        encode_step(&c, feedback, g, step, 0);
        decode(&c, sent);
        encode_drawn(&plain, u, (tg_draw){.seed = 4, .step = step});
        wrong_frames += plain.report.bytes != c.report.bytes || memcmp(plain.frame, c.frame, c.report.bytes) != 0;
        const float *after = tg_feedback_residual(feedback);
        for (size_t i = 0; i < N; i++) {
            double was = (double)h[i], e = (double)sent[i] - ((double)g[i] + alpha * was);
            double expected = (beta - alpha) * was - e;
            /* Three float32 roundings: beta h, g + beta h, and that minus what was sent. */
            double rounding = HALF_ULP * (fabs(beta * was) + fabs(beta * was + (double)g[i]) + fabs(expected)) + 1e-45;
            worst = fmax(worst, fabs((double)after[i] - expected) / rounding);
        }
        free(h);
    }
    const char *name = text("%s, %s", spec, how);
    (void)check(worst <= 1.001, text("%s: h' = (beta-alpha)h - e", name), "worst %.3f of three roundings, at most 1 (%d steps)", worst,
                STEPS);
    (void)check(wrong_u == 0 && wrong_frames == 0, text("%s: what is sent is Q(g + alpha h)", name),
                "%zu elements of u differ, %zu frames differ from those of u", wrong_u, wrong_frames);
    tg_stats stats = stats_of(feedback);
    /* The statistics come from float32 sums of up to 256 terms a lane. */
    check_near(text("%s: residual_norm reported", name), stats.residual_norm / sqrt(square_norm(tg_feedback_residual(feedback), N)),
               1, 256 * HALF_ULP);
    check_near(text("%s: gradient_norm reported", name), stats.gradient_norm / sqrt(square_norm(g, N)), 1, 256 * HALF_ULP);
    tg_feedback_free(feedback);
    coder_close(&c);
    coder_close(&plain);
    free(g);
    free(u);
    free(sent);
}

/* For sparsifiers with fp32 values C(u) + h' = u bit for bit: h' is zero where sent, and u elsewhere. */
static void bit_for_bit(const char *spec)
{
    enum { N = 8000, STEPS = 60 };
    coder c = coder_open(spec, N);
    tg_feedback *feedback = open_feedback(&c, "ef", false);
    float *g = floats(N), *sent = floats(N), *u = floats(N);
    size_t wrong = 0, at_sent = 0, other_way = 0;
    for (unsigned step = 0; step < STEPS; step++) {
        fill(g, N, GAUSSIAN, 200 + step);
        float *h = copy_of(tg_feedback_residual(feedback), N);
        encode_step(&c, feedback, g, step, 0);
        decode(&c, sent);
        const float *after = tg_feedback_residual(feedback);
        for (size_t i = 0; i < N; i++) {
            u[i] = g[i] + h[i];
            float sum = sent[i] + after[i];
            wrong += memcmp(&sum, &u[i], sizeof sum) != 0 || (sent[i] != 0 && after[i] != 0) || (sent[i] == 0 && after[i] != u[i]);
            if (sent[i] != 0 && h[i] != 0) { /* h + (g - sent) would not do */
                float difference = g[i] - sent[i];
                at_sent++;
                other_way += h[i] + difference != 0;
            }
        }
        free(h);
    }
    (void)check(wrong == 0, text("%s, ef: C(u) + h' = u", spec),
                "%zu of %d coordinates differ, expected 0 (computed as h + (g - sent), %.0f %% of %zu would not be zero)", wrong,
                N * STEPS, at_sent ? 100.0 * (double)other_way / (double)at_sent : 0, at_sent);
    tg_feedback_free(feedback);
    coder_close(&c);
    free(g);
    free(sent);
    free(u);
}

/* Over steps and ranks: sum of what was applied + mean residual = sum of mean gradients. Exactly on a dyadic grid with a power of
 * two of ranks, where no float32 sum here needs more than 24 bits; otherwise to rounding. */
static void conservation(const char *spec, bool dyadic, uint32_t ranks)
{
    enum { N = 5000, STEPS = 50, MOST_RANKS = 4 };
    coder c = coder_open(spec, N);
    tg_feedback *feedback[MOST_RANKS];
    float *g = floats(N), *applied = floats(N), *total = floats(N), weight = 1 / (float)ranks;
    double *exact = memory(N, sizeof *exact), *size = memory(N, sizeof *size);
    tg_tensor out = tensor_of(applied, N);
    for (uint32_t rank = 0; rank < ranks; rank++)
        feedback[rank] = open_feedback(&c, "ef", false);
    for (unsigned step = 0; step < STEPS; step++) {
        for (uint32_t rank = 0; rank < ranks; rank++) {
            tg_error error;
            fill(g, N, GAUSSIAN, 300 + step * ranks + rank);
            for (size_t i = 0; i < N; i++) {
                g[i] = dyadic ? rintf(g[i] * 512) / 512 : g[i];
                total[i] += weight * g[i];
                exact[i] += (double)g[i] / ranks;
                size[i] += fabs((double)g[i]) / ranks;
            }
            encode_step(&c, feedback[rank], g, step, rank);
            tg_frame frame = frame_of(&c);
            must(tg_decode_add(c.device, &frame, 1, weight, 0, &out, &error), &error);
        }
    }
    size_t different = 0;
    double worst = 0;
    for (size_t i = 0; i < N; i++) {
        float sum = applied[i];
        for (uint32_t rank = 0; rank < ranks; rank++)
            sum += weight * tg_feedback_residual(feedback[rank])[i];
        different += sum != total[i];
        worst = fmax(worst, fabs((double)sum - exact[i]) / size[i]);
    }
    const char *name = text("%s, ef, 50 steps, %u rank%s, %s", spec, ranks, ranks > 1 ? "s" : "", dyadic ? "dyadic grid" : "ordinary floats");
    if (dyadic)
        (void)check(different == 0, text("%s: sent + residual = sum of gradients", name), "%zu of %d coordinates differ, expected 0",
                    different, N);
    else
        /* Each step rounds one sum into the residual and one into the result, relative to no more than all magnitudes so far. */
        (void)check(worst <= 2 * STEPS * HALF_ULP, text("%s: sent + residual = sum of gradients", name),
                    "worst error %.2g of all magnitudes, at most %.2g; %.0f %% of coordinates differ in the last bits", worst,
                    2 * STEPS * HALF_ULP, 100.0 * (double)different / N);
    for (uint32_t rank = 0; rank < ranks; rank++)
        tg_feedback_free(feedback[rank]);
    coder_close(&c);
    free(g);
    free(applied);
    free(total);
    free(exact);
    free(size);
}

/* ---- sizes ---- */

/* 32 + d r bits, r = ceil(log2(2s + 1)), and the frame's header. */
static void packed_size(void)
{
    static const unsigned levels[] = {1, 2, 3, 4, 7, 8, 15, 31, 63, 64, 127, 1000, 32767};
    static const size_t sizes[] = {1, 511, 512, 513, 100003};
    float *v = floats(100003);
    size_t wrong = 0, cases = 0;
    fill(v, 100003, GAUSSIAN, 71);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++, cases++) {
            coder c = coder_open(text("qsgd:levels=%u,bucket=0,norm=l2,coding=packed", levels[i]), sizes[j]);
            uint64_t r = (uint64_t)ceil(log2(2.0 * levels[i] + 1)), bits = 32 + sizes[j] * r;
            encode(&c, v, 0);
            wrong += c.report.bytes != HEADER_BYTES + (bits + 7) / 8;
            coder_close(&c);
        }
    }
    (void)check(wrong == 0, "packed size is 32 + d r bits and the header", "%zu of %zu cases differ, expected 0", wrong, cases);
    free(v);
}

/* With entropy coding at most sum d_k log2(d/d_k) over the 2s + 1 symbols, plus 3 % and 64 bytes. */
static void entropy_size(void)
{
    enum { N = 1 << 17, MOST_LEVELS = 127 };
    static const unsigned levels[] = {1, 4, 7, 15, 127};
    float *v = floats(N), *out = floats(N);
    fill(v, N, GAUSSIAN, 72);
    double norm = sqrt(square_norm(v, N)), largest = largest_magnitude(v, N);
    for (size_t i = 0; i < 2 * sizeof levels / sizeof *levels; i++) {
        unsigned s = levels[i / 2];
        const char *norm_name = i % 2 ? "max" : "l2";
        coder c = coder_open(text("qsgd:levels=%u,bucket=0,norm=%s,coding=entropy", s, norm_name), N);
        double unit = (i % 2 ? largest : norm) / s, bits = 0;
        uint64_t counts[2 * MOST_LEVELS + 1] = {0};
        encode(&c, v, 0);
        decode(&c, out);
        for (size_t j = 0; j < N; j++)
            counts[lround((double)out[j] / unit) + (long)s]++;
        for (unsigned k = 0; k <= 2 * s; k++)
            bits += counts[k] ? (double)counts[k] * log2(N / (double)counts[k]) : 0;
        const char *name = text("s=%u, %s, d=2^17", s, norm_name);
        /* The library's own logarithm is good to about 1e-7. */
        check_near(text("%s: level_entropy over sum d_k log2(d/d_k)", name), measure(&c).level_entropy / bits, 1, 1e-6);
        check_below(text("%s: entropy coded bytes after the scale", name), (double)(c.report.bytes - HEADER_BYTES - 4),
                    1.03 * bits / 8 + 64);
        coder_close(&c);
    }
    free(v);
    free(out);
}

/* ---- stability ---- */

static tg_stability stability_of(const char *spec, const char *how, uint64_t count)
{
    tg_feedback_spec feedback = parse_feedback(how);
    tg_spec codec;
    tg_stability stability;
    tg_error error;
    must(tg_spec_parse(spec, &codec, &error), &error);
    must(tg_stability_of(&codec, &feedback, count, &stability, &error), &error);
    return stability;
}

static void stability_formulas(void)
{
    static const struct {
        unsigned levels, bucket, count;
        const char *how;
        double alpha, beta;
    } cases[] = {
        {4, 0, 512, "ef", 1, 1},     {4, 512, 512, "ecq:alpha=0.2,beta=0.9", 0.2, 0.9}, {4, 0, 256, "ecq:alpha=0.2,beta=0.99", 0.2, 0.99},
        {7, 512, 100000, "ef", 1, 1}, {127, 512, 100000, "ef", 1, 1},                   {15, 512, 100, "ecq:alpha=0.5,beta=1", 0.5, 1},
        {1, 0, 1000000, "ef", 1, 1}, {64, 4096, 1 << 20, "ecq:alpha=1,beta=0.5", 1, 0.5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double s = cases[i].levels;
        double d = cases[i].bucket == 0 || cases[i].bucket > cases[i].count ? cases[i].count : cases[i].bucket;
        double gammas[2] = {fmin(d / (s * s), sqrt(d) / s), (sqrt(1 + (d - 1) / (s * s)) - 1) / 2};
        for (size_t norm = 0; norm < 2; norm++) {
            const char *spec = text("qsgd:levels=%u,bucket=%u,norm=%s", cases[i].levels, cases[i].bucket, norm ? "max" : "l2");
            tg_stability st = stability_of(spec, cases[i].how, cases[i].count);
            double gamma = gammas[norm], drift = cases[i].beta - cases[i].alpha;
            double lambda = cases[i].alpha * cases[i].alpha * gamma + drift * drift;
            /* alpha and beta are kept as float32: two half ulps and their squares. */
            bool good = fabs(st.gamma / gamma - 1) < 1e-12 && fabs(st.lambda / lambda - 1) < 8 * HALF_ULP &&
                        st.binding == (norm == 0 && lambda >= 1);
            (void)check(good, text("%s, %s, d=%.0f", spec, cases[i].how, d),
                        "gamma %.6f expected %.6f, lambda %.6f expected %.6f, %s", st.gamma, gamma, st.lambda, lambda,
                        st.binding ? "binding" : "not binding");
        }
    }
    check_near("max norm, s=7, bucket 512: gamma", stability_of("qsgd:levels=7,bucket=512,norm=max", "ef", 512).gamma, 1.19, 0.005);
    for (unsigned k = 1; k <= 1000; k *= 10)
        check_near(text("topk, k=%u of 1000: gamma, 1-k/d", k), stability_of(text("topk:k=%u", k), "ef", 1000).gamma, 1 - k / 1000.0, 1e-12);
}

/* The bounds on gamma hold, and the one for the max norm is reached: one element at the maximum, the others at p of a level. */
static void gamma_reached(void)
{
    enum { N = 512, STEPS = 2000, LEVELS = 7 };
    coder c = coder_open("qsgd:levels=7,bucket=512,norm=max", N);
    float *v = floats(N), *out = floats(N);
    double ratio = (N - 1.0) / (LEVELS * LEVELS), p = (sqrt(1 + ratio) - 1) / ratio, sum = 0, squares = 0;
    for (size_t i = 0; i < N; i++)
        v[i] = i == 0 ? 1 : (float)(p / LEVELS);
    for (unsigned step = 0; step < STEPS; step++) {
        encode(&c, v, step);
        decode(&c, out);
        double error = square_distance(out, v, N) / square_norm(v, N);
        sum += error / STEPS;
        squares += error * error / STEPS;
    }
    check_near("max norm, s=7, bucket 512: gamma on the worst vector", sum, (sqrt(1 + ratio) - 1) / 2,
               5 * sqrt((squares - sum * sum) / STEPS));
    coder_close(&c);
    free(v);
    free(out);
}

static void refusal(void)
{
    coder c = coder_open("qsgd:levels=4,norm=l2,bucket=512", 512);
    tg_feedback_spec ef = parse_feedback("ef");
    tg_feedback *untouched = (tg_feedback *)&c, *feedback = untouched;
    tg_error error = {""};
    tg_status status = tg_feedback_create(c.device, &ef, &c.spec, 512, false, &feedback, &error);
    (void)check(status == TG_UNSTABLE && feedback == untouched && strstr(error.message, "5.657"), "ef over L2, d=512, s=4 is refused",
                "%s: %s", tg_status_text(status), error.message);
    status = tg_feedback_create(c.device, &ef, &c.spec, 512, true, &feedback, &error);
    (void)check(status == TG_OK, "and accepted from those who insist", "%s", tg_status_text(status));
    if (status == TG_OK)
        tg_feedback_free(feedback);
    static const char *const stable[] = {"ecq:alpha=0.2,beta=0.9", "none"};
    for (size_t i = 0; i < 2; i++) {
        tg_feedback_spec how = parse_feedback(stable[i]);
        status = tg_feedback_create(c.device, &how, &c.spec, 512, false, &feedback, &error);
        (void)check(status == TG_OK, text("%s over it is not", stable[i]), "%s", tg_status_text(status));
        if (status == TG_OK)
            tg_feedback_free(feedback);
    }
    coder_close(&c);
    coder max = coder_open("qsgd:levels=4,norm=max,bucket=512", 512);
    status = tg_feedback_create(max.device, &ef, &max.spec, 512, false, &feedback, &error);
    (void)check(status == TG_OK, "nor is ef over the max norm, where lambda is information", "%s", tg_status_text(status));
    if (status == TG_OK)
        tg_feedback_free(feedback);
    coder_close(&max);
}

/* What lambda foretells: plain feedback over L2 runs away, ECQ stays where E|h|^2 <= gamma E|g|^2 / (1 - lambda). */
static void divergence(void)
{
    enum { N = 512, STEPS = 1500 };
    static const char *const how[] = {"ef", "ecq:alpha=0.2,beta=0.9"};
    float *g = floats(N);
    for (size_t i = 0; i < 2; i++) {
        coder c = coder_open("qsgd:levels=4,norm=l2,bucket=0", N);
        tg_feedback *feedback = open_feedback(&c, how[i], true);
        double least_growth = INFINITY, late = 0;
        for (unsigned step = 0; step < STEPS; step++) {
            fill(g, N, GAUSSIAN, 400 + step);
            encode_step(&c, feedback, g, step, 0);
            tg_stats stats = stats_of(feedback);
            if (step >= 32 && !(stats.residual_growth >= least_growth))
                least_growth = stats.residual_growth;
            if (step >= 500)
                late += square_norm(tg_feedback_residual(feedback), N) / (STEPS - 500);
        }
        double norm = sqrt(square_norm(tg_feedback_residual(feedback), N));
        tg_stats stats = stats_of(feedback);
        tg_stability st = stability_of("qsgd:levels=4,norm=l2,bucket=0", how[i], N);
        if (i == 0) {
            (void)check(norm > 1e10, "ef over L2, d=512, s=4 diverges", "residual %.2g after 1500 steps, expected above 1e10", norm);
            (void)check(least_growth > 1, "and residual_growth says so at every step", "least growth %.4f, expected above 1", least_growth);
        } else {
            /* A late mean over 1000 steps that forget each other within a few: well within 5 % of its expectation. */
            (void)check(late <= 1.05 * st.gamma * N / (1 - st.lambda), text("%s stays bounded", how[i]),
                        "mean |h|^2 %.0f, bound gamma E|g|^2/(1-lambda) = %.0f", late, st.gamma * N / (1 - st.lambda));
            check_near("and residual_growth is about 1", stats.residual_growth, 1, 0.02);
        }
        (void)check(fabs(stats.residual_norm / norm - 1) <= 256 * HALF_ULP && stats.residual_peak >= stats.residual_norm,
                    text("%s: the reported norm at the end", how[i]), "residual_norm %.4g, peak %.4g, true %.4g", stats.residual_norm,
                    stats.residual_peak, norm);
        tg_feedback_free(feedback);
        coder_close(&c);
    }
    free(g);
}

/* ---- DGC ---- */

/* m = momentum m + g, h = h + m, send the top of h, clear both where sent: step by step beside the library, to the bit. */
static void momentum_correction(void)
{
    enum { N = 5000, STEPS = 40 };
    coder c = coder_open("topk:k=50", N);
    tg_feedback *feedback = open_feedback(&c, "dgc:momentum=0.9", false);
    float *g = floats(N), *m = floats(N), *h = floats(N), *sent = floats(N);
    size_t wrong = 0;
    for (unsigned step = 0; step < STEPS; step++) {
        fill(g, N, LAPLACE, 500 + step);
        encode_step(&c, feedback, g, step, 0);
        decode(&c, sent);
        for (size_t i = 0; i < N; i++) {
            float kept = 0.9f * m[i];
            m[i] = kept + g[i];
            h[i] = m[i] + h[i];
            if (sent[i] != 0) {
                wrong += sent[i] != h[i];
                m[i] = h[i] = 0;
            }
            wrong += tg_feedback_momentum(feedback)[i] != m[i] || tg_feedback_residual(feedback)[i] != h[i];
        }
    }
    (void)check(wrong == 0, "dgc: momentum correction, cleared where sent", "%zu numbers differ in %d steps, expected 0", wrong, STEPS);
    tg_stats stats = stats_of(feedback);
    check_near("dgc: gradient_norm reported", stats.gradient_norm / sqrt(square_norm(g, N)), 1, 256 * HALF_ULP);
    check_near("dgc: residual_norm reported", stats.residual_norm / sqrt(square_norm(h, N)), 1, 256 * HALF_ULP);
    tg_feedback_free(feedback);

    /* Clipping: at the first step m = g clip/|g|, all of which is in the frame or the residual. */
    feedback = open_feedback(&c, "dgc:momentum=0.9,clip=1.5", false);
    fill(g, N, GAUSSIAN, 600);
    encode_step(&c, feedback, g, 0, 0);
    decode(&c, sent);
    double factor = 1.5 / sqrt(square_norm(g, N)), worst = 0;
    for (size_t i = 0; i < N; i++) {
        double u = (double)sent[i] + (double)tg_feedback_residual(feedback)[i];
        worst = fmax(worst, fabs(u - factor * (double)g[i]) / (factor * fabs((double)g[i])));
    }
    /* The norm comes from float32 sums of 256 terms a lane, and the product is rounded. */
    check_below("dgc: clip limits the L2 norm, relative error", worst, 258 * HALF_ULP);
    tg_feedback_free(feedback);
    coder_close(&c);
    free(g);
    free(m);
    free(h);
    free(sent);
}

/* ---- the claim: nearer to the optimum at the same bits ---- */

enum { SAMPLES = 10000, WORKERS = 4, BATCH = 64, TRAINING = 1500, AVERAGED = 100, MOST_FEATURES = 512 };

typedef struct regression {
    size_t features;
    float *x, *y, *optimum;
} regression;

/* y = w* x + noise of deviation 0.1 */
static regression make_regression(size_t features, uint64_t seed)
{
    regression r = {features, floats(SAMPLES * features), floats(SAMPLES), floats(features)};
    fill(r.x, SAMPLES * features, GAUSSIAN, seed);
    fill(r.optimum, features, GAUSSIAN, seed + 1000);
    fill(r.y, SAMPLES, GAUSSIAN, seed + 2000);
    for (size_t i = 0; i < SAMPLES; i++) {
        double product = 0;
        for (size_t j = 0; j < features; j++)
            product += (double)r.x[i * features + j] * (double)r.optimum[j];
        r.y[i] = (float)(product + 0.1 * (double)r.y[i]);
    }
    return r;
}

/* In pieces of eight, which compilers keep in registers. */
static void add_gradient(const regression *r, size_t sample, const float *restrict w, float *restrict gradient)
{
    const float *restrict x = r->x + sample * r->features;
    float product[8] = {0}, error = -r->y[sample];
    for (size_t j = 0; j < r->features; j += 8)
        for (size_t k = 0; k < 8; k++)
            product[k] += x[j + k] * w[j + k];
    for (size_t k = 0; k < 8; k++)
        error += product[k];
    error /= BATCH;
    for (size_t j = 0; j < r->features; j += 8)
        for (size_t k = 0; k < 8; k++)
            gradient[j + k] += error * x[j + k];
}

/* Mean |w - w*|^2 over the last steps. */
static double train(const regression *r, const char *spec, const char *how, uint64_t seed)
{
    const size_t d = r->features;
    coder c = coder_open(spec, d);
    tg_feedback *feedback[WORKERS];
    float w[MOST_FEATURES] = {0};
    uint64_t state = seed;
    double distance = 0;
    for (size_t p = 0; p < WORKERS; p++)
        feedback[p] = open_feedback(&c, how, false);
    for (unsigned step = 0; step < TRAINING; step++) {
        float mean[MOST_FEATURES] = {0};
        tg_tensor out = tensor_of(mean, d);
        for (uint32_t p = 0; p < WORKERS; p++) {
            float gradient[MOST_FEATURES] = {0};
            tg_error error;
            for (unsigned b = 0; b < BATCH; b++)
                add_gradient(r, next_bits(&state) % SAMPLES, w, gradient);
            encode_step(&c, feedback[p], gradient, step + seed * TRAINING, p);
            tg_frame frame = frame_of(&c);
            must(tg_decode_add(c.device, &frame, 1, 1.0f / WORKERS, 0, &out, &error), &error);
        }
        for (size_t j = 0; j < d; j++)
            w[j] -= 0.02f * mean[j];
        if (step >= TRAINING - AVERAGED)
            distance += square_distance(w, r->optimum, d) / AVERAGED;
    }
    for (size_t p = 0; p < WORKERS; p++)
        tg_feedback_free(feedback[p]);
    coder_close(&c);
    return distance;
}

static void nearer_the_optimum(size_t features, const char *ecq, const double *stated, unsigned runs)
{
    static const char *const names[] = {"full precision", "QSGD", "ECQ"};
    const char *specs[] = {"none", "qsgd:levels=4,norm=l2,bucket=0", "qsgd:levels=4,norm=l2,bucket=0"};
    const char *how[] = {"none", "none", ecq};
    double mean[3] = {0}, squares[3] = {0};
    unsigned nearer = 0;
    for (unsigned run = 0; run < runs; run++) {
        regression r = make_regression(features, 700 + run);
        double distance[3];
        for (size_t i = 0; i < 3; i++) {
            distance[i] = train(&r, specs[i], how[i], run);
            mean[i] += distance[i] / runs;
            squares[i] += distance[i] * distance[i] / runs;
        }
        nearer += distance[2] < distance[1];
        free(r.x);
        free(r.y);
        free(r.optimum);
    }
    (void)check(nearer == runs, text("least squares, d=%zu: ECQ ends nearer w* than QSGD at the same bits", features),
                "in %u of %u runs; |w-w*|^2 full %.3g, QSGD %.3g, ECQ %.3g", nearer, runs, mean[0], mean[1], mean[2]);
    for (size_t i = 0; i < 3; i++) {
        /* One stated run against the mean of ours: five deviations of a run, as these runs scatter. */
        double deviation = sqrt((squares[i] - mean[i] * mean[i]) * runs / (runs - 1)) * sqrt(1 + 1.0 / runs);
        check_near(text("least squares, d=%zu: |w-w*|^2, %s, as measured elsewhere", features, names[i]), mean[i], stated[i],
                   5 * deviation);
    }
}

int main(void)
{
    static const char *const recursion_specs[] = {"qsgd:levels=7,bucket=512,norm=max", "qsgd:levels=127,bucket=0,norm=l2",
                                                  "qsgd:levels=4,bucket=512,range=minmax,coding=entropy", "topk:density=0.01",
                                                  "randk:density=0.1,values=levels", "onebit", "fp16"};
    for (size_t i = 0; i < sizeof recursion_specs / sizeof *recursion_specs; i++) {
        recursion(recursion_specs[i], "ecq:alpha=0.2,beta=0.9");
        recursion(recursion_specs[i], "ef");
    }
    static const char *const sparsifiers[] = {"topk:density=0.01",    "randk:density=0.1",  "gaussiank:density=0.01",
                                              "dgck:density=0.01",    "trimk:density=0.05", "sidco:density=0.001"};
    for (size_t i = 0; i < sizeof sparsifiers / sizeof *sparsifiers; i++) {
        bit_for_bit(sparsifiers[i]);
        conservation(sparsifiers[i], true, 4);
    }
    conservation("topk:density=0.01", false, 1);
    conservation("topk:density=0.1", false, 1);
    packed_size();
    entropy_size();
    stability_formulas();
    gamma_reached();
    refusal();
    divergence();
    momentum_correction();
    nearer_the_optimum(256, "ecq:alpha=0.2,beta=0.9", (const double[]){3.50e-4, 5.66e-4, 3.95e-4}, 5);
    nearer_the_optimum(512, "ecq:alpha=0.2,beta=0.99", (const double[]){7.47e-4, 1.418e-3, 8.15e-4}, 3);
    return finish();
}
