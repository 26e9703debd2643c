/* Laws of trouble: whatever happens to one message, every rank comes to the same outcome, nothing is half applied, nothing is lost, and the
 * sentence names rank and tensor. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "faulty.h"
#include "ranks.h"
#include "reduce/reducer.h"

enum { WORLD = 3, STEPS = 3 };

static const tensor_case tensors[] = {{"kernel", "topk:density=0.02", "ef", 70001, TG_FLOAT32},
                                      {"matrix", "fp16", "ef", 20000, TG_FLOAT32},
                                      {"bias", "none", "ef", 100, TG_FLOAT32},
                                      {NULL, NULL, NULL, 0, TG_FLOAT32}};

/* What happened at each step of each rank. */
typedef struct history {
    tg_status status[WORLD][STEPS];
    tg_error error[WORLD][STEPS];
    bool touched[WORLD];     /* a gradient was changed by a step that was not applied */
    double owed[3][70001];   /* of gradients less what was applied, by rank 0 */
    pthread_mutex_t lock;
} history;

static void live(rank_state *s)
{
    history *h = s->extra;
    tg_tensor copy[3];
    for (size_t i = 0; i < s->tensor_count; i++)
        copy[i] = make_tensor(s->gradients[i].count, s->gradients[i].dtype, 0);
    for (uint64_t step = 0; step < STEPS; step++) {
        fill_gradients(s, step);
        (void)pthread_mutex_lock(&h->lock);
        for (size_t i = 0; i < s->tensor_count; i++) {
            memcpy(copy[i].data, s->gradients[i].data, s->gradients[i].count * sizeof(float));
            for (uint64_t j = 0; j < s->gradients[i].count; j++)
                h->owed[i][j] += (double)element(&s->gradients[i], j);
        }
        (void)pthread_mutex_unlock(&h->lock);
        const tg_status status = h->status[s->rank][step] =
            tg_reduce(s->reducer, s->transport, s->gradients, step, &h->error[s->rank][step]);
        (void)pthread_mutex_lock(&h->lock);
        for (size_t i = 0; i < s->tensor_count; i++) {
            if (status != TG_OK && memcmp(copy[i].data, s->gradients[i].data, s->gradients[i].count * sizeof(float)) != 0)
                h->touched[s->rank] = true;
            for (uint64_t j = 0; status == TG_OK && s->rank == 0 && j < s->gradients[i].count; j++)
                h->owed[i][j] -= WORLD * (double)element(&s->gradients[i], j);
        }
        (void)pthread_mutex_unlock(&h->lock);
        if (status == TG_EXCHANGE) {
            tg_transport_abort(s->transport, 1);
            break;
        }
    }
    for (size_t i = 0; i < s->tensor_count; i++)
        drop(&copy[i]);
}

/* Residuals hold what was not applied. The world is 3 and steps are few: to rounding of numbers of order 10. */
static double missing(history *h, rank_state *states)
{
    double worst = 0;
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        const tg_reducer *r = states[rank].reducer;
        for (size_t i = 0; i < r->tensor_count; i++)
            for (uint64_t j = 0; j < r->tensors[i].given.count; j++)
                h->owed[i][j] -= (double)r->tensors[i].feedback->residual[j];
        for (size_t p = 0; r->second && p < r->coded.piece_count; p++)
            for (uint64_t j = 0; r->second[p] && j < r->coded.pieces[p].count; j++)
                h->owed[r->coded.pieces[p].tensor][r->coded.pieces[p].first + j] -= WORLD * (double)r->second[p]->residual[j];
    }
    for (size_t i = 0; tensors[i].name; i++)
        for (uint64_t j = 0; j < tensors[i].count; j++)
            worst = fabs(h->owed[i][j]) > worst ? fabs(h->owed[i][j]) : worst;
    return worst;
}

static unsigned exchanges; /* of a step without trouble */

