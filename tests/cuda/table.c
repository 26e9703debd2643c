/* Line by line, that a device does nothing less than it says: every codec with every combination of its words (coding,
 * values, norm, range), every feedback and dtype either gives the bytes of cpu/scalar, or is refused with a sentence,
 * which is printed.
 *
 *     table [--subset|--all [PART/PARTS]] [--device NAME] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

static unsigned part = 1, parts = 1;
static unsigned turn, refused_count;
enum { MOST_SPECS = 4096 };
static tg_spec seen[MOST_SPECS];
static size_t seen_count;

/* A device alone, or cpu/scalar. */
typedef struct maker {
    tg_codec *codec;
    tg_feedback *feedback;
    uint8_t *frame;
    tg_status status;
    tg_error error;
    tg_encode_report report;
} maker;

static maker make(tg_device *device, const tg_spec *spec, const char *feedback, uint64_t count)
{
    maker m = {.status = TG_OK};
    tg_feedback_spec f;
    if (tg_feedback_parse(feedback, &f, NULL) != TG_OK)
        abort();
    m.status = tg_codec_create(device, spec, count, &m.codec, &m.error);
    if (m.status == TG_OK)
        m.status = tg_feedback_create(device, &f, spec, count, true, &m.feedback, &m.error);
    m.frame = m.status == TG_OK ? malloc(tg_frame_bound(m.codec, count)) : NULL;
    return m;
}

static void drop_maker(maker *m)
{
    tg_feedback_free(m->feedback);
    tg_codec_free(m->codec);
    free(m->frame);
}

static void encode(maker *m, const tg_tensor *gradient, uint64_t step)
{
    const tg_encode_options options = {.draw = {.seed = 11, .step = step}};
    if (m->status == TG_OK)
        m->status = tg_encode_with_feedback(m->codec, m->feedback, gradient, &options, m->frame,
                                            tg_frame_bound(m->codec, gradient->count), &m->report, &m->error);
}

static void decode(tg_device *device, tg_device *scalar, const maker *m, uint64_t count, tg_dtype dtype)
{
    tg_tensor a = make_tensor(count, dtype, 0), b = make_tensor(count, dtype, 0);
    const tg_frame frame = {m->frame, m->report.bytes};
    tg_error error = {""};
    fill(GAUSSIAN, 2, &a);
    fill(GAUSSIAN, 2, &b);
    expect(tg_frame_verify(device, frame, NULL, &error) == TG_OK, "verify: %s", error.message);
    expect(tg_decode_add(device, &frame, 1, 0.5f, 0, &a, &error) == TG_OK, "decode: %s", error.message);
    expect(tg_decode_add(scalar, &frame, 1, 0.5f, 0, &b, &error) == TG_OK, "decode: %s", error.message);
    expect(memcmp(a.data, b.data, (size_t)count * tg_dtype_size(dtype)) == 0, "decodes to other bits");
    drop(&a);
    drop(&b);
}

/* Two steps; the second has a residual. */
static void compare(tg_device *device, tg_device *scalar, maker *a, maker *b, uint64_t count, tg_dtype dtype, shape s)
{
    tg_tensor gradient = make_tensor(count, dtype, 0);
    for (uint64_t step = 0; step < 2; step++) {
        fill(s, step, &gradient);
        encode(a, &gradient, step);
        encode(b, &gradient, step);
        expect(a->status == b->status, "step %d: '%s' (%s), where cpu/scalar has '%s'", (int)step,
               tg_status_text(a->status), a->error.message, tg_status_text(b->status));
        if (a->status != TG_OK || b->status != TG_OK)
            break;
        expect(same_report(&a->report, &b->report), "reports differ");
        expect(memcmp(a->frame, b->frame, b->report.bytes) == 0, "frames differ");
        decode(device, scalar, b, count, dtype);
    }
    drop(&gradient);
}

