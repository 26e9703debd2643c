/* SPDX-License-Identifier: Apache-2.0
 *
 * One step of all ranks of a run, for stacked.py: messages are copied from rank to rank. The ranks are shared out among
 * a few threads. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "tersegrad.h"

enum { MOST_RANKS = 64 };

typedef struct stacked_step {
    tg_reducer *const *reducers;
    tg_tensor *const *gradients;
    uint32_t world, threads;
    uint64_t step;
    pthread_barrier_t barrier;
    _Atomic uint32_t next_thread;
    tg_reduction *reductions[MOST_RANKS];
    tg_exchange *exchanges[MOST_RANKS];
    tg_status status[MOST_RANKS]; /* of each thread */
    tg_error error[MOST_RANKS];
} stacked_step;

/* Whether all threads are still well. Every thread gets the same answer: between two barriers nobody changes it. */
static bool well(stacked_step *all)
{
    pthread_barrier_wait(&all->barrier);
    bool result = true;
    for (uint32_t thread = 0; thread < all->threads; thread++)
        result &= all->status[thread] == TG_OK;
    pthread_barrier_wait(&all->barrier);
    return result;
}

static void receive_all(const stacked_step *all, uint32_t to)
{
    for (uint32_t from = 0; from < all->world; from++) {
        const size_t size = all->exchanges[from]->send_size[to];
        if (from == to || size == TG_NO_MESSAGE)
            continue;
        memcpy(all->exchanges[to]->receive[from], all->exchanges[from]->send[to], size);
        all->exchanges[to]->received[from] = size;
    }
}

/* Every thread's own ranks. */
#define OWN_RANKS(all, me, rank) (uint32_t rank = (me); rank < (all)->world; rank += (all)->threads)

static void *run_thread(void *context)
{
    stacked_step *all = context;
    const uint32_t me = atomic_fetch_add(&all->next_thread, 1);
    tg_status *status = &all->status[me];
    tg_error *error = &all->error[me];
    for
        OWN_RANKS(all, me, rank)
    if (*status == TG_OK)
        *status = tg_reduce_begin(all->reducers[rank], all->gradients[rank], all->step, &all->reductions[rank], error);
    for (;;) {
        if (!well(all))
            return NULL;
        for
            OWN_RANKS(all, me, rank)
        if (*status == TG_OK)
            *status = tg_reduce_next(all->reductions[rank], &all->exchanges[rank], error);
        if (!well(all))
            return NULL;
        if (!all->exchanges[0])
            break;
        for
            OWN_RANKS(all, me, rank)
        receive_all(all, rank);
        pthread_barrier_wait(&all->barrier); /* a rank that is fed may use its send buffers again */
        for
            OWN_RANKS(all, me, rank)
        if (*status == TG_OK)
            *status = tg_reduce_feed(all->reductions[rank], all->exchanges[rank], error);
    }
    for
        OWN_RANKS(all, me, rank)
        {
            const tg_status end = tg_reduce_end(all->reductions[rank], error);
            *status = end != TG_OK ? end : *status;
        }
    return NULL;
}

/* Every rank's gradients become the mean, or stay as they are on all; after a failure the reducers are of no use. */
TG_API tg_status stacked_reduce(tg_reducer *const *reducers, uint32_t world, tg_tensor *const *gradients, uint64_t step,
                                uint32_t threads, tg_error *error)
{
    if (world == 0 || world > MOST_RANKS || threads == 0 || threads > world)
        return TG_INVALID_ARGUMENT;
    stacked_step all = {.reducers = reducers, .gradients = gradients, .world = world, .threads = threads, .step = step};
    pthread_t others[MOST_RANKS];
    pthread_barrier_init(&all.barrier, NULL, threads);
    for (uint32_t i = 1; i < threads; i++)
        if (pthread_create(&others[i], NULL, run_thread, &all))
            return TG_OUT_OF_MEMORY; /* those that were started wait for ever: this is a benchmark */
    run_thread(&all);
    tg_status status = TG_OK;
    for (uint32_t i = 0; i < threads; i++) {
        if (i > 0)
            pthread_join(others[i], NULL);
        if (all.status[i] != TG_OK) {
            status = all.status[i];
            *error = all.error[i];
        }
    }
    pthread_barrier_destroy(&all.barrier);
    return status;
}
