/* Joining the ranks of a communicator, and leaving them: MPI ends together, so a rank that leaves tells the others. */
#include <stdlib.h>

#include "base/status.h"
#include "transport/mpi/module.h"

tg_status tg_mpi_join(tg_mpi_transport *t, const MPI_Comm *of, tg_error *error)
{
    int initialised = 0, level = 0, rank = 0, world = 0;
    (void)MPI_Initialized(&initialised);
    if (initialised) {
        (void)MPI_Query_thread(&level);
        t->has_thread = level == MPI_THREAD_MULTIPLE;
        t->any_thread = true;
    } else {
        t->initialised_here = true;
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS)
            return tg_fail(error, TG_UNAVAILABLE, "MPI did not start; launch this process with the mpirun of this MPI");
        t->any_thread = level >= MPI_THREAD_SERIALIZED;
    }
    if (MPI_Comm_dup(of ? *of : MPI_COMM_WORLD, &t->comm) != MPI_SUCCESS)
        return tg_fail(error, TG_UNAVAILABLE, "MPI could not create a communicator");
    t->has_comm = true;
    (void)MPI_Comm_set_errhandler(t->comm, MPI_ERRORS_RETURN);
#ifdef MPICH_VERSION /* it reports errors of MPI_Testsome to the world's handler */
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
    for (unsigned i = 0; i < TG_MPI_WINDOW; i++) {
        t->posted[i].requests = malloc(places * sizeof(MPI_Request));
        t->posted[i].moved = malloc(places * sizeof(size_t));
        enough = enough && t->posted[i].requests && t->posted[i].moved;
    }
    t->notices = malloc((size_t)world * sizeof(MPI_Request));
    t->noticed = malloc((size_t)world * sizeof *t->noticed);
    if (!enough || !t->notices || !t->noticed)
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for exchanges among %d ranks", world);
    t->left_after = UINT64_MAX;
    t->receives_notices = true;
    for (int peer = 0; peer < world; peer++) {
        t->notices[peer] = MPI_REQUEST_NULL;
        if (peer != rank && MPI_Irecv(&t->noticed[peer], 1, MPI_UINT64_T, peer, TG_MPI_LEAVE_TAG, t->comm,
                                      &t->notices[peer]) != MPI_SUCCESS)
            return tg_fail(error, TG_UNAVAILABLE, "MPI could not start to receive");
    }
    return TG_OK;
}

/* Tells the others, who may be waiting for this rank, that it takes no part in exchanges from `number` on. */
static void send_notices(tg_mpi_transport *t, const uint64_t *number, MPI_Request *sending)
{
    for (int peer = 0; peer < (int)t->base.world; peer++) {
        sending[peer] = MPI_REQUEST_NULL;
        if (peer != (int)t->base.rank)
            (void)MPI_Isend(number, 1, MPI_UINT64_T, peer, TG_MPI_LEAVE_TAG, t->comm, &sending[peer]);
    }
}

/* Sends a leave notice to all ranks, and waits for theirs. */
static void leave_together(tg_mpi_transport *t)
{
    const int world = (int)t->base.world;
    MPI_Request *sending = t->posted[0].requests;
    int sent = 0, heard = 0;
    unsigned idle = 0;
    send_notices(t, &t->started, sending);
    while (!sent || !heard) {
        if (MPI_Testall(world, sending, &sent, t->statuses) != MPI_SUCCESS ||
            MPI_Testall(world, t->notices, &heard, t->statuses) != MPI_SUCCESS)
            return;
        tg_mpi_back_off(&idle);
    }
}

static void cancel(MPI_Request *request)
{
    if (*request != MPI_REQUEST_NULL && MPI_Cancel(request) == MPI_SUCCESS)
        (void)MPI_Request_free(request);
}

void tg_mpi_cancel_receives(tg_mpi_transport *t)
{
    for (uint32_t i = 0; i < t->posted_count; i++)
        for (uint32_t peer = 0; t->posted[i].open > 0 && peer < t->base.world; peer++)
            cancel(&t->posted[i].requests[peer]);
}

/* Tells the others that this rank takes part in no more exchanges, and waits for nobody. */
static void leave_after_failure(tg_mpi_transport *t)
{
    tg_mpi_cancel_receives(t);
    t->own_notice = t->launched;
    for (uint32_t i = 0; i < t->posted_count; i++)
        t->own_notice = t->posted[i].open > 0 && t->posted[i].number < t->own_notice ? t->posted[i].number
                                                                                     : t->own_notice;
    if (t->left_after != UINT64_MAX) /* others shall name the rank that left first */
        t->own_notice = t->left_after + 1;
    for (uint32_t peer = 0; peer < t->base.world; peer++)
        cancel(&t->notices[peer]);
    send_notices(t, &t->own_notice, t->notices);
}

void tg_mpi_leave(tg_mpi_transport *t)
{
    if (t->broken && t->receives_notices && !t->initialised_here)
        leave_after_failure(t);
    if (t->broken)
        return; /* no rank is waited for */
    if (t->receives_notices)
        leave_together(t);
    (void)pthread_mutex_lock(&t->lock);
    t->all_left = true;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
    if (t->has_comm)
        (void)MPI_Comm_free(&t->comm);
    if (t->initialised_here)
        (void)MPI_Finalize();
}
