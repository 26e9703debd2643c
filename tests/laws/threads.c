/* However many threads a device has, and whoever else uses it, bytes are those of cpu/scalar: frames, residuals,
 * momenta, reports and sums, of all codecs, dtypes and adversarial values, from unaligned starts, over many steps; also
 * after a fork. */
#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guarded.h"
#include "support.h"

/* ThreadSanitizer does not follow a fork, and takes its time: it gets a part of the cases. */
#if defined(__SANITIZE_THREAD__)
#define WATCHED true
#else
#define WATCHED false
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SLOW true
#else
#define SLOW (WATCHED || EMULATED)
#endif

enum { MOST_DEVICES = 16 };

typedef struct contender {
    tg_device *device;
    int threads;
    bool rests; /* takes no part in this case */
    tg_codec *codec;
    tg_feedback *feedback;
    unsigned char *frame;
    tg_tensor sum;
    tg_encode_report report;
    tg_status status;
} contender;

/* The first one is cpu/scalar with one thread: the definition. */
static contender contenders[MOST_DEVICES];
static size_t contender_count;

static void open_contender(const char *kernels, int threads)
{
    char name[64];
    snprintf(name, sizeof name, "%s:threads=%d", kernels, threads);
    contenders[contender_count++] = (contender){.device = open_device(name), .threads = threads};
}

static void open_contenders(void)
{
    open_contender("cpu/scalar", 1);
    for (size_t d = 0; any_device_to_try(d); d++) {
        const char *name = any_device_to_try(d);
        const bool guarded = !device_to_try(d);
        for (int threads = WATCHED || guarded ? 3 : 1; threads <= 3; threads++)
            if (threads > 1 || strcmp(name, "cpu/scalar") != 0)
                open_contender(name, threads);
    }
}

enum { EVERYBODY = -1 };

/* Numbers of threads take turns: each kind of kernels has one of them, besides the definition. Or everybody takes part.
 * For hundreds of steps the guarded device always rests: it closes and opens its memory for every call, which takes
 * longer than the calls. */
static void let_rest(int turn)
{
    for (size_t i = 1; i < contender_count; i++) {
        const bool is_scalar = strncmp(tg_device_name(contenders[i].device), "cpu/scalar", 10) == 0;
        contenders[i].rests = turn != EVERYBODY && contenders[i].threads != (is_scalar ? 2 + turn % 2 : 1 + turn % 3);
    }
}

typedef struct setting {
    const char *spec, *feedback;
    shape shape;
    tg_dtype dtype;
    tg_nonfinite nonfinite;
    uint64_t count, seed;
    size_t offset;
    int steps;
} setting;

static void start(contender *c, const setting *s)
{
    tg_feedback_spec f;
    c->codec = make_codec(c->device, s->spec, s->count + s->seed % 3); /* a workspace for more does, too */
    c->frame = malloc(tg_frame_bound(c->codec, s->count));
    c->sum = make_tensor(s->count, TG_FLOAT32, s->offset);
    memset(c->sum.data, 0, (size_t)s->count * sizeof(float));
    if (!c->frame || tg_feedback_parse(s->feedback, &f, NULL) != TG_OK ||
        tg_feedback_create(c->device, &f, tg_codec_spec(c->codec), s->count, true, &c->feedback, NULL) != TG_OK)
        abort();
}

static void stop(contender *c)
{
    free(c->frame);
    drop(&c->sum);
    tg_feedback_free(c->feedback);
    tg_codec_free(c->codec);
}

/* Encodes, and adds the frame to the sum once and three times in one pass. */
static void step(contender *c, const tg_tensor *input, const tg_encode_options *options)
{
    memset(&c->report, 0, sizeof c->report);
    c->status = tg_encode_with_feedback(c->codec, c->feedback, input, options, c->frame,
                                        tg_frame_bound(c->codec, input->count), &c->report, NULL);
    if (c->status != TG_OK)
        return;
    const tg_frame frames[3] = {{c->frame, c->report.bytes}, {c->frame, c->report.bytes}, {c->frame, c->report.bytes}};
    tg_error error = {""};
    tg_status status = tg_decode_add(c->device, frames, 1, 0.5f, 0, &c->sum, &error);
    if (status == TG_OK && input->count % 2 == 0)
        status = tg_decode_add(c->device, frames, 3, -0.125f, TG_VERIFIED, &c->sum, &error);
    expect(status == TG_OK, "%s: decode: %s", tg_device_name(c->device), error.message);
}

