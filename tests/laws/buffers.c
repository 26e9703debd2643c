/* Laws of buffers and of zeros: what is written must not overlap what is read; and an element that no frame lists is
 * +0, or as it was, whatever the weight's sign, on every device. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "guarded.h"
#include "support.h"

enum { COUNT = 5000 };

static void overlaps_are_refused(tg_device *device)
{
    tg_codec *codec = make_codec(device, "none", COUNT);
    const size_t bound = tg_frame_bound(codec, COUNT), floats = COUNT * sizeof(float);
    uint8_t *memory = calloc(4, bound);
    tg_error error = {""};
    tg_encode_report report = {.bytes = 0};
    const tg_tensor in = {memory + bound, COUNT, TG_FLOAT32};
    const size_t inside[] = {bound, 8, bound + floats - 4};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        expect(tg_encode(codec, &in, NULL, memory + inside[i], bound, &report, &error) == TG_INVALID_ARGUMENT,
               "encode at %zu: %s", inside[i], error.message);
    const size_t beside[] = {0, bound + floats};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        expect(tg_encode(codec, &in, NULL, memory + beside[i], bound, &report, &error) == TG_OK, "encode beside: %s",
               error.message);
    const tg_frame frame = {memory + bound + floats, report.bytes};
    const size_t over[] = {bound + 4, bound + floats, 2 * bound + floats - 68};
    for (size_t i = 0; i < sizeof over / sizeof *over; i++) {
        const tg_tensor out = {memory + over[i] / 4 * 4, COUNT, TG_FLOAT32};
        expect(tg_decode(device, &frame, 1, 1, 0, &out, &error) == TG_INVALID_ARGUMENT, "decode at %zu: %s", over[i],
               error.message);
        expect(tg_decode_add(device, &frame, 1, 1, 0, &out, &error) == TG_INVALID_ARGUMENT, "add at %zu: %s", over[i],
               error.message);
    }
    const tg_tensor out = {memory + bound, COUNT, TG_FLOAT32};
    expect(tg_decode(device, &frame, 1, 1, 0, &out, &error) == TG_OK, "decode beside: %s", error.message);
    check_all("%s: overlapping buffers are refused", tg_device_name(device));
    tg_codec_free(codec);
    free(memory);
}

/* u may take the gradient's place, but not a part of it; a 16-bit gradient has no such place. */
static void compensation_overlap_is_refused(tg_device *device)
{
    enum { FLOATS = COUNT * (int)sizeof(float), HALVES = COUNT * 2 };
    tg_codec *codec = make_codec(device, "none", COUNT);
    tg_feedback_spec ef;
    tg_feedback *feedback = NULL;
    tg_error error = {""};
    uint8_t *memory = calloc(4, FLOATS);
    if (!memory || tg_feedback_parse("ef", &ef, &error) != TG_OK ||
        tg_feedback_create(device, &ef, tg_codec_spec(codec), COUNT, false, &feedback, &error) != TG_OK)
        abort();
    static const struct {
        tg_dtype dtype;
        size_t gradient, u;
        bool is_refused;
    } cases[] = {{TG_FLOAT32, FLOATS, FLOATS, false},
                 {TG_FLOAT32, FLOATS, FLOATS + 4, true},
                 {TG_FLOAT32, FLOATS, 4, true},
                 {TG_FLOAT32, FLOATS, 0, false},
                 {TG_FLOAT32, FLOATS, 2 * FLOATS, false},
                 {TG_FLOAT16, FLOATS, FLOATS, true},
                 {TG_FLOAT16, FLOATS, FLOATS + 4, true},
                 {TG_FLOAT16, FLOATS + HALVES, FLOATS, true},
                 {TG_FLOAT16, FLOATS, FLOATS + HALVES, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tg_tensor gradient = {memory + cases[i].gradient, COUNT, cases[i].dtype};
        const tg_tensor u = {memory + cases[i].u, COUNT, TG_FLOAT32};
        const tg_status status = tg_feedback_compensate(feedback, &gradient, &u, &error);
        expect(status == (cases[i].is_refused ? TG_INVALID_ARGUMENT : TG_OK), "case %zu: %s, %s", i,
               tg_status_text(status), error.message);
    }
    check_all("%s: compensation with overlapping buffers is refused", tg_device_name(device));
    tg_feedback_free(feedback);
    tg_codec_free(codec);
    free(memory);
}

/* ---- zeros ---- */

/* A frame, its values, and which elements it lists. */
typedef struct part {
    tg_frame frame;
    float *values;
    bool *listed;
} part;

static part make_part(tg_device *device, const char *spec, uint64_t seed)
{
    tg_codec *codec = make_codec(device, spec, COUNT);
    const size_t bound = tg_frame_bound(codec, COUNT);
    tg_tensor t = make_tensor(COUNT, TG_FLOAT32, 0);
    part p = {.values = malloc(COUNT * sizeof(float)), .listed = malloc(COUNT * sizeof(bool))};
    void *bytes = malloc(bound);
    tg_encode_report report;
    cut(GAUSSIAN, seed, &t);
    if (!bytes || !p.values || !p.listed || tg_encode(codec, &t, NULL, bytes, bound, &report, NULL) != TG_OK)
        abort();
    p.frame = (tg_frame){bytes, report.bytes};
    for (size_t i = 0; i < COUNT; i++)
        ((float *)t.data)[i] = -0.0f; /* which an added 0 would change */
    const tg_tensor values = {p.values, COUNT, TG_FLOAT32};
    if (tg_decode_add(device, &p.frame, 1, 1, 0, &t, NULL) != TG_OK ||
        tg_decode(device, &p.frame, 1, 1, 0, &values, NULL) != TG_OK)
        abort();
    for (size_t i = 0; i < COUNT; i++)
        p.listed[i] = !is_sparsifier(spec) || tg_float_bits(((float *)t.data)[i]) != UINT32_C(0x80000000);
    drop(&t);
    tg_codec_free(codec);
    return p;
}

static void free_part(part *p)
{
    free((void *)(uintptr_t)p->frame.data);
    free(p->values);
    free(p->listed);
}

static void zeros(tg_device **devices, const char *first, const char *second, float weight, bool add)
{
    part parts[2] = {make_part(devices[0], first, 3), make_part(devices[0], second, 4)};
    const tg_frame frames[2] = {parts[0].frame, parts[1].frame};
    float *due = malloc(COUNT * sizeof *due);
    tg_tensor out = make_tensor(COUNT, TG_FLOAT32, 0);
    for (size_t i = 0; i < COUNT; i++) {
        due[i] = add ? -0.0f : 0;
        for (size_t f = 0; f < 2; f++) {
            const float product = weight * parts[f].values[i];
            if (parts[f].listed[i])
                due[i] = f == 0 && !add ? product : due[i] + product;
        }
    }
    for (size_t d = 0; devices[d]; d++) {
        now_at(tg_device_name(devices[d]), GAUSSIAN, COUNT);
        for (size_t i = 0; i < COUNT; i++)
            ((float *)out.data)[i] = -0.0f;
        const tg_status status = add ? tg_decode_add(devices[d], frames, 2, weight, 0, &out, NULL)
                                     : tg_decode(devices[d], frames, 2, weight, 0, &out, NULL);
        expect(status == TG_OK && memcmp(out.data, due, COUNT * sizeof *due) == 0, "the bits differ");
    }
    check_all("%s and %s, weight %g, %s: zeros", first, second, (double)weight, add ? "added" : "set");
    free_part(&parts[0]);
    free_part(&parts[1]);
    free(due);
    drop(&out);
}

int main(void)
{
    static const char *const specs[] = {"topk:k=100", "topk:density=0.3,values=levels,levels=1", "none",
                                        "qsgd:levels=1,bucket=512", "onebit"};
    enum { SPECS = sizeof specs / sizeof *specs };
    tg_device **devices = open_devices();
    for (size_t d = 0; devices[d]; d++)
        if (!is_guarded(devices[d])) { /* its tensors lie in memory of their own, and frames in the host's */
            overlaps_are_refused(devices[d]);
            compensation_overlap_is_refused(devices[d]);
        }
    for (size_t a = 0; a < SPECS; a++)
        for (size_t b = 0; b < SPECS; b++)
            for (int sign = -1; sign <= 1; sign += 2) {
                zeros(devices, specs[a], specs[b], (float)sign, false);
                zeros(devices, specs[a], specs[b], 0.5f * (float)sign, true);
            }
    close_devices(devices);
    return finish();
}
