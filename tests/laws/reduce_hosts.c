/* Laws of two levels: hosts with several ranks. Every rank holds the same bits; one host has the mean in rank order,
 * and hosts of one rank what they have without hosts; nothing is lost, whatever the placement. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "faulty.h"
#include "ranks.h"
#include "reduce/levels.h"

typedef struct placement {
    const char *name;
    uint32_t world;
    uint32_t hosts[18];
} placement;

static const placement placements[] = {{"2 hosts of 2", 4, {0, 0, 1, 1}},
                                       {"3 hosts of 3, 2 and 2 that take turns", 7, {5, 1, 5, 2, 1, 2, 5}},
                                       {"hosts of 1 and 3", 4, {1, 0, 0, 0}},
                                       {"1 host of 3", 3, {0, 0, 0}},
                                       {"9 hosts of 2", 18, {0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8}}};
enum { PLACEMENTS = sizeof placements / sizeof *placements };
static const tensor_case no_more = {NULL, NULL, NULL, 0, TG_FLOAT32};

static void steps(rank_state *s)
{
    for (uint64_t step = 0; step < s->what->steps && s->status == TG_OK; step++) {
        fill_gradients(s, step);
        s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
    }
}

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

/* Empty, odd, 16-bit, cut into shares and messages, packed together: every codec, both ways. */
static void every_spec(bool all, tg_algorithm algorithm)
{
    const char *const *specs = all_specs();
    size_t turn = 0;
    for (size_t i = 0; specs[i]; i += all ? 1 : EMULATED ? 59 : 7) {
        const placement *p = &placements[turn++ % PLACEMENTS];
        const tensor_case tensors[] = {
            {"first", specs[i], "ef", 1000, TG_FLOAT32},   {"empty", specs[i], "none", 0, TG_FLOAT32},
            {"large", specs[i], "ef", 140001, TG_FLOAT32}, {"half", specs[i], "none", 14097, TG_FLOAT16},
            {"one", specs[i], "ef", 1, TG_BFLOAT16},       no_more};
        const rank_case what = {
            .world = p->world,
            .tensors = tensors,
            .options = {.algorithm = algorithm, .batch_elements = 16384, .seed = 7, .host_of_rank = p->hosts},
            .shape = GAUSSIAN,
            .steps = 3};
        run_ranks(&what, NULL, steps, same_everywhere, NULL);
        check_all("%s, %s, %s: same bits everywhere", tg_algorithm_text(algorithm), p->name, specs[i]);
    }
}

/* Feedback of every kind, a warm-up, a schedule of densities, small tensors, several reductions under way. */
static void every_feedback(tg_algorithm algorithm)
{
    static const tensor_case tensors[] = {{"ecq", "qsgd:levels=3", "ecq:alpha=0.2,beta=0.9", 50000, TG_BFLOAT16},
                                          {"dgc", "topk:density=0.01", "dgc:momentum=0.9,clip=0", 140001, TG_FLOAT32},
                                          {"levels", "topk:k=9,values=levels", "ef", 90000, TG_FLOAT16},
                                          {"whole", "onebit:bucket=0", "ef", 20001, TG_FLOAT32},
                                          {"small", "qsgd", "ef", 100, TG_FLOAT16},
                                          {NULL, NULL, NULL, 0, TG_FLOAT32}};
    static const tg_density_change changes[] = {{3, 0.05}, {5, 0.001}};
    for (size_t i = 0; i < PLACEMENTS; i++) {
        const rank_case what = {.world = placements[i].world,
                                .tensors = tensors,
                                .options = {.algorithm = algorithm,
                                            .batch_elements = 16384,
                                            .warmup = 2,
                                            .min_size = 101,
                                            .schedule = changes,
                                            .schedule_count = 2,
                                            .depth = 2,
                                            .host_of_rank = placements[i].hosts},
                                .shape = LAYERED,
                                .steps = 40}; /* boundaries move every 16 of both */
        run_ranks(&what, NULL, steps, same_everywhere, NULL);
        check_all("%s, %s, all kinds of feedback: same bits everywhere", tg_algorithm_text(algorithm),
                  placements[i].name);
    }
}

/* ---- one host ---- */

