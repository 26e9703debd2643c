/* Laws that every codec keeps, over the table: encoding is deterministic and within its bound, leaves its input alone and does not
 * depend on where the input lies or on the device; decoding is the same by every way; frames are sound. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { GUARD = 64 };

typedef struct encoded {
    unsigned char *bytes;
    tg_encode_report report;
} encoded;

/* Encodes into a buffer of exactly the bound, with guard bytes behind it. */
static encoded encode(tg_codec *codec, const tg_tensor *input, uint64_t step)
{
    size_t bound = tg_frame_bound(codec, input->count);
    encoded e = {.bytes = malloc(bound + GUARD)};
    tg_error error = {""};
    tg_encode_options options = {.draw = {.seed = 42, .step = step, .tensor = 3, .rank = 1}};
    memset(e.bytes, 0xa5, bound + GUARD);
    tg_status status = tg_encode(codec, input, &options, e.bytes, bound, &e.report, &error);
    expect(status == TG_OK, "encode failed: %s", error.message);
    expect(e.report.bytes <= bound, "frame of %zu bytes exceeds its bound of %zu", e.report.bytes, bound);
    for (int i = 0; i < GUARD; i++)
        expect(e.bytes[bound + (size_t)i] == 0xa5, "wrote past the bound");
    return e;
}

static tg_frame frame_of(encoded e) { return (tg_frame){e.bytes, e.report.bytes}; }

static void expect_same_floats(const tg_tensor *a, const tg_tensor *b, const char *what)
{
    size_t size = (size_t)a->count * tg_dtype_size(a->dtype);
    expect(memcmp(a->data, b->data, size) == 0, "%s differ", what);
}

/* decode = decode_add on zeros; with TG_VERIFIED = without; several at once = one after the other; 16-bit outputs are the float32
 * result narrowed once. */
static void decoding_laws(tg_device *device, tg_codec *codec, const tg_tensor *input, encoded first)
{
    encoded second = encode(codec, input, 8);
    tg_frame frames[2] = {frame_of(first), frame_of(second)};
    tg_tensor a = make_tensor(input->count, TG_FLOAT32, 1), b = make_tensor(input->count, TG_FLOAT32, 0);
    tg_error error = {""};
    expect(tg_decode(device, frames, 1, 1, 0, &a, &error) == TG_OK, "decode: %s", error.message);
    memset(b.data, 0xff, (size_t)b.count * 4); /* NaN: every element must be written */
    expect(tg_decode(device, frames, 1, 1, TG_VERIFIED, &b, &error) == TG_OK, "decode verified: %s", error.message);
    expect_same_floats(&a, &b, "decode with and without TG_VERIFIED");
    for (uint64_t i = 0; i < a.count; i++)
        expect(isfinite(((float *)a.data)[i]), "element %llu decodes to a number that is not finite", (unsigned long long)i);

    memset(b.data, 0, (size_t)b.count * 4);
    expect(tg_decode_add(device, frames, 1, 1, 0, &b, &error) == TG_OK, "decode_add: %s", error.message);
    for (uint64_t i = 0; i < a.count; i++)
        expect(((float *)a.data)[i] == ((float *)b.data)[i], "decode_add on zeros is not decode");

    expect(tg_decode_add(device, &frames[1], 1, 0.5f, 0, &b, &error) == TG_OK, "decode_add: %s", error.message);
    memset(a.data, 0, (size_t)a.count * 4);
    expect(tg_decode_add(device, frames, 1, 1, 0, &a, &error) == TG_OK, "decode_add: %s", error.message);
    tg_frame halves[1] = {frames[1]};
    expect(tg_decode_add(device, halves, 1, 0.5f, TG_VERIFIED, &a, &error) == TG_OK, "decode_add: %s", error.message);
    expect_same_floats(&a, &b, "sums");

    expect(tg_decode(device, frames, 2, 0.25f, 0, &a, &error) == TG_OK, "decode of two: %s", error.message);
    expect(tg_decode(device, &frames[0], 1, 0.25f, 0, &b, &error) == TG_OK &&
               tg_decode_add(device, &frames[1], 1, 0.25f, 0, &b, &error) == TG_OK,
           "decode one by one: %s", error.message);
    expect_same_floats(&a, &b, "several frames at once and one by one");

    for (int dtype = TG_FLOAT16; dtype <= TG_BFLOAT16; dtype++) {
        tg_tensor narrow = make_tensor(input->count, (tg_dtype)dtype, 0);
        expect(tg_decode(device, frames, 2, 0.25f, 0, &narrow, &error) == TG_OK, "decode to 16 bits: %s", error.message);
        for (uint64_t i = 0; i < a.count; i++) {
            double wide = (double)((float *)a.data)[i], got = (double)element(&narrow, i);
            /* Nearest even: at most half a unit in the last place (11 or 8 bits), or of the least subnormal; saturation apart. */
            double largest = dtype == TG_FLOAT16 ? 65504 : 3.3895313892515355e38;
            double clipped = fabs(wide) > largest ? copysign(largest, wide) : wide;
            double ulp = dtype == TG_FLOAT16 ? fmax(fabs(clipped) * 0x1p-11, 0x1p-25) : fmax(fabs(clipped) * 0x1p-8, 0x1p-134);
            expect(fabs(got - clipped) <= ulp, "16-bit output %g for %g", got, wide);
        }
        drop(&narrow);
    }
    drop(&a);
    drop(&b);
    free(second.bytes);
}

