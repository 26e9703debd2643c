/* The module for one MPI: the only file that includes mpi.h. MPI moves exchanges on only inside its calls. Those are
 * made by a thread while the program computes and by whoever waits for an exchange; one at a time. Where the program
 * has initialised MPI without leave for threads there is no such thread, and where MPI insists on one, all calls are
 * the thread's. */
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "transport/mpi_module.h"
#include "transport/ranks.h"

#ifdef MPICH_VERSION
#define THIS_MPI "mpich"
#else
#define THIS_MPI "openmpi"
#endif

enum {
    WINDOW = 64,          /* exchanges that MPI knows of at a time; others queue */
    TAGS = 32767,         /* every MPI has so many, and one more: */
    GOODBYE = TAGS,       /* how many exchanges a rank that leaves has started */
    SEGMENT = 1 << 30,    /* bytes of one MPI message: counts are int */
    EAGER_TURNS = 200,    /* tests in vain that only give way to others, before they are spaced out */
    SHORTEST_NAP = 20000, /* nanoseconds */
    LONGEST_NAP = 200000,
    ABORT_SECONDS = 5 /* for MPI_Abort */
};

/* One exchange that MPI knows of. Messages are cut into segments, of which the last is shorter than the others, and may
 * be empty. */
typedef struct flight {
    tg_exchange *exchange;
    uint64_t number;       /* among all that were started */
    uint32_t open;         /* requests that are not done */
    MPI_Request *requests; /* receiving from each rank, then sending to each */
    size_t *moved;         /* bytes so far, in the same order */
} flight;

typedef struct mpi_transport {
    tg_transport base;
    MPI_Comm comm;
    size_t segment;
    bool initialised_here, has_thread, has_comm;
    bool shared; /* others than the thread may make calls */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock: exchanges in the order of starting, those from `launched` on not yet known to MPI; NULL when
     * waited for. */
    tg_exchange *ring[TG_MOST_EXCHANGES];
    bool done[TG_MOST_EXCHANGES];
    uint64_t started, launched;
    bool quit, broken;
    bool inside;      /* somebody is moving exchanges, and may touch their buffers */
    unsigned helpers; /* who wait for an exchange, and move all on meanwhile */
    int abort_status; /* not 0: end the job */
    tg_error reason;
    bool parted, gone; /* all ranks have said goodbye; the thread has ended MPI */
    bool ready;        /* the thread has initialised MPI, and this came of it: */
    tg_status opened;
    /* Of whoever makes MPI calls. */
    flight flights[WINDOW];
    uint32_t active;
    int *indices;
    MPI_Status *statuses;
    MPI_Request *goodbyes; /* receiving one from each rank, from the beginning */
    uint64_t *farewells;
    bool listens;        /* they have been posted */
    uint64_t last;       /* after a failure: this rank's own */
    uint64_t left_after; /* a rank has left, and takes no part in exchanges from this number on */
    uint32_t left_rank;
} mpi_transport;

/* ---- moving exchanges on: without the lock, by one thread ---- */

static bool complain(mpi_transport *t, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return true;
    (void)MPI_Error_string(code, text, &length);
    (void)pthread_mutex_lock(&t->lock);
    if (!t->broken)
        (void)tg_fail(&t->reason, TG_EXCHANGE, "%s failed: %.180s", what, text);
    t->broken = true;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
    return false;
}

/* Posts the next segment of one direction with one rank. */
static bool post(mpi_transport *t, flight *f, uint32_t place)
{
    const uint32_t world = t->base.world;
    const bool receiving = place < world;
    const uint32_t peer = receiving ? place : place - world;
    const size_t whole = receiving ? f->exchange->capacity[peer] : f->exchange->send_size[peer],
                 left = whole - f->moved[place];
    const int size = (int)(left < t->segment ? left : t->segment);
    if (receiving)
        return complain(t,
                        MPI_Irecv((char *)f->exchange->receive[peer] + f->moved[place], size, MPI_BYTE, (int)peer,
                                  (int)(f->number % TAGS), t->comm, &f->requests[place]),
                        "receiving");
    return complain(t,
                    MPI_Isend((const char *)f->exchange->send[peer] + f->moved[place], size, MPI_BYTE, (int)peer,
                              (int)(f->number % TAGS), t->comm, &f->requests[place]),
                    "sending");
}

static bool launch(mpi_transport *t, tg_exchange *exchange, uint64_t number)
{
    const uint32_t world = t->base.world;
    flight *f = &t->flights[t->active++];
    f->exchange = exchange;
    f->number = number;
    f->open = 2 * (world - 1);
    for (uint32_t place = 0; place < 2 * world; place++) {
        f->requests[place] = MPI_REQUEST_NULL;
        f->moved[place] = 0;
        if (place != t->base.rank && place != world + t->base.rank && !post(t, f, place))
            return false;
    }
    return true;
}