static void is_the_mean(rank_state *states, uint32_t world)
{
    same_everywhere(states, world);
    for (size_t t = 0; t < states[0].tensor_count; t++) {
        const tg_tensor *g = &states[0].gradients[t];
        tg_tensor made = make_tensor(g->count, g->dtype, 0), wide = make_tensor(g->count, TG_FLOAT32, 0);
        float *sum = wide.data;
        memset(sum, 0, g->count * sizeof *sum);
        for (uint32_t rank = 0; rank < world; rank++) {
            fill(GAUSSIAN, 1 + rank * 10 + t, &made);
            for (uint64_t i = 0; i < g->count; i++)
                sum[i] += element(&made, i);
        }
        for (uint64_t i = 0; i < g->count; i++)
            sum[i] *= 1.0f / (float)world;
        for (uint64_t first = 0; first < g->count; first += TG_BLOCK)
            states[0].reducer->kernels->narrow(g->dtype, sum + first, tg_block_size(g->count, first),
                                               (char *)made.data + first * tg_dtype_size(g->dtype));
        expect(memcmp(made.data, g->data, g->count * tg_dtype_size(g->dtype)) == 0, "tensor %zu is not the mean", t);
        drop(&made);
        drop(&wide);
    }
}

static void one_host(void)
{
    const tensor_case tensors[] = {{"a", "qsgd:levels=1", "ef", 50000, TG_FLOAT32},
                                   {"b", "topk:k=5", "dgc:momentum=0.9,clip=0", 30001, TG_FLOAT16},
                                   {"c", "none", "none", 17, TG_BFLOAT16},
                                   no_more};
    for (int algorithm = TG_AUTO; algorithm <= TG_SHARD; algorithm++) {
        const rank_case what = {.world = 3,
                                .tensors = tensors,
                                .options = {.algorithm = (tg_algorithm)algorithm,
                                            .batch_elements = 8192,
                                            .host_of_rank = placements[3].hosts},
                                .shape = GAUSSIAN,
                                .steps = 1};
        run_ranks(&what, NULL, steps, is_the_mean, NULL);
        check_all("%s, one host: the mean in rank order", tg_algorithm_text((tg_algorithm)algorithm));
    }
}

/* ---- mass ---- */

typedef struct ledger {
    double *owed[MOST_TENSORS];
    pthread_mutex_t lock;
} ledger;

static void book(rank_state *s)
{
    ledger *l = s->extra;
    for (uint64_t step = 0; step < s->what->steps && s->status == TG_OK; step++) {
        fill_gradients(s, step);
        (void)pthread_mutex_lock(&l->lock);
        for (size_t i = 0; i < s->tensor_count; i++)
            for (uint64_t j = 0; j < s->gradients[i].count; j++)
                l->owed[i][j] += (double)element(&s->gradients[i], j);
        (void)pthread_mutex_unlock(&l->lock);
        s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
        for (size_t i = 0; s->rank == 0 && i < s->tensor_count; i++) {
            (void)pthread_mutex_lock(&l->lock);
            for (uint64_t j = 0; j < s->gradients[i].count; j++)
                l->owed[i][j] -= s->what->world * (double)element(&s->gradients[i], j);
            (void)pthread_mutex_unlock(&l->lock);
        }
    }
}

/* Takes what residuals hold off what is owed. Second residuals are of means. */
static void take_residuals(double *const *owed, const rank_state *states, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        const tg_reducer *whole = states[rank].reducer, *inner = whole->levels ? whole->levels->inner : NULL;
        for (size_t i = 0; i < whole->tensor_count; i++) {
            const uint64_t count = whole->tensors[i].given.count;
            float *residual = malloc((count + 1) * sizeof *residual);
            if (tg_reducer_residual_read(whole, i, residual, count, NULL) == TG_OK)
                for (uint64_t j = 0; j < count; j++)
                    owed[i][j] -= (double)residual[j];
            free(residual);
        }
        for (size_t p = 0; inner && inner->second && p < inner->coded.piece_count; p++) {
            const tg_piece *piece = &inner->coded.pieces[p];
            const float *residual = inner->second[p] ? residual_of(inner->second[p]) : NULL;
            const uint64_t start = whole->tensors[piece->tensor].parts[whole->levels->share] + piece->first;
            for (uint64_t j = 0; residual && j < piece->count; j++)
                owed[piece->tensor][start + j] -= world * (double)residual[j];
        }
    }
}

static double tolerance;

static void nothing_is_missing(rank_state *states, uint32_t world)
{
    ledger *l = states[0].extra;
    double worst = 0;
    same_everywhere(states, world);
    take_residuals(l->owed, states, world);
    for (size_t i = 0; i < states[0].tensor_count; i++)
        for (uint64_t j = 0; j < states[0].gradients[i].count; j++)
            worst = fabs(l->owed[i][j]) > worst ? fabs(l->owed[i][j]) : worst;
    expect(worst <= tolerance, "%g is missing", worst);
}