static void count_exchanges(rank_state *states, uint32_t world)
{
    (void)world;
    const tg_reducer *r = states[0].reducer;
    exchanges = (unsigned)(r->functions->has_results ? 2 * r->coded.parcel_count : r->coded.parcel_count) + 1;
}

static fault the_fault;
static unsigned the_exchange;
static bool of_verdict;
static unsigned named;

static void alike(rank_state *states, uint32_t world)
{
    history *h = states[0].extra;
    const tg_status due = the_fault == DELAY ? TG_OK : TG_SKIPPED;
    for (uint32_t rank = 0; rank < world; rank++)
        expect(!h->touched[rank], "rank %u: a step that was not applied changed a gradient", rank);
    if (the_fault == LOSE) {
        for (uint32_t rank = 0; rank < world; rank++)
            expect(h->status[rank][0] == TG_EXCHANGE || h->status[rank][1] == TG_EXCHANGE, "rank %u: %s", rank, h->error[rank][0].message);
        expect(h->status[1][0] == TG_EXCHANGE, "rank 1: %s", h->error[1][0].message);
        return;
    }
    if (of_verdict && the_fault != DELAY) { /* this rank cannot know; the others find out when it is gone */
        expect(h->status[1][0] == TG_EXCHANGE && strstr(h->error[1][0].message, "verdict of rank 2"), "rank 1: %s", h->error[1][0].message);
        for (uint32_t rank = 0; rank < world; rank += 2)
            expect(h->status[rank][0] == TG_EXCHANGE || (h->status[rank][0] == TG_OK && h->status[rank][1] == TG_EXCHANGE),
                   "rank %u: %d, %d", rank, (int)h->status[rank][0], (int)h->status[rank][1]);
        return;
    }
    for (uint32_t rank = 0; rank < world; rank++) {
        expect(h->status[rank][0] == due, "rank %u: %s: %s", rank, tg_status_text(h->status[rank][0]), h->error[rank][0].message);
        expect(h->status[rank][1] == TG_OK && h->status[rank][2] == TG_OK, "rank %u goes on: %s", rank, h->error[rank][1].message);
        if (due == TG_SKIPPED) {
            expect(strstr(h->error[rank][0].message, "rank 2") && strstr(h->error[rank][0].message, "rank 1"), "names: %s",
                   h->error[rank][0].message);
            named += strstr(h->error[rank][0].message, "'kernel'") || strstr(h->error[rank][0].message, "'matrix'");
        }
        for (size_t i = 0; i < states[0].tensor_count; i++)
            expect(memcmp(states[0].gradients[i].data, states[rank].gradients[i].data, states[0].gradients[i].count * sizeof(float)) == 0,
                   "tensor %zu differs", i);
    }
    const double worst = missing(h, states);
    if (the_exchange > 0 || due == TG_OK) /* else nothing had been compressed yet, and the gradients are still the caller's */
        expect(worst < 1e-4, "%g is missing somewhere", worst);
}

/* Rank 1 has trouble with what rank 2 sends it. */
static void trouble(tg_algorithm algorithm, fault fault, unsigned exchange, unsigned of, double where)
{
    const rank_case what = {.world = WORLD,
                            .tensors = tensors,
                            .options = {.algorithm = algorithm, .chunk = 8192, .timeout = 5},
                            .shape = GRID,
                            .steps = STEPS};
    tg_transport *transports[WORLD];
    tg_error error;
    history *h = calloc(1, sizeof *h);
    (void)pthread_mutex_init(&h->lock, NULL);
    if (tg_transport_local(WORLD, transports, &error) != TG_OK)
        abort();
    transports[1] = faulty(transports[1], fault, exchange, 2, where);
    the_fault = fault;
    the_exchange = exchange;
    of_verdict = exchange == 1 || exchange == of - 1;
    run_ranks(&what, transports, live, alike, h);
    check_all("%s, exchange %u of %u %s at %.2f: all ranks alike, nothing lost", algorithm == TG_SHARD ? "shard" : "gather", exchange, of,
              fault_names[fault], where);
    free(h);
}