/* A segment is through: the next, or the end of this direction. */
static bool advance(mpi_transport *t, flight *f, uint32_t place, const MPI_Status *status)
{
    const uint32_t world = t->base.world, peer = place < world ? place : place - world;
    int size = 0;
    if (place < world) {
        if (!complain(t, MPI_Get_count(status, MPI_BYTE, &size), "receiving"))
            return false;
    } else {
        const size_t left = f->exchange->send_size[peer] - f->moved[place];
        size = (int)(left < t->segment ? left : t->segment);
    }
    f->moved[place] += (size_t)size;
    if ((size_t)size == t->segment)
        return post(t, f, place);
    if (place < world)
        f->exchange->received[peer] = f->moved[place];
    f->open--;
    return true;
}

/* Hears who has left. An exchange that such a rank has not started will never be done. */
static void listen_for_goodbyes(mpi_transport *t)
{
    int n = 0;
    if (!complain(t, MPI_Testsome((int)t->base.world, t->goodbyes, &n, t->indices, t->statuses), "an exchange"))
        return;
    for (int j = 0; j < n; j++) /* n is negative where all have been heard */
        if (t->farewells[t->indices[j]] < t->left_after) {
            t->left_rank = (uint32_t)t->indices[j];
            t->left_after = t->farewells[t->indices[j]];
        }
    bool stuck = false;
    for (uint32_t i = 0; i < t->active; i++)
        stuck = stuck || (t->flights[i].open > 0 && t->flights[i].number >= t->left_after);
    if (!stuck)
        return;
    (void)pthread_mutex_lock(&t->lock);
    if (!t->broken)
        (void)tg_fail(&t->reason, TG_EXCHANGE, "rank %u has left", t->left_rank);
    t->broken = true;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
}

/* Tests every exchange once; true if anything moved. */
static bool progress(mpi_transport *t)
{
    bool moved = false;
    for (uint32_t i = 0; i < t->active; i++) {
        flight *f = &t->flights[i];
        int n = 0;
        const int code = f->open > 0 ? MPI_Testsome((int)(2 * t->base.world), f->requests, &n, t->indices, t->statuses)
                                     : MPI_SUCCESS;
        if (code == MPI_ERR_IN_STATUS) { /* the status that tells is one of those */
            for (int j = 0; j < n; j++) {
                char what[48];
                (void)snprintf(what, sizeof what, "an exchange with rank %u", (uint32_t)t->indices[j] % t->base.world);
                if (!complain(t, t->statuses[j].MPI_ERROR, what))
                    return false;
            }
        } else if (!complain(t, code, "an exchange")) {
            return false;
        }
        for (int j = 0; j < n; j++)
            if (!advance(t, f, (uint32_t)t->indices[j], &t->statuses[j]))
                return false;
        moved = moved || n > 0;
    }
    if (!moved)
        listen_for_goodbyes(t);
    return moved;
}

/* ---- taking turns at it: with the lock, but for MPI calls ---- */

static bool under_way(const mpi_transport *t) { return t->inside || t->active > 0 || t->launched < t->started; }

/* Buffers are left alone again; who waits after a failure must know. */
static void step_out(mpi_transport *t)
{
    t->inside = false;
    if (t->broken)
        (void)pthread_cond_broadcast(&t->changed);
}

/* Takes done exchanges off the list and launches queued ones. */
static void tend(mpi_transport *t)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->active; i++) {
        if (t->flights[i].open > 0) {
            const flight f = t->flights[kept];
            t->flights[kept++] = t->flights[i];
            if (kept - 1 != i)
                t->flights[i] = f; /* their arrays are theirs */
            continue;
        }
        t->done[t->flights[i].number % TG_MOST_EXCHANGES] = true;
        (void)pthread_cond_broadcast(&t->changed);
    }
    t->active = kept;
    while (t->launched < t->started && t->active < WINDOW && !t->broken) {
        const uint64_t number = t->launched++;
        tg_exchange *exchange = t->ring[number % TG_MOST_EXCHANGES];
        t->inside = true;
        (void)pthread_mutex_unlock(&t->lock);
        (void)launch(t, exchange, number);
        (void)pthread_mutex_lock(&t->lock);
        step_out(t);
    }
}

