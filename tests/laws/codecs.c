/* Laws that every codec keeps, over the table: encoding is deterministic and within its bound, leaves its input alone
 * and does not depend on where the input lies or on the device; decoding is the same by every way; frames are sound. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { GUARD = 64, LONG = 50000 };

typedef struct encoded {
    unsigned char *bytes;
    tg_encode_report report;
} encoded;

/* Frames go where other frames have been, so whatever an encoder leaves unwritten shows. */
static struct {
    unsigned char *bytes;
    size_t size;
} buffers[3];

/* Encodes into a buffer of exactly the bound, with guard bytes behind it. */
static encoded encode(tg_codec *codec, const tg_tensor *input, uint64_t step, int buffer)
{
    unsigned char guard[GUARD];
    memset(guard, 0xa5, GUARD);
    const size_t bound = tg_frame_bound(codec, input->count);
    if (buffers[buffer].size < bound + GUARD) {
        free(buffers[buffer].bytes);
        buffers[buffer].size = bound + GUARD;
        buffers[buffer].bytes = malloc(bound + GUARD);
        memset(buffers[buffer].bytes, 0xa5 + buffer, bound + GUARD);
    }
    /* At the end of the buffer, so that a sanitizer sees what goes beyond. */
    encoded e = {.bytes = buffers[buffer].bytes + buffers[buffer].size - bound - GUARD};
    memcpy(e.bytes + bound, guard, GUARD);
    tg_error error = {""};
    tg_encode_options options = {.draw = {.seed = 42, .step = step, .tensor = 3, .rank = 1}};
    tg_status status = tg_encode(codec, input, &options, e.bytes, bound, &e.report, &error);
    expect(status == TG_OK, "encode failed: %s", error.message);
    expect(e.report.bytes <= bound, "frame of %zu bytes exceeds its bound of %zu", e.report.bytes, bound);
    expect(memcmp(e.bytes + bound, guard, GUARD) == 0, "wrote past the bound");
    return e;
}

static tg_frame frame_of(encoded e) { return (tg_frame){e.bytes, e.report.bytes}; }

static void expect_same_floats(const tg_tensor *a, const tg_tensor *b, const char *what)
{
    size_t size = (size_t)a->count * tg_dtype_size(a->dtype);
    expect(memcmp(a->data, b->data, size) == 0, "%s differ", what);
}

static void expect_finite(const tg_tensor *t)
{
    const float *values = t->data;
    bool finite = true;
    for (uint64_t i = 0; i < t->count; i++)
        finite &= fabsf(values[i]) <= FLT_MAX;
    expect(finite, "decodes to a number that is not finite");
}

/* Equal as numbers: a zero may have another sign. */
static void expect_equal_floats(const tg_tensor *a, const tg_tensor *b, const char *what)
{
    const float *x = a->data, *y = b->data;
    bool equal = true;
    for (uint64_t i = 0; i < a->count; i++)
        equal &= x[i] == y[i];
    expect(equal, "%s", what);
}

/* Nearest even: at most half a unit in the last place (11 or 8 bits), or of the least subnormal; saturation apart. */
static void expect_narrowed(const tg_tensor *narrow, const tg_tensor *wide)
{
    const bool is_half = narrow->dtype == TG_FLOAT16;
    const double largest = is_half ? 65504 : 3.3895313892515355e38;
    const double relative = is_half ? 0x1p-11 : 0x1p-8, least = is_half ? 0x1p-25 : 0x1p-134;
    const float *values = wide->data, *table = widened(narrow->dtype);
    const uint16_t *halves = narrow->data;
    for (uint64_t i = 0; i < wide->count; i++) {
        const double got = (double)table[halves[i]], size = fabs((double)values[i]),
                     clipped = size > largest ? largest : size;
        const double ulp = clipped * relative > least ? clipped * relative : least;
        if (!(fabs(got - copysign(clipped, (double)values[i])) <= ulp))
            expect(false, "16-bit output %g for %g", got, (double)values[i]);
    }
}

