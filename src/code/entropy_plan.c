/* How the entropy layout is set up for a vector: the encoder's choice of pairs, probabilities, lanes and chunks, and
 * the frequency table on the wire. Every choice is made with integers, so every machine writes the same bytes. */
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

/* Several tables in turn: with one, runs of equal symbols would wait for the previous increment to be stored. */
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

/* The histogram of digits from that of pairs: every pair has two, without the zeros that filled up the last run. */
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

/* Makes the rounded shares sum to one: a deficit is added to the most frequent symbol, an excess is subtracted in steps
 * of one from the largest share. */
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

/* The same for a symmetric histogram. If there is a symbol in the middle, it absorbs the difference; false if it would
 * become too small. If there is none, each half is handled by itself. */
static bool share_out_mirrored(const histogram *h, unsigned table_log, uint32_t *frequency)
{
    if (h->symbols % 2 == 0) {
        histogram half = *h;
        half.symbols /= 2;
        half.total /= 2;
        (void)share_out(&half, table_log - 1, frequency);
        for (unsigned s = 0; s < half.symbols; s++)
            frequency[h->symbols - 1 - s] = frequency[s];
        return true;
    }
    const uint32_t whole = UINT32_C(1) << table_log, sum = round_shares(h, table_log, frequency);
    uint32_t *middle = &frequency[h->symbols / 2];
    if (sum > whole && *middle <= sum - whole)
        return false;
    *middle += whole - sum; /* wraps when the difference is negative */
    return true;
}

/* Grouped tables have one frequency for a group of symbols: those on one side of the middle whose distance from it has
 * the same number of binary digits. The outermost symbols form groups of their own, because the largest element of
 * every bucket has one of them. */
static unsigned group_of(unsigned symbol, unsigned symbols)
{
    const unsigned half = symbols / 2;
    const bool upper = symbol >= half;
    const unsigned distance = upper ? symbol - half + (symbols % 2 == 0) : half - symbol;
    return (upper ? 16 : 0) + (distance > 0 ? tg_bit_length(distance) : 0);
}

static bool starts_group(unsigned symbol, unsigned symbols)
{
    return symbol <= 1 || symbol == symbols - 1 || group_of(symbol, symbols) != group_of(symbol - 1, symbols);
}

/* Rounds every group's share down, but not to zero, and adds the difference to the middle: to the symbol there, or to
 * the two around it, half to each if they are equally frequent, else all to the more frequent one. False if these would
 * become too small. */
static bool share_out_grouped(const histogram *h, unsigned table_log, uint32_t *frequency)
{
    const uint32_t whole = UINT32_C(1) << table_log;
    uint32_t sum = 0;
    for (unsigned s = 0, end; s < h->symbols; s = end) {
        uint64_t count = 0;
        for (end = s; end == s || (end < h->symbols && !starts_group(end, h->symbols)); end++)
            count += h->count[end];
        const uint64_t share = (count << table_log) / (h->total * (end - s));
        for (unsigned i = s; i < end; i++)
            sum += frequency[i] = count == 0 ? 0 : share == 0 ? 1 : (uint32_t)share;
    }
    const unsigned upper = h->symbols / 2, lower = (h->symbols - 1) / 2;
    const bool alike = upper != lower && h->count[upper] == h->count[lower];
    const unsigned taker = h->count[upper] > h->count[lower] ? upper : lower;
    const uint32_t excess = sum > whole ? sum - whole : 0, least = h->count[taker] > 0;
    if (excess > 0 && frequency[taker] < least + (alike ? (excess + 1) / 2 : excess))
        return false;
    if (!alike || (whole - sum) % 2 != 0) {
        frequency[taker] += whole - sum; /* wraps when the difference is negative */
    } else {
        const int32_t half = (int32_t)(whole - sum) / 2;
        frequency[lower] += (uint32_t)half;
        frequency[upper] += (uint32_t)half;
    }
    return true;
}

/* Length of all streams together, in units of 2^-16 bits. */
static uint64_t stream_cost(const histogram *h, unsigned table_log, const uint32_t *frequency)
{
    uint64_t cost = 0;
    for (unsigned s = 0; s < h->symbols; s++)
        if (h->count[s] > 0)
            cost += h->count[s] * ((table_log << 16) - tg_log2_fixed(frequency[s]));
    return cost;
}

