/* Laws of reducing over threads: every rank holds the same bits; under gather they are the mean of what the codecs make
 * of the gradients, to the bit; residuals plus what was applied are the sum of the gradients; policies do what they
 * say. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "reduce/reducer.h"

static const tensor_case no_more = {NULL, NULL, NULL, 0, TG_FLOAT32};
static const char *const algorithm_names[] = {"auto", "gather", "shard", "scatter"};

static void steps(rank_state *s)
{
    for (uint64_t step = 0; step < s->what->steps && s->status == TG_OK; step++) {
        fill_gradients(s, step);
        s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
    }
}

static void same_everywhere(rank_state *states, uint32_t world)
{
    join_parts(states, world);
    for (uint32_t rank = 0; rank < world; rank++) {
        tg_reducer_stats s;
        expect(states[rank].status == TG_OK, "rank %u: %s", rank, states[rank].error.message);
        expect(tg_reducer_stats_of(states[rank].reducer, &s, NULL) == TG_OK && s.encode_seconds >= 0 &&
                   s.exchange_seconds >= 0 && s.verify_seconds >= 0 && s.decode_seconds >= 0,
               "rank %u took less than no time", rank);
        for (size_t i = 0; i < states[0].tensor_count; i++) {
            const tg_tensor *a = &states[0].gradients[i], *b = &states[rank].gradients[i];
            expect(memcmp(a->data, b->data, a->count * tg_dtype_size(a->dtype)) == 0, "tensor %zu differs on rank %u",
                   i, rank);
        }
    }
}

/* Empty, odd, 16-bit, cut into chunks, packed together: every codec, both ways. */
static void every_spec(bool all, tg_algorithm algorithm, uint32_t world)
{
    const char *const *specs = all_specs();
    for (size_t i = 0; specs[i]; i += all ? 1 : EMULATED ? 59 : 7) {
        const tensor_case tensors[] = {
            {"first", specs[i], "ef", 1000, TG_FLOAT32},  {"empty", specs[i], "none", 0, TG_FLOAT32},
            {"large", specs[i], "ef", 70001, TG_FLOAT32}, {"half", specs[i], "none", 4097, TG_FLOAT16},
            {"one", specs[i], "ef", 1, TG_BFLOAT16},      no_more};
        const rank_case what = {.world = world,
                                .tensors = tensors,
                                .options = {.algorithm = algorithm, .batch_elements = 8192, .seed = 7},
                                .shape = GAUSSIAN,
                                .steps = 3};
        run_ranks(&what, NULL, steps, same_everywhere, NULL);
        check_all("%s, world %u, %s: same bits everywhere", algorithm_names[algorithm], world, specs[i]);
    }
}

/* ---- gather, against the codecs used by hand ---- */

static const tensor_case by_hand[] = {{"a", "qsgd:levels=7", "ef", 5000, TG_FLOAT32},
                                      {"b", "topk:density=0.1", "ef", 3001, TG_FLOAT16},
                                      {"c", "none", "none", 17, TG_BFLOAT16},
                                      {NULL, NULL, NULL, 0, TG_FLOAT32}};

