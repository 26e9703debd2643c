/* Signs of life between hosts: which packets count, and when a host is taken for silent. Times are made up, and nothing
 * is sent. */
#include "train/beat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

enum { HOSTS = 3, SELF = 1 };
static const struct beat_address from = {.bytes = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 7}, .port = 99};
static struct beat_peer peers[HOSTS];

/* The second of three hosts, at 100 s. Without a socket what is to be sent is lost. */
static struct beat make(void)
{
    struct beat beat = {.socket = -1};
    memset(peers, 0, sizeof peers);
    peers[0].place.secret[0] = 0x0123456789abcdef;
    peers[0].place.secret[1] = 42;
    beat_join(&beat, peers, HOSTS, SELF, 100 * BEAT_SECOND);
    return beat;
}

static struct beat_packet good(uint32_t sender, uint32_t kind)
{
    return (struct beat_packet){{0x0123456789abcdef, 42}, kind, sender, 0, 0};
}

static enum beat_kind take(struct beat *beat, const struct beat_packet *packet, size_t size, uint64_t now)
{
    struct beat_packet taken;
    return beat_take(beat, packet, size, &from, now, &taken);
}

static enum beat_kind hear(struct beat *beat, uint32_t sender, enum beat_kind kind, uint64_t now)
{
    const struct beat_packet packet = good(sender, (uint32_t)kind);
    return take(beat, &packet, sizeof packet, now);
}

/* Turns every second from one time to another, as a watcher does. */
static void turn(struct beat *beat, uint64_t first, uint64_t last)
{
    for (uint64_t now = first; now <= last; now += BEAT_SECOND)
        beat_turn(beat, now);
}

static void test_good_packet(void **state)
{
    (void)state;
    struct beat beat = make();
    assert_false(beat_is_known(&beat, 0));
    assert_int_equal(hear(&beat, 0, BEAT_HERE, 101 * BEAT_SECOND), BEAT_HERE);
    assert_true(beat_is_known(&beat, 0));
    assert_false(beat_is_known(&beat, 2));
    assert_int_equal(peers[0].heard, 101 * BEAT_SECOND);
    assert_memory_equal(&peers[0].from, &from, sizeof from);
    assert_int_equal(hear(&beat, 2, BEAT_ASK, 101 * BEAT_SECOND), BEAT_ASK);
    assert_int_equal(hear(&beat, 2, BEAT_LOST, 101 * BEAT_SECOND), BEAT_LOST);
    assert_true(beat_is_known(&beat, 2));
}

static void test_bad_packets(void **state)
{
    (void)state;
    struct beat beat = make();
    uint8_t longer[BEAT_PACKET_SIZE + 1] = {0};
    struct beat_packet packet = good(0, BEAT_HERE), taken;
    memcpy(longer, &packet, sizeof packet);
    for (size_t size = 0; size <= sizeof longer; size++)
        if (size != BEAT_PACKET_SIZE)
            assert_int_equal(beat_take(&beat, longer, size, &from, 1, &taken), BEAT_NONE);
    for (unsigned bit = 0; bit < 128; bit++) {
        packet = good(0, BEAT_HERE);
        packet.secret[bit / 64] ^= UINT64_C(1) << bit % 64;
        assert_int_equal(take(&beat, &packet, sizeof packet, 1), BEAT_NONE);
    }
    packet = good(0, BEAT_NONE);
    assert_int_equal(take(&beat, &packet, sizeof packet, 1), BEAT_NONE);
    packet = good(0, BEAT_LOST + 1);
    assert_int_equal(take(&beat, &packet, sizeof packet, 1), BEAT_NONE);
    packet = good(SELF, BEAT_HERE);
    assert_int_equal(take(&beat, &packet, sizeof packet, 1), BEAT_NONE);
    packet = good(HOSTS, BEAT_HERE);
    assert_int_equal(take(&beat, &packet, sizeof packet, 1), BEAT_NONE);
    packet = good(0, BEAT_LOST);
    packet.about = HOSTS;
    assert_int_equal(take(&beat, &packet, sizeof packet, 1), BEAT_NONE);
    for (uint32_t i = 0; i < HOSTS; i++)
        assert_false(beat_is_known(&beat, i));
}

static bool is_silent(const struct beat *beat, uint32_t host, uint64_t seconds)
{
    return beat_is_silent(beat, host, seconds * BEAT_SECOND, BEAT_SILENCE);
}

