/* Laws of scaling residuals: a run whose gradients and residuals are all multiplied by a power of two gives that
 * multiple of every mean, to the bit; what would overflow is refused, and changes nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

/* Without hosts; on two hosts; and where two ranks own no share. */
static const struct {
    const char *name;
    uint32_t world;
    const uint32_t *hosts;
} places[] = {{"3 ranks", 3, NULL},
              {"2 hosts of 2", 4, (uint32_t[]){0, 0, 1, 1}},
              {"hosts of 1 and 3", 4, (uint32_t[]){1, 0, 0, 0}}};
enum { PLACES = sizeof places / sizeof *places };
static const float FACTOR = 0x1p-7f;

static const tensor_case tensors[] = {{"a", "topk:density=0.02", "ef", 70001, TG_FLOAT32},
                                      {"b", "qsgd:levels=7", "ef", 30000, TG_FLOAT32},
                                      {"c", "topk:density=0.1", "dgc:momentum=0.5", 3000, TG_FLOAT32},
                                      {"d", "none", "none", 17, TG_FLOAT32},
                                      {NULL, NULL, NULL, 0, TG_FLOAT32}};

static void multiply(rank_state *s, float factor)
{
    for (size_t t = 0; t < s->tensor_count; t++)
        for (uint64_t j = 0; j < s->gradients[t].count; j++)
            ((float *)s->gradients[t].data)[j] *= factor;
}

/* Steps 0 to 3; with `extra` set, the loss scale changes before step 2. */
static void steps(rank_state *s)
{
    const bool scales = s->extra != NULL;
    for (uint64_t step = 0; step < 4 && s->status == TG_OK; step++) {
        if (step == 2 && scales)
            s->status = tg_reducer_scale(s->reducer, FACTOR, &s->error);
        fill_gradients(s, step);
        if (step >= 2 && scales)
            multiply(s, FACTOR);
        if (s->status == TG_OK)
            s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
    }
}

static float *means[MOST_TENSORS];

static void keep_means(rank_state *states, uint32_t world)
{
    join_parts(states, world);
    for (size_t t = 0; t < states[0].tensor_count; t++) {
        means[t] = malloc(tensors[t].count * sizeof(float));
        memcpy(means[t], states[0].gradients[t].data, tensors[t].count * sizeof(float));
    }
}

static void are_multiples(rank_state *states, uint32_t world)
{
    join_parts(states, world);
    for (uint32_t rank = 0; rank < world; rank++) {
        expect(states[rank].status == TG_OK, "%s", states[rank].error.message);
        multiply(&states[rank], 1 / FACTOR);
        for (size_t t = 0; t < states[0].tensor_count; t++)
            expect(memcmp(means[t], states[rank].gradients[t].data, tensors[t].count * sizeof(float)) == 0,
                   "rank %u has another mean of tensor %zu", rank, t);
    }
    for (size_t t = 0; t < states[0].tensor_count; t++)
        free(means[t]);
}

static void follows(tg_algorithm algorithm, size_t where)
{
    const rank_case what = {
        .world = places[where].world,
        .tensors = tensors,
        .options = {.algorithm = algorithm, .batch_elements = 8192, .host_of_rank = places[where].hosts},
        .shape = GAUSSIAN};
    run_ranks(&what, NULL, steps, keep_means, NULL);
    run_ranks(&what, NULL, steps, are_multiples, means);
    check_all("%s, %s: residuals follow the loss scale", tg_algorithm_text(algorithm), places[where].name);
}

/* ---- two levels: what a rank has of the residuals ---- */

static void one_step(rank_state *s)
{
    fill_gradients(s, 0);
    s->status = tg_reduce(s->reducer, s->transport, s->gradients, 0, &s->error);
}

