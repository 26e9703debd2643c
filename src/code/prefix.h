/* A prefix code of bytes, in eight streams: less exact than rANS and several times as fast. docs/format.md, 4.5. */
#ifndef TG_CODE_PREFIX_H
#define TG_CODE_PREFIX_H

#include "base/bits.h"

#define TG_PREFIX_SYMBOLS 256u
#define TG_PREFIX_LONGEST 12u /* bits of a code */
#define TG_PREFIX_SLOTS (1u << TG_PREFIX_LONGEST)
#define TG_PREFIX_STREAMS 8u      /* byte y of a chunk is in stream y mod 8 */
#define TG_PREFIX_CHUNK_LEAST 12u /* log2 of the bytes that are coded together */
#define TG_PREFIX_CHUNK_MOST 17u
#define TG_PREFIX_TABLE (TG_PREFIX_SYMBOLS / 2) /* bytes of the lengths on the wire */
#define TG_PREFIX_ENTRY (2 * TG_PREFIX_STREAMS) /* bytes of a chunk's entry in the directory: its streams' sizes */
/* Most bytes of the streams of a whole chunk, and room to write those of any chunk in. */
#define TG_PREFIX_STREAMS_MAX(chunk_log) ((size_t)TG_PREFIX_LONGEST << (chunk_log) >> 3)
#define TG_PREFIX_ROOM(chunk_log) (TG_PREFIX_STREAMS_MAX(chunk_log) + TG_PREFIX_STREAMS * 16)

typedef uint64_t tg_byte_histogram[TG_PREFIX_SYMBOLS];
/* Adds bytes to a histogram: all of n, or the first of every `every` parts. Returns how many. */
#define TG_PREFIX_PART 4096u
size_t tg_bytes_count(const uint8_t *bytes, size_t n, unsigned every, uint64_t *histogram);

/* A code: how many bits each byte takes, 0 for those that do not occur. Canonical: codes in the order of (length, byte)
 * count upwards. */
typedef struct tg_prefix_code {
    uint8_t length[TG_PREFIX_SYMBOLS];
} tg_prefix_code;

/* The encoder's code lengths for bytes of at least two kinds: those of Huffman, limited to TG_PREFIX_LONGEST. Integers
 * only. */
void tg_prefix_make(tg_prefix_code *code, const uint64_t *histogram);
/* Bits that all bytes of a histogram take with a code; and at their own entropy, in units of 2^-16 bits and rounded
 * down a little. */
uint64_t tg_prefix_bits(const tg_prefix_code *code, const uint64_t *histogram);
uint64_t tg_bytes_entropy(const uint64_t *histogram);

void tg_prefix_table_write(const tg_prefix_code *code, uint8_t *out);
/* False unless the lengths make a complete code. */
bool tg_prefix_table_read(tg_prefix_code *code, const uint8_t *in);

/* The encoder's table: a code's length in the low byte, and its bits above, the first bit lowest. */
typedef struct tg_prefix_encoder {
    uint32_t entry[TG_PREFIX_SYMBOLS];
} tg_prefix_encoder;
void tg_prefix_encoder_make(tg_prefix_encoder *encoder, const tg_prefix_code *code);

/* Writes the streams of one chunk, of n <= 2^chunk_log bytes, and their sizes to its entry; returns the end. `room` has
 * TG_PREFIX_ROOM(chunk_log) bytes. */
uint8_t *tg_prefix_write(const tg_prefix_encoder *encoder, const uint8_t *bytes, size_t n, unsigned chunk_log,
                         uint8_t *room, uint8_t *entry, uint8_t *out);

/* The decoder's table, indexed by the next 12 bits: the length in the low byte and the symbol in the high one. */
typedef struct tg_prefix_slots {
    uint16_t slot[TG_PREFIX_SLOTS];
} tg_prefix_slots;
void tg_prefix_slots_make(tg_prefix_slots *slots, const tg_prefix_code *code);

/* Reads one chunk's streams, which are untrusted, part by part. A stream may be read over its end, into the next ones,
 * but not over the end of all; that it was not is known when all of it has been read. */
typedef struct tg_prefix_reader {
    const uint8_t *in;                    /* where the first stream begins */
    size_t readable;                      /* bytes from there on that exist */
    uint64_t position[TG_PREFIX_STREAMS]; /* of the next code of each stream, in bits from `in` */
    size_t end[TG_PREFIX_STREAMS];        /* of each stream, in bytes from `in` */
    size_t left;                          /* bytes to come */
} tg_prefix_reader;

/* The streams of n bytes lie one after the other at `in`, as long as the entry says. The caller has checked that they
 * are there; `readable` bytes are. */
void tg_prefix_open(tg_prefix_reader *reader, const uint8_t *entry, const uint8_t *in, size_t readable, size_t n);
/* Bytes of a chunk's streams. */
size_t tg_prefix_size(const uint8_t *entry);
/* The next `count` bytes; a multiple of TG_PREFIX_STREAMS but for the last call. False when there are fewer. */
bool tg_prefix_next(tg_prefix_reader *reader, const tg_prefix_slots *slots, size_t count, uint8_t *out);
/* True when everything was delivered and every stream was read to its end. */
bool tg_prefix_done(const tg_prefix_reader *reader);

#endif
