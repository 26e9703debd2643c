/* Laws of feedback, over the table: fused equals composed to the bit; sent and kept make up u; a returned frame restores u; sums over
 * steps are conserved; a refused gradient changes nothing; one put right after the fact is right to rounding. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { STEPS = 6 };

static bool sends_exactly(const char *spec) { return strstr(spec, "values=fp32") || strncmp(spec, "none", 4) == 0; }

static tg_feedback *make_feedback(tg_device *device, const char *text, const tg_codec *codec, uint64_t count)
{
    tg_feedback_spec spec;
    tg_feedback *feedback = NULL;
    tg_error error = {""};
    expect(tg_feedback_parse(text, &spec, &error) == TG_OK, "parse %s: %s", text, error.message);
    expect(tg_feedback_create(device, &spec, tg_codec_spec(codec), count, true, &feedback, &error) == TG_OK, "create: %s",
           error.message);
    return feedback;
}

/* Both ways of making steps, side by side. */
static void fused_is_composed(tg_device *device, const char *spec, const char *feedback_text, shape s, tg_dtype dtype,
                              uint64_t count)
{
    tg_codec *codec = make_codec(device, spec, count);
    tg_feedback *fused = make_feedback(device, feedback_text, codec, count);
    tg_feedback *composed = make_feedback(device, feedback_text, codec, count);
    tg_tensor g = make_tensor(count, dtype, 1), u = make_tensor(count, TG_FLOAT32, 0), sent = make_tensor(count, TG_FLOAT32, 0);
    size_t bound = tg_frame_bound(codec, count), floats = (size_t)count * sizeof(float);
    unsigned char *a = malloc(bound), *b = malloc(bound);
    float *h = tg_feedback_residual(fused);
    tg_error error = {""};
    for (uint64_t step = 0; fused && composed && step < STEPS; step++) {
        tg_encode_options options = {.draw = {.seed = 1, .step = step}};
        tg_encode_report ra, rb;
        fill(s, step + 5, &g);
        expect(tg_feedback_compensate(composed, &g, &u, &error) == TG_OK, "compensate: %s", error.message);
        expect(tg_encode_with_feedback(codec, fused, &g, &options, a, bound, &ra, &error) == TG_OK, "fused: %s", error.message);
        expect(tg_encode(codec, &u, &options, b, bound, &rb, &error) == TG_OK, "composed: %s", error.message);
        /* The headers differ in dtype alone, and so in the checksum, where the gradient has 16 bits; `none` then narrows. */
        tg_frame frame = {a, ra.bytes}, other = {b, rb.bytes};
        if (dtype == TG_FLOAT32)
            expect(ra.bytes == rb.bytes && memcmp(a, b, ra.bytes) == 0, "step %d: fused and composed frames differ", (int)step);
        else if (strncmp(spec, "none", 4) != 0)
            expect(ra.bytes == rb.bytes && memcmp(a + 64, b + 64, ra.bytes - 64) == 0, "step %d: payloads differ", (int)step);
        else
            other = frame;
        expect(tg_feedback_update(composed, &g, other, &error) == TG_OK, "update: %s", error.message);
        expect(memcmp(h, tg_feedback_residual(composed), floats) == 0, "step %d: residuals differ", (int)step);
        if (tg_feedback_momentum(fused))
            expect(memcmp(tg_feedback_momentum(fused), tg_feedback_momentum(composed), floats) == 0, "momenta differ");

        expect(tg_decode(device, &frame, 1, 1, 0, &sent, &error) == TG_OK, "decode: %s", error.message);
        const float *sv = sent.data, *uv = u.data;
        bool plain = strcmp(feedback_text, "ef") == 0;
        for (uint64_t i = 0; plain && i < count; i++) {
            if (sends_exactly(spec) && dtype == TG_FLOAT32)
                expect(sv[i] + h[i] == uv[i], "step %d: sent + kept is not u at %d", (int)step, (int)i);
            /* h = u - sent is rounded once, to half a unit in the last place of the larger of the two. */
            double unit = fmax(fmax(fabs((double)uv[i]), fabs((double)sv[i])) * 0x1p-23, 0x1p-149);
            expect(fabs((double)sv[i] + (double)h[i] - (double)uv[i]) <= unit, "step %d: sent + kept is far from u", (int)step);
        }
    }
    tg_feedback_free(fused);
    tg_feedback_free(composed);
    tg_codec_free(codec);
    drop(&g);
    drop(&u);
    drop(&sent);
    free(a);
    free(b);
}

