/* Streams of the entropy layout: round trips, how close they come to the entropy, refusals, and damaged streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "entropy.h"

/* Writes one chunk, reads it in pieces, and returns the stream's fingerprint. */
static uint64_t check_chunk(const tg_entropy_plan *plan, const uint8_t *digits, size_t n, size_t piece, size_t *size)
{
    const size_t capacity = tg_entropy_chunk_bound(n);
    uint8_t *out = malloc(capacity), *back = malloc(n + 1);
    uint8_t *end = tg_entropy_write(plan, digits, n, out, capacity, NULL);
    assert_non_null(end);
    *size = (size_t)(end - out);
    const uint64_t print = fingerprint(out, *size);
    uint8_t *copy = exact_copy(out, *size);
    tg_entropy_reader reader;
    assert_true(tg_entropy_open(&reader, plan, copy, *size, 0, n));
    for (size_t done = 0; done < n;) {
        const size_t step = n - done < piece ? n - done : piece;
        assert_false(tg_entropy_done(&reader));
        assert_true(tg_entropy_next(&reader, step, back + done, NULL));
        done += step;
    }
    assert_true(tg_entropy_done(&reader));
    assert_false(tg_entropy_next(&reader, 1, back, NULL));
    assert_memory_equal(back, digits, n);
    /* Exactly enough room will do; less will not. */
    assert_ptr_equal(tg_entropy_write(plan, digits, n, out, *size, NULL), out + *size);
    assert_true(fingerprint(out, *size) == print);
    for (size_t room = *size; room > 0; room -= 1 + room / 2) {
        uint8_t *narrow = malloc(room - 1);
        assert_null(tg_entropy_write(plan, digits, n, narrow, room - 1, NULL));
        free(narrow);
    }
    free(copy);
    free(out);
    free(back);
    return print;
}

static void test_round_trips(void **state)
{
    (void)state;
    static const size_t lengths[] = {0,   1,   2,   15,   16,   17,   31,    32,    33,
                                     255, 256, 257, 4095, 4096, 4097, 65536, 65537, 300001};
    static const struct {
        unsigned alphabet;
        int shape;
        double width;
    } kinds[] = {{2, GAUSS, 1},    {3, SPIKE, 1e-4},     {3, SPIKE, 0.6},     {15, LAPLACE, 0.3}, {16, GAUSS, 5},
                 {17, GAUSS, 0.3}, {255, LAPLACE, 0.02}, {256, LAPLACE, 0.2}, {256, GAUSS, 100}};
    uint8_t *digits = malloc(300001);
    uint64_t seed = 2;
    size_t size;
    tg_entropy_plan plan;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            draw_digits(digits, lengths[i], kinds[k].alphabet, kinds[k].shape, kinds[k].width, &seed);
            tg_entropy_plan_make(&plan, digits, lengths[i], kinds[k].alphabet, kinds[k].alphabet / 2);
            assert_plan_is_sound(&plan);
            check_chunk(&plan, digits, lengths[i], 32 * (1 + draw_below(&seed, 200)), &size);
        }
    }
    free(digits);
}

static void test_every_kind_of_plan(void **state)
{
    (void)state;
    uint8_t digits[700];
    uint64_t seed = 3;
    size_t size;
    for (unsigned table_log = 12; table_log <= 16; table_log += 2)
        for (unsigned tuple = 1; tuple <= 2; tuple++)
            for (unsigned lane_log = 2; lane_log <= 5; lane_log += 3)
                for (unsigned alphabet = 2; alphabet <= (tuple == 2 ? 16 : 256); alphabet += alphabet < 17 ? 1 : 7)
                    for (unsigned times = 0; times < 8; times++) {
                        const tg_entropy_plan plan = any_plan(table_log, tuple, lane_log, alphabet, &seed);
                        const size_t n = times < 2 ? 1 + 32 * times : draw_below(&seed, sizeof digits);
                        for (size_t i = 0; i < n; i++)
                            digits[i] = (uint8_t)draw_below(&seed, alphabet);
                        check_chunk(&plan, digits, n, 32 * (1 + draw_below(&seed, 9)), &size);
                        assert_true(size <= tg_entropy_chunk_bound(n));
                    }
}

/* The rarest symbol all over: a word for each. */
static void test_longest_stream(void **state)
{
    (void)state;
    tg_entropy_plan wire = {.table_log = 16,
                            .tuple = 1,
                            .lane_log = 5,
                            .chunk_log = 16,
                            .alphabet = 2,
                            .symbols = 2,
                            .frequency = {65535, 1}},
                    plan;
    uint8_t table[TG_ENTROPY_TABLE_MAX], digits[1000];
    size_t size = (size_t)(tg_entropy_table_write(&wire, table) - table);
    assert_true(read_plan(&plan, &wire, table, size));
    memset(digits, 1, sizeof digits);
    check_chunk(&plan, digits, sizeof digits, 32, &size);
    assert_int_equal(size, 128 + 2000);
}

