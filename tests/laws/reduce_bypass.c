/* Laws of bypass: all ranks send the same steps as they are; nothing is lost when that begins or ends, on dyadic grids
 * to the bit; what was decided is in the log and in the state, and from the log the same bits follow again; and the
 * rule goes to what is faster and stays there. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "reduce/reducer.h"

/* ---- the rule ---- */

/* Steps as a reducer of that depth makes them: what one took is known `depth` steps later, and what is decided then
 * takes effect as many steps later again. */
enum { DEEPEST = 4 };
typedef struct simulation {
    tg_bypass_rule rule;
    uint32_t depth, step;
    bool dense[2 * DEEPEST]; /* how the steps around this one are sent */
    uint32_t times[2 * DEEPEST];
} simulation;

static simulation simulate(uint32_t depth)
{
    simulation s = {.depth = depth};
    tg_bypass_rule_begin(&s.rule);
    return s;
}

/* A step of so many microseconds; whether it was dense. */
static bool next_step(simulation *s, uint32_t coded, uint32_t dense)
{
    const uint32_t here = s->step % (2 * s->depth), there = (s->step + s->depth) % (2 * s->depth);
    const bool is_dense = s->dense[here];
    s->times[here] = is_dense ? dense : coded;
    if (s->step >= s->depth)
        tg_bypass_rule_note(&s->rule, s->dense[there], s->times[there], true, s->depth);
    expect(tg_bypass_rule_check(&s->rule, s->rule.dense), "the rule has come to something that no state may have");
    s->dense[there] = s->rule.dense;
    s->step++;
    return is_dense;
}

/* Returns how many of the last `of` steps were dense. */
static uint32_t follow(uint32_t coded, uint32_t dense, uint32_t spike, uint32_t steps, uint32_t of)
{
    simulation s = simulate(1);
    uint32_t late = 0;
    while (s.step < steps) {
        const uint32_t more = s.step % 5 == 2 ? spike : 0;
        const bool is_late = s.step >= steps - of;
        late += next_step(&s, coded + more, dense + more) && is_late;
    }
    return late;
}

/* What the steps after the first ones take, over what the faster way takes. */
static double cost_of(uint32_t coded, uint32_t dense, uint32_t depth, uint32_t first, uint32_t steps)
{
    simulation s = simulate(depth);
    uint64_t taken = 0;
    while (s.step < first + steps) {
        const bool counts = s.step >= first;
        const uint32_t time = next_step(&s, coded, dense) ? dense : coded;
        taken += counts ? time : 0;
    }
    return (double)taken / ((double)steps * (coded < dense ? coded : dense));
}

/* A try loses at most a 128th of what the steps since the last one took. The first is not known to lose anything. */
static void tries_are_paid(uint32_t coded, uint32_t dense, uint32_t depth)
{
    simulation s = simulate(depth);
    const uint32_t fast = coded < dense ? coded : dense, lost = (coded < dense ? dense : coded) - fast;
    uint32_t slow_steps = 0, fast_steps = 0, before = 0, tries = 0;
    while (s.step < 100000) {
        if (next_step(&s, coded, dense) == (dense > coded)) {
            before = slow_steps++ == 0 ? fast_steps : before;
            fast_steps = 0;
            continue;
        }
        if (slow_steps > 0 && tries++ > 0)
            expect(slow_steps * 128.0 * lost <= (double)before * fast,
                   "coded %u, dense %u, depth %u: after %u steps a try of %u", coded, dense, depth, before, slow_steps);
        slow_steps = 0;
        fast_steps++;
    }
    expect(tries > 1, "coded %u, dense %u, depth %u: %u tries", coded, dense, depth, tries);
}

/* The other way is tried sooner where the one in use has become slow. */
static void a_change_is_noticed(void)
{
    simulation s = simulate(1);
    while (s.step < 200)
        (void)next_step(&s, 50000, 1000);
    expect(s.rule.dense == 1, "dense is 50 times as fast, and not in use");
    while (s.step < 2200 && s.rule.dense)
        (void)next_step(&s, 50000, 60000);
    expect(s.step < 700, "dense steps are slower than compressed ones for %u steps, and nothing is tried",
           s.step - 200);
}

