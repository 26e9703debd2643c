/* Laws of frames that stay on the device: whatever the algorithm, the codecs and the world, gradients, residuals,
 * states and statistics are, to the bit, those of reductions whose frames pass through host memory. The ranks' devices
 * are guarded, so nobody else reads a frame. Faults are all-or-none as ever. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "ranks.h"
#include "reduce/message.h"

enum { MOST_WORLD = 6, STEPS = 18, FEW = 5 };

static const tensor_case many[] = {{"kernel", "topk:density=0.02", "ef", 70001, TG_FLOAT32},
                                   {"levels", "qsgd:levels=7", "ef", 30000, TG_FLOAT32},
                                   {"empty", "none", "none", 0, TG_FLOAT32},
                                   {"guess", "gaussiank:density=0.05,values=fp16", "ef", 5003, TG_FLOAT32},
                                   {"coded", "qsgd:levels=3,coding=auto", "none", 3001, TG_BFLOAT16},
                                   {"half", "fp16", "ef", 1001, TG_FLOAT16},
                                   {"plain", "none", "none", 17, TG_FLOAT32},
                                   {0}};
/* Sums that are sent whole, between others. */
static const tensor_case crowded[] = {{"a", "topk:density=0.9", "ef", 5001, TG_FLOAT32},
                                      {"b", "qsgd:levels=7", "ef", 701, TG_FLOAT32},
                                      {"c", "topk:density=1", "ef", 9001, TG_FLOAT32},
                                      {"d", "topk:density=0.02", "ef", 9001, TG_FLOAT32},
                                      {0}};
/* Guarded devices throw away what their host should not have. */
static const char *const apart[] = {"guarded:cpu", "queued:cpu", NULL};

typedef struct record {
    tg_status status[STEPS];
    char message[STEPS][256];
    uint64_t gradients[STEPS];
    float *residuals[MOST_TENSORS];
    bool done;
    tg_reducer_stats stats;
} record;

/* What is to be tried. */
typedef struct trial {
    record *records;
    uint32_t bad_rank; /* has an infinity in step 2 */
} trial;

static uint64_t digest(const rank_state *s)
{
    uint64_t d = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < s->tensor_count; i++) {
        const uint8_t *bytes = s->gradients[i].data;
        for (uint64_t at = 0; at < s->gradients[i].count * tg_dtype_size(s->gradients[i].dtype); at++)
            d = (d ^ bytes[at]) * UINT64_C(0x100000001b3);
    }
    return d;
}

/* Both halves, so that with depth 2 a slot is used in turn. */
static tg_status reduce(rank_state *s, uint64_t step)
{
    tg_reduction *reduction;
    tg_status status = tg_reduce_start(s->reducer, s->transport, s->gradients, step, &reduction, &s->error);
    return status == TG_OK ? tg_reduce_finish(reduction, s->transport, &s->error) : status;
}

static void steps(rank_state *s)
{
    const trial *t = s->extra;
    record *r = &t->records[s->rank];
    for (uint64_t step = 0; step < s->what->steps && s->status == TG_OK; step++) {
        fill_gradients(s, step);
        if (step == 2 && s->rank == t->bad_rank)
            *((float *)s->gradients[0].data + 5) = INFINITY;
        r->status[step] = reduce(s, step);
        (void)snprintf(r->message[step], sizeof r->message[step], "%s", s->error.message);
        r->gradients[step] = digest(s);
        if (r->status[step] != TG_OK && r->status[step] != TG_SKIPPED && r->status[step] != TG_NONFINITE)
            return;
    }
    for (size_t i = 0; i < s->tensor_count; i++) {
        r->residuals[i] = calloc(s->tensors[i].count + 1, sizeof(float));
        if (s->tensors[i].feedback.kind != TG_FEEDBACK_NONE)
            s->status = tg_reducer_residual_read(s->reducer, i, r->residuals[i], s->tensors[i].count, &s->error);
    }
    s->status = s->status == TG_OK ? tg_reducer_stats_of(s->reducer, &r->stats, &s->error) : s->status;
    r->done = s->status == TG_OK;
}

static void run(const rank_case *what, record *records, uint32_t bad_rank)
{
    trial t = {.records = records, .bad_rank = bad_rank};
    memset(records, 0, MOST_WORLD * sizeof *records);
    run_ranks(what, NULL, steps, NULL, &t);
}

