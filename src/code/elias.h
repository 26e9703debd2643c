/* Elias omega numbers, and the two layouts of quantised levels that use them: sparse (non-zero levels and the distances
 * between them) and dense (every level). docs/format.md, 4.2. */
#ifndef TG_CODE_ELIAS_H
#define TG_CODE_ELIAS_H

#include "base/bits.h"

/* omega(m) for any m >= 1. */
unsigned tg_omega_length(uint64_t m); /* in bits */
void tg_omega_write(tg_bit_writer *w, uint64_t m);
/* False when the stream ends first or the number does not fit 64 bits; the stream cannot be used after that. */
bool tg_omega_read(tg_bit_reader *r, uint64_t *m);

enum { TG_ELIAS_SPARSE = 1, TG_ELIAS_DENSE = 2 }; /* the values of the header's layout field */

/* Levels are coded in chunks of this many, each a stream of its own, with its size in an entry of the directory. */
#define TG_ELIAS_CHUNK 8192u
#define TG_ELIAS_ENTRY 2u /* bytes */

/* Exact length in bits of the stream of one chunk (n at most TG_ELIAS_CHUNK), before it is padded to bytes. */
uint64_t tg_elias_bits(int layout, const int16_t *levels, size_t n);

/* Writes one chunk in (tg_elias_bits() + 7) / 8 bytes and returns their end. */
uint8_t *tg_elias_write(int layout, const int16_t *levels, size_t n, uint8_t *out);

/* Reads one chunk's stream, which is untrusted, part by part. */
typedef struct tg_elias_reader {
    tg_bit_reader bits;
    size_t count;     /* levels in the chunk */
    size_t delivered; /* of these */
    unsigned max_level;
    int layout;
    bool broken;
    /* Sparse only: */
    uint64_t unread; /* non-zero levels still in the stream */
    size_t position; /* where the last level read belongs, plus one */
    int16_t level;   /* that level until it is delivered, else 0 */
} tg_elias_reader;

/* Opens `size` bytes at `in` as n levels, none above max_level (at most 32767). */
void tg_elias_open(tg_elias_reader *reader, int layout, const uint8_t *in, size_t size, size_t n, unsigned max_level);

/* The next `count` levels. False as soon as the stream breaks a rule, or when fewer levels are left. */
bool tg_elias_next(tg_elias_reader *reader, size_t count, int16_t *levels);

/* True when all n levels were delivered and the stream holds nothing more. */
bool tg_elias_done(const tg_elias_reader *reader);

#endif