static void compare(const contender *c, const contender *scalar, const setting *s, int number)
{
    const size_t floats = (size_t)s->count * sizeof(float);
    const char *name = tg_device_name(c->device);
    expect(c->status == scalar->status, "%s, step %d: status %d, not %d", name, number, (int)c->status,
           (int)scalar->status);
    if (c->status != TG_OK && s->nonfinite == TG_NONFINITE_TRUST)
        return; /* then residuals are equal to rounding only */
    expect(same_report(&c->report, &scalar->report), "%s, step %d: reports differ", name, number);
    if (c->status == TG_OK && scalar->status == TG_OK)
        expect(memcmp(c->frame, scalar->frame, scalar->report.bytes) == 0, "%s, step %d: frames differ", name, number);
    expect(memcmp(residual_of(c->feedback), residual_of(scalar->feedback), floats) == 0,
           "%s, step %d: residuals differ", name, number);
    if (momentum_of(scalar->feedback))
        expect(memcmp(momentum_of(c->feedback), momentum_of(scalar->feedback), floats) == 0,
               "%s, step %d: momenta differ", name, number);
    expect(memcmp(c->sum.data, scalar->sum.data, floats) == 0, "%s, step %d: sums differ", name, number);
}

static float largest(const float *values, uint64_t count)
{
    float found = 0;
    for (uint64_t i = 0; i < count; i++)
        found = fmaxf(found, fabsf(values[i]));
    return found;
}

/* A step that failed under TG_NONFINITE_TRUST has put the residual back, but for a few roundings of numbers no larger
 * than residual and gradient together. */
static void expect_restored(const contender *c, const float *before, const tg_tensor *input)
{
    const float *after = residual_of(c->feedback);
    float size = largest(before, input->count);
    for (uint64_t i = 0; i < input->count; i++)
        if (isfinite(element(input, i)))
            size = fmaxf(size, fabsf(element(input, i)));
    for (uint64_t i = 0; i < input->count; i++)
        expect(fabsf(after[i] - before[i]) <= size * 0x1p-19f, "%s: trust leaves the residual at %llu off by %g",
               tg_device_name(c->device), (unsigned long long)i, (double)fabsf(after[i] - before[i]));
}

static void spoil(tg_tensor *t, generator *g)
{
    const uint16_t half = t->dtype == TG_FLOAT16 ? 0x7c00 : 0x7f80;
    const uint32_t whole = 0x7fc00000;
    const uint64_t at = next_random(g) % t->count;
    if (t->dtype == TG_FLOAT32)
        memcpy((float *)t->data + at, &whole, sizeof whole);
    else
        memcpy((uint16_t *)t->data + at, &half, sizeof half);
}

/* All devices side by side. */
static void run(const setting *s)
{
    generator g = {s->seed};
    tg_tensor input = make_tensor(s->count, s->dtype, s->offset), before = make_tensor(s->count, TG_FLOAT32, 0);
    const int spoilt = s->count > 0 && s->nonfinite != TG_NONFINITE_REJECT ? s->steps - 1 : -1;
    for (size_t i = 0; i < contender_count; i++)
        if (!contenders[i].rests)
            start(&contenders[i], s);
    for (int number = 0; number < s->steps; number++) {
        const tg_encode_options options = {.draw = {.seed = s->seed, .step = (uint64_t)number},
                                           .nonfinite = s->nonfinite};
        cut(s->shape, s->seed + (uint64_t)number, &input);
        if (number == spoilt)
            spoil(&input, &g);
        for (size_t i = 0; i < contender_count; i++) {
            if (contenders[i].rests)
                continue;
            if (number == spoilt)
                memcpy(before.data, residual_of(contenders[i].feedback), (size_t)s->count * sizeof(float));
            step(&contenders[i], &input, &options);
            if (number == spoilt && s->nonfinite == TG_NONFINITE_TRUST)
                expect_restored(&contenders[i], before.data, &input);
            if (i > 0)
                compare(&contenders[i], &contenders[0], s, number);
        }
    }
    for (size_t i = 0; i < contender_count; i++)
        if (!contenders[i].rests)
            stop(&contenders[i]);
    drop(&input);
    drop(&before);
}

