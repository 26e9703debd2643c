/* The frame's checksum: a tree of chunk digests (docs/format.md, 2). */
#ifndef TG_DEVICE_CPU_CHECKSUM_H
#define TG_DEVICE_CPU_CHECKSUM_H

#include "codec/codec.h"

/* What else is done with the payload's bytes while they are in the cache: n of them from `first` on, whole chunks but
 * for the last. Threads call it for different bytes at the same time. */
typedef struct tg_look {
    void (*at)(void *of, size_t first, size_t n);
    void *of;
} tg_look;

/* Of a header, whose checksum field is taken as zero, and its payload. `known` has digests that were made before; it
 * may be NULL, and so may `look`. */
uint32_t tg_checksum(const tg_kernels *kernels, tg_pool *pool, const uint8_t header[64], const uint8_t *payload,
                     size_t size, const tg_digests *known, const tg_look *look);

#endif