/* Statistics but for times, and for bytes on the wire, where heads take more. */
static bool same_stats(tg_reducer_stats a, tg_reducer_stats b)
{
    a.encode_seconds = a.exchange_seconds = a.verify_seconds = a.decode_seconds = 0;
    b.encode_seconds = b.exchange_seconds = b.verify_seconds = b.decode_seconds = 0;
    const bool counts = b.bytes_sent >= a.bytes_sent && b.bytes_received >= a.bytes_received;
    a.bytes_sent = b.bytes_sent = a.bytes_received = b.bytes_received = 0;
    return memcmp(&a, &b, sizeof a) == 0 && counts;
}

static void compare(const record *host, const record *device, uint32_t rank, const tensor_case *tensors,
                    uint64_t step_count)
{
    for (uint64_t step = 0; step < step_count; step++) {
        expect(host->status[step] == device->status[step], "rank %u, step %d: %s; from host to host: %s", rank,
               (int)step, device->message[step], host->message[step]);
        expect(strcmp(host->message[step], device->message[step]) == 0, "rank %u, step %d: '%s', not '%s'", rank,
               (int)step, device->message[step], host->message[step]);
        expect(host->gradients[step] == device->gradients[step], "rank %u: other gradients after step %d", rank,
               (int)step);
    }
    expect(host->done && device->done, "rank %u did not come to the end", rank);
    for (size_t i = 0; tensors[i].name; i++)
        expect(memcmp(host->residuals[i], device->residuals[i], tensors[i].count * sizeof(float)) == 0,
               "rank %u: another residual of %s", rank, tensors[i].name);
    expect(same_stats(host->stats, device->stats), "rank %u: other statistics", rank);
}

static void one(rank_case what, const char *name, uint32_t bad_rank)
{
    static record host[MOST_WORLD], device[MOST_WORLD];
    put_ranks_on(apart);
    what.options.on_device = false;
    run(&what, host, bad_rank);
    what.options.on_device = true;
    run(&what, device, bad_rank);
    for (uint32_t rank = 0; rank < what.world; rank++) {
        compare(&host[rank], &device[rank], rank, what.tensors, what.steps);
        for (size_t i = 0; i < MOST_TENSORS; i++) {
            free(host[rank].residuals[i]);
            free(device[rank].residuals[i]);
        }
    }
    check_all("%s, %s, %u ranks, policy %d: frames on the device, same bits", name,
              tg_algorithm_text(what.options.algorithm), what.world, (int)what.options.nonfinite);
}

/* ---- what is refused ---- */

static void refusals(void)
{
    tg_transport *alone;
    tg_error error;
    tg_reducer *reducer = NULL;
    tg_device *device = open_device("cpu");
    const uint32_t one_host[] = {0, 0};
    const tg_reducer_options levels = {.on_device = true, .host_of_rank = one_host};
    const tg_reducer_tensor tensor = {.name = "t", .count = 10, .dtype = TG_FLOAT32};
    const tg_status status = tg_reducer_create(device, 0, 2, &tensor, 1, &levels, &reducer, &error);
    expect(status == TG_INVALID_ARGUMENT && strstr(error.message, "host_of_rank"), "levels: status %d: %s", (int)status,
           error.message);
    float value = 1;
    const tg_reducer_options plain = {.on_device = true};
    tg_tensor gradient = {&value, 1, TG_FLOAT32};
    const tg_reducer_tensor small = {.name = "t", .count = 1, .dtype = TG_FLOAT32};
    rank_state s = {.device = device, .tensor_count = 0};
    if (tg_reducer_create(device, 0, 1, &small, 1, &plain, &s.reducer, &error) != TG_OK ||
        tg_transport_local(1, &alone, &error) != TG_OK)
        abort();
    const tg_status refused = tg_reduce(s.reducer, alone, &gradient, 0, &error);
    expect(refused == TG_INVALID_ARGUMENT && strstr(error.message, "host memory only"), "status %d: %s", (int)refused,
           error.message);
    tg_reducer_free(s.reducer);
    const void *send[1] = {&value};
    void *receive[1] = {&value};
    size_t sizes[1] = {4}, received[1];
    tg_exchange e = {TG_ALL_GATHER, 1, send, sizes, receive, sizes, received, true};
    expect(tg_transport_start(alone, &e, &error) == TG_INVALID_ARGUMENT && strstr(error.message, "device memory"), "%s",
           error.message);
    expect(!tg_transport_on_device(alone), "local does not take device memory");
    tg_transport_free(alone);
    tg_device_free(device);
    check_all("what is refused");
}

/* ---- heads that announce nothing ---- */

