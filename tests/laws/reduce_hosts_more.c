/* More laws of two levels: values that are not finite, tensors that ranks lack, ranks that do not agree, hosts of one
 * rank, and how many messages there are. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"
#include "ranks.h"
#include "reduce/levels.h"
#include "reduce/message.h"

static const uint32_t two_by_two[] = {0, 0, 1, 1}, uneven[] = {5, 1, 5, 2, 1, 2, 5}, alone[] = {3, 1, 0, 2};
static const tensor_case no_more = {NULL, NULL, NULL, 0, TG_FLOAT32};

static const char *const plain[] = {"cpu", "cpu/scalar", NULL}; /* devices whose memory others can read */

static void one_step(rank_state *s) { s->status = tg_reduce(s->reducer, s->transport, s->gradients, 0, &s->error); }

static void same_everywhere(rank_state *states, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        expect(states[rank].status == TG_OK, "rank %u: %s", rank, states[rank].error.message);
        for (size_t i = 0; i < states[0].tensor_count; i++) {
            const tg_tensor *a = &states[0].gradients[i], *b = &states[rank].gradients[i];
            expect(memcmp(a->data, b->data, a->count * tg_dtype_size(a->dtype)) == 0, "tensor %zu differs on rank %u",
                   i, rank);
        }
    }
}

/* ---- hosts of one rank ---- */

static tg_tensor kept[MOST_TENSORS];

static void several_steps(rank_state *s)
{
    for (uint64_t step = 0; step < 3 && s->status == TG_OK; step++) {
        fill_gradients(s, step);
        s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
    }
}

static void keep(rank_state *states, uint32_t world)
{
    same_everywhere(states, world);
    for (size_t i = 0; i < states[0].tensor_count; i++) {
        const tg_tensor *g = &states[0].gradients[i];
        kept[i] = make_tensor(g->count, g->dtype, 0);
        memcpy(kept[i].data, g->data, g->count * tg_dtype_size(g->dtype));
    }
}

static void compare(rank_state *states, uint32_t world)
{
    same_everywhere(states, world);
    expect(!states[0].reducer->levels, "there are levels");
    for (size_t i = 0; i < states[0].tensor_count; i++) {
        const tg_tensor *g = &states[0].gradients[i];
        expect(memcmp(kept[i].data, g->data, g->count * tg_dtype_size(g->dtype)) == 0, "tensor %zu differs", i);
        drop(&kept[i]);
    }
}

static void hosts_of_one(tg_algorithm algorithm)
{
    rank_case what = {.world = 4,
                      .tensors = mixed_tensors,
                      .options = {.algorithm = algorithm, .batch_elements = 8192, .seed = 5},
                      .shape = GAUSSIAN};
    run_ranks(&what, NULL, several_steps, keep, NULL);
    what.options.host_of_rank = alone;
    run_ranks(&what, NULL, several_steps, compare, NULL);
    check_all("%s: hosts of one rank have what there is without hosts, to the bit", tg_algorithm_text(algorithm));
}

/* ---- values that are not finite ---- */

static const tensor_case two[] = {{"cut", "qsgd:levels=7", "ef", 40000, TG_FLOAT32},
                                  {"sparse", "topk:density=0.01", "ef", 40001, TG_FLOAT32},
                                  {NULL, NULL, NULL, 0, TG_FLOAT32}};
static float spoilt_value;
static bool on_two_ranks; /* of one host, where the sum is not finite */
static uint32_t spoilt_tensor;

static void spoil_one(rank_state *s)
{
    fill_gradients(s, 0);
    float *values = s->gradients[spoilt_tensor].data;
    if (s->rank == 3 || (on_two_ranks && s->rank == 2))
        values[s->gradients[spoilt_tensor].count - 5] = spoilt_value;
    one_step(s);
}

static tg_status due;

static void all_say_so(rank_state *states, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        expect(states[rank].status == due, "rank %u: %s: %s", rank, tg_status_text(states[rank].status),
               states[rank].error.message);
        if (due != TG_OK)
            expect(strstr(states[rank].error.message, spoilt_tensor ? "'sparse'" : "'cut'") &&
                       strcmp(states[rank].error.message, states[0].error.message) == 0,
                   "rank %u: %s", rank, states[rank].error.message);
    }
    if (due == TG_OK) {
        tg_reducer_stats stats;
        uint64_t dropped = 0;
        same_everywhere(states, world);
        for (uint32_t rank = 0; rank < world; rank++)
            if (tg_reducer_stats_of(states[rank].reducer, &stats, NULL) == TG_OK)
                dropped += stats.dropped;
        expect(dropped == 1, "%u were dropped", (unsigned)dropped);
        const float *mean = states[0].gradients[spoilt_tensor].data;
        for (uint64_t i = 0; i < states[0].gradients[spoilt_tensor].count; i++)
            expect(mean[i] - mean[i] == 0, "element %u is not finite", (unsigned)i);
    }
}

