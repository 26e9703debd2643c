/* A card that is lost in the middle of things: every call that would use it says so, with a sentence; none hangs, and
 * none says TG_OK. On the emulated card a switch does it, on a real one a tensor at an address that is not memory.
 *
 *     lost [--device NAME] */
#define STAGED_ITSELF
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { COUNT = 5003 };

typedef struct things {
    tg_device *device;
    tg_codec *codec;
    tg_feedback *feedback;
    tg_reducer *reducer;
    tg_transport *transport;
    tg_tensor gradient, u; /* on the device */
    uint8_t *frame, *state;
    float *values;
    size_t bound, frame_size, state_size;
    tg_spec spec;
} things;

static const tg_feedback_spec ef = {.kind = TG_FEEDBACK_EF, .alpha = 1, .beta = 1};

static tg_status make_reducer(things *t, tg_reducer **reducer, tg_error *error)
{
    const tg_reducer_tensor tensor = {.name = "x", .count = COUNT, .codec = t->spec, .feedback = ef};
    return tg_reducer_create(t->device, 0, 1, &tensor, 1, NULL, reducer, error);
}

/* All of it works before. */
static void make_things(things *t, const char *spec)
{
    tg_error error = {""};
    tg_encode_report report = {.bytes = 0};
    tg_tensor host = make_tensor(COUNT, TG_FLOAT32, 0);
    fill(GAUSSIAN, 1, &host);
    *t = (things){.device = open_device(device_to_try(0)), .gradient = {.count = COUNT}, .u = {.count = COUNT}};
    t->values = malloc(COUNT * sizeof(float));
    bool fine = tg_spec_parse(spec, &t->spec, &error) == TG_OK &&
                tg_codec_create(t->device, &t->spec, COUNT, &t->codec, &error) == TG_OK &&
                tg_feedback_create(t->device, &ef, &t->spec, COUNT, true, &t->feedback, &error) == TG_OK &&
                make_reducer(t, &t->reducer, &error) == TG_OK &&
                tg_transport_local(1, &t->transport, &error) == TG_OK &&
                tg_device_allocate(t->device, COUNT * sizeof(float), &t->gradient.data, &error) == TG_OK &&
                tg_device_allocate(t->device, COUNT * sizeof(float), &t->u.data, &error) == TG_OK &&
                tg_device_copy_in(t->device, t->gradient.data, host.data, COUNT * sizeof(float), &error) == TG_OK;
    t->bound = fine ? tg_frame_bound(t->codec, COUNT) : 0;
    t->frame = malloc(t->bound + 1);
    fine = fine && tg_encode(t->codec, &t->gradient, NULL, t->frame, t->bound, &report, &error) == TG_OK &&
           tg_reducer_save(t->reducer, NULL, 0, &t->state_size, &error) == TG_OK;
    t->frame_size = report.bytes;
    t->state = malloc(t->state_size + 1);
    fine = fine && tg_reducer_save(t->reducer, t->state, t->state_size, &t->state_size, &error) == TG_OK;
    expect(fine, "before: %s", error.message);
    drop(&host);
}