static void faults(bool all, tg_algorithm algorithm)
{
    const rank_case what = {.world = WORLD, .tensors = tensors, .options = {.algorithm = algorithm, .chunk = 8192}, .shape = GRID};
    history *h = calloc(1, sizeof *h);
    (void)pthread_mutex_init(&h->lock, NULL);
    run_ranks(&what, NULL, live, count_exchanges, h);
    free(h);
    const unsigned of = exchanges + 2; /* a greeting and its verdict */
    named = 0;
    for (unsigned exchange = 0; exchange < of; exchange++)
        for (int fault = CUT; fault < FAULTS; fault++) {
            if (!all && fault != FLIP && (exchange + (unsigned)fault) % 3 != 0)
                continue;
            trouble(algorithm, (enum fault)fault, exchange, of, 0.5);
            if (fault == FLIP) {
                trouble(algorithm, FLIP, exchange, of, 0);
                trouble(algorithm, FLIP, exchange, of, 1);
            }
        }
    check(named > 0, "tensors are named (%u times)", named);
}

/* ---- gradients that are not finite ---- */

static void with_a_nan(rank_state *s)
{
    history *h = s->extra;
    for (uint64_t step = 0; step < STEPS; step++) {
        fill_gradients(s, step);
        if (s->rank == 1 && step == 1)
            ((float *)s->gradients[1].data)[12345] = step % 2 ? NAN : INFINITY;
        h->status[s->rank][step] = tg_reduce(s->reducer, s->transport, s->gradients, step, &h->error[s->rank][step]);
    }
}

static tg_status due_status;

static void nan_alike(rank_state *states, uint32_t world)
{
    history *h = states[0].extra;
    for (uint32_t rank = 0; rank < world; rank++) {
        tg_reducer_stats stats;
        expect(h->status[rank][0] == TG_OK && h->status[rank][2] == TG_OK, "rank %u: %s", rank, h->error[rank][2].message);
        expect(h->status[rank][1] == due_status, "rank %u: %s", rank, h->error[rank][1].message);
        if (due_status != TG_OK)
            expect(strstr(h->error[rank][1].message, "'matrix' on rank 1") && strstr(h->error[rank][1].message, "element"), "names: %s",
                   h->error[rank][1].message);
        expect(tg_reducer_stats_of(states[rank].reducer, &stats, NULL) == TG_OK && stats.skipped == (due_status != TG_OK), "skipped");
        expect(stats.dropped == (due_status == TG_OK && rank == 1), "dropped");
        const tg_reducer *r = states[rank].reducer;
        for (size_t i = 0; i < r->tensor_count; i++)
            for (uint64_t j = 0; j < r->tensors[i].given.count; j++)
                expect(isfinite(r->tensors[i].feedback->residual[j]), "it is in a residual");
    }
}

static void not_finite(tg_algorithm algorithm, tg_nonfinite_step policy, tg_status due)
{
    const rank_case what = {
        .world = WORLD, .tensors = tensors, .options = {.algorithm = algorithm, .nonfinite = policy, .chunk = 8192}, .shape = GAUSSIAN};
    history *h = calloc(1, sizeof *h);
    due_status = due;
    run_ranks(&what, NULL, with_a_nan, nan_alike, h);
    check_all("%s, a NaN on one rank, policy %d: %s on every rank", algorithm == TG_SHARD ? "shard" : "gather", (int)policy,
              tg_status_text(due));
    free(h);
}

/* ---- sums that are not finite ---- */

/* Finite gradients whose sum is none. Feedback keeps what a step that is not applied leaves, so that the next one has it too. */
static const tensor_case heavy[] = {{"plain", "none", "none", 9000, TG_FLOAT32},
                                    {"brief", "bf16", "ef", 9000, TG_FLOAT32},
                                    {"levels", "qsgd:levels=7,norm=max,bucket=512", "ef", 9000, TG_FLOAT32},
                                    {"range", "qsgd:levels=7,norm=max,bucket=512,range=minmax", "none", 9000, TG_FLOAT32},
                                    {"signs", "onebit:bucket=64", "ef", 9000, TG_FLOAT32},
                                    {"few", "topk:density=0.02", "ef", 70001, TG_FLOAT32},
                                    {"coarse", "topk:density=0.02,values=levels,levels=7", "none", 9000, TG_FLOAT32},
                                    {"half", "none", "none", 9000, TG_BFLOAT16},
                                    {NULL, NULL, NULL, 0, TG_FLOAT32}};

