/* Under TG_NONFINITE_REJECT a vector that is refused leaves no trace: the first bad element is named, frame buffer,
 * report, residual, momentum and statistics are as they were, to the bit, and the next step is that of a run that never
 * met it. Wherever the bad value is, in whatever it is, or if it only comes about in a sum; for every codec, dtype,
 * device and kind of feedback, with threads, too. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW true
#else
#define SLOW EMULATED
#endif
#if defined(__SANITIZE_THREAD__) /* has nothing to watch where there is one thread */
#define FEWEST_THREADS 3
#else
#define FEWEST_THREADS 1
#endif

typedef enum wrong {
    NAN_IN_GRADIENT,
    INFINITY_IN_GRADIENT,
    NAN_IN_RESIDUAL,
    INFINITY_IN_RESIDUAL,
    SUM_OVERFLOWS,  /* all that goes into it is finite */
    REST_OVERFLOWS, /* what remains does, but what is sent does not: alpha differs from beta */
    NAN_IN_MOMENTUM,
    WRONGS
} wrong;

/* NULL: tg_encode. A residual that beta = 0 wipes cannot be computed back. */
static const char *const kinds[] = {"ef", NULL, "ecq:alpha=0.2,beta=0.9", "ecq:alpha=0.5,beta=0",
                                    "dgc:momentum=0.9,clip=3"};
enum { KINDS = sizeof kinds / sizeof kinds[0], DGC = KINDS - 1, REST_MAY_OVERFLOW = 2 };

typedef struct setting {
    tg_device *device;
    const char *spec;
    int kind;
    tg_dtype dtype;
    uint64_t count, seed;
} setting;

/* A run of steps. */
typedef struct runner {
    tg_codec *codec;
    tg_feedback *feedback; /* NULL: none */
    bool has_momentum;
    unsigned char *frame;
    size_t bound;
    tg_tensor gradient;
    tg_encode_report report;
    tg_error error;
} runner;

static runner start(const setting *s)
{
    runner r = {.codec = make_codec(s->device, s->spec, s->count),
                .gradient = make_tensor(s->count, s->dtype, s->seed % 4)};
    tg_feedback_spec feedback;
    r.bound = tg_frame_bound(r.codec, s->count);
    r.frame = malloc(r.bound);
    if (kinds[s->kind]) {
        if (tg_feedback_parse(kinds[s->kind], &feedback, NULL) != TG_OK ||
            tg_feedback_create(s->device, &feedback, tg_codec_spec(r.codec), s->count, true, &r.feedback, NULL) !=
                TG_OK)
            abort();
        r.has_momentum = momentum_of(r.feedback) != NULL;
    }
    return r;
}

static void stop(runner *r)
{
    tg_feedback_free(r->feedback);
    tg_codec_free(r->codec);
    drop(&r->gradient);
    free(r->frame);
}

static tg_status encode(runner *r, const tg_encode_options *options)
{
    return r->feedback ? tg_encode_with_feedback(r->codec, r->feedback, &r->gradient, options, r->frame, r->bound,
                                                 &r->report, &r->error)
                       : tg_encode(r->codec, &r->gradient, options, r->frame, r->bound, &r->report, &r->error);
}

static void set_gradient(runner *r, uint64_t at, uint32_t bits)
{
    const uint16_t half = (uint16_t)(r->gradient.dtype == TG_FLOAT16 ? (bits >> 16 & 0x8000) | 0x7c00 | (bits & 1)
                                                                     : bits >> 16);
    if (r->gradient.dtype == TG_FLOAT32)
        memcpy((float *)r->gradient.data + at, &bits, sizeof bits);
    else
        memcpy((uint16_t *)r->gradient.data + at, &half, sizeof half);
}

static void spoil_residual(runner *r, uint64_t at, uint32_t bits)
{
    float *values = residual_of(r->feedback);
    memcpy(values + at, &bits, sizeof bits);
    set_residual(r->feedback, values);
}

static void spoil_momentum(runner *r, uint64_t at, uint32_t bits)
{
    float *values = momentum_of(r->feedback);
    memcpy(values + at, &bits, sizeof bits);
    set_momentum(r->feedback, values);
}

