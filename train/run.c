/* One run on one rank: gradient, reduce, descend, until the steps are made. */
#include "common/clock.h"
#include "optimiser.h"
#include "worker.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS_OF_A_RUN = 50 };

/* ---- what a run has ---- */

static float *make_vector(struct worker *worker)
{
    void *vector;
    size_t size = (size_t)worker->task->model.parameters * sizeof(float);
    if (posix_memalign(&vector, 64, size + 64) != 0) {
        fail(&worker->failure, "out of memory for %zu bytes of parameters", size);
        return NULL;
    }
    memset(vector, 0, size + 64);
    return vector;
}

static bool make_reducer(struct worker *worker, const struct train_codec *codec, bool is_exact, tg_reducer **reducer)
{
    const struct train_settings *settings = worker->task->settings;
    const struct model *model = &worker->task->model;
    tg_reducer_tensor tensors[MODEL_MOST_TENSORS];
    for (unsigned i = 0; i < model->tensor_count; i++) {
        tensors[i] = (tg_reducer_tensor){.name = model->tensors[i].name,
                                         .count = model->tensors[i].count,
                                         .dtype = TG_FLOAT32,
                                         .insist = settings->insist};
        tensors[i].codec = codec->codec;
        tensors[i].feedback = codec->feedback;
    }
    tg_reducer_options options = {
        .algorithm = settings->reduce,
        .nonfinite = settings->nonfinite,
        .seed = settings->seed,
        .min_size = settings->min_size,
        .warmup = settings->warmup,
        .schedule = settings->changes,
        .schedule_count = settings->change_count,
        .timeout = worker->team.timeout,
        .host_of_rank = worker->hosts,
        .bypass = settings->bypass,
        .bypass_changes = settings->bypass_changes,
        .bypass_change_count = settings->bypass_change_count,
    };
    tg_error error = {""};
    tg_status status = TG_OK;
    if (is_exact) {
        options.warmup = options.min_size = options.schedule_count = options.bypass_change_count = 0;
        options.bypass = TG_BYPASS_OFF;
        for (unsigned i = 0; i < model->tensor_count && status == TG_OK; i++) {
            tensors[i].feedback = (tg_feedback_spec){.kind = TG_FEEDBACK_NONE};
            status = tg_spec_parse("none", &tensors[i].codec, &error);
        }
    }
    if (status == TG_OK)
        status = tg_reducer_create(worker->device, worker->team.rank, worker->team.world, tensors, model->tensor_count,
                                   &options, reducer, &error);
    return status == TG_OK || worker_is_refused(worker, status, &error);
}

/* Momentum correction has its own momentum; with a second one, momentum would be applied twice. */
static double momentum_of(const struct run *run)
{
    return run->codec->feedback.kind == TG_FEEDBACK_DGC ? 0 : run->worker->task->settings->momentum;
}

bool run_create(struct worker *worker, size_t index, struct run *run)
{
    const struct train_settings *settings = worker->task->settings;
    *run = (struct run){.worker = worker, .index = index, .codec = &settings->runs[index]};
    run->result = worker->report ? &worker->report->runs[index] : &run->own_result;
    run->weights = make_vector(worker);
    if (!run->weights)
        return false;
    if (momentum_of(run) > 0 && !(run->velocity = make_vector(worker)))
        return false;
    if (settings->algorithm == ALGORITHM_QSVRG) {
        run->anchor = make_vector(worker);
        run->mean = run->anchor ? make_vector(worker) : NULL;
        if (!run->mean || !make_reducer(worker, run->codec, true, &run->exact))
            return false;
    }
    if (!make_reducer(worker, run->codec, false, &run->reducer))
        return false;
    model_start(&worker->task->model, settings->seed, run->weights);
    return true;
}

void run_free(struct run *run)
{
    tg_reducer_free(run->reducer);
    tg_reducer_free(run->exact);
    free(run->weights);
    free(run->velocity);
    free(run->anchor);
    free(run->mean);
    free(run->own_result.points);
    free(run->own_result.bypass_changes);
    *run = (struct run){0};
}

