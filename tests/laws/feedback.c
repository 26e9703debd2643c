/* Laws of feedback, over the table: fused equals composed to the bit; sent and kept make up u; a returned frame
 * restores u; sums over steps are conserved; a refused gradient changes nothing; one put right after the fact is right
 * to rounding. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

static bool sends_exactly(const char *spec) { return strstr(spec, "values=fp32") || strncmp(spec, "none", 4) == 0; }

static tg_feedback *make_feedback(tg_device *device, const char *text, const tg_codec *codec, uint64_t count)
{
    tg_feedback_spec spec;
    tg_feedback *feedback = NULL;
    tg_error error = {""};
    expect(tg_feedback_parse(text, &spec, &error) == TG_OK, "parse %s: %s", text, error.message);
    expect(tg_feedback_create(device, &spec, tg_codec_spec(codec), count, true, &feedback, &error) == TG_OK,
           "create: %s", error.message);
    return feedback;
}

/* Gradients, and how many steps are made with them, from a residual that is zero or not. */
typedef struct setting {
    shape shape;
    tg_dtype dtype;
    uint64_t count, seed, steps;
    bool midway;
} setting;

/* Midway: with a residual, and a momentum, as if steps had been made, which a few steps cannot bring about. */
static void begin(tg_feedback *f, shape s, const setting *c)
{
    float *const parts[2] = {residual_of(f), momentum_of(f)};
    for (uint64_t i = 0; c->midway && i < 2; i++)
        if (parts[i])
            cut(s, c->seed + 50 + i, &(tg_tensor){.data = parts[i], .count = c->count, .dtype = TG_FLOAT32});
    set_residual(f, parts[0]);
    if (parts[1])
        set_momentum(f, parts[1]);
}

/* sent + kept = u. */
static void expect_conserved(const float *sent, const float *kept, const float *u, uint64_t count, bool exactly)
{
    bool same = true, near = true;
    for (uint64_t i = 0; i < count; i++) {
        /* kept = u - sent is rounded once, to half a unit in the last place of the larger of the two. */
        const float larger = fabsf(u[i]) > fabsf(sent[i]) ? fabsf(u[i]) : fabsf(sent[i]);
        const double unit = (double)larger * 0x1p-23 > 0x1p-149 ? (double)larger * 0x1p-23 : 0x1p-149;
        same &= sent[i] + kept[i] == u[i];
        near &= fabs((double)sent[i] + (double)kept[i] - (double)u[i]) <= unit;
    }
    expect(same || !exactly, "sent + kept is not u");
    expect(near, "sent + kept is far from u");
}

