/* Laws of exchanges in rounds, as worlds of more than eight ranks have them: whichever ranks have something to say
 * about a step, all hear of the lowest; and whatever happens to a message of a round, no two ranks part for more than a
 * step.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"
#include "faulty.h"
#include "ranks.h"
#include "reduce/reducer.h"

static const tensor_case tensors[] = {
    {"x", "qsgd:levels=7,bucket=512", "ef", 3000, TG_FLOAT32}, {"y", "topk:density=0.1", "ef", 500, TG_FLOAT32}, {0}};

/* ---- who is heard ---- */

static bool is_bad(uint64_t which, uint32_t rank, uint32_t world)
{
    return which == 0 ? false : which <= world ? rank == which - 1 : (rank * 7 + which) % 5 == 0;
}

/* One step in which some ranks have a gradient that is not finite. */
static void one_is_heard(tg_algorithm algorithm, uint32_t world, uint64_t which)
{
    const rank_case what = {.world = world,
                            .tensors = tensors,
                            .options = {.algorithm = algorithm, .batch_elements = 4096},
                            .shape = GAUSSIAN};
    static rank_state states[MOST_RANKS];
    tg_reduction *reductions[MOST_RANKS];
    tg_error errors[MOST_RANKS];
    uint32_t lowest = world;
    for (uint32_t rank = 0; rank < world; rank++) {
        open_rank(&states[rank], &what, rank, NULL);
        fill_gradients(&states[rank], 0);
        if (is_bad(which, rank, world)) {
            ((float *)states[rank].gradients[rank % 2].data)[7] = NAN;
            lowest = rank < lowest ? rank : lowest;
        }
        expect(tg_reduce_begin(states[rank].reducer, states[rank].gradients, 0, &reductions[rank], &errors[0]) == TG_OK,
               "%s", errors[0].message);
    }
    while (exchange_by_hand(reductions, world)) {}
    char due[80];
    (void)snprintf(due, sizeof due, "of tensor '%s' on rank %u:", tensors[lowest % 2].name, lowest);
    for (uint32_t rank = 0; rank < world; rank++) {
        const tg_status status = tg_reduce_end(reductions[rank], &errors[rank]);
        expect(status == (lowest < world ? TG_NONFINITE : TG_OK), "rank %u: %s", rank, errors[rank].message);
        expect(lowest == world || strstr(errors[rank].message, due), "rank %u: %s", rank, errors[rank].message);
        close_rank(&states[rank]);
    }
}

/* ---- messages that are handed on ---- */

/* Two steps, in the second of which some ranks lack a tensor. Returns how many messages the first rank sends of
 * gradients in one, and leaves a copy of the first tensors' means. */
static unsigned two_steps(const tensor_case *list, uint32_t world, float *means)
{
    const rank_case what = {.world = world, .tensors = list, .options = {.algorithm = TG_GATHER}, .shape = GAUSSIAN};
    static rank_state states[MOST_RANKS];
    tg_reduction *reductions[MOST_RANKS];
    tg_error error;
    unsigned messages = 0;
    for (uint32_t rank = 0; rank < world; rank++)
        open_rank(&states[rank], &what, rank, NULL);
    for (uint64_t step = 0; step < 2; step++) {
        for (uint32_t rank = 0; rank < world; rank++) {
            rank_state *s = &states[rank];
            fill_gradients(s, step);
            expect(tg_reduce_begin(s->reducer, NULL, step, &reductions[rank], &error) == TG_OK, "%s", error.message);
            for (size_t i = 0; i < s->tensor_count; i++)
                expect((step == 1 && i == 1 && rank % 3 == 0
                            ? tg_reduce_absent(reductions[rank], i, &s->gradients[i], &error)
                            : tg_reduce_ready(reductions[rank], i, &s->gradients[i], &error)) == TG_OK,
                       "%s", error.message);
        }
        while (exchange_by_hand(reductions, world)) {}
        for (uint32_t rank = 0; rank < world; rank++) {
            expect(tg_reduce_end(reductions[rank], &error) == TG_OK, "rank %u: %s", rank, error.message);
            for (size_t i = 0; i < 2; i++)
                expect(memcmp(states[0].gradients[i].data, states[rank].gradients[i].data,
                              (size_t)list[i].count * sizeof(float)) == 0,
                       "ranks 0 and %u differ", rank);
        }
        for (size_t i = 0; i < 2; i++) {
            memcpy(means, states[0].gradients[i].data, (size_t)list[i].count * sizeof(float));
            means += list[i].count;
        }
    }
    for (size_t i = 0; i < reductions[0]->relay_count; i++)
        messages += reductions[0]->relays[i].round_count;
    for (uint32_t rank = 0; rank < world; rank++)
        close_rank(&states[rank]);
    return messages;
}