/* n times the entropy of the digits' own distribution, in bytes. */
static double entropy_bytes(const uint8_t *digits, size_t n)
{
    size_t count[256] = {0};
    double bits = 0;
    for (size_t i = 0; i < n; i++)
        count[digits[i]]++;
    for (unsigned a = 0; a < 256; a++)
        if (count[a] > 0)
            bits -= (double)count[a] * log2((double)count[a] / (double)n);
    return bits / 8;
}

/* All bytes of a vector in this layout. */
static size_t coded_size(const uint8_t *digits, size_t n, unsigned alphabet, uint8_t *out)
{
    tg_entropy_plan plan;
    tg_entropy_plan_make(&plan, digits, n, alphabet, alphabet / 2);
    size_t total = 6 + tg_entropy_table_size(&plan);
    const size_t chunk = (size_t)1 << plan.chunk_log;
    for (size_t at = 0; at < n; at += chunk) {
        const size_t count = n - at < chunk ? n - at : chunk;
        total += 4 +
                 (size_t)(tg_entropy_write(&plan, digits + at, count, out, tg_entropy_chunk_bound(count), NULL) - out);
    }
    return total;
}

static const struct {
    int shape;
    double width;
} spread[] = {
    {LAPLACE, 0.02},   {LAPLACE, 0.1},     {LAPLACE, 0.3},    {LAPLACE, 3},     {LAPLACE, 100},
    {GAUSS, 0.02},     {GAUSS, 0.1},       {GAUSS, 0.3},      {GAUSS, 1},       {GAUSS, 100},
    {SPIKE, 1e-4},     {SPIKE, 1e-3},      {SPIKE, 0.01},     {SPIKE, 0.1},     {SPIKE, 0.6},
    {GEOMETRIC, 1e-4}, {GEOMETRIC, 0.003}, {GEOMETRIC, 0.03}, {GEOMETRIC, 0.3},
};
enum { SPREAD = sizeof spread / sizeof *spread };

static void check_target(const uint8_t *digits, size_t n, unsigned alphabet, size_t kind, uint8_t *out, double *worst)
{
    const double ideal = entropy_bytes(digits, n), size = (double)coded_size(digits, n, alphabet, out);
    const double share = size / (ideal * 1.03 + 64);
    if (share > 1)
        print_message("n %zu, alphabet %u, shape %d, width %g: %.0f bytes for an entropy of %.0f\n", n, alphabet,
                      spread[kind].shape, spread[kind].width, size, ideal);
    assert_true(share <= 1);
    if (share > *worst)
        *worst = share;
}

static void test_close_to_the_entropy(void **state)
{
    (void)state;
    const size_t short_one = 65536, long_one = 1u << 18, longest = 2000000;
    uint8_t *digits = malloc(longest), *out = malloc(tg_entropy_chunk_bound(longest));
    uint64_t seed = 4;
    double worst = 0;
    for (unsigned alphabet = 3; alphabet <= 255; alphabet++) {
        for (size_t k = alphabet % 10; k < SPREAD; k += 10) { /* every alphabet with some, each with many alphabets */
            draw_digits(digits, short_one, alphabet, spread[k].shape, spread[k].width, &seed);
            check_target(digits, short_one, alphabet, k, out, &worst);
        }
    }
    for (unsigned alphabet = 3; alphabet <= 16; alphabet++) {
        for (size_t k = alphabet % 4; k < SPREAD; k += 4) {
            draw_digits(digits, long_one, alphabet, spread[k].shape, spread[k].width, &seed);
            check_target(digits, long_one, alphabet, k, out, &worst);
        }
    }
    static const struct {
        unsigned alphabet;
        size_t kind;
    } long_ones[] = {{3, 10}, {15, 2}, {31, 6}, {255, 0}, {255, 9}};
    for (size_t i = 0; i < sizeof long_ones / sizeof *long_ones; i++) {
        const size_t k = long_ones[i].kind;
        draw_digits(digits, longest, long_ones[i].alphabet, spread[k].shape, spread[k].width, &seed);
        check_target(digits, longest, long_ones[i].alphabet, k, out, &worst);
    }
    print_message("at most %.4f of (1.03 entropy + 64 bytes)\n", worst);
    free(digits);
    free(out);
}