bool run_check(struct worker *worker, size_t index, const tg_state *saved)
{
    struct run run;
    const bool is_created = run_create(worker, index, &run);
    run.result = &run.own_result; /* nothing is to be told of it */
    const bool is_well = is_created && (saved->size == 0 || run_load(&run, saved));
    run_free(&run);
    return is_well;
}

/* ---- steps ---- */

/* At the first step and then at even distances, and at the last. */
static bool is_point(uint64_t step, uint64_t steps)
{
    uint64_t distance = steps / POINTS_OF_A_RUN + 1;
    return step % distance == 0 || step == steps;
}

/* Whether the step that was just made was sent as it is: the changes until then come in pairs, from and until. */
static bool was_bypassed(const struct run *run)
{
    const struct train_settings *settings = run->worker->task->settings;
    uint64_t changes[TRAIN_MOST_BYPASSES];
    size_t count = 0;
    tg_error ignored = {""};
    if (settings->bypass == TG_BYPASS_OFF ||
        tg_reducer_bypass_log(run->reducer, changes, TRAIN_MOST_BYPASSES, &count, &ignored) != TG_OK)
        return false;
    while (count > 0 && changes[count - 1] >= run->step - run->uncounted)
        count--;
    return count % 2 == 1;
}

static bool tell(struct run *run, double loss, double rate, bool is_new, bool was_skipped)
{
    struct worker *worker = run->worker;
    const struct train_result *result = run->result;
    if (!worker->observer || !worker->observer->on_step)
        return true;
    tg_reducer_stats stats;
    if (!run_counters(run, &stats))
        return false;
    struct train_progress progress = {
        .run = run->index,
        .step = run->step,
        .steps = worker->task->steps,
        .loss = isnan(loss) ? NAN : loss,
        .lr = rate,
        .is_point = is_new,
        .point = result->point_count ? &result->points[result->point_count - 1] : NULL,
        .result = result,
        .bytes_sent = stats.bytes_sent,
        .ratio = stats.ratio,
        .wire_ratio = stats.bytes_sent ? (double)stats.ring_bytes / (double)stats.bytes_sent : NAN,
        .skipped = was_skipped,
        .bypassed = was_bypassed(run),
    };
    worker->observer->on_step(worker->observer->context, &progress);
    return true;
}

/* A gradient that is not finite because the loss of some rank is not finite is not an error in the data: this run is
 * over, and the next one begins. The status is the same on all ranks, so all of them ask. */
bool run_diverges(struct run *run, tg_status status, double loss)
{
    struct failure ignored = {""};
    uint32_t rank;
    if (status != TG_NONFINITE)
        return false;
    if (!isfinite(loss))
        (void)fail(&ignored, "the loss is not finite");
    run->diverged = team_verdict(&run->worker->team, isfinite(loss), &rank, &ignored) == TEAM_FAILED;
    return run->diverged;
}

static bool reduce(struct run *run, double loss, bool *was_skipped)
{
    struct worker *worker = run->worker;
    const struct model *model = &worker->task->model;
    tg_tensor tensors[MODEL_MOST_TENSORS];
    for (unsigned i = 0; i < model->tensor_count; i++)
        tensors[i] = (tg_tensor){worker->gradient + model->tensors[i].offset, model->tensors[i].count, TG_FLOAT32};
    tg_error error = {""};
    tg_status status = tg_reduce(run->reducer, worker->team.transport, tensors, run->step, &error);
    *was_skipped = status == TG_SKIPPED;
    return status == TG_OK || status == TG_SKIPPED || run_diverges(run, status, loss) ||
           worker_fails(worker, status, &error);
}

/* The histograms are from a twentieth into the run and from its end: the first steps are not typical. */
static void look_at_gradient(struct run *run)
{
    uint64_t steps = run->worker->task->steps;
    if (run->worker->team.rank > 0)
        return;
    if (run->step == steps / 20)
        take_histogram(run, &run->result->early);
    if (run->step + 1 == steps)
        take_histogram(run, &run->result->late);
}