/* Mean of the frames that each rank's codec and feedback make, over the same steps. */
static void mean_by_hand(const rank_state *states, uint32_t world, size_t tensor, uint64_t step_count, tg_tensor *mean)
{
    enum { MOST = 8 };
    const tensor_case *t = &by_hand[tensor];
    tg_device *device = open_device("cpu/scalar");
    tg_codec *codec = make_codec(device, t->spec, t->count);
    tg_feedback *feedbacks[MOST];
    tg_frame frames[MOST];
    const size_t bound = tg_frame_bound(codec, t->count);
    tg_error error;
    for (uint32_t rank = 0; rank < world; rank++) {
        expect(tg_feedback_create(device, &states[0].tensors[tensor].feedback, tg_codec_spec(codec), t->count, true,
                                  &feedbacks[rank], &error) == TG_OK,
               "feedback: %s", error.message);
        frames[rank].data = malloc(bound);
    }
    for (uint64_t step = 0; step < step_count; step++)
        for (uint32_t rank = 0; rank < world; rank++) {
            const tg_encode_options options = {
                .draw = {.seed = 9, .step = step, .tensor = (uint32_t)tensor, .rank = rank}};
            tg_encode_report report;
            fill(GAUSSIAN, 1 + step * 1000 + rank * 10 + tensor, mean);
            expect(tg_encode_with_feedback(codec, feedbacks[rank], mean, &options, (void *)(uintptr_t)frames[rank].data,
                                           bound, &report, &error) == TG_OK,
                   "encode: %s", error.message);
            frames[rank].size = report.bytes;
        }
    tg_tensor wide = make_tensor(t->count, TG_FLOAT32, 0);
    expect(tg_decode(device, frames, world, 1, 0, &wide, &error) == TG_OK, "decode: %s", error.message);
    const float scale = 1.0f / (float)world;
    for (uint64_t i = 0; i < t->count; i++)
        ((float *)wide.data)[i] = ((float *)wide.data)[i] * scale;
    for (uint64_t first = 0; first < t->count; first += TG_BLOCK)
        states[0].reducer->kernels->narrow(t->dtype, (float *)wide.data + first, tg_block_size(t->count, first),
                                           (char *)mean->data + first * tg_dtype_size(t->dtype));
    drop(&wide);
    for (uint32_t rank = 0; rank < world; rank++) {
        tg_feedback_free(feedbacks[rank]);
        free((void *)(uintptr_t)frames[rank].data);
    }
    tg_codec_free(codec);
    tg_device_free(device);
}

static void equals_by_hand(rank_state *states, uint32_t world)
{
    same_everywhere(states, world);
    for (size_t i = 0; i < states[0].tensor_count; i++) {
        const tg_tensor *g = &states[0].gradients[i];
        tg_tensor mean = make_tensor(g->count, g->dtype, 0);
        mean_by_hand(states, world, i, states[0].what->steps, &mean);
        expect(memcmp(mean.data, g->data, g->count * tg_dtype_size(g->dtype)) == 0, "tensor %zu is not the mean", i);
        drop(&mean);
    }
}

/* ---- mass ---- */

/* Sums of all gradients of all ranks and steps, less world times what was applied, in double: what residuals must hold.
 */
typedef struct ledger {
    double *owed[MOST_TENSORS];
    pthread_mutex_t lock;
} ledger;

static void enter(ledger *l, const rank_state *s)
{
    (void)pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < s->tensor_count; i++)
        for (uint64_t j = 0; j < s->gradients[i].count; j++)
            l->owed[i][j] += (double)element(&s->gradients[i], j);
    (void)pthread_mutex_unlock(&l->lock);
}

static void take_off(ledger *l, const rank_state *s)
{
    (void)pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < s->tensor_count; i++)
        for (uint64_t j = shown_by(s, i).from; j < shown_by(s, i).to; j++)
            l->owed[i][j] -= s->what->world * (double)element(&s->gradients[i], j);
    (void)pthread_mutex_unlock(&l->lock);
}

static void steps_with_ledger(rank_state *s)
{
    for (uint64_t step = 0; step < s->what->steps && s->status == TG_OK; step++) {
        fill_gradients(s, step);
        enter(s->extra, s);
        s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
        if (s->status == TG_OK)
            take_off(s->extra, s);
    }
}

/* What all residuals hold, taken off the ledger. */
static void settle(ledger *l, rank_state *states, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        const tg_reducer *r = states[rank].reducer;
        for (size_t i = 0; i < r->tensor_count; i++) {
            const float *residual = r->tensors[i].feedback ? residual_of(r->tensors[i].feedback) : NULL;
            for (uint64_t j = 0; residual && j < r->tensors[i].given.count; j++)
                l->owed[i][j] -= (double)residual[j];
        }
        for (size_t p = 0; r->second && p < r->coded.piece_count; p++) {
            const float *residual = r->second[p] ? residual_of(r->second[p]) : NULL;
            for (uint64_t j = 0; residual && j < r->coded.pieces[p].count; j++)
                l->owed[r->coded.pieces[p].tensor][r->coded.pieces[p].first + j] -= world * (double)residual[j];
        }
    }
}

static double tolerance;

