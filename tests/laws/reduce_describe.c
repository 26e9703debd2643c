/* Laws of descriptions: what a description says of every rank's exchanges is what its reductions do, in the same order
 * and to the byte, but for sizes that depend on the data, which are near. And a million ranks can be described. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

static const tensor_case dense[] = {{"a", "qsgd:levels=7,bucket=512", "ef", 300000, TG_FLOAT32},
                                    {"b", "none", "none", 17, TG_BFLOAT16},
                                    {"c", "fp16", "none", 70001, TG_FLOAT32},
                                    {"d", "terngrad", "none", 9000, TG_FLOAT16},
                                    {"e", "onebit:bucket=0", "ef", 5000, TG_FLOAT32},
                                    {"f", "none", "none", 0, TG_FLOAT32},
                                    {NULL, NULL, NULL, 0, TG_FLOAT32}};
static const tensor_case sparse[] = {{"a", "topk:density=0.01", "ef", 400000, TG_FLOAT32},
                                     {"b", "randk:density=0.1", "none", 20000, TG_FLOAT32},
                                     {"c", "topk:density=0.02,values=fp16", "ef", 150000, TG_FLOAT32},
                                     {"d", "topk:density=0.02,values=levels,levels=7", "ef", 100000, TG_FLOAT32},
                                     {NULL, NULL, NULL, 0, TG_FLOAT32}};

/* Among messages that go to all at once, some that are handed on. */
static const tensor_case small[] = {{"a", "qsgd:levels=7,bucket=512", "ef", 5000, TG_FLOAT32},
                                    {"b", "none", "none", 61000, TG_FLOAT32},
                                    {"c", "fp16", "none", 1001, TG_FLOAT32},
                                    {"d", "none", "none", 65000, TG_FLOAT16},
                                    {"e", "none", "none", 1, TG_FLOAT32},
                                    {NULL, NULL, NULL, 0, TG_FLOAT32}};

/* Fewer places to cut than ranks. */
static const tensor_case few[] = {{"a", "qsgd:levels=7,bucket=512", "ef", 20000, TG_FLOAT32},
                                  {"b", "onebit:bucket=0", "ef", 3000, TG_FLOAT16},
                                  {NULL, NULL, NULL, 0, TG_FLOAT32}};

static bool near(uint64_t described, uint64_t real, bool exact)
{
    /* Selected elements lie where the data has them, 1 in 50 of a part's more or fewer; headers are exact. */
    return exact ? described == real : fabs((double)described - (double)real) <= 0.04 * (double)real + 64;
}

/* Bytes of messages to or from others, where `there` has their sizes or rooms; counts them. */
static uint64_t sum(const size_t *sizes, const size_t *there, uint32_t world, uint32_t rank, uint32_t *messages)
{
    uint64_t bytes = 0;
    *messages = 0;
    for (uint32_t i = 0; i < world; i++)
        if (i != rank && there[i] != TG_NO_MESSAGE) {
            bytes += sizes[i];
            ++*messages;
        }
    return bytes;
}

static void compare(const tg_description *d, size_t index, const tg_exchange *e, uint32_t rank, bool exact)
{
    tg_described_exchange described;
    tg_error error;
    const tg_status status = tg_description_exchange(d, rank, index, &described, &error);
    expect(status == TG_OK, "%s", error.message);
    if (status != TG_OK)
        return;
    uint32_t messages[2];
    const uint64_t sent = sum(e->send_size, e->send_size, e->world, rank, &messages[0]),
                   received = sum(e->received, e->capacity, e->world, rank, &messages[1]);
    expect(described.peers == (messages[0] > messages[1] ? messages[0] : messages[1]),
           "exchange %zu has %u and %u messages", index, messages[0], messages[1]);
    expect(described.kind == e->kind, "exchange %zu is of another kind", index);
    expect(near(described.bytes_sent, sent, exact), "exchange %zu, rank %u sent %" PRIu64 ", described as %" PRIu64,
           index, rank, sent, described.bytes_sent);
    expect(near(described.bytes_received, received, exact), "exchange %zu, rank %u got %" PRIu64 ", not %" PRIu64,
           index, rank, received, described.bytes_received);
    expect(described.largest_sent >= described.bytes_sent && described.largest_received >= described.bytes_received,
           "exchange %zu, rank %u has more than the largest", index, rank);
    expect(described.after == SIZE_MAX || described.after < index, "exchange %zu comes after a later one", index);
}

/* The largest is what some rank has. */
static void compare_largest(const tg_description *d, size_t index, uint32_t world)
{
    tg_described_exchange e = {0};
    tg_error error;
    uint64_t sent = 0, received = 0;
    for (uint32_t a = 0; a < world; a++) {
        expect(tg_description_exchange(d, a, index, &e, &error) == TG_OK, "%s", error.message);
        sent = e.bytes_sent > sent ? e.bytes_sent : sent;
        received = e.bytes_received > received ? e.bytes_received : received;
    }
    expect(e.largest_sent == sent && e.largest_received == received,
           "exchange %zu: the most are %" PRIu64 " and %" PRIu64 " bytes, described as %" PRIu64 " and %" PRIu64, index,
           sent, received, e.largest_sent, e.largest_received);
}

