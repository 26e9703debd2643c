/* How the entropy layout is set up for a vector: the encoder's choice of pairs, probabilities, lanes and chunks, and
 * the frequency table on the wire. Every choice is made with integers, so that every machine writes the same bytes. */
#include "base/bits.h"
#include "code/bit_tools.h"
#include "code/elias.h"
#include "code/entropy.h"

#include <string.h>

typedef struct histogram {
    uint64_t count[TG_ENTROPY_SYMBOLS];
    uint64_t total;
    unsigned symbols;
} histogram;

/* Several tables in turn: with one, runs of the same symbol would wait for the last increment to be stored. */
enum { TABLES = 4 };
typedef uint32_t counters[TABLES][TG_ENTROPY_SYMBOLS];

static void add_up(histogram *h, counters part, unsigned symbols, uint64_t total)
{
    h->symbols = symbols;
    h->total = total;
    memset(h->count, 0, sizeof h->count);
    for (unsigned k = 0; k < TABLES; k++)
        for (unsigned s = 0; s < symbols; s++)
            h->count[s] += part[k][s];
}

static void count_digits(histogram *h, const uint8_t *digits, size_t n, unsigned alphabet)
{
    counters part = {{0}};
    for (size_t i = 0; i < n; i++)
        part[i % TABLES][digits[i]]++;
    add_up(h, part, alphabet, n);
}

static void count_pairs(histogram *h, const uint8_t *digits, size_t n, unsigned alphabet, unsigned zero_digit)
{
    counters part = {{0}};
    size_t run = 0;
    for (; n - run >= 32; run += 32) {
        const uint8_t *first = digits + run, *second = first + 16;
        for (unsigned i = 0; i < 16; i++)
            part[i % TABLES][first[i] + alphabet * second[i]]++;
    }
    for (size_t a = run; run < n && a < run + 16; a++) {
        unsigned first = a < n ? digits[a] : zero_digit;
        unsigned second = a + 16 < n ? digits[a + 16] : zero_digit;
        part[0][first + alphabet * second]++;
    }
    add_up(h, part, alphabet * alphabet, (n + 31) / 32 * 16);
}

/* The digits' histogram from that of their pairs: every pair has two, and what completed the last run goes off again. */
static void digits_of_pairs(histogram *digits, const histogram *pairs, size_t n, unsigned alphabet, unsigned zero_digit)
{
    memset(digits->count, 0, sizeof digits->count);
    digits->symbols = alphabet;
    digits->total = n;
    for (unsigned s = 0; s < pairs->symbols; s++) {
        digits->count[s % alphabet] += pairs->count[s];
        digits->count[s / alphabet] += pairs->count[s];
    }
    digits->count[zero_digit] -= 2 * pairs->total - n;
}

/* Index of the largest count; the lowest wins a tie. */
static unsigned most_frequent(const uint64_t *count, unsigned symbols)
{
    unsigned best = 0;
    for (unsigned s = 1; s < symbols; s++)
        if (count[s] > count[best])
            best = s;
    return best;
}

static unsigned largest_frequency(const uint32_t *frequency, unsigned symbols)
{
    unsigned best = 0;
    for (unsigned s = 1; s < symbols; s++)
        if (frequency[s] > frequency[best])
            best = s;
    return best;
}

/* Rounds shares of the total to units of 2^-table_log, none to zero; returns their sum. */
static uint32_t round_shares(const histogram *h, unsigned table_log, uint32_t *frequency)
{
    uint32_t sum = 0;
    for (unsigned s = 0; s < h->symbols; s++) {
        frequency[s] = 0;
        if (h->count[s] > 0) {
            frequency[s] = (uint32_t)(((h->count[s] << table_log) + h->total / 2) / h->total);
            if (frequency[s] == 0)
                frequency[s] = 1;
        }
        sum += frequency[s];
    }
    return sum;
}

/* Makes the rounded shares sum to one: what is missing goes to the most frequent symbol, what is too much is taken one by
 * one from the largest. */
static bool share_out(const histogram *h, unsigned table_log, uint32_t *frequency)
{
    const uint32_t whole = UINT32_C(1) << table_log;
    uint32_t sum = round_shares(h, table_log, frequency);
    if (sum < whole)
        frequency[most_frequent(h->count, h->symbols)] += whole - sum;
    for (; sum > whole; sum--)
        frequency[largest_frequency(frequency, h->symbols)]--;
    return true;
}

