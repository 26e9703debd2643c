/* XXH3 over chunks of 4096 bytes, then over the header and their digests. */
#include "frame/checksum.h"

#include <string.h>

#include "base/bytes.h"

#define XXH_INLINE_ALL
#include "xxhash.h"

enum { HEADER = 64, CHECKSUM_AT = 60, BATCH = 64 };

uint32_t tg_checksum(const tg_kernels *kernels, const uint8_t header[64], const uint8_t *payload, size_t size,
                     const tg_digests *known)
{
    XXH3_state_t root;
    XXH3_INITSTATE(&root);
    (void)XXH3_64bits_reset(&root);
    uint8_t buffer[BATCH * 8];
    memcpy(buffer, header, HEADER);
    memset(buffer + CHECKSUM_AT, 0, 4);
    (void)XXH3_64bits_update(&root, buffer, HEADER);
    size_t digests = 0;
    for (size_t chunk = 0; chunk * TG_CHUNK < size; chunk++) {
        size_t at = chunk * TG_CHUNK, n = size - at < TG_CHUNK ? size - at : TG_CHUNK;
        bool is_known = known && chunk >= known->from && chunk < known->to;
        tg_store64(buffer + 8 * digests++, is_known ? known->of[chunk] : kernels->digest(payload + at, n));
        if (digests == BATCH) {
            (void)XXH3_64bits_update(&root, buffer, sizeof buffer);
            digests = 0;
        }
    }
    (void)XXH3_64bits_update(&root, buffer, 8 * digests);
    return (uint32_t)XXH3_64bits_digest(&root);
}