static void not_finite(tg_algorithm algorithm, tg_nonfinite_step policy, float value, bool sum, uint32_t tensor)
{
    const rank_case what = {
        .world = 4,
        .tensors = two,
        .options = {.algorithm = algorithm, .nonfinite = policy, .batch_elements = 8192, .host_of_rank = two_by_two},
        .shape = GRID};
    spoilt_value = value;
    on_two_ranks = sum;
    spoilt_tensor = tensor;
    due = policy == TG_NONFINITE_STOP ? TG_NONFINITE : policy == TG_NONFINITE_SKIP ? TG_SKIPPED : TG_OK;
    run_ranks(&what, NULL, spoil_one, all_say_so, NULL);
    check_all("%s, policy %d, %s of tensor %u that is not finite", tg_algorithm_text(algorithm), (int)policy,
              sum ? "a host's sum" : "a value", tensor);
}

/* Means of hosts' sums that overflow only together. */
static void spoil_hosts(rank_state *s)
{
    fill_gradients(s, 0);
    for (size_t t = 0; t < s->tensor_count; t++)
        ((float *)s->gradients[t].data)[7] = s->rank % 2 ? 0 : 3e38f;
    one_step(s);
}

static void finite_and_alike(rank_state *states, uint32_t world)
{
    same_everywhere(states, world);
    for (size_t t = 0; t < states[0].tensor_count; t++)
        for (uint64_t i = 0; i < states[0].gradients[t].count; i++)
            expect(element(&states[0].gradients[t], i) - element(&states[0].gradients[t], i) == 0,
                   "element %u of tensor %zu is not finite", (unsigned)i, t);
}

static void hosts_overflow(tg_algorithm algorithm)
{
    static const tensor_case tensors[] = {{"cut", "none", "none", 40000, TG_FLOAT32},
                                          {"sparse", "topk:density=0.01", "ef", 40001, TG_FLOAT32},
                                          {NULL, NULL, NULL, 0, TG_FLOAT32}};
    const rank_case what = {.world = 4,
                            .tensors = tensors,
                            .options = {.algorithm = algorithm,
                                        .nonfinite = TG_NONFINITE_DROP,
                                        .batch_elements = 8192,
                                        .host_of_rank = two_by_two},
                            .shape = GRID};
    run_ranks(&what, NULL, spoil_hosts, finite_and_alike, NULL);
    check_all("%s: hosts' sums that overflow together are dropped alike", tg_algorithm_text(algorithm));
}

/* The same where only one of the hosts sees by the other's frame that they may: both spread the mean, or neither. */
static void spoil_first_host(rank_state *s)
{
    static const float values[] = {3.4e38f, 0, 0, 3e37f, 0, 0};
    fill_gradients(s, 0);
    ((float *)s->gradients[0].data)[7] = values[s->rank];
    one_step(s);
}

static void one_host_overflows(tg_algorithm algorithm, tg_nonfinite_step policy)
{
    static const uint32_t two_by_three[] = {0, 0, 0, 1, 1, 1}; /* quarters would not overflow */
    static const tensor_case tensors[] = {{"cut", "none", "none", 40000, TG_FLOAT32},
                                          {"other", "qsgd:levels=7", "ef", 4001, TG_FLOAT32},
                                          {NULL, NULL, NULL, 0, TG_FLOAT32}};
    const rank_case what = {
        .world = 6,
        .tensors = tensors,
        .options = {.algorithm = algorithm, .nonfinite = policy, .batch_elements = 8192, .host_of_rank = two_by_three},
        .shape = GRID};
    due = policy == TG_NONFINITE_STOP ? TG_NONFINITE : TG_SKIPPED;
    spoilt_tensor = 0;
    run_ranks(&what, NULL, spoil_first_host, all_say_so, NULL);
    check_all("%s, policy %d: hosts' sums that overflow together, as one host sees", tg_algorithm_text(algorithm),
              (int)policy);
}

