/* Texts and specs are exact both ways: whatever spec is accepted, its text gives the same bytes again. */
#include <float.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/random.h"
#include "tersegrad.h"

static uint64_t state = 88172645463325252u;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* ---- codecs ---- */

static void returns_to(const char *text, const tg_spec *spec)
{
    tg_spec again;
    char printed[TG_SPEC_TEXT];
    tg_error error;
    if (tg_spec_parse(text, &again, &error) != TG_OK)
        fail_msg("'%s': %s", text, error.message);
    assert_memory_equal(&again, spec, sizeof again);
    assert_int_equal(tg_spec_print(&again, printed, sizeof printed, &error), TG_OK);
    assert_string_equal(printed, text);
}

static void whole_numbers(void **unused)
{
    (void)unused;
    const uint32_t edges[] = {1,           2,           999999999,   1000000000, 1000000001,
                              2147483648u, 4000000000u, 4294967294u, UINT32_MAX};
    for (size_t i = 0; i < 2000; i++) {
        const uint32_t number = i < sizeof edges / sizeof *edges ? edges[i] : (uint32_t)next_random();
        const tg_spec bucket = {.codec = 3, .choices = 1, .levels = 7, .bucket = number},
                      k = {.codec = 16, .choices = 0x40, .amount = number ? number : 1};
        char text[TG_SPEC_TEXT];
        assert_int_equal(tg_spec_print(&bucket, text, sizeof text, NULL), TG_OK);
        returns_to(text, &bucket);
        assert_int_equal(tg_spec_print(&k, text, sizeof text, NULL), TG_OK);
        returns_to(text, &k);
    }
    static const char *const refused[] = {"topk:k=4294967296",
                                          "topk:k=4294967295.5",
                                          "topk:k=42949672950",
                                          "topk:k=18446744073709551617",
                                          "topk:k=0",
                                          "qsgd:bucket=4294967296",
                                          "qsgd:bucket=99999999999999999999999"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        tg_spec spec;
        assert_int_equal(tg_spec_parse(refused[i], &spec, NULL), TG_INVALID_SPEC);
    }
}

static void shares(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < 2000; i++) {
        const tg_spec spec = {.codec = 16, .amount = (uint32_t)(1 + next_random() % 1000000000)};
        char text[TG_SPEC_TEXT];
        assert_int_equal(tg_spec_print(&spec, text, sizeof text, NULL), TG_OK);
        returns_to(text, &spec);
    }
}

/* ---- feedback ---- */

static void feedback_returns(const tg_feedback_spec *spec)
{
    tg_feedback_spec again;
    char text[TG_SPEC_TEXT], printed[TG_SPEC_TEXT];
    tg_error error;
    if (tg_feedback_print(spec, text, sizeof text, &error) != TG_OK)
        fail_msg("print: %s", error.message);
    if (tg_feedback_parse(text, &again, &error) != TG_OK)
        fail_msg("'%s': %s", text, error.message);
    if (memcmp(&again, spec, sizeof again) != 0)
        fail_msg("'%s' loses: alpha %a is %a, beta %a is %a, momentum %a is %a, clip %a is %a", text,
                 (double)spec->alpha, (double)again.alpha, (double)spec->beta, (double)again.beta,
                 (double)spec->momentum, (double)again.momentum, (double)spec->clip, (double)again.clip);
    assert_int_equal(tg_feedback_print(&again, printed, sizeof printed, &error), TG_OK);
    assert_string_equal(printed, text);
}

/* Any float from 0 to `most`, of all orders of magnitude alike. */
static float any_float(float most)
{
    return tg_bits_float((uint32_t)(next_random() % (tg_float_bits(most) + UINT64_C(1))));
}

static void any_feedback(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < 200000; i++) {
        const tg_feedback_spec ecq = {.kind = TG_FEEDBACK_ECQ, .alpha = any_float(1), .beta = any_float(1)},
                               dgc = {.kind = TG_FEEDBACK_DGC,
                                      .alpha = 1,
                                      .beta = 1,
                                      .momentum = any_float(0x1.fffffep-1f),
                                      .clip = any_float(1e6f)};
        feedback_returns(&ecq);
        feedback_returns(&dgc);
    }
}

static void feedback_at_the_edges(void **unused)
{
    (void)unused;
    const float edges[] = {0,     FLT_MIN, 0x1p-149f, 0x1.fffffcp-127f, 6.24e-07f, 0.1f, 0.2f, 0.9f,
                           1e-9f, 1e-10f,  0.5f,      0x1.fffffep-1f,   1};
    for (size_t a = 0; a < sizeof edges / sizeof *edges; a++)
        for (size_t b = 0; b < sizeof edges / sizeof *edges; b++)
            feedback_returns(&(tg_feedback_spec){.kind = TG_FEEDBACK_ECQ, .alpha = edges[a], .beta = edges[b]});
    const float clips[] = {999999.9375f, 1e6f, 16777.217f, 3};
    for (size_t i = 0; i < sizeof clips / sizeof *clips; i++)
        feedback_returns(
            &(tg_feedback_spec){.kind = TG_FEEDBACK_DGC, .alpha = 1, .beta = 1, .momentum = 0.9f, .clip = clips[i]});
}

