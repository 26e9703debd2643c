/* The suite: exchanges of many sizes, several under way, waited for out of order, misuse; then whole reductions. */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "support.h"

enum { SLOTS = 100, LARGEST = 300000 };

typedef struct trial {
    tg_exchange exchange;
    const void *send[64];
    size_t send_size[64];
    void *receive[64];
    size_t capacity[64], received[64];
} trial;

static unsigned char byte_of(unsigned from, unsigned to, unsigned number, size_t at)
{
    return (unsigned char)((from * 131 + to * 31 + number * 7 + at * 13) ^ at >> 8);
}

/* How much one rank sends another: for all-gather the same to everybody. */
static size_t size_of(tg_exchange_kind kind, unsigned from, unsigned to, unsigned number)
{
    static const size_t sizes[] = {0, 1, 7, 4096, 65537, 1000, 250000, 65536};
    const size_t base = sizes[(number + from) % 8] / (number < 8 ? 1 : 100); /* many, or large */
    return kind == TG_ALL_GATHER ? base : base + to * (number % 3);
}

/* Not all exchanges are between all ranks: some go round a ring, some between every other rank, some are empty. */
static bool is_sent(unsigned from, unsigned to, unsigned number, unsigned world)
{
    switch (number % 6) {
    case 2:
        return to == (from + 1) % world;
    case 3:
        return from % 2 == to % 2;
    case 4:
        return number % 12 == 4;
    default:
        return true;
    }
}

static void prepare(trial *t, tg_exchange_kind kind, unsigned number, unsigned rank, unsigned world)
{
    for (unsigned peer = 0; peer < world; peer++) {
        const size_t size = size_of(kind, rank, peer, number), due = size_of(kind, peer, rank, number);
        unsigned char *bytes = malloc(size + 1);
        for (size_t i = 0; i < size; i++)
            bytes[i] = byte_of(rank, kind == TG_ALL_GATHER ? 0 : peer, number, i);
        t->send[peer] = bytes;
        t->send_size[peer] = size;
        t->capacity[peer] = due + (number % 2 ? 100 : 0); /* also with no byte to spare */
        t->receive[peer] = malloc(t->capacity[peer] + 1);
        t->received[peer] = 12345;
        if (!is_sent(rank, peer, number, world))
            t->send_size[peer] = TG_NO_MESSAGE;
        if (!is_sent(peer, rank, number, world))
            t->capacity[peer] = TG_NO_MESSAGE;
    }
    t->exchange = (tg_exchange){kind, world, t->send, t->send_size, t->receive, t->capacity, t->received, false};
}

/* False if something else came than was sent. Gives the buffers back. */
static bool arrived(trial *t, unsigned number, unsigned rank, unsigned world)
{
    bool right = true;
    for (unsigned peer = 0; peer < world; peer++) {
        const tg_exchange_kind kind = t->exchange.kind;
        const unsigned char *bytes = t->receive[peer];
        const size_t due = size_of(kind, peer, rank, number);
        if (peer != rank && !is_sent(peer, rank, number, world)) {
            right = right && t->received[peer] == 12345;
        } else if (peer != rank) {
            right = right && t->received[peer] == due;
            for (size_t i = 0; right && i < due; i++)
                right = bytes[i] == byte_of(peer, kind == TG_ALL_GATHER ? 0 : rank, number, i);
        }
        free((void *)(uintptr_t)t->send[peer]);
        free(t->receive[peer]);
    }
    return right;
}

/* `count` exchanges under way at once, waited for in the order of starting or backwards. */
static void several(tg_transport *transport, unsigned count, bool backwards, tg_error *problem)
{
    const unsigned rank = tg_transport_rank(transport), world = tg_transport_world(transport);
    trial *trials = calloc(count, sizeof *trials);
    tg_error error;
    for (unsigned i = 0; i < count; i++) {
        prepare(&trials[i], i % 2 ? TG_ALL_TO_ALL : TG_ALL_GATHER, i, rank, world);
        if (tg_transport_start(transport, &trials[i].exchange, &error) != TG_OK && !problem->message[0])
            *problem = error;
    }
    for (unsigned i = 0; i < count && !problem->message[0]; i++) {
        const unsigned at = backwards ? count - 1 - i : i;
        if (tg_transport_wait(transport, &trials[at].exchange, PATIENCE, &error) != TG_OK)
            *problem = error;
        else if (!arrived(&trials[at], at, rank, world))
            (void)snprintf(problem->message, sizeof problem->message, "exchange %u of %u: not what was sent", at,
                           count);
    }
    free(trials);
}

static void misuse(tg_transport *transport, tg_error *problem)
{
    trial t;
    memset(&t, 0, sizeof t);
    tg_error error;
    t.exchange = (tg_exchange){
        TG_ALL_GATHER, tg_transport_world(transport), t.send, t.send_size, t.receive, t.capacity, t.received, false};
    bool refused = tg_transport_wait(transport, &t.exchange, 0, &error) == TG_INVALID_ARGUMENT;
    refused = refused && tg_transport_wait(transport, &t.exchange, -1, &error) == TG_INVALID_ARGUMENT;
    refused = refused && tg_transport_start(transport, NULL, &error) == TG_INVALID_ARGUMENT;
    t.exchange.world++;
    refused = refused && tg_transport_start(transport, &t.exchange, &error) == TG_INVALID_ARGUMENT;
    t.exchange.world--;
    t.exchange.kind = (tg_exchange_kind)7;
    refused = refused && tg_transport_start(transport, &t.exchange, &error) == TG_INVALID_ARGUMENT;
    if (!refused && !problem->message[0])
        (void)snprintf(problem->message, sizeof problem->message, "misuse was not refused: %.100s", error.message);
}

