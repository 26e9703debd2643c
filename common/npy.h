/* NumPy's .npy files, as https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html describes them:
 * versions 1 to 3, C order (Fortran order where it is the same), both byte orders, float16, float32 and float64, and
 * integers where the caller takes them. */
#ifndef COMMON_NPY_H
#define COMMON_NPY_H

#include "failure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum npy_type { NPY_INTEGER, NPY_F2 = 2, NPY_F4 = 4, NPY_F8 = 8 }; /* floats are their size */

struct npy {
    enum npy_type type;
    unsigned size;  /* of an element */
    bool is_signed; /* integers */
    bool big_endian;
    unsigned dimensions;
    bool has_one_order; /* at most one length of the shape is above 1: C and Fortran order are the same */
    uint64_t first;     /* the first length of the shape; 1 where it has none */
    uint64_t count;     /* elements: the product of the shape */
    size_t data_offset; /* where they start; all of them are there, and nothing follows them */
};

/* The first bytes of every .npy file. */
bool npy_has_magic(const uint8_t *bytes, size_t size);

/* Reads the header and checks that the data agree with it. Safe on any bytes. */
bool npy_parse(const uint8_t *bytes, size_t size, struct npy *npy, struct failure *failure);
/* The same, for floats, integers and booleans. */
bool npy_parse_any(const uint8_t *bytes, size_t size, struct npy *npy, struct failure *failure);

/* Moves the elements to the front of `bytes` (which must be aligned as malloc does), in this machine's byte order.
 * float64 is narrowed to float32 (overflow gives an infinity); with `widen`, float16 becomes float32, and `bytes` must
 * have room for 4 * count. Returns the type that results. */
enum npy_type npy_unpack(uint8_t *bytes, const struct npy *npy, bool widen);

/* Integers of a parsed file as float32. False if one is not exact in float32: *where is the first such. */
bool npy_integers(const uint8_t *bytes, const struct npy *npy, float *values, uint64_t *where);

/* The way back: this machine's byte order to little-endian, in place. */
void npy_pack(void *values, uint64_t count, enum npy_type type);

/* The header, version 1.0, of a flat little-endian vector. Returns its length, a multiple of 64. */
#define NPY_HEADER_MAX 128
size_t npy_write_header(enum npy_type type, uint64_t count, char header[NPY_HEADER_MAX]);

/* float16 to float32, exactly. */
float half_to_float(uint16_t half);

#endif
