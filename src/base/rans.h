/* A faster way to run the states of a rANS stream, where a machine has one: the coder in src/code says what is to be
 * done, the kernels do it. Only the shape that matters for speed is covered, 32 lanes and probabilities of 12 bits;
 * everything else, and the ends of streams, is the coder's own. */
#ifndef TG_BASE_RANS_H
#define TG_BASE_RANS_H

#include <stddef.h>
#include <stdint.h>

enum { TG_RANS_LANES = 32, TG_RANS_LOG = 12, TG_RANS_SLOTS = 1 << TG_RANS_LOG };

typedef struct tg_rans_engine {
    /* Encodes steps * 32 symbols, the last first, lane l of each step being symbols[32 * step + l]; words go downwards
     * from `end`, and their new end is returned. model[s] is the symbol's frequency, below 4096, and its start above
     * bit 16. At least 16 bytes below the last word are writable. */
    uint8_t *(*encode)(const uint32_t *model, uint32_t *state, const uint8_t *symbols, size_t steps, uint8_t *end);
    /* Decodes up to `steps` groups of 32 symbols and returns how many; stops where fewer than 40 words are left.
     * slots[i] holds the frequency of slot i's symbol in bits 0-11, i less its start in bits 12-23, and the symbol in
     * bits 24-31. */
    size_t (*decode)(const uint32_t *slots, uint32_t *state, const uint8_t **word, size_t *words, size_t steps,
                     uint8_t *symbols);
} tg_rans_engine;

#endif
