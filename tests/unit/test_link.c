/* How long messages take on links, by a clock that is given. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "transport/link.h"

enum { FULL = 1448, PACKET = 1514 }; /* of a packet: what is the caller's, and all of it */

/* A bit takes a nanosecond. */
static const tg_link gigabit = {.bits_per_second = 1e9, .latency_seconds = 50e-6};

static void headers_take_time(void **state)
{
    (void)state;
    assert_int_equal(tg_link_time(&gigabit, FULL), 8 * PACKET);
    assert_int_equal(tg_link_time(&gigabit, 10 * FULL), 80 * PACKET);
    assert_int_equal(tg_link_time(&gigabit, FULL + 1), 8 * (PACKET + 67));
    assert_int_equal(tg_link_time(&gigabit, 0), 8 * 66);
    const tg_link slower = {.bits_per_second = 1e8};
    assert_int_equal(tg_link_time(&slower, FULL), 80 * PACKET);
}

static void messages_follow_each_other(void **state)
{
    (void)state;
    const uint64_t time = 8 * PACKET, latency = 50000;
    tg_bucket out[3] = {{0}, {0}, {0}}, in[3] = {{0}, {0}, {0}};
    assert_int_equal(tg_link_move(&gigabit, &out[0], &in[1], 1000, FULL), 1000 + time + latency);
    /* the way back is free; the same way is not; nor is the receiver's link for another sender */
    assert_int_equal(tg_link_move(&gigabit, &out[1], &in[0], 1000, FULL), 1000 + time + latency);
    assert_int_equal(tg_link_move(&gigabit, &out[0], &in[2], 1000, FULL), 1000 + 2 * time + latency);
    assert_int_equal(tg_link_move(&gigabit, &out[2], &in[1], 1000, FULL), 1000 + 2 * time + latency);
    /* what was idle has saved nothing up */
    assert_int_equal(tg_link_move(&gigabit, &out[0], &in[1], 9000000, FULL), 9000000 + time + latency);
}

static void bad_links_are_refused(void **state)
{
    (void)state;
    const uint32_t hosts[2] = {0, 2};
    const tg_link bad[] = {{.bits_per_second = 0},
                           {.bits_per_second = -1e9},
                           {.bits_per_second = (double)NAN},
                           {.bits_per_second = (double)INFINITY},
                           {.bits_per_second = 1e9, .latency_seconds = -1e-6},
                           {.bits_per_second = 1e9, .latency_seconds = (double)INFINITY},
                           {.bits_per_second = 1e9, .host_of_rank = hosts}};
    tg_transport *transports[2];
    tg_error error;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(tg_transport_local_link(2, &bad[i], transports, &error), TG_INVALID_ARGUMENT);
    assert_int_equal(tg_transport_local_link(2, NULL, transports, &error), TG_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(headers_take_time),
                                       cmocka_unit_test(messages_follow_each_other),
                                       cmocka_unit_test(bad_links_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
