/* What surrounds a call does not reach the wire: the caller's rounding mode and flush-to-zero change no byte and are as
 * before afterwards; sums that overflow are caught; argument errors are statuses, and leave everything alone. */
#include <fenv.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

/* Flush-to-zero, and where there is such a thing, half-precision numbers that have no infinities. */
static void set_flush_to_zero(bool on)
{
#if defined(__SSE2__)
    _mm_setcsr(on ? _mm_getcsr() | 0x8040u : _mm_getcsr() & ~0x8040u);
#elif defined(__aarch64__)
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    const uint64_t bits = UINT64_C(7) << 24; /* FZ, default NaN, AHP */
    mode = on ? mode | bits : mode & ~bits;
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
#else
    (void)on;
#endif
}

static bool flushes_to_zero(void)
{
    volatile float small = FLT_MIN, half = 0.5f;
    return small * half == 0;
}

enum { STEPS = 3 };

/* Steps of feedback; the last frame and the residual, and what decoding it gives. */
static size_t steps(tg_device *device, const char *spec, tg_tensor *gradients, unsigned char *frame, size_t bound,
                    float *residual, tg_tensor *out)
{
    const uint64_t count = gradients[0].count;
    tg_codec *codec = make_codec(device, spec, count);
    tg_feedback_spec ef;
    tg_feedback *f;
    tg_encode_report report = {.bytes = 0};
    expect(tg_feedback_parse("ef", &ef, NULL) == TG_OK &&
               tg_feedback_create(device, &ef, tg_codec_spec(codec), count, true, &f, NULL) == TG_OK,
           "feedback");
    for (int step = 0; step < STEPS; step++)
        expect(tg_encode_with_feedback(codec, f, &gradients[step], NULL, frame, bound, &report, NULL) == TG_OK,
               "encode");
    memcpy(residual, residual_of(f), (size_t)count * sizeof(float));
    expect(tg_decode(device, &(tg_frame){frame, report.bytes}, 1, 0.3f, 0, out, NULL) == TG_OK, "decode");
    tg_feedback_free(f);
    tg_codec_free(codec);
    return report.bytes;
}

static void modes_do_not_matter(tg_device *device, const char *spec)
{
    enum { COUNT = 5001 };
    tg_codec *codec = make_codec(device, spec, COUNT);
    size_t bound = tg_frame_bound(codec, COUNT);
    tg_codec_free(codec);
    unsigned char *usual = malloc(bound), *other = malloc(bound);
    float *usual_residual = malloc(COUNT * sizeof(float)), *other_residual = malloc(COUNT * sizeof(float));
    tg_tensor usual_out = make_tensor(COUNT, TG_FLOAT32, 0), other_out = make_tensor(COUNT, TG_FLOAT32, 0);
    tg_tensor gradients[STEPS]; /* made before the mode changes */
    for (int step = 0; step < STEPS; step++) {
        gradients[step] = make_tensor(COUNT, TG_FLOAT32, 0);
        fill(step == 1 ? TINY : LAYERED, (uint64_t)step, &gradients[step]);
    }
    size_t size = steps(device, spec, gradients, usual, bound, usual_residual, &usual_out);
    static const int roundings[] = {FE_UPWARD, FE_TOWARDZERO, FE_TONEAREST};
    for (int mode = 0; mode < 3; mode++) {
        bool flush = mode == 2;
        fesetround(roundings[mode]);
        set_flush_to_zero(flush);
        bool flushed = flushes_to_zero();
        size_t other_size = steps(device, spec, gradients, other, bound, other_residual, &other_out);
        bool restored = fegetround() == roundings[mode] && flushes_to_zero() == flushed;
        set_flush_to_zero(false);
        fesetround(FE_TONEAREST);
        expect(restored, "mode %d is not as before", mode);
        expect(size == other_size && memcmp(usual, other, size) == 0, "mode %d changes the frame", mode);
        expect(memcmp(usual_residual, other_residual, COUNT * sizeof(float)) == 0, "mode %d changes the residual",
               mode);
        expect(memcmp(usual_out.data, other_out.data, COUNT * sizeof(float)) == 0, "mode %d changes the values", mode);
    }
    for (int step = 0; step < STEPS; step++)
        drop(&gradients[step]);
    free(usual);
    free(other);
    free(usual_residual);
    free(other_residual);
    drop(&usual_out);
    drop(&other_out);
}

