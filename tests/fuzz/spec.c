/* Any text as a codec's spec, as a feedback's and as a device's name. What is accepted prints, and the print parses to
 * the same; an accepted codec can be created. What is refused leaves the result alone and says why. */
#include "tests/fuzz/fuzz.h"

static void check_codec(const char *text)
{
    tg_spec spec, again, untouched;
    char print[TG_SPEC_TEXT], second[TG_SPEC_TEXT];
    tg_error error;
    memset(&spec, 0xa5, sizeof spec);
    untouched = spec;
    if (tg_spec_parse(text, &spec, &error) != TG_OK) {
        REQUIRE(memcmp(&spec, &untouched, sizeof spec) == 0, "refused and yet written");
        REQUIRE(error.message[0] != 0, "refused without a reason");
        return;
    }
    REQUIRE(tg_spec_print(&spec, print, sizeof print, &error) == TG_OK, "%s", error.message);
    REQUIRE(tg_spec_parse(print, &again, &error) == TG_OK, "'%s': %s", print, error.message);
    REQUIRE(memcmp(&spec, &again, sizeof spec) == 0, "'%s' parses to something else", print);
    REQUIRE(tg_spec_print(&again, second, sizeof second, &error) == TG_OK && strcmp(print, second) == 0, "'%s'",
            second);

    char *tight = exact_buffer(strlen(print), 0x5a); /* no room for the final zero */
    REQUIRE(tg_spec_print(&spec, tight, strlen(print), NULL) != TG_OK, "printed without room");
    free(tight);

    const uint64_t count = 1000;
    tg_device *devices[FUZZ_DEVICES_MAX];
    open_devices(devices);
    tg_codec *codec;
    REQUIRE(tg_codec_create(devices[0], &spec, count, &codec, &error) == TG_OK, "'%s': %s", print, error.message);
    REQUIRE(memcmp(tg_codec_spec(codec), &spec, sizeof spec) == 0, "the codec has another spec");
    REQUIRE(tg_frame_bound(codec, count) > 0 && tg_frame_bound(codec, count + 1) == 0, "'%s'", print);
    REQUIRE(tg_spec_selected(&spec, count) >= 1 && tg_spec_selected(&spec, count) <= count, "'%s'", print);
    tg_codec_free(codec);
}

static void check_feedback(const char *text)
{
    tg_feedback_spec spec, again, untouched;
    char print[TG_SPEC_TEXT];
    tg_error error;
    memset(&spec, 0, sizeof spec);
    memset(&again, 0, sizeof again);
    untouched = spec;
    if (tg_feedback_parse(text, &spec, &error) != TG_OK) {
        REQUIRE(memcmp(&spec, &untouched, sizeof spec) == 0, "refused and yet written");
        REQUIRE(error.message[0] != 0, "refused without a reason");
        return;
    }
    REQUIRE(tg_feedback_print(&spec, print, sizeof print, &error) == TG_OK, "%s", error.message);
    REQUIRE(tg_feedback_parse(print, &again, &error) == TG_OK, "'%s': %s", print, error.message);
    REQUIRE(memcmp(&spec, &again, sizeof spec) == 0, "'%s' parses to something else", print);
}

/* Whether the text may ask for so many threads that starting them takes too long for a fuzzer. */
static bool wants_many_threads(const char *text)
{
    const unsigned few = 8, most = 256;
    for (; *text; text++) {
        unsigned number = 0;
        for (; *text >= '0' && *text <= '9'; text++)
            number = number > most ? number : number * 10 + (unsigned)(*text - '0');
        if (number > few && number <= most)
            return true;
        if (!*text)
            return false;
    }
    return false;
}

static void check_device(const char *text)
{
    tg_device *const untouched = (tg_device *)(uintptr_t)64;
    tg_device *device = untouched, *again;
    tg_error error;
    if (wants_many_threads(text))
        return;
    if (tg_device_open(text, NULL, &device, &error) != TG_OK) {
        REQUIRE(device == untouched, "refused and yet written");
        REQUIRE(error.message[0] != 0, "refused without a reason");
        return;
    }
    REQUIRE(tg_device_open(tg_device_name(device), NULL, &again, &error) == TG_OK, "%s", error.message);
    REQUIRE(strcmp(tg_device_name(device), tg_device_name(again)) == 0, "'%s' opens another device",
            tg_device_name(device));
    tg_device_free(again);
    tg_device_free(device);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = exact_buffer(size + 1, 0);
    memcpy(text, data, size);
    check_codec(text);
    check_feedback(text);
    check_device(text);
    free(text);
    return 0;
}
