/* What a transport is to the rest of the library: bytes between ranks, and nothing of what they mean. A transport is a
 * struct that starts with a tg_transport, and four functions; the fifth makes it. */
#ifndef TG_TRANSPORT_TRANSPORT_H
#define TG_TRANSPORT_TRANSPORT_H

#include "tersegrad.h"

/* Memory that several ranks of a host have mapped: it is there until the last of them has released it, which may be
 * after the end of the transport, and whatever became of the others. */
typedef struct tg_shared tg_shared;
struct tg_shared {
    uint8_t *memory; /* NULL: none */
    size_t size;
    void *of; /* the transport's own affair */
    void (*release)(tg_shared *shared);
};

/* By which another rank finds it; bytes for a message. */
enum { TG_LOCATION_SIZE = 40 };

typedef struct tg_transport_functions {
    /* Takes part in the next exchange: every rank starts the same ones in the same order. Returns at once. */
    tg_status (*start)(tg_transport *transport, tg_exchange *exchange, tg_error *error);
    /* Until everything of this exchange has come, and everything that was sent may be overwritten. */
    tg_status (*wait)(tg_transport *transport, tg_exchange *exchange, double timeout, tg_error *error);
    void (*abort)(tg_transport *transport, int exit_status);
    void (*free)(tg_transport *transport);
    /* Memory, all zero, and its location; and the memory of a location, which is only read. False where that cannot be
     * had: then ranks send each other messages. NULL: a transport that has none. */
    bool (*share)(tg_transport *transport, size_t size, tg_shared *shared, uint8_t location[TG_LOCATION_SIZE]);
    bool (*look)(tg_transport *transport, const uint8_t location[TG_LOCATION_SIZE], tg_shared *shared);
} tg_transport_functions;

struct tg_transport {
    const tg_transport_functions *functions;
    const char *name;
    uint32_t rank, world;
    bool on_device; /* takes exchanges in device memory */
};

/* Whether something is sent to a rank, and whether something comes from it. */
static inline bool tg_sends(const tg_exchange *exchange, uint32_t peer)
{
    return exchange->send_size[peer] != TG_NO_MESSAGE;
}
static inline bool tg_receives(const tg_exchange *exchange, uint32_t peer)
{
    return exchange->capacity[peer] != TG_NO_MESSAGE;
}

/* Exchanges that may be under way at once, on any transport: enough for every message of a large step. */
#define TG_MOST_EXCHANGES 4096u

#endif
