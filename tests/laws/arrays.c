/* Jobs that come as an array give what they give one by one on cpu/scalar: frames one behind the other, residuals and
 * reports; a job that is refused leaves no trace, and the others are what they were. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpenv.h"
#include "feedback/feedback.h"
#include "frame/encode.h"
#include "support.h"

enum { TENSORS = 40, LONGEST = 30000 };

static const char *const kinds[] = {"qsgd:levels=7",
                                    "qsgd:levels=7,norm=l2",
                                    "qsgd:levels=127",
                                    "terngrad",
                                    "qsgd:levels=7",
                                    "qsgd:levels=5,bucket=64",
                                    "onebit",
                                    "none",
                                    "fp16",
                                    "qsgd:levels=7,norm=l2",
                                    "topk:density=0.1",
                                    "topk:density=0.02",
                                    "gaussiank:density=0.05",
                                    "topk:density=0.01,values=fp16",
                                    "randk:density=0.1",
                                    "trimk:density=0.03"};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* One device with the same tensors, codecs and feedback. Codecs are shared by the tensors of a kind. */
typedef struct setup {
    tg_device *device;
    tg_codec *codecs[KINDS];
    tg_feedback *feedbacks[TENSORS];
    tg_tensor there[TENSORS];
    uint8_t *message, *end;
    tg_encode_job jobs[TENSORS];
} setup;

static unsigned kind_of(unsigned tensor) { return tensor % KINDS; }

static void must(tg_status status, const tg_error *error)
{
    if (status != TG_OK) {
        printf("FAIL %s\n", error->message);
        exit(1);
    }
}

static void begin(setup *s, tg_device *device, const tg_tensor *gradients)
{
    tg_error error = {""};
    size_t room = 0;
    s->device = device;
    for (unsigned k = 0; k < KINDS; k++)
        s->codecs[k] = make_codec(device, kinds[k], LONGEST);
    for (unsigned i = 0; i < TENSORS; i++) {
        tg_feedback_spec spec;
        must(tg_feedback_parse(i % 3 ? "ef" : "none", &spec, &error), &error);
        must(tg_feedback_create(device, &spec, tg_codec_spec(s->codecs[kind_of(i)]), gradients[i].count, true,
                                &s->feedbacks[i], &error),
             &error);
        s->there[i] = gradients[i];
        must(tg_device_allocate(device, (size_t)gradients[i].count * 4, &s->there[i].data, &error), &error);
        room += tg_frame_bound(s->codecs[kind_of(i)], gradients[i].count);
    }
    s->message = malloc(room);
}

static void end(setup *s)
{
    for (unsigned i = 0; i < TENSORS; i++) {
        tg_device_release(s->device, s->there[i].data);
        tg_feedback_free(s->feedbacks[i]);
    }
    for (unsigned k = 0; k < KINDS; k++)
        tg_codec_free(s->codecs[k]);
    free(s->message);
}

static void encode_all(setup *s, const tg_tensor *gradients, uint64_t step, bool together)
{
    tg_error error = {""};
    s->end = s->message;
    for (unsigned i = 0; i < TENSORS; i++) {
        must(tg_device_copy_in(s->device, s->there[i].data, gradients[i].data, (size_t)gradients[i].count * 4, &error),
             &error);
        const tg_source source = tg_feedback_source(s->feedbacks[i], &s->there[i]);
        const tg_encode_options options = {.draw = {.seed = 5, .step = step, .tensor = i}};
        s->jobs[i] = tg_encode_job_of(s->codecs[kind_of(i)], &source, &options);
        s->jobs[i].end = &s->end;
    }
    tg_fp_mode before = tg_fp_enter();
    for (size_t i = 0; i < TENSORS; i += together ? TENSORS : 1)
        s->device->operations->encode(s->device, s->jobs + i, together ? TENSORS : 1);
    s->device->operations->wait(s->device);
    tg_fp_leave(before);
}

static void compare(const setup *a, const setup *b)
{
    expect(a->end - a->message == b->end - b->message, "messages of %td and %td bytes", a->end - a->message,
           b->end - b->message);
    expect(memcmp(a->message, b->message, (size_t)(b->end - b->message)) == 0, "messages differ");
    for (unsigned i = 0; i < TENSORS; i++) {
        const uint64_t n = a->there[i].count;
        float *x = calloc(2 * (size_t)n + 1, sizeof *x), *y = x + n;
        expect(memcmp(&a->jobs[i].report, &b->jobs[i].report, sizeof a->jobs[i].report) == 0, "report %u differs", i);
        expect(a->jobs[i].report.status == TG_OK || a->jobs[i].nonfinite == b->jobs[i].nonfinite, "place %u differs",
               i);
        expect(tg_feedback_read(a->feedbacks[i], TG_RESIDUAL, 0, n, x, NULL) == TG_OK &&
                   tg_feedback_read(b->feedbacks[i], TG_RESIDUAL, 0, n, y, NULL) == TG_OK &&
                   memcmp(x, y, (size_t)n * sizeof *x) == 0,
               "residual %u differs", i);
        free(x);
    }
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    tg_device **devices = open_devices();
    generator g = {11};
    tg_tensor gradients[TENSORS];
    for (unsigned i = 0; i < TENSORS; i++)
        gradients[i] = make_tensor(i % 7 == 3 ? 0 : 1 + next_random(&g) % (i % 5 ? 3000 : LONGEST), TG_FLOAT32, 0);
    for (size_t d = 1; devices[d]; d++) {
        setup one, other;
        begin(&one, devices[0], gradients);
        begin(&other, devices[d], gradients);
        for (uint64_t step = 0; step < 4; step++) {
            for (unsigned i = 0; i < TENSORS; i++)
                fill((shape)((i + step) % SHAPES), step * 100 + i, &gradients[i]);
            if (step == 2)                                 /* two of them are refused */
                for (unsigned i = 4; i < TENSORS; i += 21) /* none of these is empty */
                    ((float *)gradients[i].data)[gradients[i].count / 2] = INFINITY;
            encode_all(&one, gradients, step, false);
            encode_all(&other, gradients, step, true);
            compare(&other, &one);
            check_all("%s: %d jobs, step %d", tg_device_name(devices[d]), TENSORS, (int)step);
        }
        end(&one);
        end(&other);
    }
    for (unsigned i = 0; i < TENSORS; i++)
        drop(&gradients[i]);
    close_devices(devices);
    return finish();
}