static const char *const feedbacks[] = {"none", "ef", "ecq:alpha=0.5,beta=0.9", "dgc:momentum=0.9,clip=3"};

/* Threads take part from 2^17 elements on; from 2^19 on, two of them have longer ranges. */
static const uint64_t long_counts[] = {131071, 131072, 131073, 131073, 196608, 196608,
                                       200003, 200003, 266305, 266305, 540677};

static setting draw(generator *g, const char *spec, bool is_long)
{
    setting s = {.spec = spec,
                 .feedback = feedbacks[next_random(g) % (is_sparsifier(spec) ? 4 : 3)],
                 .shape = (shape)(next_random(g) % ALL_SHAPES),
                 .dtype = next_random(g) % 2 ? TG_FLOAT32 : (tg_dtype)(next_random(g) % 3),
                 .nonfinite = next_random(g) % 4 ? TG_NONFINITE_REJECT : (tg_nonfinite)(next_random(g) % 3),
                 .count = next_random(g) % 1026,
                 .seed = next_random(g) % 100000,
                 .offset = next_random(g) % 4,
                 .steps = 2};
    if (is_long)
        s.count = long_counts[next_random(g) % (sizeof long_counts / sizeof long_counts[0])];
    return s;
}

static void describe(const setting *s)
{
    check_all("%s, %s, %s, %llu elements of dtype %d, policy %d, %d steps, seed %llu", s->spec, s->feedback,
              shape_names[s->shape], (unsigned long long)s->count, (int)s->dtype, (int)s->nonfinite, s->steps,
              (unsigned long long)s->seed);
}

static void seeded_cases(int cases)
{
    generator g = {7};
    size_t spec_count = 0;
    while (all_specs()[spec_count])
        spec_count++;
    for (int i = 0; i < cases; i++) {
        setting s = draw(&g, all_specs()[next_random(&g) % spec_count], i % 4 != 0);
        run(&s);
        describe(&s);
    }
}

/* What is not finite turns up in one range while others are far ahead. */
static void spoilt_cases(void)
{
    static const char *const specs[] = {
        "qsgd", "qsgd:bucket=0,norm=l2", "onebit", "fp16", "topk:density=0.1", "gaussiank", "randk"};
    generator g = {10};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        for (int kind = 1; kind < 3; kind++) {
            setting s = draw(&g, specs[i], true);
            s.feedback = feedbacks[kind];
            s.nonfinite = TG_NONFINITE_TRUST;
            s.shape = GAUSSIAN;
            run(&s);
            describe(&s);
        }
    }
}

/* Levels in every layout, of several chunks each. */
static void coded_cases(void)
{
    static const char *const specs[] = {"qsgd:coding=entropy",
                                        "qsgd:levels=5,coding=entropy",
                                        "qsgd:levels=127,norm=l2,coding=entropy",
                                        "qsgd:levels=1000,coding=entropy",
                                        "terngrad:coding=entropy",
                                        "qsgd:coding=elias",
                                        "qsgd:levels=1,norm=l2,bucket=0,coding=auto",
                                        "topk:density=0.5,values=levels,coding=entropy"};
    generator g = {11};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        setting s = draw(&g, specs[i], true);
        s.shape = i % 3 == 2 ? SCATTERED : GAUSSIAN;
        s.count = i % 2 ? 266305 : 540677;
        s.nonfinite = TG_NONFINITE_REJECT;
        s.steps = 1;
        run(&s);
        describe(&s);
    }
}

/* Every codec and dtype at every length; and every codec with every shape at lengths where threads take part, dtypes in
 * turn. Numbers of threads, feedbacks and policies are drawn, and shapes where there are many lengths. */
static void full_product(const char *spec, tg_dtype dtype, generator *g)
{
    setting s;
    for (const uint64_t *count = lengths(true); *count != UINT64_MAX; count++) {
        s = draw(g, spec, false);
        s.dtype = dtype;
        s.count = *count;
        let_rest((int)(s.seed % 6));
        run(&s);
    }
    for (int values = (int)dtype; values < ALL_SHAPES; values += 3) {
        s = draw(g, spec, true);
        s.dtype = dtype;
        s.shape = (shape)values;
        let_rest((int)(s.seed % 6));
        run(&s);
    }
    let_rest(EVERYBODY);
    check_all("%s, dtype %d: all lengths and shapes", spec, (int)dtype);
}

