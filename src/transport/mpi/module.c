/* The transport of a module that is compiled for one MPI: start, wait, abort, free, and the symbol that the library
 * looks for. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "transport/mpi/module.h"
#include "transport/mpi_module.h"
#include "transport/ranks.h"

#ifdef MPICH_VERSION
#define THIS_MPI "mpich"
#else
#define THIS_MPI "openmpi"
#endif

enum {
    FRAGMENT = 1 << 30, /* bytes of one MPI message: counts are int */
    ABORT_SECONDS = 5   /* for MPI_Abort */
};

/* The thread. It initialises MPI, unless the program did, and ends it. */
static void *run(void *argument)
{
    tg_mpi_transport *t = argument;
    tg_error why = {""};
    const tg_status status = t->has_comm ? TG_OK : tg_mpi_join(t, NULL, &why);
    (void)pthread_mutex_lock(&t->lock);
    t->opened = status;
    t->reason = why;
    t->ready = true;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
    if (status == TG_OK)
        tg_mpi_serve(t);
    tg_mpi_leave(t);
    (void)pthread_mutex_lock(&t->lock);
    t->ended = true;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
    return NULL;
}

static tg_status start(tg_transport *transport, tg_exchange *exchange, tg_error *error)
{
    tg_mpi_transport *t = (tg_mpi_transport *)transport;
    tg_status status = TG_OK;
    (void)pthread_mutex_lock(&t->lock);
    const size_t place = t->started % TG_MOST_EXCHANGES;
    if (t->broken)
        status = tg_fail(error, TG_EXCHANGE, "%s", t->reason.message);
    else if (t->ring[place])
        status = tg_fail(error, TG_INVALID_ARGUMENT, "more than %u exchanges are in progress", TG_MOST_EXCHANGES);
    if (status == TG_OK) {
        t->ring[place] = exchange;
        t->done[place] = t->base.world == 1;
        t->started++;
        t->launched += t->base.world == 1;
        (void)pthread_cond_broadcast(&t->changed);
        if (!t->has_thread && !t->busy && t->base.world > 1)
            (void)tg_mpi_take_turn(t);
    }
    (void)pthread_mutex_unlock(&t->lock);
    if (t->has_thread)
        (void)sched_yield(); /* the thread may be waiting for this processor in the middle of a turn */
    return status;
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct timespec timespec_of(double seconds)
{
    return (struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
}

/* The ranks whose messages of this exchange have not come; if all have come, those that have not received theirs. While
 * nobody is busy. */
static tg_ranks not_answered(const tg_mpi_transport *t, const tg_exchange *exchange)
{
    const uint32_t world = t->base.world;
    const tg_posted *f = &t->posted[0]; /* the oldest: an exchange that still queues waits for this one */
    tg_ranks ranks = {.count = 0};
    for (uint32_t i = 0; i < t->posted_count; i++)
        f = t->posted[i].exchange == exchange ? &t->posted[i] : f;
    for (uint32_t place = 0; place < 2 * world && t->posted_count > 0; place++) {
        if (place == world && ranks.count > 0)
            break;
        if (f->requests[place] != MPI_REQUEST_NULL)
            tg_ranks_add(&ranks, place % world);
    }
    return ranks;
}

static void time_out(tg_mpi_transport *t, const tg_exchange *exchange, double timeout)
{
    const tg_ranks silent = not_answered(t, exchange);
    char names[TG_RANKS_TEXT];
    (void)tg_fail(&t->reason, TG_EXCHANGE, "%s did not answer rank %u within %g s",
                  silent.count > 0 ? tg_ranks_text(&silent, names) : "MPI", t->base.rank, timeout);
    t->broken = true;
    (void)pthread_cond_broadcast(&t->changed);
}

static tg_status wait_for(tg_transport *transport, tg_exchange *exchange, double timeout, tg_error *error)
{
    tg_mpi_transport *t = (tg_mpi_transport *)transport;
    const double until = timeout > 0 ? now() + timeout : 0;
    unsigned idle = 0;
    tg_status status = TG_OK;
    (void)pthread_mutex_lock(&t->lock);
    size_t place = 0;
    while (place < TG_MOST_EXCHANGES && t->ring[place] != exchange)
        place++;
    if (place == TG_MOST_EXCHANGES)
        status = tg_fail(error, TG_INVALID_ARGUMENT, "this exchange was not started, or has already been waited for");
    t->waiters++;
    while (status == TG_OK && !t->done[place]) {
        const bool is_late = until > 0 && now() >= until; /* asked before the turn, which may still complete it */
        if (t->broken)
            status = tg_fail(error, TG_EXCHANGE, "%s", t->reason.message);
        else if (t->any_thread && !t->busy && tg_mpi_take_turn(t))
            idle = 0;
        else if (is_late && !t->busy && !t->broken && !t->done[place])
            time_out(t, exchange, timeout);
        else
            tg_mpi_back_off_unlocked(t, &idle);
    }
    t->waiters--;
    if (status == TG_OK)
        t->ring[place] = NULL;
    while (status == TG_EXCHANGE && t->busy) /* after this the caller may free its buffers */
        (void)pthread_cond_wait(&t->changed, &t->lock);
    if (status == TG_EXCHANGE && !t->initialised_here)
        tg_mpi_cancel_receives(t);
    (void)pthread_mutex_unlock(&t->lock);
    return status;
}

/* MPI_Abort may hang if other ranks do not answer: MPICH's waits for messages to them, and the launcher may be
 * unreachable. A process that exits with a failure ends the job as well. */
static void *exit_soon(void *exit_status)
{
    const struct timespec pause = {.tv_sec = ABORT_SECONDS};
    (void)nanosleep(&pause, NULL);
    _exit((int)(intptr_t)exit_status);
}

static void abort_job(tg_transport *transport, int exit_status)
{
    tg_mpi_transport *t = (tg_mpi_transport *)transport;
    pthread_t waiting;
    exit_status = exit_status > 0 && exit_status < 256 ? exit_status : 1;
    if (pthread_create(&waiting, NULL, exit_soon, (void *)(intptr_t)exit_status) == 0)
        (void)pthread_detach(waiting);
    if (!t->has_thread)
        (void)MPI_Abort(t->comm, exit_status);
    (void)pthread_mutex_lock(&t->lock);
    t->abort_status = exit_status;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
    (void)pthread_join(t->thread, NULL); /* the process ends there */
}

static void destroy(tg_mpi_transport *t)
{
    for (unsigned i = 0; i < TG_MPI_WINDOW; i++) {
        free(t->posted[i].requests);
        free(t->posted[i].moved);
    }
    free(t->indices);
    free(t->statuses);
    free(t->notices);
    free(t->noticed);
    (void)pthread_mutex_destroy(&t->lock);
    (void)pthread_cond_destroy(&t->changed);
    free(t);
}

/* The lock is held. MPICH before 4.2 may never return from MPI_Finalize over UCX and TCP: ranks that have closed
 * their connections wait for the others, and do not serve connections that those have yet to close. Once all ranks have
 * sent their leave notices, nothing is lost by not waiting; the launcher then ends too, but may report a failure. */
static bool wait_for_thread(tg_mpi_transport *t)
{
    enum { SECONDS = 10 };
#ifdef MPICH_VERSION
    const bool may_hang = t->initialised_here;
#else
    const bool may_hang = false;
#endif
    while (!t->ended && !(t->all_left && may_hang))
        (void)pthread_cond_wait(&t->changed, &t->lock);
    const struct timespec at = timespec_of(now() + SECONDS);
    int late = 0;
    while (!t->ended && late == 0)
        late = pthread_cond_timedwait(&t->changed, &t->lock, &at);
    return t->ended;
}

static void free_transport(tg_transport *transport)
{
    tg_mpi_transport *t = (tg_mpi_transport *)transport;
    if (t->has_thread) {
        (void)pthread_mutex_lock(&t->lock);
        t->quit = true;
        (void)pthread_cond_broadcast(&t->changed);
        const bool has_ended = wait_for_thread(t);
        (void)pthread_mutex_unlock(&t->lock);
        if (!has_ended) {
            (void)pthread_detach(t->thread);
            return; /* the thread still uses its memory */
        }
        (void)pthread_join(t->thread, NULL);
    } else {
        tg_mpi_leave(t);
    }
    if (!t->broken || t->initialised_here) /* else MPI may still be sending the leave notices */
        destroy(t);
}

static const tg_transport_functions functions = {.start = start,
                                                 .wait = wait_for,
                                                 .abort = abort_job,
                                                 .free = free_transport,
                                                 .share = tg_mpi_share,
                                                 .look = tg_mpi_look};

/* Whether it can be duplicated: if not, MPI would end the program. */
static tg_status check_communicator(const MPI_Comm *of, int initialised, tg_error *error)
{
    int has_two_groups = 0;
    if (!initialised)
        return tg_fail(error, TG_INVALID_ARGUMENT, "a communicator was given, but MPI has not been initialised");
    if (*of == MPI_COMM_NULL)
        return tg_fail(error, TG_INVALID_ARGUMENT, "the communicator is MPI_COMM_NULL");
    (void)MPI_Comm_test_inter(*of, &has_two_groups);
    if (has_two_groups)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "the communicator is an intercommunicator; give an intracommunicator");
    return TG_OK;
}

static tg_status open_transport(const void *communicator, size_t fragment, tg_transport **transport, tg_error *error)
{
    const MPI_Comm *of = communicator;
    int finalised = 0, initialised = 0;
    (void)MPI_Finalized(&finalised);
    if (finalised)
        return tg_fail(
            error, TG_UNAVAILABLE,
            "MPI has been finalised, and cannot be initialised again in this process; keep the first transport");
    (void)MPI_Initialized(&initialised);
    tg_status status = of ? check_communicator(of, initialised, error) : TG_OK;
    if (status != TG_OK)
        return status;
    tg_mpi_transport *t = calloc(1, sizeof *t);
    pthread_condattr_t attributes;
    if (!t || pthread_condattr_init(&attributes) != 0) {
        free(t);
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for a transport");
    }
    t->base = (tg_transport){.functions = &functions, .name = "mpi"};
    t->fragment = fragment > 0 && fragment < FRAGMENT ? fragment : FRAGMENT;
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    if (initialised)
        status = tg_mpi_join(t, of, error);
    else
        t->has_thread = true;
    if (status == TG_OK && t->has_thread) {
        if (pthread_create(&t->thread, NULL, run, t) != 0) {
            destroy(t);
            return tg_fail(error, TG_OUT_OF_MEMORY, "cannot start a thread for MPI");
        }
        (void)pthread_mutex_lock(&t->lock);
        while (!t->ready)
            (void)pthread_cond_wait(&t->changed, &t->lock);
        status = t->opened == TG_OK ? TG_OK : tg_fail(error, t->opened, "%s", t->reason.message);
        (void)pthread_mutex_unlock(&t->lock);
        if (status != TG_OK)
            (void)pthread_join(t->thread, NULL);
    }
    if (status != TG_OK)
        destroy(t);
    else
        *transport = &t->base;
    return status == TG_OK ? tg_succeed(error) : status;
}

__attribute__((visibility("default")))
const tg_mpi_module tg_mpi_module_of_this_mpi = {.version = TG_VERSION_TEXT, .mpi = THIS_MPI, .open = open_transport};