static void slower_ways(void)
{
    static const uint32_t slower[] = {1010, 1016, 1032, 1100, 1500, 1990, 3000, 10000, 30000, 1000000};
    for (unsigned i = 0; i < sizeof slower / sizeof *slower; i += EMULATED ? 3 : 1)
        for (uint32_t depth = 1; depth <= DEEPEST; depth *= 2)
            for (uint32_t steps = 300; steps <= (EMULATED ? 3000 : 300000); steps *= 10) {
                const double dense = cost_of(slower[i], 1000, depth, 200, steps),
                             coded = cost_of(1000, slower[i], depth, 200, steps);
                expect(dense <= 1.03, "depth %u: dense steps are %u/1000 as fast, and %u of them take %.3f", depth,
                       slower[i], steps, dense);
                expect(coded <= 1.03, "depth %u: coded steps are %u/1000 as fast, and %u of them take %.3f", depth,
                       slower[i], steps, coded);
            }
    check_all("a slower way costs less than three per cent, however slow it is");
    for (unsigned i = 0; i < sizeof slower / sizeof *slower; i += EMULATED ? 3 : 1)
        for (uint32_t depth = 1; slower[i] <= 30000 && depth <= DEEPEST; depth *= 2) {
            tries_are_paid(1000, slower[i], depth);
            if (slower[i] > 1016) /* else it is as good as the other way, and stays */
                tries_are_paid(slower[i], 1000, depth);
        }
    check_all("a try of a slower way loses at most a 128th of what the steps before it took");
    for (uint32_t depth = 1; depth <= DEEPEST; depth *= 2) { /* 2 + 2 * depth steps */
        const double taken = cost_of(1000, 30000, depth, 0, 3000), due = 1 + (2 + 2 * depth) * 29 / 3000.;
        expect(taken <= due + 1e-9, "depth %u: 3000 steps and one try of what is 30 times slower take %.3f, not %.3f",
               depth, taken, due);
    }
    check_all("the first try ends soon where it goes badly");
}

static void the_rule(void)
{
    const tg_bypass_rule full = {.trying = 1, .count = 3, .period = 16};
    check(!tg_bypass_rule_check(&full, TG_BYPASS_MOST_CHANGES),
          "a state whose log is full while something is tried, so that taking it back would not fit, is refused");
    for (uint32_t spike = 0; spike <= 100000; spike += 50000) {
        expect(follow(2000, 1000, spike, 1200, 1000) >= 985, "dense is faster, and used in %u steps",
               follow(2000, 1000, spike, 1200, 1000));
        expect(follow(1000, 2000, spike, 1200, 1000) <= 15, "dense is slower, and used in %u steps",
               follow(1000, 2000, spike, 1200, 1000));
        expect(follow(1000, 990, spike, 1200, 1000) <= 15, "dense is hardly faster, and used in %u steps",
               follow(1000, 990, spike, 1200, 1000));
    }
    check_all("the rule goes to what is faster, and stays there");
    slower_ways();
    a_change_is_noticed();
    check_all("a change is noticed");
}

/* ---- nothing is lost ---- */

enum { WORLD = 4, COUNT = 70001 };

#define LAST \
    {"z", "none", "none", 10, TG_FLOAT32}, { 0 }
static const tensor_case grid_tensors[][5] = {
    {{"x", "topk:density=0.01", "ef", COUNT, TG_FLOAT32}, {"y", "topk:density=0.1", "ef", 500, TG_FLOAT32}, LAST},
    {{"x", "qsgd:levels=4,norm=max", "ef", COUNT, TG_FLOAT32}, {"y", "terngrad", "none", 900, TG_FLOAT32}, LAST},
    {{"x", "fp16", "ef", COUNT, TG_FLOAT32}, {"y", "qsgd:levels=4,norm=max,bucket=0", "ef", 9000, TG_FLOAT32}, LAST},
    {{"x", "qsgd:levels=4,norm=max,bucket=1000", "ef", COUNT, TG_FLOAT32},
     {"y", "bf16", "ef", 9000, TG_FLOAT32},
     LAST}};