static bool is_possible(const setting *s, wrong w)
{
    switch (w) {
    case NAN_IN_RESIDUAL:
    case INFINITY_IN_RESIDUAL:
        return kinds[s->kind] != NULL;
    case SUM_OVERFLOWS:
        return s->kind == DGC || (kinds[s->kind] && s->dtype != TG_FLOAT16); /* the largest float16 is too small */
    case REST_OVERFLOWS:
        return s->kind == REST_MAY_OVERFLOW && s->dtype != TG_FLOAT16;
    case NAN_IN_MOMENTUM:
        return s->kind == DGC;
    default:
        return true;
    }
}

static void spoil(runner *r, wrong w, uint64_t at)
{
    const uint32_t nan = 0x7fc00001, infinity = 0xff800000, largest = 0x7f7f0000, half_of_it = 0x7eff0000;
    switch (w) {
    case NAN_IN_GRADIENT:
        set_gradient(r, at, nan);
        break;
    case INFINITY_IN_GRADIENT:
        set_gradient(r, at, infinity);
        break;
    case NAN_IN_RESIDUAL:
        spoil_residual(r, at, nan);
        break;
    case INFINITY_IN_RESIDUAL:
        spoil_residual(r, at, infinity);
        break;
    case SUM_OVERFLOWS:
        spoil_residual(r, at, largest);
        if (r->has_momentum)
            spoil_momentum(r, at, largest);
        else
            set_gradient(r, at, largest);
        break;
    case REST_OVERFLOWS: /* 0.5 + 0.2 is below 1, 0.5 + 0.9 is not */
        spoil_residual(r, at, largest);
        set_gradient(r, at, half_of_it);
        break;
    default:
        spoil_momentum(r, at, nan);
    }
}

/* A copy of everything that a refusal must leave alone. */
typedef struct snapshot {
    float *residual, *momentum;
    unsigned char *frame;
    tg_encode_report report;
    tg_stats stats;
} snapshot;

static void *copy_of(const void *bytes, size_t size)
{
    void *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    return bytes ? memcpy(copy, bytes, size) : copy;
}

static snapshot take(const runner *r)
{
    const size_t floats = (size_t)r->gradient.count * sizeof(float);
    snapshot s = {copy_of(r->feedback ? residual_of(r->feedback) : NULL, floats),
                  copy_of(r->has_momentum ? momentum_of(r->feedback) : NULL, floats), copy_of(r->frame, r->bound),
                  .report = r->report};
    if (r->feedback && tg_feedback_stats(r->feedback, &s.stats, NULL) != TG_OK)
        abort();
    return s;
}

static void forget(snapshot *s)
{
    free(s->residual);
    free(s->momentum);
    free(s->frame);
}

static void is_as_in(const runner *r, const snapshot *s, const char *what)
{
    const size_t floats = (size_t)r->gradient.count * sizeof(float);
    tg_stats stats;
    expect(memcmp(r->frame, s->frame, r->bound) == 0, "%s: the frame buffer changed", what);
    expect(same_report(&r->report, &s->report), "%s: the report is another one", what);
    expect(!r->feedback || memcmp(residual_of(r->feedback), s->residual, floats) == 0, "%s: the residual changed",
           what);
    expect(!r->has_momentum || memcmp(momentum_of(r->feedback), s->momentum, floats) == 0, "%s: the momentum changed",
           what);
    expect(!r->feedback ||
               (tg_feedback_stats(r->feedback, &stats, NULL) == TG_OK && memcmp(&stats, &s->stats, sizeof stats) == 0),
           "%s: the statistics changed", what);
}

