/* XXH3 over chunks of 4096 bytes, then over the header and their digests. */
#include "device/cpu/checksum.h"

#include <string.h>

#include "base/bytes.h"
#include "kernels/ranges.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Digests that are made before they are digested: so many that threads have something to share. */
enum { HEADER = 64, CHECKSUM_AT = 60, BATCH = 4096 };

typedef struct batch {
    const tg_kernels *kernels;
    const uint8_t *payload;
    size_t size;
    const tg_digests *known;
    const tg_look *look;
    size_t first; /* chunk */
    tg_ranges ranges;
    uint8_t digests[BATCH * 8];
} batch;

/* Of the chunks in these bytes of the batch. */
static void digest_chunks(batch *b, size_t from, size_t to)
{
    for (size_t byte = from; byte < to; byte += TG_CHUNK) {
        const size_t place = byte / TG_CHUNK, chunk = b->first + place, at = chunk * TG_CHUNK;
        const bool is_known = b->known && chunk >= b->known->from && chunk < b->known->to;
        const size_t n = b->size - at < TG_CHUNK ? b->size - at : TG_CHUNK;
        tg_store64(b->digests + 8 * place, is_known ? b->known->of[chunk] : b->kernels->digest(b->payload + at, n));
    }
}

static void digest_range(void *of, size_t part)
{
    enum {
        AT_ONCE = 64 * TG_CHUNK
    }; /* in the second-level cache; each turn to the look and back costs a stream (docs/log/cpu-kernels.md) */
    batch *b = of;
    const size_t end = (size_t)tg_range_end(&b->ranges, part);
    for (size_t from = (size_t)tg_range_first(&b->ranges, part), to; from < end; from = to) {
        to = end - from < AT_ONCE ? end : from + AT_ONCE;
        digest_chunks(b, from, to);
        if (b->look)
            b->look->at(b->look->of, b->first * TG_CHUNK + from, to - from);
    }
}

uint32_t tg_checksum(const tg_kernels *kernels, tg_pool *pool, const uint8_t header[64], const uint8_t *payload,
                     size_t size, const tg_digests *known, const tg_look *look)
{
    XXH3_state_t root;
    XXH3_INITSTATE(&root);
    (void)XXH3_64bits_reset(&root);
    uint8_t head[HEADER];
    memcpy(head, header, HEADER);
    memset(head + CHECKSUM_AT, 0, 4);
    (void)XXH3_64bits_update(&root, head, HEADER);
    batch b;
    b.kernels = kernels;
    b.payload = payload;
    b.size = size;
    b.known = known;
    b.look = look;
    for (b.first = 0; b.first * TG_CHUNK < size; b.first += BATCH) {
        const size_t left = size - b.first * TG_CHUNK, here = left < BATCH * TG_CHUNK ? left : BATCH * TG_CHUNK;
        b.ranges = tg_ranges_of(pool, here, 64 * TG_CHUNK); /* a chunk is quickly digested */
        tg_parallel(pool, b.ranges.parts, digest_range, &b);
        (void)XXH3_64bits_update(&root, b.digests, 8 * ((here + TG_CHUNK - 1) / TG_CHUNK));
    }
    return (uint32_t)XXH3_64bits_digest(&root);
}
