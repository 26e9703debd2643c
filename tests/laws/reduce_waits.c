/* Laws of a reducer's calls to its device: jobs come in arrays, so that a step waits for the device as often with many
 * tensors as with few; and the next message is begun before one is handed out, so that a card codes it meanwhile. */
#define STAGED_ITSELF /* tensors lie on the device from the start */
#include "guarded.h"

#include <stdio.h>
#include <string.h>

#include "ranks.h"
#include "reduce/message.h"

enum { WORLD = 3, FEW = 10, MANY = 40, COUNT = 1000 };

static bool on_device; /* frames stay there */
static uint64_t batch_elements;

typedef struct one_rank {
    tg_device *device;
    tg_reducer *reducer;
    tg_tensor gradients[MANY];
} one_rank;

static void make_rank(one_rank *r, uint32_t rank, const tg_reducer_tensor *tensors, size_t count, tg_algorithm how)
{
    const tg_reducer_options options = {.algorithm = how, .on_device = on_device, .batch_elements = batch_elements};
    tg_error error;
    float values[COUNT];
    tg_tensor host = {values, COUNT, TG_FLOAT32};
    r->device = open_guarded("cpu", true);
    for (size_t i = 0; i < count; i++) {
        r->gradients[i] = (tg_tensor){NULL, COUNT, tensors[i].dtype};
        fill(GAUSSIAN, rank * MANY + i, &host);
        if (tensors[i].dtype != TG_FLOAT32)
            memset(values, 0, sizeof values);
        expect(tg_device_allocate(r->device, sizeof values, &r->gradients[i].data, &error) == TG_OK &&
                   tg_device_copy_in(r->device, r->gradients[i].data, values, sizeof values, &error) == TG_OK,
               "%s", error.message);
    }
    expect(tg_reducer_create(r->device, rank, WORLD, tensors, count, &options, &r->reducer, &error) == TG_OK, "%s",
           error.message);
}

/* How often the first rank waits in one step of so many tensors. */
static uint64_t waits(const char *spec, const char *feedback, tg_dtype dtype, size_t count, tg_algorithm how)
{
    one_rank ranks[WORLD];
    tg_reduction *reductions[WORLD];
    tg_reducer_tensor tensors[MANY];
    char names[MANY][24];
    tg_error error;
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(names[i], sizeof names[i], "t%zu", i);
        tensors[i] = (tg_reducer_tensor){.name = names[i], .count = COUNT, .dtype = dtype, .insist = true};
        expect(tg_spec_parse(spec, &tensors[i].codec, &error) == TG_OK &&
                   tg_feedback_parse(feedback, &tensors[i].feedback, &error) == TG_OK,
               "%s", error.message);
    }
    for (uint32_t i = 0; i < WORLD; i++)
        make_rank(&ranks[i], i, tensors, count, how);
    const uint64_t before = guarded_waits(ranks[0].device);
    for (uint32_t i = 0; i < WORLD; i++)
        expect(tg_reduce_begin(ranks[i].reducer, ranks[i].gradients, 0, &reductions[i], &error) == TG_OK, "%s",
               error.message);
    while (exchange_by_hand(reductions, WORLD)) {}
    for (uint32_t i = 0; i < WORLD; i++)
        expect(tg_reduce_end(reductions[i], &error) == TG_OK, "%s", error.message);
    const uint64_t after = guarded_waits(ranks[0].device);
    for (uint32_t i = 0; i < WORLD; i++) {
        tg_reducer_free(ranks[i].reducer);
        for (size_t t = 0; t < count; t++)
            tg_device_release(ranks[i].device, ranks[i].gradients[t].data);
        tg_device_free(ranks[i].device);
    }
    return after - before;
}

static void do_not_grow(const char *spec, const char *feedback, tg_dtype dtype, tg_algorithm how)
{
    const uint64_t few = waits(spec, feedback, dtype, FEW, how), many = waits(spec, feedback, dtype, MANY, how);
    expect(few > 0 && many == few, "%d tensors: %d waits, %d tensors: %d", FEW, (int)few, MANY, (int)many);
    check_all("%s, %s, %s, dtype %d%s: %d tensors take no more waits than %d", tg_algorithm_text(how), spec, feedback,
              (int)dtype, on_device ? ", frames on the device" : "", MANY, FEW);
}

