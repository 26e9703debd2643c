/* Index streams of sparse vectors: the choice of segments and modes, how close they come to log2 C(d, k), round trips
 * in pieces, refusals, and damaged streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/bit_lanes.h"
#include "code/elias.h"
#include "code/indices.h"
#include "code/rice.h"
#include "draws.h"

/* ---- Positions to code ------------------------------------------------------------------------------------------- */

/* Each position with probability density; returns their number. */
static size_t draw_positions(uint32_t *positions, uint32_t length, double density, uint64_t *seed)
{
    size_t m = 0;
    const double scale = log1p(-density);
    for (double at = 0; density > 0; at++) {
        at += density < 1 ? floor(log1p(-draw_unit(seed)) / scale) : 0;
        if (at >= length)
            break;
        positions[m++] = (uint32_t)at;
    }
    return m;
}

static uint32_t gap_at(const uint32_t *positions, size_t j)
{
    return j == 0 ? positions[0] : positions[j] - positions[j - 1] - 1;
}

/* Bytes of the table before Elias coded gaps. */
static size_t elias_table(size_t m) { return m == 0 ? 0 : 4 * ((m - 1) / 1024); }

/* The bytes of each mode, counted in the plainest way. */
static void plain_costs(const uint32_t *positions, size_t m, uint32_t length, size_t cost[3])
{
    size_t low = 0, quotients = 0, omega = 0;
    for (size_t j = 0; j < m; j += 256) {
        const size_t r = m - j < 256 ? m - j : 256;
        uint64_t best = UINT64_MAX;
        unsigned parameter = 0;
        for (unsigned b = 0; b <= 30; b++) {
            uint64_t bits = r * (b + 1);
            for (size_t i = j; i < j + r; i++)
                bits += gap_at(positions, i) >> b;
            if (bits < best) {
                best = bits;
                parameter = b;
            }
        }
        low += (r * parameter + 7) / 8;
        quotients += (size_t)best - r * parameter;
        for (size_t i = j; i < j + r; i++)
            omega += tg_omega_length((uint64_t)gap_at(positions, i) + 1);
    }
    cost[TG_INDEX_RICE] = (m + 255) / 256 + low + (quotients + 7) / 8;
    cost[TG_INDEX_ELIAS] = elias_table(m) + (omega + 7) / 8;
    cost[TG_INDEX_BITMAP] = (length + 7) / 8;
}

