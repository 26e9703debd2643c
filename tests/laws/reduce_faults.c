/* Laws of trouble: whatever happens to one message, every rank comes to the same outcome, nothing is half applied,
 * nothing is lost, and the sentence names rank and tensor. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"
#include "faulty.h"
#include "ranks.h"
#include "reduce/reducer.h"

enum { WORLD = 3, STEPS = 3 };

/* What happened at each step of each rank. */
typedef struct history {
    tg_status status[WORLD][STEPS];
    tg_error error[WORLD][STEPS];
    bool touched[WORLD];   /* a gradient was changed by a step that was not applied */
    double owed[3][70001]; /* of gradients less what was applied */
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
        const tg_status status = h->status[s->rank][step] = tg_reduce(s->reducer, s->transport, s->gradients, step,
                                                                      &h->error[s->rank][step]);
        (void)pthread_mutex_lock(&h->lock);
        for (size_t i = 0; i < s->tensor_count; i++) {
            if (status != TG_OK &&
                memcmp(copy[i].data, s->gradients[i].data, s->gradients[i].count * sizeof(float)) != 0)
                h->touched[s->rank] = true;
            for (uint64_t j = shown_by(s, i).from; status == TG_OK && j < shown_by(s, i).to; j++)
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
        for (size_t i = 0; i < r->tensor_count; i++) {
            const float *residual = r->tensors[i].feedback ? residual_of(r->tensors[i].feedback) : NULL;
            for (uint64_t j = 0; residual && j < r->tensors[i].given.count; j++)
                h->owed[i][j] -= (double)residual[j];
        }
        for (size_t p = 0; r->second && p < r->coded.piece_count; p++) {
            const float *residual = r->second[p] ? residual_of(r->second[p]) : NULL;
            for (uint64_t j = 0; residual && j < r->coded.pieces[p].count; j++)
                h->owed[r->coded.pieces[p].tensor][r->coded.pieces[p].first + j] -= WORLD * (double)residual[j];
        }
    }
    for (size_t i = 0; mixed_tensors[i].name; i++)
        for (uint64_t j = 0; j < mixed_tensors[i].count; j++)
            worst = fabs(h->owed[i][j]) > worst ? fabs(h->owed[i][j]) : worst;
    return worst;
}

static unsigned exchanges; /* of a step without trouble */

static void count_exchanges(rank_state *states, uint32_t world)
{
    (void)world;
    const tg_reducer *r = states[0].reducer;
    exchanges = (unsigned)(r->functions->has_results ? 2 * r->coded.batch_count : r->coded.batch_count) + 1;
}

static fault the_fault;
static unsigned the_exchange;
static bool of_verdict;
static unsigned named;

static void alike(rank_state *states, uint32_t world)
{
    history *h = states[0].extra;
    const tg_status due = the_fault == DELAY ? TG_OK : TG_SKIPPED;
    join_parts(states, world);
    for (uint32_t rank = 0; rank < world; rank++)
        expect(!h->touched[rank], "rank %u: a step that was not applied changed a gradient", rank);
    if (the_fault == LOSE) {
        for (uint32_t rank = 0; rank < world; rank++)
            expect(h->status[rank][0] == TG_EXCHANGE || h->status[rank][1] == TG_EXCHANGE, "rank %u: %s", rank,
                   h->error[rank][0].message);
        expect(h->status[1][0] == TG_EXCHANGE, "rank 1: %s", h->error[1][0].message);
        return;
    }
    if (of_verdict && the_fault != DELAY) { /* this rank cannot know; the others find out when it is gone */
        expect(h->status[1][0] == TG_EXCHANGE && strstr(h->error[1][0].message, "verdict of rank 2"), "rank 1: %s",
               h->error[1][0].message);
        for (uint32_t rank = 0; rank < world; rank += 2)
            expect(h->status[rank][0] == TG_EXCHANGE ||
                       (h->status[rank][0] == TG_OK && h->status[rank][1] == TG_EXCHANGE),
                   "rank %u: %d, %d", rank, (int)h->status[rank][0], (int)h->status[rank][1]);
        return;
    }
    for (uint32_t rank = 0; rank < world; rank++) {
        expect(h->status[rank][0] == due, "rank %u: %s: %s", rank, tg_status_text(h->status[rank][0]),
               h->error[rank][0].message);
        expect(h->status[rank][1] == TG_OK && h->status[rank][2] == TG_OK, "rank %u goes on: %s", rank,
               h->error[rank][1].message);
        if (due == TG_SKIPPED) {
            expect(strstr(h->error[rank][0].message, the_exchange == 0 ? "rank 0" : "rank 2") &&
                       strstr(h->error[rank][0].message, "rank 1"),
                   "names: %s", h->error[rank][0].message);
            named += strstr(h->error[rank][0].message, "'kernel'") || strstr(h->error[rank][0].message, "'matrix'");
        }
        for (size_t i = 0; i < states[0].tensor_count; i++)
            expect(memcmp(states[0].gradients[i].data, states[rank].gradients[i].data,
                          states[0].gradients[i].count * sizeof(float)) == 0,
                   "tensor %zu differs", i);
    }
    const double worst = missing(h, states);
    if (the_exchange > 0 ||
        due == TG_OK) /* else nothing had been compressed yet, and the gradients are still the caller's */
        expect(worst < 1e-4, "%g is missing somewhere", worst);
}