/* What was canonical stays so; what is typed otherwise means the same. */
static void familiar_texts(void **unused)
{
    (void)unused;
    static const char *const canonical[] = {"none",
                                            "ef",
                                            "ecq:alpha=0.2,beta=0.9",
                                            "ecq:alpha=0,beta=1",
                                            "dgc:momentum=0.9,clip=0",
                                            "dgc:momentum=0.999999999e0,clip=1000000",
                                            "ecq:alpha=0.00001,beta=0.000000001"};
    static const char *const others[][2] = {
        {"ecq:alpha=2e-1", "ecq:alpha=0.2,beta=0.9"},
        {"ecq:alpha=.25,beta=1.", "ecq:alpha=0.25,beta=1"},
        {"ecq:alpha=6.245e-010,beta=1", "ecq:alpha=6.245e-10,beta=1"},
        {"ecq:alpha=0.100000000000000000000,beta=1", "ecq:alpha=0.1,beta=1"},
        {"ecq:alpha=0000000000000000000000.1,beta=1e0", "ecq:alpha=0.1,beta=1"},
        {"dgc:clip=1E+5", "dgc:momentum=0.9,clip=100000"},
        {"ecq:alpha=0.30000000000000004", "ecq:alpha=0.3,beta=0.9"},
        {"ecq:alpha=0.1234567890123456789", "ecq:alpha=0.12345679,beta=0.9"},
        {"ecq:alpha=0.0000000000000000000000000000000001e33", "ecq:alpha=0.1,beta=0.9"},
        {"ecq:alpha=1e-400", "ecq:alpha=0,beta=0.9"}};
    tg_feedback_spec spec;
    char text[TG_SPEC_TEXT];
    for (size_t i = 0; i < sizeof canonical / sizeof *canonical; i++) {
        if (i == 5)
            continue; /* its momentum is 1 as a float32 */
        assert_int_equal(tg_feedback_parse(canonical[i], &spec, NULL), TG_OK);
        assert_int_equal(tg_feedback_print(&spec, text, sizeof text, NULL), TG_OK);
        assert_string_equal(text, canonical[i]);
    }
    assert_int_equal(tg_feedback_parse(canonical[5], &spec, NULL), TG_INVALID_SPEC);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(tg_feedback_parse(others[i][0], &spec, NULL), TG_OK);
        assert_int_equal(tg_feedback_print(&spec, text, sizeof text, NULL), TG_OK);
        assert_string_equal(text, others[i][1]);
    }
    static const char *const refused[] = {"ecq:alpha=-0.1",
                                          "ecq:alpha=-0",
                                          "ecq:alpha=1.00000001",
                                          "ecq:alpha=",
                                          "ecq:alpha=.",
                                          "ecq:alpha=e5",
                                          "ecq:alpha=1e",
                                          "ecq:alpha=1e-",
                                          "ecq:alpha=0.1.2",
                                          "ecq:alpha=nan",
                                          "ecq:alpha=1e999999999999",
                                          "dgc:clip=1000001",
                                          "ecq:alpha=0x1p-3",
                                          "ecq:alpha=1,"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (tg_feedback_parse(refused[i], &spec, NULL) != TG_INVALID_SPEC)
            fail_msg("'%s' is accepted", refused[i]);
}

/* A negative zero is not 0 to the bit, and no text gives it. */
static void negative_zero(void **unused)
{
    (void)unused;
    const tg_feedback_spec spec = {.kind = TG_FEEDBACK_ECQ, .alpha = -0.0f, .beta = 1};
    char text[TG_SPEC_TEXT];
    assert_int_equal(tg_feedback_print(&spec, text, sizeof text, NULL), TG_INVALID_SPEC);
}

/* Any text of many digits is a value within its range, and what it prints as is that value again. */
static void any_digits(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < 20000; i++) {
        char text[TG_SPEC_TEXT], again[TG_SPEC_TEXT];
        tg_feedback_spec spec;
        snprintf(text, sizeof text, "ecq:alpha=0.%0*" PRIu64 "%" PRIu64 ",beta=%.17g", (int)(next_random() % 30),
                 next_random() % 100, next_random(), (double)(next_random() >> 11) * 0x1p-53);
        if (tg_feedback_parse(text, &spec, NULL) != TG_OK)
            fail_msg("'%s' is refused", text);
        assert_int_equal(tg_feedback_print(&spec, again, sizeof again, NULL), TG_OK);
        feedback_returns(&spec);
    }
}

/* ---- messages ---- */