/* ---- tensors that ranks lack ---- */

enum { LACKED_BY_HALF, LACKED_BY_A_HOST, LACKED_BY_ALL, GIVEN_TO_ALL, KINDS };

static bool has(uint32_t rank, size_t tensor)
{
    return tensor == GIVEN_TO_ALL || (tensor == LACKED_BY_HALF && rank % 2 == 0) ||
           (tensor == LACKED_BY_A_HOST && uneven[rank] != 5);
}

/* Last tensors first, one at a time. */
static void give_some(rank_state *s)
{
    tg_reduction *r;
    tg_exchange *queue[256];
    size_t from = 0, to = 0, next = s->tensor_count;
    fill_gradients(s, 0);
    s->status = tg_reduce_begin(s->reducer, NULL, 0, &r, &s->error);
    while (s->status == TG_OK) {
        tg_exchange *e = NULL;
        s->status = tg_reduce_next(r, &e, &s->error);
        if (s->status == TG_OK && e) {
            s->status = tg_transport_start(s->transport, e, &s->error);
            queue[to++ % 256] = e;
        } else if (s->status == TG_OK && next > 0) {
            next--;
            s->status = has(s->rank, next) ? tg_reduce_ready(r, next, &s->gradients[next], &s->error)
                                           : tg_reduce_absent(r, next, &s->gradients[next], &s->error);
        } else if (s->status == TG_OK && from < to) {
            e = queue[from++ % 256];
            s->status = tg_transport_wait(s->transport, e, 0, &s->error);
            if (s->status == TG_OK)
                s->status = tg_reduce_feed(r, e, &s->error);
        } else {
            break;
        }
    }
    for (size_t t = 0; s->status == TG_OK && t < s->tensor_count; t++) {
        bool present;
        s->status = tg_reduce_present(r, t, &present, &s->error);
        expect(present == (t != LACKED_BY_ALL), "rank %u: tensor %zu is %s", s->rank, t, present ? "there" : "nowhere");
    }
    if (s->status == TG_OK)
        s->status = tg_reduce_end(r, &s->error);
}

static void means_of_those(rank_state *states, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++)
        expect(states[rank].status == TG_OK, "rank %u: %s", rank, states[rank].error.message);
    for (size_t t = 0; t < states[0].tensor_count; t++) {
        tg_tensor own = make_tensor(states[0].gradients[t].count, TG_FLOAT32, 0);
        double *sum = calloc(own.count, sizeof *sum), worst = 0;
        for (uint32_t rank = 0; rank < world; rank++) {
            fill(GRID, 1 + rank * 10 + t, &own);
            for (uint64_t i = 0; has(rank, t) && i < own.count; i++)
                sum[i] += (double)element(&own, i) / world;
        }
        for (uint32_t rank = 0; rank < world; rank++)
            for (uint64_t i = 0; t != LACKED_BY_ALL && i < own.count; i++) {
                const double off = fabs((double)element(&states[rank].gradients[t], i) - sum[i]);
                worst = off > worst ? off : worst;
            }
        expect(worst < 1e-6, "tensor %zu is off by %g", t, worst); /* 1/7 is rounded */
        for (uint32_t rank = 0; t == LACKED_BY_ALL && rank < world; rank++) {
            fill(GRID, 1 + rank * 10 + t, &own);
            expect(memcmp(own.data, states[rank].gradients[t].data, own.count * sizeof(float)) == 0,
                   "rank %u: a tensor that nobody has was written", rank);
        }
        free(sum);
        drop(&own);
    }
}

static void lacked(tg_algorithm algorithm)
{
    static const tensor_case tensors[] = {{"half", "none", "none", 30000, TG_FLOAT32},
                                          {"host", "none", "none", 30000, TG_FLOAT32},
                                          {"all", "none", "none", 30000, TG_FLOAT32},
                                          {"none", "none", "none", 30000, TG_FLOAT32},
                                          {NULL, NULL, NULL, 0, TG_FLOAT32}};
    const rank_case what = {.world = 7,
                            .tensors = tensors,
                            .options = {.algorithm = algorithm, .batch_elements = 8192, .host_of_rank = uneven},
                            .shape = GRID};
    run_ranks(&what, NULL, give_some, means_of_those, NULL);
    check_all("%s: tensors that ranks lack, given one by one", tg_algorithm_text(algorithm));
}

