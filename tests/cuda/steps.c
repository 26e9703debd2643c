/* Many steps of feedback: at every step the frame, the report and the residual of cpu/scalar. First one after the
 * other, then all at once: each in a thread with a device and a stream of its own, and at last in threads that share a
 * device.
 *
 *     steps [--steps N] [--device NAME] */
#define STAGED_ITSELF
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

typedef struct run {
    const char *spec, *feedback;
    uint64_t count;
    tg_dtype dtype;
    shape shape;
    /* while it runs */
    const char *name; /* of a device that is opened for it */
    tg_device *device;
    uint64_t steps;
    char failure[300]; /* empty while there is none */
} run;

static const run runs[] = {
    {"topk:density=0.01", "ef", 10007, TG_FLOAT32, GAUSSIAN, NULL, NULL, 0, ""},
    {"topk:density=0.02,values=levels,coding=auto", "ef", 5003, TG_BFLOAT16, LAYERED, NULL, NULL, 0, ""},
    {"topk:density=0.9,values=levels,bucket=0,norm=l2", "dgc:momentum=0.9,clip=100", 9001, TG_FLOAT32, GAUSSIAN, NULL,
     NULL, 0, ""},
    /* of these only the card knows how many are selected */
    {"gaussiank:density=0.05,values=levels,levels=127,bucket=100,range=minmax,coding=entropy", "ecq:alpha=0.2,beta=0.9",
     6007, TG_FLOAT32, GAUSSIAN, NULL, NULL, 0, ""},
    {"sidco:density=0.6,values=levels,bucket=5000,norm=l2,coding=elias", "ef", 9001, TG_FLOAT16, GAUSSIAN, NULL, NULL,
     0, ""},
    {"topk:density=0.05", "dgc:momentum=0.9,clip=100", 4099, TG_FLOAT16, GAUSSIAN, NULL, NULL, 0, ""},
    {"gaussiank:density=0.01", "ef", 9001, TG_FLOAT32, GAUSSIAN, NULL, NULL, 0, ""},
    {"trimk:density=0.29", "ef", 8191, TG_FLOAT32, GRID, NULL, NULL, 0, ""}, /* two of its guesses could be taken */
    {"qsgd:levels=7", "ef", 4999, TG_FLOAT32, GAUSSIAN, NULL, NULL, 0, ""},
    {"qsgd:levels=7,norm=l2,coding=auto", "ecq:alpha=0.2,beta=0.9", 8191, TG_FLOAT32, LAYERED, NULL, NULL, 0, ""},
    {"onebit", "ef", 3001, TG_FLOAT32, GAUSSIAN, NULL, NULL, 0, ""},
};
enum { RUNS = sizeof runs / sizeof *runs };
static bool is_there[RUNS]; /* the device has the codec */

/* The stream of the calling thread, in CUDA's own terms (cudaStreamPerThread); others take no stream. */
static void *own_stream(const char *device) { return strncmp(device, "cuda", 4) == 0 ? (void *)(uintptr_t)2 : NULL; }

typedef struct side {
    tg_codec *codec;
    tg_feedback *feedback;
    uint8_t *frame;
    float *residual;
    tg_tensor gradient; /* in the memory of the device */
    tg_encode_report report;
    tg_status status;
    tg_error error;
} side;

static bool open_side(const run *r, tg_device *device, side *s)
{
    tg_spec spec;
    tg_feedback_spec feedback;
    const size_t bytes = (size_t)r->count * tg_dtype_size(r->dtype);
    *s = (side){.gradient = {NULL, r->count, r->dtype}, .residual = malloc(r->count * sizeof(float))};
    if (!s->residual || tg_spec_parse(r->spec, &spec, &s->error) != TG_OK ||
        tg_feedback_parse(r->feedback, &feedback, &s->error) != TG_OK ||
        tg_codec_create(device, &spec, r->count, &s->codec, &s->error) != TG_OK ||
        tg_feedback_create(device, &feedback, &spec, r->count, true, &s->feedback, &s->error) != TG_OK ||
        tg_device_allocate(device, bytes, &s->gradient.data, &s->error) != TG_OK)
        return false;
    s->frame = malloc(tg_frame_bound(s->codec, r->count));
    return s->frame != NULL;
}

static void close_side(tg_device *device, side *s)
{
    tg_device_release(device, s->gradient.data);
    tg_feedback_free(s->feedback);
    tg_codec_free(s->codec);
    free(s->frame);
    free(s->residual);
}

