/* Any vector through any codec. The first bytes choose the codec, its parameters (from the library's own table, so that
 * a new codec is covered at once), the dtype and the options; the rest are the elements, infinities and NaN among them.
 *
 * Promises: encoding twice, and on every device, gives the same bytes; every frame verifies, fits its bound and decodes
 * to finite values; a vector that is refused leaves the frame alone; feedback in one call and in three steps are the
 * same. */
#include <stdbool.h>

#include "tests/fuzz/fuzz.h"

enum { COUNT_MAX = 1 << 17, TEXT = 256, STEPS = 2 };

/* ---- Choosing ---- */

struct input {
    const uint8_t *at, *end;
};

static unsigned next(struct input *input) { return input->at < input->end ? *input->at++ : 0; }

static const tg_codec_info *codec_at(size_t choice)
{
    static tg_codec_info table[64];
    static size_t count;
    if (count == 0)
        while (count < sizeof table / sizeof *table && tg_codec_list(count, &table[count]) == TG_OK)
            count++;
    return &table[choice % count];
}

/* ",key=value": one of the words of a range "a|b|c", else a number; what does not fit, the parser refuses. */
static void append_parameter(char text[TEXT], const tg_parameter_info *parameter, unsigned choice)
{
    static const char *const numbers[] = {"0",   "1",     "2",      "3",    "7",   "8",    "15",   "16",
                                          "127", "128",   "129",    "500",  "512", "1000", "4096", "32767",
                                          "1e9", "0.001", "0.0001", "0.01", "0.1", "0.5",  "2.5",  "60"};
    const size_t length = strlen(text);
    const char *range = parameter->range, *word = numbers[choice % (sizeof numbers / sizeof *numbers)];
    int word_length = (int)strlen(word);
    if (strchr(range, '|')) {
        unsigned words = 1;
        for (const char *at = range; (at = strchr(at, '|')); at++)
            words++;
        word = range;
        for (unsigned skip = choice % words; skip > 0; skip--)
            word = strchr(word, '|') + 1;
        word_length = (int)strcspn(word, "|");
    }
    snprintf(text + length, TEXT - length, "%c%s=%.*s", strchr(text, ':') ? ',' : ':', parameter->name, word_length,
             word);
}

static bool choose_spec(struct input *input, tg_spec *spec)
{
    const tg_codec_info *info = codec_at(next(input));
    char text[TEXT];
    snprintf(text, sizeof text, "%s", info->name);
    for (size_t i = 0; i < TG_MAX_PARAMETERS; i++) {
        const unsigned choice = next(input);
        if (choice != 0 && i < info->parameter_count) /* 0: the default */
            append_parameter(text, &info->parameters[i], choice - 1);
    }
    return tg_spec_parse(text, spec, NULL) == TG_OK;
}

/* How many elements at least: mostly few, for speed, but now and then enough for a codec's second block or chunk. */
static size_t least_count(unsigned choice)
{
    static const size_t large[] = {70000, 8200, 5000, 2000};
    return choice < 252 ? choice * 4 : large[choice - 252];
}

/* The rest of the input, repeated until there are enough elements. The caller frees `data`. */
static tg_tensor choose_tensor(struct input *input, tg_dtype dtype, size_t least)
{
    const size_t element = tg_dtype_size(dtype);
    size_t given = (size_t)(input->end - input->at) / element;
    size_t count = given;
    if (given > COUNT_MAX)
        count = given = COUNT_MAX;
    if (given > 0 && given < least)
        count = least;
    uint8_t *data = exact_buffer(count * element, 0);
    for (size_t i = 0; i < count; i++)
        memcpy(data + i * element, input->at + i % given * element, element);
    return (tg_tensor){data, count, dtype};
}

