/* Makes the ranks: threads of this process, or this process as one rank of an MPI job. See train.h. */
#include "blas.h"
#include "settings_text.h"
#include "worker.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t most_steps = UINT64_C(1) << 40;

/* ---- what all ranks of a process share ---- */

/* A change that never comes is one of another run. */
static bool check_changes(const struct train_settings *settings, uint64_t steps, struct failure *failure)
{
    const size_t count = settings->bypass_change_count;
    const uint64_t last = count > 0 ? settings->bypass_changes[count - 1] : 0;
    return count == 0 || last < steps ||
           fail(failure,
                "--bypass replay has a change at step %" PRIu64 ", but the last of %" PRIu64 " steps is step %" PRIu64
                "; leave out what comes later, or make more steps",
                last, steps, steps - 1);
}

static bool count_steps(const struct train_settings *settings, uint32_t world, struct task *task,
                        struct failure *failure)
{
    task->lr = settings->lr > 0 ? settings->lr : task->model.loss == LOSS_SQUARED ? 0.02 : 0.1;
    task->steps = settings->steps;
    if (task->steps == 0) {
        double steps = ceil(settings->epochs * (double)task->data.train_rows / ((double)settings->batch * world));
        if (!(steps <= (double)most_steps))
            return fail(failure, "--epochs %g is more than %" PRIu64 " steps", settings->epochs, most_steps);
        task->steps = (uint64_t)steps;
    }
    return check_changes(settings, task->steps, failure);
}

/* `is_refused` if it cannot be because of options, and not for what is in a file. */
static bool open_task(const struct train_settings *settings, uint32_t world, struct task *task, bool *is_refused,
                      struct failure *failure)
{
    *task = (struct task){.settings = settings};
    *is_refused = false;
    if (!dataset_open(settings->data, settings->seed, model_wants_real_targets(settings->model), &task->data, failure))
        return false;
    *is_refused = !model_create(settings->model, &task->data, &task->model, failure) ||
                  !count_steps(settings, world, task, failure);
    return !*is_refused;
}

static void describe_model(const struct model *model, char *text, size_t capacity)
{
    static const char *const losses[] = {"least squares", "logistic", "softmax"};
    int used = snprintf(text, capacity, "%s, %" PRIu32, losses[model->loss], model->sizes[0]);
    for (unsigned i = 1; i <= model->layers && used > 0 && (size_t)used < capacity; i++)
        used += snprintf(text + used, capacity - (size_t)used, "-%" PRIu32, model->sizes[i]);
}

static void fill_report(const struct task *task, const tg_transport *transport, struct train_report *report)
{
    report->transport = strcmp(tg_transport_name(transport), "mpi") == 0 ? "mpi" : "local";
    report->world = tg_transport_world(transport);
    report->train_rows = task->data.train_rows;
    report->test_rows = task->data.test_rows;
    report->features = task->data.features;
    report->classes = task->data.classes;
    report->parameters = task->model.parameters;
    report->on_test_rows = task->data.test_rows > 0;
    report->result_rows = report->on_test_rows ? task->data.test_rows : task->data.train_rows;
    report->point_rows = report->result_rows < TRAIN_POINT_ROWS ? report->result_rows : TRAIN_POINT_ROWS;
    report->steps = task->steps;
    snprintf(report->blas, sizeof report->blas, "%s", blas_name());
    snprintf(report->data, sizeof report->data, "%.255s", task->settings->data);
    snprintf(report->link, sizeof report->link, "%s", task->settings->link_text ? task->settings->link_text : "");
    describe_model(&task->model, report->model, sizeof report->model);
}

/* ---- ranks ---- */

struct rank {
    struct worker worker;
    bool is_prepared; /* the task is there */
    bool is_well;
    pthread_t thread;
};

static bool starts_alike(struct worker *worker)
{
    enum verdict verdict = settings_agree(&worker->team, worker->task->settings, &worker->task->data, &worker->failure);
    worker->how_failed = verdict == TEAM_LOST ? FAILED_LOST : FAILED_TOGETHER;
    worker->culprit = 0;
    worker->is_wrong_usage = verdict == TEAM_FAILED;
    return verdict == TEAM_WELL;
}

