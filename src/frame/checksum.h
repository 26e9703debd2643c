/* The frame's checksum: a tree of chunk digests (docs/format.md, 2). */
#ifndef TG_FRAME_CHECKSUM_H
#define TG_FRAME_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Of a header, whose checksum field is taken as zero, and its payload. */
uint32_t tg_checksum(const uint8_t header[64], const uint8_t *payload, size_t size);

#endif