/* One step of all ranks in this thread, each exchange beside its description. */
static void step(rank_state *states, tg_reduction **reductions, uint32_t world, const tg_description *d, bool exact)
{
    tg_exchange *exchanges[MOST_RANKS] = {NULL};
    tg_description_info info;
    tg_error error;
    size_t index = 0;
    expect(tg_description_of(d, &info, &error) == TG_OK, "%s", error.message);
    expect(info.estimated == !exact, "whether sizes are estimates");
    for (;; index++) {
        for (uint32_t a = 0; a < world; a++)
            expect(tg_reduce_next(reductions[a], &exchanges[a], &error) == TG_OK, "%s", error.message);
        if (!exchanges[0])
            break;
        compare_largest(d, index, world);
        for (uint32_t a = 0; a < world; a++)
            for (uint32_t b = 0; b < world; b++)
                if (a != b && exchanges[a]->send_size[b] != TG_NO_MESSAGE) {
                    memcpy(exchanges[b]->receive[a], exchanges[a]->send[b], exchanges[a]->send_size[b]);
                    exchanges[b]->received[a] = exchanges[a]->send_size[b];
                }
        for (uint32_t a = 0; a < world; a++) {
            compare(d, index, exchanges[a], a, exact);
            expect(tg_reduce_feed(reductions[a], exchanges[a], &error) == TG_OK, "%s", error.message);
        }
    }
    expect(index == info.exchange_count, "%zu exchanges, described as %zu", index, info.exchange_count);
    for (uint32_t a = 0; a < world; a++)
        expect(tg_reduce_end(reductions[a], &states[a].error) == TG_OK, "%s", states[a].error.message);
}

static void follows(const tensor_case *tensors, bool exact, tg_algorithm algorithm, uint32_t world,
                    const uint32_t *hosts, tg_bypass bypass)
{
    const rank_case what = {.world = world,
                            .tensors = tensors,
                            .options = {.algorithm = algorithm,
                                        .min_size = 100,
                                        .batch_elements = 1 << 16,
                                        .host_of_rank = hosts,
                                        .bypass = bypass},
                            .shape = GAUSSIAN};
    static rank_state states[MOST_RANKS];
    tg_reduction *reductions[MOST_RANKS];
    tg_description *d = NULL;
    tg_error error;
    for (uint32_t a = 0; a < world; a++)
        open_rank(&states[a], &what, a, NULL);
    expect(tg_description_create(world, states[0].tensors, states[0].tensor_count, &what.options, &d, &error) == TG_OK,
           "%s", error.message);
    for (uint64_t number = 0; d && number < 2; number++) { /* the first has the greeting */
        for (uint32_t a = 0; a < world; a++) {
            fill_gradients(&states[a], number);
            expect(tg_reduce_begin(states[a].reducer, states[a].gradients, number, &reductions[a], &error) == TG_OK,
                   "%s", error.message);
        }
        if (number == 0) {
            while (exchange_by_hand(reductions, world))
                ;
            for (uint32_t a = 0; a < world; a++)
                expect(tg_reduce_end(reductions[a], &error) == TG_OK, "%s", error.message);
        } else {
            step(states, reductions, world, d, exact);
        }
    }
    tg_description_free(d);
    for (uint32_t a = 0; a < world; a++)
        close_rank(&states[a]);
    check_all("%s of %u ranks%s is as described, %s", tg_algorithm_text(algorithm), world, hosts ? " on hosts" : "",
              exact ? "to the byte" : "nearly where elements are selected");
}

/* Owners of nothing send no results. */
static void few_owners(void)
{
    enum { WORLD = 1000, OWNERS = 5, COUNT = 4096 * OWNERS };
    tg_reducer_tensor tensor = {.name = "a", .count = COUNT};
    const tg_reducer_options options = {.algorithm = TG_SHARD};
    tg_description *d = NULL;
    tg_described_exchange e;
    tg_error error;
    unsigned senders = 0;
    expect(tg_spec_parse("qsgd:levels=7,bucket=512", &tensor.codec, &error) == TG_OK, "%s", error.message);
    expect(tg_description_create(WORLD, &tensor, 1, &options, &d, &error) == TG_OK, "%s", error.message);
    for (uint32_t rank = 0; d && rank < WORLD; rank++) {
        expect(tg_description_exchange(d, rank, 1, &e, &error) == TG_OK && e.role == TG_ROLE_RESULTS, "%s",
               error.message);
        expect(e.peers == (e.bytes_sent > 0 ? WORLD - 1 : OWNERS), "rank %u: %u messages", rank, e.peers);
        senders += e.bytes_sent > 0;
    }
    expect(senders == OWNERS, "%u ranks send results", senders);
    tg_description_free(d);
    check_all("shard of %d ranks, %d owners: only these send results", WORLD, OWNERS);
}

