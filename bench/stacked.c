/* SPDX-License-Identifier: Apache-2.0
 *
 * One step of all ranks of a run in one thread, for stacked.py: messages are copied from rank to rank. */
#include <string.h>

#include "tersegrad.h"

enum { MOST_RANKS = 64 };

/* One exchange of every rank; false if there is none left, or if something failed. */
static bool exchange_all(tg_reduction *const *reductions, uint32_t world, tg_status *status, tg_error *error)
{
    tg_exchange *exchanges[MOST_RANKS] = {NULL};
    for (uint32_t rank = 0; rank < world && *status == TG_OK; rank++)
        *status = tg_reduce_next(reductions[rank], &exchanges[rank], error);
    if (*status != TG_OK || !exchanges[0])
        return false;
    for (uint32_t from = 0; from < world; from++)
        for (uint32_t to = 0; to < world; to++) {
            const size_t size = exchanges[from]->send_size[to];
            if (from == to || size == TG_NO_MESSAGE)
                continue;
            memcpy(exchanges[to]->receive[from], exchanges[from]->send[to], size);
            exchanges[to]->received[from] = size;
        }
    for (uint32_t rank = 0; rank < world && *status == TG_OK; rank++)
        *status = tg_reduce_feed(reductions[rank], exchanges[rank], error);
    return *status == TG_OK;
}

/* Every rank's gradients become the mean, or stay as they are on all; after a failure the reducers are of no use. */
TG_API tg_status stacked_reduce(tg_reducer *const *reducers, uint32_t world, tg_tensor *const *gradients, uint64_t step,
                                tg_error *error)
{
    tg_reduction *reductions[MOST_RANKS] = {NULL};
    tg_status status = world > MOST_RANKS ? TG_INVALID_ARGUMENT : TG_OK;
    for (uint32_t rank = 0; rank < world && status == TG_OK; rank++)
        status = tg_reduce_begin(reducers[rank], gradients[rank], step, &reductions[rank], error);
    while (status == TG_OK && exchange_all(reductions, world, &status, error)) {}
    if (status != TG_OK)
        return status;
    for (uint32_t rank = 0; rank < world; rank++) {
        const tg_status end = tg_reduce_end(reductions[rank], error);
        status = end != TG_OK ? end : status;
    }
    return status;
}
