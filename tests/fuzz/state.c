/* Saved states of reducers, spoiled by whoever fuzzes. Three ranks make three steps in this process and save, or four
 * on two hosts; each state is edited, its checksum is made right again, and a reducer loads them: of the same world, or
 * of a smaller one, which takes several, or, where there are or were hosts, all. The input: algorithms, whether there
 * were hosts, whether there are, and whether a rank is given its own state alone; which reducer loads, which state is
 * edited, how many bytes are cut off or added, whether the checksum is left wrong, then edits of three bytes (a place,
 * a value). Promises: what is refused
 * says why and changes nothing; what is loaded has finite residuals; a state of the same rank and world that is loaded
 * saves to the same bytes, and any other to bytes that load and save again alike. */
#include "tests/fuzz/fuzz.h"

#include <math.h>

#include "base/bytes.h"
#include "device/cpu/cpu.h"
#include "reduce/state.h"

enum { TENSORS = 4, MOST_WORLD = 5, STEPS = 3 };

static tg_device *device;
/* The first is long enough for boundaries that move, also in halves. */
static const uint64_t counts[TENSORS] = {132000, 40, 0, 17};
static const char *const names[TENSORS] = {"kernel", "bias", "", "gate"};
static const char *const specs[TENSORS] = {"topk:k=9,values=levels", "qsgd:levels=7,bucket=16", "none", "topk:k=3"};
static const tg_feedback_spec feedbacks[TENSORS] = {{TG_FEEDBACK_EF, 1, 1, 0, 0},
                                                    {TG_FEEDBACK_ECQ, 0.5f, 0.9f, 0, 0},
                                                    {TG_FEEDBACK_NONE, 0, 0, 0, 0},
                                                    {TG_FEEDBACK_DGC, 1, 1, 0.5f, 0}};

/* Ranks of a world, on hosts or each alone. */
typedef struct team {
    tg_algorithm algorithm;
    uint32_t world;
    const uint32_t *hosts;
} team;

static const uint32_t two_by_two[] = {0, 0, 1, 1}, uneven[] = {0, 1, 0, 1, 1}, one_host[] = {0, 0, 0};

static tg_reducer *make_reducer(const team *team, uint32_t rank)
{
    tg_reducer_tensor tensors[TENSORS];
    tg_error error;
    tg_reducer *reducer;
    for (unsigned i = 0; i < TENSORS; i++) {
        tensors[i] = (tg_reducer_tensor){
            .name = names[i], .count = counts[i], .feedback = feedbacks[i], .insist = true};
        REQUIRE(tg_spec_parse(specs[i], &tensors[i].codec, &error) == TG_OK, "%s", error.message);
    }
    const tg_reducer_options options = {.algorithm = team->algorithm, .depth = 2, .host_of_rank = team->hosts};
    REQUIRE(tg_reducer_create(device, rank, team->world, tensors, TENSORS, &options, &reducer, &error) == TG_OK, "%s",
            error.message);
    return reducer;
}

static tg_state save(const tg_reducer *reducer)
{
    tg_error error;
    size_t size;
    REQUIRE(tg_reducer_save(reducer, NULL, 0, &size, &error) == TG_OK, "%s", error.message);
    void *bytes = exact_buffer(size, 0);
    REQUIRE(tg_reducer_save(reducer, bytes, size, &size, &error) == TG_OK, "%s", error.message);
    return (tg_state){bytes, size};
}

/* All ranks side by side, without a transport. */
static void step_together(const team *team, tg_reducer **reducers, tg_tensor gradients[][TENSORS], uint64_t step)
{
    tg_reduction *reductions[MOST_WORLD];
    tg_exchange *exchanges[MOST_WORLD];
    tg_error error;
    for (unsigned i = 0; i < team->world; i++)
        REQUIRE(tg_reduce_begin(reducers[i], gradients[i], step, &reductions[i], &error) == TG_OK, "%s", error.message);
    for (;;) {
        for (unsigned i = 0; i < team->world; i++)
            REQUIRE(tg_reduce_next(reductions[i], &exchanges[i], &error) == TG_OK, "%s", error.message);
        if (!exchanges[0])
            break;
        for (unsigned to = 0; to < team->world; to++)
            for (unsigned from = 0; from < team->world; from++) {
                if (from == to || exchanges[from]->send_size[to] == TG_NO_MESSAGE)
                    continue;
                memcpy(exchanges[to]->receive[from], exchanges[from]->send[to], exchanges[from]->send_size[to]);
                exchanges[to]->received[from] = exchanges[from]->send_size[to];
            }
        for (unsigned i = 0; i < team->world; i++)
            REQUIRE(tg_reduce_feed(reductions[i], exchanges[i], &error) == TG_OK, "%s", error.message);
    }
    for (unsigned i = 0; i < team->world; i++)
        REQUIRE(tg_reduce_end(reductions[i], &error) == TG_OK, "%s", error.message);
}

