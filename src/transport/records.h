/* Small records between ranks, before the first step. */
#ifndef TG_TRANSPORT_RECORDS_H
#define TG_TRANSPORT_RECORDS_H

#include "transport/transport.h"

/* Some ranks, in an order; the own rank may be among them, and is left out. NULL: all ranks, in theirs. */
typedef struct tg_peers {
    const uint32_t *ranks;
    uint32_t count;
} tg_peers;

/* One exchange: `mine` goes to each of `to`, and a record of the same size comes from each of `from`, to its place in
 * `theirs`. Every rank of the transport takes part, with as many peers as it likes. */
tg_status tg_records_exchange(tg_transport *transport, tg_peers to, tg_peers from, const void *mine, size_t size,
                              void *theirs, double timeout, tg_error *error);

/* Whether `number` is the same on all ranks and `mine` is true on all of them; all ranks get the same answer. Takes
 * ⌈log2 P⌉ exchanges, in which a rank hears of twice as many others each time. */
tg_status tg_records_agree(tg_transport *transport, uint64_t number, bool mine, bool *all, double timeout,
                           tg_error *error);

#endif
