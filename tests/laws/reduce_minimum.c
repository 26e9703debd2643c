/* Laws of verdicts that a back end finds as the least of all ranks' numbers: all hear of the lowest rank that has
 * something to say, as they do by messages; means and residuals are the same; and where the numbers are damaged, or
 * ranks are not at the same step, no rank goes on. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "reduce/reducer.h"

static const tensor_case tensors[] = {
    {"x", "qsgd:levels=7,bucket=512", "ef", 3000, TG_FLOAT32}, {"y", "topk:density=0.1", "ef", 500, TG_FLOAT32}, {0}};
static const tensor_case dense[] = {{"x", "qsgd:levels=7,bucket=512", "ef", 3000, TG_FLOAT32}, {0}};

enum { MOST = 40, VALUES = 3500 };
static rank_state states[MOST];
static tg_reduction *reductions[MOST];

static rank_case case_of(uint32_t world, tg_algorithm algorithm, bool minimum)
{
    return (rank_case){.world = world,
                       .tensors = tensors,
                       .options = {.algorithm = algorithm, .batch_elements = 4096, .minimum = minimum},
                       .shape = GAUSSIAN};
}

static void open_all(const rank_case *what)
{
    for (uint32_t rank = 0; rank < what->world; rank++)
        open_rank(&states[rank], what, rank, NULL);
}

static void close_all(uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++)
        close_rank(&states[rank]);
}

/* All ranks begin a step; `bad` is a bit for each whose gradient is not finite. */
static void begin_all(uint32_t world, uint64_t step, uint64_t bad)
{
    tg_error error;
    for (uint32_t rank = 0; rank < world; rank++) {
        fill_gradients(&states[rank], step);
        if (bad >> rank & 1)
            ((float *)states[rank].gradients[0].data)[7] = NAN;
        expect(tg_reduce_begin(states[rank].reducer, states[rank].gradients, step, &reductions[rank], &error) == TG_OK,
               "%s", error.message);
    }
}

/* ---- who is heard ---- */

/* A step that some ranks refuse, and one that all apply. Leaves the mean of rank 0 and the residual of the last. */
static void two_steps(const rank_case *what, uint64_t bad, float *left, char *sentence)
{
    const uint32_t world = what->world;
    tg_error error;
    open_all(what);
    for (uint64_t step = 0; step < 2; step++) {
        const uint64_t refuse = step == 0 ? bad : 0;
        begin_all(world, step, refuse);
        while (exchange_by_hand(reductions, world)) {}
        for (uint32_t rank = 0; rank < world; rank++) {
            const tg_status status = tg_reduce_end(reductions[rank], &error);
            expect(status == (refuse ? TG_NONFINITE : TG_OK), "rank %u: %s", rank, error.message);
            if (refuse && rank == 0)
                memcpy(sentence, error.message, sizeof error.message);
            expect(!refuse || strcmp(sentence, error.message) == 0, "rank %u: %s", rank, error.message);
        }
    }
    memcpy(left, states[0].gradients[0].data, 3000 * sizeof(float));
    if (!what->options.host_of_rank)
        memcpy(left + 3000, residual_of(states[world - 1].reducer->tensors[1].feedback), 500 * sizeof(float));
    close_all(world);
}

static void as_by_messages(uint32_t world, tg_algorithm algorithm, const uint32_t *hosts)
{
    float *least = calloc(VALUES, sizeof *least), *messages = calloc(VALUES, sizeof *messages);
    generator g = {world};
    for (unsigned which = 0; which < 6; which++) {
        const uint64_t everyone = (UINT64_C(1) << world) - 1;
        uint64_t bad = 0; /* the ranks with a value that is not finite: none, the first, the last, or any */
        if (which == 1)
            bad = 1;
        else if (which == 2)
            bad = UINT64_C(1) << (world - 1);
        else if (which > 2)
            bad = next_random(&g) & everyone;
        char by_least[sizeof(tg_error)] = "", by_messages[sizeof(tg_error)] = "";
        rank_case what = case_of(world, algorithm, true);
        what.options.host_of_rank = hosts;
        two_steps(&what, bad, least, by_least);
        what.options.minimum = false;
        two_steps(&what, bad, messages, by_messages);
        expect(strcmp(by_least, by_messages) == 0, "'%s' instead of '%s'", by_least, by_messages);
        expect(memcmp(least, messages, VALUES * sizeof *least) == 0, "other values");
    }
    check_all("%s, world %u%s: the least of all is heard as by messages", tg_algorithm_text(algorithm), world,
              hosts ? ", two levels" : "");
    free(least);
    free(messages);
}

