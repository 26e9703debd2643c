/* Tables of the entropy layout: the encoder's choices, refusals, and damaged tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "code/elias.h"
#include "entropy.h"

/* n digits, of which each of the first `kinds` makes up its share. */
static void deal_digits(uint8_t *digits, size_t n, const unsigned *shares, unsigned kinds)
{
    unsigned sum = 0;
    for (unsigned k = 0; k < kinds; k++)
        sum += shares[k];
    size_t i = 0;
    for (unsigned k = 0; k < kinds; k++)
        for (size_t left = n / sum * shares[k]; left > 0; left--)
            digits[i++] = (uint8_t)k;
    assert_int_equal(i, n);
}

static void assert_frequencies(const tg_entropy_plan *plan, unsigned table_log, const uint32_t *expected)
{
    assert_int_equal(plan->table_log, table_log);
    for (unsigned s = 0; s < plan->symbols; s++)
        assert_int_equal(plan->frequency[s], expected[s]);
    assert_plan_is_sound(plan);
}

static void test_plan_of_one_symbol(void **state)
{
    (void)state;
    uint8_t digits[1000];
    memset(digits, 3, sizeof digits);
    tg_entropy_plan plan;
    tg_entropy_plan_make(&plan, digits, sizeof digits, 7, 3);
    assert_plan_is_sound(&plan);
    assert_int_equal(plan.frequency[3], 1u << plan.table_log);
    assert_int_equal(plan.zeros, sizeof digits);
    assert_int_equal(plan.table_log, 10); /* as short a table as there is */
    assert_int_equal(plan.lane_log, 0);
    assert_int_equal(plan.chunk_log, 31);
    tg_entropy_plan_make(&plan, digits, 0, 7, 3);
    assert_plan_is_sound(&plan);
}