/* Returned wholly, the residual is u; returned where it was not applied, the rest of it stays sent. */
static void return_restores(tg_device *device, const char *spec, uint64_t count)
{
    tg_codec *codec = make_codec(device, spec, count);
    tg_feedback *f = make_feedback(device, "ef", codec, count);
    tg_tensor g = make_tensor(count, TG_FLOAT32, 0), u = make_tensor(count, TG_FLOAT32, 0), sent = make_tensor(count, TG_FLOAT32, 0);
    size_t bound = tg_frame_bound(codec, count);
    unsigned char *bytes = malloc(bound);
    uint32_t *applied = malloc((size_t)(count / 2 + 1) * sizeof *applied);
    float *after = malloc((size_t)count * sizeof *after + 1);
    float *h = tg_feedback_residual(f);
    tg_error error = {""};
    tg_encode_report report;
    for (uint64_t step = 0; step < 3; step++) {
        tg_encode_options options = {.draw = {.step = step}};
        fill(LAYERED, step, &g);
        expect(tg_feedback_compensate(f, &g, &u, &error) == TG_OK &&
                   tg_encode_with_feedback(codec, f, &g, &options, bytes, bound, &report, &error) == TG_OK,
               "step: %s", error.message);
    }
    tg_frame frame = {bytes, report.bytes};
    expect(tg_decode(device, &frame, 1, 1, 0, &sent, &error) == TG_OK, "decode: %s", error.message);
    memcpy(after, h, (size_t)count * sizeof *after);
    size_t applied_count = 0; /* every other index was applied */
    for (uint32_t i = 1; i < count; i += 2)
        applied[applied_count++] = i;
    expect(tg_feedback_return(f, frame, applied, applied_count, &error) == TG_OK, "return: %s", error.message);
    for (uint64_t i = 0; i < count; i++)
        expect(h[i] == (i % 2 ? after[i] : after[i] + ((float *)sent.data)[i]), "partial return at %d", (int)i);
    memcpy(h, after, (size_t)count * sizeof *after);
    expect(tg_feedback_return(f, frame, NULL, 0, &error) == TG_OK, "return: %s", error.message);
    for (uint64_t i = 0; i < count; i++) {
        double want = (double)((float *)u.data)[i], unit = fmax(fabs(want), fabs((double)((float *)sent.data)[i])) * 0x1p-23;
        if (sends_exactly(spec))
            expect(h[i] == (float)want, "a returned frame does not restore u at %d", (int)i);
        /* Two roundings: of u - sent, and of the sum. */
        expect(fabs((double)h[i] - want) <= 2 * fmax(unit, 0x1p-149), "a returned frame is far from u at %d", (int)i);
    }
    tg_feedback_free(f);
    tg_codec_free(codec);
    drop(&g);
    drop(&u);
    drop(&sent);
    free(bytes);
    free(applied);
    free(after);
}