static uint64_t count_nonfinite(const tg_tensor *tensor)
{
    const uint32_t exponent = tensor->dtype == TG_FLOAT32 ? 0x7f800000 : tensor->dtype == TG_FLOAT16 ? 0x7c00 : 0x7f80;
    const size_t element = tg_dtype_size(tensor->dtype);
    uint64_t found = 0;
    for (uint64_t i = 0; i < tensor->count; i++) {
        uint32_t wide;
        uint16_t narrow;
        if (element == 4) {
            memcpy(&wide, (const uint8_t *)tensor->data + i * element, sizeof wide);
        } else {
            memcpy(&narrow, (const uint8_t *)tensor->data + i * element, sizeof narrow);
            wide = narrow;
        }
        found += (wide & exponent) == exponent;
    }
    return found;
}

/* ---- One vector, one frame ---- */

static void check_frame(tg_device *device, tg_frame frame, const tg_tensor *input, const tg_spec *spec,
                        const tg_encode_report *report)
{
    tg_frame_info info;
    tg_frame_parts parts;
    tg_error error;
    REQUIRE(tg_frame_verify(device, frame, &info, &error) == TG_OK, "our own frame: %s", error.message);
    REQUIRE(info.count == input->count && info.dtype == input->dtype && info.bytes == frame.size, "header");
    REQUIRE(memcmp(&info.spec, spec, sizeof *spec) == 0, "the frame has another spec");
    REQUIRE(tg_frame_measure(device, frame, &parts, &error) == TG_OK, "%s", error.message);
    REQUIRE(parts.selected == report->selected, "measured %llu selected, reported %llu",
            (unsigned long long)parts.selected, (unsigned long long)report->selected);

    tg_tensor out = {exact_buffer((size_t)input->count * sizeof(float), 0xa5), input->count, TG_FLOAT32};
    REQUIRE(tg_decode(device, &frame, 1, 1.0f, 0, &out, &error) == TG_OK, "%s", error.message);
    REQUIRE(count_nonfinite(&out) == 0, "decodes to a value that is not finite");
    free(out.data);
}

static void check_encode(tg_device *const *devices, size_t device_count, const tg_spec *spec, const tg_tensor *input,
                         const tg_encode_options *options)
{
    const uint64_t nonfinite = count_nonfinite(input);
    uint8_t *first = NULL;
    size_t first_size = 0;
    tg_status first_status = TG_OK;
    for (size_t d = 0; d < device_count; d++) {
        tg_codec *codec;
        tg_error error;
        REQUIRE(tg_codec_create(devices[d], spec, input->count, &codec, &error) == TG_OK, "%s", error.message);
        const size_t bound = tg_frame_bound(codec, input->count);
        REQUIRE(bound > 0, "no bound");
        for (int turn = 0; turn < 2; turn++) {
            uint8_t *bytes = exact_buffer(bound, 0xa5);
            tg_encode_report report = {0};
            const tg_status status = tg_encode(codec, input, options, bytes, bound, &report, &error);
            if (nonfinite == 0 || options->nonfinite == TG_NONFINITE_ZERO)
                REQUIRE(status == TG_OK && report.dropped == nonfinite, "%s, %llu dropped of %llu",
                        tg_status_text(status), (unsigned long long)report.dropped, (unsigned long long)nonfinite);
            else
                REQUIRE(status == TG_NONFINITE, "%s", tg_status_text(status));
            if (status != TG_OK && options->nonfinite == TG_NONFINITE_REJECT)
                for (size_t i = 0; i < bound; i++)
                    REQUIRE(bytes[i] == 0xa5, "refused, and yet byte %zu is written", i);
            REQUIRE(report.bytes <= bound, "more than the bound");
            if (status == TG_OK && turn == 0) {
                uint8_t *copy = exact_buffer(report.bytes, 0); /* nothing behind the frame may be read */
                memcpy(copy, bytes, report.bytes);
                check_frame(devices[d], (tg_frame){copy, report.bytes}, input, spec, &report);
                free(copy);
            }
            if (!first) {
                first = bytes;
                first_size = report.bytes;
                first_status = status;
                continue;
            }
            REQUIRE(status == first_status && report.bytes == first_size && memcmp(bytes, first, first_size) == 0,
                    "%s, turn %d: not the same bytes", tg_device_name(devices[d]), turn);
            free(bytes);
        }
        tg_codec_free(codec);
    }
    free(first);
}

