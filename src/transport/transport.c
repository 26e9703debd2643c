/* The public functions on transports: arguments are checked here, once for all of them. */
#include "transport/transport.h"

#include "base/status.h"

const char *tg_transport_name(const tg_transport *transport) { return transport ? transport->name : ""; }

uint32_t tg_transport_rank(const tg_transport *transport) { return transport ? transport->rank : 0; }

uint32_t tg_transport_world(const tg_transport *transport) { return transport ? transport->world : 0; }

bool tg_transport_on_device(const tg_transport *transport) { return transport && transport->on_device; }

static tg_status check(const tg_transport *t, const tg_exchange *e, tg_error *error)
{
    if (!t || !e)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_transport_start: transport and exchange must not be NULL");
    if (e->world != t->world)
        return tg_fail(error, TG_INVALID_ARGUMENT, "the exchange has %u ranks, but the transport has %u", e->world,
                       t->world);
    if (e->kind == TG_ALL_MINIMUM)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "transport %s does not have TG_ALL_MINIMUM; use TG_ALL_GATHER or TG_ALL_TO_ALL", t->name);
    if (e->kind != TG_ALL_GATHER && e->kind != TG_ALL_TO_ALL)
        return tg_fail(error, TG_INVALID_ARGUMENT, "invalid exchange kind %d", (int)e->kind);
    if (e->on_device && !t->on_device)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "the exchange is of device memory, but transport %s takes host memory only", t->name);
    if (!e->send || !e->send_size || !e->receive || !e->capacity || !e->received)
        return tg_fail(error, TG_INVALID_ARGUMENT, "an array of the exchange is NULL");
    for (uint32_t peer = 0; peer < t->world; peer++)
        if (peer != t->rank && ((!e->send[peer] && tg_sends(e, peer) && e->send_size[peer] > 0) ||
                                (!e->receive[peer] && tg_receives(e, peer) && e->capacity[peer] > 0)))
            return tg_fail(error, TG_INVALID_ARGUMENT, "the buffer of the exchange for rank %u is NULL", peer);
    return TG_OK;
}

tg_status tg_transport_start(tg_transport *transport, tg_exchange *exchange, tg_error *error)
{
    tg_status status = check(transport, exchange, error);
    if (status == TG_OK)
        status = transport->functions->start(transport, exchange, error);
    return status == TG_OK ? tg_succeed(error) : status;
}

tg_status tg_transport_wait(tg_transport *transport, tg_exchange *exchange, double timeout, tg_error *error)
{
    if (!transport || !exchange)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_transport_wait: transport and exchange must not be NULL");
    if (!(timeout >= 0 && timeout <= 1e9))
        return tg_fail(error, TG_INVALID_ARGUMENT, "the timeout %g is out of range: 0 (no limit) to 1e9 seconds",
                       timeout);
    tg_status status = transport->functions->wait(transport, exchange, timeout, error);
    return status == TG_OK ? tg_succeed(error) : status;
}

void tg_transport_abort(tg_transport *transport, int exit_status)
{
    if (transport)
        transport->functions->abort(transport, exit_status);
}

void tg_transport_free(tg_transport *transport)
{
    if (transport)
        transport->functions->free(transport);
}
