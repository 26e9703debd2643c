/* A faster way to code the gaps of sparse vectors' indices, where a machine has one: the coder in src/code says what is
 * to be done, the kernels do it. Only whole blocks are covered; short ones, and the last of a segment, are the coder's
 * own. */
#ifndef TG_BASE_GAPS_H
#define TG_BASE_GAPS_H

#include "base/bits.h"

#define TG_RICE_BLOCK 256u /* gaps that share a parameter */
#define TG_RICE_PARAMETER_MAX 30u

/* What a block of gaps takes. */
typedef struct tg_gaps_costs {
    unsigned parameter;     /* the lowest of the Rice parameters that give the fewest bits, not counting padding */
    uint64_t quotient_bits; /* what the quotients then take in unary */
    uint64_t omega_least;   /* omega(gap + 1) of all gaps takes at least so many bits: the other mode, for comparison */
} tg_gaps_costs;

/* So many gaps must follow a block in its segment where an engine is to write it: their quotients take up what it may
 * spill. */
#define TG_GAPS_SPILL 64u

typedef struct tg_gaps_engine {
    /* The gaps of 256 increasing indices, the first of which comes after `before`, which is 2^32 - 1 for an index that
     * counts from 0. They add up to less than 2^32. */
    tg_gaps_costs (*weigh)(const uint32_t *indices, uint32_t before, uint32_t *gaps);
    /* Writes a block: its low bits at `low`, and its quotients to the stream all blocks share, behind whose end up to 8
     * bytes may be left in any state. */
    void (*write)(const uint32_t *gaps, unsigned parameter, uint8_t *low, tg_bit_writer *quotients);
    /* Reads a block from a stream that may hold anything, as tg_rice_read does. False, and nothing has been taken,
     * where there is anything unusual about it: then the coder looks for itself. */
    bool (*read)(const uint8_t *low, unsigned parameter, tg_bit_reader *quotients, uint32_t length, uint64_t *following,
                 uint32_t *positions);
} tg_gaps_engine;

#endif
