/* Laws of the quantisers: a decoded value is never further than one level from what was encoded, whatever the scale of
 * the data, and buckets that are constant come back exactly. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support.h"

static const struct {
    const char *text;
    unsigned levels;
    uint64_t bucket;
    bool l2, minmax;
} specs[] = {
    {"qsgd:levels=7", 7, 512, false, false},
    {"qsgd:levels=1,bucket=64", 1, 64, false, false},
    {"qsgd:levels=127,bucket=0", 127, 0, false, false},
    {"qsgd:levels=32767,bucket=100", 32767, 100, false, false},
    {"qsgd:levels=7,norm=l2", 7, 512, true, false},
    {"qsgd:levels=255,norm=l2,bucket=0", 255, 0, true, false},
    {"qsgd:levels=3,norm=l2,bucket=5000,coding=elias", 3, 5000, true, false},
    {"qsgd:levels=7,range=minmax", 7, 512, false, true},
    {"qsgd:levels=32767,range=minmax,bucket=0", 32767, 0, false, true},
    {"qsgd:levels=15,range=minmax,bucket=16,coding=entropy", 15, 16, false, true},
    {"terngrad", 1, 512, false, false},
};

/* Half the span that the levels are spread over, from the definition and in double. */
static double radius_of(const float *x, uint64_t n, bool l2, bool minmax)
{
    double squares = 0, least = (double)x[0], largest = (double)x[0];
    for (uint64_t i = 0; i < n; i++) {
        squares += (double)x[i] * (double)x[i];
        least = fmin(least, (double)x[i]);
        largest = fmax(largest, (double)x[i]);
    }
    return minmax ? (largest - least) / 2 : l2 ? sqrt(squares) : fmax(fabs(least), fabs(largest));
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    for (size_t d = 0; any_device_to_try(d); d++) {
        tg_device *device = open_device(any_device_to_try(d));
        for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
            for (int kind = 0; kind < SHAPES; kind++) {
                for (const uint64_t *count = lengths(all); *count != UINT64_MAX; count++) {
                    tg_tensor x = make_tensor(*count, TG_FLOAT32, 0), y = make_tensor(*count, TG_FLOAT32, 0);
                    fill((shape)kind, *count, &x);
                    tg_codec *codec = make_codec(device, specs[s].text, *count);
                    size_t bound = tg_frame_bound(codec, *count);
                    void *frame = malloc(bound);
                    tg_encode_report report = {.bytes = 0};
                    tg_error error = {""};
                    expect(tg_encode(codec, &x, NULL, frame, bound, &report, &error) == TG_OK, "encode: %s",
                           error.message);
                    expect(tg_decode(device, &(tg_frame){frame, report.bytes}, 1, 1, 0, &y, &error) == TG_OK,
                           "decode: %s", error.message);
                    const float *a = x.data, *b = y.data;
                    uint64_t bucket = specs[s].bucket ? specs[s].bucket : *count ? *count : 1;
                    for (uint64_t start = 0; start < *count; start += bucket) {
                        uint64_t n = *count - start < bucket ? *count - start : bucket;
                        /* An L2 norm above the largest float is limited to it, which the largest element does not
                         * exceed. */
                        double radius = fmin(radius_of(a + start, n, specs[s].l2, specs[s].minmax), (double)FLT_MAX);
                        /* One level, plus the rounding of: the L2 sum (4096 terms in 16 lanes: 2^-15 at worst), the
                         * unit, the position (2^-17 of a level), the centre and the value (a few units in the last
                         * place), and the least float. */
                        double largest = radius_of(a + start, n, false, false);
                        double allowed = radius / specs[s].levels * (1 + 0x1p-14) + largest * 0x1p-21 + 0x1p-148;
                        for (uint64_t i = start; i < start + n; i++)
                            expect(fabs((double)a[i] - (double)b[i]) <= allowed,
                                   "%s, %d elements: %g became %g, a level is %g", shape_names[kind], (int)*count,
                                   (double)a[i], (double)b[i], radius / specs[s].levels);
                        if (!specs[s].l2 && (kind == CONSTANT || kind == ZEROS || (kind == SIGNS && !specs[s].minmax)))
                            for (uint64_t i = start; i < start + n; i++)
                                expect(a[i] == b[i], "%s: %g became %g", shape_names[kind], (double)a[i], (double)b[i]);
                    }
                    free(frame);
                    tg_codec_free(codec);
                    drop(&x);
                    drop(&y);
                }
            }
            check_all("%s %s: within a level", any_device_to_try(d), specs[s].text);
        }
        tg_device_free(device);
    }
    return finish();
}
