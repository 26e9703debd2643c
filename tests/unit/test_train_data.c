/* The readers of `tersegrad train` and its random numbers: what is accepted, what is refused and in which words. */
#include "train/data.h" /* first: cmocka takes the name `fail` for a macro */
#include "train/idx.h"
#include "train/libsvm.h"
#include "train/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- LIBSVM ---- */

static void test_libsvm_good(void **state)
{
    (void)state;
    static const char text[] = "+1 1:0.5 3:-2e1\n"
                               "\n"
                               "   # nothing but a comment\n"
                               "-1\t2:1234567890.125 \r\n"
                               "0.25 # a label alone\n"
                               "3 1:0.1234567890123456789";
    struct sparse_rows rows = {0};
    struct failure failure;
    assert_true(libsvm_parse(text, sizeof text - 1, "good", &rows, &failure));
    assert_int_equal(rows.rows, 4);
    assert_int_equal(rows.features, 3);
    const float labels[] = {1, -1, 0.25f, 3};
    assert_memory_equal(rows.labels, labels, sizeof labels);
    const uint64_t starts[] = {0, 2, 3, 3, 4};
    assert_memory_equal(rows.starts, starts, sizeof starts);
    const uint32_t indices[] = {0, 2, 1, 0};
    assert_memory_equal(rows.indices, indices, sizeof indices);
    const float values[] = {0.5f, -20, 1234567890.125f, 0.1234567890123456789f};
    assert_memory_equal(rows.values, values, sizeof values);
    sparse_rows_free(&rows);
}

/* Each on the third line of a file. */
static void test_libsvm_bad(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
    } table[] = {
        {"x 1:1", "f:3: a line must begin with a label, a finite number: 'x'"},
        {"1:1", "f:3: a line must begin with a label, a finite number: '1:1'"},
        {"nan 1:1", "f:3: a line must begin with a label, a finite number: 'nan'"},
        {"1e39 1:1", "f:3: a line must begin with a label, a finite number: '1e39'"},
        {"0x10 1:1", "f:3: a line must begin with a label, a finite number: '0x10'"},
        {"1 0:1", "f:3: an entry must be INDEX:VALUE with an index from 1 to 67108864: '0:1'"},
        {"1 67108865:1", "f:3: an entry must be INDEX:VALUE with an index from 1 to 67108864: '67108865:1'"},
        {"1 99999999999999999999:1",
         "f:3: an entry must be INDEX:VALUE with an index from 1 to 67108864: '99999999999999999999:1'"},
        {"1 -1:1", "f:3: an entry must be INDEX:VALUE with an index from 1 to 67108864: '-1:1'"},
        {"1 1", "f:3: an entry must be INDEX:VALUE with an index from 1 to 67108864: '1'"},
        {"1 qid:4 1:1", "f:3: an entry must be INDEX:VALUE with an index from 1 to 67108864: 'qid:4'"},
        {"1 2:1 2:1", "f:3: index 2 comes after index 2; they must increase"},
        {"1 2:1 1:1", "f:3: index 1 comes after index 2; they must increase"},
        {"1 1:", "f:3: a value must be a finite number: ''"},
        {"1 1:inf", "f:3: a value must be a finite number: 'inf'"},
        {"1 1:1x", "f:3: a value must be a finite number: '1x'"},
        {"1 1:1:2", "f:3: a value must be a finite number: '1:2'"},
        {"1 1:1e999", "f:3: a value must be a finite number: '1e999'"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char text[128];
        int size = snprintf(text, sizeof text, "1 1:1\n\n%s\n1 1:1\n", table[i].line);
        struct sparse_rows rows = {0};
        struct failure failure = {""};
        assert_false(libsvm_parse(text, (size_t)size, "f", &rows, &failure));
        assert_string_equal(failure.text, table[i].message);
        sparse_rows_free(&rows);
    }
}

