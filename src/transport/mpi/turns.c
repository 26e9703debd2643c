/* Who makes MPI's calls when: the module's thread, or whoever waits for an exchange; one at a time. With the lock,
 * except during MPI's calls. */
#include <sched.h>
#include <time.h>

#include "transport/mpi/module.h"

enum {
    YIELDS = 200,           /* tests without progress that only yield the processor; after these there are sleeps */
    SHORTEST_SLEEP = 20000, /* nanoseconds */
    LONGEST_SLEEP = 200000
};

static bool under_way(const tg_mpi_transport *t) { return t->busy || t->posted_count > 0 || t->launched < t->started; }

/* Buffers are not touched any more; after a failure, waiters need to know that. */
static void step_out(tg_mpi_transport *t)
{
    t->busy = false;
    if (t->broken)
        (void)pthread_cond_broadcast(&t->changed);
}

/* Removes exchanges that are done from the list, and posts queued ones. */
static void update(tg_mpi_transport *t)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < t->posted_count; i++) {
        if (t->posted[i].open > 0) {
            const tg_posted f = t->posted[left];
            t->posted[left++] = t->posted[i];
            if (left - 1 != i)
                t->posted[i] = f; /* its arrays are used again */
            continue;
        }
        t->done[t->posted[i].number % TG_MOST_EXCHANGES] = true;
        (void)pthread_cond_broadcast(&t->changed);
    }
    t->posted_count = left;
    while (t->launched < t->started && t->posted_count < TG_MPI_WINDOW && !t->broken) {
        const uint64_t number = t->launched++;
        tg_exchange *exchange = t->ring[number % TG_MOST_EXCHANGES];
        t->busy = true;
        (void)pthread_mutex_unlock(&t->lock);
        (void)tg_mpi_launch(t, exchange, number);
        (void)pthread_mutex_lock(&t->lock);
        step_out(t);
    }
}

bool tg_mpi_take_turn(tg_mpi_transport *t)
{
    update(t);
    if (t->posted_count == 0 || t->broken)
        return false;
    t->busy = true;
    (void)pthread_mutex_unlock(&t->lock);
    const bool moved = tg_mpi_progress(t);
    (void)pthread_mutex_lock(&t->lock);
    step_out(t);
    if (moved)
        update(t);
    return moved;
}

void tg_mpi_back_off(unsigned *idle)
{
    (*idle)++;
    if (*idle < YIELDS) {
        (void)sched_yield();
        return;
    }
    const long length = SHORTEST_SLEEP * (long)(*idle - YIELDS + 1) / 16;
    const struct timespec pause = {.tv_nsec = length < SHORTEST_SLEEP  ? SHORTEST_SLEEP
                                              : length > LONGEST_SLEEP ? LONGEST_SLEEP
                                                                       : length};
    (void)nanosleep(&pause, NULL);
}

void tg_mpi_back_off_unlocked(tg_mpi_transport *t, unsigned *idle)
{
    (void)pthread_mutex_unlock(&t->lock);
    tg_mpi_back_off(idle);
    (void)pthread_mutex_lock(&t->lock);
}

/* If anybody may make calls and somebody waits, the waiter makes them, not the thread. */
void tg_mpi_serve(tg_mpi_transport *t)
{
    unsigned idle = 0;
    (void)pthread_mutex_lock(&t->lock);
    while (!t->quit || (under_way(t) && !t->broken)) {
        if (!t->busy && t->abort_status)
            (void)MPI_Abort(t->comm, t->abort_status); /* does not return */
        if (!t->busy && (!under_way(t) || t->broken)) {
            idle = 0;
            (void)pthread_cond_wait(&t->changed, &t->lock);
        } else if (!t->busy && (t->waiters == 0 || !t->any_thread) && tg_mpi_take_turn(t)) {
            idle = 0;
        } else {
            tg_mpi_back_off_unlocked(t, &idle);
            idle = t->waiters > 0 ? YIELDS : idle;
        }
    }
    (void)pthread_mutex_unlock(&t->lock);
}
