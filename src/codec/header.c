/* Writing and reading headers. Reading refuses everything that later stages could not handle, with a message for each
 * case. */
#include "codec/header.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/levels.h"

static const uint8_t magic[4] = {'T', 'G', 'R', 'D'};
enum { VERSION = 1, UNSTABLE_VERSION = 0, FLAG_CHECKSUM = 1 };

void tg_spec_store(const tg_spec *spec, uint8_t bytes[TG_SPEC_BYTES])
{
    bytes[0] = spec->codec;
    bytes[1] = spec->choices;
    tg_store16(bytes + 2, spec->levels);
    tg_store32(bytes + 4, spec->bucket);
    tg_store32(bytes + 8, spec->amount);
}

void tg_header_write(const tg_frame_info *info, uint8_t *h)
{
    memcpy(h, magic, sizeof magic);
    h[4] = VERSION;
    h[5] = (uint8_t)info->dtype;
    h[6] = info->has_checksum ? FLAG_CHECKSUM : 0;
    h[7] = (uint8_t)info->layout;
    tg_spec_store(&info->spec, h + 8);
    tg_store32(h + 20, info->draw.tensor);
    tg_store64(h + 24, info->count);
    tg_store64(h + 32, info->bytes - TG_HEADER_SIZE);
    tg_store64(h + 40, info->draw.seed);
    tg_store64(h + 48, info->draw.step);
    tg_store32(h + 56, info->draw.rank);
    tg_store32(h + 60, 0);
}

void tg_header_set_checksum(uint8_t *header, uint32_t checksum) { tg_store32(header + 60, checksum); }

uint32_t tg_header_checksum(const uint8_t *header) { return tg_load32(header + 60); }

/* Which layouts a spec's coding may have produced. Codecs without levels have coding `packed` and so layout 0. */
static bool layout_fits(const tg_spec *spec, unsigned layout)
{
    switch (tg_spec_coding(spec)) {
    case TG_CODING_PACKED:
        return layout == TG_LAYOUT_PACKED;
    case TG_CODING_ELIAS:
        return layout == TG_LAYOUT_ELIAS_SPARSE || layout == TG_LAYOUT_ELIAS_DENSE;
    case TG_CODING_ENTROPY:
        return layout >= TG_LAYOUT_ENTROPY && layout < TG_LAYOUTS;
    case TG_CODING_AUTO:
        break;
    }
    return layout < TG_LAYOUTS;
}

static const char *const layout_texts[TG_LAYOUTS] = {"packed",  "elias-sparse",   "elias-dense",
                                                     "entropy", "entropy-sparse", "prefix"};

const char *tg_layout_text(unsigned layout) { return layout < TG_LAYOUTS ? layout_texts[layout] : "unknown"; }

tg_status tg_frame_read(tg_frame frame, tg_frame_info *info, tg_error *error)
{
    const uint8_t *h = frame.data;
    if (!h || !info)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_frame_read: frame and info must not be NULL");
    if (frame.size >= sizeof magic && memcmp(h, magic, sizeof magic) != 0)
        return tg_fail(error, TG_NOT_A_FRAME, "not a Tersegrad frame: it starts with %02x %02x %02x %02x", h[0], h[1],
                       h[2], h[3]);
    if (frame.size < TG_HEADER_SIZE)
        return tg_fail(error, TG_TRUNCATED, "%zu bytes are too short for a frame: the header has %u", frame.size,
                       TG_HEADER_SIZE);
    if (h[4] == UNSTABLE_VERSION)
        return tg_fail(error, TG_UNKNOWN_VERSION,
                       "the frame has format version 0, which was never released as stable; encode it again with "
                       "tersegrad %s, which reads and writes version %d",
                       TG_VERSION_TEXT, VERSION);
    if (h[4] != VERSION)
        return tg_fail(error, TG_UNKNOWN_VERSION, "the frame has format version %u; tersegrad %s supports version %d",
                       h[4], TG_VERSION_TEXT, VERSION);
    tg_frame_info read = {.version = h[4],
                          .dtype = (tg_dtype)h[5],
                          .has_checksum = h[6] & FLAG_CHECKSUM,
                          .layout = h[7],
                          .spec = {.codec = h[8],
                                   .choices = h[9],
                                   .levels = tg_load16(h + 10),
                                   .bucket = tg_load32(h + 12),
                                   .amount = tg_load32(h + 16)},
                          .draw = {.tensor = tg_load32(h + 20),
                                   .seed = tg_load64(h + 40),
                                   .step = tg_load64(h + 48),
                                   .rank = tg_load32(h + 56)},
                          .count = tg_load64(h + 24)};
    uint64_t payload = tg_load64(h + 32);
    if (payload != frame.size - TG_HEADER_SIZE)
        return tg_fail(error, payload > frame.size - TG_HEADER_SIZE ? TG_TRUNCATED : TG_TRAILING_BYTES,
                       "wrong length: the header gives a payload of %" PRIu64 " bytes, and there are %zu", payload,
                       frame.size - TG_HEADER_SIZE);
    tg_status status = tg_spec_check(&read.spec, error);
    if (status != TG_OK)
        return status == TG_UNKNOWN_CODEC ? status : TG_CORRUPT;
    if (tg_dtype_size(read.dtype) == 0)
        return tg_fail(error, TG_CORRUPT, "header: invalid dtype %u", h[5]);
    if (h[6] & ~FLAG_CHECKSUM)
        return tg_fail(error, TG_CORRUPT, "header: the flags %#x set reserved bits", h[6]);
    if (!read.has_checksum && tg_header_checksum(h) != 0)
        return tg_fail(error, TG_CORRUPT, "header: a checksum is present, but its flag is not set");
    if (!layout_fits(&read.spec, read.layout))
        return tg_fail(error, TG_CORRUPT, "header: layout %u is invalid for the codec's coding", read.layout);
    if (read.count > TG_MAX_COUNT)
        return tg_fail(error, TG_CORRUPT, "header: the count %" PRIu64 " exceeds the limit of %" PRIu32, read.count,
                       TG_MAX_COUNT);
    read.bytes = frame.size;
    *info = read;
    return tg_succeed(error);
}

tg_payload tg_frame_payload(tg_frame frame, const tg_frame_info *info)
{
    return (tg_payload){.spec = &info->spec,
                        .dtype = info->dtype,
                        .layout = info->layout,
                        .count = info->count,
                        .bytes = (const uint8_t *)frame.data + TG_HEADER_SIZE,
                        .size = frame.size - TG_HEADER_SIZE};
}
