/* Spoiling messages. */
#include "faulty.h"

#include <stdlib.h>
#include <time.h>

#include "base/status.h"
#include "transport/transport.h"

const char *const fault_names[FAULTS] = {"none", "cut", "halved", "empty", "flipped", "delayed", "lost"};

unsigned messages_spoilt;

typedef struct faulty_transport {
    tg_transport base;
    tg_transport *inner;
    fault fault;
    unsigned number, started;
    uint32_t from;
    double where;
    tg_exchange *target;
} faulty_transport;

static tg_status start(tg_transport *transport, tg_exchange *exchange, tg_error *error)
{
    faulty_transport *t = (faulty_transport *)transport;
    if (t->started++ == t->number)
        t->target = exchange;
    if (exchange == t->target && t->fault == LOSE) /* this rank's part in it never happens */
        return TG_OK;
    return t->inner->functions->start(t->inner, exchange, error);
}

static void spoil(const faulty_transport *t, const tg_exchange *e)
{
    size_t *size = &e->received[t->from];
    if (!tg_receives(e, t->from))
        return;
    messages_spoilt++;
    unsigned char *bytes = e->receive[t->from];
    if (t->fault == CUT && *size > 0)
        --*size;
    else if (t->fault == HALVE)
        *size /= 2;
    else if (t->fault == EMPTY)
        *size = 0;
    else if (t->fault == FLIP && *size > 0)
        bytes[(size_t)(t->where * (double)(*size - 1))] ^= 4;
}

static tg_status wait_for(tg_transport *transport, tg_exchange *exchange, double timeout, tg_error *error)
{
    faulty_transport *t = (faulty_transport *)transport;
    const struct timespec pause = {.tv_nsec = 20000000};
    if (exchange != t->target)
        return t->inner->functions->wait(t->inner, exchange, timeout, error);
    t->target = NULL;
    if (t->fault == LOSE)
        return tg_fail(error, TG_EXCHANGE, "rank %u did not answer", t->from);
    if (t->fault == DELAY)
        (void)nanosleep(&pause, NULL);
    tg_status status = t->inner->functions->wait(t->inner, exchange, timeout, error);
    if (status == TG_OK)
        spoil(t, exchange);
    return status;
}

static void abort_inner(tg_transport *transport, int exit_status)
{
    tg_transport_abort(((faulty_transport *)transport)->inner, exit_status);
}

static void free_both(tg_transport *transport)
{
    tg_transport_free(((faulty_transport *)transport)->inner);
    free(transport);
}

static bool share(tg_transport *transport, size_t size, tg_shared *shared, uint8_t location[TG_LOCATION_SIZE])
{
    tg_transport *inner = ((faulty_transport *)transport)->inner;
    return inner->functions->share(inner, size, shared, location);
}

static bool look(tg_transport *transport, const uint8_t location[TG_LOCATION_SIZE], tg_shared *shared)
{
    tg_transport *inner = ((faulty_transport *)transport)->inner;
    return inner->functions->look(inner, location, shared);
}

static const tg_transport_functions functions = {
    .start = start, .wait = wait_for, .abort = abort_inner, .free = free_both, .share = share, .look = look};

tg_transport *faulty(tg_transport *inner, fault fault, unsigned number, uint32_t from, double where)
{
    faulty_transport *t = calloc(1, sizeof *t);
    *t = (faulty_transport){
        .base = {.functions = &functions, .name = "faulty", .rank = inner->rank, .world = inner->world},
        .inner = inner,
        .fault = fault,
        .number = number,
        .from = from,
        .where = where};
    return &t->base;
}