/* ---- ranks that do not agree, and what is refused ---- */

static void hosts_differ(rank_state *states, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++)
        expect(states[rank].status == TG_LAYOUT_MISMATCH &&
                   strstr(states[rank].error.message, "rank 2 differs from rank 0: it has another list of hosts"),
               "rank %u: %s", rank, states[rank].error.message);
}

static void disagreement(void)
{
    static const uint32_t other_hosts[] = {0, 1, 0, 1};
    rank_case what = {
        .world = 4, .tensors = two, .options = {.algorithm = TG_GATHER, .host_of_rank = two_by_two}, .shape = GRID};
    rank_case other = what;
    other.options.host_of_rank = other_hosts;
    what.odd = &other;
    what.odd_rank = 2;
    run_ranks(&what, NULL, one_step, hosts_differ, NULL);
    check_all("a rank with another list of hosts is named");
    other.options.host_of_rank = NULL;
    run_ranks(&what, NULL, one_step, hosts_differ, NULL);
    check_all("and so is one without");
}

static void refuse(const char *what, const rank_case *other, const char *words)
{
    rank_state s;
    open_rank(&s, other, 0, NULL);
    check(s.status == TG_INVALID_ARGUMENT && strstr(s.error.message, words), "%s is refused: %s", what,
          s.error.message);
    close_rank(&s);
}

static void refusals(void)
{
    static const uint32_t beyond[] = {0, 0, 4, 1};
    static const tensor_case clips[] = {{"a", "topk", "dgc:momentum=0.9,clip=1", 5000, TG_FLOAT32},
                                        {NULL, NULL, NULL, 0, TG_FLOAT32}};
    rank_case what = {.world = 4, .tensors = two, .options = {.host_of_rank = beyond}};
    refuse("a host beyond the world", &what, "rank 2 is on host 4");
    what.options = (tg_reducer_options){.algorithm = TG_SCATTER, .host_of_rank = two_by_two};
    refuse("scatter with hosts", &what, "scatter does not support hosts");
    what.options.algorithm = TG_AUTO;
    what.tensors = clips;
    refuse("dgc's clip with hosts", &what, "tensor 'a': dgc's clip");
}

/* ---- shared memory of the ranks of a host ---- */

static void ask_again(rank_state *s)
{
    bool shared = false;
    expect(tg_reducer_share_memory(s->reducer, s->transport, &shared, &s->error) == TG_OK && shared, "rank %u: %s",
           s->rank, s->error.message);
    expect(tg_reducer_gradient_memory(s->reducer, 0) && !tg_reducer_gradient_memory(s->reducer, s->tensor_count),
           "rank %u has no place for a gradient", s->rank);
    expect(tg_reducer_share_memory(s->reducer, s->transport, &shared, &s->error) == TG_INVALID_ARGUMENT &&
               strstr(s->error.message, "call it once"),
           "rank %u: %s", s->rank, s->error.message);
    expect(tg_reducer_share_memory(s->reducer, NULL, NULL, &s->error) == TG_INVALID_ARGUMENT, "no transport");
    fill_gradients(s, 0);
    one_step(s);
}

/* One of the ranks has a device whose memory others cannot read: then this host sends messages, and the other does not.
 */
static void share_or_not(rank_state *s)
{
    bool shared = false;
    s->status = tg_reducer_share_memory(s->reducer, s->transport, &shared, &s->error);
    expect(shared == (s->rank >= 2), "rank %u: %d", s->rank, shared);
    expect(!tg_reducer_gradient_memory(s->reducer, 0) == !shared, "rank %u: memory", s->rank);
    fill_gradients(s, 0);
    if (s->status == TG_OK)
        one_step(s);
}

static void drop_it(rank_state *s)
{
    bool shared = true;
    s->status = tg_reducer_share_memory(s->reducer, s->transport, &shared, &s->error);
    expect(s->status == TG_OK && !shared, "rank %u: %d, %s", s->rank, shared, s->error.message);
}

