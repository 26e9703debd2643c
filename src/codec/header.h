/* The frame's header: 64 bytes (docs/format.md, 1). */
#ifndef TG_CODEC_HEADER_H
#define TG_CODEC_HEADER_H

#include "codec/codec.h"

#define TG_HEADER_SIZE 64u

/* The bytes of a spec in a header. */
#define TG_SPEC_BYTES 12u
void tg_spec_store(const tg_spec *spec, uint8_t bytes[TG_SPEC_BYTES]);

/* Writes the header, all but the checksum. */
void tg_header_write(const tg_frame_info *info, uint8_t *header);
void tg_header_set_checksum(uint8_t *header, uint32_t checksum);
uint32_t tg_header_checksum(const uint8_t *header);

/* The payload of a frame; `info` must be of this frame. */
tg_payload tg_frame_payload(tg_frame frame, const tg_frame_info *info);

#endif
