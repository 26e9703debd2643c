/* Any bytes as an IDX file. What is accepted has exactly its data behind the header. */
#include "train/idx.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = exact_buffer(size, 0);
    memcpy(bytes, data, size);
    struct idx idx;
    struct failure failure = {{0}};
    if (idx_parse(bytes, size, &idx, &failure)) {
        REQUIRE(idx.data_offset == 4 + 4 * (size_t)idx.dimensions && idx.data_offset <= size, "offset %zu",
                idx.data_offset);
        REQUIRE(idx.row_bytes == 0 || idx.rows <= size / idx.row_bytes, "rows of more bytes than there are");
        REQUIRE(idx.rows * idx.row_bytes == size - idx.data_offset, "data of another size");
    } else {
        REQUIRE(failure.text[0] != 0, "refused without a reason");
    }
    free(bytes);
    return 0;
}