/* Length of the table, in the same units. */
static uint64_t table_cost(const tg_entropy_plan *plan) { return (uint64_t)tg_entropy_table_size(plan) * 8 << 16; }

/* the cost of an impossible choice; small enough to be multiplied below */
static const uint64_t no_cost = UINT64_MAX / 256;

/* Streams and table together for one M, whose frequencies are left in the plan. */
static uint64_t try_table(tg_entropy_plan *plan, unsigned table_log, const histogram *h, const histogram *shares)
{
    bool (*share)(const histogram *, unsigned, uint32_t *) = plan->grouped    ? share_out_grouped
                                                             : plan->mirrored ? share_out_mirrored
                                                                              : share_out;
    plan->table_log = table_log;
    if (!share(shares, table_log, plan->frequency))
        return no_cost;
    return stream_cost(h, table_log, plan->frequency) + table_cost(plan);
}

/* Completes the plan with the M and the frequencies for `shares`, and returns their cost. Tables of less than 12 bits
 * are shorter, which matters where few symbols are coded. Tables of more bits allow smaller probabilities, which
 * matters only where some symbols are rare. */
static uint64_t choose_table(tg_entropy_plan *plan, const histogram *h, const histogram *shares)
{
    static const unsigned choices[] = {12, 14, 16, 10, 8};
    enum { CHOICES = sizeof choices / sizeof *choices };
    uint64_t cost[CHOICES], best = no_cost;
    for (unsigned i = 0; i < CHOICES; i++) {
        cost[i] = try_table(plan, choices[i], h, shares);
        if (cost[i] < best)
            best = cost[i];
    }
    unsigned chosen = 0;
    while (chosen < CHOICES - 1 && cost[chosen] * 200 > best * 201)
        chosen++;
    return try_table(plan, choices[chosen], h, shares);
}

static void mirror(histogram *h)
{
    for (unsigned low = 0, high = h->symbols - 1; low <= high; low++, high--)
        h->count[low] = h->count[high] = h->count[low] + h->count[high];
    h->total *= 2;
}

/* Uses a mirrored table, a grouped one, or both, where that is smaller. */
static void choose_kind(tg_entropy_plan *plan, const histogram *h)
{
    uint64_t best = choose_table(plan, h, h);
    if (plan->tuple != 1)
        return;
    tg_entropy_plan other = *plan;
    histogram both = *h;
    mirror(&both);
    for (unsigned kind = 1; kind < 4; kind++) {
        other.mirrored = kind & 1;
        other.grouped = kind & 2;
        const uint64_t cost = choose_table(&other, h, other.mirrored ? &both : h);
        if (cost < best) {
            best = cost;
            *plan = other;
        }
    }
}

/* The smallest chunk that is expected to take 8 KiB: bits << c >= n << 16, without the overflow. But where there is
 * more than one, a lane has no more than 2^18 elements of it, however few bits they take: each waits for the one
 * before, which is long on a card. */