unsigned conform(tg_transport *transport, tg_error *problem)
{
    static const unsigned counts[] = {1, 2, 8, 25, SLOTS};
    unsigned tried = 0;
    problem->message[0] = '\0';
    for (size_t i = 0; i < sizeof counts / sizeof *counts && !problem->message[0]; i++)
        for (unsigned backwards = 0; backwards < 2; backwards++, tried++)
            several(transport, counts[i], backwards, problem);
    misuse(transport, problem);
    return tried + 1;
}

/* ---- whole reductions ---- */

/* By value, so that it is the same on machines that store numbers the other way round. */
static uint64_t mix(uint64_t digest, const tg_tensor *tensor)
{
    for (uint64_t i = 0; i < tensor->count; i++) {
        const float value = element(tensor, i);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        digest = (digest ^ bits) * UINT64_C(0x100000001b3);
    }
    return digest;
}

enum { LARGE = 200003, SMALL = 77, STEPS = 3, MOST_HERE = 64 };

/* Some steps of two tensors, mixed into the digest. With `in_memory` the ranks of a host must have memory together, and
 * the large gradient lies there. */
static uint64_t some_steps(tg_transport *transport, tg_device *device, const char *spec,
                           const tg_reducer_options *options, bool in_memory, uint64_t digest, tg_error *problem)
{
    const uint32_t rank = tg_transport_rank(transport);
    tg_tensor gradients[2] = {make_tensor(LARGE, TG_FLOAT32, 0), make_tensor(SMALL, TG_BFLOAT16, 0)};
    const tg_tensor own = gradients[0];
    tg_reducer_tensor tensors[2] = {{.name = "large", .count = LARGE},
                                    {.name = "small", .count = SMALL, .dtype = TG_BFLOAT16}};
    tg_reducer *reducer = NULL;
    tg_status status = TG_OK;
    bool shared = false;
    for (unsigned t = 0; t < 2 && status == TG_OK; t++) {
        status = tg_spec_parse(spec, &tensors[t].codec, problem);
        tensors[t].feedback = (tg_feedback_spec){.kind = TG_FEEDBACK_EF, .alpha = 1, .beta = 1};
    }
    if (status == TG_OK)
        status = tg_reducer_create(device, rank, tg_transport_world(transport), tensors, 2, options, &reducer, problem);
    if (status == TG_OK && in_memory)
        status = tg_reducer_share_memory(reducer, transport, &shared, problem);
    if (status == TG_OK && in_memory && !shared)
        status = tg_fail(problem, TG_UNAVAILABLE, "rank %u shares no memory", rank);
    if (status == TG_OK && shared)
        gradients[0].data = tg_reducer_gradient_memory(reducer, 0);
    for (uint64_t step = 0; step < STEPS && status == TG_OK; step++) {
        fill(GAUSSIAN, 100 * step + rank, &gradients[0]);
        fill(GAUSSIAN, 100 * step + rank + 50, &gradients[1]);
        status = tg_reduce(reducer, transport, gradients, step, problem);
        digest = mix(mix(digest, &gradients[0]), &gradients[1]);
    }
    tg_reducer_free(reducer);
    gradients[0] = own;
    drop(&gradients[0]);
    drop(&gradients[1]);
    return digest;
}

static const char *const specs[] = {"none",
                                    "fp16",
                                    "qsgd:levels=7,bucket=512",
                                    "qsgd:levels=127,coding=entropy",
                                    "terngrad",
                                    "onebit",
                                    "topk:density=0.01",
                                    "gaussiank:density=0.01,values=fp16",
                                    "topk:density=0.05,values=levels,levels=7"};
enum { SPECS = sizeof specs / sizeof *specs };

uint64_t reduce_over(tg_transport *transport, const char *device_name, tg_error *problem)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    tg_device *device = open_device(device_name);
    problem->message[0] = '\0';
    for (size_t i = 0; i < SPECS; i++)
        for (int algorithm = TG_GATHER; algorithm <= TG_SHARD && !problem->message[0]; algorithm++) {
            const tg_reducer_options options = {.algorithm = (tg_algorithm)algorithm,
                                                .seed = 11,
                                                .batch_elements = 32768,
                                                .timeout = PATIENCE,
                                                .on_device = tg_transport_on_device(transport)};
            digest = some_steps(transport, device, specs[i], &options, false, digest, problem);
        }
    tg_device_free(device);
    return digest;
}

uint64_t reduce_levels_over(tg_transport *transport, const char *device_name, tg_error *problem)
{
    const uint32_t world = tg_transport_world(transport);
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    uint32_t hosts[MOST_HERE];
    for (uint32_t rank = 0; rank < world; rank++)
        hosts[rank] = rank / 2;
    tg_device *device = open_device(device_name), *plain = open_device("cpu");
    problem->message[0] = '\0';
    for (size_t i = 0; i < SPECS; i++)
        for (int algorithm = TG_GATHER; algorithm <= TG_SHARD && !problem->message[0]; algorithm++) {
            const tg_reducer_options options = {.algorithm = (tg_algorithm)algorithm,
                                                .seed = 11,
                                                .batch_elements = 32768,
                                                .timeout = PATIENCE,
                                                .host_of_rank = hosts};
            const uint64_t sent = some_steps(transport, device, specs[i], &options, false, digest, problem),
                           shared = some_steps(transport, plain, specs[i], &options, world > 1, digest, problem);
            if (sent != shared && !problem->message[0])
                (void)tg_fail(problem, TG_CORRUPT, "%s: shared memory makes a difference", specs[i]);
            digest = shared;
        }
    tg_device_free(device);
    tg_device_free(plain);
    return digest;
}