/* On a dyadic grid every sum is exact: what was sent over all steps and what is kept make up the gradients. */
static void sums_are_conserved(tg_device *device, const char *spec, uint64_t count)
{
    tg_codec *codec = make_codec(device, spec, count);
    tg_feedback *f = make_feedback(device, "ef", codec, count);
    tg_tensor g = make_tensor(count, TG_FLOAT32, 0), total = make_tensor(count, TG_FLOAT32, 0);
    size_t bound = tg_frame_bound(codec, count);
    unsigned char *bytes = malloc(bound);
    double *sum = calloc((size_t)count + 1, sizeof *sum);
    memset(total.data, 0, (size_t)count * 4);
    tg_error error = {""};
    for (uint64_t step = 0; step < 50; step++) {
        tg_encode_options options = {.draw = {.step = step}};
        tg_encode_report report;
        fill(GRID, step, &g);
        for (uint64_t i = 0; i < count; i++)
            sum[i] += (double)((float *)g.data)[i];
        expect(tg_encode_with_feedback(codec, f, &g, &options, bytes, bound, &report, &error) == TG_OK, "step: %s",
               error.message);
        tg_frame frame = {bytes, report.bytes};
        expect(tg_decode_add(device, &frame, 1, 1, 0, &total, &error) == TG_OK, "decode_add: %s", error.message);
    }
    for (uint64_t i = 0; i < count; i++)
        expect((double)((float *)total.data)[i] + (double)tg_feedback_residual(f)[i] == sum[i], "mass lost at %d", (int)i);
    tg_feedback_free(f);
    tg_codec_free(codec);
    drop(&g);
    drop(&total);
    free(bytes);
    free(sum);
}

/* The three policies. */
static void nonfinite_laws(tg_device *device, const char *spec, const char *feedback_text, tg_dtype dtype, uint64_t count,
                           uint64_t bad, uint32_t bits)
{
    tg_codec *codec = make_codec(device, spec, count);
    tg_feedback *f = make_feedback(device, feedback_text, codec, count), *clean = make_feedback(device, feedback_text, codec, count);
    tg_tensor g = make_tensor(count, dtype, 0);
    size_t bound = tg_frame_bound(codec, count), floats = (size_t)count * sizeof(float);
    unsigned char *bytes = malloc(bound), *other = malloc(bound);
    float *before = malloc(floats), *h = tg_feedback_residual(f), size = 0;
    tg_encode_report report, clean_report;
    tg_error error = {""};
    for (uint64_t step = 0; step < 3; step++) {
        fill(GAUSSIAN, step, &g);
        expect(tg_encode_with_feedback(codec, f, &g, NULL, bytes, bound, &report, &error) == TG_OK, "step: %s", error.message);
        expect(tg_encode_with_feedback(codec, clean, &g, NULL, other, bound, &clean_report, &error) == TG_OK, "step: %s",
               error.message);
    }
    memcpy(before, h, floats);
    for (uint64_t i = 0; i < count; i++)
        size = fmaxf(size, fabsf(h[i]));
    fill(GAUSSIAN, 99, &g);
    if (dtype == TG_FLOAT32)
        memcpy((float *)g.data + bad, &bits, 4);
    else
        ((uint16_t *)g.data)[bad] = (uint16_t)(dtype == TG_FLOAT16 ? (bits >> 16 & 0x8000) | 0x7c00 | (bits & 1) : bits >> 16);

    char index[32];
    snprintf(index, sizeof index, "element %llu ", (unsigned long long)bad);
    memset(bytes, 0x77, bound);
    expect(tg_encode_with_feedback(codec, f, &g, NULL, bytes, bound, &report, &error) == TG_NONFINITE, "reject accepts");
    expect(strstr(error.message, index) != NULL, "reject does not name the index: %s", error.message);
    for (size_t i = 0; i < bound; i++)
        expect(bytes[i] == 0x77, "reject writes to the frame");
    expect(memcmp(before, h, floats) == 0, "reject changes the residual");

    tg_encode_options trust = {.nonfinite = TG_NONFINITE_TRUST};
    expect(tg_encode_with_feedback(codec, f, &g, &trust, bytes, bound, &report, &error) == TG_NONFINITE, "trust accepts");
    expect(strstr(error.message, index) != NULL, "trust does not name the index: %s", error.message);
    /* A few roundings, each of numbers no larger than residual and gradient together; ecq divides by beta. */
    float rounding = (size + 8) * 0x1p-20f;
    for (uint64_t i = 0; i < count; i++)
        expect(fabsf(h[i] - before[i]) <= rounding, "trust leaves the residual at %d off by %g", (int)i,
               (double)fabsf(h[i] - before[i]));
    memcpy(h, before, floats);

    tg_encode_options zero = {.nonfinite = TG_NONFINITE_ZERO};
    expect(tg_encode_with_feedback(codec, f, &g, &zero, bytes, bound, &report, &error) == TG_OK, "zero: %s", error.message);
    expect(report.dropped == 1, "zero counts %d", (int)report.dropped);
    if (dtype == TG_FLOAT32)
        ((float *)g.data)[bad] = 0;
    else
        ((uint16_t *)g.data)[bad] = 0;
    expect(tg_encode_with_feedback(codec, clean, &g, NULL, other, bound, &clean_report, &error) == TG_OK, "zero: %s",
           error.message);
    expect(report.bytes == clean_report.bytes && memcmp(bytes, other, report.bytes) == 0, "zero is not the frame of a zero");
    expect(memcmp(h, tg_feedback_residual(clean), floats) == 0, "zero is not the residual of a zero");
    tg_feedback_free(f);
    tg_feedback_free(clean);
    tg_codec_free(codec);
    drop(&g);
    free(bytes);
    free(other);
    free(before);
}