static void mass(const placement *p, tg_algorithm algorithm, const char *spec, const char *feedback)
{
    const tensor_case tensors[] = {
        {"large", spec, feedback, 140001, TG_FLOAT32}, {"small", spec, feedback, 999, TG_FLOAT32}, no_more};
    const rank_case what = {
        .world = p->world,
        .tensors = tensors,
        .options = {.algorithm = algorithm, .batch_elements = 16384, .seed = 3, .host_of_rank = p->hosts},
        .shape = GRID,
        .steps = 4};
    ledger l = {0};
    (void)pthread_mutex_init(&l.lock, NULL);
    for (size_t i = 0; tensors[i].name; i++)
        l.owed[i] = calloc(tensors[i].count, sizeof(double));
    /* Values are multiples of 2^-10 below 1, and worlds of 4 divide without rounding: then sparsifiers leave nothing to
     * rounding at all, nor do casts, nor, in so few steps, levels that are quarters of the largest value. Else it is
     * that of a few numbers of order 10. */
    const bool on_grid = strcmp(spec, "none") == 0 || strcmp(spec, "fp16") == 0 || strstr(spec, "levels=4,norm=max");
    tolerance = p->world == 4 && (is_sparsifier(spec) || on_grid) ? 0 : 1e-4;
    run_ranks(&what, NULL, book, nothing_is_missing, &l);
    check_all("%s, %s, %s/%s: what was sent and residuals are the sum", tg_algorithm_text(algorithm), p->name, spec,
              feedback);
    for (size_t i = 0; tensors[i].name; i++)
        free(l.owed[i]);
}

/* ---- trouble ---- */

typedef struct history {
    tg_status status[MOST_RANKS];
    tg_error error[MOST_RANKS];
    bool touched[MOST_RANKS];
    ledger ledger;
} history;

static void one_step(rank_state *s, history *h, uint64_t step)
{
    tg_tensor copy[MOST_TENSORS];
    for (size_t i = 0; i < s->tensor_count; i++) {
        const tg_tensor *g = &s->gradients[i];
        copy[i] = make_tensor(g->count, g->dtype, 0);
        memcpy(copy[i].data, g->data, g->count * tg_dtype_size(g->dtype));
        (void)pthread_mutex_lock(&h->ledger.lock);
        for (uint64_t j = 0; j < g->count; j++)
            h->ledger.owed[i][j] += (double)element(g, j);
        (void)pthread_mutex_unlock(&h->ledger.lock);
    }
    s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
    for (size_t i = 0; i < s->tensor_count; i++) {
        const tg_tensor *g = &s->gradients[i];
        if (s->status != TG_OK && memcmp(copy[i].data, g->data, g->count * tg_dtype_size(g->dtype)) != 0)
            h->touched[s->rank] = true;
        (void)pthread_mutex_lock(&h->ledger.lock);
        for (uint64_t j = 0; s->status == TG_OK && s->rank == 0 && j < g->count; j++)
            h->ledger.owed[i][j] -= s->what->world * (double)element(g, j);
        (void)pthread_mutex_unlock(&h->ledger.lock);
        drop(&copy[i]);
    }
}

/* A step that fails somewhere, and one that does not. */
static void fail_and_go_on(rank_state *s)
{
    history *h = s->extra;
    fill_gradients(s, 0);
    one_step(s, h, 0);
    h->status[s->rank] = s->status;
    h->error[s->rank] = s->error;
    if (s->status == TG_EXCHANGE) {
        tg_transport_abort(s->transport, 1);
        return;
    }
    fill_gradients(s, 1);
    one_step(s, h, 1);
}

static unsigned spoilt_before;
static bool may_lack; /* of what was damaged within a host: nobody else has it */

static void alike(rank_state *states, uint32_t world)
{
    history *h = states[0].extra;
    double worst = 0;
    for (uint32_t rank = 0; rank < world; rank++) {
        expect(!h->touched[rank], "rank %u: a step that was not applied changed a gradient", rank);
        if (messages_spoilt == spoilt_before) {
            expect(h->status[rank] == TG_OK, "rank %u: %s", rank, h->error[rank].message);
            continue;
        }
        expect(h->status[rank] == TG_SKIPPED && strstr(h->error[rank].message, "rank 1") &&
                   strstr(h->error[rank].message, "rank 3") && strcmp(h->error[rank].message, h->error[0].message) == 0,
               "rank %u: %s: %s", rank, tg_status_text(h->status[rank]), h->error[rank].message);
    }
    same_everywhere(states, world);
    take_residuals(h->ledger.owed, states, world);
    for (size_t i = 0; i < states[0].tensor_count; i++)
        for (uint64_t j = 0; j < states[0].gradients[i].count; j++)
            worst = fabs(h->ledger.owed[i][j]) > worst ? fabs(h->ledger.owed[i][j]) : worst;
    expect(worst < 1e-4 || (may_lack && worst < 1), "%g is missing", worst);
}

