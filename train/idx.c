/* See idx.h. */
#include "idx.h"

#include <inttypes.h>

enum { UNSIGNED_BYTES = 8, MOST_DIMENSIONS = 8 };

bool idx_parse(const uint8_t *bytes, size_t size, struct idx *idx, struct failure *failure)
{
    if (size < 4 || bytes[0] != 0 || bytes[1] != 0)
        return fail(failure, "it is not an IDX file: it does not begin with two zero bytes");
    if (bytes[2] != UNSIGNED_BYTES)
        return fail(failure, "it holds values of type %u; only unsigned bytes (8) can be read", (unsigned)bytes[2]);
    unsigned dimensions = bytes[3];
    if (dimensions < 1 || dimensions > MOST_DIMENSIONS)
        return fail(failure, "it has %u dimensions; 1 to %d can be read", dimensions, MOST_DIMENSIONS);
    size_t offset = 4 + 4 * (size_t)dimensions;
    if (size < offset)
        return fail(failure, "it ends within its header");
    uint64_t data = size - offset, rows = 0, row_bytes = 1;
    for (unsigned i = 0; i < dimensions; i++) {
        const uint8_t *at = bytes + 4 + 4 * (size_t)i;
        uint64_t length = (uint64_t)at[0] << 24 | (uint64_t)at[1] << 16 | (uint64_t)at[2] << 8 | at[3];
        if (i == 0)
            rows = length;
        else if (length > 0 && row_bytes > data / length)
            row_bytes = data + 1; /* too large in any case; and it cannot overflow */
        else
            row_bytes *= length;
    }
    if (rows > 0 && row_bytes > data / rows)
        return fail(failure, "it is truncated: its header gives more than the %" PRIu64 " bytes that follow", data);
    if (rows * row_bytes != data)
        return fail(failure, "it has %" PRIu64 " bytes after its data", data - rows * row_bytes);
    *idx = (struct idx){dimensions, rows, row_bytes, offset};
    return true;
}
