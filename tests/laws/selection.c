/* Laws of selection: every device gives the frames, residuals and momenta of cpu/scalar, whatever the values are made
 * of and however they change from step to step; and what is not finite is found, wherever it is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

/* Vectors that make it hard to guess a threshold. */
typedef enum pattern {
    NORMAL,
    EQUAL,
    PLUS_MINUS,
    ALL_ZERO,
    ASCENDING,
    DESCENDING,
    HUGE_LAYER, /* a short run of large values among tiny ones */
    FEW_VALUES, /* eight different magnitudes: ties everywhere */
    PERIODIC,   /* large only where a stride might never look */
    BURST,      /* everything large is at the end */
    DECOY,      /* all equal where codec/pilot.c takes its sample; elsewhere as many are equal, but late */
    PATTERNS
} pattern;
static const char *const pattern_names[PATTERNS] = {"normal",    "equal",      "plus-minus", "zero",
                                                    "ascending", "descending", "layer",      "few values",
                                                    "periodic",  "burst",      "decoy"};

static bool is_sampled(uint64_t i, uint64_t count)
{
    enum { RUN = 16, RUNS = 2048, SHARE = 16 };
    const uint64_t most = count / (SHARE * RUN), runs = most < RUNS ? most : RUNS;
    if (runs == 0)
        return false;
    const uint64_t part = count / runs, run = i / part, draw = run * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    const uint64_t first = run * part + (draw * ((part - RUN) / RUN + 1) >> 32) * RUN;
    return i >= first && i < first + RUN;
}

static double value_of(pattern p, uint64_t i, uint64_t count, generator *g)
{
    switch (p) {
    case EQUAL:
        return -0.7;
    case PLUS_MINUS:
        return next_random(g) & 1 ? 1 : -1;
    case ALL_ZERO:
        return next_random(g) & 1 ? 0.0 : -0.0;
    case ASCENDING:
        return (double)i;
    case DESCENDING:
        return -(double)(count - i);
    case HUGE_LAYER:
        return next_gaussian(g) * (i / 100 == count / 230 ? 1e20 : 1e-20);
    case FEW_VALUES:
        return (double)(next_random(g) % 15) - 7;
    case PERIODIC:
        return next_gaussian(g) * (i % 64 == 63 ? 100 : 1e-3);
    case DECOY:
        return is_sampled(i, count) || i > count / 2 ? 1 : 0.25 * next_uniform(g);
    case BURST:
        return next_gaussian(g) * (i > count - count / 50 ? 1e3 : 1);
    default:
        return next_gaussian(g);
    }
}

static void make(pattern p, uint64_t seed, tg_tensor *t)
{
    generator g = {seed};
    for (uint64_t i = 0; i < t->count; i++)
        ((float *)t->data)[i] = (float)value_of(p, i, t->count, &g);
}

/* One device's way through a run of steps. */
typedef struct runner {
    tg_device *device;
    tg_codec *codec;
    tg_feedback *feedback; /* NULL: none */
    unsigned char *frame;
    tg_tensor sum;
    tg_encode_report report;
    tg_status status;
} runner;

static runner start(const char *device, const char *spec, const char *feedback, uint64_t count, size_t offset)
{
    runner r = {.device = open_device(device)};
    tg_error error = {""};
    r.codec = make_codec(r.device, spec, count);
    r.frame = malloc(tg_frame_bound(r.codec, count));
    r.sum = make_tensor(count, TG_FLOAT32, offset);
    memset(r.sum.data, 0, (size_t)count * sizeof(float));
    if (feedback) {
        tg_feedback_spec parsed;
        expect(tg_feedback_parse(feedback, &parsed, &error) == TG_OK &&
                   tg_feedback_create(r.device, &parsed, tg_codec_spec(r.codec), count, true, &r.feedback, &error) ==
                       TG_OK,
               "feedback %s: %s", feedback, error.message);
    }
    return r;
}

static void end(runner *r)
{
    tg_feedback_free(r->feedback);
    tg_codec_free(r->codec);
    tg_device_free(r->device);
    drop(&r->sum);
    free(r->frame);
}