/* Rank 1 believes that every rank is a host of its own. Nobody waits for it, and the first step says what is wrong. */
static void believe_otherwise(rank_state *s)
{
    bool shared = true;
    tg_reducer_options options = s->what->options;
    options.host_of_rank = s->rank == 1 ? NULL : options.host_of_rank;
    tg_reducer_free(s->reducer);
    expect(tg_reducer_create(s->device, s->rank, s->what->world, s->tensors, s->tensor_count, &options, &s->reducer,
                             &s->error) == TG_OK,
           "%s", s->error.message);
    expect(tg_reducer_share_memory(s->reducer, s->transport, &shared, &s->error) == TG_OK && !shared, "rank %u: %s",
           s->rank, s->error.message);
    fill_gradients(s, 0);
    one_step(s);
    expect(s->status == TG_LAYOUT_MISMATCH && strstr(s->error.message, "another list of hosts"), "rank %u: %d, %s",
           s->rank, (int)s->status, s->error.message);
    s->status = TG_OK;
}

/* A resumed run asks after it has loaded its state. */
static void ask_after_load(rank_state *s)
{
    bool shared = false;
    static uint8_t states[MOST_RANKS][1 << 20];
    size_t size = 0;
    fill_gradients(s, 0);
    one_step(s);
    if (s->status == TG_OK)
        s->status = tg_reducer_save(s->reducer, states[s->rank], sizeof states[s->rank], &size, &s->error);
    const tg_state state = {states[s->rank], size};
    if (s->status == TG_OK)
        s->status = tg_reducer_load(s->reducer, &state, 1, &s->error);
    expect(s->status == TG_OK, "rank %u: %s", s->rank, s->error.message);
    expect(tg_reducer_share_memory(s->reducer, s->transport, &shared, &s->error) == TG_OK && shared, "rank %u: %s",
           s->rank, s->error.message);
    s->status = tg_reduce(s->reducer, s->transport, s->gradients, 1, &s->error);
}

static void shared_memory(tg_algorithm algorithm)
{
    static const char *const mixed[] = {"cpu", "guarded:cpu", "cpu", "cpu/scalar", NULL}, *const plain[] = {"cpu",
                                                                                                            NULL};
    rank_case what = {.world = 4,
                      .tensors = two,
                      .options = {.algorithm = algorithm, .batch_elements = 8192, .host_of_rank = two_by_two},
                      .shape = GRID};
    put_ranks_on(plain);
    run_ranks(&what, NULL, ask_again, same_everywhere, NULL);
    check_all("%s: memory is shared once", tg_algorithm_text(algorithm));
    run_ranks(&what, NULL, ask_after_load, same_everywhere, NULL);
    check_all("%s: memory is shared after a state has been loaded", tg_algorithm_text(algorithm));
    what.options.timeout = PATIENCE;
    run_ranks(&what, NULL, believe_otherwise, NULL, NULL);
    what.options.timeout = 0;
    check_all("%s: ranks with other lists of hosts do not wait for each other", tg_algorithm_text(algorithm));
    put_ranks_on(mixed);
    run_ranks(&what, NULL, share_or_not, same_everywhere, NULL);
    check_all("%s: a host shares memory or not, for itself", tg_algorithm_text(algorithm));
    put_ranks_on(plain);
    what.options.nonfinite = TG_NONFINITE_DROP;
    run_ranks(&what, NULL, drop_it, NULL, NULL);
    put_ranks_on(NULL);
    check_all("%s: where values may be dropped, ranks send each other messages", tg_algorithm_text(algorithm));
}

/* A rank whose messages say that it shares memory, but not where its parts are there. */
static const tg_transport_functions *honest;
static unsigned forged;

static tg_status without_places(tg_transport *transport, tg_exchange *exchange, tg_error *error)
{
    static uint8_t several[16][TG_MESSAGE_HEADER];
    uint8_t *bytes = several[forged % 16]; /* some messages are under way at once */
    const uint8_t *sent = exchange->send_size[0] == TG_NO_MESSAGE ? NULL : exchange->send[0];
    if (sent && exchange->send_size[0] > TG_MESSAGE_HEADER && tg_message_fields(sent).kind == TG_MESSAGE_PARTS) {
        tg_message message = tg_message_fields(sent);
        message.extra = 0;
        tg_message_seal(tg_kernels_at(0), &message, bytes);
        ((const void **)(uintptr_t)exchange->send)[0] = bytes;
        ((size_t *)(uintptr_t)exchange->send_size)[0] = TG_MESSAGE_HEADER;
        forged++;
    }
    return honest->start(transport, exchange, error);
}