static bool is_sparse(const char *spec)
{
    tg_codec_info info;
    for (size_t i = 0; tg_codec_list(i, &info) == TG_OK; i++)
        if (strncmp(spec, info.name, strlen(info.name)) == 0 && spec[strlen(info.name)] == ':')
            return info.sparse;
    return false;
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    for (size_t d = 0; tg_device_list(d); d++) {
        tg_device *device = open_device(tg_device_list(d));
        generator g = {2};
        for (const char *const *spec = all_specs(); *spec; spec++) {
            for (const uint64_t *count = lengths(all); *count != UINT64_MAX; count++) {
                uint64_t draw = next_random(&g);
                if (!all && draw % 4 != 0)
                    continue;
                static const shape shapes[] = {GAUSSIAN, LAYERED, SIGNS, ZEROS, CONSTANT, TINY};
                static const char *const kinds[] = {"ef", "ecq:alpha=0.2,beta=0.9", "none", "dgc:momentum=0.9,clip=3"};
                /* The full product is codecs, dtypes, devices and lengths, the kinds of feedback taking turns; long vectors get one
                 * dtype each. The subset has all kinds at each length, and one dtype. */
                const int kind_count = is_sparse(*spec) ? 4 : 3;
                for (int i = 0; i < (!all ? kind_count : *count <= 1025 ? 3 : 1); i++) {
                    const uint64_t kind = all ? (draw >> 24) + (uint64_t)i : (uint64_t)i, dtype = all ? (draw >> 16) + (uint64_t)i : draw >> 16;
                    fused_is_composed(device, *spec, kinds[kind % (uint64_t)kind_count], shapes[(draw >> 8) % 6],
                                      (tg_dtype)(dtype % 3), *count);
                }
                return_restores(device, *spec, *count);
            }
            check_all("%s %s: fused = composed, return", tg_device_list(d), *spec);
            if (sends_exactly(*spec)) {
                for (uint64_t count = 1; count <= 5000; count = count * 5 + 2)
                    sums_are_conserved(device, *spec, count);
                check_all("%s %s: sums conserved", tg_device_list(d), *spec);
            }
            static const uint32_t nonfinite[] = {0x7fc00000, 0xffc00001, 0x7f800000, 0xff800000};
            for (int i = 0; i < (all ? 24 : 4); i++) {
                uint64_t draw = next_random(&g), count = 1 + draw % 9000;
                nonfinite_laws(device, *spec, draw >> 20 & 1 ? "ef" : "ecq:alpha=0.5,beta=0.9", (tg_dtype)(draw >> 24) % 3, count,
                               (draw >> 32) % count, nonfinite[i % 4]);
            }
            check_all("%s %s: non-finite values", tg_device_list(d), *spec);
        }
        tg_device_free(device);
    }
    return finish();
}
