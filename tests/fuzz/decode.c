/* Any bytes as a frame. The payload's length and the checksum are put right first, so that mutations reach the
 * decoders. Every device must agree with cpu/scalar on the verdict and on each bit, also where the frame is added later
 * or meets a residual, and a refused frame must change nothing. */
#include "device/cpu/checksum.h"
#include "device/cpu/cpu.h"
#include "tests/fuzz/fuzz.h"

enum { HEADER = 64, FLAGS_AT = 6, COUNT_AT = 24, PAYLOAD_AT = 32, CHECKSUM_AT = 60 };
/* A small frame may stand for very many zeros. Large ones only cost time: beyond the first limit only float32 is tried,
 * beyond the second nothing. */
#define COUNT_ANY_DTYPE (UINT64_C(1) << 13)
#define COUNT_MAX (UINT64_C(1) << 17)

static void put(uint8_t *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *at, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static void repair(uint8_t *frame, size_t size)
{
    put(frame + PAYLOAD_AT, size - HEADER, 8);
    put(frame + CHECKSUM_AT, 0, 4);
    if (frame[FLAGS_AT] & 1)
        put(frame + CHECKSUM_AT,
            tg_checksum(&tg_kernels_scalar, NULL, frame, frame + HEADER, size - HEADER, NULL, NULL), 4);
}

/* Decodes to this dtype; the caller frees. A frame that is refused must leave the output as it was. */
static uint8_t *decode(tg_device *device, tg_frame frame, uint64_t count, tg_dtype dtype, unsigned flags,
                       tg_status verdict)
{
    const size_t size = (size_t)count * tg_dtype_size(dtype);
    uint8_t *values = exact_buffer(size, 0xa5);
    const tg_tensor out = {values, count, dtype};
    tg_error error;
    const tg_status status = tg_decode(device, &frame, 1, 1.0f, flags, &out, &error);
    if (flags & TG_VERIFIED && verdict != TG_OK)
        return values; /* the caller lied: memory must be safe, and that is all */
    REQUIRE(status == verdict, "decode says %s, verify said %s", tg_status_text(status), tg_status_text(verdict));
    if (status != TG_OK)
        for (size_t i = 0; i < size; i++)
            REQUIRE(values[i] == 0xa5, "a refused frame wrote byte %zu", i);
    return values;
}

/* Adding to zeros gives what decoding gives, but for the sign of zeros. */
static void check_add(tg_device *device, tg_frame frame, uint64_t count, const uint8_t *decoded)
{
    float *sum = exact_buffer((size_t)count * sizeof *sum, 0);
    const tg_tensor out = {sum, count, TG_FLOAT32};
    tg_error error;
    REQUIRE(tg_decode_add(device, &frame, 1, 1.0f, 0, &out, &error) == TG_OK, "%s", error.message);
    for (uint64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, decoded + i * sizeof value, sizeof value);
        REQUIRE(sum[i] == value, "element %llu: added %g, decoded %g", (unsigned long long)i, (double)sum[i],
                (double)value);
    }
    free(sum);
}

/* The same as a call that does not wait: a verdict of its own, and nothing is written where that is not TG_OK. */
static void check_later(tg_device *device, tg_frame frame, const tg_frame_info *like, tg_status verdict,
                        const uint8_t *decoded)
{
    const size_t count = (size_t)like->count;
    float *sum = exact_buffer(count * sizeof *sum, 0);
    tg_status later = (tg_status)-1;
    const tg_decode_call call = {.frames = &frame,
                                 .frame_count = 1,
                                 .like = like,
                                 .weight = 1,
                                 .out = {sum, like->count, TG_FLOAT32},
                                 .status = &later};
    tg_error error;
    REQUIRE(tg_decode_add_later(device, &call, 1, &error) == TG_OK, "%s", error.message);
    REQUIRE((later == TG_OK) == (verdict == TG_OK), "later it is %s, verify said %s", tg_status_text(later),
            tg_status_text(verdict));
    for (size_t i = 0; i < count; i++) {
        float value = 0;
        if (verdict == TG_OK)
            memcpy(&value, decoded + i * sizeof value, sizeof value);
        REQUIRE(sum[i] == value, "element %zu: added %g, decoded %g", i, (double)sum[i], (double)value);
    }
    free(sum);
}

/* A residual that is not zero, so that what a refused frame leaves of it can be seen. */
static float left(uint64_t i) { return (float)(i % 7) - 3; }

static tg_feedback *make_feedback(tg_device *device, const tg_frame_info *info)
{
    const tg_feedback_spec spec = {.kind = TG_FEEDBACK_EF, .alpha = 1, .beta = 1};
    tg_feedback *feedback;
    tg_error error;
    REQUIRE(tg_feedback_create(device, &spec, &info->spec, info->count, true, &feedback, &error) == TG_OK, "%s",
            error.message);
    float *h = exact_buffer((size_t)info->count * sizeof *h, 0);
    for (uint64_t i = 0; i < info->count; i++)
        h[i] = left(i);
    set_residual(feedback, h);
    free(h);
    return feedback;
}

/* All of the frame reaches the residual, `sign` times, or nothing does. */
static void check_residual(tg_feedback *feedback, uint64_t count, const uint8_t *decoded, tg_status status,
                           tg_status verdict, float sign)
{
    REQUIRE(status == verdict, "%s, but verify said %s", tg_status_text(status), tg_status_text(verdict));
    const float *h = residual_of(feedback);
    for (uint64_t i = 0; i < count; i++) {
        float value = 0;
        if (status == TG_OK)
            memcpy(&value, decoded + i * sizeof value, sizeof value);
        REQUIRE(h[i] == left(i) + sign * value, "element %llu of the residual is %g, not %g", (unsigned long long)i,
                (double)h[i], (double)(left(i) + sign * value));
    }
}