static void take_step(const run *r, tg_device *device, side *s, const tg_tensor *gradient, uint64_t step)
{
    const tg_encode_options options = {.draw = {.seed = 3, .step = step}, .nonfinite = (tg_nonfinite)(step % 3)};
    s->status = tg_device_copy_in(device, s->gradient.data, gradient->data, (size_t)r->count * tg_dtype_size(r->dtype),
                                  &s->error);
    if (s->status == TG_OK)
        s->status = tg_encode_with_feedback(s->codec, s->feedback, &s->gradient, &options, s->frame,
                                            tg_frame_bound(s->codec, r->count), &s->report, &s->error);
    if (s->status == TG_OK)
        s->status = tg_feedback_read(s->feedback, TG_RESIDUAL, 0, r->count, s->residual, &s->error);
}

static const char *difference(const run *r, const side *a, const side *b)
{
    if (a->status != TG_OK || b->status != TG_OK)
        return a->status != TG_OK ? a->error.message : b->error.message;
    if (!same_report(&a->report, &b->report))
        return "reports differ";
    if (memcmp(a->frame, b->frame, b->report.bytes) != 0)
        return "frames differ";
    return memcmp(a->residual, b->residual, r->count * sizeof(float)) != 0 ? "residuals differ" : NULL;
}

static void compare(run *r, tg_device *device, tg_device *scalar, side *a, side *b)
{
    tg_tensor gradient = make_tensor(r->count, r->dtype, 0);
    for (uint64_t step = 0; step < r->steps && !r->failure[0]; step++) {
        fill(r->shape, step, &gradient);
        take_step(r, device, a, &gradient, step);
        take_step(r, scalar, b, &gradient, step);
        const char *what = difference(r, a, b);
        if (what)
            (void)snprintf(r->failure, sizeof r->failure, "step %llu: %s", (unsigned long long)step, what);
    }
    drop(&gradient);
}

static void *do_run(void *argument)
{
    run *r = argument;
    side a, b;
    tg_error error = {""};
    tg_device *device = r->device, *scalar = open_device("cpu/scalar");
    if (!device && tg_device_open(r->name, own_stream(r->name), &device, &error) != TG_OK) {
        (void)snprintf(r->failure, sizeof r->failure, "%s", error.message);
        return NULL;
    }
    const bool has_both = open_side(r, device, &a) & open_side(r, scalar, &b);
    if (has_both)
        compare(r, device, scalar, &a, &b);
    else
        (void)snprintf(r->failure, sizeof r->failure, "%.200s%.80s", a.error.message, b.error.message);
    close_side(device, &a);
    close_side(scalar, &b);
    if (!r->device)
        tg_device_free(device);
    tg_device_free(scalar);
    return NULL;
}

static void report(const run *r, const char *how)
{
    check(!r->failure[0], "%s: %s, %s, %llu steps, %s", r->name, r->spec, r->feedback, (unsigned long long)r->steps,
          r->failure[0] ? r->failure : how);
}

static void alone(const char *name, uint64_t steps)
{
    for (size_t i = 0; i < RUNS; i++) {
        run r = runs[i];
        if (!is_there[i])
            continue;
        r.name = name;
        r.steps = steps;
        (void)do_run(&r);
        report(&r, "alone");
    }
}

static void at_once(const char *name, tg_device *shared, uint64_t steps)
{
    run all[RUNS];
    pthread_t threads[RUNS];
    memcpy(all, runs, sizeof all);
    for (size_t i = 0; i < RUNS; i++) {
        all[i].name = name;
        all[i].device = shared;
        all[i].steps = steps;
        if (is_there[i] && pthread_create(&threads[i], NULL, do_run, &all[i]) != 0)
            abort();
    }
    for (size_t i = 0; i < RUNS; i++) {
        if (!is_there[i])
            continue;
        (void)pthread_join(threads[i], NULL);
        report(&all[i], shared ? "all at once on one device" : "all at once");
    }
}

int main(int argc, char **argv)
{
    uint64_t steps = 200;
    for (; argc > 2 && strcmp(argv[1], "--steps") == 0; argc -= 2, argv += 2)
        steps = strtoull(argv[2], NULL, 10);
    (void)wants_all(argc, argv);
    const char *name = device_to_try(0);
    tg_device *shared = open_device(name);
    for (size_t i = 0; i < RUNS; i++)
        if (!(is_there[i] = has_codec(shared, runs[i].spec)))
            skip_codec(runs[i].spec);
    alone(name, steps);
    at_once(name, NULL, steps / 4 + 1);
    at_once(name, shared, steps / 4 + 1);
    tg_device_free(shared);
    return finish();
}
