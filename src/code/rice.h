/* Blocks of Rice coded gaps, the main mode of the index streams of sparse vectors. docs/format.md, 6, mode 0. */
#ifndef TG_CODE_RICE_H
#define TG_CODE_RICE_H

#include "base/gaps_engine.h"

/* The gaps of r increasing indices, 1 to 256, the first of which comes after `before`, as in tg_gaps_engine; zeros
 * after the last one. Returns their size in each mode, computed by the functions below for short blocks or without an
 * engine. */
tg_gaps_costs tg_gaps_weigh(const tg_gaps_engine *engine, const uint32_t *indices, unsigned r, uint32_t before,
                            uint32_t *gaps);
/* The gaps alone. */
void tg_gaps_take(const uint32_t *indices, unsigned r, uint32_t before, uint32_t *gaps);

/* The functions below take a whole block of gaps, of which the first r count (1 to 256) and the others are zero; the
 * gaps add up to less than 2^32, and those to be written are below 2^30 each. */

/* The parameter for a block whose gaps add up to `sum`: the lowest of those that give the fewest bits, not counting
 * padding. *quotient_bits is what the quotients then take in unary. */
unsigned tg_rice_choose(const uint32_t *gaps, unsigned r, uint64_t sum, uint64_t *quotient_bits);

/* Bits that omega(gap + 1) takes for all gaps of a block: the other mode, for comparison. */
uint64_t tg_gaps_omega_bits(const uint32_t *gaps, unsigned r);
/* A lower bound of the same, which is faster to compute. */
uint64_t tg_gaps_omega_least(const uint32_t *gaps, unsigned r);

/* Bytes of the low bits of a block. */
static inline size_t tg_rice_low_size(unsigned r, unsigned parameter) { return ((size_t)r * parameter + 7) / 8; }

/* Writes a block: its low bits at `out`, whose end is returned, and its quotients to the stream that all blocks share.
 * With an engine the block must be a whole one. */
uint8_t *tg_rice_write(const tg_gaps_engine *engine, const uint32_t *gaps, unsigned r, unsigned parameter, uint8_t *out,
                       tg_bit_writer *quotients);

/* Reads a block, whose tg_rice_low_size() bytes of low bits lie at `low`, and converts its gaps to positions: the first
 * gap counts from *following, which becomes the last position plus one. False for padding that is not zero, quotients
 * that end early, and a position of `length` or more. The engine may be NULL. */
bool tg_rice_read(const tg_gaps_engine *engine, const uint8_t *low, unsigned r, unsigned parameter,
                  tg_bit_reader *quotients, uint32_t length, uint64_t *following, uint32_t *positions);

#endif
