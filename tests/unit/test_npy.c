/* The command's .npy reader and writer: what is accepted, what is refused, every prefix and every changed byte of a
 * good file, and the conversions in place. */
#include "common/npy.h" /* first: cmocka takes the name `fail` for a macro */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A version 1 file from a dictionary and data; the caller frees. */
static uint8_t *make_file(const char *dictionary, const void *data, size_t data_size, size_t *size)
{
    size_t length = strlen(dictionary);
    *size = 10 + length + data_size;
    uint8_t *file = malloc(*size ? *size : 1);
    assert_non_null(file);
    memcpy(file, "\x93NUMPY\x01\x00", 8);
    file[8] = (uint8_t)length;
    file[9] = (uint8_t)(length >> 8);
    memcpy(file + 10, dictionary, length);
    if (data_size > 0)
        memcpy(file + 10 + length, data, data_size);
    return file;
}

static bool parses(const char *dictionary, size_t data_size, struct npy *npy)
{
    static const uint8_t zeros[64];
    size_t size;
    uint8_t *file = make_file(dictionary, zeros, data_size, &size);
    struct failure failure;
    bool answer = npy_parse(file, size, npy, &failure);
    free(file);
    return answer;
}

static void test_dictionaries(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t data_size;
        bool good;
        uint64_t count;
    } table[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", 12, true, 3},
        {"{\"shape\":(3,4),\"fortran_order\":False,\"descr\":\">f2\"}", 24, true, 12},
        {"{'descr': 'f8', 'fortran_order': False, 'shape': ()}", 8, true, 1},
        {"{'descr': '=f4', 'fortran_order': True, 'shape': (2,)}", 8, true, 2},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 18446744073709551615, 3)}", 0, true, 0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2L,)}", 8, true, 2},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2)}", 8, true, 2},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}", 16, false, 0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", 8, false, 0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", 4, false, 0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551616,)}", 4, false, 0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808, 2)}", 0, false, 0},
        {"{'descr': '|f4', 'fortran_order': False, 'shape': (1,)}", 4, false, 0},
        {"{'descr': '<f44', 'fortran_order': False, 'shape': (1,)}", 4, false, 0},
        {"{'descr': '<f\\x34', 'fortran_order': False, 'shape': (1,)}", 4, false, 0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 3, false, 0},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 5, false, 0},
        {"{'descr': '<f4', 'fortran_order': False}", 4, false, 0},
        {"{}", 0, false, 0},
        {"", 0, false, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct npy npy;
        assert_int_equal(parses(table[i].text, table[i].data_size, &npy), table[i].good);
        if (table[i].good)
            assert_int_equal(npy.count, table[i].count);
    }
}

/* Each copy has exactly its bytes, so that a sanitizer sees a read past the end. */
static void test_damage(void **state)
{
    (void)state;
    const float values[] = {1, -2, 3};
    size_t size;
    uint8_t *good = make_file("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }  \n", values, sizeof values,
                              &size);
    struct npy npy;
    struct failure failure;
    for (size_t cut = 0; cut < size; cut++) {
        uint8_t *copy = malloc(cut ? cut : 1);
        assert_non_null(copy);
        memcpy(copy, good, cut);
        assert_false(npy_parse(copy, cut, &npy, &failure));
        free(copy);
    }
    uint8_t *copy = malloc(size);
    assert_non_null(copy);
    for (size_t at = 0; at < size; at++) {
        for (unsigned value = 0; value < 256; value++) {
            memcpy(copy, good, size);
            copy[at] = (uint8_t)value;
            if (npy_parse(copy, size, &npy, &failure))
                assert_true(npy.data_offset <= size && npy.count * npy.type == size - npy.data_offset);
        }
    }
    free(copy);
    free(good);
}

static void test_half(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 0x10000; bits++) {
        int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
        double magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                           : exponent == 0 ? ldexp(fraction, -24)
                                           : ldexp(1024 + fraction, exponent - 25);
        float value = half_to_float((uint16_t)bits);
        assert_int_equal(signbit(value) != 0, bits >> 15);
        if (isnan(magnitude))
            assert_true(isnan(value));
        else
            assert_true(fabs((double)value) == magnitude);
    }
}