static void with_history(const rank_case *what, tg_transport **transports, void (*body)(rank_state *),
                         void (*after)(rank_state *, uint32_t))
{
    history *h = calloc(1, sizeof *h);
    (void)pthread_mutex_init(&h->ledger.lock, NULL);
    for (size_t i = 0; what->tensors[i].name; i++)
        h->ledger.owed[i] = calloc(what->tensors[i].count + 1, sizeof(double));
    run_ranks(what, transports, body, after, h);
    for (size_t i = 0; what->tensors[i].name; i++)
        free(h->ledger.owed[i]);
    free(h);
}

/* The first exchange of a step: before it come greeting and verdict, which takes rounds among more than eight ranks;
 * and before these, where memory is shared, the rounds in which all ranks agree on their hosts, and two exchanges
 * within hosts. */
static unsigned first_exchange(uint32_t world)
{
    unsigned rounds = 0;
    while (1u << rounds < world)
        rounds++;
    return 1 + tg_agreement_rounds(world) + (ranks_share ? rounds + 2 : 0);
}

/* Counts exchanges that bring something from one rank to another. */
static unsigned met;
static void count_meetings(rank_state *states, uint32_t world)
{
    const tg_reducer *r = states[0].reducer;
    met = first_exchange(world) + r->levels->stage_count * (unsigned)r->coded.batch_count + 1;
}

static void nothing(rank_state *s) { (void)s; }

static const placement troubled[] = {
    {"2 hosts, the second ranks' link", 4, {0, 0, 1, 1}},
    {"2 hosts that take turns, within the second", 4, {0, 1, 0, 1}},
    {"hosts of 2 and 3, within the second", 5, {0, 1, 0, 1, 1}},
    {"9 hosts, the first ranks' link", 18, {0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8}}};

/* Rank 1 has trouble with what rank 3 sends: on the same host, or on another. */
static void faults(bool all, const placement *p, tg_algorithm algorithm)
{
    rank_case what = {.world = p->world,
                      .tensors = mixed_tensors,
                      .options = {.algorithm = algorithm, .batch_elements = 16384, .host_of_rank = p->hosts},
                      .shape = GRID};
    run_ranks(&what, NULL, nothing, count_meetings, NULL);
    const bool same_host = p->hosts[1] == p->hosts[3];
    unsigned troubles = 0;
    for (unsigned exchange = first_exchange(p->world); exchange + 1 < met; exchange++)
        for (int fault = CUT; fault <= FLIP; fault++) {
            if (!all && (exchange + (unsigned)fault) % (EMULATED || p->world > 8 ? 7 : 3) != 0)
                continue;
            tg_transport *transports[MOST_RANKS];
            tg_error error;
            if (tg_transport_local(p->world, transports, &error) != TG_OK)
                abort();
            transports[1] = faulty(transports[1], (enum fault)fault, exchange, 3, 0.5);
            may_lack = same_host;
            spoilt_before = messages_spoilt;
            with_history(&what, transports, fail_and_go_on, alike);
            troubles += messages_spoilt > spoilt_before;
            check_all("%s, %s, exchange %u %s: all ranks alike, nothing lost", tg_algorithm_text(algorithm), p->name,
                      exchange, fault_names[fault]);
        }
    check(troubles > 0, "%s, %s: %u messages were spoilt", tg_algorithm_text(algorithm), p->name, troubles);
}

static void laws(bool all)
{
    printf("ranks of a host %s\n", ranks_share ? "share memory" : "send each other messages");
    every_spec(all, TG_GATHER);
    every_spec(all, TG_SHARD);
    every_feedback(TG_GATHER);
    every_feedback(TG_SHARD);
    one_host();
    static const char *const specs[] = {"topk:density=0.02",     "topk:k=70", "qsgd:levels=7", "fp16", "none",
                                        "qsgd:levels=4,norm=max"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (size_t j = EMULATED ? i % 3 : 0; j < PLACEMENTS; j += EMULATED ? 3 : 1) {
            mass(&placements[j], TG_GATHER, specs[i], "ef");
            mass(&placements[j], TG_SHARD, specs[i], "ef");
        }
    for (size_t j = 0; j < sizeof troubled / sizeof *troubled; j++) {
        faults(all, &troubled[j], TG_GATHER);
        faults(all, &troubled[j], TG_SHARD);
    }
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    static const char *const plain[] = {"cpu", "cpu/scalar", NULL}; /* whose memory others can read */
    laws(all);
    if (named_device())
        return finish();
    ranks_share = true;
    put_ranks_on(plain);
    laws(all);
    check(ranks_sharing > 0, "%u reducers had memory together", ranks_sharing);
    return finish();
}