static bool run_rank(struct rank *rank)
{
    struct worker *worker = &rank->worker;
    worker->how_failed = FAILED_LOST;
    rank->is_well = worker_agrees(worker, rank->is_prepared) && starts_alike(worker) && worker_run(worker);
    return rank->is_well;
}

/* After a failure nobody may wait for this rank. */
static void *run_thread(void *argument)
{
    struct rank *rank = argument;
    if (!run_rank(rank))
        tg_transport_abort(rank->worker.team.transport, 1);
    return NULL;
}

static void set_up_rank(struct rank *rank, const struct task *task, tg_transport *transport,
                        const struct train_observer *observer, struct train_report *report)
{
    uint32_t number = tg_transport_rank(transport);
    rank->worker = (struct worker){
        .task = task,
        .observer = number == 0 ? observer : NULL,
        .report = number == 0 ? report : NULL,
        .team = {transport, number, tg_transport_world(transport), task->settings->mpi ? task->settings->timeout : 0},
    };
}

/* Of several failures one is the cause; other ranks only report that they lost a peer. NULL where all went well. */
static const struct rank *pick_failure(const struct rank *ranks, uint32_t world)
{
    const struct rank *picked = NULL;
    for (uint32_t i = 0; i < world; i++) {
        bool is_cause = ranks[i].worker.how_failed != FAILED_LOST;
        if (!ranks[i].is_well && (!picked || (is_cause && picked->worker.how_failed == FAILED_LOST)))
            picked = &ranks[i];
    }
    return picked;
}

static bool run_threads(struct rank *ranks, uint32_t world, bool *is_refused, struct failure *failure)
{
    uint32_t started = 0;
    for (uint32_t i = 1; i < world; i++, started++) {
        if (pthread_create(&ranks[i].thread, NULL, run_thread, &ranks[i]) != 0) {
            /* The others would wait for it without end. */
            tg_transport_abort(ranks[0].worker.team.transport, 1);
            break;
        }
    }
    bool all_started = started + 1 == world;
    if (all_started)
        run_thread(&ranks[0]);
    for (uint32_t i = 1; i <= started; i++)
        pthread_join(ranks[i].thread, NULL);
    if (!all_started)
        return fail(failure, "cannot start %" PRIu32 " threads; use fewer --workers", world);
    const struct rank *failed = pick_failure(ranks, world);
    *is_refused = failed && failed->worker.is_wrong_usage;
    return !failed || fail(failure, "%s", failed->worker.failure.text);
}

static bool can_start(const struct train_observer *observer, struct failure *failure)
{
    return !observer || !observer->on_start || observer->on_start(observer->context, failure);
}

static bool train_local(const struct train_settings *settings, const struct train_observer *observer,
                        struct train_report *report, struct failure *failure)
{
    const uint32_t world = settings->workers;
    atomic_uint_fast64_t stop_at = 0;
    struct task task = {0};
    tg_transport *transports[TRAIN_MOST_WORKERS] = {NULL};
    uint32_t hosts[TRAIN_MOST_WORKERS];
    tg_link link = settings->link;
    tg_error error = {""};
    for (uint32_t i = 0; settings->group > 0 && i < world; i++)
        hosts[i] = (uint32_t)(i / settings->group);
    link.host_of_rank = settings->group > 0 ? hosts : NULL;
    if (!can_start(observer, failure) || !open_task(settings, world, &task, &report->is_wrong_usage, failure)) {
        dataset_close(&task.data);
        return false;
    }
    task.stop_at = &stop_at;
    struct rank *ranks = calloc(world > 0 ? world : 1, sizeof *ranks);
    bool is_well = ranks != NULL;
    if (!ranks)
        fail(failure, "out of memory for %" PRIu32 " workers", world);
    else if ((settings->link_text ? tg_transport_local_link(world, &link, transports, &error)
                                  : tg_transport_local(world, transports, &error)) != TG_OK)
        is_well = fail(failure, "%s", error.message);
    if (is_well) {
        fill_report(&task, transports[0], report);
        for (uint32_t i = 0; i < world; i++) {
            set_up_rank(&ranks[i], &task, transports[i], observer, report);
            ranks[i].is_prepared = true;
        }
        is_well = run_threads(ranks, world, &report->is_wrong_usage, failure);
        for (uint32_t i = 0; i < world; i++)
            tg_transport_free(transports[i]);
    }
    free(ranks);
    dataset_close(&task.data);
    return is_well;
}