/* States of all ranks after some steps; made once for each team. */
static const tg_state *saved_states(const team *team)
{
    static tg_state states[4][MOST_WORLD];
    tg_state *of = states[(team->hosts ? 2 : 0) + (team->algorithm == TG_SHARD)];
    if (of[0].data)
        return of;
    tg_reducer *reducers[MOST_WORLD];
    tg_tensor gradients[MOST_WORLD][TENSORS];
    for (unsigned i = 0; i < team->world; i++) {
        reducers[i] = make_reducer(team, i);
        for (unsigned t = 0; t < TENSORS; t++)
            gradients[i][t] = (tg_tensor){exact_buffer(counts[t] * sizeof(float), 0), counts[t], TG_FLOAT32};
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        for (unsigned i = 0; i < team->world; i++)
            for (unsigned t = 0; t < TENSORS; t++)
                for (uint64_t j = 0; j < counts[t]; j++)
                    ((float *)gradients[i][t].data)[j] = (float)((j * 2654435761u + i * 97 + t + step) % 4093) / 4096 -
                                                         0.5f;
        step_together(team, reducers, gradients, step);
    }
    for (unsigned i = 0; i < team->world; i++) {
        of[i] = save(reducers[i]);
        tg_reducer_free(reducers[i]);
        for (unsigned t = 0; t < TENSORS; t++)
            free(gradients[i][t].data);
    }
    return of;
}

/* What is numbers, and not residuals, lies around the ends: the first half of the places count from the start, the
 * others from the end. */
static tg_state spoil(const tg_state *good, unsigned kind, bool forge, const uint8_t *edits, size_t count)
{
    static const int changes[] = {0, 0, 0, 0, -1, -4, -8, -41, 1, 4, 8, 92};
    const size_t size = good->size + (size_t)changes[kind % (sizeof changes / sizeof *changes)];
    uint8_t *bytes = exact_buffer(size, 0);
    memcpy(bytes, good->data, size < good->size ? size : good->size);
    for (size_t i = 0; i < count; i++) {
        const size_t place = (size_t)edits[3 * i] | (size_t)(edits[3 * i + 1] & 0x7f) << 8;
        bytes[(edits[3 * i + 1] & 0x80 ? size - 1 - place % size : place) % size] ^= edits[3 * i + 2];
    }
    if (forge)
        tg_store64(bytes + size - 8, tg_cpu_of(device)->kernels->digest(bytes, size - 8));
    return (tg_state){bytes, size};
}

static bool is_same(const tg_state *a, const tg_state *b)
{
    return a->size == b->size && memcmp(a->data, b->data, a->size) == 0;
}

static void require_finite(const tg_reducer *reducer)
{
    const tg_reducer *home = tg_state_home(reducer);
    for (unsigned t = 0; home && t < TENSORS; t++) {
        tg_feedback *feedback = home->tensors[t].feedback;
        const float *residual = feedback ? residual_of(feedback) : NULL;
        const float *momentum = feedback ? momentum_of(feedback) : NULL;
        for (uint64_t j = 0; feedback && j < home->tensors[t].given.count; j++)
            REQUIRE(isfinite(residual[j]) && (!momentum || isfinite(momentum[j])), "tensor %u, element %u", t,
                    (unsigned)j);
    }
}

/* Who loads: a reducer that has nothing yet, made once, and what it saves then. */
typedef struct loader {
    tg_reducer *reducer;
    tg_state nothing;
} loader;