/* Writes positions in a given mode, for the modes that an encoder would not choose for them. */
static size_t write_mode(unsigned mode, const uint32_t *positions, size_t m, uint32_t length, uint8_t *out)
{
    if (mode == TG_INDEX_BITMAP) {
        memset(out, 0, (length + 7) / 8);
        for (size_t j = 0; j < m; j++)
            out[positions[j] / 8] = (uint8_t)(out[positions[j] / 8] | 1u << positions[j] % 8);
        return (length + 7) / 8;
    }
    uint32_t gaps[256], low[256];
    uint8_t *at = out + (mode == TG_INDEX_RICE ? (m + 255) / 256 : 0), unary[65536];
    uint8_t *codes = out + elias_table(m);
    tg_bit_writer w = tg_bit_writer_at(mode == TG_INDEX_RICE ? unary : codes);
    for (size_t j = 0; j < m; j += 256) {
        const size_t r = m - j < 256 ? m - j : 256;
        for (size_t i = 0; i < r; i++)
            gaps[i] = gap_at(positions, j + i);
        if (mode == TG_INDEX_ELIAS) {
            if (j > 0 && j % 1024 == 0)
                tg_store32(out + 4 * (j / 1024 - 1), (uint32_t)(8 * (w.out - codes)) + w.pending_count);
            for (size_t i = 0; i < r; i++)
                tg_omega_write(&w, (uint64_t)gaps[i] + 1);
            continue;
        }
        const unsigned b = length < 256 ? 0 : 5;
        out[j / 256] = (uint8_t)b;
        for (size_t i = 0; i < r; i++) {
            low[i] = gaps[i] & ((1u << b) - 1);
            for (uint32_t q = gaps[i] >> b; q > 0; q--)
                tg_bits_put(&w, 0, 1);
            tg_bits_put(&w, 1, 1);
        }
        if (r == 256)
            tg_lanes_pack(low, 8, b, at);
        else
            tg_tail_pack(low, r, b, at);
        at += (r * b + 7) / 8;
    }
    uint8_t *end = tg_bits_finish(&w);
    if (mode == TG_INDEX_ELIAS)
        return (size_t)(end - out);
    memcpy(at, unary, (size_t)(end - unary));
    return (size_t)(at - out) + (size_t)(end - unary);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* Reads a stream as a decoder does, with limits that grow by `stride` and little room. Whatever comes must be
 * increasing, below the limit, and not below the limit before it. */
static bool read_all(unsigned mode, const uint8_t *bytes, size_t size, size_t m, uint32_t length, uint32_t stride,
                     size_t room, uint32_t *positions)
{
    uint8_t *copy = exact_copy(bytes, size);
    uint32_t *piece = malloc(room * sizeof *piece);
    tg_index_reader reader;
    bool sound = tg_index_open(&reader, mode, copy, size, m, length, NULL);
    size_t count = 0, got;
    if (!sound)
        assert_false(tg_index_next(&reader, length, room, piece, &got));
    for (uint64_t limit = stride; sound; limit += stride) {
        const uint32_t below = limit < length ? (uint32_t)limit : length, from = (uint32_t)(limit - stride);
        do {
            sound = tg_index_next(&reader, below, room, piece, &got);
            assert_true(got <= room);
            for (size_t i = 0; sound && i < got; i++) {
                assert_true(piece[i] >= from && piece[i] < below && count < m);
                assert_true(count == 0 || piece[i] > positions[count - 1]);
                positions[count++] = piece[i];
            }
        } while (sound && got == room);
        assert_false(tg_index_done(&reader) && count < m);
        if (limit >= length)
            break;
    }
    assert_true(sound || !tg_index_done(&reader));
    sound = sound && tg_index_done(&reader);
    if (sound)
        assert_int_equal(count, m);
    free(piece);
    free(copy);
    return sound;
}

static uint64_t check_segment(const uint32_t *positions, size_t m, uint32_t length, uint32_t base, unsigned *mode,
                              size_t *size, uint64_t *seed)
{
    const size_t bound = tg_index_bound(length);
    uint8_t *out = malloc(bound);
    uint32_t *indices = malloc((m + 1) * sizeof *indices), *back = malloc((m + 1) * sizeof *back);
    for (size_t j = 0; j < m; j++)
        indices[j] = positions[j] + base;
    *size = (size_t)(tg_index_write(indices, m, base, length, out, mode, NULL) - out);
    size_t cost[3];
    plain_costs(positions, m, length, cost);
    const unsigned best = cost[0] <= cost[1] && cost[0] <= cost[2] ? 0 : cost[1] <= cost[2] ? 1 : 2;
    assert_int_equal(*mode, m == 0 ? 0 : best);
    assert_int_equal(*size, m == 0 ? 0 : cost[best]);
    assert_true(*size <= bound);
    const uint32_t stride = draw(seed) & 1 ? 4096 : (uint32_t)(1 + draw_below(seed, length + 1u));
    const size_t room = draw(seed) & 1 ? m + 1 : 1 + draw_below(seed, 600);
    assert_true(read_all(*mode, out, *size, m, length, stride, room, back));
    assert_memory_equal(back, positions, m * sizeof *back);
    const uint64_t print = fingerprint(out, *size);
    free(out);
    free(indices);
    free(back);
    return print;
}

static const double densities[] = {0, 1e-4, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.9, 1};
enum { DENSITIES = sizeof densities / sizeof *densities };

static void test_round_trips(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {1,   2,   7,    8,    9,    31,    32,    33,    255,
                                       256, 257, 4095, 4096, 4097, 65536, 65537, 300001};
    uint32_t *positions = malloc(300001 * sizeof *positions);
    uint64_t seed = 1;
    unsigned seen[3] = {0}, mode;
    size_t size;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (size_t k = 0; k < DENSITIES; k++) {
            const size_t m = draw_positions(positions, lengths[i], densities[k], &seed);
            const uint32_t base = (uint32_t)draw_below(&seed, UINT32_MAX - lengths[i]);
            check_segment(positions, m, lengths[i], base, &mode, &size, &seed);
            seen[mode]++;
        }
        positions[0] = lengths[i] - 1; /* the last position alone */
        check_segment(positions, 1, lengths[i], 0, &mode, &size, &seed);
        seen[mode]++;
    }
    /* Runs, which Elias codes best. */
    for (size_t j = 0; j < 3000; j++)
        positions[j] = (uint32_t)(j + j / 500 * 40000);
    check_segment(positions, 3000, 300001, 7, &mode, &size, &seed);
    seen[mode]++;
    for (unsigned i = 0; i < 3; i++)
        assert_true(seen[i] > 0);
    free(positions);
}