static void header_laws(tg_device *device, const char *spec, const tg_tensor *input, encoded e)
{
    tg_frame_info info = {.count = 0};
    tg_frame_parts parts;
    tg_error error = {""};
    char text[TG_SPEC_TEXT] = "";
    expect(tg_frame_verify(device, frame_of(e), &info, &error) == TG_OK, "verify: %s", error.message);
    expect(info.count == input->count && info.dtype == input->dtype && info.bytes == e.report.bytes, "header's shape");
    expect(info.draw.seed == 42 && info.draw.step == 7 && info.draw.tensor == 3 && info.draw.rank == 1, "header's draw");
    expect(tg_spec_print(&info.spec, text, sizeof text, NULL) == TG_OK && strcmp(text, spec) == 0, "header's spec: %s", text);
    expect(tg_frame_measure(device, frame_of(e), &parts, &error) == TG_OK, "measure: %s", error.message);
    expect(64 + parts.scale_bytes + parts.index_bytes + parts.value_bytes == e.report.bytes, "parts do not add up");
    expect(parts.selected == e.report.selected, "selected: %llu reported, %llu in the frame",
           (unsigned long long)e.report.selected, (unsigned long long)parts.selected);
}

static void one_case(tg_device *device, tg_device *scalar, const char *spec, shape s, tg_dtype dtype, uint64_t count,
                     size_t offset)
{
    tg_tensor input = make_tensor(count, dtype, offset), copy = make_tensor(count, dtype, 0);
    fill(s, count + 1, &input);
    size_t bytes = (size_t)count * tg_dtype_size(dtype);
    memcpy(copy.data, input.data, bytes);
    tg_codec *codec = make_codec(device, spec, count), *reference = make_codec(scalar, spec, count + 5);

    encoded e = encode(codec, &input, 7), again = encode(reference, &copy, 7);
    expect(e.report.bytes == again.report.bytes && memcmp(e.bytes, again.bytes, e.report.bytes) == 0,
           "not the bytes of cpu/scalar (or of the first time)");
    expect(memcmp(input.data, copy.data, bytes) == 0, "the input was changed");
    header_laws(device, spec, &input, e);
    decoding_laws(device, codec, &input, e);
    free(e.bytes);
    free(again.bytes);
    tg_codec_free(codec);
    tg_codec_free(reference);
    drop(&input);
    drop(&copy);
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    tg_device *scalar = open_device("cpu/scalar");
    for (size_t d = 0; tg_device_list(d); d++) {
        tg_device *device = open_device(tg_device_list(d));
        generator g = {1};
        for (const char *const *spec = all_specs(); *spec; spec++) {
            for (const uint64_t *count = lengths(all); *count != UINT64_MAX; count++) {
                /* The full product is codecs, dtypes, devices and lengths, with two shapes each; long vectors one. The subset takes a
                 * third of the dtypes at each length. */
                for (int dtype = 0; dtype <= 2; dtype++) {
                    uint64_t draw = next_random(&g);
                    if (!all && (draw >> 8) % 3 != 0)
                        continue;
                    one_case(device, scalar, *spec, (shape)(draw % SHAPES), (tg_dtype)dtype, *count, draw >> 32 & 3);
                    if (*count <= 1025)
                        one_case(device, scalar, *spec, (shape)((draw + SHAPES / 2) % SHAPES), (tg_dtype)dtype, *count, draw >> 34 & 3);
                }
            }
            check_all("%s %s", tg_device_list(d), *spec);
        }
        tg_device_free(device);
    }
    tg_device_free(scalar);
    return finish();
}