static void step(runner *r, const tg_tensor *g, const tg_encode_options *options)
{
    size_t bound = tg_frame_bound(r->codec, g->count);
    tg_error error = {""};
    r->status = r->feedback
                    ? tg_encode_with_feedback(r->codec, r->feedback, g, options, r->frame, bound, &r->report, &error)
                    : tg_encode(r->codec, g, options, r->frame, bound, &r->report, &error);
    if (r->status != TG_OK)
        return;
    tg_frame frame = {r->frame, r->report.bytes};
    expect(tg_decode_add(r->device, &frame, 1, 0.5f, 0, &r->sum, &error) == TG_OK, "decode_add: %s", error.message);
}

static void compare(const runner *a, const runner *b, uint64_t number, const char *what)
{
    const size_t floats = (size_t)a->sum.count * sizeof(float);
    expect(a->status == b->status, "%s, step %d: status %d and %d", what, (int)number, (int)a->status, (int)b->status);
    if (a->status == TG_OK && b->status == TG_OK)
        expect(a->report.bytes == b->report.bytes && memcmp(a->frame, b->frame, a->report.bytes) == 0,
               "%s, step %d: frames differ, %d and %d selected", what, (int)number, (int)a->report.selected,
               (int)b->report.selected);
    expect(memcmp(a->sum.data, b->sum.data, floats) == 0, "%s, step %d: sums differ", what, (int)number);
    if (a->feedback)
        expect(memcmp(residual_of(a->feedback), residual_of(b->feedback), floats) == 0, "%s, step %d: residuals differ",
               what, (int)number);
    if (a->feedback && momentum_of(a->feedback))
        expect(memcmp(momentum_of(a->feedback), momentum_of(b->feedback), floats) == 0, "%s, step %d: momenta differ",
               what, (int)number);
}

/* The patterns follow each other without warning. */
static void devices_agree(const char *device, const char *spec, const char *feedback, uint64_t count, uint64_t steps,
                          uint64_t seed)
{
    generator g = {seed};
    runner plain = start("cpu/scalar", spec, feedback, count, 0), other = start(device, spec, feedback, count, 3);
    tg_tensor gradient = make_tensor(count, TG_FLOAT32, (size_t)(seed % 5));
    for (uint64_t number = 0; number < steps; number++) {
        pattern p = (pattern)(next_random(&g) % PATTERNS);
        tg_encode_options options = {.draw = {.seed = seed, .step = number},
                                     .nonfinite = (tg_nonfinite)(next_random(&g) % 3)};
        make(p, seed * 1000 + number, &gradient);
        step(&plain, &gradient, &options);
        step(&other, &gradient, &options);
        compare(&plain, &other, number, pattern_names[p]);
    }
    drop(&gradient);
    end(&plain);
    end(&other);
}

/* A value that is not finite somewhere: found in trust, with its index, and the residual is as it was to rounding. */
static void nonfinite_is_found(const char *device, const char *spec, const char *feedback, uint64_t count,
                               uint64_t seed)
{
    static const uint32_t bad_bits[] = {0x7fc00000, 0xff800001, 0x7f800000, 0xff800000};
    generator g = {seed};
    runner r = start(device, spec, feedback, count, 1);
    tg_tensor gradient = make_tensor(count, TG_FLOAT32, 2);
    tg_encode_options trust = {.nonfinite = TG_NONFINITE_TRUST};
    const size_t floats = (size_t)count * sizeof(float);
    float *before = malloc(floats), *momentum = malloc(floats);
    for (uint64_t number = 0; number < 3; number++) {
        make(number == 2 ? BURST : NORMAL, seed + number, &gradient);
        step(&r, &gradient, &trust);
        expect(r.status == TG_OK, "step %d: %d", (int)number, (int)r.status);
    }
    const bool has_momentum = r.feedback && momentum_of(r.feedback);
    for (int trial = 0; trial < 6; trial++) {
        uint64_t where = next_random(&g) % count;
        make(NORMAL, seed + 10, &gradient);
        memcpy((float *)gradient.data + where, &bad_bits[trial % 4], sizeof(float));
        if (r.feedback)
            memcpy(before, residual_of(r.feedback), floats);
        if (has_momentum)
            memcpy(momentum, momentum_of(r.feedback), floats);
        tg_error error = {""};
        char index[40];
        snprintf(index, sizeof index, "element %llu ", (unsigned long long)where);
        size_t bound = tg_frame_bound(r.codec, count);
        tg_status status = r.feedback ? tg_encode_with_feedback(r.codec, r.feedback, &gradient, &trust, r.frame, bound,
                                                                NULL, &error)
                                      : tg_encode(r.codec, &gradient, &trust, r.frame, bound, NULL, &error);
        expect(status == TG_NONFINITE, "trial %d: status %d", trial, (int)status);
        expect(strstr(error.message, index) != NULL, "trial %d: %s, not %s", trial, error.message, index);
        const float *h = r.feedback ? residual_of(r.feedback) : NULL;
        float largest = 0;
        for (uint64_t i = 0; h && i < count; i++)
            largest = fmaxf(largest, fabsf(before[i]));
        for (uint64_t i = 0; h && i < count; i++)
            expect(fabsf(h[i] - before[i]) <= (largest + 8) * 0x1p-20f, "trial %d: residual at %d off by %g", trial,
                   (int)i, (double)fabsf(h[i] - before[i]));
        if (has_momentum)
            expect(memcmp(momentum_of(r.feedback), momentum, floats) == 0, "trial %d: the momentum changed", trial);
    }
    drop(&gradient);
    end(&r);
    free(before);
    free(momentum);
}