/* Refused for what is at `at`, though there is more further on. */
static void is_refused(runner *r, const setting *s, wrong w, uint64_t at, generator *g)
{
    static const char *const names[WRONGS] = {
        "NaN in the gradient",  "infinity in the gradient", "NaN in the residual", "infinity in the residual",
        "a sum that overflows", "a rest that overflows",    "NaN in the momentum"};
    char what[160], index[40];
    const tg_encode_options trust = {.nonfinite = TG_NONFINITE_TRUST};
    const tg_encode_options *options = s->kind == 3 && next_random(g) % 4 == 0 ? &trust
                                                                               : NULL; /* beta = 0: exact then, too */
    const bool own = w == NAN_IN_RESIDUAL || w == INFINITY_IN_RESIDUAL || w == NAN_IN_MOMENTUM;
    const tg_status due = own ? TG_BAD_RESIDUAL : TG_NONFINITE;
    const uint64_t later = at + next_random(g) % (s->count - at);
    snapshot mended = take(r);
    float *gradient = copy_of(r->gradient.data, (size_t)s->count * tg_dtype_size(s->dtype));
    snprintf(what, sizeof what, "%s, dtype %d: %s at %llu", kinds[s->kind] ? kinds[s->kind] : "no feedback",
             (int)s->dtype, names[w], (unsigned long long)at);
    snprintf(index, sizeof index, "element %llu ", (unsigned long long)at);
    spoil(r, w, at);
    if (next_random(g) % 2)
        spoil(r, w, later);
    for (size_t i = 0; i < r->bound; i++)
        r->frame[i] = (unsigned char)(i * 29 + at);
    memset(&r->report, 0, sizeof r->report);
    r->report.status = due; /* is what the report will say, and nothing else */
    snapshot before = take(r);
    memset(&r->report, 0xa5, sizeof r->report);
    tg_status status = encode(r, options);
    expect(status == due, "%s: %s", what, tg_status_text(status));
    expect(strstr(r->error.message, index) != NULL, "%s: %s", what, r->error.message);
    if (options) /* the frame buffer may hold anything */
        memcpy(r->frame, before.frame, r->bound);
    is_as_in(r, &before, what);
    memcpy(r->gradient.data, gradient, (size_t)s->count * tg_dtype_size(s->dtype));
    if (r->feedback)
        set_residual(r->feedback, mended.residual);
    if (r->has_momentum)
        set_momentum(r->feedback, mended.momentum);
    forget(&before);
    forget(&mended);
    free(gradient);
}

/* Edges of everything that is done at once: rows, groups, blocks, ranges of threads, and the vector. */
static uint64_t place(uint64_t count, uint64_t number, generator *g)
{
    const uint64_t places[] = {0,     count - 1, count / 2,           511,        512,           4095, 4096,
                               65535, 65536,     count / 4096 * 4096, count - 33, next_random(g)};
    return places[number % (sizeof places / sizeof places[0])] % count;
}

/* Two runs, of which one is interrupted by vectors that are refused; `places` for each thing that can be wrong. */
static void leaves_no_trace(const setting *s, uint64_t places, generator *g)
{
    runner r = start(s), calm = start(s);
    now_at(tg_device_name(s->device), GAUSSIAN, s->count);
    for (uint64_t step = 0; step < 2; step++) {
        const tg_encode_options options = {.draw.step = step};
        cut(GAUSSIAN, s->seed + step, &r.gradient);
        cut(GAUSSIAN, s->seed + step, &calm.gradient);
        for (wrong w = NAN_IN_GRADIENT; step == 1 && w < WRONGS; w++)
            for (uint64_t i = 0, from = next_random(g); is_possible(s, w) && i < places; i++)
                is_refused(&r, s, w, place(s->count, from + i, g), g);
        memset(r.frame, 0, r.bound);
        memset(calm.frame, 0, calm.bound);
        expect(encode(&r, &options) == TG_OK, "step %d: %s", (int)step, r.error.message);
        expect(encode(&calm, &options) == TG_OK, "step %d: %s", (int)step, calm.error.message);
        snapshot undisturbed = take(&calm);
        is_as_in(&r, &undisturbed, "after refusals, against a run without");
        forget(&undisturbed);
    }
    stop(&r);
    stop(&calm);
}

static void with_one_thread(tg_device *device, const char *spec, bool all, generator *g)
{
    enum { SOME_PLACES = 2, ALL_PLACES = 12 };
    static const uint64_t counts[] = {1, 700, 4096, 4097, 13000, 8191};
    for (int kind = 0; kind < (is_sparsifier(spec) ? KINDS : DGC); kind++)
        for (int dtype = 0; dtype <= 2; dtype++) {
            const uint64_t draw = next_random(g);
            if (!all && draw >> 40 & (SLOW ? 7 : 1))
                continue;
            for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
                if (all || i == draw % 6 || (i == 4 && !SLOW))
                    leaves_no_trace(&(setting){device, spec, kind, (tg_dtype)dtype, counts[i], draw >> 8},
                                    all ? ALL_PLACES : SOME_PLACES, g);
        }
    check_all("%s %s: no trace", tg_device_name(device), spec);
}