static void sums_are_the_same(uint32_t world)
{
    enum { COUNT = 3500 };
    const tensor_case more[] = {tensors[0], tensors[1], {"z", "none", "none", 9000, TG_FLOAT32}, {0}};
    float *handed_on = calloc(2 * COUNT, sizeof *handed_on), *at_once = calloc(2 * COUNT, sizeof *at_once);
    unsigned rounds = 0;
    while (1u << rounds < world)
        rounds++;
    const unsigned messages = two_steps(tensors, world, handed_on);
    expect(messages == (world > 8 ? rounds : 0), "%u messages are handed on", messages);
    expect(two_steps(more, world, at_once) == 0, "a large message is handed on");
    expect(memcmp(handed_on, at_once, 2 * COUNT * sizeof *handed_on) == 0, "sums differ");
    check_all("gather, world %u: messages that are handed on come to the same sums", world);
    free(handed_on);
    free(at_once);
}

/* ---- means that are set aside ---- */

enum { ASIDE = 12, VALUES = 103000 };

/* Two steps of all ranks; the means are left in `means`, the second step's with values so large that sums overflow. At
 * most `window` batches may be under way at once. Returns how many were. */
static size_t steps_aside(tg_nonfinite_step policy, uint64_t batch_elements, uint32_t window, unsigned char *means,
                          tg_status last)
{
    static const tensor_case list[] = {{"a", "none", "none", 50000, TG_FLOAT32},
                                       {"b", "fp16", "ef", 30000, TG_FLOAT32},
                                       {"c", "none", "none", 20000, TG_BFLOAT16},
                                       {"d", "topk:density=0.1", "ef", 3000, TG_FLOAT32},
                                       {0}};
    const rank_case what = {.world = ASIDE,
                            .tensors = list,
                            .options = {.algorithm = TG_GATHER, .batch_elements = batch_elements, .nonfinite = policy},
                            .shape = GAUSSIAN};
    static rank_state states[ASIDE];
    tg_reduction *reductions[ASIDE];
    tg_error error;
    size_t most = 0;
    for (uint32_t rank = 0; rank < ASIDE; rank++) {
        open_rank(&states[rank], &what, rank, NULL);
        if (states[rank].reducer && states[rank].reducer->gather_window > window)
            states[rank].reducer->gather_window = window;
    }
    for (uint64_t step = 0; step < 2; step++) {
        for (uint32_t rank = 0; rank < ASIDE; rank++) {
            rank_state *s = &states[rank];
            fill_gradients(s, step);
            for (uint64_t j = 40000; step == 1 && j < 40100; j++)
                ((float *)s->gradients[0].data)[j] = 3e38f;
            expect(tg_reduce_begin(s->reducer, NULL, step, &reductions[rank], &error) == TG_OK, "%s", error.message);
            for (size_t i = 0; i < s->tensor_count; i++)
                expect((i == 1 && rank % 3 == 0
                            ? tg_reduce_absent(reductions[rank], i, &s->gradients[i], &error)
                            : tg_reduce_ready(reductions[rank], i, &s->gradients[i], &error)) == TG_OK,
                       "%s", error.message);
        }
        /* As many at once as each rank has. */
        tg_exchange *started[ASIDE][64];
        size_t counts[ASIDE] = {0}, fed = 0;
        for (bool more = true; more; fed++) {
            for (uint32_t rank = 0; rank < ASIDE; rank++)
                for (tg_exchange *e; tg_reduce_next(reductions[rank], &e, &error) == TG_OK && e;)
                    started[rank][counts[rank]++ % 64] = e;
            most = counts[0] - fed > most ? counts[0] - fed : most;
            more = counts[0] > fed;
            for (uint32_t a = 0; more && a < ASIDE; a++)
                for (uint32_t b = 0; b < ASIDE; b++) {
                    const tg_exchange *from = started[a][fed % 64], *to = started[b][fed % 64];
                    if (a == b || from->send_size[b] == TG_NO_MESSAGE)
                        continue;
                    memcpy(to->receive[a], from->send[b], from->send_size[b]);
                    to->received[a] = from->send_size[b];
                }
            for (uint32_t a = 0; more && a < ASIDE; a++)
                expect(tg_reduce_feed(reductions[a], started[a][fed % 64], &error) == TG_OK, "%s", error.message);
        }
        for (uint32_t rank = 0; rank < ASIDE; rank++)
            expect(tg_reduce_end(reductions[rank], &error) == (step == 1 ? last : TG_OK), "rank %u: %s", rank,
                   error.message);
        for (size_t i = 0; i < states[0].tensor_count; i++) {
            const size_t size = (size_t)list[i].count * tg_dtype_size(list[i].dtype);
            for (uint32_t rank = 1; (step == 0 || last == TG_OK) && rank < ASIDE; rank++)
                expect(memcmp(states[0].gradients[i].data, states[rank].gradients[i].data, size) == 0,
                       "ranks 0 and %u differ", rank);
            memcpy(means, states[0].gradients[i].data, size);
            means += size;
        }
    }
    for (uint32_t rank = 0; rank < ASIDE; rank++)
        close_rank(&states[rank]);
    return most;
}

