/* What MPI does for exchanges: posts their messages, tests them, and reads who has left. Without the lock, by one
 * thread at a time. */
#include <stdio.h>

#include "base/status.h"
#include "transport/mpi/module.h"

/* Whether an MPI call succeeded; if not, its error is the reason why the transport is broken. */
static bool succeeded(tg_mpi_transport *t, int code, const char *what)
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

/* Posts the next fragment of one direction with one rank. */
static bool post(tg_mpi_transport *t, tg_posted *f, uint32_t place)
{
    const uint32_t world = t->base.world;
    const bool receiving = place < world;
    const uint32_t peer = receiving ? place : place - world;
    const size_t whole = receiving ? f->exchange->capacity[peer] : f->exchange->send_size[peer],
                 left = whole - f->moved[place];
    const int size = (int)(left < t->fragment ? left : t->fragment);
    if (receiving)
        return succeeded(t,
                         MPI_Irecv((char *)f->exchange->receive[peer] + f->moved[place], size, MPI_BYTE, (int)peer,
                                   (int)(f->number % TG_MPI_TAGS), t->comm, &f->requests[place]),
                         "receiving");
    return succeeded(t,
                     MPI_Isend((const char *)f->exchange->send[peer] + f->moved[place], size, MPI_BYTE, (int)peer,
                               (int)(f->number % TG_MPI_TAGS), t->comm, &f->requests[place]),
                     "sending");
}

bool tg_mpi_launch(tg_mpi_transport *t, tg_exchange *exchange, uint64_t number)
{
    const uint32_t world = t->base.world;
    tg_posted *f = &t->posted[t->posted_count++];
    f->exchange = exchange;
    f->number = number;
    f->open = 0;
    for (uint32_t place = 0; place < 2 * world; place++) {
        const bool receives = place < world;
        const uint32_t peer = receives ? place : place - world;
        f->requests[place] = MPI_REQUEST_NULL;
        f->moved[place] = 0;
        if (peer == t->base.rank || !(receives ? tg_receives(exchange, peer) : tg_sends(exchange, peer)))
            continue;
        f->open++;
        if (!post(t, f, place))
            return false;
    }
    return true;
}

/* A fragment is done: posts the next, or this direction is done. */
static bool advance(tg_mpi_transport *t, tg_posted *f, uint32_t place, const MPI_Status *status)
{
    const uint32_t world = t->base.world, peer = place < world ? place : place - world;
    int size = 0;
    if (place < world) {
        if (!succeeded(t, MPI_Get_count(status, MPI_BYTE, &size), "receiving"))
            return false;
    } else {
        const size_t left = f->exchange->send_size[peer] - f->moved[place];
        size = (int)(left < t->fragment ? left : t->fragment);
    }
    f->moved[place] += (size_t)size;
    if ((size_t)size == t->fragment)
        return post(t, f, place);
    if (place < world)
        f->exchange->received[peer] = f->moved[place];
    f->open--;
    return true;
}

/* Reads who has left. An exchange that such a rank has not started will never be done. */
static void read_notices(tg_mpi_transport *t)
{
    int n = 0;
    if (!succeeded(t, MPI_Testsome((int)t->base.world, t->notices, &n, t->indices, t->statuses), "an exchange"))
        return;
    for (int j = 0; j < n; j++) /* n is negative if all have come */
        if (t->noticed[t->indices[j]] < t->left_after) {
            t->left_rank = (uint32_t)t->indices[j];
            t->left_after = t->noticed[t->indices[j]];
        }
    bool stuck = false;
    for (uint32_t i = 0; i < t->posted_count; i++)
        stuck = stuck || (t->posted[i].open > 0 && t->posted[i].number >= t->left_after);
    if (!stuck)
        return;
    (void)pthread_mutex_lock(&t->lock);
    if (!t->broken)
        (void)tg_fail(&t->reason, TG_EXCHANGE, "rank %u has left", t->left_rank);
    t->broken = true;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
}

bool tg_mpi_progress(tg_mpi_transport *t)
{
    bool moved = false;
    for (uint32_t i = 0; i < t->posted_count; i++) {
        tg_posted *f = &t->posted[i];
        int n = 0;
        const int code = f->open > 0 ? MPI_Testsome((int)(2 * t->base.world), f->requests, &n, t->indices, t->statuses)
                                     : MPI_SUCCESS;
        if (code == MPI_ERR_IN_STATUS) { /* one of the statuses has the error */
            for (int j = 0; j < n; j++) {
                char what[48];
                (void)snprintf(what, sizeof what, "an exchange with rank %u", (uint32_t)t->indices[j] % t->base.world);
                if (!succeeded(t, t->statuses[j].MPI_ERROR, what))
                    return false;
            }
        } else if (!succeeded(t, code, "an exchange")) {
            return false;
        }
        for (int j = 0; j < n; j++)
            if (!advance(t, f, (uint32_t)t->indices[j], &t->statuses[j]))
                return false;
        moved = moved || n > 0;
    }
    if (!moved)
        read_notices(t);
    return moved;
}
