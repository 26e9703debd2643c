/* A run's state as bytes: everything that the next step depends on, and the figures so far. Random numbers are
 * functions of seed and step, and a batch's rows of the step as well, so the step stands for both. */
#include "worker.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- this rank's reducers ---- */

/* From malloc; NULL with a message. */
static uint8_t *save_reducer(struct worker *worker, const tg_reducer *reducer, size_t *length)
{
    tg_error error = {""};
    size_t size;
    tg_status status = tg_reducer_save(reducer, NULL, 0, &size, &error);
    uint8_t *bytes = status == TG_OK ? malloc(size ? size : 1) : NULL;
    if (bytes)
        status = tg_reducer_save(reducer, bytes, size, length, &error);
    if (bytes && status == TG_OK)
        return bytes;
    free(bytes);
    if (status == TG_OK)
        fail(&worker->failure, "out of memory while saving %zu bytes of residuals", size);
    else
        worker_fails(worker, status, &error);
    return NULL;
}

static bool put_reducer(struct worker *worker, const tg_reducer *reducer, struct blob *blob)
{
    if (!reducer) {
        blob_put_number(blob, 0);
        return true;
    }
    size_t size = 0;
    uint8_t *bytes = save_reducer(worker, reducer, &size);
    if (bytes)
        blob_put_block(blob, bytes, size);
    free(bytes);
    return bytes != NULL;
}

/* A state has the number of reductions so far behind magic, rank and world (docs/collectives.md, 10); in another world
 * or plan it begins anew. */
static bool count_reductions(struct run *run)
{
    size_t size = 0;
    if (run->worker->task->settings->bypass == TG_BYPASS_OFF)
        return true; /* nobody asks */
    uint8_t *bytes = save_reducer(run->worker, run->reducer, &size);
    uint64_t reductions = 0;
    for (size_t i = 0; bytes && i < sizeof reductions; i++)
        reductions |= (uint64_t)bytes[16 + i] << 8 * i;
    run->uncounted = run->step - reductions;
    free(bytes);
    return bytes != NULL;
}

/* What ranks rank, rank + world, ... of the world that saved it had; normally one. */
static bool load_reducer(struct worker *worker, tg_reducer *reducer, const tg_state *all, uint64_t saved_world)
{
    const uint32_t rank = worker->team.rank, world = worker->team.world;
    if (!reducer)
        return true;
    tg_state *mine = calloc(saved_world, sizeof *mine);
    if (!mine)
        return fail(&worker->failure, "out of memory");
    size_t count = 0;
    for (uint64_t i = rank; i < saved_world; i += world)
        mine[count++] = all[i];
    tg_error error = {""};
    tg_status status = tg_reducer_load(reducer, mine, count, &error);
    free(mine);
    tg_error other = {""};
    if (status == TG_LAYOUT_MISMATCH && tg_reducer_load(reducer, all, saved_world, &other) == TG_OK)
        status = TG_OK; /* where ranks share hosts, or did, every rank takes something of all states */
    return status == TG_OK || worker_is_refused(worker, status, &error);
}

/* ---- the whole ---- */

static void put_vector(struct blob *blob, const float *vector, uint64_t count)
{
    blob_put_block(blob, vector, vector ? (size_t)count * sizeof *vector : 0);
}

static void put_own(const struct run *run, struct blob *blob)
{
    const struct train_result *result = run->result;
    uint64_t count = run->worker->task->model.parameters;
    blob_put_number(blob, run->step);
    blob_put_number(blob, result->skipped);
    blob_put(blob, result->stages, sizeof result->stages);
    blob_put_real(blob, run->loss_sum);
    blob_put_number(blob, run->loss_count);
    blob_put(blob, &result->early, sizeof result->early);
    blob_put(blob, &result->late, sizeof result->late);
    blob_put_block(blob, result->points, result->point_count * sizeof *result->points);
    put_vector(blob, run->weights, count);
    put_vector(blob, run->velocity, count);
    put_vector(blob, run->anchor, count);
    put_vector(blob, run->mean, count);
}

bool run_save(struct run *run)
{
    struct worker *worker = run->worker;
    struct blob reducers = {0};
    bool is_well = put_reducer(worker, run->reducer, &reducers) && put_reducer(worker, run->exact, &reducers);
    if (is_well && reducers.out_of_memory)
        is_well = fail(&worker->failure, "out of memory while saving the residuals");
    struct shared_bytes *all = worker_agrees(worker, is_well)
                                   ? team_share(&worker->team, reducers.bytes, reducers.size, true, &worker->failure)
                                   : NULL;
    blob_free(&reducers);
    if (!all)
        return false; /* the worker knows why */
    if (worker->team.rank == 0) {
        struct blob *blob = &worker->saved[run->index];
        blob->size = 0;
        put_own(run, blob);
        blob_put_number(blob, worker->team.world);
        for (uint32_t i = 0; i < worker->team.world; i++)
            blob_put_block(blob, all->parts[i].data, all->parts[i].size);
        if (blob->out_of_memory)
            is_well = fail(&worker->failure, "out of memory while saving the run");
    }
    shared_bytes_free(all);
    return worker_agrees(worker, is_well);
}