/* What all ranks still owe of a tensor with feedback, element by element. */
static void settle(rank_state *states, uint32_t world, size_t tensor, double *owed)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        const tg_reducer *r = states[rank].reducer;
        const float *residual = residual_of(r->tensors[tensor].feedback);
        for (uint64_t j = 0; j < r->tensors[tensor].given.count; j++)
            owed[j] -= (double)residual[j];
        for (size_t p = 0; r->second && p < r->coded.piece_count; p++) {
            const float *second = r->second[p] && r->coded.pieces[p].tensor == tensor ? residual_of(r->second[p])
                                                                                      : NULL;
            for (uint64_t j = 0; second && j < r->coded.pieces[p].count; j++)
                owed[r->coded.pieces[p].first + j] -= world * (double)second[j];
        }
    }
}

/* After a dense step that was applied, all of what ranks had left is in the mean. */
static void nothing_is_left(rank_state *states)
{
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        const tg_reducer *r = states[rank].reducer;
        for (size_t i = 0; i < r->tensor_count; i++) {
            const float *residual = r->tensors[i].feedback ? residual_of(r->tensors[i].feedback) : NULL;
            for (uint64_t j = 0; residual && j < r->tensors[i].given.count; j++)
                expect(residual[j] == 0, "rank %u: the residual of element %d of tensor %zu is %g", rank, (int)j, i,
                       (double)residual[j]);
        }
        for (size_t p = 0; r->second && p < r->coded.piece_count; p++) {
            const float *second = r->second[p] ? residual_of(r->second[p]) : NULL;
            for (uint64_t j = 0; second && j < r->coded.pieces[p].count; j++)
                expect(second[j] == 0, "rank %u: a second residual is %g", rank, (double)second[j]);
        }
    }
}

/* Some steps of all ranks in this thread: compressed, dense from `changes` on and back. In step `bad`, a gradient of
 * rank 2 is not finite. `dense_mean`: whether step 2, the second dense one, must be the mean of the gradients alone. */
static void steps_balance(const tensor_case *tensors, tg_algorithm algorithm, uint32_t depth, uint64_t bad)
{
    static const uint64_t changes[] = {1, 4, 5};
    const rank_case what = {.world = WORLD,
                            .tensors = tensors,
                            .options = {.algorithm = algorithm,
                                        .batch_elements = 16384,
                                        .nonfinite = TG_NONFINITE_SKIP,
                                        .depth = depth,
                                        .bypass = TG_BYPASS_REPLAY,
                                        .bypass_changes = changes,
                                        .bypass_change_count = 3},
                            .shape = GRID};
    static rank_state states[WORLD];
    static double owed[3][COUNT];
    tg_reduction *reductions[WORLD];
    tg_error error;
    memset(owed, 0, sizeof owed);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        open_rank(&states[rank], &what, rank, NULL);
        expect(states[rank].status == TG_OK, "%s", states[rank].error.message);
    }
    for (uint64_t step = 0; step < 6; step++) {
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            rank_state *s = &states[rank];
            fill_gradients(s, step);
            if (step == bad && rank == 2)
                ((float *)s->gradients[2].data)[5] = NAN;
            for (size_t i = 0; i < s->tensor_count; i++)
                for (uint64_t j = 0; j < s->gradients[i].count; j++)
                    owed[i][j] += (double)element(&s->gradients[i], j);
            expect(tg_reduce_begin(s->reducer, s->gradients, step, &reductions[rank], &error) == TG_OK, "%s",
                   error.message);
            expect(reductions[rank]->dense == ((step >= 1 && step < 4) || step == 5), "step %d", (int)step);
        }
        while (exchange_by_hand(reductions, WORLD)) {}
        for (uint32_t rank = 0; rank < WORLD; rank++)
            expect(tg_reduce_end(reductions[rank], &error) == (step == bad ? TG_SKIPPED : TG_OK), "step %d: %s",
                   (int)step, error.message);
        if (reductions[0]->dense && step != bad)
            nothing_is_left(states);
        join_parts(states, WORLD);
        for (size_t i = 0; step != bad && i < states[0].tensor_count; i++)
            for (uint64_t j = 0; j < states[0].gradients[i].count; j++)
                owed[i][j] -= WORLD * (double)element(&states[0].gradients[i], j);
    }
    for (size_t i = 0; i < states[0].tensor_count; i++) {
        if (!states[0].reducer->tensors[i].feedback)
            continue;
        settle(states, WORLD, i, owed[i]);
        for (uint64_t j = 0; j < states[0].gradients[i].count; j++)
            expect(owed[i][j] == 0, "tensor %zu: %g of element %d is missing", i, owed[i][j], (int)j);
    }
    check_all("%s, %s, depth %u, step %d fails: nothing is lost", tg_algorithm_text(algorithm), tensors[0].spec, depth,
              (int)bad);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        close_rank(&states[rank]);
}

