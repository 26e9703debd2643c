/* Threads that are ranks. */
#include "ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "carrier.h"
#include "guarded.h"
#include "reduce/reducer.h"

const tensor_case mixed_tensors[] = {{"kernel", "topk:density=0.02", "ef", 70001, TG_FLOAT32},
                                     {"matrix", "fp16", "ef", 20000, TG_FLOAT32},
                                     {"bias", "none", "ef", 100, TG_FLOAT32},
                                     {0}};

void fill_gradients(rank_state *s, uint64_t step)
{
    for (size_t i = 0; i < s->tensor_count; i++)
        fill(s->what->shape, 1 + step * 1000 + s->rank * 10 + i, &s->gradients[i]);
}

static const char *const *places;

void put_ranks_on(const char *const *devices) { places = devices; }

/* Whatever the devices, the bits are the same. */
static const char *place_of(uint32_t rank)
{
    static const char *const devices[] = {"cpu", "queued:cpu", "guarded:cpu"}; /* take turns */
    if (!places)
        return named_device() && rank % 2 ? named_device() : devices[rank % 3];
    uint32_t count = 0;
    while (places[count])
        count++;
    return places[rank % count];
}

void open_rank(rank_state *s, const rank_case *what, uint32_t rank, tg_transport *transport)
{
    memset(s, 0, sizeof *s);
    s->what = what;
    s->rank = rank;
    s->transport = transport;
    s->device = open_device(place_of(rank));
    if (rank % 2 == 1 && !named_device())
        cpu_of(s->device)->cache = 0; /* such ranks store everything past the caches, to the same bits */
    for (size_t i = 0; what->tensors[i].name; i++, s->tensor_count++) {
        const tensor_case *t = &what->tensors[i];
        tg_reducer_tensor *tensor = &s->tensors[i];
        *tensor = (tg_reducer_tensor){.name = t->name, .count = t->count, .dtype = t->dtype, .insist = true};
        tensor->boundaries = what->boundaries ? what->boundaries[i] : NULL;
        if (tg_spec_parse(t->spec, &tensor->codec, &s->error) != TG_OK ||
            tg_feedback_parse(t->feedback, &tensor->feedback, &s->error) != TG_OK) {
            printf("FAIL %s\n", s->error.message);
            exit(1);
        }
        s->gradients[i] = make_tensor(t->count, t->dtype, 1);
    }
    s->status = tg_reducer_create(s->device, rank, what->world, s->tensors, s->tensor_count, &what->options,
                                  &s->reducer, &s->error);
}

element_range shown_by(const rank_state *s, size_t tensor)
{
    const uint64_t count = s->tensors[tensor].count, *b = s->tensors[tensor].boundaries, world = s->what->world;
    if (s->what->options.algorithm != TG_SCATTER)
        return (element_range){0, s->rank == 0 ? count : 0};
    return b ? (element_range){b[s->rank], b[s->rank + 1]}
             : (element_range){count * s->rank / world, count * (s->rank + 1) / world};
}

void join_parts(rank_state *states, uint32_t world)
{
    for (uint32_t from = 0; from < world; from++)
        for (size_t t = 0; states[0].what->options.algorithm == TG_SCATTER && t < states[0].tensor_count; t++) {
            const element_range part = shown_by(&states[from], t);
            const size_t size = tg_dtype_size(states[0].gradients[t].dtype);
            for (uint32_t to = 0; to < world; to++)
                if (to != from)
                    memcpy((char *)states[to].gradients[t].data + part.from * size,
                           (const char *)states[from].gradients[t].data + part.from * size,
                           (part.to - part.from) * size);
        }
}

void close_rank(rank_state *s)
{
    tg_reducer_free(s->reducer);
    tg_device_free(s->device);
    for (size_t i = 0; i < s->tensor_count; i++)
        drop(&s->gradients[i]);
}

bool ranks_share;
atomic_uint ranks_sharing;

static void share_memory(rank_state *s)
{
    bool shared = false;
    s->status = tg_reducer_share_memory(s->reducer, s->transport, &shared, &s->error);
    ranks_sharing += shared;
}

typedef struct thread_case {
    void (*body)(rank_state *);
    rank_state state;
} thread_case;

static void *run(void *argument)
{
    thread_case *c = argument;
    if (c->state.status == TG_OK && ranks_share)
        share_memory(&c->state);
    if (c->state.status == TG_OK)
        c->body(&c->state);
    tg_transport_free(c->state.transport);
    c->state.transport = NULL;
    return NULL;
}