static void test_bytes_never_change(void **state)
{
    (void)state;
    /* Integers only here: exp() may differ in its last bit from one machine to the next. */
    const size_t n = 300001; /* not a whole number of runs: what completes the last pairs counts too */
    uint8_t *digits = malloc(n), table[TG_ENTROPY_TABLE_MAX];
    size_t size;
    static const struct {
        unsigned alphabet, rarity, tuple;
        uint64_t table, stream;
    } golden[] = {
        {3, 3, 2, UINT64_C(0x3b022d54711d5cb7), UINT64_C(0x1e5f8663ac1310f8)},
        {16, 1, 2, UINT64_C(0x38043a6394d3afe1), UINT64_C(0x37338ed6c3786754)},
        {3, 5000, 1, UINT64_C(0xb6de86197ae2b76a), UINT64_C(0xe3297f7c415a3e20)},
        {255, 1, 1, UINT64_C(0x8f612b524452bf72), UINT64_C(0x4e0237884c600198)},
        {256, 40, 1, UINT64_C(0xc4bb59350e9446ff), UINT64_C(0x5333b6833e32a148)},
    };
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        uint64_t seed = 5 + i;
        const unsigned alphabet = golden[i].alphabet;
        for (size_t j = 0; j < n; j++) {
            const size_t rare = draw_below(&seed, golden[i].rarity);
            digits[j] = (uint8_t)(rare == 0 ? draw_below(&seed, alphabet) : alphabet / 2);
        }
        tg_entropy_plan plan;
        tg_entropy_plan_make(&plan, digits, n, alphabet, alphabet / 2);
        assert_int_equal(plan.tuple, golden[i].tuple);
        uint8_t *end = tg_entropy_table_write(&plan, table);
        assert_true(fingerprint(table, (size_t)(end - table)) == golden[i].table);
        assert_true(check_chunk(&plan, digits, n, n, &size) == golden[i].stream);
    }
    free(digits);
}

static void test_refused_streams(void **state)
{
    (void)state;
    uint64_t seed = 6;
    for (unsigned round = 0; round < 60; round++) {
        const unsigned tuple = 1 + round % 2, alphabet = 2 + (unsigned)draw_below(&seed, tuple == 2 ? 15 : 250);
        const tg_entropy_plan plan = any_plan(12 + round % 3 * 2, tuple, round % 4 < 2 ? 2 : 5, alphabet, &seed);
        uint8_t digits[200], bytes[1024];
        const size_t n = 1 + draw_below(&seed, sizeof digits);
        for (size_t i = 0; i < n; i++)
            digits[i] = (uint8_t)draw_below(&seed, alphabet);
        const size_t size = (size_t)(tg_entropy_write(&plan, digits, n, bytes, sizeof bytes, NULL) - bytes);
        tg_entropy_reader reader;
        assert_true(accepts(&plan, bytes, size, n, 1024));
        for (size_t cut = 0; cut < size; cut++)
            assert_false(accepts(&plan, bytes, cut, n, 1024));
        for (size_t added = 1; added <= 4; added++) {
            bytes[size + added - 1] = 0;
            assert_false(accepts(&plan, bytes, size + added, n, 1024));
        }
        for (size_t lane = 0; lane < (size_t)1 << plan.lane_log; lane++) { /* a state below 2^16 */
            uint8_t saved[2];
            memcpy(saved, bytes + 4 * lane + 2, 2);
            memset(bytes + 4 * lane + 2, 0, 2);
            assert_false(tg_entropy_open(&reader, &plan, bytes, size, 0, n));
            memcpy(bytes + 4 * lane + 2, saved, 2);
        }
        assert_true(tg_entropy_open(&reader, &plan, bytes, size, 0, n)); /* pieces must be whole runs */
        if (n > 1)
            assert_false(tg_entropy_next(&reader, n > 33 ? 33 : 1, digits, NULL));
        assert_false(tg_entropy_next(&reader, n + 1, digits, NULL));
    }
}

static void test_damaged_streams(void **state)
{
    (void)state;
    uint64_t seed = 8;
    unsigned accepted = 0;
    for (unsigned source = 0; source < 1000; source++) {
        const unsigned tuple = 1 + source % 2, alphabet = 2 + (unsigned)draw_below(&seed, tuple == 2 ? 15 : 255);
        const tg_entropy_plan plan = any_plan(12 + source % 3 * 2, tuple, source % 4 < 2 ? 2 : 5, alphabet, &seed);
        uint8_t digits[100], bytes[512];
        const size_t n = draw_below(&seed, sizeof digits);
        for (size_t i = 0; i < n; i++)
            digits[i] = (uint8_t)draw_below(&seed, alphabet);
        const size_t size = (size_t)(tg_entropy_write(&plan, digits, n, bytes, sizeof bytes, NULL) - bytes);
        for (unsigned times = 0; times < 100; times++) {
            size_t damaged_size = size;
            uint8_t *damaged = damaged_copy(bytes, &damaged_size, &seed);
            const bool same = damaged_size == size && memcmp(damaged, bytes, size) == 0;
            const bool sound = accepts(&plan, damaged, damaged_size, n, 32 * (1 + draw_below(&seed, 4)));
            assert_true(sound || !same);
            accepted += sound && !same;
            free(damaged);
        }
    }
    assert_in_range(accepted, 1, 1000); /* nearly all damage shows in the final states */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),        cmocka_unit_test(test_every_kind_of_plan),
        cmocka_unit_test(test_longest_stream),     cmocka_unit_test(test_close_to_the_entropy),
        cmocka_unit_test(test_bytes_never_change), cmocka_unit_test(test_refused_streams),
        cmocka_unit_test(test_damaged_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
