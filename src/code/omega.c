/* Elias omega numbers. A number is a sequence of groups, each a binary number that gives the length of the next, and a
 * final zero bit. Groups start with their most significant bit, while bit streams start with the lowest, hence the
 * mirroring. */
#include "code/bit_tools.h"
#include "code/elias.h"

unsigned tg_omega_length(uint64_t m)
{
    unsigned length = 1;
    while (m > 1) {
        unsigned digits = tg_bit_length(m);
        length += digits;
        m = digits - 1;
    }
    return length;
}

/* The code of m < 2^32, first bit lowest: at most 2 + 3 + 5 + 32 bits and the zero. */
static uint64_t omega_code(uint64_t m, unsigned *length)
{
    uint64_t code = 0;
    unsigned bits = 1;
    while (m > 1) {
        unsigned digits = tg_bit_length(m);
        code = code << digits | tg_bits_mirror((uint32_t)m, digits);
        bits += digits;
        m = digits - 1;
    }
    *length = bits;
    return code;
}

static void put_long(tg_bit_writer *w, uint64_t code, unsigned length)
{
    if (length > 32) {
        tg_bits_put(w, (uint32_t)code, 32);
        code >>= 32;
        length -= 32;
    }
    tg_bits_put(w, (uint32_t)code, length);
}

void tg_omega_write(tg_bit_writer *w, uint64_t m)
{
    unsigned length;
    if (m >> 32 == 0) {
        uint64_t code = omega_code(m, &length);
        put_long(w, code, length);
        return;
    }
    /* A last group of 33 to 64 bits, after the groups of its length without their final zero. */
    unsigned digits = tg_bit_length(m);
    uint64_t code = omega_code(digits - 1, &length);
    put_long(w, code, length - 1);
    tg_bits_put(w, tg_bits_mirror((uint32_t)(m >> (digits - 32)), 32), 32);
    tg_bits_put(w, tg_bits_mirror((uint32_t)m, digits - 32), digits - 32);
    tg_bits_put(w, 0, 1);
}

/* Bit by bit: for the numbers that are too long for one peek. */
static bool read_slowly(tg_bit_reader *r, uint64_t *m)
{
    uint64_t value = 1;
    while (tg_bit_get(r)) {
        if (value > 63)
            return false;
        uint64_t group = 1;
        for (uint64_t i = 0; i < value; i++)
            group = group << 1 | tg_bit_get(r);
        if (r->overrun)
            return false;
        value = group;
    }
    *m = value;
    return !r->overrun;
}

bool tg_omega_read(tg_bit_reader *r, uint64_t *m)
{
    /* A group of up to 32 bits comes after at most 10 other bits, so the 57 bits of a peek are always enough. */
    const uint64_t bits = tg_bits_peek(r);
    uint64_t value = 1;
    unsigned used = 0;
    while (bits >> used & 1) {
        if (value > 31)
            return read_slowly(r, m);
        unsigned digits = (unsigned)value + 1;
        value = tg_bits_mirror((uint32_t)(bits >> used), digits);
        used += digits;
    }
    *m = value;
    return tg_bits_skip(r, used + 1);
}
