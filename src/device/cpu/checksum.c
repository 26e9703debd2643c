/* XXH3 over leaves of 4096 bytes; over nodes, which are as many bytes of digests, while there are more than fit one;
 * then over the header and the digests that are left. */
#include "device/cpu/checksum.h"

#include <string.h>

#include "base/bytes.h"
#include "kernels/ranges.h"

enum {
    HEADER = 64,
    CHECKSUM_AT = 60,
    NODE = TG_LEAF / 8, /* digests in a node */
    BATCH = 8 * NODE,   /* digests that are made before they are digested themselves: enough to divide among threads */
    LEVELS = 3          /* of nodes, enough for 2^48 bytes */
};

typedef struct stretch {
    const tg_kernels *kernels;
    const uint8_t *payload;
    size_t size;
    const tg_digests *known;
    const tg_visitor *visitor;
    size_t first; /* leaf */
    tg_ranges ranges;
    uint8_t digests[BATCH * 8];
} stretch;

/* Digests the leaves in these bytes of the stretch. */
static void digest_leaves(stretch *b, size_t from, size_t to)
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
    stretch *b = of;
    const size_t end = (size_t)tg_range_end(&b->ranges, part);
    for (size_t from = (size_t)tg_range_first(&b->ranges, part), to; from < end; from = to) {
        to = end - from < AT_ONCE ? end : from + AT_ONCE;
        digest_leaves(b, from, to);
        if (b->visitor)
            b->visitor->at(b->visitor->of, b->first * TG_LEAF + from, to - from);
    }
}

/* The digests of nodes, level by level: of each level those of one node of the next, which is digested when it is
 * full. */
typedef struct nodes {
    const tg_kernels *kernels;
    unsigned levels;
    size_t count[LEVELS];
    uint8_t digests[LEVELS][8 * NODE];
} nodes;

static unsigned levels_for(size_t leaves)
{
    unsigned levels = 0;
    for (; leaves > NODE; leaves = (leaves - 1) / NODE + 1)
        levels++;
    return levels;
}

static void add_node(nodes *n, unsigned level, const uint8_t *digests, size_t count)
{
    tg_store64(n->digests[level] + 8 * n->count[level]++, n->kernels->digest(digests, 8 * count));
}

/* Adds the nodes that the leaves of a stretch make. */
static void add_nodes_of(nodes *n, const uint8_t *digests, size_t count)
{
    for (size_t first = 0; first < count; first += NODE) {
        add_node(n, 0, digests + 8 * first, count - first < NODE ? count - first : NODE);
        for (unsigned level = 0; level + 1 < n->levels && n->count[level] == NODE; level++) {
            add_node(n, level + 1, n->digests[level], NODE);
            n->count[level] = 0;
        }
    }
}

/* Closes the last node of each level but the highest. */
static void close_nodes(nodes *n)
{
    for (unsigned level = 0; level + 1 < n->levels; level++)
        if (n->count[level] > 0)
            add_node(n, level + 1, n->digests[level], n->count[level]);
}

uint32_t tg_checksum(const tg_kernels *kernels, tg_pool *pool, const uint8_t header[64], const uint8_t *payload,
                     size_t size, const tg_digests *known, const tg_visitor *visitor)
{
    stretch b;
    nodes n; /* not cleared: short frames use none of it */
    const size_t leaves = size / TG_LEAF + (size % TG_LEAF != 0);
    n.kernels = kernels;
    n.levels = levels_for(leaves);
    memset(n.count, 0, sizeof n.count);
    b.kernels = kernels;
    b.payload = payload;
    b.size = size;
    b.known = known;
    b.visitor = visitor;
    for (b.first = 0; b.first * TG_LEAF < size; b.first += BATCH) {
        const size_t left = size - b.first * TG_LEAF, here = left < BATCH * TG_LEAF ? left : BATCH * TG_LEAF;
        b.ranges = tg_ranges_of(pool, here, 64 * TG_LEAF); /* a leaf alone is too little work for a thread */
        tg_parallel(pool, b.ranges.parts, digest_range, &b);
        if (n.levels > 0)
            add_nodes_of(&n, b.digests, (here + TG_LEAF - 1) / TG_LEAF);
    }
    close_nodes(&n);
    uint8_t root[HEADER + 8 * NODE];
    const uint8_t *top = n.levels > 0 ? n.digests[n.levels - 1] : b.digests;
    const size_t count = n.levels > 0 ? n.count[n.levels - 1] : leaves;
    memcpy(root, header, HEADER);
    memset(root + CHECKSUM_AT, 0, 4);
    memcpy(root + HEADER, top, 8 * count);
    return (uint32_t)kernels->digest(root, HEADER + 8 * count);
}