/* ---- Feedback ---- */

static void check_feedback(tg_device *device, const tg_spec *spec, const tg_feedback_spec *kind,
                           const tg_tensor *gradient, tg_encode_options options)
{
    const size_t count = (size_t)gradient->count;
    tg_feedback *fused, *composed;
    tg_codec *codec;
    if (tg_feedback_create(device, kind, spec, count, true, &fused, NULL) != TG_OK)
        return; /* dgc over a quantiser */
    REQUIRE(tg_feedback_create(device, kind, spec, count, true, &composed, NULL) == TG_OK, "only once");
    REQUIRE(tg_codec_create(device, spec, count, &codec, NULL) == TG_OK, "codec");
    const size_t bound = tg_frame_bound(codec, count);
    uint8_t *one = exact_buffer(bound, 0), *other = exact_buffer(bound, 0);
    const tg_tensor u = {exact_buffer(count * sizeof(float), 0), count, TG_FLOAT32};

    for (unsigned step = 0; step < STEPS; step++) {
        tg_encode_report fused_report, report;
        tg_error error;
        options.draw.step = step;
        const tg_status status = tg_encode_with_feedback(codec, fused, gradient, &options, one, bound, &fused_report,
                                                         &error);
        const tg_status compensated = tg_feedback_compensate(composed, gradient, &u, &error);
        if (compensated != TG_OK) { /* gradient plus residual overflowed: only the fused call may drop such elements */
            REQUIRE(status == (options.nonfinite == TG_NONFINITE_ZERO ? TG_OK : TG_NONFINITE), "fused %s",
                    tg_status_text(status));
            break;
        }
        REQUIRE(status == TG_OK, "%s", error.message);
        REQUIRE(tg_encode(codec, &u, &options, other, bound, &report, &error) == TG_OK, "%s", error.message);
        REQUIRE(report.bytes == fused_report.bytes && memcmp(one, other, report.bytes) == 0,
                "step %u: fused and composed frames differ", step);
        REQUIRE(tg_feedback_update(composed, gradient, (tg_frame){other, report.bytes}, &error) == TG_OK, "%s",
                error.message);
        REQUIRE(memcmp(residual_of(fused), residual_of(composed), count * sizeof(float)) == 0,
                "step %u: fused and composed residuals differ", step);
    }
    free(u.data);
    free(one);
    free(other);
    tg_codec_free(codec);
    tg_feedback_free(fused);
    tg_feedback_free(composed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const tg_feedback_spec kinds[] = {
        {.kind = TG_FEEDBACK_EF, .alpha = 1, .beta = 1},
        {.kind = TG_FEEDBACK_ECQ, .alpha = 0.2f, .beta = 0.9f},
        {.kind = TG_FEEDBACK_DGC, .momentum = 0.9f, .clip = 1},
        {.kind = TG_FEEDBACK_DGC, .momentum = 0.5f},
    };
    struct input input = {data, data + size};
    tg_spec spec;
    if (!choose_spec(&input, &spec))
        return 0;
    const unsigned kind = next(&input), draw = next(&input);
    const size_t least = least_count(next(&input));
    const tg_encode_options options = {
        .draw = {.seed = draw, .step = draw / 3, .tensor = draw % 5, .rank = draw % 7},
        .nonfinite = (tg_nonfinite)(kind / 4 % 3),
        .no_checksum = kind / 16 % 2,
    };
    tg_device *devices[FUZZ_DEVICES_MAX];
    const size_t device_count = open_devices(devices);
    const tg_tensor tensor = choose_tensor(&input, (tg_dtype)(kind % 3), least);
    check_encode(devices, device_count, &spec, &tensor, &options);
    if (tensor.dtype == TG_FLOAT32 && count_nonfinite(&tensor) == 0)
        check_feedback(devices[0], &spec, &kinds[kind / 32 % 4], &tensor, options);
    free(tensor.data);
    return 0;
}
