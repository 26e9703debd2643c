/* Blocks of gaps with vectors of eight. Sizes are computed in one pass over the indices. Quotients are joined in
 * registers, eight in a word of 64 bits, before they are appended to the bit stream. */
#include "kernels/avx2/gaps.h"

#include "kernels/avx2/vector.h"

#if defined(__AVX2__)

#include "kernels/avx2/lanes.h"
#include "kernels/avx2/left_pack.h"

enum { ROWS = TG_RICE_BLOCK / V_LANES };

TG_INLINE uint64_t total(v_ints x)
{
    const __m256i pairs = _mm256_add_epi64(_mm256_and_si256(x, _mm256_set1_epi64x(0xffffffff)),
                                           _mm256_srli_epi64(x, 32));
    const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    return (uint64_t)_mm_cvtsi128_si64(two) + (uint64_t)_mm_extract_epi64(two, 1);
}

/* ---- costs ---- */

static uint64_t sum_of_quotients(const uint32_t *gaps, unsigned parameter)
{
    v_ints sum = v_int(0);
    for (unsigned i = 0; i < TG_RICE_BLOCK; i += V_LANES)
        sum = v_add(sum, v_shift_right(v_load_bits(gaps + i), parameter));
    return total(sum);
}

/* Counters of one pass over a block. Comparisons give -1 where they are true. */
typedef struct counters {
    v_ints lower, middle, upper; /* quotients for three parameters */
    v_ints two, four, more;      /* as in tg_gaps_omega_least */
} counters;

TG_INLINE void count(counters *c, v_ints gap, unsigned lower, unsigned middle)
{
    c->lower = v_add(c->lower, v_shift_right(gap, lower));
    c->middle = v_add(c->middle, v_shift_right(gap, middle));
    c->upper = v_add(c->upper, v_shift_right(gap, middle + 1));
    c->two = v_add(c->two, _mm256_cmpgt_epi32(gap, v_int(0)));
    c->four = v_add(c->four, _mm256_cmpgt_epi32(gap, v_int(2)));
    c->more = v_add(c->more, v_add(_mm256_cmpgt_epi32(gap, v_int(14)), _mm256_cmpgt_epi32(gap, v_int(254))));
}

TG_INLINE uint64_t held(v_ints x) { return total(_mm256_sub_epi32(v_int(0), x)); }

static tg_gaps_costs weigh(const uint32_t *indices, uint32_t before, uint32_t *gaps)
{
    /* The parameter that the mean suggests, as in tg_rice_choose. */
    const uint32_t mean = (indices[TG_RICE_BLOCK - 1] - before - TG_RICE_BLOCK) / TG_RICE_BLOCK;
    unsigned parameter = mean < 2 ? 0 : 31 - (unsigned)__builtin_clz(mean);
    const unsigned lower = parameter > 0 ? parameter - 1 : 0;
    counters c = {v_int(0), v_int(0), v_int(0), v_int(0), v_int(0), v_int(0)};
    /* The first eight go through memory, where the index before them can be put in front. */
    uint32_t first[V_LANES + 1] = {before};
    v_store_bits(first + 1, v_load_bits(indices));
    for (unsigned i = 0; i < TG_RICE_BLOCK; i += V_LANES) {
        const v_ints last = v_load_bits(i == 0 ? first : indices + i - 1);
        const v_ints gap = _mm256_sub_epi32(v_add(v_load_bits(indices + i), v_int(-1)), last);
        v_store_bits(gaps + i, gap);
        count(&c, gap, lower, parameter);
    }
    uint64_t quotients = total(c.middle), below = total(c.lower), above = total(c.upper);
    bool lowered = false;
    for (; parameter > 0 && below <= quotients + TG_RICE_BLOCK; lowered = true) {
        quotients = below;
        parameter--;
        below = parameter > 0 ? sum_of_quotients(gaps, parameter - 1) : 0;
    }
    for (; !lowered && parameter < TG_RICE_PARAMETER_MAX && above + TG_RICE_BLOCK < quotients;) {
        quotients = above;
        parameter++;
        above = sum_of_quotients(gaps, parameter + 1);
    }
    return (tg_gaps_costs){.parameter = parameter,
                           .quotient_bits = quotients + TG_RICE_BLOCK,
                           .omega_least = TG_RICE_BLOCK + 2 * held(c.two) + 3 * held(c.four) + 5 * held(c.more)};
}

