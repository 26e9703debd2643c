/* Laws of two levels: hosts with several ranks. Every rank holds the same bits; one host has the mean in rank order,
 * and hosts of one rank what they have without hosts; nothing is lost, whatever the placement. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "reduce/levels.h"

typedef struct placement {
    const char *name;
    uint32_t world;
    uint32_t hosts[8];
} placement;

static const placement placements[] = {{"2 hosts of 2", 4, {0, 0, 1, 1}},
                                       {"3 hosts of 3, 2 and 2 that take turns", 7, {5, 1, 5, 2, 1, 2, 5}},
                                       {"hosts of 1 and 3", 4, {1, 0, 0, 0}},
                                       {"1 host of 3", 3, {0, 0, 0}}};
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
     * rounding at all. Else it is that of a few numbers of order 10. */
    tolerance = p->world == 4 && is_sparsifier(spec) ? 0 : 1e-4;
    run_ranks(&what, NULL, book, nothing_is_missing, &l);
    check_all("%s, %s, %s/%s: what was sent and residuals are the sum", tg_algorithm_text(algorithm), p->name, spec,
              feedback);
    for (size_t i = 0; tensors[i].name; i++)
        free(l.owed[i]);
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    every_spec(all, TG_GATHER);
    every_spec(all, TG_SHARD);
    one_host();
    static const char *const specs[] = {"topk:density=0.02", "topk:k=70", "qsgd:levels=7", "fp16", "none"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (size_t j = 0; j < PLACEMENTS; j++) {
            mass(&placements[j], TG_GATHER, specs[i], "ef");
            mass(&placements[j], TG_SHARD, specs[i], "ef");
        }
    return finish();
}