static void forge(rank_state *s)
{
    tg_transport_functions forging = *s->transport->functions;
    fill_gradients(s, 0);
    if (s->rank == 1) {
        honest = s->transport->functions;
        forging.start = without_places;
        s->transport->functions = &forging;
    }
    s->status = tg_reduce(s->reducer, s->transport, s->gradients, 0, &s->error);
    if (s->rank == 1)
        s->transport->functions = honest;
    expect(s->status == TG_SKIPPED && strstr(s->error.message, "rank 1 sent a message without its places"),
           "rank %u: %s: %s", s->rank, tg_status_text(s->status), s->error.message);
}

static void places_are_needed(tg_algorithm algorithm)
{
    const rank_case what = {.world = 4,
                            .tensors = two,
                            .options = {.algorithm = algorithm, .batch_elements = 8192, .host_of_rank = two_by_two},
                            .shape = GRID};
    ranks_share = true;
    put_ranks_on(plain);
    forged = 0;
    run_ranks(&what, NULL, forge, NULL, NULL);
    expect(forged > 0, "nothing was forged");
    ranks_share = false;
    put_ranks_on(NULL);
    check_all("%s: a message without its places in shared memory is refused", tg_algorithm_text(algorithm));
}

/* ---- what messages of errors name ---- */

enum { LARGE_AT = 12000 };

static void overflow_together(rank_state *s)
{
    fill_gradients(s, 0);
    if (s->rank < 2) /* of one host, whose sum is not finite */
        ((float *)s->gradients[0].data)[LARGE_AT] = 3e38f;
    s->status = tg_reduce(s->reducer, s->transport, s->gradients, 0, &s->error);
    expect(s->status == TG_NONFINITE && strstr(s->error.message, "element 12000 is"), "rank %u: %s: %s", s->rank,
           tg_status_text(s->status), s->error.message);
}

static void elements_of_the_tensor(tg_algorithm algorithm)
{
    static const tensor_case one[] = {{"a", "qsgd:levels=7", "ef", 16384, TG_FLOAT32}, {0}};
    const rank_case what = {
        .world = 4, .tensors = one, .options = {.algorithm = algorithm, .host_of_rank = two_by_two}, .shape = GRID};
    run_ranks(&what, NULL, overflow_together, NULL, NULL);
    check_all("%s: errors count from the start of the tensor, not of a share", tg_algorithm_text(algorithm));
}

/* ---- messages ---- */

/* Messages that rank 0 of hosts of `local` ranks sends for each message of the plan. */
static void messages(tg_algorithm algorithm, uint32_t hosts, uint32_t local)
{
    uint32_t host_of_rank[MOST_RANKS];
    for (uint32_t rank = 0; rank < hosts * local; rank++)
        host_of_rank[rank] = rank / local;
    const tensor_case tensors[] = {{"a", "qsgd:levels=7", "ef", 131072, TG_FLOAT32}, no_more};
    const rank_case what = {.world = hosts * local,
                            .tensors = tensors,
                            .options = {.algorithm = algorithm, .batch_elements = 32768, .host_of_rank = host_of_rank},
                            .shape = GRID};
    static rank_state states[MOST_RANKS];
    tg_reduction *reductions[MOST_RANKS];
    uint64_t sent = 0;
    for (uint32_t rank = 0; rank < what.world; rank++) {
        open_rank(&states[rank], &what, rank, NULL);
        fill_gradients(&states[rank], 0);
        expect(tg_reduce_begin(states[rank].reducer, states[rank].gradients, 0, &reductions[rank],
                               &states[rank].error) == TG_OK,
               "%s", states[rank].error.message);
    }
    const size_t batches = states[0].reducer->coded.batch_count;
    tg_exchange *exchanges[MOST_RANKS];
    for (unsigned number = 0;; number++) {
        for (uint32_t a = 0; a < what.world; a++)
            expect(tg_reduce_next(reductions[a], &exchanges[a], &states[a].error) == TG_OK, "next");
        if (!exchanges[0])
            break;
        for (uint32_t a = 0; a < what.world; a++)
            for (uint32_t b = 0; b < what.world; b++)
                if (a != b && exchanges[a]->send_size[b] != TG_NO_MESSAGE) {
                    memcpy(exchanges[b]->receive[a], exchanges[a]->send[b], exchanges[a]->send_size[b]);
                    exchanges[b]->received[a] = exchanges[a]->send_size[b];
                    const tg_message_kind kind = tg_message_fields(exchanges[a]->send[b]).kind;
                    sent += a == 0 && kind >= TG_MESSAGE_GRADIENTS && kind <= TG_MESSAGE_RESULTS;
                }
        for (uint32_t a = 0; a < what.world; a++)
            expect(tg_reduce_feed(reductions[a], exchanges[a], &states[a].error) == TG_OK, "feed");
    }
    const uint64_t each = (algorithm == TG_SHARD ? 2 : 1) * (hosts - 1) + 2 * (local - 1);
    check(sent == batches * each, "%s, %u hosts of %u: %u messages for %u of the plan", tg_algorithm_text(algorithm),
          hosts, local, (unsigned)sent, (unsigned)batches);
    for (uint32_t rank = 0; rank < what.world; rank++) {
        expect(tg_reduce_end(reductions[rank], &states[rank].error) == TG_OK, "%s", states[rank].error.message);
        close_rank(&states[rank]);
    }
    check_all("%s, %u hosts of %u: all ends well", tg_algorithm_text(algorithm), hosts, local);
}