static void balances(rank_state *states, uint32_t world)
{
    ledger *l = states[0].extra;
    same_everywhere(states, world);
    settle(l, states, world);
    for (size_t i = 0; i < states[0].tensor_count; i++) {
        double worst = 0;
        for (uint64_t j = 0; j < states[0].gradients[i].count; j++)
            worst = fabs(l->owed[i][j]) > worst ? fabs(l->owed[i][j]) : worst;
        expect(worst <= tolerance, "tensor %zu: %g is missing somewhere", i, worst);
    }
}

static bool named_has(const char *spec)
{
    tg_device *device = open_device(named_device());
    const bool has = has_codec(device, spec);
    tg_device_free(device);
    return has;
}

/* Gradients on a grid of 2^-10, a power-of-two world, and codecs whose values stay on a grid: exact. Else to float32's
 * rounding of sums of a few dozen numbers of order 10. */
static void conserves(const char *spec, tg_algorithm algorithm, uint32_t world, shape shape, uint64_t step_count,
                      double within)
{
    if (named_device() && !named_has(spec)) {
        skip_codec(spec);
        return;
    }
    const tensor_case tensors[] = {{"x", spec, "ef", 70001, TG_FLOAT32}, {"y", spec, "ef", 500, TG_FLOAT32}, no_more};
    const rank_case what = {.world = world,
                            .tensors = tensors,
                            .options = {.algorithm = algorithm, .batch_elements = 16384, .seed = 5},
                            .shape = shape,
                            .steps = step_count};
    ledger l = {.lock = PTHREAD_MUTEX_INITIALIZER};
    for (size_t i = 0; tensors[i].name; i++)
        l.owed[i] = calloc(tensors[i].count, sizeof(double));
    tolerance = within;
    run_ranks(&what, NULL, steps_with_ledger, balances, &l);
    check_all("%s, world %u, %s, %s: mass is conserved within %g", algorithm_names[algorithm], world, spec,
              shape_names[shape], within);
    for (size_t i = 0; tensors[i].name; i++)
        free(l.owed[i]);
}

static void mass(void)
{
    static const char *const on_grid[] = {"none",
                                          "fp16",
                                          "topk:density=0.02",
                                          "topk:density=0.02,values=fp16",
                                          "randk:density=0.1",
                                          "gaussiank:density=0.02",
                                          "topk:density=0.9",
                                          "qsgd:levels=4,norm=max"};
    const uint64_t many = EMULATED ? 5 : 20;
    for (size_t i = 0; i < sizeof on_grid / sizeof *on_grid; i++)
        for (int algorithm = TG_GATHER; algorithm <= TG_SCATTER; algorithm++) {
            conserves(on_grid[i], (tg_algorithm)algorithm, 4, GRID, 2, 0);
            conserves(on_grid[i], (tg_algorithm)algorithm, 3, GAUSSIAN, many, 2e-4);
        }
    for (int algorithm = TG_SHARD; algorithm <= TG_SCATTER; algorithm++) {
        conserves("qsgd:levels=7", (tg_algorithm)algorithm, 4, GAUSSIAN, many, 2e-4);
        conserves("topk:density=0.02,values=levels", (tg_algorithm)algorithm, 4, GAUSSIAN, many, 2e-4);
    }
    conserves("onebit", TG_GATHER, 5, GAUSSIAN, many, 2e-4);
    conserves("onebit", TG_SCATTER, 5, GAUSSIAN, many, 2e-4);
}

/* ---- two reductions under way ---- */

static void two_at_once(rank_state *s)
{
    ledger *l = s->extra;
    tg_tensor other[MOST_TENSORS], first[MOST_TENSORS];
    memcpy(first, s->gradients, sizeof first);
    for (size_t i = 0; i < s->tensor_count; i++)
        other[i] = make_tensor(s->gradients[i].count, s->gradients[i].dtype, 0);
    tg_reduction *under_way[2] = {NULL, NULL};
    for (uint64_t step = 0; step <= s->what->steps && s->status == TG_OK; step++) {
        memcpy(s->gradients, step % 2 ? other : first, sizeof first);
        if (step < s->what->steps) {
            fill_gradients(s, step);
            enter(l, s);
            s->status = tg_reduce_start(s->reducer, s->transport, s->gradients, step, &under_way[step % 2], &s->error);
        }
        memcpy(s->gradients, step % 2 ? first : other, sizeof first);
        if (s->status == TG_OK && step > 0) {
            s->status = tg_reduce_finish(under_way[(step + 1) % 2], s->transport, &s->error);
            if (s->status == TG_OK)
                take_off(l, s);
        }
    }
    for (size_t i = 0; i < s->tensor_count; i++) { /* the last result, in the buffers that the test owns */
        memcpy(first[i].data, s->gradients[i].data, first[i].count * tg_dtype_size(first[i].dtype));
        drop(&other[i]);
    }
    memcpy(s->gradients, first, sizeof first);
}

