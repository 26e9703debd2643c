/* A frame's peak is a magnitude that no decoded value exceeds, the same on every device and for any number of threads;
 * and the check that goes with it is as strict as the one without. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "codec/header.h"
#include "device/cpu/checksum.h"
#include "frame/decode.h"
#include "guarded.h"
#include "frame/verify.h"
#include "support.h"

static float largest_of(const tg_tensor *t)
{
    float largest = 0;
    for (uint64_t i = 0; i < t->count; i++)
        largest = fmaxf(largest, fabsf(element(t, i)));
    return largest;
}

/* The last value of a plain frame becomes infinite; the checksum is right again. */
static void spoil(tg_device *device, tg_frame frame, unsigned char *bytes, size_t value_size)
{
    memcpy(bytes + frame.size - 2, value_size == 4 ? "\x80\x7f" : "\x80\xff", 2);
    tg_header_set_checksum(bytes, tg_checksum(cpu_of(device)->kernels, NULL, bytes, bytes + TG_HEADER_SIZE,
                                              frame.size - TG_HEADER_SIZE, NULL, NULL));
}

static void peak(tg_device **devices, const char *spec, shape s, uint64_t count)
{
    tg_tensor values = make_tensor(count, TG_FLOAT32, 1), decoded = make_tensor(count, TG_FLOAT32, 0);
    tg_codec *codec = make_codec(devices[0], spec, count);
    unsigned char *bytes = malloc(tg_frame_bound(codec, count));
    tg_encode_report report = {.bytes = 0};
    fill(s, count, &values);
    expect(tg_encode(codec, &values, NULL, bytes, tg_frame_bound(codec, count), &report, NULL) == TG_OK, "%s: encode",
           spec);
    const tg_frame frame = {bytes, report.bytes};
    expect(tg_decode(devices[0], &frame, 1, 1, 0, &decoded, NULL) == TG_OK, "%s: decode", spec);
    const uint32_t bits = tg_frame_peak(devices[0], frame);
    expect(bits < TG_INFINITY_BITS && tg_bits_float(bits) >= largest_of(&decoded),
           "%s: a peak of %g, and a value of %g", spec, (double)tg_bits_float(bits), (double)largest_of(&decoded));
    const bool plain = strcmp(spec, "none") == 0 || strcmp(spec, "bf16") == 0;
    for (size_t d = 0; devices[d]; d++) {
        uint32_t checked = 0;
        tg_frame_info info;
        now_at(tg_device_name(devices[d]), s, count);
        expect(tg_frame_check(devices[d], frame, &info, &checked, NULL) == TG_OK && checked == bits, "%s: %#x, and %#x",
               spec, (unsigned)checked, (unsigned)bits);
    }
    if (plain && count > 0) {
        spoil(devices[0], frame, bytes, strcmp(spec, "none") == 0 ? 4 : 2);
        for (size_t d = 0; devices[d]; d++) {
            uint32_t checked = 0;
            tg_frame_info info;
            now_at(tg_device_name(devices[d]), s, count);
            expect(tg_frame_check(devices[d], frame, &info, &checked, NULL) == TG_CORRUPT, "%s: an infinity passes",
                   spec);
        }
    }
    free(bytes);
    tg_codec_free(codec);
    drop(&values);
    drop(&decoded);
}

enum { MOST = 14 };

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    tg_device **all = open_devices();
    tg_device *devices[MOST + 2] = {NULL};
    size_t count = 0;
    for (; all[count] && count < MOST; count++)
        devices[count] = all[count];
    devices[count] = open_device("cpu:threads=3");
    static const uint64_t lengths_tried[] = {0, 1, 31, 4096, 5001, EMULATED ? 30011 : 300007};
    for (const char *const *spec = all_specs(); *spec; spec++) {
        for (size_t i = 0; i < sizeof lengths_tried / sizeof *lengths_tried; i++)
            for (int s = 0; s < (lengths_tried[i] > 10000 ? 1 : SHAPES); s++)
                peak(devices, *spec, (shape)s, lengths_tried[i]);
        check_all("%s: no value exceeds the peak", *spec);
    }
    tg_device_free(devices[count]);
    close_devices(all);
    return finish();
}
