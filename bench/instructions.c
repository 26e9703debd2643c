/* Each hot operation once, for callgrind to count: `bench/instructions.sh` runs it and compares. Only what lies between
 * zero and dump is counted, and a dump carries the operation's name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>

#include "tersegrad.h"

enum { COUNT = 131072 };

static const char *const devices[] = {"cpu/avx2", "cpu/scalar"};
static const char *const specs[] = {"qsgd",
                                    "qsgd:norm=l2",
                                    "qsgd:levels=127",
                                    "qsgd:bucket=0,norm=l2",
                                    "qsgd:coding=entropy",
                                    "topk:density=0.01",
                                    "topk:density=0.1",
                                    "gaussiank:density=0.01",
                                    "fp16",
                                    "onebit"};

static float gradient[COUNT], sum[COUNT];

static void need(tg_status status, const tg_error *error)
{
    if (status != TG_OK) {
        fprintf(stderr, "instructions: %s\n", error->message);
        exit(1);
    }
}

/* Normal by Box and Muller, from a plain congruential generator: the same everywhere. */
static void fill(void)
{
    uint64_t state = 1;
    for (size_t i = 0; i < COUNT; i++) {
        double u[2];
        for (int j = 0; j < 2; j++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            u[j] = ((double)(state >> 11) + 0.5) * 0x1p-53;
        }
        gradient[i] = (float)(sqrt(-2 * log(u[0])) * cos(6.283185307179586 * u[1]));
    }
}

#define COUNTED(what, call)                                                  \
    do {                                                                     \
        char name[160];                                                      \
        snprintf(name, sizeof name, "%s %s %s", devices[d], specs[s], what); \
        CALLGRIND_ZERO_STATS;                                                \
        CALLGRIND_START_INSTRUMENTATION;                                     \
        need(call, &error);                                                  \
        CALLGRIND_STOP_INSTRUMENTATION;                                      \
        CALLGRIND_DUMP_STATS_AT(name);                                       \
    } while (0)

static void operations(tg_device *device, size_t d, size_t s)
{
    tg_error error = {""};
    tg_spec spec;
    tg_feedback_spec ef;
    tg_codec *codec;
    tg_feedback *feedback;
    const tg_encode_options options = {.nonfinite = TG_NONFINITE_TRUST};
    tg_encode_report report;
    const tg_tensor input = {gradient, COUNT, TG_FLOAT32}, out = {sum, COUNT, TG_FLOAT32};
    need(tg_spec_parse(specs[s], &spec, &error), &error);
    need(tg_feedback_parse("ef", &ef, &error), &error);
    need(tg_codec_create(device, &spec, COUNT, &codec, &error), &error);
    need(tg_feedback_create(device, &ef, &spec, COUNT, true, &feedback, &error), &error);
    const size_t bound = tg_frame_bound(codec, COUNT);
    void *frame = calloc(bound, 1);
    if (!frame)
        exit(1);
    need(tg_encode_with_feedback(codec, feedback, &input, &options, frame, bound, &report, &error),
         &error); /* a residual is there */
    COUNTED("feedback", tg_encode_with_feedback(codec, feedback, &input, &options, frame, bound, &report, &error));
    COUNTED("encode", tg_encode(codec, &input, &options, frame, bound, &report, &error));
    const tg_frame frames = {frame, report.bytes};
    COUNTED("add", tg_decode_add(device, &frames, 1, 1, TG_VERIFIED, &out, &error));
    free(frame);
    tg_feedback_free(feedback);
    tg_codec_free(codec);
}

int main(void)
{
    fill();
    for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++) {
        tg_device *device;
        tg_error error = {""};
        need(tg_device_open(devices[d], NULL, &device, &error), &error);
        for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++)
            operations(device, d, s);
        tg_device_free(device);
    }
    return 0;
}
