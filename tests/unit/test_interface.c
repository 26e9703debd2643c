/* What keeps the interface from being used wrongly in silence: policies that are not mixed up, tables that are complete
 * and fit the structs that describe them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codec/codec.h"
#include "device/cpu/cpu.h"
#include "kernels/kernels.h"

/* ---- policies ---- */

static void an_encoder_refuses_a_reducers_policy(void **state)
{
    (void)state;
    tg_device *device;
    tg_codec *codec;
    tg_spec spec;
    tg_error error;
    float values[4] = {1, 2, 3, 4};
    uint8_t frame[256];
    const tg_tensor input = {values, 4, TG_FLOAT32};
    assert_int_equal(tg_device_open("cpu", NULL, &device, &error), TG_OK);
    assert_int_equal(tg_spec_parse("none", &spec, &error), TG_OK);
    assert_int_equal(tg_codec_create(device, &spec, 4, &codec, &error), TG_OK);
    const int wrong[] = {TG_NONFINITE_SKIP, TG_NONFINITE_DROP};
    for (size_t i = 0; i < 2; i++) {
        const tg_encode_options options = {.nonfinite = (tg_nonfinite)wrong[i]};
        assert_int_equal(tg_encode(codec, &input, &options, frame, sizeof frame, NULL, &error), TG_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, "tg_nonfinite_step"));
    }
    const int right[] = {TG_NONFINITE_REJECT, TG_NONFINITE_ZERO, TG_NONFINITE_TRUST};
    for (size_t i = 0; i < 3; i++) {
        const tg_encode_options options = {.nonfinite = (tg_nonfinite)right[i]};
        assert_int_equal(tg_encode(codec, &input, &options, frame, sizeof frame, NULL, &error), TG_OK);
    }
    tg_codec_free(codec);
    tg_device_free(device);
}

static void a_reducer_refuses_an_encoders_policy(void **state)
{
    (void)state;
    tg_device *device;
    tg_reducer *reducer;
    tg_error error;
    const tg_reducer_tensor tensor = {.name = "one", .count = 4};
    assert_int_equal(tg_device_open("cpu", NULL, &device, &error), TG_OK);
    const int wrong[] = {TG_NONFINITE_ZERO, TG_NONFINITE_TRUST};
    for (size_t i = 0; i < 2; i++) {
        const tg_reducer_options options = {.nonfinite = (tg_nonfinite_step)wrong[i]};
        assert_int_equal(tg_reducer_create(device, 0, 1, &tensor, 1, &options, &reducer, &error), TG_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, "tg_nonfinite,"));
    }
    const int right[] = {TG_NONFINITE_STOP, TG_NONFINITE_SKIP, TG_NONFINITE_DROP};
    for (size_t i = 0; i < 3; i++) {
        const tg_reducer_options options = {.nonfinite = (tg_nonfinite_step)right[i]};
        assert_int_equal(tg_reducer_create(device, 0, 1, &tensor, 1, &options, &reducer, &error), TG_OK);
        tg_reducer_free(reducer);
    }
    tg_device_free(device);
}

static void algorithms_have_names(void **state)
{
    (void)state;
    assert_string_equal(tg_algorithm_text(TG_AUTO), "auto");
    assert_string_equal(tg_algorithm_text(TG_GATHER), "gather");
    assert_string_equal(tg_algorithm_text(TG_SHARD), "shard");
    assert_string_equal(tg_algorithm_text(TG_SCATTER), "scatter");
    assert_string_equal(tg_algorithm_text((tg_algorithm)77), "unknown algorithm");
    assert_string_equal(tg_algorithm_text((tg_algorithm)-1), "unknown algorithm");
}

/* ---- codecs ---- */

static void every_codec_row_is_complete(void **state)
{
    (void)state;
    size_t rows = 0, plain = 0, lossless = 0;
    for (const tg_codec_row *row; (row = tg_codec_row_at(rows)); rows++) {
        size_t parameters = 0;
        while (row->parameters[parameters])
            parameters++;
        assert_true(parameters <= TG_MAX_PARAMETERS);
        tg_codec_info info;
        assert_int_equal(tg_codec_list(rows, &info), TG_OK);
        assert_int_equal(info.parameter_count, parameters);
        assert_int_equal(info.wants_feedback, row->wants_feedback);
        assert_true(row->bound && row->workspace && row->encode && row->open && row->read && row->done && row->peak);
        assert_true(row->gamma && row->name && row->summary);
        /* Whoever selects leaves most of the gradient out; whoever is unbiased does not need feedback. */
        assert_true(row->wants_feedback || !row->sparse);
        assert_false(row->wants_feedback && row->unbiased);
        plain += row->plain;
        lossless += row->lossless;
    }
    assert_int_equal(plain, 3);
    assert_int_equal(lossless, 1);
    assert_true(tg_codec_row_of(0)->lossless);
}

/* ---- kernels ---- */

static void every_kernel_set_is_complete(void **state)
{
    (void)state;
    for (size_t i = 0; tg_kernels_at(i); i++)
        assert_null(tg_kernels_missing(tg_kernels_at(i)));
}

/* Such kernels would be called through NULL. */
static void expect_refused(const tg_kernels *kernels, const char *why)
{
    tg_device *device = NULL;
    tg_error error = {""};
    assert_int_equal(tg_cpu_open_kernels(kernels, "cpu", NULL, &device, &error), TG_UNAVAILABLE);
    assert_null(device);
    assert_non_null(strstr(error.message, why));
}

#define EXPECT_MISSING(entry)                          \
    do {                                               \
        tg_kernels without = *tg_kernels_at(0);        \
        without.entry = NULL;                          \
        expect_refused(&without, "lack '" #entry "'"); \
    } while (0)

static void a_missing_kernel_is_named(void **state)
{
    (void)state;
    EXPECT_MISSING(widen);
    EXPECT_MISSING(load);
    EXPECT_MISSING(first_nonfinite);
    EXPECT_MISSING(compensate);
    EXPECT_MISSING(unpack);
    EXPECT_MISSING(count_at_least);
    EXPECT_MISSING(nontemporal_fence);
    EXPECT_MISSING(digest);
    /* Selection in one pass takes three, or none. */
    tg_kernels without = *tg_kernels_at(0);
    without.collect = NULL;
    without.keys_below = NULL;
    without.filter = NULL;
    tg_device *device = NULL;
    assert_int_equal(tg_cpu_open_kernels(&without, "cpu", NULL, &device, NULL), TG_OK);
    tg_device_free(device);
    if (tg_kernels_at(0)->collect) {
        EXPECT_MISSING(keys_below);
        EXPECT_MISSING(filter);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_encoder_refuses_a_reducers_policy),
        cmocka_unit_test(a_reducer_refuses_an_encoders_policy),
        cmocka_unit_test(algorithms_have_names),
        cmocka_unit_test(every_codec_row_is_complete),
        cmocka_unit_test(every_kernel_set_is_complete),
        cmocka_unit_test(a_missing_kernel_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
