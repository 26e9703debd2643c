/* Laws of two levels: hosts with several ranks. Every rank holds the same bits; one host has the mean in rank order,
 * and hosts of one rank what they have without hosts; nothing is lost, whatever the placement. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"
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
    for (size_t i = 0; specs[i]; i += all ? 1 : EMULATED ? 97 : 11) {
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
static void every_feedback(bool all, tg_algorithm algorithm)
{
    static const tensor_case tensors[] = {{"ecq", "qsgd:levels=3", "ecq:alpha=0.2,beta=0.9", 50000, TG_BFLOAT16},
                                          {"dgc", "topk:density=0.01", "dgc:momentum=0.9,clip=0", 140001, TG_FLOAT32},
                                          {"levels", "topk:k=9,values=levels", "ef", 90000, TG_FLOAT16},
                                          {"whole", "onebit:bucket=0", "ef", 20001, TG_FLOAT32},
                                          {"small", "qsgd", "ef", 100, TG_FLOAT16},
                                          {NULL, NULL, NULL, 0, TG_FLOAT32}};
    static const tg_density_change changes[] = {{3, 0.05}, {5, 0.001}};
    for (size_t i = 0; i < PLACEMENTS; i++) {
        const size_t number = i + (algorithm == TG_SHARD) + ranks_share;
        if ((!all && number % (EMULATED ? 4 : 2) != 0) || !my_turn())
            continue;
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
    if (!my_turn())
        return;
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

enum { BEFORE_AND_AFTER = 2 };

typedef struct history {
    tg_status status[MOST_RANKS][BEFORE_AND_AFTER];
    tg_error error[MOST_RANKS][BEFORE_AND_AFTER];
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
    h->status[s->rank][step] = s->status;
    h->error[s->rank][step] = s->error;
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
    for (uint64_t step = 0; step < BEFORE_AND_AFTER; step++) {
        fill_gradients(s, step);
        one_step(s, s->extra, step);
        if (s->status == TG_EXCHANGE) {
            tg_transport_abort(s->transport, 1);
            return;
        }
    }
}

/* What goes wrong, on rank 1 with what another rank sends it. */
static struct trouble {
    fault fault;
    uint32_t from;
    bool of_greeting, of_verdict, within_host;
    unsigned spoilt_before;
} trouble;

/* Rank 1 cannot know what the others do; they find out when it is gone, in the next step at the latest. (Where it does
 * not take part in an exchange, threads take its next one for that, and may find first that the two do not fit.) */
static void all_end(const rank_state *states, uint32_t world)
{
    const history *h = states[0].extra;
    char words[32];
    snprintf(words, sizeof words, "verdict of rank %u", trouble.from);
    expect(h->status[1][0] == TG_EXCHANGE && (trouble.fault == LOSE || strstr(h->error[1][0].message, words)),
           "rank 1: %s", h->error[1][0].message);
    for (uint32_t rank = 0; rank < world; rank++)
        expect(states[rank].status == TG_EXCHANGE && /* also where it still was sharing memory */
                   (h->status[rank][0] == TG_OK || h->status[rank][0] == TG_EXCHANGE),
               "rank %u: %s", rank, states[rank].error.message);
}

static void all_skip(const history *h, uint32_t world)
{
    char other[16];
    snprintf(other, sizeof other, "rank %u", trouble.from);
    for (uint32_t rank = 0; rank < world; rank++)
        expect(h->status[rank][0] == TG_SKIPPED && strstr(h->error[rank][0].message, "rank 1") &&
                   strstr(h->error[rank][0].message, other) &&
                   strcmp(h->error[rank][0].message, h->error[0][0].message) == 0,
               "rank %u: %s: %s", rank, tg_status_text(h->status[rank][0]), h->error[rank][0].message);
}

static void alike(rank_state *states, uint32_t world)
{
    history *h = states[0].extra;
    const bool spoilt = messages_spoilt > trouble.spoilt_before && trouble.fault != DELAY;
    double worst = 0;
    for (uint32_t rank = 0; rank < world; rank++)
        expect(!h->touched[rank], "rank %u: a step that was not applied changed a gradient", rank);
    if (trouble.fault == LOSE || (trouble.of_verdict && spoilt)) {
        all_end(states, world);
        return;
    }
    if (spoilt)
        all_skip(h, world);
    for (uint32_t rank = 0; rank < world; rank++)
        expect(spoilt || h->status[rank][0] == TG_OK, "rank %u: %s", rank, h->error[rank][0].message);
    same_everywhere(states, world);
    if (trouble.of_greeting && spoilt)
        return; /* nothing had been compressed yet: the gradients of that step are still the caller's */
    take_residuals(h->ledger.owed, states, world);
    for (size_t i = 0; i < states[0].tensor_count; i++)
        for (uint64_t j = 0; j < states[0].gradients[i].count; j++)
            worst = fabs(h->ledger.owed[i][j]) > worst ? fabs(h->ledger.owed[i][j]) : worst;
    /* What was damaged within a host nobody else has. */
    expect(worst < 1e-4 || (trouble.within_host && spoilt && worst < 1), "%g is missing", worst);
}

static void with_history(const rank_case *what, tg_transport **transports)
{
    history *h = calloc(1, sizeof *h);
    (void)pthread_mutex_init(&h->ledger.lock, NULL);
    for (size_t i = 0; what->tensors[i].name; i++)
        h->ledger.owed[i] = calloc(what->tensors[i].count + 1, sizeof(double));
    run_ranks(what, transports, fail_and_go_on, alike, h);
    for (size_t i = 0; what->tensors[i].name; i++)
        free(h->ledger.owed[i]);
    free(h);
}