static void double_buffering(tg_algorithm algorithm)
{
    const tensor_case tensors[] = {
        {"x", "topk:density=0.02", "ef", 70001, TG_FLOAT32}, {"y", "fp16", "ef", 5000, TG_FLOAT32}, no_more};
    const rank_case what = {.world = 4,
                            .tensors = tensors,
                            .options = {.algorithm = algorithm, .batch_elements = 16384, .depth = 2},
                            .shape = GRID,
                            .steps = 40};
    ledger l = {.lock = PTHREAD_MUTEX_INITIALIZER,
                .owed = {calloc(70001, sizeof(double)), calloc(5000, sizeof(double))}};
    tolerance = 1e-3; /* sums of 40 steps no longer fit the grid */
    run_ranks(&what, NULL, two_at_once, balances, &l);
    check_all("%s: two reductions under way, same bits, mass is conserved", algorithm_names[algorithm]);
    free(l.owed[0]);
    free(l.owed[1]);
}

/* More messages than may be under way at once. */
static void many_messages(tg_algorithm algorithm)
{
    const tensor_case tensors[] = {{"x", "terngrad", "none", 4096 * 1300 + 5, TG_FLOAT32}, no_more};
    const rank_case what = {.world = 2,
                            .tensors = tensors,
                            .options = {.algorithm = algorithm, .batch_elements = 4096},
                            .shape = SIGNS,
                            .steps = 1};
    run_ranks(&what, NULL, steps, same_everywhere, NULL);
    check_all("%s: 1301 messages", algorithm_names[algorithm]);
}

/* ---- policies ---- */

static void warm(rank_state *s)
{
    /* Dense steps leave the exact mean: of GRID gradients and four ranks, no rounding at all. */
    for (uint64_t step = 0; step < 3 && s->status == TG_OK; step++) {
        tg_tensor sum = make_tensor(s->gradients[0].count, TG_FLOAT32, 0);
        float *mean = sum.data;
        memset(mean, 0, sum.count * sizeof *mean);
        const uint32_t me = s->rank;
        for (s->rank = 0; s->rank < 4; s->rank++) {
            fill_gradients(s, step);
            for (uint64_t j = 0; j < sum.count; j++)
                mean[j] += element(&s->gradients[0], j) / 4;
        }
        s->rank = me;
        fill_gradients(s, step);
        s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
        const element_range part = s->what->options.algorithm == TG_SCATTER ? shown_by(s, 0)
                                                                            : (element_range){0, sum.count};
        const bool equal = memcmp(mean + part.from, (const float *)s->gradients[0].data + part.from,
                                  (part.to - part.from) * sizeof *mean) == 0;
        if (s->status == TG_OK && equal != (step < 2)) {
            s->status = TG_CORRUPT;
            (void)snprintf(s->error.message, sizeof s->error.message, "step %d is %s", (int)step,
                           equal ? "dense" : "not dense");
        }
        drop(&sum);
    }
}

static void density_falls(rank_state *s)
{
    uint64_t before = 0, bytes[3];
    for (uint64_t step = 0; step < 3 && s->status == TG_OK; step++) {
        tg_reducer_stats stats;
        fill_gradients(s, step);
        s->status = tg_reduce(s->reducer, s->transport, s->gradients, step, &s->error);
        if (s->status == TG_OK)
            s->status = tg_reducer_stats_of(s->reducer, &stats, &s->error);
        bytes[step] = stats.frame_bytes - before;
        before = stats.frame_bytes;
    }
    /* 25 %, then 5 %, then the spec's 1 %, at 4 to 5 bytes an element. */
    const uint64_t n = s->gradients[0].count;
    if (s->status == TG_OK &&
        !(bytes[0] > n && bytes[1] > n / 5 && bytes[1] < n / 3 && bytes[2] > n / 25 && bytes[2] < n / 12)) {
        s->status = TG_CORRUPT;
        (void)snprintf(s->error.message, sizeof s->error.message, "%d, %d, %d bytes", (int)bytes[0], (int)bytes[1],
                       (int)bytes[2]);
    }
}

