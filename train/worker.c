/* One rank, through all runs. */
#include "worker.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool worker_fails(struct worker *worker, tg_status status, const tg_error *error)
{
    /* Of a step, these are the same on every rank. */
    if (status == TG_NONFINITE || status == TG_BAD_RESIDUAL || status == TG_LAYOUT_MISMATCH) {
        worker->how_failed = FAILED_TOGETHER;
        worker->culprit = 0;
    } else if (status == TG_EXCHANGE) {
        worker->how_failed = FAILED_LOST;
    }
    return fail(&worker->failure, "%s%s", error->message[0] ? error->message : tg_status_text(status),
                status == TG_UNSTABLE    ? " (--insist runs it anyway)"
                : status == TG_NONFINITE ? " (--nonfinite skip or --nonfinite drop)"
                                         : "");
}

bool worker_refuses(struct worker *worker)
{
    worker->is_wrong_usage = true;
    return false;
}

bool worker_is_refused(struct worker *worker, tg_status status, const tg_error *error)
{
    if (status == TG_INVALID_ARGUMENT || status == TG_INVALID_SPEC || status == TG_UNSTABLE ||
        status == TG_LAYOUT_MISMATCH)
        (void)worker_refuses(worker);
    return worker_fails(worker, status, error);
}

bool worker_agrees(struct worker *worker, bool well)
{
    const enum verdict own = well ? TEAM_WELL : worker->is_wrong_usage ? TEAM_REFUSED : TEAM_FAILED;
    const enum verdict verdict = team_agree(&worker->team, own, &worker->culprit, &worker->failure);
    worker->is_wrong_usage = verdict == TEAM_REFUSED;
    worker->how_failed = verdict == TEAM_LOST ? FAILED_LOST : FAILED_TOGETHER;
    if (verdict == TEAM_WELL)
        worker->how_failed = FAILED_ALONE; /* what may come next */
    return verdict == TEAM_WELL;
}

static bool make_room(struct worker *worker)
{
    const struct task *task = worker->task;
    const size_t size = (size_t)task->model.parameters * sizeof(float) + 64;
    void *vectors[2] = {NULL, NULL};
    tg_error error = {""};
    tg_status status = tg_device_open(task->settings->device, NULL, &worker->device, &error);
    if (status != TG_OK)
        return worker_fails(worker, status, &error);
    if (task->data.train_rows < worker->team.world)
        return fail(&worker->failure, "%" PRIu64 " rows are too few for %" PRIu32 " workers", task->data.train_rows,
                    worker->team.world) ||
               worker_refuses(worker);
    worker->shard_rows = (task->data.train_rows - worker->team.rank + worker->team.world - 1) / worker->team.world;
    for (size_t i = 0; i < 2; i++) {
        if (posix_memalign(&vectors[i], 64, size) != 0)
            return fail(&worker->failure, "out of memory for a gradient of %" PRIu64 " elements",
                        task->model.parameters);
        memset(vectors[i], 0, size);
        *(i == 0 ? &worker->gradient : &worker->second) = vectors[i];
    }
    /* Evaluation takes few rows at a time where they are wide. */
    uint64_t score_rows = task->data.features > 4096 ? 16 : 256;
    return model_work_create(&task->model, task->settings->batch, &worker->work, &worker->failure) &&
           (worker->team.rank > 0 || model_work_create(&task->model, score_rows, &worker->score, &worker->failure)) &&
           (worker->team.rank > 0 || !task->settings->checkpoint ||
            checkpoint_probe(task->settings->checkpoint, &worker->failure));
}

/* ---- hosts ---- */

/* The feedback of the first run that has a clip; NULL where none has. */
static const char *clipped_feedback(const struct train_settings *settings)
{
    for (size_t i = 0; i < settings->run_count; i++)
        if (settings->runs[i].feedback.clip > 0)
            return settings->runs[i].feedback_text;
    return NULL;
}

/* Whether ranks look for others on their hosts. */
static bool looks_for_hosts(const struct train_settings *settings)
{
    if (settings->group_text)
        return settings->group == 0;
    return settings->mpi && settings->reduce == TG_AUTO && settings->bypass == TG_BYPASS_OFF &&
           !clipped_feedback(settings); /* what two levels refuse */
}

/* Each rank's host is the first rank of that name. */
static bool name_hosts(struct worker *worker)
{
    const struct team *team = &worker->team;
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    struct shared_bytes *all = team_share(team, name, strlen(name), false, &worker->failure);
    for (uint32_t i = 0; all && i < team->world; i++)
        while (all->parts[worker->hosts[i]].size != all->parts[i].size ||
               memcmp(all->parts[worker->hosts[i]].data, all->parts[i].data, all->parts[i].size) != 0)
            worker->hosts[i]++;
    shared_bytes_free(all);
    return all != NULL;
}

struct host_count {
    uint32_t hosts, least, most; /* ranks on each */
};

