/* Rice coding of a block of gaps: low bits in lanes, four of which are one vector here, and quotients in unary. */
#include "code/rice.h"

#include <string.h>

#include "base/bytes.h"
#include "code/bit_tools.h"

/* Vectors of the compiler: where the processor has none, the compiler uses integers. */
typedef uint32_t quad __attribute__((vector_size(16)));
typedef int32_t signed_quad __attribute__((vector_size(16)));
typedef float float_quad __attribute__((vector_size(16)));

enum { LANES = 8, QUAD = 4, ROWS = 32 }; /* a whole block is 8 lanes of 32 rows */

static inline quad load(const uint32_t *p)
{
    quad q;
    memcpy(&q, p, sizeof q);
    return q;
}

static inline void store(uint32_t *p, quad q) { memcpy(p, &q, sizeof q); }

static inline uint64_t total(quad q) { return (uint64_t)q[0] + q[1] + q[2] + q[3]; }

void tg_gaps_take(const uint32_t *indices, unsigned r, uint32_t before, uint32_t *gaps)
{
    unsigned i = 1;
    gaps[0] = indices[0] - before - 1;
    for (; i + QUAD <= r; i += QUAD)
        store(gaps + i, load(indices + i) - load(indices + i - 1) - 1);
    for (; i < r; i++)
        gaps[i] = indices[i] - indices[i - 1] - 1;
    memset(gaps + r, 0, (TG_RICE_BLOCK - r) * sizeof *gaps);
}

/* ---- costs ---- */

static uint64_t sum_of_quotients(const uint32_t *gaps, unsigned parameter)
{
    quad a = {0}, b = {0};
    for (unsigned j = 0; j < TG_RICE_BLOCK; j += 2 * QUAD) {
        a += load(gaps + j) >> parameter;
        b += load(gaps + j + QUAD) >> parameter;
    }
    return total(a + b);
}

unsigned tg_rice_choose(const uint32_t *gaps, unsigned r, uint64_t sum, uint64_t *quotient_bits)
{
    /* Each step up costs r more low bits and saves quotient bits, and never saves more than the step before. So the
     * cost has a single minimum, which can be reached from any start; the mean gives a start that is close. */
    const uint64_t mean = sum / r;
    unsigned parameter = mean < 2 ? 0 : tg_bit_length(mean) - 1;
    parameter = parameter < TG_RICE_PARAMETER_MAX ? parameter : TG_RICE_PARAMETER_MAX;
    uint64_t quotients = sum_of_quotients(gaps, parameter);
    bool lowered = false;
    for (; parameter > 0; parameter--) {
        uint64_t below = sum_of_quotients(gaps, parameter - 1);
        if (below > quotients + r)
            break;
        quotients = below;
        lowered = true;
    }
    for (; !lowered && parameter < TG_RICE_PARAMETER_MAX; parameter++) {
        uint64_t above = sum_of_quotients(gaps, parameter + 1);
        if (above + r >= quotients)
            break;
        quotients = above;
    }
    *quotient_bits = quotients + r;
    return parameter;
}

/* omega(m) takes as many bits as m has binary digits, and 1 more from m = 2 on, 2 more from 4, 3 from 16, 1 from 256, 4
 * from 65536. `large`: there may be a gap above 65534. */
static inline uint64_t omega_bits(const uint32_t *gaps, bool large)
{
    quad bits = {0}, more = {0};
    for (unsigned j = 0; j < TG_RICE_BLOCK; j += QUAD) {
        quad m = load(gaps + j) + 1;
        /* The exponent of a float gives the number of digits. Clearing the second digit keeps it from rounding up to a
         * power of two. */
        float_quad f = __builtin_convertvector((signed_quad)(m & ~(m >> 1)), float_quad);
        quad exponent;
        memcpy(&exponent, &f, sizeof exponent);
        bits += exponent >> 23;
        /* Comparisons give -1 where they are true. */
        const signed_quad n = (signed_quad)m;
        quad few = (quad)(n > 15);
        more += few + few + few + (quad)(n > 255) + (quad)(n > 1);
        few = (quad)(n > 3);
        more += few + few;
        if (large)
            more += (quad)(n > 65535) << 2;
    }
    return total(bits) - UINT64_C(127) * TG_RICE_BLOCK + total(-more);
}