static void means_are_the_same(tg_nonfinite_step policy, tg_status last)
{
    unsigned char *aside = calloc(2 * VALUES, 4), *kept = calloc(2 * VALUES, 4);
    expect(steps_aside(policy, 1 << 20, 8, kept, last) == 1, "there are several batches");
    for (uint32_t window = 1; window <= 8; window += 7) {
        expect(steps_aside(policy, 4096, window, aside, last) == window, "room for %u is not used again", window);
        expect(memcmp(aside, kept, 2 * VALUES * 4) == 0, "means differ with room for %u", window);
    }
    check_all("gather, policy %d: means that are set aside are the same", (int)policy);
    free(aside);
    free(kept);
}

/* ---- messages that are spoilt ---- */

enum { WORLD = 11, STEPS = 2 };

typedef struct history {
    tg_status status[WORLD][STEPS];
    tg_error error[WORLD][STEPS];
    bool touched[WORLD];
    uint32_t bad_rank; /* whose first gradient is not finite; WORLD: none */
} history;

static void live(rank_state *s)
{
    history *h = s->extra;
    const size_t size = (size_t)s->gradients[0].count * sizeof(float);
    float *before = malloc(size);
    for (uint64_t step = 0; step < STEPS; step++) {
        fill_gradients(s, step);
        if (step == 0 && s->rank == h->bad_rank)
            ((float *)s->gradients[0].data)[0] = INFINITY;
        memcpy(before, s->gradients[0].data, size);
        const tg_status status = h->status[s->rank][step] = tg_reduce(s->reducer, s->transport, s->gradients, step,
                                                                      &h->error[s->rank][step]);
        h->touched[s->rank] |= status != TG_OK && memcmp(before, s->gradients[0].data, size) != 0;
        if (status == TG_EXCHANGE) {
            tg_transport_abort(s->transport, 1);
            break;
        }
    }
    free(before);
}

static fault the_fault;
static bool of_sentence, of_gradients;