/* ---- raw frames that are not as they should be ---- */

enum { ON_ONE_HOST = 2, FEW = 20000, FRAME_HEADER = 64 };

/* A step of two ranks on one host, all ones; a byte of the first raw frame that rank 0 gets is spoiled. */
static void spoiled_step(tg_reducer *const *reducers, float gradients[ON_ONE_HOST][FEW], uint64_t step, int byte,
                         tg_status *outcomes)
{
    tg_reduction *reductions[ON_ONE_HOST];
    tg_exchange *exchanges[ON_ONE_HOST];
    tg_error error;
    for (uint32_t rank = 0; rank < ON_ONE_HOST; rank++) {
        for (size_t i = 0; i < FEW; i++)
            gradients[rank][i] = 1;
        const tg_tensor tensor = {gradients[rank], FEW, TG_FLOAT32};
        if (tg_reduce_begin(reducers[rank], &tensor, step, &reductions[rank], &error) != TG_OK)
            abort();
    }
    for (;;) {
        for (uint32_t rank = 0; rank < ON_ONE_HOST; rank++)
            if (tg_reduce_next(reductions[rank], &exchanges[rank], &error) != TG_OK)
                abort();
        if (!exchanges[0])
            break;
        for (uint32_t rank = 0; rank < ON_ONE_HOST; rank++) {
            const uint32_t peer = 1 - rank;
            tg_exchange *to = exchanges[rank];
            if (exchanges[peer]->send_size[rank] == TG_NO_MESSAGE)
                continue;
            memcpy(to->receive[peer], exchanges[peer]->send[rank], exchanges[peer]->send_size[rank]);
            to->received[peer] = exchanges[peer]->send_size[rank];
            uint8_t *bytes = to->receive[peer];
            if (byte >= 0 && rank == 0 && bytes[5] == TG_MESSAGE_PARTS)
                bytes[TG_MESSAGE_HEADER + (size_t)byte] ^= 1;
        }
        for (uint32_t rank = 0; rank < ON_ONE_HOST; rank++)
            if (tg_reduce_feed(reductions[rank], exchanges[rank], &error) != TG_OK)
                abort();
    }
    for (uint32_t rank = 0; rank < ON_ONE_HOST; rank++)
        outcomes[rank] = tg_reduce_end(reductions[rank], &error);
}

/* Whatever is wrong with a frame's header: all ranks skip the step, and go on; nothing of that frame is in a residual.
 */