/* ---- the longest of all ---- */

static void longest_is_known(uint32_t world)
{
    rank_case what = case_of(world, TG_GATHER, true);
    tg_error error;
    what.tensors = dense;
    what.options.bypass = TG_BYPASS_AUTO;
    open_all(&what);
    begin_all(world, 0, 0);
    bool told = false;
    for (bool more = true; more;) {
        for (uint32_t rank = 0; rank < world; rank++)
            reductions[rank]->microseconds = 1000 + (rank + 3) % world;
        more = exchange_by_hand(reductions, world);
    }
    for (uint32_t rank = 0; rank < world; rank++) {
        told |= reductions[rank]->agreement.lowest.microseconds == 1000 + world - 1;
        expect(reductions[rank]->agreement.lowest.microseconds == reductions[0]->agreement.lowest.microseconds,
               "rank %u heard of another time", rank);
        expect(tg_reduce_end(reductions[rank], &error) == TG_OK, "%s", error.message);
    }
    expect(told, "nobody heard of the longest time");
    close_all(world);
    check_all("world %u: all hear of the longest time", world);
}

/* ---- damage ---- */

enum { FEW = 3, DAMAGED = 1, NEVER = 1000 };

/* One whole step, and the begin of another. `bad` is as for begin_all. */
static void up_to_the_second(const rank_case *what, uint64_t bad)
{
    tg_error error;
    open_all(what);
    begin_all(FEW, 0, 0);
    while (exchange_by_hand(reductions, FEW)) {}
    for (uint32_t rank = 0; rank < FEW; rank++)
        expect(tg_reduce_end(reductions[rank], &error) == TG_OK, "%s", error.message);
    begin_all(FEW, 1, bad);
}

/* The same, and the second as far as its verdict, which has been found but not fed. After `before` exchanges rank 0
 * believes that it is at another step. Returns how many there were. */
static unsigned up_to_a_verdict(uint64_t bad, unsigned before, tg_exchange **exchanges)
{
    const rank_case what = case_of(FEW, TG_SHARD, true);
    up_to_the_second(&what, bad);
    for (unsigned done = 0;; done++) {
        if (done == before)
            reductions[0]->step++;
        if (!hand_out(reductions, FEW, exchanges))
            break;
        carry_by_hand(reductions, FEW, exchanges);
        if (exchanges[0]->kind == TG_ALL_MINIMUM)
            return done;
        feed_all(reductions, FEW, exchanges);
    }
    expect(false, "there was no verdict");
    return 0;
}

static void leave(void)
{
    for (uint32_t rank = 0; rank < FEW; rank++)
        tg_reduce_abandon(reductions[rank]);
    close_all(FEW);
}

/* The verdict of a step in which rank 2 says something, or nobody does; one bit of what reaches a rank is turned, or
 * its size is another. */
static void damaged(unsigned bit, bool spoken)
{
    tg_exchange *exchanges[FEW];
    tg_error error;
    (void)up_to_a_verdict(spoken ? 4 : 0, NEVER, exchanges);
    if (bit < 8 * TG_MINIMUM_BYTES)
        ((uint8_t *)exchanges[DAMAGED]->receive[0])[bit / 8] ^= (uint8_t)(1u << bit % 8);
    else
        exchanges[DAMAGED]->received[0] = bit == 8 * TG_MINIMUM_BYTES ? TG_MINIMUM_BYTES - 8 : TG_UNKNOWN_SIZE;
    expect(tg_reduce_feed(reductions[DAMAGED], exchanges[DAMAGED], &error) == TG_EXCHANGE, "bit %u: %s", bit,
           error.message);
    leave();
}

