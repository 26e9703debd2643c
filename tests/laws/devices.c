/* Every device gives the bytes of cpu/scalar: frame, residual, report and weighted sums, for dense codecs with
 * parameters drawn at random, at lengths around blocks and groups, where fused kernels start and stop. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

static const char *pick(generator *g, const char *const *words)
{
    size_t n = 0;
    while (words[n])
        n++;
    return words[next_random(g) % n];
}

static void draw_spec(generator *g, char *text, size_t size)
{
    static const char *const buckets[] = {"32",   "64", "128",  "256", "512", "512", "1024", "2048",
                                          "4096", "0",  "8192", "96",  "16",  "100", "5000", NULL};
    static const char *const norms[] = {"norm=max", "norm=l2", "norm=max", "norm=l2", "range=minmax", NULL};
    static const char *const codings[] = {"packed", "packed",  "packed", "packed", "packed",
                                          "elias",  "entropy", "auto",   NULL};
    static const char *const clips[] = {"0", "0", "1", "2.5", NULL};
    static const char *const plain[] = {"none", "fp16", "bf16", NULL};
    unsigned width = 1 + (unsigned)(next_random(g) % 15);
    unsigned levels = (1u << (width - 1)) + (unsigned)(next_random(g) % (1u << (width - 1)));
    static const unsigned edges[] = {1, 7, 15, 31, 32, 127, 128, 32767};
    if (next_random(g) % 2)
        levels = edges[next_random(g) % (sizeof edges / sizeof edges[0])];
    switch (next_random(g) % 8) {
    case 0:
        snprintf(text, size, "%s", pick(g, plain));
        break;
    case 1:
        snprintf(text, size, "onebit:bucket=%s", pick(g, buckets));
        break;
    case 2:
        snprintf(text, size, "terngrad:clip=%s,bucket=%s,coding=%s", pick(g, clips), pick(g, buckets),
                 pick(g, codings));
        break;
    default:
        snprintf(text, size, "qsgd:levels=%u,bucket=%s,%s,coding=%s", levels, pick(g, buckets), pick(g, norms),
                 pick(g, codings));
    }
}

typedef struct outcome {
    tg_status status;
    tg_encode_report report;
    unsigned char *frame;
    tg_feedback *feedback;
    tg_codec *codec;
} outcome;

static outcome start(tg_device *device, const char *spec, const char *feedback, uint64_t count)
{
    outcome o = {.codec = make_codec(device, spec, count)};
    tg_feedback_spec f;
    o.frame = malloc(tg_frame_bound(o.codec, count));
    if (!o.frame || tg_feedback_parse(feedback, &f, NULL) != TG_OK ||
        tg_feedback_create(device, &f, tg_codec_spec(o.codec), count, true, &o.feedback, NULL) != TG_OK)
        abort();
    return o;
}

static void stop(outcome *o)
{
    free(o->frame);
    tg_feedback_free(o->feedback);
    tg_codec_free(o->codec);
}

static void step(outcome *o, const tg_tensor *input, const tg_encode_options *options)
{
    memset(&o->report, 0, sizeof o->report);
    o->status = tg_encode_with_feedback(o->codec, o->feedback, input, options, o->frame,
                                        tg_frame_bound(o->codec, input->count), &o->report, NULL);
}

static void compare_sums(tg_device *device, tg_device *scalar, const outcome *o, tg_dtype dtype, uint64_t count,
                         generator *g)
{
    static const float weights[] = {1, 0.25f, -1, 0.3f, 0, 1e30f};
    tg_frame frames[7];
    for (int i = 0; i < 7; i++)
        frames[i] = (tg_frame){o->frame, o->report.bytes};
    tg_tensor a = make_tensor(count, dtype, next_random(g) % 4), b = make_tensor(count, dtype, 0);
    for (int fresh = 0; fresh < 2; fresh++) {
        size_t n = 1 + next_random(g) % 7;
        float weight = weights[next_random(g) % 6];
        fill(GAUSSIAN, count, &a);
        fill(GAUSSIAN, count, &b);
        tg_status x = fresh ? tg_decode(device, frames, n, weight, TG_VERIFIED, &a, NULL)
                            : tg_decode_add(device, frames, n, weight, TG_VERIFIED, &a, NULL);
        tg_status y = fresh ? tg_decode(scalar, frames, n, weight, 0, &b, NULL)
                            : tg_decode_add(scalar, frames, n, weight, 0, &b, NULL);
        expect(x == TG_OK && y == TG_OK, "decoding gives %d and %d", (int)x, (int)y);
        expect(memcmp(a.data, b.data, (size_t)count * tg_dtype_size(dtype)) == 0,
               "sums of %zu frames, weight %g, differ", n, (double)weight);
    }
    drop(&a);
    drop(&b);
}

static void spoil(tg_tensor *t, generator *g)
{
    static const uint32_t bad[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff};
    uint32_t bits = bad[next_random(g) % 4];
    uint16_t half = (uint16_t)(t->dtype == TG_FLOAT16 ? (bits & 0x80000000 ? 0xfe00 : 0x7c00) : bits >> 16);
    for (uint64_t n = 1 + next_random(g) % 3; n > 0; n--) {
        uint64_t at = next_random(g) % t->count;
        if (t->dtype == TG_FLOAT32)
            memcpy((float *)t->data + at, &bits, sizeof bits);
        else
            memcpy((uint16_t *)t->data + at, &half, sizeof half);
    }
}

static void one_case(tg_device *device, tg_device *scalar, uint64_t seed)
{
    static const char *const feedbacks[] = {
        "none", "none", "ef", "ef", "ecq:alpha=0.5,beta=0.9", "ecq:alpha=0.3,beta=0", NULL};
    generator g = {seed};
    char spec[TG_SPEC_TEXT];
    draw_spec(&g, spec, sizeof spec);
    if (!has_codec(device, spec))
        return;
    const char *feedback = pick(&g, feedbacks);
    const uint64_t lengths[] = {1 + next_random(&g) % 700, 4096,
                                4096 * (1 + next_random(&g) % 5) + next_random(&g) % 1200};
    const uint64_t count = lengths[next_random(&g) % 3];
    const tg_dtype dtype = next_random(&g) % 3 ? TG_FLOAT32 : (tg_dtype)(next_random(&g) % 3);
    tg_tensor input = make_tensor(count, dtype, next_random(&g) % 4);
    outcome fast = start(device, spec, feedback, count), slow = start(scalar, spec, feedback, count);
    const bool spoilt = next_random(&g) % 4 == 0;
    tg_encode_options options = {.draw = {.seed = seed, .rank = 3}, .nonfinite = (tg_nonfinite)(next_random(&g) % 3)};
    bool same = true;
    for (int i = 0; i < 3 && same; i++) {
        fill((shape)(next_random(&g) % SHAPES), seed + (uint64_t)i, &input);
        if (spoilt && i == 1)
            spoil(&input, &g);
        options.draw.step = (uint64_t)i;
        step(&fast, &input, &options);
        step(&slow, &input, &options);
        expect(fast.status == slow.status, "step %d: status %d, not %d", i, (int)fast.status, (int)slow.status);
        same = fast.status == slow.status && (fast.status == TG_OK || options.nonfinite != TG_NONFINITE_TRUST);
        if (!same)
            break; /* after a failure under trust, residuals are equal to rounding only */
        expect(same_report(&fast.report, &slow.report), "step %d: reports differ", i);
        if (slow.status == TG_OK)
            expect(memcmp(fast.frame, slow.frame, slow.report.bytes) == 0, "step %d: frames differ", i);
        expect(memcmp(residual_of(fast.feedback), residual_of(slow.feedback), (size_t)count * sizeof(float)) == 0,
               "step %d: residuals differ", i);
        if (slow.status == TG_OK && i != 1)
            compare_sums(device, scalar, &slow, i == 0 ? TG_FLOAT32 : dtype, count, &g);
    }
    drop(&input);
    stop(&fast);
    stop(&slow);
    check_all("%s: %s, %s, %llu elements of dtype %d, policy %d, case %llu", tg_device_name(device), spec, feedback,
              (unsigned long long)count, (int)dtype, (int)options.nonfinite, (unsigned long long)seed);
}