static const char *message_of(const char *text, bool is_feedback, tg_error *error)
{
    tg_spec spec;
    tg_feedback_spec feedback;
    const tg_status status = is_feedback ? tg_feedback_parse(text, &feedback, error)
                                         : tg_spec_parse(text, &spec, error);
    assert_int_equal(status, TG_INVALID_SPEC);
    return error->message;
}

/* What is no number, what has too many digits and what is too large are different mistakes. */
static void wrong_values(void **unused)
{
    (void)unused;
    static const char *const codecs[][2] = {
        {"topk:density=x", "topk: density=x is not a number; allowed: 0.000000001...1"},
        {"topk:density=", "topk: density= is not a number; allowed: 0.000000001...1"},
        {"qsgd:bucket=5x", "qsgd: bucket=5x is not a number; allowed: 0...4294967295"},
        {"qsgd:bucket=1e-", "qsgd: bucket=1e- is not a number; allowed: 0...4294967295"},
        {"topk:density=0.0015000001", "topk: density=0.0015000001 has too many digits; write at most 9 decimals"},
        {"topk:density=0.9999999999", "topk: density=0.9999999999 has too many digits; write at most 9 decimals"},
        {"terngrad:clip=2.50001", "terngrad: clip=2.50001 has too many digits; write at most 3 decimals"},
        {"terngrad:clip=0.0001", "terngrad: clip=0.0001 has too many digits; write at most 3 decimals"},
        {"qsgd:levels=2.5", "qsgd: levels=2.5 is not a whole number; allowed: 1...32767"},
        {"qsgd:levels=0.5", "qsgd: levels=0.5 is out of range; allowed: 1...32767"},
        {"topk:density=1e-10", "topk: density=1e-10 is out of range; allowed: 0.000000001...1"},
        {"topk:density=1.0000000001", "topk: density=1.0000000001 is out of range; allowed: 0.000000001...1"},
        {"topk:density=-0.1", "topk: density=-0.1 is out of range; allowed: 0.000000001...1"},
        {"topk:k=4294967295.5", "topk: k=4294967295.5 is out of range; allowed: 1...4294967295"},
        {"topk:k=1e99999999999", "topk: k=1e99999999999 is out of range; allowed: 1...4294967295"},
        {"qsgd:norm=foo", "qsgd: norm=foo is not one of l2, max"},
        {"qsgd:coding=", "qsgd: coding= is not one of packed, elias, entropy, auto"},
    };
    static const char *const feedbacks[][2] = {
        {"ecq:alpha", "ecq: alpha has no value; write alpha=0...1"},
        {"ecq:alpha=", "ecq: alpha= is not a number; allowed: 0...1"},
        {"ecq:alpha=0.1.2", "ecq: alpha=0.1.2 is not a number; allowed: 0...1"},
        {"ecq:alpha=nan", "ecq: alpha=nan is not a number; allowed: 0...1"},
        {"ecq:alpha=-0.1", "ecq: alpha=-0.1 is out of range; allowed: 0...1"},
        {"ecq:alpha=2,beta=1", "ecq: alpha=2 is out of range; allowed: 0...1"},
        {"ecq:alpha=1e999", "ecq: alpha=1e999 is out of range; allowed: 0...1"},
        {"dgc:momentum=1", "dgc: momentum=1 is out of range; allowed: 0...1, below 1"},
        {"dgc:momentum=0.9999999999", "dgc: momentum=0.9999999999 is 1 in float32; allowed: 0...1, below 1"},
    };
    tg_error error;
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        assert_string_equal(message_of(codecs[i][0], false, &error), codecs[i][1]);
    for (size_t i = 0; i < sizeof feedbacks / sizeof *feedbacks; i++)
        assert_string_equal(message_of(feedbacks[i][0], true, &error), feedbacks[i][1]);
}

static void no_memory_is_said_in_bytes(void **unused)
{
    (void)unused;
    tg_device *device;
    tg_codec *codec;
    tg_spec spec;
    tg_error error;
    /* `none` has no workspace; what it keeps for a refusal is 16 GiB, of which no system may have to give a page. */
    assert_int_equal(tg_device_open("cpu", NULL, &device, &error), TG_OK);
    assert_int_equal(tg_spec_parse("none", &spec, &error), TG_OK);
    const tg_status status = tg_codec_create(device, &spec, TG_MAX_COUNT, &codec, &error);
    if (status == TG_OK)
        tg_codec_free(codec);
    else
        assert_null(strstr(error.message, " 0 bytes"));
    tg_device_free(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_numbers),
                                       cmocka_unit_test(shares),
                                       cmocka_unit_test(any_feedback),
                                       cmocka_unit_test(feedback_at_the_edges),
                                       cmocka_unit_test(familiar_texts),
                                       cmocka_unit_test(any_digits),
                                       cmocka_unit_test(negative_zero),
                                       cmocka_unit_test(wrong_values),
                                       cmocka_unit_test(no_memory_is_said_in_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
