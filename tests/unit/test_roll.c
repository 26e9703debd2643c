/* Who is on which machine, in words; and how a process is known again. */
#include "train/roll.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_machines(void **state)
{
    (void)state;
    struct place places[40];
    char text[256];
    memset(places, 0, sizeof places);
    for (uint32_t i = 0; i < 40; i++) {
        places[i].machine = i == 0 ? 7 : i < 3 ? 8 : i == 3 ? 7 : 9;
        snprintf(places[i].host, sizeof places[i].host, "n%u", (unsigned)places[i].machine);
    }
    assert_int_equal(count_machines(places, 1), 1);
    assert_int_equal(count_machines(places, 4), 2);
    assert_int_equal(count_machines(places, 40), 3);
    assert_int_equal(first_beside(places, 3), 0);
    assert_int_equal(first_beside(places, 2), 1);
    assert_int_equal(first_beside(places, 39), 4);
    describe_machine(places, 1, 0, text, sizeof text);
    assert_string_equal(text, "host n7 (rank 0)");
    describe_machine(places, 4, 3, text, sizeof text);
    assert_string_equal(text, "host n7 (ranks 0 and 3)");
    describe_machine(places, 7, 4, text, sizeof text);
    assert_string_equal(text, "host n9 (ranks 4, 5 and 6)");
    describe_machine(places, 40, 39, text, sizeof text);
    assert_string_equal(text, "host n9 (ranks 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19 and 20 more)");
    describe_machine(places, 40, 39, text, 20);
    assert_string_equal(text, "host n9 (ranks 4, 5");
}

/* Nobody is signalled who is not the one that was meant. */
static void test_processes(void **state)
{
    (void)state;
    struct process child;
    int64_t parent;
    char name[PROCESS_NAME_SIZE];
    const pid_t number = fork();
    if (number == 0) {
        (void)sleep(60);
        _exit(0);
    }
    assert_true(number > 0);
    assert_true(process_look(number, &child, &parent, name));
    assert_int_equal(parent, getpid());
    assert_true(strlen(name) > 0); /* an emulator's, where one runs this */
    assert_true(process_lives(&child));
    struct process other = child;
    other.start++;
    assert_false(process_lives(&other));
    process_signal(&other, SIGKILL);
    process_signal(&(struct process){0}, SIGKILL); /* which would be this whole group */
    assert_true(process_lives(&child));
    process_signal(&child, SIGKILL);
    int status;
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)number, &info, WEXITED | WNOWAIT), 0);
    assert_false(process_lives(&child)); /* though its number is not free yet */
    assert_int_equal(waitpid(number, &status, 0), number);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_false(process_look(number, &child, &parent, name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_machines), cmocka_unit_test(test_processes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
