/* Calls that do not wait, on a device that takes its time: nobody waits, frames, residuals, reports and sums are those
 * of cpu/scalar when somebody does, and what a call cannot do is refused before anything is done. */
#define STAGED_ITSELF
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"
#include "support.h"

static const char *const specs[] = {
    "qsgd:levels=7",    "qsgd:levels=7,coding=entropy", "terngrad",          "onebit", "fp16",
    "topk:density=0.1", "dgck:density=0.1,values=fp16", "randk:density=0.1", NULL};
enum { TENSORS = 3, STEPS = 4 };
static const uint64_t counts[TENSORS] = {1, 700, 9001};

typedef struct tensor {
    tg_codec *codec, *reference;
    tg_feedback *feedback, *reference_feedback;
    void *gradient, *frame, *sum; /* of the device */
    uint8_t *reference_frame, *copy;
    tg_tensor values, expected, seen;
    size_t room;
} tensor;

static tg_device *device, *scalar;

static void open_tensor(tensor *t, const char *spec, uint64_t count)
{
    const tg_feedback_spec ef = {.kind = TG_FEEDBACK_EF, .alpha = 1, .beta = 1};
    const size_t bytes = (size_t)count * sizeof(float);
    *t = (tensor){.codec = make_codec(device, spec, count), .reference = make_codec(scalar, spec, count)};
    t->room = tg_frame_bound(t->codec, count);
    t->reference_frame = malloc(t->room);
    t->copy = malloc(t->room);
    t->values = make_tensor(count, TG_FLOAT32, 0);
    t->expected = make_tensor(count, TG_FLOAT32, 0);
    t->seen = make_tensor(count, TG_FLOAT32, 0);
    tg_error error = {""};
    expect(t->reference_frame && t->copy && tg_device_allocate(device, bytes, &t->gradient, &error) == TG_OK &&
               tg_device_allocate(device, bytes, &t->sum, &error) == TG_OK &&
               tg_device_allocate(device, t->room, &t->frame, &error) == TG_OK &&
               tg_feedback_create(device, &ef, tg_codec_spec(t->codec), count, true, &t->feedback, &error) == TG_OK &&
               tg_feedback_create(scalar, &ef, tg_codec_spec(t->codec), count, true, &t->reference_feedback, &error) ==
                   TG_OK,
           "memory: %s", error.message);
}

static void close_tensor(tensor *t)
{
    tg_feedback_free(t->feedback);
    tg_feedback_free(t->reference_feedback);
    tg_codec_free(t->codec);
    tg_codec_free(t->reference);
    tg_device_release(device, t->gradient);
    tg_device_release(device, t->sum);
    tg_device_release(device, t->frame);
    free(t->reference_frame);
    free(t->copy);
    drop(&t->values);
    drop(&t->expected);
    drop(&t->seen);
}

static void set(tensor *t, uint64_t step)
{
    const size_t bytes = (size_t)t->values.count * sizeof(float);
    cut(GAUSSIAN, step, &t->values);
    if (step == 2)
        ((float *)t->values.data)[t->values.count / 2] = strtof("nan", NULL);
    cut(GRID, step, &t->expected);
    expect(tg_device_copy_in(device, t->gradient, t->values.data, bytes, NULL) == TG_OK &&
               tg_device_copy_in(device, t->sum, t->expected.data, bytes, NULL) == TG_OK,
           "copy");
}

/* What the reference makes of it. */
static tg_encode_report step_on_scalar(tensor *t, uint64_t step, uint32_t number)
{
    const tg_encode_options options = {.draw = {.step = step, .tensor = number}};
    tg_encode_report report;
    (void)!tg_encode_with_feedback(t->reference, t->reference_feedback, &t->values, &options, t->reference_frame,
                                   t->room, &report, NULL);
    return report;
}

static bool same_residual(tensor *t)
{
    const uint64_t n = t->values.count;
    float *a = malloc(2 * n * sizeof *a);
    const bool same = a && tg_feedback_read(t->feedback, TG_RESIDUAL, 0, n, a, NULL) == TG_OK &&
                      tg_feedback_read(t->reference_feedback, TG_RESIDUAL, 0, n, a + n, NULL) == TG_OK &&
                      memcmp(a, a + n, n * sizeof *a) == 0;
    free(a);
    return same;
}