/* A bypassed step after the first is what a reducer of `none` makes of it, and residuals are empty. */
static void dense_is_dense(tg_algorithm algorithm, const char *feedback)
{
    static const uint64_t changes[] = {2};
    const tensor_case coded[] = {{"x", "qsgd:levels=7,bucket=512", feedback, COUNT, TG_FLOAT32}, {0}},
                      plain[] = {{"x", "none", "none", COUNT, TG_FLOAT32}, {0}};
    static rank_state states[2][WORLD];
    tg_reduction *reductions[WORLD];
    tg_error error;
    const rank_case what[] = {
        {.world = WORLD,
         .tensors = coded,
         .options =
             {.algorithm = algorithm, .bypass = TG_BYPASS_REPLAY, .bypass_changes = changes, .bypass_change_count = 1},
         .shape = GAUSSIAN},
        {.world = WORLD, .tensors = plain, .options = {.algorithm = algorithm}, .shape = GAUSSIAN}};
    for (unsigned run = 0; run < 2; run++) {
        for (uint32_t rank = 0; rank < WORLD; rank++)
            open_rank(&states[run][rank], &what[run], rank, NULL);
        for (uint64_t step = 0; step < 4; step++) {
            for (uint32_t rank = 0; rank < WORLD; rank++) {
                fill_gradients(&states[run][rank], step);
                expect(tg_reduce_begin(states[run][rank].reducer, states[run][rank].gradients, step, &reductions[rank],
                                       &error) == TG_OK,
                       "%s", error.message);
            }
            while (exchange_by_hand(reductions, WORLD)) {}
            for (uint32_t rank = 0; rank < WORLD; rank++)
                expect(tg_reduce_end(reductions[rank], &error) == TG_OK, "%s", error.message);
        }
    }
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        const element_range part = shown_by(&states[0][rank], 0);
        expect(memcmp((float *)states[0][rank].gradients[0].data + part.from,
                      (float *)states[1][rank].gradients[0].data + part.from,
                      (part.to - part.from) * sizeof(float)) == 0,
               "rank %u: not the mean", rank);
    }
    nothing_is_left(states[0]);
    check_all("%s, %s: bypassed steps are those of `none`", tg_algorithm_text(algorithm), feedback);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        for (unsigned run = 0; run < 2; run++)
            close_rank(&states[run][rank]);
}

/* ---- the log ---- */

enum { STEPS = 60, HALF = 25 };

typedef struct record {
    uint64_t digests[STEPS];
    uint64_t changes[STEPS];
    size_t change_count;
    void *state[WORLD];
    size_t size[WORLD];
} record;

static uint64_t digest_of(const rank_state *s)
{
    uint64_t digest = 1;
    for (size_t i = 0; i < s->tensor_count; i++)
        digest = digest * 31 + s->reducer->kernels->digest(s->gradients[i].data, (size_t)s->gradients[i].count * 4);
    return digest;
}

