/* What our unit tests use of cmocka, for machines we cross-compile to: there is no cmocka there. The first assertion
 * that does not hold ends its test, as cmocka does it. */
#ifndef TESTS_FOREIGN_CMOCKA_H
#define TESTS_FOREIGN_CMOCKA_H

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
#define cmocka_unit_test(TEST) \
    {                          \
#TEST, TEST            \
    }

static jmp_buf cmocka_end_of_test;

static inline void cmocka_assert(int held, const char *what, const char *file, int line)
{
    if (held)
        return;
    printf("%s:%d: %s\n", file, line, what);
    longjmp(cmocka_end_of_test, 1);
}

#define print_message printf
#define fail_msg(...) (printf(__VA_ARGS__), cmocka_assert(0, " (failed)", __FILE__, __LINE__))
#define CMOCKA_ASSERT(HELD, WHAT) cmocka_assert(!!(HELD), WHAT, __FILE__, __LINE__)
#define assert_true(X) CMOCKA_ASSERT(X, #X)
#define assert_false(X) CMOCKA_ASSERT(!(X), "not " #X)
#define assert_null(P) CMOCKA_ASSERT((P) == NULL, #P " is NULL")
#define assert_non_null(P) CMOCKA_ASSERT((P) != NULL, #P " is not NULL")
#define assert_ptr_equal(A, B) CMOCKA_ASSERT((const void *)(A) == (const void *)(B), #A " == " #B)
#define assert_int_equal(A, B) CMOCKA_ASSERT((uintmax_t)(A) == (uintmax_t)(B), #A " == " #B)
#define assert_int_not_equal(A, B) CMOCKA_ASSERT((uintmax_t)(A) != (uintmax_t)(B), #A " != " #B)
#define assert_in_range(X, LEAST, MOST)                                                        \
    CMOCKA_ASSERT((uintmax_t)(X) >= (uintmax_t)(LEAST) && (uintmax_t)(X) <= (uintmax_t)(MOST), \
                  #X " from " #LEAST " to " #MOST)
#define assert_memory_equal(A, B, SIZE) CMOCKA_ASSERT(memcmp(A, B, SIZE) == 0, #A " and " #B " hold the same")
#define assert_string_equal(A, B) CMOCKA_ASSERT(strcmp(A, B) == 0, #A " and " #B " read the same")

/* Without set-up and tear-down: no test of ours has them. */
#define cmocka_run_group_tests(TESTS, SETUP, TEARDOWN) cmocka_run((TESTS), sizeof(TESTS) / sizeof(TESTS)[0])

static inline int cmocka_run(const struct CMUnitTest *tests, size_t count)
{
    volatile unsigned failed = 0; /* volatile: longjmp leaves them alone */
    for (volatile size_t i = 0; i < count; i++) {
        if (setjmp(cmocka_end_of_test) == 0) {
            tests[i].run(&(void *){NULL});
        } else {
            printf("FAIL %s\n", tests[i].name);
            failed++;
        }
    }
    printf("%u passed, %u failed, 0 skipped\n", (unsigned)count - failed, failed);
    return (int)failed;
}

#endif
