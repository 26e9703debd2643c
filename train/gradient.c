/* A rank's gradient for one step: of its batch, or QSVRG's difference. */
#include "common/clock.h"
#include "random.h"
#include "worker.h"

#include <string.h>

static double seconds_since(uint64_t start) { return (double)(clock_ns() - start) * 1e-9; }

/* Row `at` of this rank's endless stream: its shard in a new order each time around. */
static uint64_t row_of(const struct worker *worker, uint64_t at)
{
    uint64_t round = at / worker->shard_rows;
    uint64_t key = random_key(worker->task->settings->seed, FOR_SHUFFLE,
                              round * TRAIN_MOST_WORKERS + worker->team.rank);
    return worker->team.rank +
           (uint64_t)worker->team.world * permuted(key, worker->shard_rows, at % worker->shard_rows);
}

static void fetch_batch(struct run *run, uint64_t rows, uint64_t first, bool is_shuffled)
{
    struct worker *worker = run->worker;
    const struct dataset *data = &worker->task->data;
    uint64_t start = clock_ns();
    for (uint64_t i = 0; i < rows; i++) {
        uint64_t row = is_shuffled ? row_of(worker, first + i) : worker->team.rank + (first + i) * worker->team.world;
        data->fetch(data->state, row, worker->work.features + i * data->features, worker->work.targets + i);
    }
    run->result->stages[STAGE_DATA] += seconds_since(start);
}

/* The gradient of the whole shard, weighted so that the mean over ranks is the mean over all rows. Returns
 * the loss of all of it. */
static double shard_gradient(struct run *run)
{
    struct worker *worker = run->worker;
    const struct task *task = worker->task;
    uint64_t count = task->model.parameters;
    double loss = 0;
    memset(run->mean, 0, count * sizeof *run->mean);
    for (uint64_t first = 0; first < worker->shard_rows;) {
        uint64_t left = worker->shard_rows - first, rows = left < worker->work.rows ? left : worker->work.rows;
        fetch_batch(run, rows, first, false);
        uint64_t start = clock_ns();
        loss += model_run(&task->model, run->weights, &worker->work, rows, worker->second).loss;
        const float share = (float)((double)rows * (double)worker->team.world / (double)task->data.train_rows);
        for (uint64_t i = 0; i < count; i++)
            run->mean[i] += share * worker->second[i];
        run->result->stages[STAGE_GRADIENT] += seconds_since(start);
        first += rows;
    }
    return loss;
}

static bool take_anchor(struct run *run)
{
    struct worker *worker = run->worker;
    const struct model *model = &worker->task->model;
    const double loss = shard_gradient(run);
    memcpy(run->anchor, run->weights, model->parameters * sizeof *run->anchor);
    tg_tensor tensors[MODEL_MOST_TENSORS];
    for (unsigned i = 0; i < model->tensor_count; i++)
        tensors[i] = (tg_tensor){run->mean + model->tensors[i].offset, model->tensors[i].count, TG_FLOAT32};
    tg_error error = {""};
    tg_status status = tg_reduce(run->exact, worker->team.transport, tensors, run->step, &error);
    if (status == TG_SKIPPED) { /* on every rank alike */
        worker->how_failed = FAILED_TOGETHER;
        worker->culprit = 0;
        return fail(&worker->failure, "the full gradient of QSVRG is not finite, and the following steps need it; use "
                                      "--nonfinite drop or a smaller --lr");
    }
    return status == TG_OK || run_diverges(run, status, loss) || worker_fails(worker, status, &error);
}

bool run_gradient(struct run *run, double *loss)
{
    struct worker *worker = run->worker;
    const struct task *task = worker->task;
    const uint64_t batch = task->settings->batch, count = task->model.parameters;
    if (run->anchor) {
        uint64_t in_a_round = (uint64_t)worker->team.world * batch;
        uint64_t round = (task->data.train_rows + in_a_round - 1) / in_a_round;
        if (run->step % round == 0 && !take_anchor(run))
            return false;
        if (run->diverged)
            return true;
    }
    fetch_batch(run, batch, run->step * batch, true);
    uint64_t start = clock_ns();
    *loss = model_run(&task->model, run->weights, &worker->work, batch, worker->gradient).loss / (double)batch;
    if (run->anchor) {
        model_run(&task->model, run->anchor, &worker->work, batch, worker->second);
        for (uint64_t i = 0; i < count; i++)
            worker->gradient[i] = (worker->gradient[i] - worker->second[i]) + run->mean[i];
    }
    run->result->stages[STAGE_GRADIENT] += seconds_since(start);
    return true;
}