/* When nobody is inside: moves everything on once; true if anything moved. */
static bool take_turn(mpi_transport *t)
{
    tend(t);
    if (t->active == 0 || t->broken)
        return false;
    t->inside = true;
    (void)pthread_mutex_unlock(&t->lock);
    const bool moved = progress(t);
    (void)pthread_mutex_lock(&t->lock);
    step_out(t);
    if (moved)
        tend(t);
    return moved;
}

static void nap(unsigned *idle)
{
    (*idle)++;
    if (*idle < EAGER_TURNS) {
        (void)sched_yield();
        return;
    }
    const long length = SHORTEST_NAP * (long)(*idle - EAGER_TURNS + 1) / 16;
    const struct timespec pause = {.tv_nsec = length < SHORTEST_NAP  ? SHORTEST_NAP
                                              : length > LONGEST_NAP ? LONGEST_NAP
                                                                     : length};
    (void)nanosleep(&pause, NULL);
}

static void nap_unlocked(mpi_transport *t, unsigned *idle)
{
    (void)pthread_mutex_unlock(&t->lock);
    nap(idle);
    (void)pthread_mutex_lock(&t->lock);
}

/* What the thread does. It keeps out of the way of those who wait. */
static void serve(mpi_transport *t)
{
    unsigned idle = 0;
    (void)pthread_mutex_lock(&t->lock);
    while (!t->quit || (under_way(t) && !t->broken)) {
        if (!t->inside && t->abort_status)
            (void)MPI_Abort(t->comm, t->abort_status); /* does not return */
        if (!t->inside && (!under_way(t) || t->broken)) {
            idle = 0;
            (void)pthread_cond_wait(&t->changed, &t->lock);
        } else if (!t->inside && (t->helpers == 0 || !t->shared) && take_turn(t)) {
            idle = 0;
        } else {
            nap_unlocked(t, &idle);
            idle = t->helpers > 0 ? EAGER_TURNS : idle;
        }
    }
    (void)pthread_mutex_unlock(&t->lock);
}

/* ---- opening ---- */

/* Of the caller's communicator, which is NULL for the world. */
static tg_status join_world(mpi_transport *t, const MPI_Comm *of, tg_error *error)
{
    int initialised = 0, level = 0, rank = 0, world = 0;
    (void)MPI_Initialized(&initialised);
    if (initialised) {
        (void)MPI_Query_thread(&level);
        t->has_thread = level == MPI_THREAD_MULTIPLE;
        t->shared = true;
    } else {
        t->initialised_here = true;
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS)
            return tg_fail(error, TG_UNAVAILABLE, "MPI did not start; launch this process with the mpirun of this MPI");
        t->shared = level >= MPI_THREAD_SERIALIZED;
    }
    if (MPI_Comm_dup(of ? *of : MPI_COMM_WORLD, &t->comm) != MPI_SUCCESS)
        return tg_fail(error, TG_UNAVAILABLE, "MPI could not create a communicator");
    t->has_comm = true;
    (void)MPI_Comm_set_errhandler(t->comm, MPI_ERRORS_RETURN);
#ifdef MPICH_VERSION /* it asks the world's handler about what it finds when it tests several requests */
    if (t->initialised_here)
        (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
#endif
    (void)MPI_Comm_rank(t->comm, &rank);
    (void)MPI_Comm_size(t->comm, &world);
    t->base.rank = (uint32_t)rank;
    t->base.world = (uint32_t)world;
    const size_t places = 2 * (size_t)world;
    t->indices = malloc(places * sizeof *t->indices);
    t->statuses = malloc(places * sizeof *t->statuses);
    bool enough = t->indices && t->statuses;
    for (unsigned i = 0; i < WINDOW; i++) {
        t->flights[i].requests = malloc(places * sizeof(MPI_Request));
        t->flights[i].moved = malloc(places * sizeof(size_t));
        enough = enough && t->flights[i].requests && t->flights[i].moved;
    }
    t->goodbyes = malloc((size_t)world * sizeof(MPI_Request));
    t->farewells = malloc((size_t)world * sizeof *t->farewells);
    if (!enough || !t->goodbyes || !t->farewells)
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for exchanges among %d ranks", world);
    t->left_after = UINT64_MAX;
    t->listens = true;
    for (int peer = 0; peer < world; peer++) {
        t->goodbyes[peer] = MPI_REQUEST_NULL;
        if (peer != rank &&
            MPI_Irecv(&t->farewells[peer], 1, MPI_UINT64_T, peer, GOODBYE, t->comm, &t->goodbyes[peer]) != MPI_SUCCESS)
            return tg_fail(error, TG_UNAVAILABLE, "MPI could not start to receive");
    }
    return TG_OK;
}

