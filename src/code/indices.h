/* The index streams of sparse vectors: the increasing positions selected in one segment, as Rice coded gaps, Elias
 * coded gaps, or a bitmap, whichever is smallest. docs/format.md, 6. */
#ifndef TG_CODE_INDICES_H
#define TG_CODE_INDICES_H

#include "base/bits.h"
#include "code/rice.h"

enum { TG_INDEX_RICE = 0, TG_INDEX_ELIAS = 1, TG_INDEX_BITMAP = 2 }; /* as in the directory */

/* The encoder's g, segments of 2^g elements, such that one holds 2048 to 4095 of the selected indices on average, or
 * all of them. count and selected are below 2^32. */
unsigned tg_segment_log(uint64_t count, uint64_t selected);

/* The most bytes that a segment of this many elements can take: those of a bitmap, as the smallest mode is used. */
size_t tg_index_bound(size_t length);

/* Writes the m increasing positions indices[j] - base, all below length, in the smallest mode; returns the end. Uses at
 * most tg_index_bound(length) bytes at `out`. Without positions: mode 0 and no bytes. `engine` may be NULL; it changes
 * no byte. */
uint8_t *tg_index_write(const uint32_t *indices, size_t m, uint32_t base, uint32_t length, uint8_t *out, unsigned *mode,
                        const tg_gaps_engine *engine);

/* Reads one segment's stream, which is untrusted, part by part. */
typedef struct tg_index_reader {
    const tg_gaps_engine *engine;
    unsigned mode;
    bool broken;
    uint32_t length;           /* of the segment */
    size_t count;              /* positions in the stream */
    size_t decoded;            /* of these */
    size_t delivered;          /* of the decoded ones */
    uint64_t following;        /* the last decoded position plus one */
    tg_bit_reader bits;        /* Rice: the quotients; Elias, bitmap: everything */
    const uint8_t *parameters; /* Rice: of each block */
    const uint8_t *low_bits;   /* Rice: of the next block */
    const uint8_t *offsets;    /* Elias: where runs of gaps start */
    unsigned block_size;
    uint32_t block[TG_RICE_BLOCK]; /* the last decoded positions */
} tg_index_reader;

/* Opens `size` bytes at `in` as m positions below length. False if they cannot be that. The engine may be NULL. */
bool tg_index_open(tg_index_reader *reader, unsigned mode, const uint8_t *in, size_t size, size_t m, uint32_t length,
                   const tg_gaps_engine *engine);

/* Positions that are decoded and not delivered yet; none at the end. The caller adds how many it used to
 * reader->delivered. False when the stream breaks a rule. */
bool tg_index_peek(tg_index_reader *reader, const uint32_t **positions, size_t *n);

/* Delivers the next positions below `limit`, at most `room` of them, and their number in *got. Positions at or above
 * the limit remain for a later call. False when the stream breaks a rule; then the positions are invalid. */
bool tg_index_next(tg_index_reader *reader, uint32_t limit, size_t room, uint32_t *positions, size_t *got);

/* True when all m positions were delivered and the stream holds nothing more. */
bool tg_index_done(const tg_index_reader *reader);

#endif
