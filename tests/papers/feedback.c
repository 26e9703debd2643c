/* Error feedback (ECQ-SGD, Wu et al. 2018; DGC, Lin et al. 2018): the residual's recursion, what is conserved, momentum
 * correction, and the sizes that the paper states. When a residual stays bounded is in stability.c. */
#include "harness.h"

static float *copy_of(const float *values, size_t n)
{
    float *copy = floats(n);
    memcpy(copy, values, n * sizeof *values);
    return copy;
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
        float *h = copy_of(residual_of(feedback), N);
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
        const float *after = residual_of(feedback);
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
    (void)check(worst <= 1.001, text("%s: h' = (beta-alpha)h - e", name),
                "worst %.3f of three roundings, at most 1 (%d steps)", worst, STEPS);
    (void)check(wrong_u == 0 && wrong_frames == 0, text("%s: what is sent is Q(g + alpha h)", name),
                "%zu elements of u differ, %zu frames differ from those of u", wrong_u, wrong_frames);
    tg_stats stats = stats_of(feedback);
    /* The statistics come from float32 sums of up to 256 terms a lane. */
    check_near(text("%s: residual_norm reported", name),
               stats.residual_norm / sqrt(square_norm(residual_of(feedback), N)), 1, 256 * HALF_ULP);
    check_near(text("%s: gradient_norm reported", name), stats.gradient_norm / sqrt(square_norm(g, N)), 1,
               256 * HALF_ULP);
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
        float *h = copy_of(residual_of(feedback), N);
        encode_step(&c, feedback, g, step, 0);
        decode(&c, sent);
        const float *after = residual_of(feedback);
        for (size_t i = 0; i < N; i++) {
            u[i] = g[i] + h[i];
            float sum = sent[i] + after[i];
            wrong += memcmp(&sum, &u[i], sizeof sum) != 0 || (sent[i] != 0 && after[i] != 0) ||
                     (sent[i] == 0 && after[i] != u[i]);
            if (sent[i] != 0 && h[i] != 0) { /* h + (g - sent) would not do */
                float difference = g[i] - sent[i];
                at_sent++;
                other_way += h[i] + difference != 0;
            }
        }
        free(h);
    }
    (void)check(
        wrong == 0, text("%s, ef: C(u) + h' = u", spec),
        "%zu of %d coordinates differ, expected 0 (computed as h + (g - sent), %.0f %% of %zu would not be zero)",
        wrong, N * STEPS, at_sent ? 100.0 * (double)other_way / (double)at_sent : 0, at_sent);
    tg_feedback_free(feedback);
    coder_close(&c);
    free(g);
    free(sent);
    free(u);
}

/* Over steps and ranks: sum of what was applied + mean residual = sum of mean gradients. Exactly on a dyadic grid with
 * a power of two of ranks, where no float32 sum here needs more than 24 bits; otherwise to rounding. */
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
    const float *kept[8];
    for (uint32_t rank = 0; rank < ranks; rank++)
        kept[rank] = residual_of(feedback[rank]);
    for (size_t i = 0; i < N; i++) {
        float sum = applied[i];
        for (uint32_t rank = 0; rank < ranks; rank++)
            sum += weight * kept[rank][i];
        different += sum != total[i];
        worst = fmax(worst, fabs((double)sum - exact[i]) / size[i]);
    }
    const char *name = text("%s, ef, 50 steps, %u rank%s, %s", spec, ranks, ranks > 1 ? "s" : "",
                            dyadic ? "dyadic grid" : "ordinary floats");
    if (dyadic)
        (void)check(different == 0, text("%s: sent + residual = sum of gradients", name),
                    "%zu of %d coordinates differ, expected 0", different, N);
    else
        /* Each step rounds one sum into the residual and one into the result, relative to no more than all magnitudes
         * so far. */
        (void)check(worst <= 2 * STEPS * HALF_ULP, text("%s: sent + residual = sum of gradients", name),
                    "worst error %.2g of all magnitudes, at most %.2g; %.0f %% of coordinates differ in the last bits",
                    worst, 2 * STEPS * HALF_ULP, 100.0 * (double)different / N);
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