static size_t heavy_tensor; /* the one that has it */
static float heavy_value;
static bool heavy_drops;
enum { HEAVY_FIRST = 4160, HEAVY = 64 };

static void set_element(const tg_tensor *t, uint64_t i, float value)
{
    if (t->dtype == TG_FLOAT32)
        ((float *)t->data)[i] = value;
    else
        ((uint16_t *)t->data)[i] = (uint16_t)(tg_float_bits(value) >> 16); /* bfloat16 */
}

static void with_a_heavy_sum(rank_state *s)
{
    history *h = s->extra;
    for (uint64_t step = 0; step < 2; step++) {
        fill_gradients(s, step);
        tg_tensor *gradient = &s->gradients[heavy_tensor];
        for (uint64_t j = 0; step == 1 && j < HEAVY; j++)
            set_element(gradient, HEAVY_FIRST + j, heavy_value);
        const size_t size = gradient->count * tg_dtype_size(gradient->dtype);
        void *before = malloc(size);
        memcpy(before, gradient->data, size);
        h->status[s->rank][step] = tg_reduce(s->reducer, s->transport, s->gradients, step, &h->error[s->rank][step]);
        h->touched[s->rank] |= h->status[s->rank][step] != TG_OK && memcmp(before, gradient->data, size) != 0;
        free(before);
    }
}

static void heavy_alike(rank_state *states, uint32_t world)
{
    history *h = states[0].extra;
    uint64_t dropped = 0;
    char name[40];
    (void)snprintf(name, sizeof name, "sum of tensor '%s'", heavy[heavy_tensor].name);
    for (uint32_t rank = 0; rank < world; rank++) {
        const tg_reducer *r = states[rank].reducer;
        expect(h->status[rank][0] == TG_OK, "rank %u, step 0: %s", rank, h->error[rank][0].message);
        expect(h->status[rank][1] == due_status, "rank %u: %s: %s", rank, tg_status_text(h->status[rank][1]), h->error[rank][1].message);
        expect(due_status == TG_OK || strstr(h->error[rank][1].message, name), "names: %s", h->error[rank][1].message);
        expect(!h->touched[rank], "rank %u: a step that was not applied changed a gradient", rank);
        dropped += r->stats.dropped;
        for (size_t i = 0; i < states[rank].tensor_count; i++) {
            const tg_tensor *gradient = &states[rank].gradients[i];
            bool finite = true;
            for (uint64_t j = 0; j < gradient->count; j++)
                finite = finite && isfinite(element(gradient, j)) && (!r->tensors[i].feedback || isfinite(r->tensors[i].feedback->residual[j]));
            expect(finite, "rank %u: tensor %zu has a value or a residual that is not finite", rank, i);
            expect(due_status != TG_OK || memcmp(gradient->data, states[0].gradients[i].data, gradient->count * tg_dtype_size(gradient->dtype)) == 0,
                   "rank %u: tensor %zu differs", rank, i);
        }
    }
    expect((dropped > 0) == heavy_drops, "%u dropped", (unsigned)dropped);
    if (heavy_tensor == 0 && due_status == TG_OK) {
        const float mean = element(&states[0].gradients[0], HEAVY_FIRST);
        expect(mean == (heavy_drops ? 0 : heavy_value), "the mean is %g", (double)mean);
    }
}

