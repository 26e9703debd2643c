/* The frame's header: 64 bytes (docs/format.md, 1). */
#ifndef TG_CODEC_HEADER_H
#define TG_CODEC_HEADER_H

#include "codec/codec.h"

#define TG_HEADER_SIZE 64u

/* A spec's fields as a header has them. */
#define TG_SPEC_BYTES 12u
void tg_spec_store(const tg_spec *spec, uint8_t bytes[TG_SPEC_BYTES]);

/* Writes the header, all but the checksum. */
void tg_header_write(const tg_frame_info *info, uint8_t *header);
void tg_header_set_checksum(uint8_t *header, uint32_t checksum);
uint32_t tg_header_checksum(const uint8_t *header);

/* The part of a frame that a codec reads; `info` must be of this frame. */
tg_payload tg_frame_payload(tg_frame frame, const tg_frame_info *info);

#endif
