/* Laws of gradients, and of sums of gradients, that are not finite: every rank comes to the same outcome, by the
 * policy; no gradient is half replaced, and no residual gets such a value. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "ranks.h"
#include "reduce/reducer.h"

enum { WORLD = 3, STEPS = 3 };

/* What happened at each step of each rank. */
typedef struct history {
    tg_status status[WORLD][STEPS];
    tg_error error[WORLD][STEPS];
    bool touched[WORLD]; /* a gradient was changed by a step that was not applied */
} history;

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
        expect(h->status[rank][0] == TG_OK && h->status[rank][2] == TG_OK, "rank %u: %s", rank,
               h->error[rank][2].message);
        expect(h->status[rank][1] == due_status, "rank %u: %s", rank, h->error[rank][1].message);
        if (due_status != TG_OK)
            expect(strstr(h->error[rank][1].message, "'matrix' on rank 1") &&
                       strstr(h->error[rank][1].message, "element"),
                   "names: %s", h->error[rank][1].message);
        expect(tg_reducer_stats_of(states[rank].reducer, &stats, NULL) == TG_OK &&
                   stats.skipped == (due_status != TG_OK),
               "skipped");
        expect(stats.dropped == (due_status == TG_OK && rank == 1), "dropped");
        const tg_reducer *r = states[rank].reducer;
        for (size_t i = 0; i < r->tensor_count; i++) {
            const float *residual = residual_of(r->tensors[i].feedback);
            for (uint64_t j = 0; j < r->tensors[i].given.count; j++)
                expect(isfinite(residual[j]), "it is in a residual");
        }
    }
}

static void not_finite(tg_algorithm algorithm, tg_nonfinite_step policy, tg_status due)
{
    const rank_case what = {.world = WORLD,
                            .tensors = mixed_tensors,
                            .options = {.algorithm = algorithm, .nonfinite = policy, .batch_elements = 8192},
                            .shape = GAUSSIAN};
    history *h = calloc(1, sizeof *h);
    due_status = due;
    run_ranks(&what, NULL, with_a_nan, nan_alike, h);
    check_all("%s, a NaN on one rank, policy %d: %s on every rank", tg_algorithm_text(algorithm), (int)policy,
              tg_status_text(due));
    free(h);
}

/* ---- sums that are not finite ---- */

/* Finite gradients whose sum is none. Feedback keeps what a step that is not applied leaves, so that the next one has
 * it too. */
static const tensor_case heavy[] = {
    {"plain", "none", "none", 9000, TG_FLOAT32},
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
    if (due_status == TG_OK)
        join_parts(states, world);
    (void)snprintf(name, sizeof name, "sum of tensor '%s'", heavy[heavy_tensor].name);
    for (uint32_t rank = 0; rank < world; rank++) {
        const tg_reducer *r = states[rank].reducer;
        expect(h->status[rank][0] == TG_OK, "rank %u, step 0: %s", rank, h->error[rank][0].message);
        expect(h->status[rank][1] == due_status, "rank %u: %s: %s", rank, tg_status_text(h->status[rank][1]),
               h->error[rank][1].message);
        expect(due_status == TG_OK || strstr(h->error[rank][1].message, name), "names: %s", h->error[rank][1].message);
        expect(!h->touched[rank], "rank %u: a step that was not applied changed a gradient", rank);
        dropped += r->stats.dropped;
        for (size_t i = 0; i < states[rank].tensor_count; i++) {
            const tg_tensor *gradient = &states[rank].gradients[i];
            const float *residual = r->tensors[i].feedback ? residual_of(r->tensors[i].feedback) : NULL;
            bool finite = true;
            for (uint64_t j = 0; j < gradient->count; j++)
                finite = finite && isfinite(element(gradient, j)) && (!residual || isfinite(residual[j]));
            expect(finite, "rank %u: tensor %zu has a value or a residual that is not finite", rank, i);
            expect(due_status != TG_OK || memcmp(gradient->data, states[0].gradients[i].data,
                                                 gradient->count * tg_dtype_size(gradient->dtype)) == 0,
                   "rank %u: tensor %zu differs", rank, i);
        }
    }
    expect((dropped > 0) == heavy_drops, "%u dropped", (unsigned)dropped);
    if (heavy_tensor == 0 && due_status == TG_OK) {
        const float mean = element(&states[0].gradients[0], HEAVY_FIRST);
        expect(mean == (heavy_drops ? 0 : heavy_value), "the mean is %g", (double)mean);
    }
}

