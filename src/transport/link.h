/* How long messages take on links: a bucket for each direction of each host's link, and the clock that the caller
 * gives. Times are nanoseconds. */
#ifndef TG_TRANSPORT_LINK_H
#define TG_TRANSPORT_LINK_H

#include "tersegrad.h"

/* One direction of a link: when it will have moved everything that was given to it. */
typedef struct tg_bucket {
    uint64_t free_at;
} tg_bucket;

/* Nanoseconds that a message occupies a link of this rate: its bytes in packets, with their headers. */
uint64_t tg_link_time(const tg_link *link, uint64_t bytes);

/* A message of this size leaves by one bucket and comes in by another from `now` on, at the same time: both are
 * occupied for as long as it takes, after what they have to do before. Returns when it is there. */
uint64_t tg_link_move(const tg_link *link, tg_bucket *out, tg_bucket *in, uint64_t now, uint64_t bytes);

tg_status tg_link_check(const tg_link *link, uint32_t world, tg_error *error);

#endif