uint64_t tg_gaps_omega_bits(const uint32_t *gaps, unsigned r)
{
    quad any = {0};
    for (unsigned j = 0; j < TG_RICE_BLOCK; j += QUAD)
        any |= load(gaps + j);
    /* Each number has one digit more than its exponent; the gaps past the end are zeros and take one bit. */
    return r + (total(any) > 65000 ? omega_bits(gaps, true) : omega_bits(gaps, false));
}

uint64_t tg_gaps_omega_least(const uint32_t *gaps, unsigned r)
{
    /* omega takes at least 1, 3, 6, 11 and 16 bits from 1, 2, 4, 16 and 256 on. Comparisons give -1 where they are
     * true. */
    quad two = {0}, four = {0}, more = {0};
    for (unsigned j = 0; j < TG_RICE_BLOCK; j += QUAD) {
        const signed_quad gap = (signed_quad)load(gaps + j);
        two += (quad)(gap > 0);
        four += (quad)(gap > 2);
        more += (quad)(gap > 14) + (quad)(gap > 254);
    }
    return r + 2 * total(-two) + 3 * total(-four) + 5 * total(-more);
}

tg_gaps_costs tg_gaps_weigh(const tg_gaps_engine *engine, const uint32_t *indices, unsigned r, uint32_t before,
                            uint32_t *gaps)
{
    if (engine && r == TG_RICE_BLOCK)
        return engine->weigh(indices, before, gaps);
    tg_gaps_take(indices, r, before, gaps);
    tg_gaps_costs costs = {.omega_least = tg_gaps_omega_least(gaps, r)};
    costs.parameter = tg_rice_choose(gaps, r, (uint32_t)(indices[r - 1] - before - r), &costs.quotient_bits);
    return costs;
}

/* ---- writing ---- */

static void pack_block(const uint32_t *gaps, unsigned parameter, uint8_t *out)
{
    const uint32_t mask = (UINT32_C(1) << parameter) - 1;
    uint32_t words[LANES * TG_RICE_PARAMETER_MAX];
    quad left = {0}, right = {0};
    unsigned shift = 0, filled = 0;
    for (unsigned row = 0; row < ROWS; row++) {
        const quad a = load(gaps + LANES * row) & mask, b = load(gaps + LANES * row + QUAD) & mask;
        left |= a << shift;
        right |= b << shift;
        shift += parameter;
        if (shift >= 32) {
            store(words + filled, left);
            store(words + filled + QUAD, right);
            filled += LANES;
            shift -= 32;
            left = a >> (parameter - shift);
            right = b >> (parameter - shift);
        }
    }
    for (unsigned i = 0; i < filled; i++)
        tg_store32(out + (size_t)4 * i, words[i]);
}

/* The plain stream of a short block. */
static uint8_t *pack_short(const uint32_t *gaps, unsigned r, unsigned parameter, uint8_t *out)
{
    const uint32_t mask = (UINT32_C(1) << parameter) - 1;
    uint64_t pending = 0;
    unsigned used = 0;
    for (unsigned j = 0; j < r; j++) {
        pending |= (uint64_t)(gaps[j] & mask) << used;
        used += parameter;
        if (used >= 32) {
            tg_store32(out, (uint32_t)pending);
            out += 4;
            pending >>= 32;
            used -= 32;
        }
    }
    for (unsigned left = 0; left < used; left += 8, pending >>= 8)
        *out++ = (uint8_t)pending;
    return out;
}

static void put_quotients(tg_bit_writer *w, const uint32_t *gaps, unsigned r, unsigned parameter)
{
    uint64_t pending = w->pending, used = w->pending_count;
    uint8_t *out = w->out;
    for (unsigned j = 0; j < r; j++) {
        used += gaps[j] >> parameter;
        while (used >= 64) {
            tg_store64(out, pending);
            out += 8;
            pending = 0;
            used -= 64;
        }
        pending |= UINT64_C(1) << used++;
    }
    for (; used >= 8; used -= 8, pending >>= 8)
        *out++ = (uint8_t)pending;
    *w = (tg_bit_writer){.out = out, .pending = pending, .pending_count = (unsigned)used};
}

