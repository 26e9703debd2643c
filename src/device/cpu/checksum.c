/* XXH3 over leaves of 4096 bytes, then over the header and the digests of all leaves. */
#include "device/cpu/checksum.h"

#include <string.h>

#include "base/bytes.h"
#include "kernels/ranges.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Digests that are made before they are digested themselves: enough to divide among threads. */
enum { HEADER = 64, CHECKSUM_AT = 60, BATCH = 4096 };

typedef struct batch {
    const tg_kernels *kernels;
    const uint8_t *payload;
    size_t size;
    const tg_digests *known;
    const tg_visitor *visitor;
    size_t first; /* leaf */
    tg_ranges ranges;
    uint8_t digests[BATCH * 8];
} batch;

/* Digests the leaves in these bytes of the batch. */
static void digest_leaves(batch *b, size_t from, size_t to)
{
    for (size_t byte = from; byte < to; byte += TG_LEAF) {
        const size_t place = byte / TG_LEAF, leaf = b->first + place, at = leaf * TG_LEAF;
        const bool is_known = b->known && leaf >= b->known->from && leaf < b->known->to;
        const size_t n = b->size - at < TG_LEAF ? b->size - at : TG_LEAF;
        tg_store64(b->digests + 8 * place, is_known ? b->known->of[leaf] : b->kernels->digest(b->payload + at, n));
    }
}

static void digest_range(void *of, size_t part)
{
    enum {
        AT_ONCE = 64 * TG_LEAF
        /* few enough for the second-level cache. With less at a time the processor would have to detect its stream of
         * reads again each time the visitor has been called (docs/log/cpu-kernels.md) */
    };
    batch *b = of;
    const size_t end = (size_t)tg_range_end(&b->ranges, part);
    for (size_t from = (size_t)tg_range_first(&b->ranges, part), to; from < end; from = to) {
        to = end - from < AT_ONCE ? end : from + AT_ONCE;
        digest_leaves(b, from, to);
        if (b->visitor)
            b->visitor->at(b->visitor->of, b->first * TG_LEAF + from, to - from);
    }
}

uint32_t tg_checksum(const tg_kernels *kernels, tg_pool *pool, const uint8_t header[64], const uint8_t *payload,
                     size_t size, const tg_digests *known, const tg_visitor *visitor)
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
    b.visitor = visitor;
    for (b.first = 0; b.first * TG_LEAF < size; b.first += BATCH) {
        const size_t left = size - b.first * TG_LEAF, here = left < BATCH * TG_LEAF ? left : BATCH * TG_LEAF;
        b.ranges = tg_ranges_of(pool, here, 64 * TG_LEAF); /* a leaf alone is too little work for a thread */
        tg_parallel(pool, b.ranges.parts, digest_range, &b);
        (void)XXH3_64bits_update(&root, b.digests, 8 * ((here + TG_LEAF - 1) / TG_LEAF));
    }
    return (uint32_t)XXH3_64bits_digest(&root);
}