/* All tensors with a residual, one behind the other; zeros but for the own share. */
static void read_residuals(rank_state *s, float *all)
{
    for (size_t t = 0; t < 3; all += tensors[t++].count)
        expect(tg_reducer_residual_read(s->reducer, t, all, tensors[t].count, &s->error) == TG_OK, "%s",
               s->error.message);
}

/* A rank without a share has nothing that could overflow. */
static void scales_its_share(rank_state *s)
{
    enum { ALL = 70001 + 30000 + 3000 };
    static float before[ALL], after[ALL];
    tg_reducer_stats old, new;
    bool has_some = false;
    read_residuals(s, before);
    for (size_t j = 0; j < ALL; j++)
        has_some = has_some || before[j] != 0;
    const tg_status status = tg_reducer_scale(s->reducer, 0x1p127f, &s->error);
    expect(has_some ? status == TG_INVALID_ARGUMENT && strstr(s->error.message, "residual of tensor '")
                    : status == TG_OK,
           "rank %u: overflow: %s", s->rank, s->error.message);
    read_residuals(s, after);
    expect(memcmp(before, after, sizeof before) == 0, "rank %u: a residual was changed", s->rank);
    expect(tg_reducer_stats_of(s->reducer, &old, &s->error) == TG_OK &&
               tg_reducer_scale(s->reducer, 4, &s->error) == TG_OK &&
               tg_reducer_stats_of(s->reducer, &new, &s->error) == TG_OK && (old.residual_norm > 0) == has_some &&
               new.residual_norm == 4 * old.residual_norm,
           "rank %u: %s, norms %g, %g", s->rank, s->error.message, old.residual_norm, new.residual_norm);
    read_residuals(s, after);
    for (size_t j = 0; j < ALL; j++)
        expect(after[j] == 4 * before[j], "rank %u: element %zu", s->rank, j);
}

static void each_its_share(rank_state *states, uint32_t world)
{
    tg_reduction *reductions[4];
    for (uint32_t i = 0; i < world; i++) {
        expect(states[i].status == TG_OK, "%s", states[i].error.message);
        scales_its_share(&states[i]);
        expect(tg_reduce_begin(states[i].reducer, states[i].gradients, 1, &reductions[i], &states[i].error) == TG_OK,
               "%s", states[i].error.message);
        expect(tg_reducer_scale(states[i].reducer, 2, &states[i].error) == TG_INVALID_ARGUMENT &&
                   strstr(states[i].error.message, "in progress"),
               "rank %u, during a reduction: %s", i, states[i].error.message);
    }
    while (exchange_by_hand(reductions, world))
        ;
    for (uint32_t i = 0; i < world; i++)
        expect(tg_reduce_end(reductions[i], &states[i].error) == TG_OK, "%s", states[i].error.message);
}

static void shares(tg_algorithm algorithm, size_t where)
{
    const rank_case what = {
        .world = places[where].world,
        .tensors = tensors,
        .options = {.algorithm = algorithm, .batch_elements = 8192, .host_of_rank = places[where].hosts},
        .shape = GAUSSIAN};
    run_ranks(&what, NULL, one_step, each_its_share, NULL);
    check_all("%s, %s: each rank scales its share, or refuses to and changes nothing", tg_algorithm_text(algorithm),
              places[where].name);
}

/* ---- one rank ---- */

