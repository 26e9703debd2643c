/* The machine over a transport. */
#include <string.h>

#include "base/status.h"
#include "reduce/reducer.h"
#include "transport/transport.h"

/* Exchanges that are under way at once, of all reductions together: enough to keep any wire busy, and within what
 * transports take. */
enum { MOST_UNDER_WAY = 1024 };

/* Exchanges are started as they come and fed oldest first, so that every rank does the same in the same order. Until
 * the end; or only as far as it goes without waiting, but for the greeting, which must be answered, and where too many
 * are under way. */
static tg_status run_exchanges(tg_reduction *r, tg_transport *transport, bool to_the_end, tg_error *error)
{
    const size_t window = MOST_UNDER_WAY / r->reducer->options.depth;
    for (;;) {
        tg_exchange *exchange = NULL;
        const bool full = r->queue_to - r->queue_from >= window;
        tg_status status = full ? TG_OK : tg_reduce_next(r, &exchange, error);
        if (status == TG_OK && exchange) {
            status = tg_transport_start(transport, exchange, error);
            if (status == TG_OK)
                r->queue[r->queue_to++ % r->queue_room] = exchange;
        } else if (status == TG_OK) {
            const bool greeting = r->greets && !r->introduction.settled && !r->settled;
            if (r->queue_from == r->queue_to || !(to_the_end || greeting || full))
                return TG_OK;
            exchange = r->queue[r->queue_from++ % r->queue_room];
            const double start = tg_seconds();
            status = tg_transport_wait(transport, exchange, r->reducer->options.timeout, error);
            r->reducer->stats.exchange_seconds += tg_seconds() - start;
            if (status == TG_OK)
                status = tg_reduce_feed(r, exchange, error);
        }
        if (status != TG_OK)
            return status;
    }
}

static tg_status check(const tg_reducer *r, const tg_transport *t, tg_error *error)
{
    if (!t)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_reduce: transport must not be NULL");
    if (t->rank != r->rank || t->world != r->world)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "the reducer is for rank %u of %u, but the transport has rank %u of %u", r->rank, r->world,
                       t->rank, t->world);
    if (r->options.minimum)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "the reducer's ranks agree by TG_ALL_MINIMUM, which transport %s does not have: leave minimum "
                       "unset",
                       t->name);
    if (r->options.on_device && !t->on_device)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "the reducer's frames stay on the device, but transport %s takes host memory only: leave "
                       "on_device unset, or use a transport that takes device memory",
                       t->name);
    return TG_OK;
}

tg_status tg_reduce_start(tg_reducer *reducer, tg_transport *transport, const tg_tensor *gradients, uint64_t step,
                          tg_reduction **reduction, tg_error *error)
{
    tg_reduction *made;
    tg_status status = reducer && reduction && (gradients || reducer->tensor_count == 0)
                           ? check(reducer, transport, error)
                           : tg_fail(error, TG_INVALID_ARGUMENT,
                                     "tg_reduce_start: reducer, gradients and reduction must not be NULL");
    if (status == TG_OK)
        status = tg_reduce_begin(reducer, gradients, step, &made, error);
    if (status != TG_OK)
        return status;
    made->queue_from = made->queue_to = 0;
    status = run_exchanges(made, transport, false, error);
    if (status != TG_OK) {
        tg_reduce_abandon(made);
        return status;
    }
    *reduction = made;
    return tg_succeed(error);
}

tg_status tg_reduce_finish(tg_reduction *reduction, tg_transport *transport, tg_error *error)
{
    if (!reduction || !reduction->active)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_reduce_finish needs a reduction that was started");
    tg_status status = check(reduction->reducer, transport, error);
    if (status != TG_OK)
        return status;
    if (reduction->missing > 0)
        return tg_missing_fail(reduction, error);
    status = run_exchanges(reduction, transport, true, error);
    if (status == TG_OK)
        return tg_reduce_end(reduction, error);
    tg_reduce_abandon(reduction);
    return status;
}

tg_status tg_reduce(tg_reducer *reducer, tg_transport *transport, const tg_tensor *gradients, uint64_t step,
                    tg_error *error)
{
    tg_reduction *reduction;
    tg_status status = tg_reduce_start(reducer, transport, gradients, step, &reduction, error);
    return status == TG_OK ? tg_reduce_finish(reduction, transport, error) : status;
}