/* Long enough for the coders that are for long vectors: pairs of digits, prefix codes, samples of them. */
static void large_case(tg_device *device, tg_device *scalar, const char *spec, shape s, uint64_t count, uint64_t seed)
{
    generator g = {seed};
    tg_tensor input = make_tensor(count, TG_FLOAT32, 1);
    outcome fast = start(device, spec, "none", count), slow = start(scalar, spec, "none", count);
    const tg_encode_options options = {.draw = {.seed = seed}};
    fill(s, seed, &input);
    step(&fast, &input, &options);
    step(&slow, &input, &options);
    expect(fast.status == TG_OK && slow.status == TG_OK, "status %d and %d", (int)fast.status, (int)slow.status);
    expect(fast.report.bytes == slow.report.bytes && memcmp(fast.frame, slow.frame, slow.report.bytes) == 0,
           "frames differ");
    compare_sums(device, scalar, &slow, TG_FLOAT32, count, &g);
    compare_sums(device, scalar, &slow, TG_BFLOAT16, count, &g);
    drop(&input);
    stop(&fast);
    stop(&slow);
    check_all("%s: %s, %llu elements, %s", tg_device_name(device), spec, (unsigned long long)count, shape_names[s]);
}

static void large_cases(tg_device *device, tg_device *scalar)
{
    static const char *const specs[] = {
        "qsgd:levels=7,coding=entropy",
        "qsgd:levels=7,bucket=512,norm=l2,coding=auto",
        "qsgd:levels=5,bucket=100,coding=entropy",
        "qsgd:levels=7,range=minmax,coding=entropy",
        "qsgd:levels=127,coding=entropy",
        "qsgd:levels=64,bucket=0,norm=l2,coding=entropy",
        "terngrad:coding=entropy",
        "qsgd:levels=3,coding=entropy",
        "qsgd:levels=2,bucket=0,norm=l2,coding=auto",
        "topk:density=1,values=levels,levels=7,coding=entropy",
    };
    static const uint64_t counts[] = {(1 << (EMULATED ? 17 : 18)) + 4096 + 77, (1 << (EMULATED ? 18 : 20)) + 513};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        if (!has_codec(device, specs[i]))
            continue;
        large_case(device, scalar, specs[i], GAUSSIAN, counts[i % 2], i);
        large_case(device, scalar, specs[i], LAYERED, counts[0], i);
    }
}

int main(int argc, char **argv)
{
    const uint64_t cases = wants_all(argc, argv) ? 20000 : EMULATED ? 400 : 1000;
    tg_device *scalar = open_device("cpu/scalar");
    for (size_t d = 0; any_device_to_try(d); d++) {
        if (strcmp(any_device_to_try(d), "cpu/scalar") == 0)
            continue;
        tg_device *device = open_device(any_device_to_try(d));
        for (uint64_t i = 0; i < cases; i++)
            one_case(device, scalar, i);
        large_cases(device, scalar);
        tg_device_free(device);
    }
    if (strcmp(device_to_try(0), "cpu/scalar") == 0)
        skip("this machine has only cpu/scalar");
    tg_device_free(scalar);
    return finish();
}