/* Residuals that have grown over 200 steps. */
static void many_steps(setting s, int turn, generator *g)
{
    s.feedback = feedbacks[1 + next_random(g) % (is_sparsifier(s.spec) ? 3 : 2)];
    s.steps = EMULATED ? 40 : 200;
    let_rest(turn);
    for (size_t i = 1; i < contender_count; i++)
        contenders[i].rests |= is_guarded(contenders[i].device);
    run(&s);
    let_rest(EVERYBODY);
    describe(&s);
}

/* ---- one device, several callers ---- */

typedef struct caller {
    tg_device *device;
    const char *spec;
    tg_tensor input;
    const unsigned char *expected; /* NULL: not known yet */
    unsigned char *frame;
    size_t size;
    bool failed;
} caller;

static void *call(void *of)
{
    caller *c = of;
    tg_codec *codec = make_codec(c->device, c->spec, c->input.count);
    const size_t bound = tg_frame_bound(codec, c->input.count);
    tg_tensor out = make_tensor(c->input.count, TG_FLOAT32, 1);
    c->frame = malloc(bound);
    for (int i = 0; i < (WATCHED ? 3 : 20) && !c->failed; i++) {
        tg_encode_report report;
        c->failed = tg_encode(codec, &c->input, NULL, c->frame, bound, &report, NULL) != TG_OK ||
                    tg_decode(c->device, &(tg_frame){c->frame, report.bytes}, 1, 1, 0, &out, NULL) != TG_OK;
        c->size = report.bytes;
        c->failed |= c->expected && memcmp(c->frame, c->expected, c->size) != 0;
    }
    drop(&out);
    tg_codec_free(codec);
    return NULL;
}

static void shared_device(const char *name)
{
    static const char *const specs[] = {"qsgd",   "topk:density=0.05", "fp16", "qsgd:bucket=0,norm=l2",
                                        "onebit", "gaussiank"};
    enum { CALLERS = sizeof specs / sizeof specs[0] };
    caller callers[CALLERS], alone[CALLERS];
    pthread_t threads[CALLERS];
    tg_device *device = open_device(name), *scalar = open_device("cpu/scalar");
    for (size_t i = 0; i < CALLERS; i++) {
        callers[i] = (caller){.device = device, .spec = specs[i], .input = make_tensor(200003, TG_FLOAT32, i % 4)};
        fill(GAUSSIAN, i, &callers[i].input);
        alone[i] = callers[i];
        alone[i].device = scalar;
        call(&alone[i]);
        callers[i].expected = alone[i].frame;
    }
    for (size_t i = 0; i < CALLERS; i++)
        if (pthread_create(&threads[i], NULL, call, &callers[i]) != 0)
            abort();
    for (size_t i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        expect(!callers[i].failed && callers[i].size == alone[i].size, "%s gives other bytes when others are busy",
               specs[i]);
        free(callers[i].frame);
        free(alone[i].frame);
        drop(&callers[i].input);
    }
    tg_device_free(scalar);
    tg_device_free(device);
    check_all("%s, %d callers at once", name, CALLERS);
}

/* A child has none of the threads, and all of the results. */
static void forked(const char *name)
{
    caller parent = {.device = open_device(name), .spec = "topk", .input = make_tensor(200003, TG_FLOAT32, 0)};
    fill(GAUSSIAN, 1, &parent.input);
    call(&parent);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        caller mine = {.device = parent.device, .spec = "topk", .input = parent.input};
        alarm(60);
        call(&mine);
        tg_device_free(mine.device);
        _exit(mine.failed || mine.size != parent.size || memcmp(mine.frame, parent.frame, mine.size) != 0);
    }
    int status = 1;
    expect(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child ends with status %#x",
           (unsigned)status);
    free(parent.frame);
    call(&parent);
    expect(!parent.failed, "the parent goes on");
    free(parent.frame);
    tg_device_free(parent.device);
    drop(&parent.input);
    check_all("%s after fork", name);
}

