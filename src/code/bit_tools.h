/* Small bit operations that the coders share: lengths, mirror images, and peeking into a bit stream, so that a decoder
 * can read a whole code at once. */
#ifndef TG_CODE_BIT_TOOLS_H
#define TG_CODE_BIT_TOOLS_H

#include "base/bits.h"
#include "base/bytes.h"

/* Number of binary digits of m; m is not zero. */
static inline unsigned tg_bit_length(uint64_t m) { return 64u - (unsigned)__builtin_clzll(m); }

/* Number of zero bits below the lowest one; m is not zero. */
static inline unsigned tg_trailing_zeros(uint64_t m) { return (unsigned)__builtin_ctzll(m); }

/* The low `count` bits (1 to 32) of m in the opposite order. */
static inline uint32_t tg_bits_mirror(uint32_t m, unsigned count)
{
    m = (m >> 1 & 0x55555555u) | (m & 0x55555555u) << 1;
    m = (m >> 2 & 0x33333333u) | (m & 0x33333333u) << 2;
    m = (m >> 4 & 0x0f0f0f0fu) | (m & 0x0f0f0f0fu) << 4;
    m = (m >> 8 & 0x00ff00ffu) | (m & 0x00ff00ffu) << 8;
    m = m >> 16 | m << 16;
    return m >> (32 - count);
}

/* log2(m) in units of 2^-16, rounded down, by repeated squaring; exact for powers of two. m is not zero; of more than
 * 32 bits the lowest are ignored. */
static inline uint32_t tg_log2_fixed(uint64_t m)
{
    const unsigned whole = tg_bit_length(m) - 1;
    uint64_t x = whole > 31 ? m >> (whole - 31)
                            : m << (31 - whole); /* m / 2^whole, in [1, 2), with 31 bits of fraction */
    uint32_t result = whole;
    for (unsigned bit = 0; bit < 16; bit++) {
        x = x * x >> 31;
        result <<= 1;
        if (x >> 32) {
            result |= 1;
            x >>= 1;
        }
    }
    return result;
}

/* At least 57 bits from the reader's position on; the position does not change. Bits past the end are zeros: the caller
 * must check how many were left. */
static inline uint64_t tg_bits_peek(const tg_bit_reader *r)
{
    const uint64_t byte = r->position >> 3, left = (r->size >> 3) - byte;
    uint64_t bits = 0;
    if (left >= 8) {
        bits = tg_load64(r->in + byte);
    } else {
        for (unsigned i = 0; i < left; i++)
            bits |= (uint64_t)r->in[byte + i] << (8 * i);
    }
    return bits >> (r->position & 7);
}

/* Skips `count` bits that were peeked at; false, with `overrun` set, if there were fewer. */
static inline bool tg_bits_skip(tg_bit_reader *r, uint64_t count)
{
    if (count > r->size - r->position) {
        r->position = r->size;
        r->overrun = true;
        return false;
    }
    r->position += count;
    return true;
}

#endif
