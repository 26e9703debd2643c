/* What a transport is to the rest of the library: bytes between ranks, and nothing of what they mean. A transport is a
 * struct that starts with a tg_transport, and four functions; the fifth makes it. */
#ifndef TG_TRANSPORT_TRANSPORT_H
#define TG_TRANSPORT_TRANSPORT_H

#include "tersegrad.h"

typedef struct tg_transport_functions {
    /* Takes part in the next exchange: every rank starts the same ones in the same order. Returns at once. */
    tg_status (*start)(tg_transport *transport, tg_exchange *exchange, tg_error *error);
    /* Until everything of this exchange has come, and everything that was sent may be overwritten. */
    tg_status (*wait)(tg_transport *transport, tg_exchange *exchange, double timeout, tg_error *error);
    void (*abort)(tg_transport *transport, int exit_status);
    void (*free)(tg_transport *transport);
} tg_transport_functions;

struct tg_transport {
    const tg_transport_functions *functions;
    const char *name;
    uint32_t rank, world;
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

/* Exchanges that may be under way at once, on any transport: enough for every chunk of a large step. */
#define TG_MOST_EXCHANGES 4096u

#endif