/* 64 elements are 1.5e38 on each of three ranks. Or 2.5e38 on each of two: their mean is one half of each added up, which is no trouble. */
static void heavy_sums(tg_algorithm algorithm, uint32_t world, tg_nonfinite_step policy, tg_status due)
{
    const rank_case what = {
        .world = world, .tensors = heavy, .options = {.algorithm = algorithm, .nonfinite = policy, .chunk = 8192}, .shape = GAUSSIAN};
    due_status = due;
    heavy_value = world == 2 ? 2.5e38f : 1.5e38f;
    heavy_drops = policy == TG_NONFINITE_DROP && world > 2;
    for (heavy_tensor = 0; heavy[heavy_tensor].name; heavy_tensor++) {
        history *h = calloc(1, sizeof *h);
        run_ranks(&what, NULL, with_a_heavy_sum, heavy_alike, h);
        check_all("%s of %u, '%s' adds up to an infinity, policy %d: %s on every rank", algorithm == TG_SHARD ? "shard" : "gather", world,
                  heavy[heavy_tensor].name, (int)policy, tg_status_text(due));
        free(h);
    }
}

/* An owner keeps what compressing a mean left of it, once for every rank; a residual cannot hold that if the mean is large enough. */
static void with_large_errors(rank_state *s)
{
    for (uint64_t step = 0; step < STEPS; step++) {
        fill_gradients(s, step);
        for (uint64_t j = 0; j < 25; j++)
            set_element(&s->gradients[0], 300 * j, 2.2e37f);
        s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
        expect(s->status == TG_OK || s->status == TG_SKIPPED, "rank %u: %s", s->rank, s->error.message);
    }
}

static void no_large_residual(rank_state *states, uint32_t world)
{
    uint64_t dropped = 0;
    for (uint32_t rank = 0; rank < world; rank++) {
        const tg_reducing_tensor *t = &states[rank].reducer->tensors[0];
        dropped += states[rank].reducer->stats.dropped;
        for (uint64_t j = 0; j < t->given.count; j++)
            expect(isfinite(t->feedback->residual[j]), "rank %u: the residual of element %u is not finite", rank, (unsigned)j);
    }
    expect(dropped > 0, "nothing was dropped");
}

static void large_errors(void)
{
    const tensor_case coarse[] = {{"coarse", "topk:density=0.02,values=levels,levels=1,norm=l2", "ef", 9000, TG_FLOAT32}, tensors[3]};
    const rank_case what = {
        .world = WORLD, .tensors = coarse, .options = {.algorithm = TG_SHARD, .nonfinite = TG_NONFINITE_SKIP}, .shape = GAUSSIAN};
    run_ranks(&what, NULL, with_large_errors, no_large_residual, NULL);
    check_all("shard: an owner's error that is too large for a residual");
}

/* The ratio is of what was compressed: a gradient that was refused is in neither of its numbers. */
static void honest_ratio(tg_algorithm algorithm)
{
    const tensor_case plain[] = {{"plain", "none", "none", 1000, TG_FLOAT32}, tensors[3]};
    const rank_case alone = {.world = 1, .tensors = plain, .options = {.algorithm = algorithm, .nonfinite = TG_NONFINITE_SKIP}};
    rank_state s;
    tg_transport *transport;
    tg_reducer_stats stats = {.ratio = 0};
    open_rank(&s, &alone, 0, NULL);
    expect(tg_transport_local(1, &transport, &s.error) == TG_OK, "transport: %s", s.error.message);
    fill_gradients(&s, 0);
    ((float *)s.gradients[0].data)[7] = NAN;
    expect(tg_reduce(s.reducer, transport, s.gradients, 0, &s.error) == TG_SKIPPED, "step 0: %s", s.error.message);
    ((float *)s.gradients[0].data)[7] = 0;
    expect(tg_reduce(s.reducer, transport, s.gradients, 1, &s.error) == TG_OK, "step 1: %s", s.error.message);
    expect(tg_reducer_stats_of(s.reducer, &stats, NULL) == TG_OK && stats.float32_bytes == 4000 && stats.ratio < 1, "ratio %g", stats.ratio);
    check_all("%s: a refused gradient does not count for the ratio", algorithm == TG_SHARD ? "shard" : "gather");
    tg_transport_free(transport);
    close_rank(&s);
}