/* ---- low bits ---- */

static void pack(const uint32_t *gaps, unsigned parameter, uint8_t *low)
{
    const v_ints mask = v_int((int)((UINT32_C(1) << parameter) - 1));
    v_ints word = v_int(0);
    unsigned used = 0;
    for (unsigned row = 0; row < ROWS; row++) {
        const v_ints here = v_and(v_load_bits(gaps + (size_t)V_LANES * row), mask);
        word = v_or(word, v_shift_left(here, used));
        used += parameter;
        if (used >= 32) {
            v_store_bits(low, word);
            low += sizeof word;
            used -= 32;
            word = v_shift_right(here, parameter - used);
        }
    }
}

/* ---- quotients ---- */

/* Codes and their lengths, in lanes of 64 bits. A length above 64 marks a code that does not fit and is not used. */
typedef struct codes {
    __m256i code, length;
} codes;

TG_INLINE codes join(__m256i first, __m256i first_length, __m256i second, __m256i second_length)
{
    return (codes){_mm256_or_si256(first, _mm256_sllv_epi64(second, first_length)),
                   _mm256_add_epi64(first_length, second_length)};
}

/* Pairs of neighbours. */
TG_INLINE codes pairs_of(const uint32_t *gaps, unsigned parameter)
{
    const __m256i low = _mm256_set1_epi64x(0xffffffff), quotient = v_shift_right(v_load_bits(gaps), parameter);
    const __m256i code = _mm256_sllv_epi32(v_int(1), quotient), length = v_add(quotient, v_int(1));
    return join(_mm256_and_si256(code, low), _mm256_and_si256(length, low), _mm256_srli_epi64(code, 32),
                _mm256_srli_epi64(length, 32));
}

/* A quotient is below 2^30, so no sum of lengths wraps. */
TG_INLINE void join_sixteen(const uint32_t *gaps, unsigned parameter, uint64_t code[2], uint64_t length[2])
{
    const codes a = pairs_of(gaps, parameter), b = pairs_of(gaps + V_LANES, parameter);
    const codes four = join(_mm256_unpacklo_epi64(a.code, b.code), _mm256_unpacklo_epi64(a.length, b.length),
                            _mm256_unpackhi_epi64(a.code, b.code), _mm256_unpackhi_epi64(a.length, b.length));
    const __m128i shift = _mm256_castsi256_si128(four.length);
    _mm_storeu_si128(
        (__m128i *)(void *)code,
        _mm_or_si128(_mm256_castsi256_si128(four.code), _mm_sllv_epi64(_mm256_extracti128_si256(four.code, 1), shift)));
    _mm_storeu_si128((__m128i *)(void *)length, _mm_add_epi64(shift, _mm256_extracti128_si256(four.length, 1)));
}

/* Writes eight quotients that take more than a word, one by one. */
static void put_long(tg_bit_writer *w, const uint32_t *gaps, unsigned parameter)
{
    for (unsigned i = 0; i < V_LANES; i++) {
        uint32_t zeros = gaps[i] >> parameter;
        for (; zeros > 31; zeros -= 32)
            tg_bits_put(w, 0, 32);
        tg_bits_put(w, UINT32_C(1) << zeros, zeros + 1);
    }
}

static void put_quotients(tg_bit_writer *w, const uint32_t *gaps, unsigned parameter)
{
    /* Eight quotients that fit in this many bits have none of more than 32 bits, which would be truncated, and leave
     * room for the 7 bits that may be pending. */
    enum { GROUPS = TG_RICE_BLOCK / V_LANES, MOST = 32 + 7 };
    uint64_t code[GROUPS], length[GROUPS];
    for (unsigned i = 0; i < GROUPS; i += 2)
        join_sixteen(gaps + (size_t)V_LANES * i, parameter, code + i, length + i);
    uint64_t pending = w->pending, used = w->pending_count;
    uint8_t *out = w->out;
    for (unsigned i = 0; i < GROUPS; i++) {
        if (length[i] > MOST) {
            *w = (tg_bit_writer){.out = out, .pending = pending, .pending_count = (unsigned)used};
            put_long(w, gaps + (size_t)V_LANES * i, parameter);
            pending = w->pending;
            used = w->pending_count;
            out = w->out;
            continue;
        }
        pending |= code[i] << used;
        tg_store64(out, pending);
        used += length[i];
        out += used >> 3;
        pending >>= used & 56;
        used &= 7;
    }
    *w = (tg_bit_writer){.out = out, .pending = pending, .pending_count = (unsigned)used};
}