/* Tells the others, who may be waiting for this rank, that it takes no part in exchanges from `number` on. */
static void tell_others(mpi_transport *t, const uint64_t *number, MPI_Request *sending)
{
    for (int peer = 0; peer < (int)t->base.world; peer++) {
        sending[peer] = MPI_REQUEST_NULL;
        if (peer != (int)t->base.rank)
            (void)MPI_Isend(number, 1, MPI_UINT64_T, peer, GOODBYE, t->comm, &sending[peer]);
    }
}

/* And hears it from all of them: MPI ends together. */
static void say_goodbye(mpi_transport *t)
{
    const int world = (int)t->base.world;
    MPI_Request *sending = t->flights[0].requests;
    int sent = 0, heard = 0;
    unsigned idle = 0;
    tell_others(t, &t->started, sending);
    while (!sent || !heard) {
        if (MPI_Testall(world, sending, &sent, t->statuses) != MPI_SUCCESS ||
            MPI_Testall(world, t->goodbyes, &heard, t->statuses) != MPI_SUCCESS)
            return;
        nap(&idle);
    }
}

static void call_off(MPI_Request *request)
{
    if (*request != MPI_REQUEST_NULL && MPI_Cancel(request) == MPI_SUCCESS)
        (void)MPI_Request_free(request);
}

/* After a failure, in a program that goes on with MPI: nothing more is received into buffers that the caller may free,
 * as far as MPI can call it off. */
static void receive_no_more(mpi_transport *t)
{
    for (uint32_t i = 0; i < t->active; i++)
        for (uint32_t peer = 0; t->flights[i].open > 0 && peer < t->base.world; peer++)
            call_off(&t->flights[i].requests[peer]);
}

/* And then: nobody is waited for, but who waits for this rank hears of it. */
static void slip_away(mpi_transport *t)
{
    receive_no_more(t);
    t->last = t->launched;
    for (uint32_t i = 0; i < t->active; i++)
        t->last = t->flights[i].open > 0 && t->flights[i].number < t->last ? t->flights[i].number : t->last;
    if (t->left_after != UINT64_MAX) /* who left first is to be named, not who left for it */
        t->last = t->left_after + 1;
    for (uint32_t peer = 0; peer < t->base.world; peer++)
        call_off(&t->goodbyes[peer]);
    tell_others(t, &t->last, t->goodbyes);
}

static void leave_world(mpi_transport *t)
{
    if (t->broken && t->listens && !t->initialised_here)
        slip_away(t);
    if (t->broken)
        return; /* there is nobody to say goodbye to */
    if (t->listens)
        say_goodbye(t);
    (void)pthread_mutex_lock(&t->lock);
    t->parted = true;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
    if (t->has_comm)
        (void)MPI_Comm_free(&t->comm);
    if (t->initialised_here)
        (void)MPI_Finalize();
}

static void *run(void *argument)
{
    mpi_transport *t = argument;
    tg_error why = {""};
    const tg_status status = t->has_comm ? TG_OK : join_world(t, NULL, &why);
    (void)pthread_mutex_lock(&t->lock);
    t->opened = status;
    t->reason = why;
    t->ready = true;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
    if (status == TG_OK)
        serve(t);
    leave_world(t);
    (void)pthread_mutex_lock(&t->lock);
    t->gone = true;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- the transport ---- */

static tg_status start(tg_transport *transport, tg_exchange *exchange, tg_error *error)
{
    mpi_transport *t = (mpi_transport *)transport;
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
        if (!t->has_thread && !t->inside && t->base.world > 1)
            (void)take_turn(t);
    }
    (void)pthread_mutex_unlock(&t->lock);
    if (t->has_thread)
        (void)sched_yield(); /* the thread may wait for this processor, and be in the middle of a turn */
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

/* Whose messages of this exchange have not come, or if all have, who have not taken theirs. When nobody is inside. */
static tg_ranks not_answered(const mpi_transport *t, const tg_exchange *exchange)
{
    const uint32_t world = t->base.world;
    const flight *f = &t->flights[0]; /* the oldest: where this exchange still queues, it waits for that one */
    tg_ranks ranks = {.count = 0};
    for (uint32_t i = 0; i < t->active; i++)
        f = t->flights[i].exchange == exchange ? &t->flights[i] : f;
    for (uint32_t place = 0; place < 2 * world && t->active > 0; place++) {
        if (place == world && ranks.count > 0)
            break;
        if (f->requests[place] != MPI_REQUEST_NULL)
            tg_ranks_add(&ranks, place % world);
    }
    return ranks;
}

static void time_out(mpi_transport *t, const tg_exchange *exchange, double timeout)
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
    mpi_transport *t = (mpi_transport *)transport;
    const double until = timeout > 0 ? now() + timeout : 0;
    unsigned idle = 0;
    tg_status status = TG_OK;
    (void)pthread_mutex_lock(&t->lock);
    size_t place = 0;
    while (place < TG_MOST_EXCHANGES && t->ring[place] != exchange)
        place++;
    if (place == TG_MOST_EXCHANGES)
        status = tg_fail(error, TG_INVALID_ARGUMENT, "this exchange was not started, or has already been waited for");
    t->helpers++;
    while (status == TG_OK && !t->done[place]) {
        const bool is_late = until > 0 && now() >= until; /* before the turn: what has come by then is not lost */
        if (t->broken)
            status = tg_fail(error, TG_EXCHANGE, "%s", t->reason.message);
        else if (t->shared && !t->inside && take_turn(t))
            idle = 0;
        else if (is_late && !t->inside && !t->broken && !t->done[place])
            time_out(t, exchange, timeout);
        else
            nap_unlocked(t, &idle);
    }
    t->helpers--;
    if (status == TG_OK)
        t->ring[place] = NULL;
    while (status == TG_EXCHANGE && t->inside) /* after this the caller may free its buffers */
        (void)pthread_cond_wait(&t->changed, &t->lock);
    if (status == TG_EXCHANGE && !t->initialised_here)
        receive_no_more(t);
    (void)pthread_mutex_unlock(&t->lock);
    return status;
}

