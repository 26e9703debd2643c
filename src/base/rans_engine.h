/* A faster coder for the states of a rANS stream, which a kernel set may have. It covers only the shape that matters
 * for speed, 32 lanes and probabilities of 12 bits; the coder in src/code does everything else, and the ends of
 * streams. */
#ifndef TG_BASE_RANS_ENGINE_H
#define TG_BASE_RANS_ENGINE_H

#include <stddef.h>
#include <stdint.h>

enum { TG_RANS_LANES = 32, TG_RANS_LOG = 12, TG_RANS_SLOTS = 1 << TG_RANS_LOG };

typedef struct tg_rans_engine {
    /* Encodes steps * 32 symbols in reverse order; lane l of a step is symbols[32 * step + l]. Words are written
     * downwards from `end`; returns where they begin. model[s] is the symbol's frequency, below 4096, and its start
     * from bit 16 on. At least 16 bytes below the last word must be writable. */
    uint8_t *(*encode)(const uint32_t *model, uint32_t *state, const uint8_t *symbols, size_t steps, uint8_t *end);
    /* Decodes up to `steps` groups of 32 symbols and returns how many; stops where fewer than 40 words are left.
     * slots[i] holds the frequency of slot i's symbol in bits 0-11, i less its start in bits 12-23, and the symbol in
     * bits 24-31. */
    size_t (*decode)(const uint32_t *slots, uint32_t *state, const uint8_t **word, size_t *words, size_t steps,
                     uint8_t *symbols);
} tg_rans_engine;

#endif