static void spoiled_headers(void)
{
    static float gradients[ON_ONE_HOST][FEW];
    static const uint32_t one[ON_ONE_HOST] = {0, 0};
    const tg_reducer_options options = {.algorithm = TG_GATHER, .host_of_rank = one, .nonfinite = TG_NONFINITE_SKIP};
    tg_reducer_tensor tensor = {.name = "t", .count = FEW, .dtype = TG_FLOAT32};
    tg_device *device;
    if (tg_device_open("cpu", NULL, &device, NULL) != TG_OK || tg_spec_parse("none", &tensor.codec, NULL) != TG_OK ||
        tg_feedback_parse("ef", &tensor.feedback, NULL) != TG_OK)
        abort();
    for (int byte = 0; byte < FRAME_HEADER; byte++) {
        tg_reducer *reducers[ON_ONE_HOST];
        tg_status outcomes[ON_ONE_HOST];
        for (uint32_t rank = 0; rank < ON_ONE_HOST; rank++)
            if (tg_reducer_create(device, rank, ON_ONE_HOST, &tensor, 1, &options, &reducers[rank], NULL) != TG_OK)
                abort();
        spoiled_step(reducers, gradients, 0, byte, outcomes);
        expect(outcomes[0] == TG_SKIPPED && outcomes[1] == TG_SKIPPED, "byte %d: %s and %s", byte,
               tg_status_text(outcomes[0]), tg_status_text(outcomes[1]));
        spoiled_step(reducers, gradients, 1, -1, outcomes);
        expect(outcomes[0] == TG_OK && outcomes[1] == TG_OK, "byte %d, next step: %s and %s", byte,
               tg_status_text(outcomes[0]), tg_status_text(outcomes[1]));
        for (size_t i = 0; i < FEW; i++) /* with what both ranks lost, or one of them */
            expect(gradients[0][i] == 2 || gradients[0][i] == 1.5f, "byte %d: element %zu is %g", byte, i,
                   (double)gradients[0][i]);
        expect(memcmp(gradients[0], gradients[1], sizeof gradients[0]) == 0, "byte %d: ranks differ", byte);
        for (uint32_t rank = 0; rank < ON_ONE_HOST; rank++)
            tg_reducer_free(reducers[rank]);
    }
    tg_device_free(device);
    check_all("raw frames whose headers are spoiled");
}

/* Every rank refuses the same feedback, also one that owns nothing. */
static void refused_alike(void)
{
    static const uint32_t hosts[] = {0, 0, 1, 1, 1};
    const tg_reducer_options options = {.host_of_rank = hosts};
    tg_reducer_tensor tensor = {.name = "t", .count = FEW, .dtype = TG_FLOAT32};
    tg_device *device;
    if (tg_device_open("cpu", NULL, &device, NULL) != TG_OK ||
        tg_spec_parse("qsgd:levels=1,norm=l2,bucket=0", &tensor.codec, NULL) != TG_OK ||
        tg_feedback_parse("ef", &tensor.feedback, NULL) != TG_OK)
        abort();
    for (uint32_t rank = 0; rank < 5; rank++) {
        tg_reducer *reducer = NULL;
        const tg_status status = tg_reducer_create(device, rank, 5, &tensor, 1, &options, &reducer, NULL);
        expect(status == TG_UNSTABLE, "rank %u: %s", rank, tg_status_text(status));
        tg_reducer_free(status == TG_OK ? reducer : NULL);
    }
    tg_device_free(device);
    check_all("feedback that would diverge, in shares of all sizes");
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    static const tg_nonfinite_step policies[] = {TG_NONFINITE_STOP, TG_NONFINITE_SKIP, TG_NONFINITE_DROP};
    for (int a = TG_GATHER; a <= TG_SHARD; a++) {
        const tg_algorithm algorithm = (tg_algorithm)a;
        hosts_of_one(algorithm);
        for (size_t i = 0; i < 3; i++)
            for (uint32_t tensor = 0; tensor < 2; tensor++) {
                not_finite(algorithm, policies[i], (float)NAN, false, tensor);
                not_finite(algorithm, policies[i], 3e38f, true, tensor);
            }
        hosts_overflow(algorithm);
        one_host_overflows(algorithm, TG_NONFINITE_STOP);
        one_host_overflows(algorithm, TG_NONFINITE_SKIP);
        lacked(algorithm);
        ranks_share = !named_device();
        put_ranks_on(ranks_share ? plain : NULL);
        hosts_of_one(algorithm);
        for (size_t i = 0; i < 3; i++)
            for (uint32_t tensor = 0; tensor < 2; tensor++) {
                not_finite(algorithm, policies[i], (float)NAN, false, tensor);
                not_finite(algorithm, policies[i], 3e38f, true, tensor);
            }
        lacked(algorithm);
        ranks_share = false;
        put_ranks_on(NULL);
        elements_of_the_tensor(algorithm);
        messages(algorithm, 2, 4);
        messages(algorithm, 3, 2);
    }
    if (!named_device()) {
        shared_memory(TG_GATHER);
        shared_memory(TG_SHARD);
        places_are_needed(TG_GATHER);
        places_are_needed(TG_SHARD);
    }
    spoiled_headers();
    refused_alike();
    disagreement();
    refusals();
    return finish();
}