/* The message is printed first: a launcher kills all ranks as soon as one has failed, and abort ends this one as well.
 */
static void end_job(const struct worker *worker, const struct train_observer *observer, struct failure *failure)
{
    const struct team *team = &worker->team;
    const bool together = worker->how_failed == FAILED_TOGETHER;
    fail(failure, "rank %" PRIu32 ": %s", together ? worker->culprit : team->rank, worker->failure.text);
    if ((!together || worker->culprit == team->rank) && observer && observer->on_failure)
        observer->on_failure(observer->context, failure->text);
    struct failure ignored;
    if (together) {
        shared_bytes_free(team_share(team, "", 0, false, &ignored)); /* no rank ends before it is printed */
        return;
    }
    tg_transport_abort(team->transport, 1);
}

static bool train_mpi(const struct train_settings *settings, const struct train_observer *observer,
                      struct train_report *report, bool *speaks, struct failure *failure)
{
    tg_transport *transport;
    tg_error error = {""};
    tg_status status = tg_transport_mpi(settings->mpi, &transport, &error);
    if (status != TG_OK)
        return fail(failure, "%s", error.message[0] ? error.message : tg_status_text(status));
    const uint32_t found = tg_transport_world(transport);
    if (settings->launched > 0 && settings->launched != found) {
        tg_transport_free(transport);
        report->is_alone = true;
        return fail(failure,
                    "the launcher started %" PRIu64 " ranks, and MPI (%s) found %" PRIu32
                    "; use the mpirun that belongs to this MPI",
                    settings->launched, settings->mpi, found);
    }
    struct task task = {.settings = settings};
    struct rank *rank = calloc(1, sizeof *rank);
    if (!rank) {
        tg_transport_abort(transport, 1);
        return fail(failure, "out of memory");
    }
    set_up_rank(rank, &task, transport, observer, report);
    const uint32_t world = rank->worker.team.world;
    rank->worker.is_wrong_usage = settings->refusal != NULL;
    if (settings->refusal)
        fail(&rank->worker.failure, "%s", settings->refusal);
    else if (world > TRAIN_MOST_WORKERS)
        fail(&rank->worker.failure, "%" PRIu32 " ranks are more than %d", world, TRAIN_MOST_WORKERS);
    else
        rank->is_prepared = can_start(rank->worker.observer, &rank->worker.failure) &&
                            open_task(settings, world, &task, &rank->worker.is_wrong_usage, &rank->worker.failure);
    if (rank->is_prepared && rank->worker.report)
        fill_report(&task, transport, report);
    const bool is_well = run_rank(rank);
    *speaks = is_well && rank->worker.team.rank == 0;
    report->is_wrong_usage = rank->worker.is_wrong_usage;
    if (!is_well)
        end_job(&rank->worker, observer, failure);
    dataset_close(&task.data);
    tg_transport_free(transport);
    free(rank);
    return is_well;
}

/* ---- the whole ---- */

bool train_check(const struct train_settings *settings, struct failure *failure)
{
    struct dataset nothing = {.features = 1, .classes = 2};
    struct model model;
    if (settings->steps > 0 && !check_changes(settings, settings->steps, failure))
        return false;
    if (settings->model && !model_create(settings->model, &nothing, &model, failure))
        return false;
    if (dataset_is_synthetic(settings->data)) {
        struct dataset data = {0};
        bool is_well = dataset_open(settings->data, 0, false, &data, failure);
        dataset_close(&data);
        if (!is_well)
            return false;
    }
    tg_device *device;
    tg_error error = {""};
    if (tg_device_open(settings->device, NULL, &device, &error) != TG_OK)
        return fail(failure, "%s", error.message);
    tg_device_free(device);
    return true;
}

bool train(const struct train_settings *settings, const struct train_observer *observer, struct train_report *report,
           bool *speaks, struct failure *failure)
{
    *report = (struct train_report){0};
    *speaks = true;
    blas_open(false);
    return settings->mpi ? train_mpi(settings, observer, report, speaks, failure)
                         : train_local(settings, observer, report, failure);
}

void train_report_free(struct train_report *report)
{
    for (size_t i = 0; i < TRAIN_MOST_RUNS; i++) {
        free(report->runs[i].points);
        free(report->runs[i].bypass_changes);
    }
    *report = (struct train_report){0};
}