void run_ranks(const rank_case *what, tg_transport **given, void (*body)(rank_state *),
               void (*after)(rank_state *, uint32_t), void *extra)
{
    tg_transport *transports[MOST_RANKS];
    static thread_case cases[MOST_RANKS];
    static rank_state states[MOST_RANKS];
    pthread_t threads[MOST_RANKS];
    tg_error error;
    if (given)
        memcpy(transports, given, what->world * sizeof *given);
    else if (tg_transport_local(what->world, transports, &error) != TG_OK) {
        printf("FAIL %s\n", error.message);
        exit(1);
    }
    tg_transport *devices[MOST_RANKS] = {NULL};
    const bool carried = what->options.on_device && !tg_transport_on_device(transports[0]);
    if (carried && tg_transport_local(what->world, devices, &error) != TG_OK)
        abort();
    for (uint32_t rank = 0; rank < what->world; rank++) {
        cases[rank].body = body;
        open_rank(&cases[rank].state, what->odd && rank == what->odd_rank ? what->odd : what, rank, transports[rank]);
        cases[rank].state.extra = extra;
        if (carried)
            cases[rank].state.transport = carry(transports[rank], devices[rank], cases[rank].state.device);
    }
    for (uint32_t rank = 0; rank < what->world; rank++)
        if (pthread_create(&threads[rank], NULL, run, &cases[rank]) != 0)
            abort();
    for (uint32_t rank = 0; rank < what->world; rank++)
        (void)pthread_join(threads[rank], NULL);
    for (uint32_t rank = 0; rank < what->world; rank++)
        states[rank] = cases[rank].state;
    if (after)
        after(states, what->world);
    for (uint32_t rank = 0; rank < what->world; rank++)
        close_rank(&states[rank]);
}

/* From one rank's device to another's. */
static void carry_body(const tg_reduction *from, const tg_reduction *to, void *there, const void *here, size_t size)
{
    char *bytes = malloc(size);
    if (tg_device_copy_out(from->reducer->device, bytes, here, size, NULL) != TG_OK ||
        tg_device_copy_in(to->reducer->device, there, bytes, size, NULL) != TG_OK)
        abort();
    free(bytes);
}

/* What a back end does that has such a collective. */
static void find_minimum(tg_exchange *const *exchanges, uint32_t world)
{
    const size_t size = exchanges[0]->send_size[0], count = size / sizeof(uint64_t);
    uint64_t *least = malloc(size), *given = malloc(size);
    memcpy(least, exchanges[0]->send[0], size);
    for (uint32_t rank = 1; rank < world; rank++) {
        expect(exchanges[rank]->kind == TG_ALL_MINIMUM && exchanges[rank]->send_size[0] == size,
               "rank %u gives something else", rank);
        memcpy(given, exchanges[rank]->send[0], size);
        for (size_t i = 0; i < count; i++)
            least[i] = given[i] < least[i] ? given[i] : least[i];
    }
    for (size_t i = 0; i < count; i++)
        expect(least[i] >> 63 == 0, "number %zu has all 64 bits", i);
    for (uint32_t rank = 0; rank < world; rank++) {
        expect(exchanges[rank]->capacity[0] == size, "rank %u has room for something else", rank);
        memcpy(exchanges[rank]->receive[0], least, size);
        exchanges[rank]->received[0] = size;
    }
    free(least);
    free(given);
}

bool hand_out(tg_reduction *const *reductions, uint32_t world, tg_exchange **exchanges)
{
    tg_error error;
    for (uint32_t rank = 0; rank < world; rank++)
        expect(tg_reduce_next(reductions[rank], &exchanges[rank], &error) == TG_OK, "%s", error.message);
    return exchanges[0] != NULL;
}

void carry_by_hand(tg_reduction *const *reductions, uint32_t world, tg_exchange *const *exchanges)
{
    if (exchanges[0]->kind == TG_ALL_MINIMUM) {
        find_minimum(exchanges, world);
        return;
    }
    for (uint32_t a = 0; a < world; a++)
        for (uint32_t b = 0; b < world; b++)
            if (a != b && exchanges[a]->send_size[b] != TG_NO_MESSAGE && exchanges[a]->on_device) {
                expect(exchanges[b]->capacity[a] == exchanges[a]->send_size[b], "a body of another length");
                carry_body(reductions[a], reductions[b], exchanges[b]->receive[a], exchanges[a]->send[b],
                           exchanges[a]->send_size[b]);
            } else if (a != b && exchanges[a]->send_size[b] != TG_NO_MESSAGE) {
                memcpy(exchanges[b]->receive[a], exchanges[a]->send[b], exchanges[a]->send_size[b]);
                exchanges[b]->received[a] = (a + b) % 2 ? TG_UNKNOWN_SIZE : exchanges[a]->send_size[b];
            }
}

void feed_all(tg_reduction *const *reductions, uint32_t world, tg_exchange *const *exchanges)
{
    tg_error error;
    for (uint32_t rank = 0; rank < world; rank++)
        expect(tg_reduce_feed(reductions[rank], exchanges[rank], &error) == TG_OK, "%s", error.message);
}

bool exchange_by_hand(tg_reduction *const *reductions, uint32_t world)
{
    tg_exchange *exchanges[MOST_RANKS] = {NULL};
    if (!hand_out(reductions, world, exchanges))
        return false;
    carry_by_hand(reductions, world, exchanges);
    feed_all(reductions, world, exchanges);
    return true;
}
