/* XXH3 over chunks of 4096 bytes, then over the header and their digests. */
#include "frame/checksum.h"

#include <string.h>

#include "base/bytes.h"

#define XXH_INLINE_ALL
#include "xxhash.h"

enum { CHUNK = 4096, HEADER = 64, CHECKSUM_AT = 60, BATCH = 64 };

uint32_t tg_checksum(const uint8_t header[64], const uint8_t *payload, size_t size)
{
    XXH3_state_t root;
    XXH3_INITSTATE(&root);
    (void)XXH3_64bits_reset(&root);
    uint8_t buffer[BATCH * 8];
    memcpy(buffer, header, HEADER);
    memset(buffer + CHECKSUM_AT, 0, 4);
    (void)XXH3_64bits_update(&root, buffer, HEADER);
    size_t digests = 0;
    for (size_t at = 0; at < size; at += CHUNK) {
        size_t n = size - at < CHUNK ? size - at : CHUNK;
        tg_store64(buffer + 8 * digests++, XXH3_64bits(payload + at, n));
        if (digests == BATCH) {
            (void)XXH3_64bits_update(&root, buffer, sizeof buffer);
            digests = 0;
        }
    }
    (void)XXH3_64bits_update(&root, buffer, 8 * digests);
    return (uint32_t)XXH3_64bits_digest(&root);
}