static void one_case(tg_device *device, tg_device *scalar, const char *text, const char *feedback, tg_dtype dtype)
{
    static const uint64_t counts[] = {1003, 777};
    static const shape shapes[] = {GAUSSIAN, SCATTERED};
    tg_spec spec;
    if (tg_spec_parse(text, &spec, NULL) != TG_OK)
        abort();
    for (int i = 0; i < 2; i++) {
        maker a = make(device, &spec, feedback, counts[i]), b = make(scalar, &spec, feedback, counts[i]);
        if (a.status == TG_UNAVAILABLE) {
            expect(a.error.message[0], "refused without a sentence");
            refused_count++;
            if (i == 0)
                printf("unsupported: %s, %s, dtype %d: %s\n", text, feedback, (int)dtype, a.error.message);
        } else if (a.status != b.status) {
            expect(false, "'%s' (%s), where cpu/scalar has '%s'", tg_status_text(a.status), a.error.message,
                   tg_status_text(b.status));
        } else if (b.status == TG_OK) {
            compare(device, scalar, &a, &b, counts[i], dtype, shapes[i]);
        }
        drop_maker(&a);
        drop_maker(&b);
    }
    check_all("%s: %s, %s, dtype %d", tg_device_name(device), text, feedback, (int)dtype);
}

/* A spec, and not one that another text has stood for. */
static bool is_new(const char *text)
{
    tg_spec spec;
    if (tg_spec_parse(text, &spec, NULL) != TG_OK)
        return false;
    for (size_t i = 0; i < seen_count; i++)
        if (memcmp(&seen[i], &spec, sizeof spec) == 0)
            return false;
    if (seen_count == MOST_SPECS)
        abort();
    seen[seen_count++] = spec;
    return true;
}

static void each_use(tg_device *device, tg_device *scalar, const char *text)
{
    static const char *const feedbacks[] = {"none", "ef", "ecq:alpha=0.5,beta=0.9", "dgc:momentum=0.9,clip=10"};
    if (!is_new(text))
        return;
    for (size_t f = 0; f < sizeof feedbacks / sizeof *feedbacks; f++)
        for (int dtype = 0; dtype <= 2; dtype++)
            if (turn++ % parts == part - 1)
                one_case(device, scalar, text, feedbacks[f], (tg_dtype)dtype);
}

/* Every word of the parameters from `p` on, behind what is in `text` already. */
static void each_word(tg_device *device, tg_device *scalar, const tg_codec_info *info, size_t p, const char *text)
{
    while (p < info->parameter_count && !strchr(info->parameters[p].range, '|'))
        p++;
    if (p == info->parameter_count) {
        each_use(device, scalar, text);
        return;
    }
    for (const char *word = info->parameters[p].range; *word;) {
        const size_t length = strcspn(word, "|");
        char longer[TG_SPEC_TEXT];
        (void)snprintf(longer, sizeof longer, "%s%c%s=%.*s", text, strchr(text, ':') ? ',' : ':',
                       info->parameters[p].name, (int)length, word);
        each_word(device, scalar, info, p + 1, longer);
        word += length + (word[length] == '|');
    }
    each_word(device, scalar, info, p + 1, text); /* some words have no effect beside others, and are refused */
}

int main(int argc, char **argv)
{
    if (argc > 2)
        (void)!sscanf(argv[2], "%u/%u", &part, &parts);
    const char *name = argc > 2 && strcmp(argv[argc - 2], "--device") == 0 ? argv[argc - 1] : "cpu";
    tg_device *device = open_device(name), *scalar = open_device("cpu/scalar");
    tg_codec_info info;
    for (size_t i = 0; tg_codec_list(i, &info) == TG_OK; i++)
        each_word(device, scalar, &info, 0, info.name);
    printf("%u uses of codecs looked at, %u refused\n", turn / parts, refused_count);
    tg_device_free(device);
    tg_device_free(scalar);
    return finish();
}