static void policies(void)
{
    const tensor_case tensors[] = {{"x", "topk:density=0.01", "ef", 70001, TG_FLOAT32}, no_more};
    const tg_density_change schedule[] = {{0, 0.25}, {1, 0.05}, {2, 0.01}};
    for (int algorithm = TG_GATHER; algorithm <= TG_SCATTER; algorithm++) {
        rank_case what = {.world = 4,
                          .tensors = tensors,
                          .options = {.algorithm = (tg_algorithm)algorithm, .warmup = 2},
                          .shape = GRID};
        run_ranks(&what, NULL, warm, same_everywhere, NULL);
        check_all("%s: warm-up steps are dense", algorithm_names[algorithm]);
        what.options = (tg_reducer_options){
            .algorithm = (tg_algorithm)algorithm, .schedule = schedule, .schedule_count = 3};
        run_ranks(&what, NULL, density_falls, same_everywhere, NULL);
        check_all("%s: density follows the schedule", algorithm_names[algorithm]);
        what.options = (tg_reducer_options){.algorithm = (tg_algorithm)algorithm, .min_size = 70002};
        what.steps = 1;
        run_ranks(&what, NULL, steps, same_everywhere, NULL);
        check_all("%s: a minimum size", algorithm_names[algorithm]);
    }
}

/* ---- volume ---- */

static void note_sent(rank_state *states, uint32_t world)
{
    tg_reducer_stats stats;
    same_everywhere(states, world);
    expect(tg_reducer_stats_of(states[1].reducer, &stats, NULL) == TG_OK, "stats");
    *(uint64_t *)states[0].extra = stats.bytes_sent;
}

static uint64_t sent_by(tg_algorithm algorithm, uint32_t world)
{
    const tensor_case tensors[] = {{"x", "topk:density=0.05", "ef", 400000, TG_FLOAT32}, no_more};
    const rank_case what = {
        .world = world, .tensors = tensors, .options = {.algorithm = algorithm}, .shape = GAUSSIAN, .steps = 2};
    uint64_t bytes = 0;
    run_ranks(&what, NULL, steps, note_sent, &bytes);
    return bytes;
}

static void volume(void)
{
    const uint64_t shard8 = sent_by(TG_SHARD, 8), shard16 = sent_by(TG_SHARD, 16), gather8 = sent_by(TG_GATHER, 8);
    check_all("reducing among 8 and 16");
    check(shard16 < shard8 + shard8 / 5, "sparse shard sends %d bytes among 8 and %d among 16: within 20 %%",
          (int)shard8, (int)shard16);
    check(gather8 > 2 * shard8, "gather sends %d bytes among 8", (int)gather8);
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    for (int algorithm = TG_GATHER; algorithm <= TG_SCATTER; algorithm++) {
        every_spec(all, (tg_algorithm)algorithm, 1);
        every_spec(all, (tg_algorithm)algorithm, 3);
        if (all)
            every_spec(all, (tg_algorithm)algorithm, 4);
        double_buffering((tg_algorithm)algorithm);
        many_messages((tg_algorithm)algorithm);
    }
    for (uint32_t world = 1; world <= 8; world++) {
        const rank_case what = {.world = world,
                                .tensors = by_hand,
                                .options = {.algorithm = TG_GATHER, .seed = 9},
                                .shape = GAUSSIAN,
                                .steps = 3};
        run_ranks(&what, NULL, steps, equals_by_hand, NULL);
        check_all("gather, world %u: the mean of the codecs' frames, to the bit", world);
        const rank_case sharded = {.world = world,
                                   .tensors = by_hand,
                                   .options = {.algorithm = TG_SHARD, .seed = 9},
                                   .shape = LAYERED,
                                   .steps = 3};
        run_ranks(&sharded, NULL, steps, same_everywhere, NULL);
        check_all("shard, world %u: same bits", world);
    }
    mass();
    policies();
    volume();
    return finish();
}
