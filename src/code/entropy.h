/* The entropy layout: rANS over the digits of quantised levels, with interleaved states, in chunks. A plan holds the
 * probabilities and the shape that all chunks of a vector share. The caller removes the low bits first. docs/format.md,
 * 4.3. */
#ifndef TG_CODE_ENTROPY_H
#define TG_CODE_ENTROPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rans_engine.h"

#define TG_ENTROPY_SYMBOLS 256u    /* most symbols a plan can have */
#define TG_ENTROPY_LANES 32u       /* most lanes */
#define TG_ENTROPY_CHUNK_LEAST 13u /* log2 of the elements in a chunk */
#define TG_ENTROPY_CHUNK_MOST 31u
#define TG_ENTROPY_TURNS_LOG 18u /* log2 of the elements of a lane in a chunk that is written, at most */
#define TG_ENTROPY_STATE 65536u  /* lowest value of a lane's state, and its value once all symbols are decoded */

/* Most bytes of a frequency table: omega(f + 1) is at most 16 + (f - 255) / 256 bits, and 256 frequencies sum to at
 * most 2^16, hence 4097 bits. */
#define TG_ENTROPY_TABLE_MAX 513u

typedef struct tg_entropy_plan {
    unsigned table_log; /* M: frequencies sum to 2^M */
    unsigned tuple;     /* t: digits in a symbol, 1 or 2 */
    bool mirrored;      /* the frequencies are the same on both sides of zero_digit, and one side is sent */
    /* frequencies are equal in runs of symbols, which get longer away from zero_digit, and are sent once per run */
    bool grouped;
    unsigned lane_log;   /* 0, 2 or 5 */
    unsigned chunk_log;  /* c: 2^c elements in a chunk */
    unsigned alphabet;   /* A: a digit is below it; at most 256, and 16 for pairs */
    unsigned symbols;    /* A^t */
    unsigned zero_digit; /* digit of level zero, which fills up the last pairs */
    uint64_t zeros;      /* how many digits equal zero_digit; only in an encoder's plan */
    uint32_t frequency[TG_ENTROPY_SYMBOLS];
    uint32_t start[TG_ENTROPY_SYMBOLS]; /* sum of the frequencies before it */
    uint8_t guess[257]; /* guess[i] is the symbol at i/256 of all slots: a search starts between two of these */
} tg_entropy_plan;

/* The encoder's choice for n digits, made with integers only and therefore the same on every machine. */
void tg_entropy_plan_make(tg_entropy_plan *plan, const uint8_t *digits, size_t n, unsigned alphabet,
                          unsigned zero_digit);

/* The frequency table on the wire; at most TG_ENTROPY_TABLE_MAX bytes. Write returns its end. */
size_t tg_entropy_table_size(const tg_entropy_plan *plan);
uint8_t *tg_entropy_table_write(const tg_entropy_plan *plan, uint8_t *out);

/* Completes a plan whose table_log, tuple, mirrored, grouped, lane_log, chunk_log, alphabet and zero_digit the caller
 * has filled in and checked. False when the table breaks a rule. */
bool tg_entropy_table_read(tg_entropy_plan *plan, const uint8_t *in, size_t size);

/* The most bytes that a chunk of this many elements can take, whatever the plan. */
size_t tg_entropy_chunk_bound(size_t elements);

/* Writes one chunk of digits that the plan was made for, and returns its end. Uses all of out[0 .. capacity) as working
 * memory. With a capacity of tg_entropy_chunk_bound(elements) it always fits; with less it returns NULL if it does not.
 * The engine may be NULL; it changes no byte. */
uint8_t *tg_entropy_write(const tg_entropy_plan *plan, const uint8_t *digits, size_t elements, uint8_t *out,
                          size_t capacity, const tg_rans_engine *engine);

/* Reads one chunk's stream, which is untrusted, part by part. The plan must outlive the reader. */
typedef struct tg_entropy_reader {
    const tg_entropy_plan *plan;
    const uint8_t *word; /* next unread word */
    size_t words;        /* unread words */
    size_t behind;       /* words behind these that can be read too, though they are not the chunk's */
    size_t elements;     /* in the chunk */
    size_t delivered;    /* of these */
    bool broken;
    uint32_t state[TG_ENTROPY_LANES];
} tg_entropy_reader;

/* False when the stream cannot be valid: too short for its states, half a word, a state out of range. `behind` bytes
 * follow it, which may be read but change nothing. */
bool tg_entropy_open(tg_entropy_reader *reader, const tg_entropy_plan *plan, const uint8_t *in, size_t size,
                     size_t behind, size_t elements);

/* The engine's decoding table, which pays off from a few thousand digits on. False if the engine does not support the
 * plan's shape. */
typedef struct tg_entropy_slots {
    const tg_rans_engine *engine;
    uint32_t slot[TG_RANS_SLOTS];
} tg_entropy_slots;
bool tg_entropy_slots_make(tg_entropy_slots *slots, const tg_entropy_plan *plan, const tg_rans_engine *engine);

/* The next `count` digits; a multiple of 32 except in the last call. False when words or elements run out. `slots` may
 * be NULL; it changes no digit. */
bool tg_entropy_next(tg_entropy_reader *reader, size_t count, uint8_t *digits, const tg_entropy_slots *slots);

/* True when all elements were delivered, all words used, and all states are back at their lowest. */
bool tg_entropy_done(const tg_entropy_reader *reader);

#endif