static void encode_all(tensor *tensors, uint64_t step, const uint64_t *on_device, tg_encode_report *reports)
{
    tg_encode_call calls[TENSORS];
    tg_error error = {""};
    for (uint32_t t = 0; t < TENSORS; t++)
        calls[t] = (tg_encode_call){.codec = tensors[t].codec,
                                    .feedback = tensors[t].feedback,
                                    .gradient = {tensors[t].gradient, counts[t], TG_FLOAT32},
                                    .options = {.draw.tensor = t, .on_device = true},
                                    .step = on_device,
                                    .frame = tensors[t].frame,
                                    .capacity = tensors[t].room,
                                    .report = &reports[t]};
    const uint64_t waits = guarded_waits(device);
    expect(tg_encode_later(calls, TENSORS, &error) == TG_OK, "%s", error.message);
    expect(guarded_waits(device) == waits, "encoding later waited");
    memset(calls, 0xff, sizeof calls); /* they have been read */
    expect(tg_device_wait(device, &error) == TG_OK, "%s", error.message);
    for (uint32_t t = 0; t < TENSORS; t++) {
        const tg_encode_report expected = step_on_scalar(&tensors[t], step, t);
        expect(reports[t].status == expected.status && reports[t].bytes == expected.bytes &&
                   reports[t].selected == expected.selected,
               "tensor %u, step %llu: the report differs", t, (unsigned long long)step);
        expect(same_residual(&tensors[t]), "tensor %u, step %llu: the residual differs", t, (unsigned long long)step);
        if (expected.status != TG_OK)
            continue;
        expect(tg_device_copy_out(device, tensors[t].copy, tensors[t].frame, expected.bytes, NULL) == TG_OK &&
                   memcmp(tensors[t].copy, tensors[t].reference_frame, expected.bytes) == 0,
               "tensor %u, step %llu: the frame differs", t, (unsigned long long)step);
    }
}

static void add_all(tensor *tensors, const tg_encode_report *reports, tg_status *verdicts)
{
    tg_decode_call calls[TENSORS];
    tg_frame frames[TENSORS];
    tg_frame_info likes[TENSORS];
    tg_error error = {""};
    for (uint32_t t = 0; t < TENSORS; t++) {
        const tg_frame frame = {tensors[t].reference_frame, reports[t].bytes};
        expect(tg_frame_read(frame, &likes[t], &error) == TG_OK, "%s", error.message);
        frames[t] = (tg_frame){tensors[t].frame, reports[t].bytes};
        calls[t] = (tg_decode_call){.frames = &frames[t],
                                    .frame_count = 1,
                                    .like = &likes[t],
                                    .weight = 0.5f,
                                    .out = {tensors[t].sum, counts[t], TG_FLOAT32},
                                    .status = &verdicts[t]};
    }
    likes[1].draw.step += 1; /* which may be another */
    likes[2].dtype = TG_FLOAT16;
    const uint64_t waits = guarded_waits(device);
    expect(tg_decode_add_later(device, calls, TENSORS, &error) == TG_OK, "%s", error.message);
    expect(guarded_waits(device) == waits, "adding later waited");
    memset(calls, 0xff, sizeof calls);
    memset(frames, 0xff, sizeof frames);
    memset(likes, 0xff, sizeof likes);
    expect(tg_device_wait(device, &error) == TG_OK, "%s", error.message);
    for (uint32_t t = 0; t < TENSORS; t++) {
        const tg_frame frame = {tensors[t].reference_frame, reports[t].bytes};
        expect(verdicts[t] == (t == 2 ? TG_LAYOUT_MISMATCH : TG_OK), "tensor %u: %s", t, tg_status_text(verdicts[t]));
        if (t != 2)
            expect(tg_decode_add(scalar, &frame, 1, 0.5f, 0, &tensors[t].expected, &error) == TG_OK, "%s",
                   error.message);
        expect(tg_device_copy_out(device, tensors[t].seen.data, tensors[t].sum, counts[t] * sizeof(float), NULL) ==
                       TG_OK &&
                   memcmp(tensors[t].seen.data, tensors[t].expected.data, counts[t] * sizeof(float)) == 0,
               "tensor %u: the sum differs", t);
    }
}