static const char *const feedbacks[] = {NULL, "ef", "ecq:alpha=0.2,beta=0.9", "ecq:alpha=0.9,beta=0.9",
                                        "dgc:momentum=0.9,clip=3"};
enum { FEEDBACKS = sizeof feedbacks / sizeof feedbacks[0] };
static const char *const amounts[] = {"density=0.01",  "density=0.1",
                                      "density=0.001", "density=0.3,values=fp16",
                                      "k=1",           "density=0.05,values=levels",
                                      "density=1",     "density=0.8,values=bf16"};
enum { AMOUNTS = sizeof amounts / sizeof amounts[0] };
static const uint64_t counts[] = {65537, 4097, 65535, 4096, 65536, 12345, 100003, 8191, 300007};
enum { COUNTS = sizeof counts / sizeof counts[0] };

/* Whether a device has the kernels for a spec. */
static bool device_has(const char *device, const char *spec)
{
    tg_device *opened = open_device(device);
    const bool has = has_codec(opened, spec);
    tg_device_free(opened);
    return has;
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    generator g = {4};
    tg_codec_info info;
    for (size_t d = 0; any_device_to_try(d); d++) {
        const char *device = any_device_to_try(d);
        const bool is_definition = strcmp(device, "cpu/scalar") == 0; /* needs no comparison with itself */
        const bool is_card = strncmp(device, "cuda", 4) == 0;
        for (size_t i = 0; tg_codec_list(i, &info) == TG_OK; i++) {
            if (!is_sparsifier(info.name))
                continue;
            for (int f = 0; f < FEEDBACKS; f++) {
                char spec[TG_SPEC_TEXT];
                for (int trial = 0; !is_definition && trial < (all ? AMOUNTS * COUNTS : EMULATED ? 2 : 6); trial++) {
                    uint64_t draw = next_random(&g);
                    snprintf(spec, sizeof spec, "%s:%s", info.name,
                             amounts[all ? trial % AMOUNTS : (int)(draw % AMOUNTS)]);
                    if (!device_has(device, spec))
                        continue;
                    uint64_t count = counts[all ? trial / AMOUNTS : (int)((draw >> 8) % (COUNTS - 1))];
                    devices_agree(device, spec, feedbacks[f], count, all ? 4 : 8, draw >> 20);
                    check_all("%s %s %s, %d elements", device, spec, feedbacks[f] ? feedbacks[f] : "none", (int)count);
                }
                snprintf(spec, sizeof spec, "%s:density=0.02", info.name);
                devices_agree(device, spec, feedbacks[f], 20011, is_definition ? 1 : all ? 200 : EMULATED ? 5 : 40, 77);
                check_all("%s %s %s: a long run", device, spec, feedbacks[f] ? feedbacks[f] : "none");
                if (!is_definition && !is_card) {
                    char threads[64];
                    snprintf(threads, sizeof threads, "%s:threads=3", device);
                    devices_agree(threads, spec, feedbacks[f], 300007, all ? 40 : EMULATED ? 2 : 4, 78);
                    check_all("%s %s %s", threads, spec, feedbacks[f] ? feedbacks[f] : "none");
                }
                for (int trial = 0; trial < (all ? 8 : 2); trial++)
                    nonfinite_is_found(device, spec, feedbacks[f], counts[trial % COUNTS], next_random(&g) >> 20);
                check_all("%s %s %s: non-finite values", device, spec, feedbacks[f] ? feedbacks[f] : "none");
            }
        }
    }
    return finish();
}