/* Twice as many digits as a double holds, and every exponent: as strtod has it. */
static void test_libsvm_numbers(void **state)
{
    (void)state;
    for (int digits = 1; digits < 34; digits++) {
        for (int point = 0; point <= digits; point++) {
            char number[48], text[64];
            size_t at = 0;
            for (int i = 0; i < digits; i++) {
                if (i == point)
                    number[at++] = '.';
                number[at++] = (char)('0' + (i * 7 + digits) % 10);
            }
            number[at] = '\0';
            struct sparse_rows rows = {0};
            struct failure failure;
            int size = snprintf(text, sizeof text, "-%s", number);
            assert_true(libsvm_parse(text, (size_t)size, "f", &rows, &failure));
            assert_true(rows.labels[0] == (float)-strtod(number, NULL));
            sparse_rows_free(&rows);
        }
    }
}

/* ---- IDX ---- */

static void test_idx(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        bool good;
        uint64_t rows, row_bytes;
    } table[] = {
        {"\0\0\x08\x01\0\0\0\x02"
         "ab",
         10, true, 2, 1},
        {"\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x02"
         "abcd",
         20, true, 1, 4},
        {"\0\0\x08\x01\0\0\0\0", 8, true, 0, 1},
        {"\0\0\x08\x01\0\0\0\x02"
         "a",
         9, false, 0, 0},
        {"\0\0\x08\x01\0\0\0\x02"
         "abc",
         11, false, 0, 0},
        {"\0\0\x08\x01\0\0\0", 7, false, 0, 0},
        {"\0\0\x09\x01\0\0\0\x02"
         "ab",
         10, false, 0, 0},
        {"\0\x01\x08\x01\0\0\0\x02"
         "ab",
         10, false, 0, 0},
        {"\0\0\x08\0", 4, false, 0, 0},
        {"\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16, false, 0, 0},
        {"\0\0\x08", 3, false, 0, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct idx idx;
        struct failure failure = {""};
        uint8_t *bytes = malloc(table[i].size); /* exactly, so that a sanitizer sees a read past the end */
        assert_non_null(bytes);
        memcpy(bytes, table[i].bytes, table[i].size);
        assert_int_equal(idx_parse(bytes, table[i].size, &idx, &failure), table[i].good);
        if (table[i].good) {
            assert_int_equal(idx.rows, table[i].rows);
            assert_int_equal(idx.row_bytes, table[i].row_bytes);
        } else {
            assert_true(failure.text[0]);
        }
        free(bytes);
    }
}

/* ---- classes ---- */

static void test_classes(void **state)
{
    (void)state;
    float two[] = {-1, 1, 1, -1}, three[] = {7, 3, 5, 3}, real[] = {0.5f, 1, 2}, one[] = {4, 4, 4}, many[200];
    assert_int_equal(classes_among(two, 4), 2);
    assert_true(two[0] == 0 && two[1] == 1);
    assert_int_equal(classes_among(three, 4), 3);
    assert_true(three[0] == 2 && three[1] == 0 && three[2] == 1);
    assert_int_equal(classes_among(real, 3), 0);
    assert_int_equal(classes_among(one, 3), 0);
    for (size_t i = 0; i < 200; i++)
        many[i] = (float)i;
    assert_int_equal(classes_among(many, 200), 0);
    assert_true(many[199] == 199);
}

/* ---- random numbers ---- */

/* Moments of a million normal numbers, each within five of its own standard deviations. */
static void test_normal(void **state)
{
    (void)state;
    enum { COUNT = 1 << 20 };
    float *values = malloc(COUNT * sizeof *values);
    assert_non_null(values);
    fill_normal(random_key(5, FOR_ROWS, 9), values, COUNT);
    double sums[5] = {0};
    size_t beyond3 = 0;
    for (size_t i = 0; i < COUNT; i++) {
        double x = (double)values[i], power = 1;
        assert_true(fabs(x) < 7);
        for (int m = 1; m <= 4; m++)
            sums[m] += power *= x;
        beyond3 += fabs(x) > 3;
    }
    const double wanted[] = {0, 0, 1, 0, 3}, variance[] = {0, 1, 2, 15, 96};
    for (int m = 1; m <= 4; m++)
        assert_true(fabs(sums[m] / COUNT - wanted[m]) < 5 * sqrt(variance[m] / COUNT));
    const double share = 0.0026997961;
    assert_true(fabs((double)beyond3 / COUNT - share) < 5 * sqrt(share / COUNT));
    free(values);
}

static void test_permutation(void **state)
{
    (void)state;
    for (uint64_t size = 1; size < 300; size += size < 20 ? 1 : 37) {
        bool seen[300] = {false};
        uint64_t fixed = 0;
        for (uint64_t i = 0; i < size; i++) {
            uint64_t to = permuted(random_key(1, FOR_SHUFFLE, size), size, i);
            assert_true(to < size && !seen[to]);
            seen[to] = true;
            fixed += to == i;
        }
        assert_true(size < 10 || fixed < size / 2); /* it does move things */
    }
}

/* ---- synthetic data ---- */

/* A row is the same whenever it is asked for, the next one and the next seed's are others, and targets are w*.x to the
 * noise. */
static void test_synthetic(void **state)
{
    (void)state;
    struct dataset data, other;
    struct failure failure;
    assert_true(dataset_open("synthetic:features=50,rows=100,test=10,noise=0", 3, false, &data, &failure));
    assert_true(dataset_open("synthetic:features=50,rows=100,test=10,noise=0", 4, false, &other, &failure));
    assert_int_equal(data.train_rows, 100);
    assert_int_equal(data.test_rows, 10);
    float first[50], again[50], target, target_again;
    for (uint64_t row = 0; row < 110; row++) {
        data.fetch(data.state, row, first, &target);
        data.fetch(data.state, row, again, &target_again);
        assert_memory_equal(first, again, sizeof first);
        double product = 0;
        for (size_t i = 0; i < 50; i++)
            product += (double)first[i] * (double)data.optimum[i];
        assert_true(fabs(product - (double)target) < 1e-5); /* one rounding to float of a number below 16 */
        other.fetch(other.state, row, again, &target_again);
        assert_true(memcmp(first, again, sizeof first) != 0);
    }
    dataset_close(&data);
    dataset_close(&other);
}

static void test_synthetic_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t rows;
        uint32_t features, classes;
    } good[] = {
        {"syn-256", 10000, 256, 0},   {"syn-512", 10000, 512, 0},   {"syn-1024", 10000, 1024, 0},
        {"syn-20k", 50000, 20000, 0}, {"synthetic", 10000, 256, 0}, {"synthetic:classes=3,features=4", 10000, 4, 3},
    };
    static const char *const bad[] = {"synthetic:rows=0",    "synthetic:rows",           "synthetic:rows=1.5",
                                      "synthetic:depth=3",   "synthetic:noise=-1",       "synthetic:noise=nan",
                                      "synthetic:classes=1", "synthetic:rows=1,,test=2", "syn-257"};
    struct dataset data;
    struct failure failure;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(dataset_open(good[i].name, 1, false, &data, &failure));
        assert_int_equal(data.train_rows, good[i].rows);
        assert_int_equal(data.features, good[i].features);
        assert_int_equal(data.classes, good[i].classes);
        dataset_close(&data);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(dataset_open(bad[i], 1, false, &data, &failure));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_libsvm_good), cmocka_unit_test(test_libsvm_bad), cmocka_unit_test(test_libsvm_numbers),
        cmocka_unit_test(test_idx),         cmocka_unit_test(test_classes),    cmocka_unit_test(test_normal),
        cmocka_unit_test(test_permutation), cmocka_unit_test(test_synthetic),  cmocka_unit_test(test_synthetic_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
