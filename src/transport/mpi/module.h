/* What the files of a module share. A module is compiled once for each MPI.
 *
 * MPI makes progress only inside its calls. While the program computes, a thread of the module makes them; whoever
 * waits for an exchange makes them too; one at a time. If the program has initialised MPI for one thread only, there is
 * no such thread. If MPI allows calls from one thread only, all calls are the thread's. */
#ifndef TG_TRANSPORT_MPI_MODULE_FILES_H
#define TG_TRANSPORT_MPI_MODULE_FILES_H

#include <mpi.h>
#include <pthread.h>

#include "transport/transport.h"

enum {
    TG_MPI_WINDOW = 64,             /* exchanges that are posted at a time; others queue */
    TG_MPI_TAGS = 32767,            /* every MPI has this many, and one more: */
    TG_MPI_LEAVE_TAG = TG_MPI_TAGS, /* a leave notice: how many exchanges the rank that leaves has started */
};

/* An exchange whose messages have been posted to MPI. Messages are cut into fragments, of which the last is shorter
 * than the others, and may be empty. */
typedef struct tg_posted {
    tg_exchange *exchange;
    uint64_t number;       /* among all that were started */
    uint32_t open;         /* requests that are not done */
    MPI_Request *requests; /* receiving from each rank, then sending to each */
    size_t *moved;         /* bytes so far, in the same order */
} tg_posted;

typedef struct tg_mpi_transport {
    tg_transport base;
    MPI_Comm comm;
    size_t fragment; /* the most bytes of one MPI message */
    bool initialised_here, has_thread, has_comm;
    bool any_thread; /* others than the thread may make calls */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock: exchanges in the order of starting, those from `launched` on not yet posted; NULL when waited
     * for. */
    tg_exchange *ring[TG_MOST_EXCHANGES];
    bool done[TG_MOST_EXCHANGES];
    uint64_t started, launched;
    bool quit, broken;
    bool busy;        /* somebody makes MPI's calls, and may touch the buffers of exchanges */
    unsigned waiters; /* who wait for an exchange, and make MPI's calls meanwhile */
    int abort_status; /* not 0: end the job */
    tg_error reason;
    bool all_left, ended; /* all ranks have sent their leave notices; the thread has ended MPI */
    bool ready;           /* the thread has initialised MPI, with this result: */
    tg_status opened;
    /* For whoever makes MPI's calls. */
    tg_posted posted[TG_MPI_WINDOW];
    uint32_t posted_count;
    int *indices;
    MPI_Status *statuses;
    MPI_Request *notices; /* receives of a leave notice from each rank, posted at the beginning */
    uint64_t *noticed;    /* what they contain */
    bool receives_notices;
    uint64_t own_notice; /* after a failure: this rank's own */
    uint64_t left_after; /* a rank has left, and takes no part in exchanges from this number on */
    uint32_t left_rank;
} tg_mpi_transport;

/* shared.c: shared memory of processes of one machine. */
bool tg_mpi_share(tg_transport *transport, size_t size, tg_shared *shared, uint8_t location[TG_LOCATION_SIZE]);
bool tg_mpi_look(tg_transport *transport, const uint8_t location[TG_LOCATION_SIZE], tg_shared *shared);

/* exchange.c: without the lock, by one thread at a time. Failures are recorded in the transport. */
bool tg_mpi_launch(tg_mpi_transport *t, tg_exchange *exchange, uint64_t number);
/* Tests every posted exchange once; true if anything moved. */
bool tg_mpi_progress(tg_mpi_transport *t);

/* turns.c: with the lock, while nobody is busy. Lets all exchanges make progress once; true if anything moved. */
bool tg_mpi_take_turn(tg_mpi_transport *t);
/* Waits a little, longer and longer while `idle` is not reset to 0. */
void tg_mpi_back_off(unsigned *idle);
void tg_mpi_back_off_unlocked(tg_mpi_transport *t, unsigned *idle);
/* What the thread does until the transport is freed. Takes the lock itself. */
void tg_mpi_serve(tg_mpi_transport *t);

/* world.c. `of` is the caller's communicator, or NULL for the world. */
tg_status tg_mpi_join(tg_mpi_transport *t, const MPI_Comm *of, tg_error *error);
void tg_mpi_leave(tg_mpi_transport *t);
/* After a failure, in a program that goes on using MPI: nothing more is received into buffers that the caller may free,
 * as far as MPI can cancel it. */
void tg_mpi_cancel_receives(tg_mpi_transport *t);

#endif
