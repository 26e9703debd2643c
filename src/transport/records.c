/* Small records between ranks: one exchange of a transport, with lists made for it alone. */
#include "transport/records.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/status.h"

static uint32_t peer_at(const tg_transport *t, tg_peers peers, uint32_t i)
{
    return i >= peers.count ? t->rank : peers.ranks ? peers.ranks[i] : i;
}

static tg_status exchange(tg_transport *t, tg_exchange *e, double timeout, tg_error *error)
{
    const tg_status status = tg_transport_start(t, e, error);
    return status == TG_OK ? tg_transport_wait(t, e, timeout, error) : status;
}

tg_status tg_records_exchange(tg_transport *t, tg_peers to, tg_peers from, const void *mine, size_t size, void *theirs,
                              double timeout, tg_error *error)
{
    const void **send = calloc(t->world, sizeof *send);
    void **receive = calloc(t->world, sizeof *receive);
    size_t *sizes = calloc(t->world, 3 * sizeof *sizes);
    tg_status status = TG_OK;
    if (!send || !receive || !sizes) {
        status = tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for messages of %u ranks", t->world);
    } else {
        size_t *capacity = sizes + t->world, *received = capacity + t->world;
        for (uint32_t peer = 0; peer < t->world; peer++)
            sizes[peer] = capacity[peer] = TG_NO_MESSAGE;
        for (uint32_t i = 0; i < to.count; i++) {
            send[peer_at(t, to, i)] = mine;
            sizes[peer_at(t, to, i)] = size;
        }
        for (uint32_t i = 0; i < from.count; i++) {
            receive[peer_at(t, from, i)] = (uint8_t *)theirs + i * size;
            capacity[peer_at(t, from, i)] = size;
        }
        tg_exchange e = {TG_ALL_TO_ALL, t->world, send, sizes, receive, capacity, received, false};
        status = exchange(t, &e, timeout, error);
        for (uint32_t i = 0; status == TG_OK && i < from.count; i++) {
            const uint32_t peer = peer_at(t, from, i);
            if (peer != t->rank && received[peer] != size && received[peer] != TG_UNKNOWN_SIZE)
                status = tg_fail(error, TG_EXCHANGE, "rank %u sent %zu bytes where %zu were expected", peer,
                                 received[peer], size);
        }
    }
    free(send);
    free(receive);
    free(sizes);
    return status;
}

tg_status tg_records_agree(tg_transport *t, uint64_t number, bool mine, bool *all, double timeout, tg_error *error)
{
    enum { SIZE = 9 };
    tg_status status = TG_OK;
    *all = mine;
    for (uint64_t step = 1; status == TG_OK && step < t->world; step *= 2) {
        const uint32_t to = (uint32_t)((t->rank + step) % t->world),
                       from = (uint32_t)((t->rank + t->world - step) % t->world);
        uint8_t told[SIZE], heard[SIZE] = {0};
        tg_store64(told, number);
        told[8] = *all;
        status = tg_records_exchange(t, (tg_peers){&to, 1}, (tg_peers){&from, 1}, told, SIZE, heard, timeout, error);
        *all = *all && heard[8] == 1 && tg_load64(heard) == number;
    }
    return status;
}
