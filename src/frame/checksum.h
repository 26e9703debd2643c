/* The frame's checksum: a tree of chunk digests (docs/format.md, 2). */
#ifndef TG_FRAME_CHECKSUM_H
#define TG_FRAME_CHECKSUM_H

#include "codec/codec.h"

/* Of a header, whose checksum field is taken as zero, and its payload. `known` has digests that were made before; it may be NULL. */
uint32_t tg_checksum(const tg_kernels *kernels, tg_pool *pool, const uint8_t header[64], const uint8_t *payload, size_t size,
                     const tg_digests *known);

#endif