static void expect_done(tg_status status, const tg_error *error, const char *what)
{
    expect(status == TG_OK, "%s: %s", what, error->message);
}

/* decode = decode_add on zeros; with TG_VERIFIED = without. */
static void verified_or_not(tg_device *device, const tg_frame *frames, uint64_t count)
{
    tg_tensor a = make_tensor(count, TG_FLOAT32, 1), b = make_tensor(count, TG_FLOAT32, 0);
    const size_t bytes = (size_t)count * sizeof(float);
    tg_error error = {""};
    expect_done(tg_decode(device, frames, 1, 1, 0, &a, &error), &error, "decode");
    memset(b.data, 0xff, bytes); /* NaN: every element must be written */
    expect_done(tg_decode(device, frames, 1, 1, TG_VERIFIED, &b, &error), &error, "decode verified");
    expect_same_floats(&a, &b, "decode with and without TG_VERIFIED");
    expect_finite(&a);

    memset(b.data, 0, bytes);
    expect_done(tg_decode_add(device, frames, 1, 1, TG_VERIFIED, &b, &error), &error, "decode_add");
    expect_equal_floats(&a, &b, "decode_add on zeros is not decode");

    memcpy(a.data, b.data, bytes);
    expect_done(tg_decode_add(device, &frames[1], 1, 0.5f, 0, &a, &error), &error, "decode_add");
    expect_done(tg_decode_add(device, &frames[1], 1, 0.5f, TG_VERIFIED, &b, &error), &error, "decode_add verified");
    expect_same_floats(&a, &b, "sums with and without TG_VERIFIED");
    drop(&a);
    drop(&b);
}

/* Several at once = one after the other. */
static void together_or_not(tg_device *device, const tg_frame *frames, uint64_t count)
{
    tg_tensor a = make_tensor(count, TG_FLOAT32, 0), b = make_tensor(count, TG_FLOAT32, 3);
    tg_error error = {""};
    expect_done(tg_decode(device, frames, 2, 0.25f, 0, &a, &error), &error, "decode of two");
    expect_done(tg_decode(device, &frames[0], 1, 0.25f, TG_VERIFIED, &b, &error), &error, "decode of the first");
    expect_done(tg_decode_add(device, &frames[1], 1, 0.25f, TG_VERIFIED, &b, &error), &error, "decode of the second");
    expect_same_floats(&a, &b, "several frames at once and one by one");
    drop(&a);
    drop(&b);
}

/* 16-bit outputs are the float32 result narrowed once. */
static void narrowed_once(tg_device *device, const tg_frame *frames, uint64_t count)
{
    tg_tensor wide = make_tensor(count, TG_FLOAT32, 0);
    tg_error error = {""};
    expect_done(tg_decode(device, frames, 2, 0.25f, TG_VERIFIED, &wide, &error), &error, "decode of two");
    for (int dtype = TG_FLOAT16; dtype <= TG_BFLOAT16; dtype++) {
        tg_tensor narrow = make_tensor(count, (tg_dtype)dtype, 0);
        expect_done(tg_decode(device, frames, 2, 0.25f, TG_VERIFIED, &narrow, &error), &error, "decode to 16 bits");
        expect_narrowed(&narrow, &wide);
        drop(&narrow);
    }
    drop(&wide);
}