static void write(const uint32_t *gaps, unsigned parameter, uint8_t *low, tg_bit_writer *quotients)
{
    put_quotients(quotients, gaps, parameter);
    pack(gaps, parameter, low);
}

/* ---- reading ---- */

/* Above these limits, sums of 256 gaps may not fit 32 bits. */
enum { PARAMETER_READ = 20, LENGTH_READ = 1 << 30 };

/* Finds the positions of the first 256 ones of a stream, from its position on; false if there are fewer, or they are
 * further apart than `longest` allows. Writes up to 63 positions more. */
static bool find_ones(const tg_bit_reader *r, uint64_t longest, uint32_t *ones)
{
    const uint64_t bytes = r->size >> 3, start = r->position;
    uint64_t byte = start >> 3, skipped = start & 7;
    for (unsigned found = 0; found < TG_RICE_BLOCK; byte += 8, skipped = 0) {
        if (byte + 8 > bytes || 8 * byte > start + longest)
            return false;
        uint64_t word = tg_load64(r->in + byte) >> skipped << skipped;
        v_ints origin = v_int((int)(uint32_t)(8 * byte - start));
        for (unsigned i = 0; i < 8; i++, word >>= 8) {
            v_store_bits(ones + found, v_add(origin, tg_lanes_of((unsigned)word & 0xff)));
            found += (unsigned)__builtin_popcount((unsigned)word & 0xff);
            origin = v_add(origin, v_int(8));
        }
    }
    return true;
}

/* Prefix sums: each lane plus all lanes below it. */
TG_INLINE v_ints sums_so_far(v_ints x)
{
    x = v_add(x, _mm256_slli_si256(x, 4));
    x = v_add(x, _mm256_slli_si256(x, 8));
    const v_ints fourth = _mm256_permutevar8x32_epi32(x, v_int(3));
    return v_add(x, _mm256_blend_epi32(fourth, v_int(0), 0x0f));
}

static bool read(const uint8_t *low, unsigned parameter, tg_bit_reader *quotients, uint32_t length, uint64_t *following,
                 uint32_t *positions)
{
    uint32_t ones[TG_RICE_BLOCK + 64];
    if (parameter > PARAMETER_READ || length > LENGTH_READ ||
        !find_ones(quotients, (uint64_t)(length >> parameter) + TG_RICE_BLOCK, ones))
        return false;
    const v_ints mask = v_int((int)((UINT32_C(1) << parameter) - 1)), last = v_int(V_LANES - 1);
    v_ints word = parameter > 0 ? v_load_bits(low) : v_int(0), rank = tg_count_from(0),
           sum = v_int((int)(uint32_t)*following);
    unsigned used = 0;
    for (unsigned row = 0; row < ROWS; row++) {
        v_ints here = v_shift_right(word, used);
        used += parameter;
        if (used >= 32 && row + 1 < ROWS) {
            low += sizeof word;
            word = v_load_bits(low);
            used -= 32;
            here = v_or(here, v_shift_left(word, parameter - used));
        }
        /* A one with `rank` ones before it gives the number of zeros so far. */
        const v_ints zeros = _mm256_sub_epi32(v_load_bits(ones + (size_t)V_LANES * row), rank);
        const v_ints sums = v_add(sum, sums_so_far(v_and(here, mask)));
        v_store_bits(positions + (size_t)V_LANES * row, v_add(v_add(sums, rank), v_shift_left(zeros, parameter)));
        sum = _mm256_permutevar8x32_epi32(sums, last);
        rank = v_add(rank, v_int(V_LANES));
    }
    const uint32_t end = positions[TG_RICE_BLOCK - 1];
    if (end >= length)
        return false;
    quotients->position += ones[TG_RICE_BLOCK - 1] + 1;
    *following = (uint64_t)end + 1;
    return true;
}

const tg_gaps_engine tg_gaps_avx2 = {.weigh = weigh, .write = write, .read = read};

#endif