/* Quotients of every length that a writer cuts into pieces. */
static void test_long_quotients(void **state)
{
    (void)state;
    uint64_t seed = 6;
    unsigned mode;
    size_t size;
    for (uint32_t quotient = 0; quotient < 140; quotient++) {
        uint32_t positions[300], at = 4 * quotient;
        for (unsigned j = 0; j < 300; j++, at += 5 + (uint32_t)draw_below(&seed, 4))
            positions[j] = at;
        check_segment(positions, 300, at, 0, &mode, &size, &seed);
        assert_int_equal(mode, TG_INDEX_RICE);
    }
}

/* The ends of what 32 bits allow. */
static void test_long_segments(void **state)
{
    (void)state;
    const uint32_t length = 1u << 30, base = 3u << 30;
    uint8_t out[64];
    uint32_t back[4];
    static const uint32_t positions[] = {0, 1, (1u << 30) - 2, (1u << 30) - 1};
    uint32_t indices[4];
    unsigned mode;
    for (unsigned first = 0; first < 4; first++) {
        for (unsigned j = first; j < 4; j++)
            indices[j] = base + positions[j];
        const size_t m = 4 - first;
        const size_t size = (size_t)(tg_index_write(indices + first, m, base, length, out, &mode, NULL) - out);
        assert_true(read_all(mode, out, size, m, length, 1u << 29, 3, back));
        assert_memory_equal(back, positions + first, m * sizeof *back);
    }
}

static void test_segment_log(void **state)
{
    (void)state;
    assert_int_equal(tg_segment_log(1000000, 0), 30);
    assert_int_equal(tg_segment_log(0, 0), 30);
    assert_int_equal(tg_segment_log(1000000, 1), 30);
    assert_int_equal(tg_segment_log(1000000, 1000000), 12);
    assert_int_equal(tg_segment_log(1u << 20, 1u << 16), 15);
    assert_int_equal(tg_segment_log(1u << 20, (1u << 16) - 1), 16);
    assert_int_equal(tg_segment_log(UINT32_MAX, 1), 30);
    assert_int_equal(tg_segment_log(UINT32_MAX, UINT32_MAX), 12);
}

/* ---- Size -------------------------------------------------------------------------------------------------------- */

/* All bytes of the index part of a sparse vector. */
static size_t coded_size(const uint32_t *indices, size_t k, uint32_t d, uint8_t *out)
{
    const unsigned g = tg_segment_log(d, k);
    size_t total = 8, j = 0;
    for (uint64_t base = 0; base < d; base += UINT64_C(1) << g) {
        const uint32_t length = d - base < UINT64_C(1) << g ? (uint32_t)(d - base) : UINT32_C(1) << g;
        size_t m = 0;
        while (j + m < k && indices[j + m] < base + length)
            m++;
        unsigned mode;
        total += 8 + (size_t)(tg_index_write(indices + j, m, (uint32_t)base, length, out, &mode, NULL) - out);
        j += m;
    }
    assert_int_equal(j, k);
    return total;
}

static void test_close_to_the_count_of_subsets(void **state)
{
    (void)state;
    static const uint32_t counts[] = {100000, 1000000, 10000000};
    static const double shares[] = {0.0001, 0.0003, 0.001, 0.002, 0.003, 0.005, 0.01, 0.015, 0.03, 0.0565, 0.07, 0.1};
    uint32_t *indices = malloc(1100000 * sizeof *indices);
    uint8_t *out = malloc(tg_index_bound(10000000));
    uint64_t seed = 2;
    double worst = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (size_t s = 0; s < sizeof shares / sizeof *shares; s++) {
            const double d = counts[i];
            const size_t k = draw_positions(indices, counts[i], shares[s], &seed);
            const double chosen = (double)k;
            const double ideal = (lgamma(d + 1) - lgamma(chosen + 1) - lgamma(d - chosen + 1)) / log(2) / 8;
            const double size = (double)coded_size(indices, k, counts[i], out), share = size / (ideal * 1.03 + 64);
            if (share > 1)
                print_message("%u elements, %g selected: %.0f bytes for %.0f: %.2f %%\n", counts[i], shares[s], size,
                              ideal, (size / ideal - 1) * 100);
            assert_true(share <= 1);
            worst = share > worst ? share : worst;
        }
    }
    print_message("at most %.4f of (1.03 log2 C(d, k) + 64 bytes)\n", worst);
    free(indices);
    free(out);
}

