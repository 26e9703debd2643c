/* A transport for device memory, by copies. */
#include "carrier.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "transport/transport.h"

enum { MOST_LOADS = 1024 };

/* An exchange of device memory on its way, with its copies in host memory. */
typedef struct load {
    tg_exchange *of, copy;
    const void **send;
    void **receive;
    size_t *received;
} load;

typedef struct carrier {
    tg_transport base;
    tg_transport *hosts, *devices;
    tg_device *device;
    load loads[MOST_LOADS];
} carrier;

static void *make(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory)
        abort();
    return memory;
}

static void drop(load *l)
{
    for (uint32_t peer = 0; peer < l->copy.world; peer++) {
        free((void *)(uintptr_t)l->send[peer]);
        free(l->receive[peer]);
    }
    free(l->send);
    free(l->receive);
    free(l->received);
    l->of = NULL;
}

static tg_status start(tg_transport *transport, tg_exchange *e, tg_error *error)
{
    carrier *c = (carrier *)transport;
    if (!e->on_device)
        return tg_transport_start(c->hosts, e, error);
    load *l = c->loads;
    while (l->of)
        l++;
    l->of = e;
    l->send = make(e->world, sizeof *l->send);
    l->receive = make(e->world, sizeof *l->receive);
    l->received = make(e->world, sizeof *l->received);
    for (uint32_t peer = 0; peer < e->world; peer++) {
        void *bytes = NULL;
        if (peer != transport->rank && tg_sends(e, peer)) {
            bytes = make(e->send_size[peer], 1);
            if (tg_device_copy_out(c->device, bytes, e->send[peer], e->send_size[peer], error) != TG_OK)
                abort();
        }
        l->send[peer] = bytes;
        l->receive[peer] = peer != transport->rank && tg_receives(e, peer) ? make(e->capacity[peer], 1) : NULL;
    }
    l->copy = *e;
    l->copy.on_device = false;
    l->copy.send = l->send;
    l->copy.receive = l->receive;
    l->copy.received = l->received;
    return tg_transport_start(c->devices, &l->copy, error);
}

static tg_status wait_for(tg_transport *transport, tg_exchange *e, double timeout, tg_error *error)
{
    carrier *c = (carrier *)transport;
    if (!e->on_device)
        return tg_transport_wait(c->hosts, e, timeout, error);
    load *l = c->loads;
    while (l->of != e)
        l++;
    tg_status status = tg_transport_wait(c->devices, &l->copy, timeout, error);
    for (uint32_t peer = 0; status == TG_OK && peer < e->world; peer++) {
        if (peer == transport->rank || !tg_receives(e, peer))
            continue;
        if (l->received[peer] != e->capacity[peer])
            status = tg_fail(error, TG_EXCHANGE, "%zu bytes came from rank %u, not %zu", l->received[peer], peer,
                             e->capacity[peer]);
        else
            status = tg_device_copy_in(c->device, e->receive[peer], l->receive[peer], e->capacity[peer], error);
    }
    drop(l);
    return status;
}

static void abort_carrier(tg_transport *transport, int exit_status)
{
    carrier *c = (carrier *)transport;
    tg_transport_abort(c->hosts, exit_status);
    tg_transport_abort(c->devices, exit_status);
}

static void free_carrier(tg_transport *transport)
{
    carrier *c = (carrier *)transport;
    tg_transport_free(c->hosts);
    tg_transport_free(c->devices);
    for (size_t i = 0; i < MOST_LOADS; i++)
        if (c->loads[i].of)
            drop(&c->loads[i]);
    free(c);
}

static const tg_transport_functions functions = {
    .start = start, .wait = wait_for, .abort = abort_carrier, .free = free_carrier};

tg_transport *carry(tg_transport *hosts, tg_transport *devices, tg_device *device)
{
    carrier *c = make(1, sizeof *c);
    c->base = *hosts;
    c->base.functions = &functions;
    c->base.name = "carrier";
    c->base.on_device = true;
    c->hosts = hosts;
    c->devices = devices;
    c->device = device;
    return &c->base;
}