static void try_spec(const char *spec)
{
    tensor tensors[TENSORS];
    uint64_t *step_there = NULL;
    tg_encode_report *reports = NULL;
    tg_status *verdicts = NULL;
    now_at(tg_device_name(device), GAUSSIAN, TENSORS);
    expect(tg_device_allocate(device, sizeof *step_there, (void **)&step_there, NULL) == TG_OK &&
               tg_device_allocate_shared(device, TENSORS * sizeof *reports, (void **)&reports, NULL) == TG_OK &&
               tg_device_allocate_shared(device, TENSORS * sizeof *verdicts, (void **)&verdicts, NULL) == TG_OK,
           "memory");
    for (int t = 0; t < TENSORS; t++)
        open_tensor(&tensors[t], spec, counts[t]);
    for (uint64_t step = 0; step < STEPS; step++) {
        for (int t = 0; t < TENSORS; t++)
            set(&tensors[t], step);
        expect(tg_device_copy_in(device, step_there, &step, sizeof step, NULL) == TG_OK, "copy");
        encode_all(tensors, step, step_there, reports);
        if (reports[0].status == TG_OK)
            add_all(tensors, reports, verdicts);
    }
    for (int t = 0; t < TENSORS; t++)
        close_tensor(&tensors[t]);
    tg_device_release(device, step_there);
    tg_device_release_shared(device, reports);
    tg_device_release_shared(device, verdicts);
    check_all("%s, later", spec);
}

/* Refused, and nothing is done. */
static void refuse(const tg_encode_call *call, tg_status expected, const char *what)
{
    tg_error error = {""};
    const tg_status status = tg_encode_later(call, 1, &error);
    expect(status == expected && error.message[0], "%s: %s, '%s'", what, tg_status_text(status), error.message);
}

static void try_refusals(void)
{
    const tg_feedback_spec clipped = {.kind = TG_FEEDBACK_DGC, .alpha = 1, .beta = 1, .momentum = 0.5f, .clip = 1};
    tensor t;
    tg_encode_report *report = NULL;
    tg_feedback *feedback = NULL;
    now_at(tg_device_name(device), GAUSSIAN, 700);
    open_tensor(&t, "topk:density=0.1", 700);
    expect(tg_device_allocate_shared(device, sizeof *report, (void **)&report, NULL) == TG_OK &&
               tg_feedback_create(device, &clipped, tg_codec_spec(t.codec), 700, true, &feedback, NULL) == TG_OK,
           "memory");
    const tg_encode_call good = {.codec = t.codec,
                                 .gradient = {t.gradient, 700, TG_FLOAT32},
                                 .options.on_device = true,
                                 .frame = t.frame,
                                 .capacity = t.room,
                                 .report = report};
    tg_encode_call call = good;
    call.codec = NULL;
    refuse(&call, TG_INVALID_ARGUMENT, "no codec");
    call = good;
    call.report = NULL;
    refuse(&call, TG_INVALID_ARGUMENT, "no report");
    call = good;
    call.options.on_device = false;
    refuse(&call, TG_INVALID_ARGUMENT, "a frame in host memory");
    call = good;
    call.frame = (uint8_t *)t.frame + 4;
    refuse(&call, TG_INVALID_ARGUMENT, "a frame at any place");
    call = good;
    call.capacity--;
    refuse(&call, TG_BUFFER_TOO_SMALL, "too little room");
    call = good;
    call.feedback = feedback;
    refuse(&call, TG_UNAVAILABLE, "clipping");
    call = good;
    call.feedback = t.feedback;
    const tg_encode_call twice[2] = {call, call};
    tg_error error = {""};
    expect(tg_encode_later(twice, 2, &error) == TG_INVALID_ARGUMENT && strstr(error.message, "feedback"),
           "a feedback that is given twice: '%s'", error.message);
    expect(tg_encode_later(&call, 1, &error) == TG_OK, "after that: %s", error.message);
    expect(tg_device_wait(device, &error) == TG_OK, "%s", error.message);
    expect(tg_encode_later(NULL, 1, NULL) == TG_INVALID_ARGUMENT && tg_encode_later(NULL, 0, NULL) == TG_OK,
           "no calls");
    tg_decode_call decode = {.frame_count = 0, .out = {t.sum, 700, TG_FLOAT32}};
    expect(tg_decode_add_later(device, &decode, 1, NULL) == TG_INVALID_ARGUMENT, "no frames");
    tg_feedback_free(feedback);
    tg_device_release_shared(device, report);
    close_tensor(&t);
    check_all("what is refused");
}