static unsigned choose_chunk(uint64_t bits, uint64_t n, unsigned lane_log)
{
    const unsigned longest = TG_ENTROPY_TURNS_LOG + lane_log;
    const unsigned most = n >> longest ? longest : TG_ENTROPY_CHUNK_MOST;
    for (unsigned c = TG_ENTROPY_CHUNK_LEAST; c < most; c++) {
        uint64_t needed = c < 16 ? n << (16 - c) : (n + (UINT64_C(1) << (c - 16)) - 1) >> (c - 16);
        if (bits >= needed)
            return c;
    }
    return most;
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
 *    When these sum to less than 2^M, the most frequent symbol gets the difference; when to more, one is subtracted
 * from the largest f, again and again. The lowest symbol wins a tie.
 * 4. The cost of M is the sum over symbols of count * (M * 2^16 - log2(f)), log2 in units of 2^-16 and rounded down,
 * and the table, 2^16 for each bit of its whole bytes. M is the first of 12, 14, 16, 10, 8 whose cost is at most
 * 201/200 of the lowest of them: 12 is the fastest.
 * 5. With t = 1 the same is done with the counts of both sides of the middle added up. Where a digit is in the
 *    middle, the difference to 2^M goes there; where none is (A is even), each half is shared out to 2^(M - 1) by
 * rule 3. Then a grouped table is tried, first of the counts as they are, then of those added up: a symbol of a group
 * of size g gets f = max(1, count of the group * 2^M // (total * g)), 0 if the group does not occur, and the difference
 * goes to the middle, or where there is none to the more frequent of the two symbols around it, the lower if it is
 * even; half to each where they are equally frequent and the difference is even. What would leave a frequency below 1
 * to a symbol that occurs is not possible. The first of the four that costs least is used.
 * 6. With bits = the cost without the table // 2^16: 32 lanes when bits >= 131072, where their states cost little, 4
 * when bits >= 8192, else 1.
 * 7. c is the smallest of 13 to 31 with bits * 2^c >= n * 2^16, that is, with 8 KiB in a chunk on average; else 31. */
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
        plan->zeros = h.count[zero_digit];
        if (h.count[most_frequent(h.count, alphabet)] * 8 <= (uint64_t)n * 7) {
            plan->tuple = 2;
            h = pairs;
        }
    } else {
        count_digits(&h, digits, n, alphabet);
        plan->zeros = h.count[zero_digit];
    }
    if (n == 0) /* nothing is written with this plan, but it must be valid */
        h.total = h.count[zero_digit] = 1;
    plan->symbols = h.symbols;
    choose_kind(plan, &h);
    const uint64_t bits = stream_cost(&h, plan->table_log, plan->frequency) >> 16;
    plan->lane_log = bits >= 16384 * 8 ? 5 : bits >= 1024 * 8 ? 2 : 0;
    plan->chunk_log = choose_chunk(bits, n, plan->lane_log);
    index_symbols(plan);
}

/* How many symbols the table covers: the first ones. */
static unsigned covered(const tg_entropy_plan *plan)
{
    return plan->mirrored ? (plan->symbols + 1) / 2 : plan->symbols;
}

/* Whether the table lists a symbol's frequency; else it is that of the symbol before. */
static bool is_listed(const tg_entropy_plan *plan, unsigned symbol)
{
    return !plan->grouped || starts_group(symbol, plan->symbols);
}

size_t tg_entropy_table_size(const tg_entropy_plan *plan)
{
    size_t bits = 0;
    for (unsigned s = 0; s < covered(plan); s++)
        if (is_listed(plan, s))
            bits += tg_omega_length((uint64_t)plan->frequency[s] + 1);
    return (bits + 7) / 8;
}

uint8_t *tg_entropy_table_write(const tg_entropy_plan *plan, uint8_t *out)
{
    tg_bit_writer w = tg_bit_writer_at(out);
    for (unsigned s = 0; s < covered(plan); s++)
        if (is_listed(plan, s))
            tg_omega_write(&w, (uint64_t)plan->frequency[s] + 1);
    return tg_bits_finish(&w);
}

bool tg_entropy_table_read(tg_entropy_plan *plan, const uint8_t *in, size_t size)
{
    tg_bit_reader r = tg_bit_reader_at(in, size);
    uint32_t unassigned = UINT32_C(1) << plan->table_log;
    plan->symbols = plan->tuple == 2 ? plan->alphabet * plan->alphabet : plan->alphabet;
    uint64_t frequency_plus_one = 0;
    for (unsigned s = 0; s < covered(plan); s++) {
        const unsigned image = plan->mirrored ? plan->symbols - 1 - s : s;
        if (is_listed(plan, s) && !tg_omega_read(&r, &frequency_plus_one))
            return false;
        if (frequency_plus_one - 1 > unassigned / (image == s ? 1 : 2))
            return false;
        plan->frequency[s] = plan->frequency[image] = (uint32_t)(frequency_plus_one - 1);
        unassigned -= plan->frequency[s] * (image == s ? 1 : 2);
    }
    if (unassigned != 0 || !tg_bits_at_end(&r))
        return false;
    index_symbols(plan);
    return true;
}