/* What was sent is taken off a residual, and what was not applied is given back to it. */
static void check_feedback(tg_device *device, tg_frame frame, const tg_frame_info *info, tg_status verdict,
                           const uint8_t *decoded)
{
    tg_error error;
    tg_feedback *feedback = make_feedback(device, info);
    check_residual(feedback, info->count, decoded, tg_feedback_return(feedback, frame, NULL, 0, &error), verdict, 1);
    tg_feedback_free(feedback);

    float *zeros = exact_buffer((size_t)info->count * sizeof *zeros, 0);
    const tg_tensor gradient = {zeros, info->count, TG_FLOAT32};
    feedback = make_feedback(device, info);
    check_residual(feedback, info->count, decoded, tg_feedback_update(feedback, &gradient, frame, &error), verdict, -1);
    tg_feedback_free(feedback);
    free(zeros);
}

static void compare_devices(tg_frame frame, const tg_frame_info *header)
{
    static const tg_dtype dtypes[] = {TG_FLOAT32, TG_FLOAT16, TG_BFLOAT16};
    tg_device *devices[FUZZ_DEVICES_MAX];
    const size_t device_count = open_devices(devices);
    const uint64_t count = header->count;

    tg_error error;
    const tg_status verdict = tg_frame_verify(devices[0], frame, NULL, &error);
    REQUIRE((verdict == TG_OK) == (error.message[0] == 0), "%s with the message '%s'", tg_status_text(verdict),
            error.message);
    tg_frame_parts parts;
    const tg_status measured = tg_frame_measure(devices[0], frame, &parts, &error);
    REQUIRE(measured == verdict, "measure says %s, verify %s", tg_status_text(measured), tg_status_text(verdict));
    if (verdict == TG_OK) {
        REQUIRE(parts.selected <= count, "more elements than there are");
        REQUIRE(parts.scale_bytes + parts.index_bytes + parts.value_bytes == frame.size - HEADER,
                "parts do not add up");
    }
    for (size_t t = 0; t < (count <= COUNT_ANY_DTYPE ? sizeof dtypes / sizeof *dtypes : 1); t++) {
        const size_t size = (size_t)count * tg_dtype_size(dtypes[t]);
        tg_cpu_of(devices[0])->cache = SIZE_MAX;
        uint8_t *expected = decode(devices[0], frame, count, dtypes[t], 0, verdict);
        if (verdict == TG_OK && dtypes[t] == TG_FLOAT32)
            check_add(devices[0], frame, count, expected);
        for (size_t d = 0; d < device_count; d++) {
            if (dtypes[t] == TG_FLOAT32 && (d == 0 || count <= COUNT_ANY_DTYPE)) {
                check_later(devices[d], frame, header, verdict, expected);
                check_feedback(devices[d], frame, header, verdict, expected);
            }
            const tg_status found = tg_frame_verify(devices[d], frame, NULL, NULL);
            REQUIRE(found == verdict, "%s says %s, not %s", tg_device_name(devices[d]), tg_status_text(found),
                    tg_status_text(verdict));
            for (unsigned flags = 0; flags <= TG_VERIFIED; flags++) {
                tg_cpu_of(devices[d])->cache = (d + flags) % 2 ? 0 : SIZE_MAX; /* through the caches, or past them */
                uint8_t *values = decode(devices[d], frame, count, dtypes[t], flags, verdict);
                REQUIRE(verdict != TG_OK || memcmp(values, expected, size) == 0, "%s decodes other bits",
                        tg_device_name(devices[d]));
                free(values);
            }
        }
        free(expected);
    }
}

/* A frame whose header cannot be read, where one of another kind is expected. */
static void check_headless(tg_frame frame)
{
    tg_device *devices[FUZZ_DEVICES_MAX];
    tg_frame_info like = {.count = 64, .dtype = TG_FLOAT32, .has_checksum = true};
    tg_error error;
    open_devices(devices);
    REQUIRE(tg_spec_parse("topk", &like.spec, &error) == TG_OK, "%s", error.message);
    check_later(devices[0], frame, &like, TG_CORRUPT, NULL);
    uint8_t nothing[64 * sizeof(float)] = {0};
    float zeros[64] = {0};
    const tg_tensor gradient = {zeros, 64, TG_FLOAT32};
    tg_feedback *feedback = make_feedback(devices[0], &like);
    const tg_status update = tg_feedback_update(feedback, &gradient, frame, &error);
    REQUIRE(update != TG_OK && error.message[0], "a frame without a header updates a residual");
    check_residual(feedback, like.count, nothing, update, update, 1);
    const tg_status returned = tg_feedback_return(feedback, frame, NULL, 0, &error);
    REQUIRE(returned != TG_OK && error.message[0], "a frame without a header is given back");
    check_residual(feedback, like.count, nothing, returned, returned, 1);
    tg_feedback_free(feedback);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = exact_buffer(size, 0);
    memcpy(bytes, data, size);
    const tg_frame frame = {bytes, size};
    tg_frame_info header;
    if (size >= HEADER)
        repair(bytes, size);
    if (size < HEADER)
        REQUIRE(tg_frame_read(frame, &header, NULL) != TG_OK, "a frame shorter than its header");
    else if (tg_frame_read(frame, &header, NULL) != TG_OK)
        check_headless(frame);
    else if (get(bytes + COUNT_AT, 8) <= COUNT_MAX)
        compare_devices(frame, &header);
    free(bytes);
    return 0;
}
