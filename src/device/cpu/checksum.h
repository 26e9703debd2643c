/* The checksum of a frame: a tree of digests (docs/format.md, 2). */
#ifndef TG_DEVICE_CPU_CHECKSUM_H
#define TG_DEVICE_CPU_CHECKSUM_H

#include "codec/codec.h"

/* A function to call on the payload's bytes while they are in the cache: n bytes from `first` on, whole leaves except
 * for the last. Several threads call it at the same time, for different bytes. */
typedef struct tg_visitor {
    void (*at)(void *of, size_t first, size_t n);
    void *of;
} tg_visitor;

/* The checksum of a header, whose checksum field counts as zero, and its payload. `known` has digests that were made
 * before; `known` and `visitor` may be NULL. */
uint32_t tg_checksum(const tg_kernels *kernels, tg_pool *pool, const uint8_t header[64], const uint8_t *payload,
                     size_t size, const tg_digests *known, const tg_visitor *visitor);

#endif