static loader *loader_of(unsigned which, tg_algorithm algorithm, bool hosts)
{
    enum { LOADERS = 6 };
    static const struct {
        uint32_t rank, world;
        const uint32_t *hosts;
    } who[2][LOADERS] = {
        {{0, 3, NULL}, {1, 3, NULL}, {0, 2, NULL}, {1, 2, NULL}, {0, 1, NULL}, {3, 4, NULL}},
        {{0, 4, two_by_two}, {3, 4, two_by_two}, {1, 5, uneven}, {4, 5, uneven}, {1, 3, one_host}, {2, 4, two_by_two}}};
    static loader loaders[2][2][LOADERS];
    loader *l = &loaders[hosts][algorithm == TG_SHARD][which % LOADERS];
    tg_error error;
    if (!l->reducer) {
        const team team = {algorithm, who[hosts][which % LOADERS].world, who[hosts][which % LOADERS].hosts};
        l->reducer = make_reducer(&team, who[hosts][which % LOADERS].rank);
        l->nothing = save(l->reducer);
    }
    REQUIRE(tg_reducer_load(l->reducer, NULL, 0, &error) == TG_OK, "%s", error.message); /* forgets */
    return l;
}

/* Whether a state that was loaded is of the very rank and plan that loaded it. */
static bool is_exact(const tg_state *state, const tg_reducer *reducer)
{
    enum { HOSTS_AT = TG_STATE_HEAD + 16 * 8 }; /* behind the counters: how many, which, and their digest */
    const uint8_t *head = state->data;
    const tg_levels *l = reducer->levels;
    return head[5] == (uint8_t)reducer->algorithm && tg_load32(head + 8) == reducer->rank &&
           tg_load32(head + 12) == reducer->world && tg_load64(head + 24) == reducer->options.batch_elements &&
           tg_load32(head + 32) == reducer->options.depth && !(head[6] & TG_STATE_LEVELS) == !l &&
           (!l || tg_load64(head + HOSTS_AT + 8) == l->digest);
}

/* The states that a loader is given, one of them edited; returns which is its own, if that is all it takes. */
static const tg_state *give(const uint8_t *data, size_t size, const team *team, const tg_reducer *to, tg_state *states,
                            size_t *count)
{
    const tg_state *good = saved_states(team);
    const bool hosts = team->hosts || to->levels, all = hosts && !(data[0] & 16);
    const uint32_t first = all ? 0 : to->rank, apart = all ? 1 : hosts ? MOST_WORLD : to->world;
    *count = 0;
    for (uint32_t i = first; i < team->world; i += apart, ++*count)
        states[*count] = *count == data[2] % team->world
                             ? spoil(&good[i], data[3], !(data[4] & 1), data + 5, (size - 5) / 3)
                             : spoil(&good[i], 0, true, NULL, 0);
    const tg_state *own = all && to->rank < *count ? &states[to->rank] : &states[0];
    return (*count == 1 || all) && *count > 0 && is_exact(own, to) ? own : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tg_device *devices[FUZZ_DEVICES_MAX];
    device = devices[open_devices(devices) - 1];
    if (size < 5)
        return 0;
    const team saver = {data[0] & 1 ? TG_SHARD : TG_GATHER, data[0] & 4 ? 4 : 3, data[0] & 4 ? two_by_two : NULL};
    const loader *l = loader_of(data[1], data[0] & 2 ? TG_SHARD : TG_GATHER, data[0] & 8);
    tg_state states[MOST_WORLD];
    size_t count;
    const tg_state *own = give(data, size, &saver, l->reducer, states, &count);
    tg_error error = {""};
    const tg_status status = tg_reducer_load(l->reducer, states, count, &error);
    const tg_state after = save(l->reducer);
    if (status != TG_OK) {
        REQUIRE(error.message[0], "refused without a reason");
        REQUIRE(is_same(&l->nothing, &after), "a state that was refused changed the reducer: %s", error.message);
    } else {
        require_finite(l->reducer);
        if (own)
            REQUIRE(is_same(&after, own), "a state that was loaded saves to other bytes");
        REQUIRE(tg_reducer_load(l->reducer, &after, 1, &error) == TG_OK, "our own state: %s", error.message);
        const tg_state again = save(l->reducer);
        REQUIRE(is_same(&after, &again), "our own state saves to other bytes");
        free((void *)again.data);
    }
    for (size_t i = 0; i < count; i++)
        free((void *)states[i].data);
    free((void *)after.data);
    return 0;
}