static void many_ranks(bool hosts)
{
    uint32_t *host_of_rank = malloc(1000000 * sizeof *host_of_rank);
    for (uint32_t rank = 0; rank < 1000000; rank++)
        host_of_rank[rank] = rank / 8;
    tg_reducer_tensor tensors[3] = {{.name = "a", .count = 25000000}, {.name = "b", .count = 600000}, {.name = "c"}};
    static const char *const specs[] = {"qsgd:levels=7,bucket=512", "topk:density=0.01", "none"};
    for (size_t s = 0; s < 3; s++)
        for (int algorithm = TG_AUTO; algorithm <= TG_SHARD; algorithm++) {
            const tg_reducer_options options = {.algorithm = (tg_algorithm)algorithm,
                                                .host_of_rank = hosts ? host_of_rank : NULL};
            tg_description *d = NULL;
            tg_described_exchange first, last;
            tg_error error;
            for (size_t t = 0; t < 3; t++)
                expect(tg_spec_parse(specs[s], &tensors[t].codec, &error) == TG_OK, "%s", error.message);
            expect(tg_description_create(1000000, tensors, 3, &options, &d, &error) == TG_OK, "%s", error.message);
            expect(tg_description_exchange(d, 0, 0, &first, &error) == TG_OK &&
                       tg_description_exchange(d, 999999, 0, &last, &error) == TG_OK,
                   "%s", error.message);
            expect(first.bytes_sent > 0 && first.largest_sent >= last.bytes_sent, "bytes of the first exchange");
            tg_description_free(d);
        }
    free(host_of_rank);
    check_all("a million ranks can be described%s", hosts ? ", eight to a host" : "");
}

static void refusals(void)
{
    const tg_reducer_tensor tensor = {.name = "a", .count = 10};
    const tg_reducer_options scatter = {.algorithm = TG_SCATTER};
    tg_description *d = NULL;
    tg_description_info info;
    tg_described_exchange e;
    tg_error error;
    expect(tg_description_create(0, &tensor, 1, NULL, &d, &error) == TG_INVALID_ARGUMENT && !d, "no ranks");
    expect(tg_description_create(1000001, &tensor, 1, NULL, &d, &error) == TG_INVALID_ARGUMENT && !d &&
               strstr(error.message, "1000001"),
           "too many ranks: %s", error.message);
    expect(tg_description_create(2, &tensor, 1, &scatter, &d, &error) == TG_INVALID_ARGUMENT && !d, "scatter");
    expect(tg_description_create(2, NULL, 1, NULL, &d, &error) == TG_INVALID_ARGUMENT && !d, "no tensors");
    expect(tg_description_create(1, &tensor, 1, NULL, &d, &error) == TG_OK, "%s", error.message);
    expect(tg_description_of(d, &info, &error) == TG_OK && info.exchange_count == 0, "one rank exchanges nothing");
    expect(tg_description_exchange(d, 0, 0, &e, &error) == TG_INVALID_ARGUMENT, "exchange 0 of none");
    expect(tg_description_of(d, NULL, &error) == TG_INVALID_ARGUMENT, "no place");
    tg_description_free(d);
    tg_description_free(NULL);
    check_all("what cannot be described is refused");
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    static const uint32_t worlds[] = {1, 2, 3, 5, 16};
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds - (EMULATED ? 2 : 0); w++) {
        follows(dense, true, TG_GATHER, worlds[w], NULL, TG_BYPASS_OFF);
        follows(small, true, TG_GATHER, worlds[w], NULL, TG_BYPASS_OFF);
        follows(dense, true, TG_SHARD, worlds[w], NULL, TG_BYPASS_OFF);
        follows(dense, true, TG_AUTO, worlds[w], NULL, TG_BYPASS_OFF);
        follows(sparse, false, TG_GATHER, worlds[w], NULL, TG_BYPASS_OFF);
        follows(sparse, false, TG_SHARD, worlds[w], NULL, TG_BYPASS_OFF);
        follows(dense, true, TG_SHARD, worlds[w], NULL, TG_BYPASS_AUTO);
    }
    for (int algorithm = TG_AUTO; algorithm <= TG_SHARD; algorithm++) {
        follows(dense, true, (tg_algorithm)algorithm, 6, (const uint32_t[]){0, 0, 1, 1, 2, 2}, TG_BYPASS_OFF);
        follows(dense, true, (tg_algorithm)algorithm, 7, (const uint32_t[]){5, 1, 5, 2, 1, 2, 5}, TG_BYPASS_OFF);
        follows(dense, true, (tg_algorithm)algorithm, 3, (const uint32_t[]){0, 0, 0}, TG_BYPASS_OFF);
        follows(sparse, false, (tg_algorithm)algorithm, 8, (const uint32_t[]){0, 0, 1, 1, 2, 2, 3, 3}, TG_BYPASS_OFF);
    }
    follows(few, true, TG_SHARD, 24, NULL, TG_BYPASS_OFF);
    follows(few, true, TG_SHARD, 24, NULL, TG_BYPASS_AUTO);
    few_owners();
    many_ranks(false);
    many_ranks(true);
    refusals();
    return finish();
}