/* The same for a histogram that is its own mirror image: the difference is the middle symbol's. False if it cannot bear it. */
static bool share_out_mirrored(const histogram *h, unsigned table_log, uint32_t *frequency)
{
    const uint32_t whole = UINT32_C(1) << table_log, sum = round_shares(h, table_log, frequency);
    uint32_t *middle = &frequency[h->symbols / 2];
    if (sum > whole && *middle <= sum - whole)
        return false;
    *middle += whole - sum; /* wraps where it is to shrink */
    return true;
}

/* floor of log2(f) in units of 2^-16, by repeated squaring; exact for powers of two. */
static uint32_t log2_fixed(uint32_t f)
{
    const unsigned whole = tg_bit_length(f) - 1;
    uint64_t x = (uint64_t)f << (31 - whole); /* f / 2^whole, in [1, 2), with 31 bits of fraction */
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

/* Length of all streams together, in units of 2^-16 bits. */
static uint64_t stream_cost(const histogram *h, unsigned table_log, const uint32_t *frequency)
{
    uint64_t cost = 0;
    for (unsigned s = 0; s < h->symbols; s++)
        if (h->count[s] > 0)
            cost += h->count[s] * ((table_log << 16) - log2_fixed(frequency[s]));
    return cost;
}

/* Fills frequency with the chosen table for `shares` and returns the cost of the streams; UINT64_MAX if there is none. */
static uint64_t choose_table(tg_entropy_plan *plan, const histogram *h, const histogram *shares,
                             bool (*share)(const histogram *, unsigned, uint32_t *))
{
    static const unsigned choices[3] = {12, 14, 16};
    const uint64_t none = UINT64_MAX / 256; /* can be multiplied below */
    uint64_t cost[3], best = none;
    for (unsigned i = 0; i < 3; i++) {
        cost[i] = share(shares, choices[i], plan->frequency) ? stream_cost(h, choices[i], plan->frequency) : none;
        if (cost[i] < best)
            best = cost[i];
    }
    unsigned chosen = 0;
    while (chosen < 2 && cost[chosen] * 200 > best * 201)
        chosen++;
    plan->table_log = choices[chosen];
    return share(shares, plan->table_log, plan->frequency) ? cost[chosen] : UINT64_MAX;
}

static void mirror(histogram *h)
{
    for (unsigned low = 0, high = h->symbols - 1; low <= high; low++, high--)
        h->count[low] = h->count[high] = h->count[low] + h->count[high];
    h->total *= 2;
}

static uint64_t table_cost(const tg_entropy_plan *plan) { return (uint64_t)tg_entropy_table_size(plan) * 8 << 16; }

/* Takes one table for both sides of zero where that, with its table, is smaller. Returns the cost of the streams. */
static uint64_t choose_side(tg_entropy_plan *plan, const histogram *h)
{
    const uint64_t cost = choose_table(plan, h, h, share_out);
    if (plan->tuple != 1 || plan->alphabet % 2 == 0 || plan->zero_digit != plan->alphabet / 2)
        return cost;
    tg_entropy_plan other = *plan;
    histogram both = *h;
    mirror(&both);
    other.mirrored = true;
    const uint64_t mirrored = choose_table(&other, h, &both, share_out_mirrored);
    if (mirrored == UINT64_MAX || mirrored + table_cost(&other) >= cost + table_cost(plan))
        return cost;
    *plan = other;
    return mirrored;
}

/* The smallest chunk that is expected to take 32 KiB: bits << c >= n << 18, without the overflow. */
static unsigned choose_chunk(uint64_t bits, uint64_t n)
{
    for (unsigned c = 16; c < 31; c++) {
        uint64_t needed = c < 18 ? n << (18 - c) : (n + (UINT64_C(1) << (c - 18)) - 1) >> (c - 18);
        if (bits >= needed)
            return c;
    }
    return 31;
}

/* Fills in what follows from the frequencies. */
static void index_symbols(tg_entropy_plan *plan)
{
    uint32_t sum = 0;
    for (unsigned s = 0; s < plan->symbols; s++) {
        plan->start[s] = sum;
        sum += plan->frequency[s];
    }
    unsigned symbol = 0;
    for (uint32_t i = 0; i <= 256; i++) {
        const uint32_t slot = i << (plan->table_log - 8);
        while (symbol + 1 < plan->symbols && plan->start[symbol + 1] <= slot)
            symbol++;
        plan->guess[i] = (uint8_t)symbol;
    }
}

/* The rules, which docs/numerics.md states too, as they decide what bytes are written:
 *
 * 1. Pairs (t = 2) when n >= 2^18, A <= 16, and the most frequent digit makes up at most 7/8 of all; else t = 1.
 * 2. Symbols are counted over the whole vector, as if it were one chunk. (Chunks are whole runs of 32 elements, so this
 *    is also the sum over chunks.)
 * 3. For a given M a symbol that occurs gets f = max(1, (count * 2^M + total // 2) // total), one that does not gets 0.
 *    When these sum to less than 2^M, the most frequent symbol gets the difference; when to more, one is taken from
 *    the largest f, again and again. The lowest symbol wins a tie.
 * 4. The cost of M is the sum over symbols of count * (M * 2^16 - log2(f)), log2 in units of 2^-16 and rounded down.
 *    M is the first of 12, 14, 16 whose cost is at most 201/200 of the lowest of the three: smaller tables are faster.
 * 5. With t = 1 and zero in the middle of the digits the same is done with the counts of both sides added up, the difference to 2^M
 *    going to the middle; where streams and table together are then smaller (in units of 2^-16 bits, the table in whole
 *    bytes), the table is sent for one side only.
 * 6. With bits = cost // 2^16: 32 lanes when bits >= 131072, where their states cost little, else 4.
 * 7. c is the smallest of 16 to 31 with bits * 2^c >= n * 2^18, that is, with 32 KiB in a chunk on average; else 31. */
void tg_entropy_plan_make(tg_entropy_plan *plan, const uint8_t *digits, size_t n, unsigned alphabet,
                          unsigned zero_digit)
{
    histogram h;
    memset(plan, 0, sizeof *plan);
    plan->alphabet = alphabet;
    plan->zero_digit = zero_digit;
    plan->tuple = 1;
    if (n >= 1u << 18 && alphabet <= 16) {
        histogram pairs;
        count_pairs(&pairs, digits, n, alphabet, zero_digit);
        digits_of_pairs(&h, &pairs, n, alphabet, zero_digit);
        if (h.count[most_frequent(h.count, alphabet)] * 8 <= (uint64_t)n * 7) {
            plan->tuple = 2;
            h = pairs;
        }
    } else {
        count_digits(&h, digits, n, alphabet);
    }
    if (n == 0) /* nothing will be written with this plan, but let it be a sound one */
        h.total = h.count[zero_digit] = 1;
    plan->symbols = h.symbols;
    const uint64_t bits = choose_side(plan, &h) >> 16;
    plan->lane_log = bits >= 16384 * 8 ? 5 : 2;
    plan->chunk_log = choose_chunk(bits, n);
    index_symbols(plan);
}

/* How many symbols the table lists: the first of them. */
static unsigned listed(const tg_entropy_plan *plan)
{
    return plan->mirrored ? plan->symbols / 2 + 1 : plan->symbols;
}

size_t tg_entropy_table_size(const tg_entropy_plan *plan)
{
    size_t bits = 0;
    for (unsigned s = 0; s < listed(plan); s++)
        bits += tg_omega_length((uint64_t)plan->frequency[s] + 1);
    return (bits + 7) / 8;
}

uint8_t *tg_entropy_table_write(const tg_entropy_plan *plan, uint8_t *out)
{
    tg_bit_writer w = tg_bit_writer_at(out);
    for (unsigned s = 0; s < listed(plan); s++)
        tg_omega_write(&w, (uint64_t)plan->frequency[s] + 1);
    return tg_bits_finish(&w);
}

bool tg_entropy_table_read(tg_entropy_plan *plan, const uint8_t *in, size_t size)
{
    tg_bit_reader r = tg_bit_reader_at(in, size);
    uint32_t unassigned = UINT32_C(1) << plan->table_log;
    plan->symbols = plan->tuple == 2 ? plan->alphabet * plan->alphabet : plan->alphabet;
    for (unsigned s = 0; s < listed(plan); s++) {
        const unsigned image = plan->mirrored ? plan->symbols - 1 - s : s;
        uint64_t frequency_plus_one;
        if (!tg_omega_read(&r, &frequency_plus_one) || frequency_plus_one - 1 > unassigned / (image == s ? 1 : 2))
            return false;
        plan->frequency[s] = plan->frequency[image] = (uint32_t)(frequency_plus_one - 1);
        unassigned -= plan->frequency[s] * (image == s ? 1 : 2);
    }
    if (unassigned != 0 || !tg_bits_at_end(&r))
        return false;
    index_symbols(plan);
    return true;
}