static void test_silence(void **state)
{
    (void)state;
    struct beat beat = make();
    (void)hear(&beat, 0, BEAT_HERE, 110 * BEAT_SECOND);
    turn(&beat, 100 * BEAT_SECOND, 200 * BEAT_SECOND);
    assert_false(is_silent(&beat, 0, 110));
    assert_false(is_silent(&beat, 0, 122));
    assert_true(is_silent(&beat, 0, 123));
    assert_false(is_silent(&beat, SELF, 1000));
    assert_false(is_silent(&beat, 2, 1000)); /* never heard */
    beat.progressed = 0;                     /* nor was anything done */
    assert_false(is_silent(&beat, 2, 1000));
    (void)hear(&beat, 0, BEAT_HERE, 123 * BEAT_SECOND);
    assert_false(is_silent(&beat, 0, 135));
    assert_true(is_silent(&beat, 0, 136));
    (void)hear(&beat, 0, BEAT_LEFT, 136 * BEAT_SECOND);
    assert_false(is_silent(&beat, 0, 1000));
    (void)hear(&beat, 0, BEAT_HERE, 137 * BEAT_SECOND); /* a packet that was overtaken */
    assert_false(is_silent(&beat, 0, 1000));
}

/* Who was stopped has heard nobody, and nobody is to blame. */
static void test_stopped(void **state)
{
    (void)state;
    struct beat beat = make();
    (void)hear(&beat, 0, BEAT_HERE, 110 * BEAT_SECOND);
    turn(&beat, 100 * BEAT_SECOND, 111 * BEAT_SECOND);
    turn(&beat, 171 * BEAT_SECOND, 182 * BEAT_SECOND);
    assert_false(is_silent(&beat, 0, 183));
    turn(&beat, 183 * BEAT_SECOND, 184 * BEAT_SECOND);
    assert_true(is_silent(&beat, 0, 184));
}

/* A job that gets on has all its hosts, whatever becomes of packets, then and afterwards. */
static void test_progress(void **state)
{
    (void)state;
    struct beat beat = make();
    (void)hear(&beat, 0, BEAT_HERE, 110 * BEAT_SECOND);
    for (uint64_t seconds = 101; seconds <= 200; seconds++) {
        beat_progress(&beat, seconds * BEAT_SECOND);
        turn(&beat, seconds * BEAT_SECOND, seconds * BEAT_SECOND);
        assert_false(is_silent(&beat, 0, seconds));
    }
    turn(&beat, 200 * BEAT_SECOND, 300 * BEAT_SECOND);
    assert_false(beat_is_known(&beat, 0));
    assert_false(is_silent(&beat, 0, 300));
    (void)hear(&beat, 0, BEAT_HERE, 300 * BEAT_SECOND); /* it can be heard again */
    assert_false(is_silent(&beat, 0, 312));
    assert_true(is_silent(&beat, 0, 313));
}

/* Steps that a host had given its part to before it was lost do not speak for it: they may be done late. */
static void test_last_steps(void **state)
{
    (void)state;
    struct beat beat = make();
    beat_progress(&beat, 109 * BEAT_SECOND);
    (void)hear(&beat, 0, BEAT_HERE, 110 * BEAT_SECOND);
    beat_progress(&beat, 115 * BEAT_SECOND);
    beat_progress(&beat, 121 * BEAT_SECOND);
    turn(&beat, 100 * BEAT_SECOND, 123 * BEAT_SECOND);
    assert_true(is_silent(&beat, 0, 123));
}

static void test_due(void **state)
{
    (void)state;
    struct beat beat = make();
    assert_int_equal(beat_wait(&beat, 100 * BEAT_SECOND), 0);
    beat_turn(&beat, 100 * BEAT_SECOND);
    assert_int_equal(beat_wait(&beat, 100 * BEAT_SECOND), 1000);
    assert_int_equal(beat_wait(&beat, 101 * BEAT_SECOND - 1), 1);
    assert_int_equal(beat_wait(&beat, 102 * BEAT_SECOND), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_packet), cmocka_unit_test(test_bad_packets), cmocka_unit_test(test_silence),
        cmocka_unit_test(test_stopped),     cmocka_unit_test(test_progress),    cmocka_unit_test(test_last_steps),
        cmocka_unit_test(test_due),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