static void make_steps(rank_state *s, uint64_t from, uint64_t to)
{
    record *k = s->extra;
    for (uint64_t step = from; step < to && s->status == TG_OK; step++) {
        fill_gradients(s, step);
        s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
        if (s->rank == 0)
            k->digests[step] = digest_of(s);
    }
}

static void first_half(rank_state *s)
{
    record *k = s->extra;
    make_steps(s, 0, HALF);
    if (s->status == TG_OK)
        s->status = tg_reducer_save(s->reducer, NULL, 0, &k->size[s->rank], &s->error);
    k->state[s->rank] = malloc(k->size[s->rank]);
    if (s->status == TG_OK)
        s->status = tg_reducer_save(s->reducer, k->state[s->rank], k->size[s->rank], &k->size[s->rank], &s->error);
}

static void second_half(rank_state *s)
{
    record *k = s->extra;
    const tg_state state = {k->state[s->rank], k->size[s->rank]};
    s->status = tg_reducer_load(s->reducer, &state, 1, &s->error);
    void *loaded = malloc(state.size);
    size_t size = 0;
    if (s->status == TG_OK)
        s->status = tg_reducer_save(s->reducer, loaded, state.size, &size, &s->error);
    if (s->status == TG_OK && (size != state.size || memcmp(loaded, state.data, size) != 0)) {
        s->status = TG_CORRUPT;
        (void)snprintf(s->error.message, sizeof s->error.message, "the loaded state is not the saved one");
    }
    free(loaded);
    make_steps(s, HALF, STEPS);
}

static void whole(rank_state *s) { make_steps(s, 0, STEPS); }

static void keep_log(rank_state *states, uint32_t world)
{
    record *k = states[0].extra;
    for (uint32_t rank = 0; rank < world; rank++) {
        uint64_t changes[STEPS];
        size_t count = 0;
        expect(states[rank].status == TG_OK, "rank %u: %s", rank, states[rank].error.message);
        expect(tg_reducer_bypass_log(states[rank].reducer, changes, STEPS, &count, &states[0].error) == TG_OK, "%s",
               states[0].error.message);
        if (rank == 0) {
            memcpy(k->changes, changes, sizeof changes);
            k->change_count = count;
        }
        expect(count == k->change_count && memcmp(changes, k->changes, count * sizeof *changes) == 0,
               "rank %u has decided otherwise", rank);
    }
}

/* A run that decides by its times, with a restart from its state half-way; and the same by its log. */
static void replays(tg_algorithm algorithm, uint32_t depth)
{
    const tensor_case tensors[] = {
        {"x", "topk:density=0.02", "ef", COUNT, TG_FLOAT32}, {"y", "qsgd:levels=7", "ef", 9000, TG_FLOAT32}, {0}};
    rank_case what = {.world = WORLD,
                      .tensors = tensors,
                      .options = {.algorithm = algorithm, .bypass = TG_BYPASS_AUTO, .depth = depth},
                      .shape = GAUSSIAN};
    record *decided = calloc(1, sizeof *decided), *again = calloc(1, sizeof *again);
    run_ranks(&what, NULL, first_half, keep_log, decided);
    run_ranks(&what, NULL, second_half, keep_log, decided);
    expect(decided->change_count > 0 && decided->changes[0] < HALF + 8, "nothing was tried");
    what.options.bypass = TG_BYPASS_REPLAY;
    what.options.bypass_changes = decided->changes;
    what.options.bypass_change_count = decided->change_count;
    run_ranks(&what, NULL, whole, keep_log, again);
    for (size_t i = 0; i < STEPS; i++)
        expect(decided->digests[i] == again->digests[i], "step %zu has other bits", i);
    check_all("%s, depth %u: the log gives the same bits, across a restart", tg_algorithm_text(algorithm), depth);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        free(decided->state[rank]);
    free(decided);
    free(again);
}

/* ---- what is refused ---- */