static void test_bytes_never_change(void **state)
{
    (void)state;
    /* Integers only here: log1p() may differ in its last bit from one machine to the next. */
    static const struct {
        uint32_t largest_gap;
        unsigned mode;
        uint64_t print;
    } golden[] = {
        {1, TG_INDEX_BITMAP, UINT64_C(0xd547c2eec6d49616)},
        {0, TG_INDEX_ELIAS, UINT64_C(0x6f7616d7227bc953)},
        {100, TG_INDEX_RICE, UINT64_C(0x141f1f78e89dbecd)},
        {100000, TG_INDEX_RICE, UINT64_C(0xa5735a97c8c9b779)},
    };
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        uint32_t positions[1000], at = 0;
        uint64_t seed = 3 + i;
        unsigned mode;
        size_t size;
        for (size_t j = 0; j < 1000; j++, at++) {
            at += (uint32_t)draw_below(&seed, golden[i].largest_gap + 1);
            if (i == 1) /* a few long gaps between runs */
                at = (uint32_t)(j + j / 300 * 1000);
            positions[j] = at;
        }
        assert_true(check_segment(positions, 1000, at + 5, 11, &mode, &size, &seed) == golden[i].print);
        assert_int_equal(mode, golden[i].mode);
    }
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static bool accepts(unsigned mode, const uint8_t *bytes, size_t size, size_t m, uint32_t length)
{
    uint32_t positions[4096];
    return read_all(mode, bytes, size, m, length, 100, 7, positions);
}

/* The lowest bit of the last byte that is padding; 8 when there is none. */
static unsigned padding_from(unsigned mode, const uint32_t *positions, size_t m, uint32_t length, uint8_t last)
{
    size_t bits = length;
    if (mode == TG_INDEX_RICE) /* the last quotient ends in a one */
        for (bits = 8; last >> (bits - 1) == 0;)
            bits--;
    if (mode == TG_INDEX_ELIAS) {
        bits = 0;
        for (size_t j = 0; j < m; j++)
            bits += tg_omega_length((uint64_t)gap_at(positions, j) + 1);
    }
    return bits % 8 == 0 ? 8 : (unsigned)(bits % 8);
}

static void test_refusals(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (unsigned round = 0; round < 150; round++) {
        const unsigned mode = round % 3;
        uint8_t bytes[8192];
        uint32_t positions[2000];
        const uint32_t length = (uint32_t)(20 + draw_below(&seed, round < 100 ? 300 : 1500));
        const size_t m = draw_positions(positions, length, 0.05 + draw_unit(&seed) * 0.9, &seed);
        if (m == 0)
            continue;
        const size_t size = write_mode(mode, positions, m, length, bytes);
        assert_true(accepts(mode, bytes, size, m, length));
        for (size_t cut = 0; cut < size; cut++)
            assert_false(accepts(mode, bytes, cut, m, length));
        for (unsigned added = 0; added < 256; added += 51) {
            bytes[size] = (uint8_t)added;
            assert_false(accepts(mode, bytes, size + 1, m, length));
        }
        for (unsigned bit = 8; bit-- > padding_from(mode, positions, m, length, bytes[size - 1]);) {
            bytes[size - 1] = (uint8_t)(bytes[size - 1] | 1u << bit);
            assert_false(accepts(mode, bytes, size, m, length));
            bytes[size - 1] = (uint8_t)(bytes[size - 1] & ~(1u << bit));
        }
        /* Other numbers than the stream's; but Elias padding may well be one more gap of zero. */
        if (mode != TG_INDEX_ELIAS) {
            assert_false(accepts(mode, bytes, size, m + 1, length));
            assert_false(accepts(mode, bytes, size, m - 1, length));
        }
        assert_false(accepts(mode, bytes, size, 0, length));
        assert_false(accepts(3, bytes, size, m, length));
        assert_false(accepts(mode, bytes, size, m, positions[m - 1]));
        assert_false(accepts(mode, bytes, size, m, (uint32_t)(m - 1)));
    }
    assert_true(accepts(TG_INDEX_RICE, (const uint8_t *)"", 0, 0, 10));
    assert_false(accepts(TG_INDEX_RICE, (const uint8_t *)"", 1, 0, 10));
    assert_false(accepts(TG_INDEX_ELIAS, (const uint8_t *)"", 0, 0, 10));
    assert_false(accepts(TG_INDEX_BITMAP, (const uint8_t *)"\0", 2, 0, 10));
}

