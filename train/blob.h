/* Bytes that grow while they are written, and are read with every length checked; and a digest of bytes. */
#ifndef TRAIN_BLOB_H
#define TRAIN_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct blob {
    uint8_t *bytes;
    size_t size, room;
    bool out_of_memory; /* once something did not fit, nothing more is written */
};
void blob_put(struct blob *blob, const void *bytes, size_t size);
void blob_put_number(struct blob *blob, uint64_t number);
void blob_put_real(struct blob *blob, double real);
/* A length and the bytes. */
void blob_put_block(struct blob *blob, const void *bytes, size_t size);
void blob_free(struct blob *blob);

struct blob_reader {
    const uint8_t *at, *end;
    bool is_bad; /* something was not there; what is read from then on is 0 */
};
void blob_get(struct blob_reader *reader, void *bytes, size_t size);
uint64_t blob_get_number(struct blob_reader *reader);
double blob_get_real(struct blob_reader *reader);
/* Where the block lies, and its size. */
const void *blob_get_block(struct blob_reader *reader, size_t *size);

/* 64 bits that change with any byte. Not for adversaries. */
uint64_t digest_bytes(const void *bytes, size_t size);
/* The same of floats, equal on every kind of machine. */
uint64_t digest_floats(const float *values, size_t count);

#endif