/* Rank 1 has trouble with what rank 2 sends it, or rank 0, from which the greeting comes. */
static void trouble(tg_algorithm algorithm, fault fault, unsigned exchange, unsigned of, double where)
{
    const rank_case what = {.world = WORLD,
                            .tensors = mixed_tensors,
                            .options = {.algorithm = algorithm, .batch_elements = 8192, .timeout = PATIENCE},
                            .shape = GRID,
                            .steps = STEPS};
    tg_transport *transports[WORLD];
    tg_error error;
    history *h = calloc(1, sizeof *h);
    (void)pthread_mutex_init(&h->lock, NULL);
    if (tg_transport_local(WORLD, transports, &error) != TG_OK)
        abort();
    transports[1] = faulty(transports[1], fault, exchange, exchange == 0 ? 0 : 2, where);
    the_fault = fault;
    the_exchange = exchange;
    of_verdict = exchange == 1 || exchange == of - 1;
    run_ranks(&what, transports, live, alike, h);
    check_all("%s, exchange %u of %u %s at %.2f: all ranks alike, nothing lost", tg_algorithm_text(algorithm), exchange,
              of, fault_names[fault], where);
    free(h);
}

static void faults(bool all, tg_algorithm algorithm)
{
    const rank_case what = {.world = WORLD,
                            .tensors = mixed_tensors,
                            .options = {.algorithm = algorithm, .batch_elements = 8192},
                            .shape = GRID};
    history *h = calloc(1, sizeof *h);
    (void)pthread_mutex_init(&h->lock, NULL);
    run_ranks(&what, NULL, live, count_exchanges, h);
    free(h);
    const unsigned of = exchanges + 2; /* a greeting and its verdict */
    named = 0;
    for (unsigned exchange = 0; exchange < of; exchange++)
        for (int fault = CUT; fault < FAULTS; fault++) {
            if (!all && (fault != FLIP || EMULATED) && (exchange + (unsigned)fault) % (EMULATED ? 5 : 3) != 0)
                continue;
            trouble(algorithm, (enum fault)fault, exchange, of, 0.5);
            if (fault == FLIP) {
                trouble(algorithm, FLIP, exchange, of, 0);
                trouble(algorithm, FLIP, exchange, of, 1);
            }
        }
    check(named > 0, "tensors are named (%u times)", named);
}

/* ---- more messages than may be under way ---- */

/* tg_reduce has at most 1024/depth exchanges under way. So the first of more messages is heard of before the last is
 * compressed; if it is bad, the others are compressed all the same, for the residuals. */
enum { MESSAGES = 70, MESSAGE = 4096, DEPTH = 16 };
static const tensor_case many[] = {{"long", "fp16", "ef", (uint64_t)MESSAGES *MESSAGE, TG_FLOAT32},
                                   {NULL, NULL, NULL, 0, TG_FLOAT32}};