static bool make_step(struct run *run)
{
    struct worker *worker = run->worker;
    const struct task *task = worker->task;
    const struct train_settings *settings = task->settings;
    double loss;
    bool was_skipped;
    if (!run_gradient(run, &loss))
        return false;
    if (run->diverged)
        return true;
    look_at_gradient(run);
    if (!reduce(run, loss, &was_skipped))
        return false;
    if (run->diverged)
        return true;
    double rate = learning_rate(settings->schedule, task->lr, run->step, task->steps);
    if (!was_skipped) {
        uint64_t start = clock_ns();
        descend(run->weights, run->velocity, worker->gradient, task->model.parameters, rate, momentum_of(run),
                settings->weight_decay);
        run->result->stages[STAGE_UPDATE] += (double)(clock_ns() - start) * 1e-9;
    }
    run->step++;
    run->result->skipped += was_skipped;
    if (worker->team.rank > 0)
        return true;
    run->loss_sum += loss;
    run->loss_count++;
    bool is_new = is_point(run->step, task->steps);
    return (!is_new || run_add_point(run)) && tell(run, loss, rate, is_new, was_skipped);
}

/* Rank 0 asks before its part of a step, so no rank can be past that step when the request is seen. */
static void ask_to_stop(const struct run *run)
{
    const struct task *task = run->worker->task;
    atomic_bool *interrupt = task->settings->interrupt;
    if (task->stop_at && run->worker->team.rank == 0 && interrupt && atomic_load(interrupt))
        atomic_store(task->stop_at, run->step + 1);
}

static bool has_to_stop(const struct run *run)
{
    const struct task *task = run->worker->task;
    return task->stop_at && run->step < task->steps && atomic_load(task->stop_at) == run->step;
}

static bool stop(struct run *run, bool is_saved)
{
    struct worker *worker = run->worker;
    if (worker->task->settings->checkpoint && !is_saved && (!run_save(run) || !checkpoint_write(worker)))
        return false;
    worker->how_failed = FAILED_TOGETHER;
    worker->culprit = 0;
    return fail(&worker->failure, "interrupted after step %" PRIu64 " of %" PRIu64 " of run %zu of %zu", run->step,
                worker->task->steps, run->index + 1, worker->task->settings->run_count);
}

static bool make_steps(struct run *run)
{
    struct worker *worker = run->worker;
    const struct train_settings *settings = worker->task->settings;
    const uint64_t steps = worker->task->steps;
    if (run->step == 0 && worker->team.rank == 0 && !run_add_point(run))
        return false;
    while (run->step < steps) {
        ask_to_stop(run);
        if (!make_step(run))
            return false;
        if (run->diverged)
            return run_keep(run);
        bool is_due = settings->checkpoint && (run->step % settings->every == 0 || run->step == steps);
        if (is_due && (!run_save(run) || !checkpoint_write(worker)))
            return false;
        if (has_to_stop(run))
            return stop(run, is_due);
    }
    return run_finish(run);
}

/* Where hosts have several ranks, the gradient is made where the others can read it. */
static bool share_memory(struct run *run)
{
    struct worker *worker = run->worker;
    const struct model *model = &worker->task->model;
    tg_error error = {""};
    tg_status status = tg_reducer_share_memory(run->reducer, worker->team.transport, NULL, &error);
    if (status != TG_OK)
        return worker_fails(worker, status, &error);
    float *const there = tg_reducer_gradient_memory(run->reducer, 0);
    for (unsigned i = 0; there && i < model->tensor_count; i++)
        if (tg_reducer_gradient_memory(run->reducer, i) != there + model->tensors[i].offset)
            return true; /* a model whose tensors have gaps */
    if (there)
        worker->gradient = there;
    return true;
}

bool run_all_steps(struct worker *worker, size_t index, const tg_state *saved)
{
    struct run run;
    float *const own = worker->gradient;
    const bool is_ready = worker_agrees(worker, run_create(worker, index, &run)) && share_memory(&run) &&
                          (saved->size == 0 || run_restore(&run, saved));
    const bool is_well = is_ready && make_steps(&run);
    if (is_well && worker->report)
        worker->report->run_count = index + 1;
    else if (is_ready)
        (void)run_keep(&run);
    if (is_well && worker->observer && worker->observer->on_end)
        worker->observer->on_end(worker->observer->context, index, run.result);
    worker->gradient = own;
    run_free(&run);
    return is_well;
}