/* A step of one rank, with everything that a reducer computes of a gradient: DGC's clipping too. */
static void reduce_alone(tg_device *device, const tg_tensor *gradient, tg_tensor *out)
{
    tg_reducer_tensor tensor = {.name = "x", .count = gradient->count};
    tg_reducer *reducer = NULL;
    tg_transport *transport = NULL;
    memcpy(out->data, gradient->data, (size_t)gradient->count * sizeof(float));
    expect(tg_spec_parse("topk:density=0.1", &tensor.codec, NULL) == TG_OK &&
               tg_feedback_parse("dgc:momentum=0.9,clip=0.3", &tensor.feedback, NULL) == TG_OK &&
               tg_transport_local(1, &transport, NULL) == TG_OK &&
               tg_reducer_create(device, 0, 1, &tensor, 1, NULL, &reducer, NULL) == TG_OK,
           "reducer");
    expect(tg_reduce(reducer, transport, out, 0, NULL) == TG_OK, "reduce");
    tg_reducer_free(reducer);
    tg_transport_free(transport);
}

static void modes_do_not_reach_reducers(tg_device *device)
{
    enum { COUNT = 5001 };
    tg_tensor gradient = make_tensor(COUNT, TG_FLOAT32, 0), usual = make_tensor(COUNT, TG_FLOAT32, 0),
              other = make_tensor(COUNT, TG_FLOAT32, 0);
    fill(GAUSSIAN, 1, &gradient);
    reduce_alone(device, &gradient, &usual);
    static const int roundings[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (int mode = 0; mode < 3; mode++) {
        fesetround(roundings[mode]);
        reduce_alone(device, &gradient, &other);
        fesetround(FE_TONEAREST);
        expect(memcmp(usual.data, other.data, COUNT * sizeof(float)) == 0, "mode %d changes the mean", mode);
    }
    drop(&gradient);
    drop(&usual);
    drop(&other);
}

/* Gradient and residual are finite and their sum is not. */
static void overflowing_sums(tg_device *device, const char *spec)
{
    enum { COUNT = 300 };
    tg_codec *codec = make_codec(device, spec, COUNT);
    size_t bound = tg_frame_bound(codec, COUNT);
    unsigned char *frame = malloc(bound);
    tg_feedback_spec ef;
    tg_feedback *f;
    tg_tensor g = make_tensor(COUNT, TG_FLOAT32, 0);
    tg_encode_report report;
    expect(tg_feedback_parse("ef", &ef, NULL) == TG_OK &&
               tg_feedback_create(device, &ef, tg_codec_spec(codec), COUNT, true, &f, NULL) == TG_OK,
           "feedback");
    fill(GAUSSIAN, 1, &g);
    ((float *)g.data)[77] = FLT_MAX;
    for (int policy = 0; policy < 3; policy++) {
        float spiked[COUNT] = {0};
        spiked[77] = FLT_MAX;
        set_residual(f, spiked);
        tg_encode_options options = {.nonfinite = (tg_nonfinite)policy};
        tg_status status = tg_encode_with_feedback(codec, f, &g, &options, frame, bound, &report, NULL);
        expect(status == (policy == TG_NONFINITE_ZERO ? TG_OK : TG_NONFINITE), "policy %d gives %s", policy,
               tg_status_text(status));
        if (policy == TG_NONFINITE_ZERO)
            expect(report.dropped == 1, "%d were dropped", (int)report.dropped);
        const float *h = residual_of(f);
        for (int i = 0; i < COUNT; i++)
            expect(h[i] - h[i] == 0, "policy %d leaves a residual that is not finite", policy);
    }
    tg_feedback_free(f);
    tg_codec_free(codec);
    drop(&g);
    free(frame);
}

static void bad_arguments(tg_device *device)
{
    tg_error error;
    tg_codec *codec = make_codec(device, "qsgd", 100);
    float values[101] = {0};
    unsigned char frame[4096];
    tg_tensor x = {values, 100, TG_FLOAT32}, more = {values, 101, TG_FLOAT32}, none = {NULL, 100, TG_FLOAT32},
              odd = {values, 100, (tg_dtype)9};
    tg_encode_report report;
    memset(frame, 1, sizeof frame);
    check(tg_encode(codec, &more, NULL, frame, sizeof frame, NULL, &error) == TG_SHAPE_MISMATCH, "too many elements");
    check(tg_encode(codec, &none, NULL, frame, sizeof frame, NULL, &error) == TG_INVALID_ARGUMENT, "no data");
    check(tg_encode(codec, &odd, NULL, frame, sizeof frame, NULL, &error) == TG_INVALID_ARGUMENT, "no such dtype");
    check(tg_encode(codec, &x, NULL, frame, 20, NULL, &error) == TG_BUFFER_TOO_SMALL, "small buffer");
    check(tg_encode(NULL, &x, NULL, frame, sizeof frame, NULL, &error) == TG_INVALID_ARGUMENT, "no codec");
    check(frame[0] == 1 && frame[100] == 1, "a refused call writes nothing");
    check(tg_encode(codec, &x, NULL, frame, sizeof frame, &report, NULL) == TG_OK, "error may be NULL");
    tg_frame good = {frame, report.bytes};
    check(tg_decode(device, &good, 1, 1, 0, &more, &error) == TG_SHAPE_MISMATCH, "counts differ");
    check(tg_decode(device, &good, 1, FLT_MAX * 2, 0, &x, &error) == TG_INVALID_ARGUMENT, "weight not finite");
    check(tg_decode(device, &good, 1, 1, 64, &x, &error) == TG_INVALID_ARGUMENT, "unknown flag");
    check(tg_decode(device, NULL, 0, 1, 0, &x, &error) == TG_OK && values[5] == 0, "no frame decodes to zeros");
    tg_device *nothing = NULL;
    check(tg_device_open("gpu9", NULL, &nothing, &error) == TG_UNKNOWN_DEVICE && !nothing, "unknown device");
    check(strstr(error.message, "gpu9") && strstr(error.message, "cpu/scalar"), "names the device and those there are");
    tg_feedback_spec dgc, ef;
    tg_feedback *f = NULL;
    check(tg_feedback_parse("dgc", &dgc, NULL) == TG_OK &&
              tg_feedback_create(device, &dgc, tg_codec_spec(codec), 100, false, &f, &error) == TG_INVALID_SPEC && !f,
          "dgc wants a sparsifier");
    check(tg_feedback_parse("ef:alpha=1", &ef, &error) == TG_INVALID_SPEC, "ef has no parameters");
    tg_feedback_free(NULL);
    tg_codec_free(NULL);
    tg_device_free(NULL);
    tg_codec_free(codec);

    /* Frames that only a broken or hostile peer would write. */
    codec = make_codec(device, "qsgd", 100);
    check(tg_encode(codec, &x, &(tg_encode_options){.no_checksum = true}, frame, sizeof frame, &report, NULL) == TG_OK,
          "encode");
    static const unsigned char scales[3][4] = {{0, 0, 0x80, 0x7f}, {0, 0, 0xc0, 0x7f}, {0, 0, 0, 0x80}};
    for (int i = 0; i < 3; i++) {
        memcpy(frame + report.bytes - 4, scales[i], 4); /* behind the codes */
        check(tg_decode(device, &(tg_frame){frame, report.bytes}, 1, 1, 0, &x, NULL) == TG_CORRUPT, "scale %d", i);
    }
    tg_codec_free(codec);
    codec = make_codec(device, "onebit", 100);
    check(tg_encode(codec, &x, &(tg_encode_options){.no_checksum = true}, frame, sizeof frame, &report, NULL) == TG_OK,
          "encode");
    for (int byte = 12; byte < 16; byte++) { /* 100 bits, padded to a byte and to 4 */
        frame[64 + byte] ^= 0x80;
        check(tg_decode(device, &(tg_frame){frame, report.bytes}, 1, 1, 0, &x, NULL) == TG_CORRUPT, "padding");
        frame[64 + byte] ^= 0x80;
    }
    tg_codec_free(codec);
    codec = make_codec(device, "fp16", 100);
    check(tg_encode(codec, &x, &(tg_encode_options){.no_checksum = true}, frame, sizeof frame, &report, NULL) == TG_OK,
          "encode");
    memcpy(frame + 64, (const unsigned char[]){0, 0x7c}, 2);
    set_flush_to_zero(true);
    tg_status status = tg_decode(device, &(tg_frame){frame, report.bytes}, 1, 1, 0, &x, NULL);
    set_flush_to_zero(false);
    check(status == TG_CORRUPT, "an infinity, whatever the mode");
    tg_codec_free(codec);
}

int main(void)
{
    for (size_t d = 0; any_device_to_try(d); d++) {
        tg_device *device = open_device(any_device_to_try(d));
        for (const char *const *spec = all_specs(); *spec; spec++) {
            modes_do_not_matter(device, *spec);
            overflowing_sums(device, *spec);
            check_all("%s %s: environment", any_device_to_try(d), *spec);
        }
        modes_do_not_reach_reducers(device);
        check_all("%s reducing: environment", any_device_to_try(d));
        bad_arguments(device);
        tg_device_free(device);
    }
    return finish();
}