static void all_kinds(void)
{
    do_not_grow("qsgd", "ef", TG_FLOAT32, TG_GATHER);
    do_not_grow("topk:density=0.1", "ef", TG_FLOAT32, TG_GATHER);
    do_not_grow("none", "none", TG_FLOAT16, TG_GATHER);
    do_not_grow("qsgd", "ef", TG_FLOAT32, TG_SHARD);
    do_not_grow("none", "none", TG_BFLOAT16, TG_SHARD);
    do_not_grow("topk:density=0.1", "ef", TG_FLOAT32, TG_SHARD);
    do_not_grow("topk:density=0.1,values=fp16", "ef", TG_FLOAT32, TG_SHARD);
    do_not_grow("topk:density=0.1", "ef", TG_FLOAT32, TG_SCATTER);
    do_not_grow("topk:density=1", "ef", TG_FLOAT32, TG_SHARD); /* sent as a whole */
}

/* ---- the next message ---- */

/* Every rank's next message is whole, and more is on its stream. */
static void hands_out(const one_rank *ranks, tg_reduction *const *reductions, tg_device *cpu)
{
    tg_exchange *exchanges[WORLD] = {NULL};
    tg_error error = {""};
    expect(hand_out(reductions, WORLD, exchanges), "there is no message");
    for (uint32_t i = 0; i < WORLD && exchanges[i]; i++) {
        const uint32_t peer = (i + 1) % WORLD;
        const tg_frame frame = {(const uint8_t *)exchanges[i]->send[peer] + TG_MESSAGE_HEADER,
                                exchanges[i]->send_size[peer] - TG_MESSAGE_HEADER};
        expect(tg_frame_verify(cpu, frame, NULL, &error) == TG_OK, "rank %u's frame: %s", i, error.message);
        expect(guarded_calls(ranks[i].device) > 0, "nothing is on the stream of rank %u", i);
    }
}

/* What a reduction that is given up leaves: of messages that were begun, the gradient. */
static void left_behind(const one_rank *r, const char *text, size_t tensor, bool begun)
{
    float gradient[COUNT], residual[COUNT];
    tg_error error;
    expect(tg_device_copy_out(r->device, gradient, r->gradients[tensor].data, sizeof gradient, &error) == TG_OK &&
               tg_reducer_residual_read(r->reducer, tensor, residual, COUNT, &error) == TG_OK,
           "%s", error.message);
    if (!begun)
        memset(gradient, 0, sizeof gradient);
    expect(memcmp(gradient, residual, sizeof gradient) == 0, "%s: the residual of tensor %zu is %g, not %g", text,
           tensor, (double)residual[0], (double)gradient[0]);
}

static void next_is_begun(void)
{
    enum { MESSAGES = 4, HANDED = 2 };
    static const char *const names[MESSAGES] = {"a", "b", "c", "d"};
    tg_device *cpu = open_device("cpu");
    tg_reducer_tensor tensors[MESSAGES];
    one_rank ranks[WORLD];
    tg_reduction *reductions[WORLD];
    tg_error error;
    for (size_t i = 0; i < MESSAGES; i++) {
        tensors[i] = (tg_reducer_tensor){.name = names[i], .count = COUNT, .feedback = {TG_FEEDBACK_EF, 1, 1, 0, 0}};
        expect(tg_spec_parse("topk:density=0.1", &tensors[i].codec, &error) == TG_OK, "%s", error.message);
    }
    batch_elements = COUNT;
    for (uint32_t i = 0; i < WORLD; i++) {
        make_rank(&ranks[i], i, tensors, MESSAGES, TG_GATHER);
        expect(tg_reduce_begin(ranks[i].reducer, ranks[i].gradients, 0, &reductions[i], &error) == TG_OK, "%s",
               error.message);
    }
    (void)exchange_by_hand(reductions, WORLD); /* greeting, and what ranks think of it */
    (void)exchange_by_hand(reductions, WORLD);
    for (int i = 0; i < HANDED; i++)
        hands_out(ranks, reductions, cpu);
    for (uint32_t i = 0; i < WORLD; i++) {
        tg_reduce_abandon(reductions[i]);
        for (size_t t = 0; t < MESSAGES; t++)
            left_behind(&ranks[i], "given up", t, t <= HANDED);
        tg_reducer_free(ranks[i].reducer);
        for (size_t t = 0; t < MESSAGES; t++)
            tg_device_release(ranks[i].device, ranks[i].gradients[t].data);
        tg_device_free(ranks[i].device);
    }
    tg_device_free(cpu);
    check_all("messages are handed out whole, and the next one is begun; given up, it returns to the residual");
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    all_kinds();
    on_device = true;
    all_kinds();
    on_device = false;
    next_is_begun();
    return finish();
}
