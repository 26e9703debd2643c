/* See link.h. */
#include "transport/link.h"

#include "base/status.h"

/* TCP over Ethernet, as bench/network has it: 1448 bytes of a packet of 1514 are the caller's. */
enum { PAYLOAD = 1448, HEADERS = 66 };

static const double slowest = 1e3, fastest = 1e15, longest = 1e3;

uint64_t tg_link_time(const tg_link *link, uint64_t bytes)
{
    const uint64_t packets = bytes / PAYLOAD + (bytes % PAYLOAD != 0 || bytes == 0);
    const double bits = 8 * ((double)bytes + (double)HEADERS * (double)packets);
    return (uint64_t)(bits / link->bits_per_second * 1e9);
}

static uint64_t occupy(tg_bucket *bucket, uint64_t now, uint64_t time)
{
    bucket->free_at = (bucket->free_at > now ? bucket->free_at : now) + time;
    return bucket->free_at;
}

uint64_t tg_link_move(const tg_link *link, tg_bucket *out, tg_bucket *in, uint64_t now, uint64_t bytes)
{
    const uint64_t time = tg_link_time(link, bytes);
    const uint64_t left = occupy(out, now, time), came = occupy(in, now, time);
    return (left > came ? left : came) + (uint64_t)(link->latency_seconds * 1e9);
}

tg_status tg_link_check(const tg_link *link, uint32_t world, tg_error *error)
{
    if (!(link->bits_per_second >= slowest && link->bits_per_second <= fastest))
        return tg_fail(error, TG_INVALID_ARGUMENT, "a link of %g bits per second is out of range: %g to %g",
                       link->bits_per_second, slowest, fastest);
    if (!(link->latency_seconds >= 0 && link->latency_seconds <= longest))
        return tg_fail(error, TG_INVALID_ARGUMENT, "a latency of %g seconds is out of range: 0 to %g",
                       link->latency_seconds, longest);
    for (uint32_t rank = 0; link->host_of_rank && rank < world; rank++)
        if (link->host_of_rank[rank] >= world)
            return tg_fail(error, TG_INVALID_ARGUMENT,
                           "rank %u is on host %u: hosts count from 0, and %u ranks have at "
                           "most %u",
                           rank, link->host_of_rank[rank], world, world);
    return TG_OK;
}
