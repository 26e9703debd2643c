/* A faster coder for the gaps between the indices of sparse vectors, which a kernel set may have. It covers whole
 * blocks only; the coder in src/code does short blocks and the last block of a segment itself. */
#ifndef TG_BASE_GAPS_ENGINE_H
#define TG_BASE_GAPS_ENGINE_H

#include "base/bits.h"

#define TG_RICE_BLOCK 256u /* gaps that share a Rice parameter */
#define TG_RICE_PARAMETER_MAX 30u

/* The size of a block of gaps in each mode. */
typedef struct tg_gaps_costs {
    unsigned parameter;     /* the lowest of the Rice parameters that give the fewest bits, not counting padding */
    uint64_t quotient_bits; /* what the quotients then take in unary */
    uint64_t omega_least;   /* a lower bound of the bits of the other mode, omega(gap + 1) of all gaps */
} tg_gaps_costs;

/* At least this many gaps must follow a block in its segment if an engine is to write it: the engine may write up to 8
 * bytes too many, which the quotients of these gaps then overwrite. */
#define TG_GAPS_SPILL 64u

typedef struct tg_gaps_engine {
    /* The gaps of 256 increasing indices, the first of which comes after `before`, which is 2^32 - 1 if counting starts
     * at 0. The gaps add up to less than 2^32. */
    tg_gaps_costs (*weigh)(const uint32_t *indices, uint32_t before, uint32_t *gaps);
    /* Writes a block: its low bits at `low`, and its quotients to the stream that all blocks share. Up to 8 bytes
     * behind the end of that stream are undefined afterwards. */
    void (*write)(const uint32_t *gaps, unsigned parameter, uint8_t *low, tg_bit_writer *quotients);
    /* Reads a block from an untrusted stream, as tg_rice_read does. False, with nothing read, where the block is
     * unusual in any way; then the coder reads it itself. */
    bool (*read)(const uint8_t *low, unsigned parameter, tg_bit_reader *quotients, uint32_t length, uint64_t *following,
                 uint32_t *positions);
} tg_gaps_engine;

#endif