static void test_plan_choices(void **state)
{
    (void)state;
    const size_t n = 1u << 18;
    uint8_t *digits = malloc(n);
    tg_entropy_plan plan;
    uint64_t seed = 1;

    memset(digits, 3, n);
    tg_entropy_plan_make(&plan, digits, n, 7, 3);
    assert_int_equal(plan.chunk_log, 18); /* a lane has no more than 2^18 elements */

    /* Pairs: from 2^18 elements, up to 16 digits, up to 7/8 for the most frequent. */
    draw_digits(digits, n, 16, GAUSS, 1, &seed);
    tg_entropy_plan_make(&plan, digits, n, 16, 7);
    assert_int_equal(plan.tuple, 2);
    assert_int_equal(plan.symbols, 256);
    assert_plan_is_sound(&plan);
    tg_entropy_plan_make(&plan, digits, n - 1, 16, 7);
    assert_int_equal(plan.tuple, 1);
    tg_entropy_plan_make(&plan, digits, n, 17, 8);
    assert_int_equal(plan.tuple, 1);
    memset(digits, 1, n);
    for (size_t i = 0; i < n / 8; i++)
        digits[i * 8] = (uint8_t)(i % 2 * 2);
    tg_entropy_plan_make(&plan, digits, n, 3, 1);
    assert_int_equal(plan.tuple, 2);
    digits[0] = 1;
    tg_entropy_plan_make(&plan, digits, n, 3, 1);
    assert_int_equal(plan.tuple, 1);

    /* Four equally frequent digits are two bits each with any table: the smallest, and chunks of 2^15. */
    for (size_t i = 0; i < n; i++)
        digits[i] = (uint8_t)(i & 3);
    tg_entropy_plan_make(&plan, digits, n - 4, 4, 1);
    assert_int_equal(plan.table_log, 12);
    assert_int_equal(plan.frequency[0], 1024);
    assert_int_equal(plan.chunk_log, 15);
    assert_int_equal(plan.lane_log, 5);
    tg_entropy_plan_make(&plan, digits, 65536, 4, 1); /* 16384 bytes */
    assert_int_equal(plan.lane_log, 5);
    tg_entropy_plan_make(&plan, digits, 65532, 4, 1);
    assert_int_equal(plan.lane_log, 2);
    tg_entropy_plan_make(&plan, digits, 4096, 4, 1); /* 1024 bytes */
    assert_int_equal(plan.lane_log, 2);
    tg_entropy_plan_make(&plan, digits, 4092, 4, 1);
    assert_int_equal(plan.lane_log, 0);

    /* A digit of probability 2^-13 needs a finer table than 2^-12; of 2^-15 the finest. */
    memset(digits, 1, n);
    for (size_t i = 0; i < n; i += 8192)
        digits[i] = 2;
    tg_entropy_plan_make(&plan, digits, n, 3, 1);
    assert_int_equal(plan.table_log, 14);
    assert_int_equal(plan.frequency[2], 2);
    memset(digits, 1, n);
    for (size_t i = 0; i < n; i += 32768)
        digits[i] = 2;
    tg_entropy_plan_make(&plan, digits, n, 3, 1);
    assert_int_equal(plan.table_log, 16);
    assert_int_equal(plan.frequency[2], 2);

    /* What rounding leaves goes to the most frequent; what it takes too much comes from the largest. */
    deal_digits(digits, 110000, (const unsigned[]){1, 1, 1, 2, 1, 1, 1, 1, 1, 1}, 10);
    tg_entropy_plan_make(&plan, digits, 110000, 10, 5); /* 372.36 and 744.73: three are missing */
    assert_frequencies(&plan, 12, (const uint32_t[]){372, 372, 372, 748, 372, 372, 372, 372, 372, 372});
    deal_digits(digits, 96000, (const unsigned[]){5, 5, 5, 3, 5, 5, 5, 5, 5, 5}, 10);
    tg_entropy_plan_make(&plan, digits, 96000, 10, 5); /* 426.67 and 256: three too many */
    assert_frequencies(&plan, 12, (const uint32_t[]){426, 426, 426, 256, 427, 427, 427, 427, 427, 427});
    assert_false(plan.mirrored || plan.grouped);
    /* Where both sides are alike one is sent: the middle takes what is left, or each side is shared out alone. */
    deal_digits(digits, 60000, (const unsigned[]){1, 1, 1}, 3);
    tg_entropy_plan_make(&plan, digits, 60000, 3, 1);
    assert_true(plan.mirrored);
    assert_frequencies(&plan, 12, (const uint32_t[]){1365, 1366, 1365});
    deal_digits(digits, 60000, (const unsigned[]){1, 1, 1, 1, 1, 1}, 6);
    tg_entropy_plan_make(&plan, digits, 60000, 6, 3);
    assert_true(plan.mirrored);
    assert_frequencies(&plan, 12, (const uint32_t[]){682, 683, 683, 683, 683, 682});
    free(digits);
}

/* Few digits of many kinds: one frequency for each group, and coarser tables. */
static void test_grouped_plans(void **state)
{
    (void)state;
    uint8_t digits[400];
    uint64_t seed = 11;
    tg_entropy_plan plan;
    for (unsigned alphabet = 200; alphabet <= 256; alphabet++) {
        for (size_t i = 0; i < sizeof digits; i++)
            digits[i] = (uint8_t)draw_below(&seed, alphabet);
        tg_entropy_plan_make(&plan, digits, sizeof digits, alphabet, alphabet / 2);
        assert_plan_is_sound(&plan);
        assert_true(plan.grouped);
        assert_in_range(tg_entropy_table_size(&plan), 3, 30); /* all of them would take 50 bytes at least */
        const unsigned half = alphabet / 2, odd = alphabet % 2;
        for (unsigned s = half + 1 + odd; s + 1 < alphabet; s++) { /* the upper side, but for the middle and the last */
            const unsigned distance = s - half + !odd, before = distance - 1;
            if ((distance & before) != 0) /* not a power of two: no group starts here */
                assert_int_equal(plan.frequency[s], plan.frequency[s - 1]);
        }
    }
}

static void test_largest_table(void **state)
{
    (void)state;
    tg_entropy_plan wire = {
        .table_log = 16, .tuple = 1, .lane_log = 2, .chunk_log = 16, .alphabet = 256, .symbols = 256};
    for (unsigned s = 0; s < 256; s++)
        wire.frequency[s] = s == 9 ? 511 : 255;
    assert_int_equal(tg_entropy_table_size(&wire), TG_ENTROPY_TABLE_MAX);
    uint8_t table[TG_ENTROPY_TABLE_MAX];
    assert_ptr_equal(tg_entropy_table_write(&wire, table), table + sizeof table);
    tg_entropy_plan plan;
    assert_true(read_plan(&plan, &wire, table, sizeof table));
    assert_plan_is_sound(&plan);
}