static void heads(void)
{
    enum { FRAMES = 3, EXTRA = FRAMES * TG_ENTRY_BYTES };
    uint8_t head[TG_MESSAGE_HEADER + EXTRA];
    const tg_kernels *kernels = tg_kernels_at(0);
    const tg_message message = {.kind = TG_MESSAGE_GRADIENTS, .frames = FRAMES, .extra = EXTRA, .world = 2};
    for (unsigned last = 0; last <= 128; last += 64) {
        uint64_t body = 77;
        for (uint64_t i = 0; i < FRAMES; i++)
            tg_entry_write(&(tg_entry){i * 64, i + 1 < FRAMES ? 64 : last},
                           head + TG_MESSAGE_HEADER + i * TG_ENTRY_BYTES);
        tg_message_seal(kernels, &message, head);
        const bool read = tg_message_body(kernels, head, sizeof head, &body);
        expect(read == (last > 0), "a head whose last frame has %u bytes is %s", last, read ? "read" : "refused");
        expect(!read || body == 128 + last, "the body has %d bytes", (int)body);
    }
    check_all("a head whose last frame has no bytes is refused");
}

/* ---- a device that is full ---- */

static const tg_operations *whole;
static int allocations_left;
static long allocated;

static void *allocate(tg_device *device, size_t bytes, unsigned place)
{
    void *memory = allocations_left-- == 0 ? NULL : whole->allocate(device, bytes, place);
    allocated += memory != NULL;
    return memory;
}

static void release(tg_device *device, void *memory)
{
    allocated -= memory != NULL;
    whole->release(device, memory);
}

static void full_device(tg_algorithm algorithm)
{
    tg_device *device = open_device("cpu");
    tg_operations operations = *device->operations;
    const tg_reducer_options options = {.algorithm = algorithm, .on_device = true};
    tg_reducer_tensor tensors[2] = {{.name = "x", .count = 9000, .feedback = {TG_FEEDBACK_EF, 1, 1, 0, 0}},
                                    {.name = "y", .count = 100}};
    tg_status status = TG_OUT_OF_MEMORY;
    tg_error error;
    whole = device->operations;
    operations.allocate = allocate;
    operations.release = release;
    memcpy(&device->operations, &(const tg_operations *){&operations}, sizeof(void *));
    if (tg_spec_parse("topk:density=0.1", &tensors[0].codec, &error) != TG_OK)
        abort();
    for (int most = 0; status != TG_OK && most < 1000; most++) {
        tg_reducer *reducer = NULL;
        allocations_left = most;
        allocated = 0;
        status = tg_reducer_create(device, 1, 3, tensors, 2, &options, &reducer, &error);
        expect(status == TG_OK || status == TG_OUT_OF_MEMORY, "after %d allocations: %s", most, error.message);
        tg_reducer_free(reducer);
        expect(allocated == 0, "%ld allocations of %d are not released", allocated, most);
    }
    memcpy(&device->operations, &whole, sizeof(void *));
    tg_device_free(device);
    check_all("%s: a device that is full loses nothing", tg_algorithm_text(algorithm));
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    for (int algorithm = TG_GATHER; algorithm <= TG_SCATTER; algorithm++)
        for (uint32_t world = 1; world <= MOST_WORLD; world += all || world < 3 ? 1 : 3) {
            if (!my_turn())
                continue;
            rank_case what = {.world = world,
                              .tensors = many,
                              .options = {.algorithm = (tg_algorithm)algorithm, .batch_elements = 4096, .seed = 7},
                              .shape = GAUSSIAN,
                              .steps = all || world == 2 ? STEPS : FEW}; /* boundaries move after 16 */
            one(what, "mixed", world);
            what.steps = FEW;
            what.options.depth = 2;
            what.options.nonfinite = TG_NONFINITE_SKIP;
            what.options.warmup = 2;
            one(what, "a bad gradient", world - 1);
            what.options.nonfinite = TG_NONFINITE_DROP;
            one(what, "a bad gradient", 0);
            what.tensors = crowded;
            one(what, "crowded", world);
        }
    /* gather sets means aside, and room for messages is used in turn */
    for (uint32_t world = 5; world <= MOST_WORLD; world++)
        one((rank_case){.world = world,
                        .tensors = many,
                        .options = {.algorithm = TG_GATHER, .batch_elements = 4096, .warmup = 3},
                        .shape = GAUSSIAN,
                        .steps = FEW},
            "in turn", world);
    refusals();
    heads();
    full_device(TG_GATHER);
    full_device(TG_SHARD);
    return finish();
}