/* The same numbers in every type and byte order become the same floats. */
static void test_unpack(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        const char *data; /* 1, -2, 0.5 */
        size_t size;
        bool widen;
    } table[] = {
        {"<f4", "\x00\x00\x80\x3f\x00\x00\x00\xc0\x00\x00\x00\x3f", 12, false},
        {">f4", "\x3f\x80\x00\x00\xc0\x00\x00\x00\x3f\x00\x00\x00", 12, false},
        {"<f8", "\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\x00\xc0\0\0\0\0\0\0\xe0\x3f", 24, false},
        {">f8", "\x3f\xf0\0\0\0\0\0\0\xc0\x00\0\0\0\0\0\0\x3f\xe0\0\0\0\0\0\0", 24, false},
        {"<f2", "\x00\x3c\x00\xc0\x00\x38", 6, true},
        {">f2", "\x3c\x00\xc0\x00\x38\x00", 6, true},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char dictionary[80];
        snprintf(dictionary, sizeof dictionary, "{'descr': '%s', 'fortran_order': False, 'shape': (3,)}",
                 table[i].dtype);
        size_t size;
        uint8_t *file = make_file(dictionary, table[i].data, table[i].size, &size);
        struct npy npy;
        struct failure failure;
        assert_true(npy_parse(file, size, &npy, &failure));
        assert_int_equal(npy_unpack(file, &npy, table[i].widen), NPY_F4);
        const float wanted[] = {1, -2, 0.5f};
        assert_memory_equal(file, wanted, sizeof wanted);
        free(file);
    }
}

/* Integers of every size, sign and byte order; what float32 has not exactly is named. */
static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *dtype, *data;
        size_t size, count;
        float wanted[3];
        uint64_t where; /* of the first that does not fit; count: all do */
    } table[] = {
        {"|u1", "\x00\x07\xff", 3, 3, {0, 7, 255}, 3},
        {"|i1", "\x00\x7f\x80", 3, 3, {0, 127, -128}, 3},
        {"|b1", "\x00\x01\x01", 3, 3, {0, 1, 1}, 3},
        {"<i2", "\xfe\xff\x01\x00\x00\x80", 6, 3, {-2, 1, -32768}, 3},
        {">u2", "\xff\xfe\x00\x01\x00\x00", 6, 3, {65534, 1, 0}, 3},
        {"<i4", "\xff\xff\xff\xff\x00\x00\x00\x80", 8, 2, {-1, -0x1p31f, 0}, 2},
        {"<u4", "\x01\x00\x00\x01\x00\x00\x00\x00", 8, 2, {0, 0, 0}, 0}, /* 2^24 + 1 */
        {"<i8", "\x09\0\0\0\0\0\0\0\xf7\xff\xff\xff\xff\xff\xff\xff", 16, 2, {9, -9, 0}, 2},
        {">i8", "\x80\0\0\0\0\0\0\0\x00\0\0\0\0\0\0\x01", 16, 2, {-0x1p63f, 1, 0}, 2},
        {"<u8", "\0\0\0\0\0\0\0\x80\xff\xff\xff\xff\xff\xff\xff\xff", 16, 2, {0x1p63f, 0, 0}, 1},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char dictionary[80];
        snprintf(dictionary, sizeof dictionary, "{'descr': '%s', 'fortran_order': False, 'shape': (%zu,)}",
                 table[i].dtype, table[i].count);
        size_t size;
        uint8_t *file = make_file(dictionary, table[i].data, table[i].size, &size);
        struct npy npy;
        struct failure failure;
        float values[3];
        uint64_t where;
        assert_false(npy_parse(file, size, &npy, &failure));
        assert_true(npy_parse_any(file, size, &npy, &failure));
        assert_int_equal(npy.count, table[i].count);
        assert_int_equal(npy_integers(file, &npy, values, &where), table[i].where == table[i].count);
        if (table[i].where < table[i].count)
            assert_int_equal(where, table[i].where);
        for (uint64_t j = 0; j < table[i].where; j++)
            assert_true(values[j] == table[i].wanted[j]);
        free(file);
    }
    static const char *const refused[] = {"<i3", "<c8", "<b2", "|u2", "u", "<U8", "<f1", "<i16", "<i"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char dictionary[80];
        snprintf(dictionary, sizeof dictionary, "{'descr': '%s', 'fortran_order': False, 'shape': (0,)}", refused[i]);
        size_t size;
        uint8_t *file = make_file(dictionary, "", 0, &size);
        struct npy npy;
        struct failure failure;
        assert_false(npy_parse_any(file, size, &npy, &failure));
        free(file);
    }
}

static void test_header(void **state)
{
    (void)state;
    static const uint64_t counts[] = {0, 1, 9, 10, 1000000, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char header[NPY_HEADER_MAX];
        size_t length = npy_write_header(NPY_F2, counts[i], header);
        assert_true(length <= sizeof header && length % 64 == 0 && header[length - 1] == '\n');
        if (counts[i] > 10)
            continue;
        uint8_t file[NPY_HEADER_MAX + 20] = {0};
        memcpy(file, header, length);
        struct npy npy;
        struct failure failure;
        assert_true(npy_parse(file, length + 2 * (size_t)counts[i], &npy, &failure));
        assert_true(npy.type == NPY_F2 && !npy.big_endian && npy.count == counts[i] && npy.data_offset == length);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dictionaries), cmocka_unit_test(test_damage),   cmocka_unit_test(test_half),
        cmocka_unit_test(test_unpack),       cmocka_unit_test(test_integers), cmocka_unit_test(test_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