static bool opens(unsigned mode, const uint8_t *bytes, size_t size, size_t m, uint32_t length)
{
    tg_index_reader reader;
    return tg_index_open(&reader, mode, bytes, size, m, length, NULL);
}

/* Whether m positions come out when no limit stops them. */
static bool delivers(unsigned mode, const uint8_t *bytes, size_t size, size_t m, uint32_t length)
{
    uint32_t positions[8];
    size_t got;
    tg_index_reader reader;
    return tg_index_open(&reader, mode, bytes, size, m, length, NULL) &&
           tg_index_next(&reader, UINT32_MAX, 8, positions, &got) && got == m;
}

/* Where every 1024th gap starts: a table that differs in any bit is refused. */
static void test_elias_tables(void **state)
{
    (void)state;
    static const size_t counts[] = {1023, 1024, 1025, 2048, 2049, 4000};
    enum { LENGTH = 20000 };
    uint8_t *bytes = malloc(LENGTH);
    uint32_t positions[4000];
    uint64_t seed = 11;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const size_t m = counts[i], table = 4 * ((m - 1) / 1024);
        for (size_t j = 0; j < m; j++)
            positions[j] = (uint32_t)(3 * j + draw_below(&seed, 3));
        const size_t size = write_mode(TG_INDEX_ELIAS, positions, m, LENGTH, bytes);
        assert_int_equal(table, elias_table(m));
        assert_true(accepts(TG_INDEX_ELIAS, bytes, size, m, LENGTH));
        for (size_t bit = 0; bit < 8 * table; bit++) {
            bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
            assert_false(accepts(TG_INDEX_ELIAS, bytes, size, m, LENGTH));
            bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
        }
        if (table > 0)
            assert_false(accepts(TG_INDEX_ELIAS, bytes + table, size - table, m, LENGTH));
    }
    assert_false(opens(TG_INDEX_ELIAS, bytes, 3, 1025, LENGTH));
    free(bytes);
}

static void test_refused_by_hand(void **state)
{
    (void)state;
    /* Nothing fits in a segment without elements, or in a stream without a bit for each position. */
    for (unsigned mode = 0; mode < 3; mode++) {
        assert_false(opens(mode, (const uint8_t[]){0, 1}, mode == TG_INDEX_BITMAP ? 0 : 2, 1, 0));
        assert_false(opens(mode, (const uint8_t[]){0, 7}, 2, 3, 2));
    }
    assert_false(opens(TG_INDEX_RICE, (const uint8_t[]){0, 0xff}, 2, 9, 100));
    assert_false(opens(TG_INDEX_ELIAS, (const uint8_t[]){0}, 1, 9, 100));
    /* A gap of 2^32 is not one of 0. */
    uint8_t bytes[16];
    tg_bit_writer w = tg_bit_writer_at(bytes);
    tg_omega_write(&w, (UINT64_C(1) << 32) + 1);
    assert_false(delivers(TG_INDEX_ELIAS, bytes, (size_t)(tg_bits_finish(&w) - bytes), 1, UINT32_MAX));
    /* A bit of a bitmap's padding does not count, even when it makes the number right. */
    assert_true(accepts(TG_INDEX_BITMAP, (const uint8_t[]){0x01, 0x01}, 2, 2, 9));
    assert_false(opens(TG_INDEX_BITMAP, (const uint8_t[]){0x01, 0x02}, 2, 2, 9));
    /* Elias, two gaps of 0: the bits 00, then padding. */
    assert_true(accepts(TG_INDEX_ELIAS, (const uint8_t[]){0x00}, 1, 2, 10));
    for (unsigned bit = 2; bit < 8; bit++)
        assert_false(accepts(TG_INDEX_ELIAS, (const uint8_t[]){(uint8_t)(1u << bit)}, 1, 2, 10));
    /* Rice with b = 3, gaps 5 and 2: low bits 101 010, quotients 1 1. */
    assert_true(accepts(TG_INDEX_RICE, (const uint8_t[]){3, 0x15, 0x03}, 3, 2, 9));
    assert_true(delivers(TG_INDEX_RICE, (const uint8_t[]){3, 0x15, 0x03}, 3, 2, 9));
    assert_false(delivers(TG_INDEX_RICE, (const uint8_t[]){3, 0x15, 0x03}, 3, 2, 8)); /* the second is position 8 */
    assert_false(accepts(TG_INDEX_RICE, (const uint8_t[]){3, 0x55, 0x03}, 3, 2, 9));  /* padding of the low bits */
    assert_false(accepts(TG_INDEX_RICE, (const uint8_t[]){3, 0x95, 0x03}, 3, 2, 9));
    assert_false(accepts(TG_INDEX_RICE, (const uint8_t[]){3, 0x15, 0x07}, 3, 2, 9)); /* a third quotient */
    assert_false(accepts(TG_INDEX_RICE, (const uint8_t[]){3, 0x15, 0x01}, 3, 2, 9)); /* only one */
    /* b = 30 with a quotient of 4 would be a gap of 2^32; b = 31 is not allowed. */
    assert_true(accepts(TG_INDEX_RICE, (const uint8_t[]){30, 0, 0, 0, 0, 0x01}, 6, 1, 1u << 30 >> 12));
    assert_false(accepts(TG_INDEX_RICE, (const uint8_t[]){30, 0, 0, 0, 0, 0x10}, 6, 1, 1u << 30 >> 12));
    assert_false(accepts(TG_INDEX_RICE, (const uint8_t[]){31, 0, 0, 0, 0, 0x01}, 6, 1, 1u << 30 >> 12));
    assert_false(accepts(TG_INDEX_RICE, (const uint8_t[]){255, 0, 0, 0, 0, 0x01}, 6, 1, 1u << 30 >> 12));
}

