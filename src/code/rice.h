/* Blocks of Rice coded gaps, as they stand in the index streams of sparse vectors. docs/format.md, 6, mode 0. */
#ifndef TG_CODE_RICE_H
#define TG_CODE_RICE_H

#include "base/bits.h"

#define TG_RICE_BLOCK 256u /* gaps that share a parameter */
#define TG_RICE_PARAMETER_MAX 30u

/* The parameter for a block of r gaps (1 to 256, each below 2^30): the lowest of those that give the fewest bits, not
 * counting padding. *quotient_bits is what the quotients then take in unary. */
unsigned tg_rice_choose(const uint32_t *gaps, unsigned r, uint64_t *quotient_bits);

/* Bytes of the low bits of a block. */
size_t tg_rice_low_size(unsigned r, unsigned parameter);

/* Writes a block: its low bits at `out`, whose end is returned, and its quotients to the stream all blocks share. */
uint8_t *tg_rice_write(const uint32_t *gaps, unsigned r, unsigned parameter, uint8_t *out, tg_bit_writer *quotients);

/* Reads a block, whose tg_rice_low_size() bytes of low bits lie at `low`. False on padding that is not zero, on
 * quotients that end early, and on one whose gap must be above `largest`; the low bits can still make a gap larger. */
bool tg_rice_read(const uint8_t *low, unsigned r, unsigned parameter, tg_bit_reader *quotients, uint32_t largest,
                  uint32_t *gaps);

#endif