static void refused(const tg_reducer_options *options, const char *feedback, const char *words)
{
    tg_device *device = open_device("cpu/scalar");
    tg_reducer_tensor tensor = {.name = "x", .count = 100};
    tg_reducer *reducer = NULL;
    tg_error error;
    expect(tg_spec_parse("topk:density=0.1", &tensor.codec, &error) == TG_OK &&
               tg_feedback_parse(feedback, &tensor.feedback, &error) == TG_OK,
           "%s", error.message);
    expect(tg_reducer_create(device, 0, 2, &tensor, 1, options, &reducer, &error) == TG_INVALID_ARGUMENT && !reducer,
           "it is taken");
    expect(strstr(error.message, words) != NULL, "%s", error.message);
    tg_device_free(device);
    check_all("refused: %s", words);
}

static void refusals(void)
{
    static const uint64_t falling[] = {5, 5}, some[] = {5};
    refused(&(tg_reducer_options){.bypass = (tg_bypass)3}, "ef", "invalid bypass 3");
    refused(&(tg_reducer_options){.bypass = TG_BYPASS_AUTO}, "dgc:momentum=0.9", "momentum of feedback dgc");
    refused(&(tg_reducer_options){.bypass = TG_BYPASS_AUTO, .bypass_changes = some, .bypass_change_count = 1}, "ef",
            "bypass_changes are for TG_BYPASS_REPLAY only");
    refused(&(tg_reducer_options){.bypass = TG_BYPASS_REPLAY, .bypass_change_count = 1}, "ef", "1 changes and no list");
    refused(&(tg_reducer_options){.bypass = TG_BYPASS_REPLAY, .bypass_changes = falling, .bypass_change_count = 2},
            "ef", "must increase: 5 follows 5");
    refused(&(tg_reducer_options){.bypass = TG_BYPASS_REPLAY, .bypass_changes = some, .bypass_change_count = 5000},
            "ef", "the limit is 4096");
}

static const char *due_words;

static void all_say_so(rank_state *states, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++)
        expect(states[rank].status == TG_LAYOUT_MISMATCH && strstr(states[rank].error.message, due_words), "%s",
               states[rank].error.message);
}

static void one_step(rank_state *s)
{
    fill_gradients(s, 0);
    s->status = tg_reduce(s->reducer, s->transport, s->gradients, 0, &s->error);
}

static void ranks_agree(void)
{
    static const uint64_t some[] = {5}, other[] = {6};
    rank_case odd = {.world = 3, .tensors = mixed_tensors, .options = {.bypass = TG_BYPASS_AUTO}, .shape = GAUSSIAN};
    rank_case usual = odd;
    usual.options.bypass = TG_BYPASS_OFF;
    usual.odd = &odd;
    usual.odd_rank = 1;
    due_words = "rank 1 differs from rank 0: it has another bypass setting";
    run_ranks(&usual, NULL, one_step, all_say_so, NULL);
    check_all("one rank has another bypass setting: every rank says so");
    usual.options = odd.options = (tg_reducer_options){
        .bypass = TG_BYPASS_REPLAY, .bypass_changes = some, .bypass_change_count = 1};
    odd.options.bypass_changes = other;
    due_words = "rank 1 differs from rank 0: it has another history";
    run_ranks(&usual, NULL, one_step, all_say_so, NULL);
    check_all("one rank has another log: every rank says so");
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    the_rule();
    for (int algorithm = TG_GATHER; algorithm <= TG_SCATTER; algorithm++) {
        if (!my_turn())
            continue;
        for (size_t i = 0; i < sizeof grid_tensors / sizeof *grid_tensors; i++)
            for (uint64_t bad = 1; bad <= 6; bad += EMULATED ? 5 : i > 0 ? 2 : 1) /* 6: none */
                steps_balance(grid_tensors[i], (tg_algorithm)algorithm, 1 + i % 2, bad);
        dense_is_dense((tg_algorithm)algorithm, "ef");
        dense_is_dense((tg_algorithm)algorithm, "ecq:alpha=0.5,beta=0.75");
        dense_is_dense((tg_algorithm)algorithm, "ecq:alpha=0.5,beta=0");
        replays((tg_algorithm)algorithm, 1);
        replays((tg_algorithm)algorithm, 2);
    }
    refusals();
    ranks_agree();
    return finish();
}
