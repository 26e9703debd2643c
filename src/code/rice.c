/* Rice coding of a block of gaps: low bits in lanes, so that a vector unit can unpack them, and quotients in unary. */
#include "code/rice.h"

#include "base/lanes.h"
#include "code/bit_tools.h"

#define LANES 8u /* a whole block is 8 lanes of 32 rows */

static uint64_t sum_of_quotients(const uint32_t *gaps, unsigned r, unsigned parameter)
{
    uint64_t sum = 0;
    for (unsigned j = 0; j < r; j++)
        sum += gaps[j] >> parameter;
    return sum;
}

unsigned tg_rice_choose(const uint32_t *gaps, unsigned r, uint64_t *quotient_bits)
{
    /* Each step up costs r bits of low bits and saves bits of quotients, never more than the step before saved. So from
     * any start the minimum is downhill; near the mean it is close. */
    const uint64_t mean = sum_of_quotients(gaps, r, 0) / r;
    unsigned parameter = mean < 2 ? 0 : tg_bit_length(mean) - 1;
    uint64_t quotients = sum_of_quotients(gaps, r, parameter);
    for (; parameter > 0; parameter--) {
        uint64_t below = sum_of_quotients(gaps, r, parameter - 1);
        if (below > quotients + r)
            break;
        quotients = below;
    }
    for (; parameter < TG_RICE_PARAMETER_MAX; parameter++) {
        uint64_t above = sum_of_quotients(gaps, r, parameter + 1);
        if (above + r >= quotients)
            break;
        quotients = above;
    }
    *quotient_bits = quotients + r;
    return parameter;
}

size_t tg_rice_low_size(unsigned r, unsigned parameter)
{
    return ((size_t)r * parameter + 7) / 8;
}

static void put_unary(tg_bit_writer *w, uint32_t zeros)
{
    for (; zeros >= 32; zeros -= 32)
        tg_bits_put(w, 0, 32);
    tg_bits_put(w, UINT32_C(1) << zeros, zeros + 1);
}

uint8_t *tg_rice_write(const uint32_t *gaps, unsigned r, unsigned parameter, uint8_t *out, tg_bit_writer *quotients)
{
    uint32_t low[TG_RICE_BLOCK];
    for (unsigned j = 0; j < r; j++) {
        low[j] = gaps[j] & ((UINT32_C(1) << parameter) - 1);
        put_unary(quotients, gaps[j] >> parameter);
    }
    if (r < TG_RICE_BLOCK)
        return tg_tail_pack(low, r, parameter, out);
    tg_lanes_pack(low, LANES, parameter, out);
    return out + tg_rice_low_size(r, parameter);
}

/* The zeros before the next one bit. False when there is none, or more than `largest` zeros. */
static bool get_unary(tg_bit_reader *r, uint64_t largest, uint64_t *zeros)
{
    uint64_t bits, passed = 0;
    for (; (bits = tg_bits_peek(r)) == 0; passed += 57)
        if (!tg_bits_skip(r, 57))
            return false;
    *zeros = passed + tg_trailing_zeros(bits);
    return *zeros <= largest && tg_bits_skip(r, tg_trailing_zeros(bits) + 1);
}

bool tg_rice_read(const uint8_t *low, unsigned r, unsigned parameter, tg_bit_reader *quotients, uint32_t largest,
                  uint32_t *gaps)
{
    if (r < TG_RICE_BLOCK) {
        const unsigned used = r * parameter % 8;
        if (used != 0 && low[tg_rice_low_size(r, parameter) - 1] >> used != 0)
            return false;
        tg_tail_unpack(low, r, parameter, gaps);
    } else {
        tg_lanes_unpack(low, LANES, parameter, gaps);
    }
    for (unsigned j = 0; j < r; j++) {
        uint64_t quotient;
        if (!get_unary(quotients, largest >> parameter, &quotient))
            return false;
        gaps[j] |= (uint32_t)quotient << parameter;
    }
    return true;
}