/* Both ways of making steps, side by side. */
static void fused_is_composed(tg_device *device, const char *spec, const char *feedback_text, setting c)
{
    const bool narrows = c.dtype != TG_FLOAT32 && strncmp(spec, "none", 4) == 0,
               plain = strcmp(feedback_text, "ef") == 0;
    const bool exact = sends_exactly(spec) && c.dtype == TG_FLOAT32;
    const uint64_t count = c.count;
    now_at(tg_device_name(device), c.shape, count);
    tg_codec *codec = make_codec(device, spec, count);
    tg_feedback *fused = make_feedback(device, feedback_text, codec, count);
    tg_feedback *composed = make_feedback(device, feedback_text, codec, count);
    tg_tensor g = make_tensor(count, c.dtype, 1), u = make_tensor(count, TG_FLOAT32, 0),
              sent = make_tensor(count, TG_FLOAT32, 0);
    size_t bound = tg_frame_bound(codec, count), floats = (size_t)count * sizeof(float);
    unsigned char *a = malloc(bound), *b = malloc(bound);
    tg_error error = {""};
    begin(fused, c.shape, &c);
    begin(composed, c.shape, &c);
    for (uint64_t step = 0; fused && composed && step < c.steps; step++) {
        tg_encode_options options = {.draw = {.seed = 1, .step = step}};
        tg_encode_report ra, rb;
        cut(c.shape, c.seed + step, &g);
        expect(tg_feedback_compensate(composed, &g, &u, &error) == TG_OK, "compensate: %s", error.message);
        expect(tg_encode_with_feedback(codec, fused, &g, &options, a, bound, &ra, &error) == TG_OK, "fused: %s",
               error.message);
        expect(tg_encode(codec, &u, &options, b, bound, &rb, &error) == TG_OK, "composed: %s", error.message);
        /* The headers differ in dtype alone, and so in the checksum, where the gradient has 16 bits; `none` then
         * narrows. */
        tg_frame frame = {a, ra.bytes}, other = {b, rb.bytes};
        if (c.dtype == TG_FLOAT32)
            expect(ra.bytes == rb.bytes && memcmp(a, b, ra.bytes) == 0, "step %d: fused and composed frames differ",
                   (int)step);
        else if (!narrows)
            expect(ra.bytes == rb.bytes && memcmp(a + 64, b + 64, ra.bytes - 64) == 0, "step %d: payloads differ",
                   (int)step);
        else
            other = frame;
        expect(tg_feedback_update(composed, &g, other, &error) == TG_OK, "update: %s", error.message);
        const float *h = residual_of(fused);
        expect(memcmp(h, residual_of(composed), floats) == 0, "step %d: residuals differ", (int)step);
        if (momentum_of(fused))
            expect(memcmp(momentum_of(fused), momentum_of(composed), floats) == 0, "momenta differ");

        expect(tg_decode(device, &frame, 1, 1, 0, &sent, &error) == TG_OK, "decode: %s", error.message);
        if (plain)
            expect_conserved(sent.data, h, u.data, count, exact);
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
static void return_restores(tg_device *device, const char *spec, setting c)
{
    const bool exact = sends_exactly(spec) && c.dtype == TG_FLOAT32;
    const uint64_t count = c.count;
    now_at(tg_device_name(device), c.shape, count);
    tg_codec *codec = make_codec(device, spec, count);
    tg_feedback *f = make_feedback(device, "ef", codec, count);
    tg_tensor g = make_tensor(count, c.dtype, 0), u = make_tensor(count, TG_FLOAT32, 0),
              sent = make_tensor(count, TG_FLOAT32, 0);
    size_t bound = tg_frame_bound(codec, count);
    unsigned char *bytes = malloc(bound);
    uint32_t *applied = malloc((size_t)(count / 2 + 1) * sizeof *applied);
    float *after = malloc((size_t)count * sizeof *after + 1);
    tg_error error = {""};
    tg_encode_report report;
    begin(f, c.shape, &c);
    for (uint64_t step = 0; step < c.steps; step++) {
        tg_encode_options options = {.draw = {.step = step}};
        cut(c.shape, c.seed + step, &g);
        expect(tg_feedback_compensate(f, &g, &u, &error) == TG_OK &&
                   tg_encode_with_feedback(codec, f, &g, &options, bytes, bound, &report, &error) == TG_OK,
               "step: %s", error.message);
    }
    tg_frame frame = {bytes, report.bytes};
    expect(tg_decode(device, &frame, 1, 1, 0, &sent, &error) == TG_OK, "decode: %s", error.message);
    memcpy(after, residual_of(f), (size_t)count * sizeof *after);
    size_t applied_count = 0; /* every other index was applied */
    for (uint32_t i = 1; i < count; i += 2)
        applied[applied_count++] = i;
    expect(tg_feedback_return(f, frame, applied, applied_count, &error) == TG_OK, "return: %s", error.message);
    const float *sv = sent.data, *uv = u.data, *h = residual_of(f);
    bool partial = true, same = true, near = true;
    for (uint64_t i = 0; i < count; i++)
        partial &= h[i] == (i % 2 ? after[i] : after[i] + sv[i]);
    expect(partial, "partial return");
    set_residual(f, after);
    expect(tg_feedback_return(f, frame, NULL, 0, &error) == TG_OK, "return: %s", error.message);
    h = residual_of(f);
    for (uint64_t i = 0; i < count; i++) {
        const float larger = fabsf(uv[i]) > fabsf(sv[i]) ? fabsf(uv[i]) : fabsf(sv[i]);
        const double unit = (double)larger * 0x1p-23 > 0x1p-149 ? (double)larger * 0x1p-23 : 0x1p-149;
        same &= h[i] == uv[i];
        near &= fabs((double)h[i] - (double)uv[i]) <= 2 * unit; /* two roundings: of u - sent, and of the sum */
    }
    expect(same || !exact, "a returned frame does not restore u");
    expect(near, "a returned frame is far from u");
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
static void sums_are_conserved(tg_device *device, const char *spec, setting c)
{
    const uint64_t count = c.count;
    now_at(tg_device_name(device), GRID, count);
    tg_codec *codec = make_codec(device, spec, count);
    tg_feedback *f = make_feedback(device, "ef", codec, count);
    tg_tensor g = make_tensor(count, c.dtype, 0), total = make_tensor(count, TG_FLOAT32, 0);
    size_t bound = tg_frame_bound(codec, count);
    unsigned char *bytes = malloc(bound);
    const float *table = c.dtype == TG_FLOAT32 ? NULL : widened(c.dtype);
    double *sum = calloc((size_t)count + 1, sizeof *sum);
    memset(total.data, 0, (size_t)count * 4);
    tg_error error = {""};
    begin(f, GRID, &c);
    const float *kept = residual_of(f), *sent = total.data;
    for (uint64_t i = 0; i < count; i++)
        sum[i] = (double)kept[i];
    for (uint64_t step = 0; step < c.steps; step++) {
        tg_encode_options options = {.draw = {.step = step}};
        tg_encode_report report;
        cut(GRID, c.seed + step, &g);
        for (uint64_t i = 0; i < count; i++)
            sum[i] += (double)(table ? table[((uint16_t *)g.data)[i]] : ((float *)g.data)[i]);
        expect(tg_encode_with_feedback(codec, f, &g, &options, bytes, bound, &report, &error) == TG_OK, "step: %s",
               error.message);
        tg_frame frame = {bytes, report.bytes};
        expect(tg_decode_add(device, &frame, 1, 1, 0, &total, &error) == TG_OK, "decode_add: %s", error.message);
    }
    bool conserved = true;
    kept = residual_of(f);
    for (uint64_t i = 0; i < count; i++)
        conserved &= (double)sent[i] + (double)kept[i] == sum[i];
    expect(conserved, "mass lost");
    tg_feedback_free(f);
    tg_codec_free(codec);
    drop(&g);
    drop(&total);
    free(bytes);
    free(sum);
}

/* The three policies. */
static void nonfinite_laws(tg_device *device, const char *spec, const char *feedback_text, setting c, uint64_t bad,
                           uint32_t bits)
{
    const tg_dtype dtype = c.dtype;
    const uint64_t count = c.count;
    now_at(tg_device_name(device), GAUSSIAN, count);
    tg_codec *codec = make_codec(device, spec, count);
    tg_feedback *f = make_feedback(device, feedback_text, codec, count),
                *clean = make_feedback(device, feedback_text, codec, count);
    tg_tensor g = make_tensor(count, dtype, 0);
    size_t bound = tg_frame_bound(codec, count), floats = (size_t)count * sizeof(float);
    unsigned char *bytes = malloc(bound), *other = malloc(bound);
    float *before = malloc(floats), size = 0;
    tg_encode_report report, clean_report;
    tg_error error = {""};
    begin(f, GAUSSIAN, &c);
    begin(clean, GAUSSIAN, &c);
    for (uint64_t step = 0; step < c.steps; step++) {
        cut(GAUSSIAN, c.seed + step, &g);
        expect(tg_encode_with_feedback(codec, f, &g, NULL, bytes, bound, &report, &error) == TG_OK, "step: %s",
               error.message);
        expect(tg_encode_with_feedback(codec, clean, &g, NULL, other, bound, &clean_report, &error) == TG_OK,
               "step: %s", error.message);
    }
    memcpy(before, residual_of(f), floats);
    for (uint64_t i = 0; i < count; i++)
        size = fabsf(before[i]) > size ? fabsf(before[i]) : size;
    cut(GAUSSIAN, c.seed + 99, &g);
    if (dtype == TG_FLOAT32)
        memcpy((float *)g.data + bad, &bits, 4);
    else
        ((uint16_t *)g.data)[bad] = (uint16_t)(dtype == TG_FLOAT16 ? (bits >> 16 & 0x8000) | 0x7c00 | (bits & 1)
                                                                   : bits >> 16);

    char index[32];
    snprintf(index, sizeof index, "element %llu ", (unsigned long long)bad);
    memset(bytes, 0x77, bound);
    expect(tg_encode_with_feedback(codec, f, &g, NULL, bytes, bound, &report, &error) == TG_NONFINITE,
           "reject accepts");
    expect(strstr(error.message, index) != NULL, "reject does not name the index: %s", error.message);
    expect(bytes[0] == 0x77 && memcmp(bytes, bytes + 1, bound - 1) == 0, "reject writes to the frame");
    expect(report.status == TG_NONFINITE && report.bytes == 0, "the report does not say what was refused");
    expect(memcmp(before, residual_of(f), floats) == 0, "reject changes the residual");

    tg_encode_options trust = {.nonfinite = TG_NONFINITE_TRUST};
    expect(tg_encode_with_feedback(codec, f, &g, &trust, bytes, bound, &report, &error) == TG_NONFINITE,
           "trust accepts");
    expect(strstr(error.message, index) != NULL, "trust does not name the index: %s", error.message);
    /* A few roundings, each of numbers no larger than residual and gradient together; ecq divides by beta. */
    float rounding = (size + 8) * 0x1p-20f;
    float off = 0;
    const float *h = residual_of(f);
    for (uint64_t i = 0; i < count; i++)
        off = fabsf(h[i] - before[i]) <= off ? off : fabsf(h[i] - before[i]); /* NaN, too */
    expect(off <= rounding, "trust leaves the residual off by %g", (double)off);
    set_residual(f, before);

    tg_encode_options zero = {.nonfinite = TG_NONFINITE_ZERO};
    expect(tg_encode_with_feedback(codec, f, &g, &zero, bytes, bound, &report, &error) == TG_OK, "zero: %s",
           error.message);
    expect(report.dropped == 1, "zero counts %d", (int)report.dropped);
    if (dtype == TG_FLOAT32)
        ((float *)g.data)[bad] = 0;
    else
        ((uint16_t *)g.data)[bad] = 0;
    expect(tg_encode_with_feedback(codec, clean, &g, NULL, other, bound, &clean_report, &error) == TG_OK, "zero: %s",
           error.message);
    expect(report.bytes == clean_report.bytes && memcmp(bytes, other, report.bytes) == 0,
           "zero is not the frame of a zero");
    expect(memcmp(residual_of(f), residual_of(clean), floats) == 0, "zero is not the residual of a zero");
    tg_feedback_free(f);
    tg_feedback_free(clean);
    tg_codec_free(codec);
    drop(&g);
    free(bytes);
    free(other);
    free(before);
}

static const char *const kinds[] = {"ef", "ecq:alpha=0.2,beta=0.9", "none", "dgc:momentum=0.9,clip=3"};
static const shape shapes[] = {GAUSSIAN, LAYERED, SIGNS, ZEROS, CONSTANT, TINY};

static void nonfinite_somewhere(tg_device *device, const char *spec, setting c, uint64_t draw)
{
    static const uint32_t bits[] = {0x7fc00000, 0xffc00001, 0x7f800000, 0xff800000};
    nonfinite_laws(device, spec, draw & 1 ? "ef" : "ecq:alpha=0.5,beta=0.9", c, (draw >> 32) % c.count,
                   bits[draw >> 1 & 3]);
}

/* Some lengths, with every kind of feedback and more steps. */
static void in_depth(tg_device *device, const char *spec, generator *g)
{
    const int kind_count = is_sparsifier(spec) ? 4 : 3;
    for (const uint64_t *count = lengths(false); *count != UINT64_MAX; count++) {
        const uint64_t draw = next_random(g);
        if (draw % (EMULATED ? 16 : 4) != 0)
            continue;
        setting c = {.shape = shapes[(draw >> 8) % 6],
                     .dtype = (tg_dtype)((draw >> 16) % 3),
                     .count = *count,
                     .seed = draw >> 32,
                     .steps = 6};
        for (int kind = 0; kind < kind_count; kind++)
            fused_is_composed(device, spec, kinds[kind], c);
        return_restores(device, spec, (setting){.shape = LAYERED, .count = *count, .steps = 3});
    }
    check_all("%s %s: fused = composed, return", tg_device_name(device), spec);
    if (sends_exactly(spec)) {
        for (uint64_t count = 1; count <= 5000; count = count * 5 + 2)
            sums_are_conserved(device, spec, (setting){.count = count, .steps = EMULATED ? 10 : 50});
        check_all("%s %s: sums conserved", tg_device_name(device), spec);
    }
    for (uint64_t i = 0; i < 4; i++) {
        const uint64_t draw = next_random(g);
        nonfinite_somewhere(device, spec,
                            (setting){.dtype = (tg_dtype)((draw >> 24) % 3), .count = 1 + draw % 9000, .steps = 3},
                            (draw & ~UINT64_C(6)) | i << 1);
    }
    check_all("%s %s: non-finite values", tg_device_name(device), spec);
}

/* Every length with every dtype; kinds of feedback, shapes and places of what is not finite are drawn. What is not
 * finite comes to one dtype at each length, in turn. Of long vectors, each dtype has the first law and one other,
 * another one at the next length. */
static void at_all_lengths(tg_device *device, const char *spec, tg_dtype dtype, generator *g)
{
    const uint64_t kind_count = is_sparsifier(spec) ? 4 : 3;
    const bool exact = sends_exactly(spec);
    uint64_t turn = (uint64_t)dtype;
    for (const uint64_t *count = lengths(true); *count != UINT64_MAX; count++, turn++) {
        const uint64_t draw = next_random(g);
        const bool is_long = *count > 1025;
        setting c = {.shape = shapes[(draw >> 8) % 6], .dtype = dtype, .count = *count, .seed = draw >> 40};
        c.midway = is_long || draw >> 24 & 1;
        c.steps = c.midway ? 1 : 2;
        fused_is_composed(device, spec, kinds[(draw >> 16) % kind_count], c);
        c.midway = true;
        c.steps = 1;
        if (!is_long || turn % 3 == 0)
            return_restores(device, spec, c);
        c.steps = is_long ? 1 : 2;
        if (exact && (!is_long || turn % 3 == 1))
            sums_are_conserved(device, spec, c);
        c.steps = 0;
        if (*count > 0 && turn % 3 == 2)
            nonfinite_somewhere(device, spec, c, draw);
    }
    check_all("%s %s, dtype %d: all laws at all lengths", tg_device_name(device), spec, (int)dtype);
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    tg_device **devices = open_devices();
    for (size_t d = 0; devices[d]; d++) {
        for (const char *const *spec = all_specs(); *spec; spec++) {
            generator g = generator_for(*spec, 2 + d); /* other draws for each device */
            in_depth(devices[d], *spec, &g);
            for (int dtype = 0; all && dtype <= 2; dtype++)
                at_all_lengths(devices[d], *spec, (tg_dtype)dtype, &g);
        }
    }
    close_devices(devices);
    return finish();
}