/* Nor does it matter what mode the thread that opened the device was in. */
static void opened_in_another_mode(const char *name)
{
    caller alone = {.device = open_device("cpu/scalar"),
                    .spec = "qsgd:bucket=0,norm=l2",
                    .input = make_tensor(200003, TG_FLOAT32, 0)};
    caller other = alone;
    fill(GAUSSIAN, 1, &alone.input);
    fesetround(FE_UPWARD);
    other.device = open_device(name);
    fesetround(FE_TONEAREST);
    call(&alone);
    other.expected = alone.frame;
    call(&other);
    expect(!other.failed && other.size == alone.size, "the mode reaches the wire");
    tg_device_free(alone.device);
    tg_device_free(other.device);
    free(alone.frame);
    free(other.frame);
    drop(&alone.input);
    check_all("%s opened while rounding upward", name);
}

/* ---- names ---- */

static void names(void)
{
    static const char *const good[][2] = {{"cpu/scalar", "cpu/scalar"},
                                          {"cpu/scalar:threads=1", "cpu/scalar"},
                                          {"cpu/scalar:threads=2", "cpu/scalar:threads=2"},
                                          {"cpu/scalar:threads=07", "cpu/scalar:threads=7"},
                                          {"cpu/scalar:threads=256", "cpu/scalar:threads=256"}};
    static const char *const bad[] = {"cpu:",
                                      "cpu:threads",
                                      "cpu:threads=",
                                      "cpu:threads=257",
                                      "cpu:threads=-1",
                                      "cpu:threads=2x",
                                      "cpu:thread=2",
                                      "cpu:threads= 2",
                                      "cpu2",
                                      ":threads=2",
                                      "cpu/:threads=2",
                                      "cpu:threads=2,a=1",
                                      "cpu:threads=4294967297"};
    tg_error error = {""};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        tg_device *device = open_device(good[i][0]), *again = open_device(tg_device_name(device));
        expect(strcmp(tg_device_name(device), good[i][1]) == 0, "%s is called %s", good[i][0], tg_device_name(device));
        expect(strcmp(tg_device_name(again), good[i][1]) == 0, "%s is called %s", good[i][1], tg_device_name(again));
        tg_device_free(device);
        tg_device_free(again);
    }
    tg_device *all = open_device("cpu:threads=0"), *again = open_device(tg_device_name(all));
    expect(strcmp(tg_device_name(all), tg_device_name(again)) == 0, "every processor: %s", tg_device_name(all));
    tg_device_free(all);
    tg_device_free(again);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tg_device *device = NULL;
        expect(tg_device_open(bad[i], NULL, &device, &error) == TG_UNKNOWN_DEVICE && !device, "'%s' is accepted",
               bad[i]);
        expect(strstr(error.message, bad[i]) != NULL, "the message does not name '%s': %s", bad[i], error.message);
    }
    check_all("names of devices");
}

int main(int argc, char **argv)
{
    static const char *const grown[] = {"qsgd",
                                        "topk:density=0.01",
                                        "gaussiank:density=0.1",
                                        "onebit",
                                        "dgck:values=fp16",
                                        "qsgd:levels=3,bucket=0,norm=l2",
                                        "randk:density=0.1",
                                        "topk:density=0.1,values=levels"};
    const int grown_count = (int)(sizeof grown / sizeof grown[0]);
    const bool all = wants_all(argc, argv);
    generator g = {9};
    open_contenders();
    names();
    for (size_t d = 0; any_device_to_try(d); d++) {
        char name[64];
        snprintf(name, sizeof name, "%s:threads=3", any_device_to_try(d));
        shared_device(name);
        opened_in_another_mode(name);
        if (!WATCHED)
            forked(name);
    }
    seeded_cases(WATCHED || EMULATED ? 16 : SLOW ? 60 : 200);
    spoilt_cases();
    coded_cases();
    for (int i = 0; !WATCHED && i < grown_count; i++)
        many_steps(draw(&g, grown[i], false), EVERYBODY, &g);
    g = (generator){9};
    for (int i = 0; !SLOW && i < (all ? grown_count : 2); i++)
        many_steps(draw(&g, grown[i], true), i < 2 ? EVERYBODY : i, &g);
    for (const char *const *spec = all_specs(); all && *spec; spec++) {
        g = generator_for(*spec, 9);
        for (int dtype = 0; dtype <= 2; dtype++) {
            full_product(*spec, (tg_dtype)dtype, &g);
            setting s = draw(&g, *spec, false);
            s.dtype = (tg_dtype)dtype;
            many_steps(s, dtype, &g);
        }
    }
    for (size_t i = 0; i < contender_count; i++)
        tg_device_free(contenders[i].device);
    return finish();
}