/* ---- ranks that do not agree ---- */

static void one_step(rank_state *s)
{
    const uint64_t step = s->what->steps;
    fill_gradients(s, step);
    s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
}

static const char *due_words;

static void all_say_so(rank_state *states, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++)
        expect(states[rank].status == TG_LAYOUT_MISMATCH && strstr(states[rank].error.message, due_words), "rank %u: %s: %s", rank,
               tg_status_text(states[rank].status), states[rank].error.message);
}

static void differ(const char *what, const rank_case *other, const char *words)
{
    const rank_case usual = {
        .world = WORLD, .tensors = tensors, .options = {.chunk = 8192}, .shape = GAUSSIAN, .odd = other, .odd_rank = 2};
    due_words = words;
    run_ranks(&usual, NULL, one_step, all_say_so, NULL);
    check_all("one rank has another %s: every rank says so", what);
}

static void disagreement(void)
{
    const rank_case usual = {.world = WORLD, .tensors = tensors, .options = {.chunk = 8192}, .shape = GAUSSIAN};
    const tensor_case codec[] = {tensors[0], {"matrix", "bf16", "ef", 20000, TG_FLOAT32}, tensors[2], tensors[3]};
    const tensor_case name[] = {tensors[0], {"metrix", "fp16", "ef", 20000, TG_FLOAT32}, tensors[2], tensors[3]};
    const tensor_case count[] = {tensors[0], {"matrix", "fp16", "ef", 20001, TG_FLOAT32}, tensors[2], tensors[3]};
    const tensor_case feedback[] = {tensors[0], {"matrix", "fp16", "none", 20000, TG_FLOAT32}, tensors[2], tensors[3]};
    const tensor_case fewer[] = {tensors[0], tensors[1], tensors[3]};
    const struct {
        const char *what;
        const tensor_case *list;
        const char *words;
    } cases[] = {{"codec", codec, "rank 2 differs from rank 0: it has another codec for tensor 1 ('matrix' here)"},
                 {"name", name, "another name for tensor 1"},
                 {"count", count, "another count or dtype for tensor 1 ('matrix'"},
                 {"feedback", feedback, "another feedback for tensor 1 ('matrix'"},
                 {"number of tensors", fewer, "it reduces 2 tensors and this rank 3"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rank_case other = usual;
        other.tensors = cases[i].list;
        differ(cases[i].what, &other, cases[i].words);
    }
    rank_case other = usual;
    other.options.seed = 1;
    differ("seed", &other, "another seed");
    other = usual;
    other.options.algorithm = TG_SHARD;
    differ("algorithm", &other, "another algorithm");
    other = usual;
    other.steps = 5;
    differ("step", &other, "at step 5");
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    for (int algorithm = TG_GATHER; algorithm <= TG_SHARD; algorithm++) {
        not_finite((tg_algorithm)algorithm, TG_NONFINITE_STOP, TG_NONFINITE);
        not_finite((tg_algorithm)algorithm, TG_NONFINITE_SKIP, TG_SKIPPED);
        not_finite((tg_algorithm)algorithm, TG_NONFINITE_DROP, TG_OK);
        heavy_sums((tg_algorithm)algorithm, WORLD, TG_NONFINITE_STOP, TG_NONFINITE);
        heavy_sums((tg_algorithm)algorithm, WORLD, TG_NONFINITE_SKIP, TG_SKIPPED);
        heavy_sums((tg_algorithm)algorithm, WORLD, TG_NONFINITE_DROP, TG_OK);
        honest_ratio((tg_algorithm)algorithm);
        faults(all, (tg_algorithm)algorithm);
    }
    heavy_sums(TG_GATHER, 2, TG_NONFINITE_STOP, TG_OK);
    heavy_sums(TG_GATHER, 2, TG_NONFINITE_DROP, TG_OK);
    large_errors();
    disagreement();
    return finish();
}
