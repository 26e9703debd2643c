/* See blob.h. */
#include "blob.h"

#include "random.h"

#include <stdlib.h>
#include <string.h>

void blob_put(struct blob *blob, const void *bytes, size_t size)
{
    if (blob->out_of_memory || size == 0)
        return;
    if (size > blob->room - blob->size) {
        size_t room = blob->room + blob->room / 2 + size + 256;
        uint8_t *larger = room > blob->room ? realloc(blob->bytes, room) : NULL;
        if (!larger) {
            blob->out_of_memory = true;
            return;
        }
        blob->bytes = larger;
        blob->room = room;
    }
    memcpy(blob->bytes + blob->size, bytes, size);
    blob->size += size;
}

void blob_put_number(struct blob *blob, uint64_t number) { blob_put(blob, &number, sizeof number); }

void blob_put_real(struct blob *blob, double real) { blob_put(blob, &real, sizeof real); }

void blob_put_block(struct blob *blob, const void *bytes, size_t size)
{
    blob_put_number(blob, size);
    blob_put(blob, bytes, size);
}

void blob_free(struct blob *blob)
{
    free(blob->bytes);
    *blob = (struct blob){0};
}

void blob_get(struct blob_reader *reader, void *bytes, size_t size)
{
    if (reader->is_bad || size > (size_t)(reader->end - reader->at)) {
        reader->is_bad = true;
        memset(bytes, 0, size);
        return;
    }
    memcpy(bytes, reader->at, size);
    reader->at += size;
}

uint64_t blob_get_number(struct blob_reader *reader)
{
    uint64_t number;
    blob_get(reader, &number, sizeof number);
    return number;
}

double blob_get_real(struct blob_reader *reader)
{
    double real;
    blob_get(reader, &real, sizeof real);
    return real;
}

const void *blob_get_block(struct blob_reader *reader, size_t *size)
{
    uint64_t length = blob_get_number(reader);
    if (reader->is_bad || length > (uint64_t)(reader->end - reader->at)) {
        reader->is_bad = true;
        *size = 0;
        return "";
    }
    const uint8_t *start = reader->at;
    reader->at += length;
    *size = (size_t)length;
    return start;
}

uint64_t digest_bytes(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    uint64_t digest = mix_bits(size + UINT64_C(0x9e3779b97f4a7c15));
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word = 0;
        for (unsigned i = 0; i < 8; i++)
            word |= (uint64_t)at[i] << 8 * i;
        digest = mix_bits(digest ^ word) + word;
    }
    uint64_t rest = 0;
    for (size_t i = 0; i < size; i++)
        rest |= (uint64_t)at[i] << 8 * i;
    return mix_bits(digest ^ rest);
}

uint64_t digest_floats(const float *values, size_t count)
{
    uint64_t digest = mix_bits(count + 1);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        digest = mix_bits(digest ^ bits) + bits;
    }
    return digest;
}