static void test_damaged_streams(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (unsigned mode = 0; mode < 3; mode++) {
        unsigned accepted = 0;
        for (unsigned source = 0; source < 500; source++) {
            uint8_t bytes[4096];
            uint32_t positions[1000], back[4096];
            const uint32_t length = (uint32_t)(1 + draw_below(&seed, 1000));
            const double density = draw_unit(&seed) * draw_unit(&seed);
            const size_t m = draw_positions(positions, length, density, &seed);
            const size_t size = m == 0 ? 0 : write_mode(mode, positions, m, length, bytes);
            for (unsigned times = 0; times < 200; times++) {
                size_t damaged_size = size;
                uint8_t *damaged = damaged_copy(bytes, &damaged_size, &seed);
                const size_t claimed = draw_below(&seed, 8) == 0 ? draw_below(&seed, 1000) : m;
                const uint32_t stride = (uint32_t)(100 + draw_below(&seed, 1000));
                accepted += read_all(mode, damaged, damaged_size, claimed, length, stride, 300, back);
                free(damaged);
            }
        }
        assert_in_range(accepted, 1, 99999);
    }
}

/* What is found sooner must never be more, or a mode that is not the smallest is written; and it should be close. */
static void test_least_of_elias(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (unsigned gap = 0; gap < 1u << 20; gap = gap < 1100 ? gap + 1 : gap * 2) {
        uint32_t gaps[TG_RICE_BLOCK] = {gap};
        assert_in_range(tg_gaps_omega_least(gaps, 1), 1, tg_gaps_omega_bits(gaps, 1));
    }
    for (int round = 0; round < 200; round++) {
        uint32_t gaps[TG_RICE_BLOCK] = {0};
        const unsigned r = 1 + (unsigned)draw_below(&seed, TG_RICE_BLOCK);
        for (unsigned i = 0; i < r; i++)
            gaps[i] = (uint32_t)draw_below(&seed, (size_t)1 << draw_below(&seed, 21));
        const uint64_t bits = tg_gaps_omega_bits(gaps, r);
        assert_in_range(tg_gaps_omega_least(gaps, r), bits / 2, bits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),        cmocka_unit_test(test_long_quotients),
        cmocka_unit_test(test_long_segments),      cmocka_unit_test(test_segment_log),
        cmocka_unit_test(test_least_of_elias),     cmocka_unit_test(test_close_to_the_count_of_subsets),
        cmocka_unit_test(test_bytes_never_change), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refused_by_hand),    cmocka_unit_test(test_damaged_streams),
        cmocka_unit_test(test_elias_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
