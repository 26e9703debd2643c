/* TG_AUTO: shard where it saves more bytes than a round is worth, else gather. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tersegrad.h"

static tg_algorithm chosen(const char *text, const uint64_t *counts, size_t count, uint32_t world)
{
    tg_device *device;
    tg_reducer *reducer;
    tg_reducer_tensor tensors[8] = {{0}};
    tg_reducer_stats stats;
    tg_spec spec;
    assert_int_equal(tg_device_open("cpu", NULL, &device, NULL), TG_OK);
    assert_int_equal(tg_spec_parse(text, &spec, NULL), TG_OK);
    for (size_t i = 0; i < count; i++)
        tensors[i] = (tg_reducer_tensor){.name = "t", .codec = spec, .count = counts[i], .dtype = TG_FLOAT32};
    assert_int_equal(tg_reducer_create(device, 0, world, tensors, count, NULL, &reducer, NULL), TG_OK);
    assert_int_equal(tg_reducer_stats_of(reducer, &stats, NULL), TG_OK);
    tg_reducer_free(reducer);
    tg_device_free(device);
    return stats.algorithm;
}

/* The network of `make demo`, 200-256-128-10, where shard sends half of what gather does. */
static void test_network_of_the_demo(void **state)
{
    (void)state;
    static const uint64_t counts[] = {51200, 256, 32768, 128, 1280, 10};
    assert_int_equal(chosen("none", counts, 6, 4), TG_SHARD);
    assert_int_equal(chosen("fp16", counts, 6, 4), TG_SHARD);
    assert_int_equal(chosen("qsgd:levels=4,norm=l2,bucket=512", counts, 6, 4), TG_SHARD);
    assert_int_equal(chosen("topk:density=0.01", counts, 6, 4), TG_GATHER);
}

/* In a world of two both send the same; what is small is not worth another round. */
static void test_little_to_save(void **state)
{
    (void)state;
    static const uint64_t large = 10000000, small = 4000;
    assert_int_equal(chosen("none", &large, 1, 2), TG_GATHER);
    assert_int_equal(chosen("none", &large, 1, 3), TG_SHARD);
    assert_int_equal(chosen("qsgd", &small, 1, 4), TG_GATHER);
    assert_int_equal(chosen("none", &small, 1, 4), TG_GATHER);
    assert_int_equal(chosen("qsgd:coding=entropy", &small, 1, 4), TG_GATHER);
}

/* What matters is bytes: at one and at sixteen bits an element the choice turns at other counts. */
static void test_turns_at_the_same_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        double bits;
    } codecs[] = {{"none", 32},
                  {"fp16", 16},
                  {"qsgd:levels=127", 8 + 32.0 / 512},
                  {"qsgd", 4 + 32.0 / 512},
                  {"onebit", 1 + 32.0 / 512}};
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        for (uint32_t world = 3; world <= 16; world += 13) {
            const double saved = (world - 1) * (1 - 2.0 / world); /* for each byte of a rank's frames */
            const uint64_t turn = (uint64_t)(32768 * 8 / (saved * codecs[i].bits));
            const uint64_t below = turn * 9 / 10, above = turn * 11 / 10;
            assert_int_equal(chosen(codecs[i].spec, &below, 1, world), TG_GATHER);
            assert_int_equal(chosen(codecs[i].spec, &above, 1, world), TG_SHARD);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_network_of_the_demo),
        cmocka_unit_test(test_little_to_save),
        cmocka_unit_test(test_turns_at_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
