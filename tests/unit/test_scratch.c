/* Scratch buffers: each is for one thread at a time, and a child after fork has those that its parent's threads held.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/scratch.h"

static void buffers_differ(void **state)
{
    (void)state;
    tg_scratch scratch;
    assert_true(tg_scratch_make(&scratch, 2, 100));
    char *first = tg_scratch_take(&scratch), *second = tg_scratch_take(&scratch);
    assert_true(second - first >= 100 || first - second >= 100);
    tg_scratch_give(&scratch, first);
    assert_ptr_equal(tg_scratch_take(&scratch), first);
    tg_scratch_free(&scratch);
}

static void child_has_all(void **state)
{
    (void)state;
    tg_scratch scratch;
    assert_true(tg_scratch_make(&scratch, 1, 100));
    (void)tg_scratch_take(&scratch);
    const pid_t child = fork();
    if (child == 0) {
        (void)alarm(600); /* ends a child that would wait for ever */
        (void)tg_scratch_take(&scratch);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    tg_scratch_free(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(buffers_differ), cmocka_unit_test(child_has_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
