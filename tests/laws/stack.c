/* Laws of the stack: no call takes more than 96 KiB of its caller's, nor of the device's own threads, because whole
 * threads of some systems and runtimes have 128. Calls run in a thread whose stack is filled with a pattern; what is
 * left of it says how deep they went. */
#define _GNU_SOURCE /* pthread_getattr_np */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "guarded.h"
#include "ranks.h"

enum { LIMIT = 96 << 10, STACK = 1 << 20, PATTERN = 0xb7, MOST_THREADS = 8, FRAMES = 16 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool measures = false; /* instrumented functions need more */
#else
static const bool measures = true;
#endif

/* Bytes from the first that has changed to the end. */
static size_t changed(const uint8_t *from, const uint8_t *end)
{
    while (from < end && *from == PATTERN)
        from++;
    return (size_t)(end - from);
}

/* ---- the caller's thread ---- */

typedef struct calling {
    void (*act)(void *argument);
    void *argument;
} calling;

static void *call(void *of)
{
    const calling *c = of;
    c->act(c->argument);
    return NULL;
}

static size_t depth_of(void (*act)(void *), void *argument)
{
    static uint8_t *stack;
    if (!stack)
        stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    calling c = {act, argument};
    if (stack == MAP_FAILED || pthread_attr_init(&attributes) != 0 ||
        pthread_attr_setstack(&attributes, stack, STACK) != 0)
        abort();
    memset(stack, PATTERN, STACK);
    if (pthread_create(&thread, &attributes, call, &c) != 0 || pthread_join(thread, NULL) != 0)
        abort();
    (void)pthread_attr_destroy(&attributes);
    return changed(stack, stack + STACK);
}

static void nothing(void *argument) { (void)argument; }

/* ---- the device's own threads ---- */

typedef struct workers {
    atomic_uint arrived;
    unsigned threads;
    pthread_t caller;
    struct {
        uint8_t *low, *high;
    } painted[MOST_THREADS];
} workers;

/* One part for each thread: it waits until all have one. */
static void paint(void *of, size_t part)
{
    workers *w = of;
    pthread_attr_t attributes;
    void *low;
    size_t size;
    volatile uint8_t here = 0;
    atomic_fetch_add(&w->arrived, 1);
    while (atomic_load(&w->arrived) < w->threads)
        (void)sched_yield();
    w->painted[part].low = w->painted[part].high = NULL;
    if (pthread_equal(pthread_self(), w->caller) || pthread_getattr_np(pthread_self(), &attributes) != 0)
        return;
    (void)pthread_attr_getstack(&attributes, &low, &size);
    (void)pthread_attr_destroy(&attributes);
    const size_t below = (uintptr_t)&here - 1024 - (uintptr_t)low; /* but for what memset takes itself */
    w->painted[part].low = low;
    w->painted[part].high = w->painted[part].low + below;
    memset(low, PATTERN, below);
}

static void paint_workers(workers *w, tg_device *device)
{
    tg_pool *pool = cpu_of(device)->pool;
    *w = (workers){.threads = tg_pool_threads(pool), .caller = pthread_self()};
    if (w->threads > MOST_THREADS)
        abort();
    tg_parallel(pool, w->threads, paint, w);
}

static size_t deepest_of(const workers *w)
{
    size_t deepest = 0;
    for (unsigned i = 0; i < w->threads; i++) {
        const size_t depth = w->painted[i].low ? changed(w->painted[i].low, w->painted[i].high) : 0;
        deepest = depth > deepest ? depth : deepest;
    }
    return deepest;
}

/* Everything about one device and one spec. */
typedef struct subject {
    tg_device *device;
    const char *spec;
    uint64_t count;
    tg_dtype dtype;
} subject;

static void expect_shallow(subject *s, void (*act)(void *), const char *what)
{
    workers w;
    paint_workers(&w, s->device);
    const size_t depth = depth_of(act, s) - depth_of(nothing, s);
    const size_t helper = deepest_of(&w);
    expect(!measures || depth <= LIMIT, "%s: a caller needs %zu bytes", what, depth);
    expect(!measures || helper <= LIMIT, "%s: a thread of the device needs %zu bytes", what, helper);
}

/* ---- the calls ---- */

static void decode_frames(const subject *s, const tg_frame *frames, const tg_tensor *out)
{
    static const size_t counts[] = {1, 4, FRAMES};
    tg_error error;
    tg_frame_parts parts;
    expect(tg_frame_verify(s->device, frames[0], NULL, &error) == TG_OK, "%s", error.message);
    expect(tg_frame_measure(s->device, frames[0], &parts, &error) == TG_OK, "%s", error.message);
    for (size_t i = 0; i < 3; i++) {
        expect(tg_decode(s->device, frames, counts[i], 0.25f, 0, out, &error) == TG_OK, "%s", error.message);
        expect(tg_decode_add(s->device, frames, counts[i], 0.3f, TG_VERIFIED, out, &error) == TG_OK, "%s",
               error.message);
    }
}

static void use_texts(const subject *s, const char *kind)
{
    tg_spec spec;
    tg_feedback_spec feedback;
    tg_stability stability;
    tg_codec_info row;
    tg_error error;
    char text[TG_SPEC_TEXT];
    expect(tg_spec_parse(s->spec, &spec, &error) == TG_OK && tg_spec_print(&spec, text, sizeof text, &error) == TG_OK &&
               tg_feedback_parse(kind, &feedback, &error) == TG_OK &&
               tg_feedback_print(&feedback, text, sizeof text, &error) == TG_OK &&
               tg_stability_of(&spec, &feedback, s->count, &stability, &error) == TG_OK,
           "%s", error.message);
    expect(tg_spec_parse("topk:density=x", &spec, &error) != TG_OK && tg_spec_parse("top", &spec, &error) != TG_OK &&
               tg_feedback_parse("ecq:alpha=0.1.2", &feedback, &error) != TG_OK,
           "what is no number is taken");
    for (size_t i = 0; tg_codec_list(i, &row) == TG_OK; i++)
        expect(row.name[0] != 0, "a codec without a name");
}

static void step_with(const subject *s, const char *kind, tg_codec *codec, tg_tensor *gradient, uint8_t *frame)
{
    static const tg_nonfinite policies[] = {TG_NONFINITE_REJECT, TG_NONFINITE_ZERO, TG_NONFINITE_TRUST};
    const size_t bound = tg_frame_bound(codec, s->count);
    const tg_tensor u = make_tensor(s->count, TG_FLOAT32, 0);
    tg_tensor to_free = u;
    tg_feedback_spec spec;
    tg_feedback *feedback = NULL;
    tg_error error;
    tg_encode_report report;
    use_texts(s, kind);
    expect(tg_feedback_parse(kind, &spec, &error) == TG_OK, "%s", error.message);
    expect(tg_feedback_create(s->device, &spec, tg_codec_spec(codec), s->count, true, &feedback, &error) == TG_OK, "%s",
           error.message);
    for (size_t i = 0; i < 3; i++) {
        const tg_encode_options options = {.draw = {.step = i}, .nonfinite = policies[i]};
        expect(tg_encode_with_feedback(codec, feedback, gradient, &options, frame, bound, &report, &error) == TG_OK,
               "%s", error.message);
    }
    const tg_frame made = {frame, report.bytes};
    expect(tg_feedback_compensate(feedback, gradient, &u, &error) == TG_OK, "%s", error.message);
    expect(tg_feedback_return(feedback, made, NULL, 0, &error) == TG_OK, "%s", error.message);
    expect(tg_feedback_update(feedback, gradient, made, &error) == TG_OK, "%s", error.message);
    const tg_encode_options options = {.nonfinite = TG_NONFINITE_REJECT}; /* the way back */
    fill(GAUSSIAN, 3, gradient);
    memset((char *)gradient->data + (s->count - 1) * (s->dtype == TG_FLOAT32 ? 4 : 2), 0xff,
           s->dtype == TG_FLOAT32 ? 4 : 2);
    expect(tg_encode_with_feedback(codec, feedback, gradient, &options, frame, bound, &report, &error) == TG_NONFINITE,
           "a value that is not finite was not seen");
    fill(GAUSSIAN, 3, gradient);
    tg_feedback_free(feedback);
    drop(&to_free);
}

/* The same by calls that do not wait. */
static void later_with(const subject *s, tg_codec *codec, const tg_tensor *gradient, const tg_tensor *out)
{
    static const tg_feedback_spec ef = {.kind = TG_FEEDBACK_EF, .alpha = 1, .beta = 1};
    const size_t bound = tg_frame_bound(codec, s->count);
    tg_feedback *feedback = NULL;
    tg_encode_report *report = NULL;
    tg_status *verdict = NULL;
    void *frame = NULL;
    tg_error error;
    expect(tg_feedback_create(s->device, &ef, tg_codec_spec(codec), s->count, true, &feedback, &error) == TG_OK &&
               tg_device_allocate_shared(s->device, sizeof *report, (void **)&report, &error) == TG_OK &&
               tg_device_allocate_shared(s->device, sizeof *verdict, (void **)&verdict, &error) == TG_OK &&
               tg_device_allocate(s->device, bound, &frame, &error) == TG_OK,
           "%s", error.message);
    const tg_encode_call encoding = {.codec = codec,
                                     .feedback = feedback,
                                     .gradient = *gradient,
                                     .options = {.on_device = true},
                                     .frame = frame,
                                     .capacity = bound,
                                     .report = report};
    expect(tg_encode_later(&encoding, 1, &error) == TG_OK && tg_device_wait(s->device, &error) == TG_OK, "%s",
           error.message);
    tg_frame frames[TG_MAX_LATER_FRAMES];
    tg_frame_info info;
    for (size_t i = 0; i < TG_MAX_LATER_FRAMES; i++)
        frames[i] = (tg_frame){frame, report->bytes};
    uint8_t *copy = malloc(report->bytes);
    expect(tg_device_copy_out(s->device, copy, frame, report->bytes, &error) == TG_OK &&
               tg_frame_read((tg_frame){copy, report->bytes}, &info, &error) == TG_OK,
           "%s", error.message);
    free(copy);
    const tg_decode_call adding = {.frames = frames,
                                   .frame_count = TG_MAX_LATER_FRAMES,
                                   .like = &info,
                                   .weight = 0.3f,
                                   .out = *out,
                                   .status = verdict};
    const tg_status status = tg_decode_add_later(s->device, &adding, 1, &error);
    expect(status == TG_OK && tg_device_wait(s->device, &error) == TG_OK && *verdict == TG_OK, "%s", error.message);
    tg_device_release(s->device, frame);
    tg_device_release_shared(s->device, verdict);
    tg_device_release_shared(s->device, report);
    tg_feedback_free(feedback);
}

static void use_codec(void *of)
{
    const subject *s = of;
    tg_codec *codec = make_codec(s->device, s->spec, s->count);
    tg_tensor gradient = make_tensor(s->count, s->dtype, 0), out = make_tensor(s->count, s->dtype, 0);
    const size_t bound = tg_frame_bound(codec, s->count);
    uint8_t *frame = malloc(bound);
    tg_error error;
    tg_encode_report report;
    fill(GAUSSIAN, 3, &gradient);
    expect(tg_encode(codec, &gradient, NULL, frame, bound, &report, &error) == TG_OK, "%s", error.message);
    tg_frame frames[FRAMES];
    for (size_t i = 0; i < FRAMES; i++)
        frames[i] = (tg_frame){frame, report.bytes};
    decode_frames(s, frames, &out);
    step_with(s, "ef", codec, &gradient, frame);
    step_with(s, "ecq:alpha=0.5,beta=0.9", codec, &gradient, frame);
    if (is_sparsifier(s->spec))
        step_with(s, "dgc:momentum=0.9,clip=3", codec, &gradient, frame);
    later_with(s, codec, &gradient, &out);
    free(frame);
    drop(&gradient);
    drop(&out);
    tg_codec_free(codec);
}

/* ---- reductions ---- */

static void describe(const tg_reducer_tensor *tensors, size_t count, const tg_reducer_options *options)
{
    tg_description *description = NULL;
    tg_description_info info;
    tg_described_exchange exchange;
    tg_error error;
    expect(tg_description_create(5, tensors, count, options, &description, &error) == TG_OK &&
               tg_description_of(description, &info, &error) == TG_OK,
           "%s", error.message);
    for (size_t i = 0; i < info.exchange_count; i++)
        expect(tg_description_exchange(description, 3, i, &exchange, &error) == TG_OK, "%s", error.message);
    tg_description_free(description);
}

/* Saved, loaded and scaled. */
static void keep(tg_reducer *reducer)
{
    size_t size = 0;
    tg_error error;
    tg_reducer_stats stats;
    expect(tg_reducer_save(reducer, NULL, 0, &size, &error) == TG_OK, "%s", error.message);
    uint8_t *state = malloc(size);
    expect(tg_reducer_save(reducer, state, size, &size, &error) == TG_OK &&
               tg_reducer_load(reducer, &(tg_state){state, size}, 1, &error) == TG_OK &&
               tg_reducer_scale(reducer, 0.5f, &error) == TG_OK &&
               tg_reducer_stats_of(reducer, &stats, &error) == TG_OK,
           "%s", error.message);
    free(state);
}

static void reduce_with(tg_device *device, tg_algorithm algorithm, tg_nonfinite_step policy)
{
    static const tensor_case cases[] = {{"sparse", "topk:density=0.02,values=levels", "ef", 70001, TG_FLOAT32},
                                        {"coded", "qsgd:levels=7,coding=entropy", "ef", 100000, TG_BFLOAT16},
                                        {"packed", "qsgd", "ecq:alpha=0.5,beta=0.9", 100000, TG_FLOAT32},
                                        {"plain", "none", "none", 5000, TG_FLOAT16}};
    enum { TENSORS = 4, WORLD = 2 };
    tg_reducer_tensor tensors[TENSORS];
    tg_tensor gradients[WORLD][TENSORS];
    tg_reducer *reducers[WORLD];
    tg_reduction *reductions[WORLD];
    const tg_reducer_options options = {.algorithm = algorithm, .nonfinite = policy, .warmup = 1};
    tg_error error;
    for (size_t i = 0; i < TENSORS; i++) {
        tensors[i] = (tg_reducer_tensor){
            .name = cases[i].name, .count = cases[i].count, .dtype = cases[i].dtype, .insist = true};
        expect(tg_spec_parse(cases[i].spec, &tensors[i].codec, &error) == TG_OK &&
                   tg_feedback_parse(cases[i].feedback, &tensors[i].feedback, &error) == TG_OK,
               "%s", error.message);
    }
    describe(tensors, TENSORS, &options);
    for (uint32_t r = 0; r < WORLD; r++) {
        for (size_t i = 0; i < TENSORS; i++) {
            gradients[r][i] = make_tensor(cases[i].count, cases[i].dtype, 0);
            fill(GAUSSIAN, r * TENSORS + i, &gradients[r][i]);
        }
        expect(tg_reducer_create(device, r, WORLD, tensors, TENSORS, &options, &reducers[r], &error) == TG_OK, "%s",
               error.message);
    }
    for (uint64_t step = 0; step < 3; step++) {
        for (uint32_t r = 0; r < WORLD; r++)
            expect(tg_reduce_begin(reducers[r], gradients[r], step, &reductions[r], &error) == TG_OK, "%s",
                   error.message);
        while (exchange_by_hand(reductions, WORLD)) {}
        for (uint32_t r = 0; r < WORLD; r++)
            expect(tg_reduce_end(reductions[r], &error) == TG_OK, "%s", error.message);
    }
    for (uint32_t r = 0; r < WORLD; r++) {
        keep(reducers[r]);
        tg_reducer_free(reducers[r]);
        for (size_t i = 0; i < TENSORS; i++)
            drop(&gradients[r][i]);
    }
}

static void reduce_all(void *of)
{
    const subject *s = of;
    static const tg_nonfinite_step policies[] = {TG_NONFINITE_STOP, TG_NONFINITE_DROP};
    for (size_t i = 0; i < 2; i++) {
        reduce_with(s->device, TG_GATHER, policies[i]);
        reduce_with(s->device, TG_SHARD, policies[i]);
    }
}

/* Every `each`-th spec, and of its dtypes one, unless all are wanted. */
static void is_kept(tg_device *device, size_t each, bool all)
{
    size_t number = 0;
    for (const char *const *spec = all_specs(); *spec; spec++, number++) {
        if (!all && number % (EMULATED ? 16 : each) != 0)
            continue;
        for (size_t dtype = 0; dtype < 3; dtype++) {
            if (!all && dtype != number % 3)
                continue;
            /* Prefix codes are for 2^18 elements and more, several threads for 131072. */
            const bool coded = strstr(*spec, "entropy") || strstr(*spec, "auto");
            const uint64_t count = coded ? 300001 : tg_pool_threads(cpu_of(device)->pool) > 1 ? 140001 : 20001;
            subject s = {device, *spec, count, (tg_dtype)dtype};
            now_at(tg_device_name(device), GAUSSIAN, s.count);
            expect_shallow(&s, use_codec, dtype == 0 ? "float32" : dtype == 1 ? "float16" : "bfloat16");
        }
        check_all("%s %s: a stack of 96 KiB is enough", tg_device_name(device), *spec);
    }
    subject s = {.device = device};
    expect_shallow(&s, reduce_all, "reductions");
    check_all("%s: a stack of 96 KiB is enough for reductions", tg_device_name(device));
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    tg_device **devices = open_devices();
    for (size_t d = 0; devices[d]; d++)
        is_kept(devices[d], d == 0 ? 1 : 4, all);
    close_devices(devices);
    tg_device *threads = open_device("cpu:threads=3");
    is_kept(threads, 2, all);
    tg_device_free(threads);
    if (!measures)
        skip("the stack is not measured under a sanitizer");
    return finish();
}