/* MPI_Abort may not come to an end where other ranks do not answer: MPICH's waits for what was sent to them, and the
 * launcher may be out of reach. A process that ends with a failure ends the job as well. */
static void *exit_soon(void *exit_status)
{
    const struct timespec pause = {.tv_sec = ABORT_SECONDS};
    (void)nanosleep(&pause, NULL);
    _exit((int)(intptr_t)exit_status);
}

static void abort_job(tg_transport *transport, int exit_status)
{
    mpi_transport *t = (mpi_transport *)transport;
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

static void destroy(mpi_transport *t)
{
    for (unsigned i = 0; i < WINDOW; i++) {
        free(t->flights[i].requests);
        free(t->flights[i].moved);
    }
    free(t->indices);
    free(t->statuses);
    free(t->goodbyes);
    free(t->farewells);
    (void)pthread_mutex_destroy(&t->lock);
    (void)pthread_cond_destroy(&t->changed);
    free(t);
}

/* The lock is held. MPICH before 4.2 may never come back from MPI_Finalize over UCX and TCP: ranks that have closed
 * their connections wait for the others, and do nothing for connections that those have yet to close. When all ranks
 * have said goodbye, nothing is lost by leaving it at that; its launcher then ends too, if not always with success. */
static bool wait_for_thread(mpi_transport *t)
{
    enum { SECONDS = 10 };
#ifdef MPICH_VERSION
    const bool may_hang = t->initialised_here;
#else
    const bool may_hang = false;
#endif
    while (!t->gone && !(t->parted && may_hang))
        (void)pthread_cond_wait(&t->changed, &t->lock);
    const struct timespec at = timespec_of(now() + SECONDS);
    int late = 0;
    while (!t->gone && late == 0)
        late = pthread_cond_timedwait(&t->changed, &t->lock, &at);
    return t->gone;
}

static void free_transport(tg_transport *transport)
{
    mpi_transport *t = (mpi_transport *)transport;
    if (t->has_thread) {
        (void)pthread_mutex_lock(&t->lock);
        t->quit = true;
        (void)pthread_cond_broadcast(&t->changed);
        const bool has_ended = wait_for_thread(t);
        (void)pthread_mutex_unlock(&t->lock);
        if (!has_ended) {
            (void)pthread_detach(t->thread);
            return; /* what it has stays its own */
        }
        (void)pthread_join(t->thread, NULL);
    } else {
        leave_world(t);
    }
    if (!t->broken || t->initialised_here) /* else MPI may yet send its last words */
        destroy(t);
}

static const tg_transport_functions functions = {
    .start = start, .wait = wait_for, .abort = abort_job, .free = free_transport};

/* Whether it can be duplicated at all: MPI would end the program. */
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

static tg_status open_transport(const void *communicator, size_t segment, tg_transport **transport, tg_error *error)
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
    mpi_transport *t = calloc(1, sizeof *t);
    pthread_condattr_t attributes;
    if (!t || pthread_condattr_init(&attributes) != 0) {
        free(t);
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for a transport");
    }
    t->base = (tg_transport){.functions = &functions, .name = "mpi"};
    t->segment = segment > 0 && segment < SEGMENT ? segment : SEGMENT;
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    if (initialised)
        status = join_world(t, of, error);
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