static void one_step_of_many(rank_state *s)
{
    fill_gradients(s, 0);
    s->status = tg_reduce(s->reducer, s->transport, s->gradients, 0, &s->error);
}

static void all_is_in_the_residuals(rank_state *states, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        const uint64_t count = states[rank].gradients[0].count;
        float *residual = malloc(count * sizeof *residual);
        tg_error error;
        expect(states[rank].status == TG_SKIPPED, "rank %u: %s", rank, states[rank].error.message);
        expect(tg_reducer_residual_read(states[rank].reducer, 0, residual, count, &error) == TG_OK, "%s",
               error.message);
        expect(memcmp(residual, states[rank].gradients[0].data, count * sizeof *residual) == 0,
               "rank %u: the gradient is not in the residual", rank);
        free(residual);
    }
}

static void beyond_the_window(tg_algorithm algorithm)
{
    const rank_case what = {.world = WORLD,
                            .tensors = many,
                            .options = {.algorithm = algorithm, .batch_elements = MESSAGE, .depth = DEPTH},
                            .shape = GRID};
    tg_transport *transports[WORLD];
    tg_error error;
    if (tg_transport_local(WORLD, transports, &error) != TG_OK)
        abort();
    transports[1] = faulty(transports[1], FLIP, 2, 2, 0.5); /* the first message, after the greeting and its verdict */
    run_ranks(&what, transports, one_step_of_many, all_is_in_the_residuals, NULL);
    check_all("%s: of more messages than may be under way, all are in the residuals after a failure",
              tg_algorithm_text(algorithm));
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
        expect(states[rank].status == TG_LAYOUT_MISMATCH && strstr(states[rank].error.message, due_words),
               "rank %u: %s: %s", rank, tg_status_text(states[rank].status), states[rank].error.message);
}

static void differ(const char *what, const rank_case *other, const char *words)
{
    const rank_case usual = {.world = WORLD,
                             .tensors = mixed_tensors,
                             .options = {.batch_elements = 8192},
                             .shape = GAUSSIAN,
                             .odd = other,
                             .odd_rank = 2};
    due_words = words;
    run_ranks(&usual, NULL, one_step, all_say_so, NULL);
    check_all("one rank has another %s: every rank says so", what);
}

static void disagreement(void)
{
    const rank_case usual = {
        .world = WORLD, .tensors = mixed_tensors, .options = {.batch_elements = 8192}, .shape = GAUSSIAN};
    const tensor_case kernel = mixed_tensors[0], matrix = mixed_tensors[1], bias = mixed_tensors[2];
    const tensor_case codec[] = {kernel, {"matrix", "bf16", "ef", 20000, TG_FLOAT32}, bias, {0}};
    const tensor_case name[] = {kernel, {"metrix", "fp16", "ef", 20000, TG_FLOAT32}, bias, {0}};
    const tensor_case count[] = {kernel, {"matrix", "fp16", "ef", 20001, TG_FLOAT32}, bias, {0}};
    const tensor_case feedback[] = {kernel, {"matrix", "fp16", "none", 20000, TG_FLOAT32}, bias, {0}};
    const tensor_case fewer[] = {kernel, matrix, {0}};
    const struct {
        const char *what;
        const tensor_case *list;
        const char *words;
    } cases[] = {{"codec", codec, "rank 2 differs from rank 0: it has another codec for tensor 1 ('matrix' here)"},
                 {"name", name, "another name for tensor 1"},
                 {"count", count, "another count, dtype or boundaries for tensor 1 ('matrix'"},
                 {"feedback", feedback, "another feedback for tensor 1 ('matrix'"},
                 {"number of tensors", fewer, "it has 2 tensors, not 3"}};
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
    faults(all, TG_GATHER);
    faults(all, TG_SHARD);
    faults(all, TG_SCATTER);
    beyond_the_window(TG_GATHER);
    beyond_the_window(TG_SHARD);
    beyond_the_window(TG_SCATTER);
    disagreement();
    return finish();
}