static struct host_count count_hosts(const struct worker *worker)
{
    struct host_count count = {0, worker->team.world, 0};
    for (uint32_t host = 0; host < worker->team.world; host++) {
        uint32_t ranks = 0;
        for (uint32_t i = 0; i < worker->team.world; i++)
            ranks += worker->hosts[i] == host;
        if (ranks == 0)
            continue;
        count.hosts++;
        count.least = ranks < count.least ? ranks : count.least;
        count.most = ranks > count.most ? ranks : count.most;
    }
    return count;
}

/* Which ranks share a host: those of one name, or so many in a row. Without --group it stays at one level where two
 * would compress nothing, because there is one host, or would be one all the same. */
static bool find_hosts(struct worker *worker)
{
    const struct train_settings *settings = worker->task->settings;
    const struct team *team = &worker->team;
    const bool is_looking = looks_for_hosts(settings);
    if (!is_looking && !settings->group_text)
        return true;
    worker->hosts = calloc(team->world, sizeof *worker->hosts);
    if (!worker->hosts)
        return fail(&worker->failure, "out of memory for %" PRIu32 " ranks", team->world);
    for (uint32_t i = 0; !is_looking && i < team->world; i++)
        worker->hosts[i] = (uint32_t)(i / settings->group);
    if (is_looking && !name_hosts(worker))
        return false;
    const struct host_count count = count_hosts(worker);
    const bool has_levels = count.hosts > 1 && count.most > 1;
    if (!settings->group_text && !has_levels) {
        free(worker->hosts);
        worker->hosts = NULL;
        return true;
    }
    if (worker->report)
        worker->report->hosts = count.hosts;
    if (is_looking && has_levels && worker->observer && worker->observer->on_levels)
        worker->observer->on_levels(worker->observer->context, count.hosts, count.least, count.most);
    return true;
}

/* With --group auto, what hosts there are shows only here. */
static bool suits_hosts(struct worker *worker)
{
    const struct train_settings *settings = worker->task->settings;
    const char *clipped = clipped_feedback(settings);
    uint32_t i = 0;
    while (i < worker->team.world && worker->hosts[i] == i)
        i++;
    if (i == worker->team.world || (settings->bypass == TG_BYPASS_OFF && !clipped))
        return true;
    if (settings->bypass != TG_BYPASS_OFF)
        (void)fail(&worker->failure,
                   "--bypass %s does not support hosts with several ranks, and --group %s finds ranks %" PRIu32
                   " and %" PRIu32 " on one; leave out one of the two options",
                   settings->bypass == TG_BYPASS_AUTO ? "auto" : "replay", settings->group_text, worker->hosts[i], i);
    else
        (void)fail(&worker->failure,
                   "--feedback %s limits the gradient of one rank, and --group %s finds ranks %" PRIu32 " and %" PRIu32
                   " on one, which compresses their sum; use clip=0, or --group 1",
                   clipped, settings->group_text, worker->hosts[i], i);
    return worker_refuses(worker);
}

/* ---- the whole ---- */

static void free_room(struct worker *worker)
{
    free(worker->hosts);
    free(worker->gradient);
    free(worker->second);
    model_work_free(&worker->work);
    model_work_free(&worker->score);
    for (size_t i = 0; i < TRAIN_MOST_RUNS; i++)
        blob_free(&worker->saved[i]);
    tg_device_free(worker->device);
}

static bool check_runs(struct worker *worker, const tg_state *saved)
{
    bool is_well = true;
    for (size_t i = 0; is_well && i < worker->task->settings->run_count; i++)
        is_well = run_check(worker, i, &saved[i]);
    return is_well;
}

/* A checkpoint has the states of all runs: those of runs that are complete, so that they can be continued with more
 * steps, and of later ones, so that their steps are not lost where an earlier one stops. */
static bool keep_saved(struct worker *worker, const tg_state *saved)
{
    const size_t count = worker->team.rank == 0 ? worker->task->settings->run_count : 0;
    bool is_well = true;
    for (size_t i = 0; i < count; i++) {
        blob_put(&worker->saved[i], saved[i].data, saved[i].size);
        is_well = is_well && !worker->saved[i].out_of_memory;
    }
    return is_well || fail(&worker->failure, "out of memory for the checkpoint");
}

bool worker_run(struct worker *worker)
{
    const struct train_settings *settings = worker->task->settings;
    tg_state saved[TRAIN_MOST_RUNS] = {{0}};
    struct shared_bytes *bytes = NULL;
    bool is_well = worker_agrees(worker, make_room(worker));
    if (is_well && !find_hosts(worker)) {
        worker->how_failed = worker->hosts && settings->group == 0 ? FAILED_LOST : FAILED_ALONE;
        is_well = false;
    }
    if (is_well && settings->group_text && settings->group == 0)
        is_well = worker_agrees(worker, suits_hosts(worker));
    if (is_well && worker->report)
        strncpy(worker->report->device, tg_device_name(worker->device), sizeof worker->report->device - 1);
    if (is_well && settings->resume)
        is_well = checkpoint_read(worker, &bytes, saved);
    if (is_well)
        is_well = worker_agrees(worker, check_runs(worker, saved) && keep_saved(worker, saved));
    for (size_t i = 0; is_well && i < settings->run_count; i++)
        is_well = run_all_steps(worker, i, &saved[i]);
    shared_bytes_free(bytes);
    free_room(worker);
    return is_well;
}