/* 64 elements are 1.5e38 on each of three ranks. Or 2.5e38 on each of two: their mean is one half of each added up,
 * which is no trouble. */
static void heavy_sums(tg_algorithm algorithm, uint32_t world, tg_nonfinite_step policy, tg_status due)
{
    const rank_case what = {.world = world,
                            .tensors = heavy,
                            .options = {.algorithm = algorithm, .nonfinite = policy, .batch_elements = 8192},
                            .shape = GAUSSIAN};
    due_status = due;
    heavy_value = world == 2 ? 2.5e38f : 1.5e38f;
    heavy_drops = policy == TG_NONFINITE_DROP && world > 2;
    for (heavy_tensor = 0; heavy[heavy_tensor].name; heavy_tensor++) {
        history *h = calloc(1, sizeof *h);
        run_ranks(&what, NULL, with_a_heavy_sum, heavy_alike, h);
        check_all("%s of %u, '%s' adds up to an infinity, policy %d: %s on every rank", tg_algorithm_text(algorithm),
                  world, heavy[heavy_tensor].name, (int)policy, tg_status_text(due));
        free(h);
    }
}

/* An owner keeps what compressing a mean left of it, once for every rank; a residual cannot hold that if the mean is
 * large enough. */
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
        const float *residual = residual_of(t->feedback);
        for (uint64_t j = 0; j < t->given.count; j++)
            expect(isfinite(residual[j]), "rank %u: the residual of element %u is not finite", rank, (unsigned)j);
    }
    expect(dropped > 0, "nothing was dropped");
}

static void large_errors(void)
{
    const tensor_case coarse[] = {
        {"coarse", "topk:density=0.02,values=levels,levels=1,norm=l2", "ef", 9000, TG_FLOAT32}, {0}};
    const rank_case what = {.world = WORLD,
                            .tensors = coarse,
                            .options = {.algorithm = TG_SHARD, .nonfinite = TG_NONFINITE_SKIP},
                            .shape = GAUSSIAN};
    run_ranks(&what, NULL, with_large_errors, no_large_residual, NULL);
    check_all("shard: an owner's error that is too large for a residual");
}

/* The ratio is of what was compressed: a gradient that was refused is in neither of its numbers. */
static void honest_ratio(tg_algorithm algorithm)
{
    const tensor_case plain[] = {{"plain", "none", "none", 1000, TG_FLOAT32}, {0}};
    const rank_case alone = {
        .world = 1, .tensors = plain, .options = {.algorithm = algorithm, .nonfinite = TG_NONFINITE_SKIP}};
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
    expect(tg_reducer_stats_of(s.reducer, &stats, NULL) == TG_OK && stats.float32_bytes == 4000 && stats.ratio < 1,
           "ratio %g", stats.ratio);
    check_all("%s: a refused gradient does not count for the ratio", tg_algorithm_text(algorithm));
    tg_transport_free(transport);
    close_rank(&s);
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    for (int algorithm = TG_GATHER; algorithm <= TG_SCATTER; algorithm++) {
        not_finite((tg_algorithm)algorithm, TG_NONFINITE_STOP, TG_NONFINITE);
        not_finite((tg_algorithm)algorithm, TG_NONFINITE_SKIP, TG_SKIPPED);
        not_finite((tg_algorithm)algorithm, TG_NONFINITE_DROP, TG_OK);
        heavy_sums((tg_algorithm)algorithm, WORLD, TG_NONFINITE_STOP, TG_NONFINITE);
        heavy_sums((tg_algorithm)algorithm, WORLD, TG_NONFINITE_SKIP, TG_SKIPPED);
        heavy_sums((tg_algorithm)algorithm, WORLD, TG_NONFINITE_DROP, TG_OK);
        honest_ratio((tg_algorithm)algorithm);
    }
    heavy_sums(TG_GATHER, 2, TG_NONFINITE_STOP, TG_OK);
    heavy_sums(TG_GATHER, 2, TG_NONFINITE_DROP, TG_OK);
    heavy_sums(TG_SCATTER, 2, TG_NONFINITE_STOP, TG_OK);
    large_errors();
    return finish();
}
