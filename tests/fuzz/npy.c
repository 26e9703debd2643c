/* Any bytes as a .npy file. What is accepted has exactly its data behind the header, unpacks within its memory, and
 * what is written from it parses again. */
#include "common/npy.h"
#include "tests/fuzz/fuzz.h"

/* Unpacks a copy that has exactly the room the contract asks for. */
static enum npy_type unpack(const uint8_t *data, size_t size, const struct npy *npy, bool widen)
{
    const size_t room = widen && npy->type == NPY_F2 && (size_t)npy->count * 4 > size ? (size_t)npy->count * 4 : size;
    uint8_t *bytes = exact_buffer(room, 0xa5);
    memcpy(bytes, data, size);
    const enum npy_type type = npy_unpack(bytes, npy, widen);
    REQUIRE(type == NPY_F4 || (type == NPY_F2 && npy->type == NPY_F2 && !widen), "unpacked to %d bytes", (int)type);
    free(bytes);
    return type;
}

static void check_header(enum npy_type type, uint64_t count)
{
    char header[NPY_HEADER_MAX];
    const size_t length = npy_write_header(type, count, header);
    REQUIRE(length <= sizeof header && length % 64 == 0, "a header of %zu bytes", length);
    const size_t size = length + (size_t)count * type;
    uint8_t *file = exact_buffer(size, 0);
    memcpy(file, header, length);
    struct npy again;
    struct failure failure;
    REQUIRE(npy_parse(file, size, &again, &failure), "our own file: %s", failure.text);
    REQUIRE(again.type == type && again.count == count && !again.big_endian && again.dimensions == 1 &&
                again.data_offset == length,
            "our own file reads as another");
    free(file);
}

/* What only the reader of data takes: whole numbers that float32 has, or a place within. */
static void check_integers(const uint8_t *data, size_t size)
{
    struct npy npy;
    struct failure failure = {{0}};
    uint64_t where = 0;
    if (!npy_parse_any(data, size, &npy, &failure) || npy.type != NPY_INTEGER)
        return;
    REQUIRE(npy.data_offset <= size && npy.count * npy.size == size - npy.data_offset, "%zu bytes of data",
            size - npy.data_offset);
    float *values = exact_buffer((size_t)npy.count * sizeof *values, 0);
    const bool fits = npy_integers(data, &npy, values, &where);
    REQUIRE(fits || where < npy.count, "element %llu is to blame", (unsigned long long)where);
    for (uint64_t i = 0; i < (fits ? npy.count : where); i++)
        REQUIRE(values[i] == (float)(int64_t)values[i] || values[i] >= 0x1p63f, "%g is no integer", (double)values[i]);
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct npy npy;
    struct failure failure = {{0}};
    check_integers(data, size);
    if (!npy_parse(data, size, &npy, &failure)) {
        REQUIRE(failure.text[0] != 0, "refused without a reason");
        return 0;
    }
    REQUIRE(npy_has_magic(data, size), "accepted without the magic");
    REQUIRE(npy.type == NPY_F2 || npy.type == NPY_F4 || npy.type == NPY_F8, "type %d", (int)npy.type);
    REQUIRE(npy.data_offset <= size && (size - npy.data_offset) / npy.type == npy.count &&
                (size - npy.data_offset) % npy.type == 0,
            "%zu bytes of data", size - npy.data_offset);
    check_header(unpack(data, size, &npy, false), npy.count);
    check_header(unpack(data, size, &npy, true), npy.count);
    return 0;
}