uint8_t *tg_rice_write(const tg_gaps_engine *engine, const uint32_t *gaps, unsigned r, unsigned parameter, uint8_t *out,
                       tg_bit_writer *quotients)
{
    if (engine) {
        engine->write(gaps, parameter, out, quotients);
        return out + tg_rice_low_size(r, parameter);
    }
    put_quotients(quotients, gaps, r, parameter);
    if (r < TG_RICE_BLOCK)
        return pack_short(gaps, r, parameter, out);
    pack_block(gaps, parameter, out);
    return out + tg_rice_low_size(r, parameter);
}

/* ---- reading ---- */

static void unpack_block(const uint8_t *in, unsigned parameter, uint32_t *low)
{
    const uint32_t mask = (UINT32_C(1) << parameter) - 1;
    uint32_t words[LANES * (TG_RICE_PARAMETER_MAX + 1)] = {
        0}; /* one more row is loaded after the last one, and not used */
    for (unsigned i = 0; i < LANES * parameter; i++)
        words[i] = tg_load32(in + (size_t)4 * i);
    const uint32_t *next = words;
    quad left = load(next), right = load(next + QUAD);
    unsigned shift = 0;
    for (unsigned row = 0; row < ROWS; row++) {
        quad a = left >> shift, b = right >> shift;
        shift += parameter;
        if (shift >= 32) {
            next += LANES;
            left = load(next);
            right = load(next + QUAD);
            shift -= 32;
            a |= left << (parameter - shift);
            b |= right << (parameter - shift);
        }
        store(low + LANES * row, a & mask);
        store(low + LANES * row + QUAD, b & mask);
    }
}

/* False where padding is not zero. */
static bool unpack_short(const uint8_t *in, unsigned r, unsigned parameter, uint32_t *low)
{
    const unsigned used = r * parameter % 8;
    if (used != 0 && in[tg_rice_low_size(r, parameter) - 1] >> used != 0)
        return false;
    const uint32_t mask = (UINT32_C(1) << parameter) - 1;
    const size_t size = tg_rice_low_size(r, parameter);
    tg_bit_reader rest = tg_bit_reader_at(in, size);
    unsigned j = 0;
    for (; j < r && (rest.position >> 3) + 8 <= size; j++, rest.position += parameter)
        low[j] = (uint32_t)(tg_load64(in + (rest.position >> 3)) >> (rest.position & 7)) & mask;
    for (; j < r; j++)
        low[j] = tg_bits_get(&rest, parameter);
    return true;
}

/* Eight bytes from `byte` on, zeros past the end. */
static inline uint64_t word_at(const tg_bit_reader *r, uint64_t byte)
{
    const uint64_t left = (r->size >> 3) - byte;
    if (left >= 8)
        return tg_load64(r->in + byte);
    uint64_t word = 0;
    for (unsigned i = 0; i < left; i++)
        word |= (uint64_t)r->in[byte + i] << (8 * i);
    return word;
}

bool tg_rice_read(const tg_gaps_engine *engine, const uint8_t *low_bits, unsigned r, unsigned parameter,
                  tg_bit_reader *quotients, uint32_t length, uint64_t *following, uint32_t *positions)
{
    if (engine && r == TG_RICE_BLOCK && engine->read(low_bits, parameter, quotients, length, following, positions))
        return true;
    uint32_t low[TG_RICE_BLOCK];
    if (r == TG_RICE_BLOCK)
        unpack_block(low_bits, parameter, low);
    else if (!unpack_short(low_bits, r, parameter, low))
        return false;

    /* A one at bit p of the block's quotients with j ones before it means that there were p - j zeros so far in this
     * block. */
    const uint64_t start = quotients->position, bytes = quotients->size >> 3;
    const uint64_t longest = (uint64_t)(length >> parameter) +
                             TG_RICE_BLOCK; /* of all the block's quotients together */
    uint64_t origin = start, byte = start >> 3, word = word_at(quotients, byte) >> (start & 7);
    uint64_t base = *following, last = 0;
    unsigned j = 0, at = 0;
    for (;;) {
        for (uint64_t zeros = origin - start - j; word != 0 && j < r; word &= word - 1, j++, zeros--) {
            at = tg_trailing_zeros(word);
            base += low[j];
            last = base++ + ((zeros + at) << parameter);
            positions[j] = (uint32_t)last;
        }
        if (j == r)
            break;
        byte += 8;
        if (byte >= bytes || origin - start > longest)
            return false;
        origin = byte << 3;
        word = word_at(quotients, byte);
    }
    quotients->position = origin + at + 1;
    *following = last + 1;
    return last < length;
}