static void refusals(void)
{
    const rank_case what = {.world = 1, .tensors = tensors, .shape = GAUSSIAN};
    rank_state s;
    tg_reduction *r;
    static float before[70001], after[70001];
    open_rank(&s, &what, 0, NULL);
    fill_gradients(&s, 0);
    expect(tg_reduce_begin(s.reducer, s.gradients, 0, &r, &s.error) == TG_OK, "%s", s.error.message);
    expect(tg_reducer_scale(s.reducer, 2, &s.error) == TG_INVALID_ARGUMENT && strstr(s.error.message, "in progress"),
           "during a reduction: %s", s.error.message);
    tg_exchange *none;
    expect(tg_reduce_next(r, &none, &s.error) == TG_OK && tg_reduce_end(r, &s.error) == TG_OK, "%s", s.error.message);
    expect(tg_reducer_residual_read(s.reducer, 0, before, 70001, &s.error) == TG_OK, "%s", s.error.message);
    const float wrong[] = {0, -1, INFINITY, NAN};
    for (size_t i = 0; i < 4; i++)
        expect(tg_reducer_scale(s.reducer, wrong[i], &s.error) == TG_INVALID_ARGUMENT &&
                   strstr(s.error.message, "factor"),
               "factor %g: %s", (double)wrong[i], s.error.message);
    expect(tg_reducer_scale(s.reducer, 0x1p127f, &s.error) == TG_INVALID_ARGUMENT &&
               strstr(s.error.message, "overflow"),
           "overflow: %s", s.error.message);
    expect(tg_reducer_residual_read(s.reducer, 0, after, 70001, &s.error) == TG_OK &&
               memcmp(before, after, sizeof before) == 0,
           "a residual was changed: %s", s.error.message);
    expect(tg_reducer_scale(s.reducer, 4, &s.error) == TG_OK, "%s", s.error.message);
    expect(tg_reducer_residual_read(s.reducer, 0, after, 70001, &s.error) == TG_OK, "%s", s.error.message);
    for (size_t j = 0; j < 70001; j++)
        expect(after[j] == 4 * before[j], "element %zu", j);
    close_rank(&s);
    check_all("factors that are not positive, or make a residual overflow, are refused and change nothing");
}

/* Reading residuals and statistics of one tensor. */
static void one_tensor(void)
{
    const rank_case what = {.world = 1, .tensors = tensors, .shape = GAUSSIAN};
    rank_state s;
    tg_stats stats;
    float out[17];
    open_rank(&s, &what, 0, NULL);
    fill_gradients(&s, 0);
    tg_transport *transport;
    expect(tg_transport_local(1, &transport, &s.error) == TG_OK, "%s", s.error.message);
    expect(tg_reduce(s.reducer, transport, s.gradients, 0, &s.error) == TG_OK, "%s", s.error.message);
    uint64_t bytes = 0;
    for (size_t t = 0; t < s.tensor_count; t++) {
        expect(tg_reducer_tensor_stats(s.reducer, t, &stats, &s.error) == TG_OK, "%s", s.error.message);
        expect(stats.steps == 1 && (stats.residual_norm > 0) == (t < 3) && (stats.gradient_norm > 0) == (t < 3),
               "tensor %zu: %d steps, norms %g, %g", t, (int)stats.steps, stats.gradient_norm, stats.residual_norm);
        bytes += stats.bytes;
    }
    tg_reducer_stats all;
    expect(tg_reducer_stats_of(s.reducer, &all, &s.error) == TG_OK && all.frame_bytes == bytes,
           "the tensors' bytes are those of the step");
    expect(tg_reducer_tensor_stats(s.reducer, 4, &stats, &s.error) == TG_INVALID_ARGUMENT, "tensor 4");
    expect(tg_reducer_residual_read(s.reducer, 3, out, 17, &s.error) == TG_INVALID_ARGUMENT &&
               strstr(s.error.message, "'d' has no residual"),
           "%s", s.error.message);
    expect(tg_reducer_residual_read(s.reducer, 0, out, 17, &s.error) == TG_SHAPE_MISMATCH, "a wrong count");
    tg_transport_free(transport);
    close_rank(&s);
    check_all("statistics and residual of one tensor");
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    for (size_t i = 0; i < PLACES; i++) {
        follows(TG_GATHER, i);
        follows(TG_SHARD, i);
        if (!places[i].hosts) {
            follows(TG_SCATTER, i);
            continue;
        }
        shares(TG_GATHER, i);
        shares(TG_SHARD, i);
    }
    refusals();
    one_tensor();
    return finish();
}