static void no_two_part(rank_state *states, uint32_t world)
{
    const history *h = states[0].extra;
    for (uint32_t rank = 0; rank < world; rank++) {
        const tg_status first = h->status[rank][0], second = h->status[rank][1];
        expect(!h->touched[rank], "rank %u: a step that was not applied changed a gradient", rank);
        if (of_gradients && the_fault != DELAY && the_fault != LOSE) {
            expect(first == TG_SKIPPED && second == TG_OK, "rank %u: %s; %s", rank, h->error[rank][0].message,
                   h->error[rank][1].message);
            expect(strcmp(h->error[0][0].message, h->error[rank][0].message) == 0, "rank %u: %s", rank,
                   h->error[rank][0].message);
            continue;
        }
        if (of_sentence || the_fault == DELAY) {
            expect(first == (h->bad_rank < world ? TG_NONFINITE : TG_OK) && second == TG_OK, "rank %u: %s; %s", rank,
                   h->error[rank][0].message, h->error[rank][1].message);
            expect(h->bad_rank == world || strstr(h->error[rank][0].message, "rank 4"), "rank %u: %s", rank,
                   h->error[rank][0].message);
            continue;
        }
        /* Some know that all is well, the others that they do not know; and then nobody goes on. */
        expect(first == TG_EXCHANGE || (first == TG_OK && second == TG_EXCHANGE), "rank %u: %d, %d", rank, (int)first,
               (int)second);
    }
    expect(of_sentence || (of_gradients && the_fault != LOSE) || the_fault == DELAY || h->status[1][0] == TG_EXCHANGE,
           "rank 1: %s", h->error[1][0].message);
}

static void trouble(tg_algorithm algorithm, fault fault, unsigned exchange, uint32_t from, uint32_t bad_rank)
{
    const rank_case what = {.world = WORLD,
                            .tensors = tensors,
                            .options = {.algorithm = algorithm, .batch_elements = 4096, .timeout = PATIENCE},
                            .shape = GAUSSIAN,
                            .steps = STEPS};
    tg_transport *transports[WORLD];
    tg_error error;
    history *h = calloc(1, sizeof *h);
    h->bad_rank = bad_rank;
    if (tg_transport_local(WORLD, transports, &error) != TG_OK)
        abort();
    transports[1] = faulty(transports[1], fault, exchange, from, 0.5);
    the_fault = fault;
    of_sentence = bad_rank < WORLD;
    of_gradients = algorithm == TG_GATHER;
    run_ranks(&what, transports, live, no_two_part, h);
    check_all("%s, world %u, exchange %u %s: no two ranks part", tg_algorithm_text(algorithm), WORLD, exchange,
              fault_names[fault]);
    free(h);
}

static void troubles(void)
{
    enum { ROUNDS = 4, BEFORE = 1 + ROUNDS + 2 }; /* greeting, verdict on it, parts and results */
    for (unsigned round = 0; round < ROUNDS; round++)
        for (int fault = CUT; fault < FAULTS; fault++)
            trouble(TG_SHARD, (enum fault)fault, BEFORE + round, (WORLD + 1 - (1u << round)) % WORLD, WORLD);
    for (int fault = CUT; fault <= DELAY; fault++) /* of the words, which come from rank 4 */
        trouble(TG_SHARD, (enum fault)fault, BEFORE + ROUNDS, 4, 4);
    for (unsigned round = 0; round < ROUNDS; round++)
        for (int fault = CUT; fault < FAULTS; fault++)
            trouble(TG_GATHER, (enum fault)fault, 1 + ROUNDS + round, (1 + (1u << round)) % WORLD, WORLD);
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    for (uint32_t world = 2; world <= 40; world = all ? world + 1 : world * 3 / 2 + 1)
        for (int algorithm = TG_GATHER; algorithm <= TG_SCATTER; algorithm++) {
            for (uint64_t which = 0; which <= world + 3; which += all || world < 12 ? 1 : 5)
                one_is_heard((tg_algorithm)algorithm, world, which);
            check_all("%s, world %u: whoever has something to say, all hear the lowest",
                      tg_algorithm_text((tg_algorithm)algorithm), world);
        }
    for (uint32_t world = 2; world <= 64; world = all ? world + 1 : world * 4 / 3 + 1)
        sums_are_the_same(world);
    sums_are_the_same(64);
    means_are_the_same(TG_NONFINITE_STOP, TG_NONFINITE);
    means_are_the_same(TG_NONFINITE_DROP, TG_OK);
    troubles();
    return finish();
}