/* 32 + d r bits, r = ceil(log2(2s + 1)), and the frame's header; the format pads the codes to a word of 32 bits. */
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
            uint64_t r = (uint64_t)ceil(log2(2.0 * levels[i] + 1)), words = 1 + (sizes[j] * r + 31) / 32;
            encode(&c, v, 0);
            wrong += c.report.bytes != HEADER_BYTES + 4 * words;
            coder_close(&c);
        }
    }
    (void)check(wrong == 0, "packed size is 32 + d r bits in whole words, and the header",
                "%zu of %zu cases differ, expected 0", wrong, cases);
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

/* ---- DGC ---- */

/* m = momentum m + g, h = h + m, send the top of h, clear both where sent: step by step beside the library, to the bit.
 */
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
        const float *residual = residual_of(feedback), *momentum = momentum_of(feedback);
        for (size_t i = 0; i < N; i++) {
            float kept = 0.9f * m[i];
            m[i] = kept + g[i];
            h[i] = m[i] + h[i];
            if (sent[i] != 0) {
                wrong += sent[i] != h[i];
                m[i] = h[i] = 0;
            }
            wrong += momentum[i] != m[i] || residual[i] != h[i];
        }
    }
    (void)check(wrong == 0, "dgc: momentum correction, cleared where sent",
                "%zu numbers differ in %d steps, expected 0", wrong, STEPS);
    tg_stats stats = stats_of(feedback);
    check_near("dgc: gradient_norm reported", stats.gradient_norm / sqrt(square_norm(g, N)), 1, 256 * HALF_ULP);
    check_near("dgc: residual_norm reported", stats.residual_norm / sqrt(square_norm(h, N)), 1, 256 * HALF_ULP);
    tg_feedback_free(feedback);

    /* Clipping: at the first step m = g clip/|g|, all of which is in the frame or the residual; however large g is. */
    static const float sizes[] = {1, 1e-3f, 1e22f, 1e37f};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        feedback = open_feedback(&c, "dgc:momentum=0.9,clip=1.5", false);
        fill(g, N, GAUSSIAN, 600);
        for (size_t i = 0; i < N; i++)
            g[i] *= sizes[k];
        encode_step(&c, feedback, g, 0, 0);
        decode(&c, sent);
        double factor = fmin(1, 1.5 / sqrt(square_norm(g, N))), worst = 0;
        const float *residual = residual_of(feedback);
        for (size_t i = 0; i < N; i++) {
            double u = (double)sent[i] + (double)residual[i];
            worst = fmax(worst, fabs(u - factor * (double)g[i]) / (factor * fabs((double)g[i])));
        }
        /* The norm comes from float32 sums of 256 terms a lane; factor and product are rounded. */
        check_below(text("dgc: clip=1.5 limits an L2 norm of %.3g, relative error", sqrt(square_norm(g, N))), worst,
                    258 * HALF_ULP);
        tg_feedback_free(feedback);
    }
    coder_close(&c);
    free(g);
    free(m);
    free(h);
    free(sent);
}

int main(void)
{
    static const char *const recursion_specs[] = {"qsgd:levels=7,bucket=512,norm=max",
                                                  "qsgd:levels=127,bucket=0,norm=l2",
                                                  "qsgd:levels=4,bucket=512,range=minmax,coding=entropy",
                                                  "topk:density=0.01",
                                                  "randk:density=0.1,values=levels",
                                                  "onebit",
                                                  "fp16",
                                                  "topk:density=0.999"};
    for (size_t i = 0; i < sizeof recursion_specs / sizeof *recursion_specs; i++) {
        recursion(recursion_specs[i], "ecq:alpha=0.2,beta=0.9");
        recursion(recursion_specs[i], "ef");
    }
    static const char *const sparsifiers[] = {"topk:density=0.01", "randk:density=0.1",  "gaussiank:density=0.01",
                                              "dgck:density=0.01", "trimk:density=0.05", "sidco:density=0.001"};
    for (size_t i = 0; i < sizeof sparsifiers / sizeof *sparsifiers; i++) {
        bit_for_bit(sparsifiers[i]);
        conservation(sparsifiers[i], true, 4);
    }
    conservation("topk:density=0.01", false, 1);
    conservation("topk:density=0.1", false, 1);
    packed_size();
    entropy_size();
    momentum_correction();
    return finish();
}