/* Rank 0 is at another step from the start: its messages show it, and all hear what they hear by messages. */
static tg_status another_step_from(bool minimum, char *sentence)
{
    const rank_case what = case_of(FEW, TG_SHARD, minimum);
    tg_status first = TG_OK;
    tg_error error;
    up_to_the_second(&what, 0);
    reductions[0]->step++;
    while (exchange_by_hand(reductions, FEW)) {}
    for (uint32_t rank = 0; rank < FEW; rank++) {
        const tg_status status = tg_reduce_end(reductions[rank], &error);
        if (rank == 0) {
            first = status;
            memcpy(sentence, error.message, sizeof error.message);
        }
        expect(status == first && strstr(error.message, strchr(sentence, ':')), "rank %u: %s", rank, error.message);
    }
    close_all(FEW);
    return first;
}

static void another_step(void)
{
    char by_least[sizeof(tg_error)], by_messages[sizeof(tg_error)];
    const tg_status least = another_step_from(true, by_least), messages = another_step_from(false, by_messages);
    expect(least != TG_OK && least == messages && strcmp(by_least, by_messages) == 0, "'%s' instead of '%s'", by_least,
           by_messages);
    tg_exchange *exchanges[FEW];
    tg_error error;
    const unsigned before = up_to_a_verdict(0, NEVER, exchanges);
    leave();
    (void)up_to_a_verdict(0, before, exchanges); /* nobody has noticed anything when the verdict comes */
    for (uint32_t rank = 0; rank < FEW; rank++) {
        tg_status status = tg_reduce_feed(reductions[rank], exchanges[rank], &error);
        expect(status == TG_EXCHANGE && strstr(error.message, "another step"), "rank %u: %s", rank, error.message);
    }
    leave();
    check_all("ranks that are not at the same step hear of it");
}

/* ---- who cannot ---- */

static void transports_refuse(void)
{
    const rank_case what = case_of(2, TG_SHARD, true);
    tg_transport *transports[2];
    tg_error error = {""};
    if (tg_transport_local(2, transports, &error) != TG_OK)
        abort();
    open_all(&what);
    fill_gradients(&states[0], 0);
    expect(tg_reduce(states[0].reducer, transports[0], states[0].gradients, 0, &error) == TG_INVALID_ARGUMENT &&
               strstr(error.message, "minimum"),
           "reduce: %s", error.message);
    size_t sizes[2] = {8, 8};
    const void *send[2] = {sizes, sizes};
    void *receive[2] = {sizes, sizes};
    tg_exchange exchange = {TG_ALL_MINIMUM, 2, send, sizes, receive, sizes, sizes, false};
    expect(tg_transport_start(transports[0], &exchange, &error) == TG_INVALID_ARGUMENT, "start: %s", error.message);
    close_all(2);
    for (uint32_t rank = 0; rank < 2; rank++)
        tg_transport_free(transports[rank]);
    check_all("transports that carry bytes refuse a minimum");
}

int main(int argc, char **argv)
{
    static const uint32_t hosts[] = {0, 1, 1, 0, 2, 1};
    const bool all = wants_all(argc, argv);
    for (uint32_t world = 2; world <= MOST; world = all ? world + 1 : world * 3 / 2 + 1) {
        for (int algorithm = TG_GATHER; algorithm <= TG_SCATTER; algorithm++)
            as_by_messages(world, (tg_algorithm)algorithm, NULL);
        longest_is_known(world);
    }
    as_by_messages(6, TG_GATHER, hosts);
    as_by_messages(6, TG_SHARD, hosts);
    for (unsigned bit = 0; bit < 8 * TG_MINIMUM_BYTES + 2; bit++) {
        damaged(bit, false);
        damaged(bit, true);
    }
    check_all("damaged numbers are found");
    another_step();
    transports_refuse();
    return finish();
}