static bool get_vector(struct run *run, struct blob_reader *reader, float *vector, const char *what)
{
    struct worker *worker = run->worker;
    uint64_t wanted = vector ? worker->task->model.parameters : 0;
    size_t size;
    const void *bytes = blob_get_block(reader, &size);
    if (reader->is_bad)
        return true; /* said once, at the end */
    if (size != wanted * sizeof(float))
        return fail(&worker->failure,
                    "the checkpoint has %zu %s, and this run has %" PRIu64
                    "; the model, --momentum and --algorithm must be "
                    "those that it was made with",
                    size / sizeof(float), what, wanted) ||
               worker_refuses(worker);
    if (size > 0)
        memcpy(vector, bytes, size);
    return true;
}

static bool get_points(struct run *run, struct blob_reader *reader)
{
    struct train_result *result = run->result;
    size_t size;
    const void *bytes = blob_get_block(reader, &size);
    if (size % sizeof *result->points != 0)
        return fail(&run->worker->failure, "the checkpoint is damaged: %zu bytes are not whole points of a run", size);
    free(result->points);
    result->points = malloc(size + 1);
    if (!result->points)
        return fail(&run->worker->failure, "out of memory for the points of the run");
    memcpy(result->points, bytes, size);
    result->point_count = result->point_room = size / sizeof *result->points;
    return true;
}

static bool get_reducers(struct run *run, struct blob_reader *reader)
{
    struct worker *worker = run->worker;
    uint64_t world = blob_get_number(reader);
    if (reader->is_bad || world == 0 || world > TRAIN_MOST_WORKERS)
        return fail(&worker->failure, "the checkpoint is damaged: it has a run of %" PRIu64 " ranks", world);
    tg_state states[2][TRAIN_MOST_WORKERS];
    for (uint64_t i = 0; i < world; i++) {
        size_t size;
        const uint8_t *bytes = blob_get_block(reader, &size);
        struct blob_reader own = {bytes, bytes + size, false};
        for (size_t k = 0; k < 2; k++)
            states[k][i].data = blob_get_block(&own, &states[k][i].size);
        if (own.is_bad || own.at != own.end)
            return fail(&worker->failure,
                        "the checkpoint is damaged: the residuals of rank %" PRIu64 " do not fit their length", i);
        if (!run->exact && states[1][i].size > 0)
            return fail(&worker->failure,
                        "the checkpoint has full gradients of rank %" PRIu64 ", and this run has none", i);
    }
    if (reader->is_bad || reader->at != reader->end)
        return fail(&worker->failure, "the checkpoint is damaged: run %zu does not fit its length", run->index + 1);
    /* The reducer counts anew then, and the log of the whole run would be replayed late or not at all. */
    if (worker->task->settings->bypass == TG_BYPASS_REPLAY && world != worker->team.world)
        return fail(&worker->failure,
                    "--bypass replay takes as many workers as the checkpoint was made with, %" PRIu64 ", not %" PRIu32
                    "; give as many, or --bypass auto or off",
                    world, worker->team.world) ||
               worker_refuses(worker);
    return load_reducer(worker, run->reducer, states[0], world) && load_reducer(worker, run->exact, states[1], world) &&
           count_reductions(run);
}

bool run_load(struct run *run, const tg_state *saved)
{
    struct worker *worker = run->worker;
    struct train_result *result = run->result;
    const uint8_t *bytes = saved->data;
    struct blob_reader reader = {bytes, bytes + saved->size, false};
    run->step = blob_get_number(&reader);
    result->skipped = blob_get_number(&reader);
    blob_get(&reader, result->stages, sizeof result->stages);
    run->loss_sum = blob_get_real(&reader);
    run->loss_count = blob_get_number(&reader);
    blob_get(&reader, &result->early, sizeof result->early);
    blob_get(&reader, &result->late, sizeof result->late);
    if (!get_points(run, &reader) || !get_vector(run, &reader, run->weights, "weights") ||
        !get_vector(run, &reader, run->velocity, "velocities") ||
        !get_vector(run, &reader, run->anchor, "anchor weights") ||
        !get_vector(run, &reader, run->mean, "elements of a full gradient"))
        return false;
    if (reader.is_bad)
        return fail(&worker->failure, "the checkpoint is damaged: run %zu is truncated", run->index + 1);
    if (run->step > worker->task->steps)
        return fail(&worker->failure, "the checkpoint was made after %" PRIu64 " steps, but --steps is %" PRIu64,
                    run->step, worker->task->steps) ||
               worker_refuses(worker);
    return get_reducers(run, &reader);
}

bool run_restore(struct run *run, const tg_state *saved) { return worker_agrees(run->worker, run_load(run, saved)); }