static void test_refused_tables(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (unsigned round = 0; round < 100; round++) {
        const unsigned alphabet = 2 + (unsigned)draw_below(&seed, 30);
        const tg_entropy_plan wire = any_plan(12 + round % 3 * 2, 1, 2, alphabet, &seed);
        tg_entropy_plan plan = wire;
        uint8_t table[TG_ENTROPY_TABLE_MAX + 1];
        const size_t size = (size_t)(tg_entropy_table_write(&wire, table) - table);
        size_t bits = 0;
        for (unsigned s = 0; s < alphabet; s++)
            bits += tg_omega_length((uint64_t)wire.frequency[s] + 1);
        for (size_t cut = 0; cut < size; cut++)
            assert_false(read_plan(&plan, &wire, table, cut));
        table[size] = 0;
        assert_false(read_plan(&plan, &wire, table, size + 1));
        for (size_t bit = bits; bit < 8 * size; bit++) {
            table[bit / 8] = (uint8_t)(table[bit / 8] ^ 1u << bit % 8);
            assert_false(read_plan(&plan, &wire, table, size));
            table[bit / 8] = (uint8_t)(table[bit / 8] ^ 1u << bit % 8);
        }
        /* Sums that are one off, and one that wraps around 2^32 to the right one. */
        plan = wire;
        plan.frequency[0]++;
        tg_entropy_table_write(&plan, table);
        assert_false(read_plan(&plan, &wire, table, tg_entropy_table_size(&plan)));
        plan = wire;
        plan.frequency[0]--;
        tg_entropy_table_write(&plan, table);
        assert_false(read_plan(&plan, &wire, table, tg_entropy_table_size(&plan)));
        plan = wire;
        plan.frequency[0] += 1u << 31;
        plan.frequency[1] += 1u << 31;
        tg_entropy_table_write(&plan, table);
        assert_false(read_plan(&plan, &wire, table, tg_entropy_table_size(&plan)));
    }
}

/* A damaged table that is still a table must be one that streams can be read with. */
static void test_damaged_tables(void **state)
{
    (void)state;
    uint64_t seed = 9;
    unsigned accepted = 0, kinds = 0;
    uint8_t noise[400];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)draw(&seed);
    for (unsigned source = 0; source < 1000; source++) {
        const unsigned tuple = 1 + source % 2, alphabet = 2 + (unsigned)draw_below(&seed, tuple == 2 ? 5 : 25);
        tg_entropy_plan wire = any_plan(12 + source % 3 * 2, tuple, 2, alphabet, &seed);
        if (source % 5 == 0) { /* one that is mirrored or grouped */
            uint8_t digits[60];
            for (size_t i = 0; i < sizeof digits; i++)
                digits[i] = (uint8_t)draw_below(&seed, alphabet);
            tg_entropy_plan_make(&wire, digits, sizeof digits, alphabet, alphabet / 2);
            kinds |= 1u << (wire.mirrored + 2 * wire.grouped);
        }
        uint8_t table[TG_ENTROPY_TABLE_MAX];
        const size_t size = (size_t)(tg_entropy_table_write(&wire, table) - table);
        for (unsigned times = 0; times < 100; times++) {
            size_t damaged_size = size;
            uint8_t *damaged = damaged_copy(table, &damaged_size, &seed);
            tg_entropy_plan plan;
            if (read_plan(&plan, &wire, damaged, damaged_size)) {
                accepted++;
                assert_plan_is_sound(&plan);
                accepts(&plan, noise, sizeof noise, 1000, 1024);
            }
            free(damaged);
        }
    }
    assert_in_range(accepted, 1, 99999);
    assert_int_equal(kinds & 0xa, 0xa); /* mirrored, and both, at least */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_of_one_symbol), cmocka_unit_test(test_plan_choices),
        cmocka_unit_test(test_grouped_plans),      cmocka_unit_test(test_largest_table),
        cmocka_unit_test(test_refused_tables),     cmocka_unit_test(test_damaged_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