/* True if the emulated card's switch was found. */
static bool switch_off(int failure)
{
    void *module = dlopen("libtersegrad_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
    int *card = module ? (int *)dlsym(module, "emulated_card_failure") : NULL;
    if (card)
        *card = failure;
    if (module)
        (void)dlclose(module);
    return card != NULL;
}

static void lost(tg_status status, const tg_error *error, const char *what)
{
    expect(status != TG_OK && error->message[0], "%s: '%s' after the card was lost", what, tg_status_text(status));
    if (status != TG_OK)
        printf("%s: %s: %s\n", what, tg_status_text(status), error->message);
}

static void frames(things *t)
{
    const tg_frame frame = {t->frame, t->frame_size};
    tg_encode_report report;
    uint8_t *other = malloc(t->bound);
    tg_error e;
    lost(tg_frame_verify(t->device, frame, NULL, &e), &e, "verify");
    lost(tg_decode(t->device, &frame, 1, 1, 0, &t->u, &e), &e, "decode");
    lost(tg_decode_add(t->device, &frame, 1, 1, TG_VERIFIED, &t->u, &e), &e, "decode-add");
    lost(tg_encode(t->codec, &t->gradient, NULL, other, t->bound, &report, &e), &e, "encode");
    expect(report.status != TG_OK && report.bytes == 0, "the report of a failed encode speaks of %zu bytes",
           report.bytes);
    lost(tg_encode_with_feedback(t->codec, t->feedback, &t->gradient, NULL, other, t->bound, &report, &e), &e,
         "encode with feedback");
    lost(tg_feedback_compensate(t->feedback, &t->gradient, &t->u, &e), &e, "compensate");
    lost(tg_feedback_update(t->feedback, &t->gradient, frame, &e), &e, "update");
    lost(tg_feedback_return(t->feedback, frame, NULL, 0, &e), &e, "return");
    free(other);
}

static void memory(things *t)
{
    void *more = NULL;
    tg_codec *codec = NULL;
    tg_feedback *feedback = NULL;
    tg_reducer *reducer = NULL;
    tg_error e;
    const size_t size = COUNT * sizeof(float);
    lost(tg_device_allocate(t->device, size, &more, &e), &e, "allocate");
    lost(tg_device_copy_in(t->device, t->u.data, t->values, size, &e), &e, "copy in");
    lost(tg_device_copy_out(t->device, t->values, t->u.data, size, &e), &e, "copy out");
    lost(tg_device_copy(t->device, t->u.data, t->gradient.data, size, &e), &e, "copy");
    lost(tg_feedback_read(t->feedback, TG_RESIDUAL, 0, COUNT, t->values, &e), &e, "read a residual");
    lost(tg_feedback_write(t->feedback, TG_RESIDUAL, 0, COUNT, t->values, &e), &e, "write a residual");
    lost(tg_codec_create(t->device, &t->spec, COUNT, &codec, &e), &e, "create a codec");
    lost(tg_feedback_create(t->device, &ef, &t->spec, COUNT, true, &feedback, &e), &e, "create feedback");
    lost(make_reducer(t, &reducer, &e), &e, "create a reducer");
    expect(!more && !codec && !feedback && !reducer, "something was made");
}

static void reductions(things *t)
{
    tg_error e;
    lost(tg_reduce(t->reducer, t->transport, &t->gradient, 1, &e), &e, "reduce");
    lost(tg_reducer_residual_read(t->reducer, 0, t->values, COUNT, &e), &e, "read a reducer's residual");
    const tg_state state = {t->state, t->state_size};
    lost(tg_reducer_load(t->reducer, &state, 1, &e), &e, "load");
    lost(tg_reducer_save(t->reducer, t->state, t->state_size, &t->state_size, &e), &e, "save");
    lost(tg_reducer_scale(t->reducer, 0.5f, &e), &e, "scale");
}

static void drop_things(things *t)
{
    tg_transport_free(t->transport);
    tg_reducer_free(t->reducer);
    tg_feedback_free(t->feedback);
    tg_codec_free(t->codec);
    tg_device_release(t->device, t->gradient.data);
    tg_device_release(t->device, t->u.data);
    tg_device_free(t->device);
    free(t->frame);
    free(t->state);
    free(t->values);
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    if (strncmp(device_to_try(0), "cuda", 4) != 0) {
        skip("a CPU cannot be lost");
        return finish();
    }
    static things dense, sparse;
    tg_error e;
    make_things(&dense, "qsgd:levels=7");
    make_things(&sparse, "topk:density=0.01");
    check_all("two devices work");
    if (!switch_off(719)) { /* CUDA's number of a failed launch */
        const tg_tensor nowhere = {.data = (void *)(uintptr_t)4096, .count = COUNT};
        tg_encode_report report;
        lost(tg_encode(dense.codec, &nowhere, NULL, dense.frame, dense.bound, &report, &e), &e, "no memory");
    }
    things *const all[] = {&dense, &sparse};
    for (int i = 0; i < 2; i++) {
        frames(all[i]);
        memory(all[i]);
        reductions(all[i]);
        lost(tg_device_wait(all[i]->device, &e), &e, "wait");
        check_all("device %d says that the card is lost", i);
    }
    tg_device *another = NULL;
    lost(tg_device_open(device_to_try(0), NULL, &another, &e), &e, "open");
    check_all("no other device is opened in this process");
    drop_things(&dense);
    drop_things(&sparse);
    check(true, "everything can be freed");
    return finish();
}