/* ---- all calls, or none ---- */

static const tg_operations *whole;

static tg_status can_add_later(const tg_device *d, const tg_add_later_job *job, tg_error *error)
{
    if (job->weight < 0)
        return (void)snprintf(error->message, sizeof error->message, "not on this device"), TG_UNAVAILABLE;
    return whole->can_add_later(d, job, error);
}

/* The last of many calls is one that the device cannot do. */
static void try_all_or_none(void)
{
    enum { CALLS = 130, COUNT = 64 };
    static _Alignas(64) uint8_t frame_bytes[4096];
    static float values[COUNT], outputs[CALLS][COUNT];
    static tg_decode_call calls[CALLS];
    tg_device *cpu = open_device("cpu");
    tg_operations operations = *cpu->operations;
    tg_status *verdicts;
    tg_error error = {""};
    tg_codec *codec;
    tg_encode_report report;
    tg_frame_info like;
    tg_spec spec;
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i;
    if (tg_spec_parse("qsgd", &spec, &error) != TG_OK || tg_codec_create(cpu, &spec, COUNT, &codec, &error) != TG_OK ||
        tg_encode(codec, &(tg_tensor){values, COUNT, TG_FLOAT32}, NULL, frame_bytes, sizeof frame_bytes, &report,
                  &error) != TG_OK ||
        tg_device_allocate_shared(cpu, CALLS * sizeof *verdicts, (void **)&verdicts, &error) != TG_OK)
        abort();
    const tg_frame frame = {frame_bytes, report.bytes};
    expect(tg_frame_read(frame, &like, &error) == TG_OK, "%s", error.message);
    for (int i = 0; i < CALLS; i++)
        calls[i] = (tg_decode_call){.frames = &frame,
                                    .frame_count = 1,
                                    .like = &like,
                                    .weight = i + 1 < CALLS ? 1.0f : -1.0f,
                                    .out = {outputs[i], COUNT, TG_FLOAT32},
                                    .status = &verdicts[i]};
    whole = cpu->operations;
    operations.can_add_later = can_add_later;
    memcpy(&cpu->operations, &(const tg_operations *){&operations}, sizeof(void *));
    expect(tg_decode_add_later(cpu, calls, CALLS, &error) == TG_UNAVAILABLE && error.message[0], "not refused");
    for (int i = 0; i < CALLS; i++)
        expect(outputs[i][COUNT - 1] == 0, "call %d was done", i);
    expect(tg_decode_add_later(cpu, calls, CALLS - 1, &error) == TG_OK && outputs[CALLS - 2][COUNT - 1] != 0, "%s",
           error.message);
    memcpy(&cpu->operations, &whole, sizeof(void *));
    tg_device_release_shared(cpu, verdicts);
    tg_codec_free(codec);
    tg_device_free(cpu);
    check_all("where one of many calls cannot be done, none is");
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    device = open_guarded("cpu", true);
    scalar = open_device("cpu/scalar");
    for (size_t i = 0; specs[i]; i++)
        try_spec(specs[i]);
    try_refusals();
    try_all_or_none();
    tg_device_free(device);
    tg_device_free(scalar);
    return finish();
}