/* Where memory is shared, before the greeting come the rounds in which all ranks agree on their hosts, and two
 * exchanges within hosts. */
static unsigned greeting_exchange(uint32_t world)
{
    unsigned rounds = 0;
    while (1u << rounds < world)
        rounds++;
    return ranks_share ? rounds + 2 : 0;
}

/* Exchanges between the verdict on the greeting and that on the step. */
static unsigned exchanges;
static void count_exchanges(rank_state *states, uint32_t world)
{
    (void)world;
    const tg_reducer *r = states[0].reducer;
    exchanges = r->levels->stage_count * (unsigned)r->coded.batch_count;
}

static void nothing(rank_state *s) { (void)s; }

/* The second ranks of hosts share a link, or the first ones; or ranks 1 and 3 are on one host. */
static const placement troubled[] = {
    {"2 hosts, the second ranks' link", 4, {0, 0, 1, 1}},
    {"2 hosts that take turns, within the second", 4, {0, 1, 0, 1}},
    {"hosts of 2 and 3, within the second", 5, {0, 1, 0, 1, 1}},
    {"9 hosts, the first ranks' link", 18, {0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8}}};

/* Where verdicts take one round, all tell each other; else rank r tells rank r + 2^round. */
static uint32_t speaker(uint32_t world, unsigned rounds, unsigned round)
{
    return rounds == 1 ? 3 : (1 + world - (1u << round) % world) % world;
}

static unsigned spoilt_greetings, spoilt_verdicts;

/* Rank 1 has trouble with what another rank sends it in this exchange, counted from the greeting on. */
static void one_trouble(const rank_case *what, const placement *p, fault fault, unsigned exchange)
{
    const unsigned rounds = tg_agreement_rounds(p->world), first = 1 + rounds, last = first + exchanges;
    const bool of_greeting = exchange == 0, of_verdict = !of_greeting && (exchange < first || exchange >= last);
    const uint32_t from = of_greeting  ? 0
                          : of_verdict ? speaker(p->world, rounds, exchange - (exchange < first ? 1 : last))
                                       : 3;
    tg_transport *transports[MOST_RANKS];
    tg_error error;
    if (tg_transport_local(p->world, transports, &error) != TG_OK)
        abort();
    transports[1] = faulty(transports[1], fault, greeting_exchange(p->world) + exchange, from, 0.5);
    trouble = (struct trouble){.fault = fault,
                               .from = from,
                               .of_greeting = of_greeting,
                               .of_verdict = of_verdict,
                               .within_host = p->hosts[1] == p->hosts[from],
                               .spoilt_before = messages_spoilt};
    with_history(what, transports);
    spoilt_greetings += of_greeting && messages_spoilt > trouble.spoilt_before;
    spoilt_verdicts += of_verdict && messages_spoilt > trouble.spoilt_before;
    check_all("%s, %s, exchange %u %s: all ranks alike, nothing lost", tg_algorithm_text(what->options.algorithm),
              p->name, exchange, fault_names[fault]);
}

static void faults(bool all, const placement *p, tg_algorithm algorithm)
{
    static unsigned turn;
    const rank_case what = {
        .world = p->world,
        .tensors = mixed_tensors,
        .options = {.algorithm = algorithm, .batch_elements = 16384, .timeout = PATIENCE, .host_of_rank = p->hosts},
        .shape = GRID};
    run_ranks(&what, NULL, nothing, count_exchanges, NULL);
    const unsigned before = messages_spoilt, of = 1 + 2 * tg_agreement_rounds(p->world) + exchanges;
    turn++;
    for (unsigned exchange = 0; exchange < of; exchange++)
        for (int fault = CUT; fault < FAULTS; fault++)
            if ((all || (exchange + (unsigned)fault + turn) % (EMULATED || p->world > 8 ? 13 : 5) == 0) && my_turn())
                one_trouble(&what, p, (enum fault)fault, exchange);
    check(messages_spoilt > before || in_parts(), "%s, %s: %u messages were spoilt", tg_algorithm_text(algorithm),
          p->name, messages_spoilt - before);
}

static void laws(bool all)
{
    printf("ranks of a host %s\n", ranks_share ? "share memory" : "send each other messages");
    every_spec(all, TG_GATHER);
    every_spec(all, TG_SHARD);
    every_feedback(all, TG_GATHER);
    every_feedback(all, TG_SHARD);
    one_host();
    static const char *const specs[] = {"topk:density=0.02",     "topk:k=70", "qsgd:levels=7", "fp16", "none",
                                        "qsgd:levels=4,norm=max"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (size_t j = EMULATED ? i % PLACEMENTS : 0; j < PLACEMENTS; j += EMULATED ? PLACEMENTS : 1) {
            mass(&placements[j], TG_GATHER, specs[i], "ef");
            mass(&placements[j], TG_SHARD, specs[i], "ef");
        }
    for (size_t j = 0; j < sizeof troubled / sizeof *troubled; j++) {
        faults(all, &troubled[j], TG_GATHER);
        faults(all, &troubled[j], TG_SHARD);
    }
    check((spoilt_greetings > 0 && spoilt_verdicts > 0) || in_parts(), "%u greetings and %u verdicts were spoilt",
          spoilt_greetings, spoilt_verdicts);
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
