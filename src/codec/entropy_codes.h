/* Codes below a given number in the entropy layout: digits in rANS streams, and separate low bits for codes of more
 * than 8 bits (docs/format.md, 4.3). Used for all levels, or for the non-zero ones. */
#ifndef TG_CODEC_ENTROPY_CODES_H
#define TG_CODEC_ENTROPY_CODES_H

#include "base/bytes.h"
#include "base/pool.h"
#include "code/entropy.h"
#include "kernels/kernels.h"

/* How a code is split. */
typedef struct tg_code_split {
    unsigned low;        /* low bits that are sent without coding */
    unsigned alphabet;   /* digits, code >> low, are below this */
    unsigned zero_digit; /* the digit of the middle code, values / 2 */
} tg_code_split;

tg_code_split tg_code_split_of(uint32_t values);

/* The most bytes of `count` codes below `values`. */
size_t tg_entropy_codes_bound(uint64_t count, uint32_t values);

/* Writing. The head has the fields and the table; then come the directory, the low bits, and the streams of the chunks,
 * each of which depends only on the plan and its own digits. */
uint8_t *tg_entropy_head_write(const tg_entropy_plan *plan, uint8_t *out);
static inline uint64_t tg_entropy_chunks(const tg_entropy_plan *plan, uint64_t count)
{
    return (count + (UINT64_C(1) << plan->chunk_log) - 1) >> plan->chunk_log;
}
/* Fills in the directory and writes the streams of all digits at `at`; returns their end. */
uint8_t *tg_entropy_streams_write(const tg_kernels *kernels, tg_pool *pool, const tg_entropy_plan *plan,
                                  const uint8_t *digits, uint64_t count, uint8_t *directory, uint8_t *at);

/* Reads untrusted bytes. */
typedef struct tg_entropy_codes {
    const tg_kernels *kernels;
    uint64_t count, position;
    unsigned low;
    const uint8_t *low_bits;
    const uint8_t *directory;      /* lengths of the chunks still to come */
    const uint8_t *stream;         /* where the next chunk starts */
    const uint8_t *end;            /* of all streams */
    uint64_t chunk, chunk_end;     /* codes of a chunk; where the open one ends */
    const tg_entropy_slots *slots; /* for the current call, where many digits are read; else NULL */
    tg_entropy_plan plan;
    tg_entropy_reader reader;
    bool any_open;
} tg_entropy_codes;

/* Opens `count` codes, at least one, which fill all that the cursor has left. */
bool tg_entropy_codes_open(tg_entropy_codes *r, const tg_kernels *kernels, tg_cursor *c, uint64_t count,
                           uint32_t values);
/* The next n codes, in multiples of TG_GROUP except for the last call, and at most TG_BLOCK. Codes with low bits may be
 * too large by less than 2^low. */
bool tg_entropy_codes_next(tg_entropy_codes *r, size_t n, uint16_t *codes);
/* Whether what was read, to the end of a chunk, was complete. */
bool tg_entropy_codes_done(const tg_entropy_codes *r);
/* Moves a newly opened reader to the chunk that starts at `first`. */
void tg_entropy_codes_seek(tg_entropy_codes *r, uint64_t first);

/* Whether the unused bits of the last byte are zero. */
bool tg_padding_is_zero(const uint8_t *packed, uint64_t count, unsigned width);

#endif