static void header_laws(tg_device *device, const char *spec, const tg_tensor *input, encoded e)
{
    tg_frame_info info = {.count = 0};
    tg_frame_parts parts;
    tg_error error = {""};
    char text[TG_SPEC_TEXT] = "";
    expect(tg_frame_verify(device, frame_of(e), &info, &error) == TG_OK, "verify: %s", error.message);
    expect(info.count == input->count && info.dtype == input->dtype && info.bytes == e.report.bytes, "header's shape");
    expect(info.draw.seed == 42 && info.draw.step == 7 && info.draw.tensor == 3 && info.draw.rank == 1,
           "header's draw");
    expect(tg_spec_print(&info.spec, text, sizeof text, NULL) == TG_OK && strcmp(text, spec) == 0, "header's spec: %s",
           text);
    expect(tg_frame_measure(device, frame_of(e), &parts, &error) == TG_OK, "measure: %s", error.message);
    expect(64 + parts.scale_bytes + parts.index_bytes + parts.value_bytes == e.report.bytes, "parts do not add up");
    expect(parts.selected == e.report.selected, "selected: %llu reported, %llu in the frame",
           (unsigned long long)e.report.selected, (unsigned long long)parts.selected);
}

typedef struct setting {
    const char *spec;
    tg_dtype dtype;
    uint64_t count, turn, draw; /* the draw decides shape, start and values */
} setting;

/* On all devices. The scalar one has a workspace that is larger than need be, and its frames are the measure. */
static void one_case(tg_device *const *devices, const setting *c)
{
    static void (*const laws[3])(tg_device *, const tg_frame *, uint64_t) = {verified_or_not, together_or_not,
                                                                             narrowed_once};
    tg_tensor input = make_tensor(c->count, c->dtype, c->draw >> 32 & 3), copy = make_tensor(c->count, c->dtype, 0);
    const shape s = (shape)(c->draw % SHAPES);
    cut(s, c->draw >> 40, &input);
    size_t bytes = (size_t)c->count * tg_dtype_size(c->dtype);
    memcpy(copy.data, input.data, bytes);
    now_at(tg_device_name(devices[0]), s, c->count);
    tg_codec *reference = make_codec(devices[0], c->spec, c->count + 5);
    const encoded first = encode(reference, &copy, 7, 0), second = encode(reference, &copy, 8, 1);
    const tg_frame frames[2] = {frame_of(first), frame_of(second)};

    for (size_t d = 0; devices[d]; d++) {
        now_at(tg_device_name(devices[d]), s, c->count);
        tg_codec *codec = make_codec(devices[d], c->spec, c->count);
        encoded e = encode(codec, &input, 7, 2);
        expect(e.report.bytes == first.report.bytes && memcmp(e.bytes, first.bytes, e.report.bytes) == 0,
               "not the bytes of cpu/scalar (or of the first time)");
        expect(memcmp(input.data, copy.data, bytes) == 0, "the input was changed");
        header_laws(devices[d], c->spec, &input, e);
        /* Long vectors: one of the three ways for each dtype, another one at the next length. */
        for (uint64_t i = 0; i < 3; i++)
            if (c->count < LONG || i == ((uint64_t)c->dtype + c->turn) % 3)
                laws[i](devices[d], frames, c->count);
        tg_codec_free(codec);
    }
    tg_codec_free(reference);
    drop(&input);
    drop(&copy);
}

/* The full product is codecs, dtypes, devices and lengths; shapes, starts and values are drawn for each. The subset
 * takes a third of the dtypes at each length, with two shapes. */
int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    tg_device **devices = open_devices();
    for (const char *const *spec = all_specs(); *spec; spec++) {
        generator g = generator_for(*spec, 1);
        for (int dtype = 0; dtype <= 2; dtype++) {
            setting c = {.spec = *spec, .dtype = (tg_dtype)dtype};
            for (const uint64_t *count = lengths(all); *count != UINT64_MAX; count++, c.turn++) {
                c.draw = next_random(&g);
                c.count = *count;
                if (!all && (c.draw >> 8) % 3 != 0)
                    continue;
                one_case(devices, &c);
                c.draw += SHAPES / 2 + (UINT64_C(1) << 40);
                if (!all)
                    one_case(devices, &c);
            }
            check_all("%s, dtype %d", *spec, dtype);
        }
    }
    close_devices(devices);
    return finish();
}
