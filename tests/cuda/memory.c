/* A card that is full: what cannot be made is TG_OUT_OF_MEMORY with a sentence, and afterwards everything works, to the
 * same bytes.
 *
 *     memory [--device NAME] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { MOST = 4096, COUNT = 6007 };
static const char spec_text[] = "topk:density=0.01";

typedef struct hoard {
    void *parts[MOST];
    size_t count;
} hoard;

/* Takes what there is, down to pieces of 64 KiB. */
static void take_all(tg_device *device, hoard *h)
{
    tg_error error;
    for (size_t size = (size_t)8 << 30; size >= 1 << 16; size /= 4)
        while (h->count < MOST) {
            const tg_status status = tg_device_allocate(device, size, &h->parts[h->count], &error);
            if (status != TG_OK) {
                expect(status == TG_OUT_OF_MEMORY && error.message[0], "no memory is '%s'", tg_status_text(status));
                break;
            }
            h->count++;
        }
    expect(h->count < MOST, "memory has no end");
}

static void give_back(tg_device *device, hoard *h)
{
    while (h->count > 0)
        tg_device_release(device, h->parts[--h->count]);
}

static tg_status make_reducer(tg_device *device, const tg_spec *spec, uint64_t count, tg_reducer **reducer,
                              tg_error *error)
{
    const tg_reducer_tensor tensor = {
        .name = "x", .count = count, .codec = *spec, .feedback = {.kind = TG_FEEDBACK_EF, .alpha = 1, .beta = 1}};
    return tg_reducer_create(device, 0, 2, &tensor, 1, NULL, reducer, error);
}

static void refused(tg_status status, const tg_error *error, const char *what)
{
    expect(status == TG_OUT_OF_MEMORY && error->message[0], "%s: status '%s', message '%s'", what,
           tg_status_text(status), error->message);
}

static void nothing_fits(tg_device *device)
{
    const uint64_t many = 100000000;
    const tg_feedback_spec ef = {.kind = TG_FEEDBACK_EF, .alpha = 1, .beta = 1};
    tg_spec spec;
    tg_codec *codec = NULL;
    tg_feedback *feedback = NULL;
    tg_reducer *reducer = NULL;
    tg_device *another = NULL;
    tg_error error = {""};
    static const char *const specs[] = {spec_text, "qsgd:levels=7", "qsgd:coding=entropy", "none"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        if (tg_spec_parse(specs[i], &spec, &error) != TG_OK)
            abort();
        refused(tg_codec_create(device, &spec, many, &codec, &error), &error, specs[i]);
        refused(tg_feedback_create(device, &ef, &spec, many, true, &feedback, &error), &error, "feedback");
        refused(make_reducer(device, &spec, many, &reducer, &error), &error, "a reducer");
        expect(!codec && !feedback && !reducer, "something was made");
    }
    refused(tg_device_open(device_to_try(0), NULL, &another, &error), &error, "another device");
}

/* A handle that was made in time goes on; what needs more memory for a frame says so and changes nothing. */
static void goes_on(tg_device *device, tg_codec *codec, const tg_tensor *input, const uint8_t *expected, size_t size)
{
    uint8_t *frame = malloc(tg_frame_bound(codec, COUNT));
    tg_encode_report report;
    tg_error error = {""};
    tg_tensor there = *input;
    (void)device;
    expect(tg_encode(codec, &there, NULL, frame, tg_frame_bound(codec, COUNT), &report, &error) == TG_OK &&
               report.bytes == size && memcmp(frame, expected, size) == 0,
           "other bytes, or none: %s", error.message);
    free(frame);
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    tg_device *device = open_device(device_to_try(0)), *scalar = open_device("cpu/scalar");
    tg_codec *codec = make_codec(device, spec_text, COUNT), *reference = make_codec(scalar, spec_text, COUNT);
    tg_tensor input = make_tensor(COUNT, TG_FLOAT32, 0), out = make_tensor(COUNT, TG_FLOAT32, 0);
    const size_t bound = tg_frame_bound(reference, COUNT);
    uint8_t *frame = malloc(bound);
    tg_encode_report report;
    tg_error error;
    static hoard h;
    fill(GAUSSIAN, 1, &input);
    expect(tg_encode(reference, &input, NULL, frame, bound, &report, &error) == TG_OK, "%s", error.message);
    goes_on(device, codec, &input, frame, report.bytes);
    check_all("before memory is full");
    for (int round = 0; round < 2; round++) {
        take_all(device, &h);
        nothing_fits(device);
        check_all("round %d: memory is full", round);
        give_back(device, &h);
        goes_on(device, codec, &input, frame, report.bytes);
        const tg_frame there = {frame, report.bytes};
        expect(tg_decode(device, &there, 1, 1, 0, &out, &error) == TG_OK, "decode: %s", error.message);
        tg_codec_free(codec);
        codec = make_codec(device, spec_text, COUNT);
        goes_on(device, codec, &input, frame, report.bytes);
        check_all("round %d: memory is free again", round);
    }
    tg_codec_free(codec);
    tg_codec_free(reference);
    tg_device_free(device);
    tg_device_free(scalar);
    drop(&input);
    drop(&out);
    free(frame);
    return finish();
}