/* Kinds of feedback and dtypes take turns. */
static void with_threads(tg_device *device, const char *spec, bool all, generator *g)
{
    const int kind_count = is_sparsifier(spec) ? KINDS : DGC;
    for (int kind = (int)(next_random(g) % 2); kind < kind_count; kind += all ? 1 : 2 + SLOW)
        leaves_no_trace(&(setting){device, spec, kind, (tg_dtype)(next_random(g) % 5 % 3),
                                   140000 + next_random(g) % 9999, next_random(g)},
                        all ? 2 : 1, g);
    check_all("%s %s: no trace", tg_device_name(device), spec);
}

/* Wide codes are kept in long vectors only. */
static void with_wide_codes(tg_device *device)
{
    static const char *const specs[] = {"none", "fp16", "qsgd:levels=32767,bucket=512,norm=max"};
    generator g = {7};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        for (int kind = 0; kind <= 1; kind++)
            leaves_no_trace(
                &(setting){device, specs[i], kind, (tg_dtype)(next_random(&g) % 3), (1 << 21) + 4999, next_random(&g)},
                1, &g);
    check_all("%s: no trace in long vectors", tg_device_name(device));
}

/* A codec and a feedback of two devices, one of whose memory the other cannot reach. */
static void of_two_devices(tg_device *device, tg_device *other)
{
    const tg_feedback_spec ef = {.kind = TG_FEEDBACK_EF, .alpha = 1, .beta = 1};
    enum { COUNT = 1000 };
    const tg_tensor gradient = make_tensor(COUNT, TG_FLOAT32, 0);
    tg_tensor to_free = gradient;
    tg_codec *codec = make_codec(device, "topk:density=0.1", COUNT);
    tg_feedback *feedback = NULL;
    uint8_t *frame = malloc(tg_frame_bound(codec, COUNT));
    tg_encode_report report;
    tg_error error;
    expect(tg_feedback_create(other, &ef, tg_codec_spec(codec), COUNT, true, &feedback, &error) == TG_OK, "%s",
           error.message);
    expect(tg_encode_with_feedback(codec, feedback, &gradient, NULL, frame, tg_frame_bound(codec, COUNT), &report,
                                   &error) == TG_INVALID_ARGUMENT &&
               strstr(error.message, "of another device"),
           "codec of %s, feedback of %s: %s", tg_device_name(device), tg_device_name(other), error.message);
    tg_feedback_free(feedback);
    tg_codec_free(codec);
    free(frame);
    drop(&to_free);
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    for (size_t d = 0; device_to_try(d); d++)
        for (int threads = FEWEST_THREADS; threads <= 3; threads++) {
            char name[64];
            const bool is_card = strncmp(device_to_try(d), "cuda", 4) == 0; /* has no threads of its own */
            if (is_card && threads != 1)
                continue;
            snprintf(name, sizeof name, is_card ? "%s" : "%s:threads=%d", device_to_try(d), threads);
            tg_device *device = open_device(name);
            size_t number = 0;
            if (!SLOW && (all || threads != 2))
                with_wide_codes(device);
            for (const char *const *spec = all_specs(); *spec; spec++, number++) {
                generator g = generator_for(*spec, 100 * d + (uint64_t)threads);
                if (threads == 1)
                    with_one_thread(device, *spec, all, &g);
                else if (all || (number + d) % (SLOW ? 16 : 4) == (unsigned)threads % 2) /* two threads or three */
                    with_threads(device, *spec, all, &g);
            }
            tg_device_free(device);
        }
    tg_device *guarded = open_device("queued:cpu:threads=2");
    size_t number = 0;
    for (const char *const *spec = all_specs(); *spec; spec++, number++) {
        generator g = generator_for(*spec, 1000);
        if (all || number % (SLOW ? 16 : 4) == 0)
            with_one_thread(guarded, *spec, all, &g);
    }
    tg_device *host = open_device("cpu");
    of_two_devices(host, guarded);
    of_two_devices(guarded, host);
    check_all("codec and feedback of two devices");
    tg_device_free(host);
    tg_device_free(guarded);
    return finish();
}
