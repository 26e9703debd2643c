/* A sum that is too large for the caches is stored past them, of sparse frames block by block, of packed levels as they
 * are decoded: the same bits as one that fits, on every device, for any number of frames and threads, others and empty
 * ones among them, at any address; and nothing beside it is touched. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"
#include "support.h"

enum { MOST_FRAMES = 10, GUARD = 32, KINDS = 8 };

typedef struct frames {
    tg_frame of[MOST_FRAMES];
    size_t count;
} frames;

/* Of specs that are picked from `kinds` of them. */
static frames make_frames(tg_device *device, const char *const *specs, size_t kinds, size_t count, uint64_t elements,
                          generator *g)
{
    frames made = {.count = count};
    tg_tensor values = make_tensor(elements, TG_FLOAT32, 0);
    for (size_t i = 0; i < count; i++) {
        const char *spec = specs[next_random(g) % kinds];
        tg_codec *codec = make_codec(device, spec, elements);
        const size_t room = tg_frame_bound(codec, elements);
        void *bytes = malloc(room);
        tg_encode_report report = {.bytes = 0};
        fill((shape)(next_random(g) % SHAPES), next_random(g), &values);
        expect(bytes && tg_encode(codec, &values, NULL, bytes, room, &report, NULL) == TG_OK, "%s: encode", spec);
        made.of[i] = (tg_frame){bytes, report.bytes};
        tg_codec_free(codec);
    }
    drop(&values);
    return made;
}

/* What decoding leaves in memory that was full of something else, guards included. */
static unsigned char *decoded(tg_device *device, size_t cache, const frames *f, float weight, uint64_t elements,
                              size_t offset)
{
    const size_t size = elements * sizeof(float) + 2 * GUARD * sizeof(float);
    unsigned char *memory = aligned_alloc(64, (size + 127) / 64 * 64);
    if (!memory)
        exit(1);
    memset(memory, 0xa5, (size + 127) / 64 * 64);
    cpu_of(device)->cache = cache;
    const tg_tensor out = {(float *)(void *)memory + offset, elements, TG_FLOAT32};
    expect(tg_decode(device, f->of, f->count, weight, 0, &out, NULL) == TG_OK, "decode with a cache of %zu bytes",
           cache);
    return memory;
}

static void compare(tg_device **devices, const char *const *specs, size_t kinds, uint64_t elements, generator *g)
{
    frames f = make_frames(devices[0], specs, kinds, (size_t)(next_random(g) % (MOST_FRAMES + 1)), elements, g);
    const size_t offset = (size_t)(next_random(g) % GUARD), size = elements * sizeof(float) + 2 * GUARD * sizeof(float);
    const float weight = next_random(g) % 2 ? 0.5f : 1.0f / 3;
    unsigned char *due = decoded(devices[0], SIZE_MAX, &f, weight, elements, offset);
    for (size_t d = 0; devices[d]; d++) {
        now_at(tg_device_name(devices[d]), GAUSSIAN, elements);
        unsigned char *got = decoded(devices[d], 0, &f, weight, elements, offset);
        expect(memcmp(got, due, size) == 0, "%zu frames: other bits past the caches", f.count);
        free(got);
    }
    free(due);
    for (size_t i = 0; i < f.count; i++)
        free((void *)f.of[i].data);
}

int main(int argc, char **argv)
{
    /* From a handful in a block to more than are cleared one by one; levels are read ahead, and bitmaps and Elias codes
     * have readers of their own. */
    static const char *const sparse[KINDS] = {"topk:density=0.01",
                                              "topk:density=0.3",
                                              "topk:density=0.1,values=fp16",
                                              "topk:density=0.02,values=levels",
                                              "randk:density=0.2",
                                              "topk:k=1",
                                              "gaussiank:density=0.001",
                                              "topk:density=0.1,values=levels,coding=entropy"};
    static const char *const mixed[KINDS] = {
        "topk:density=0.01", "qsgd", "topk:density=0.2", "none", "fp16", "onebit", "topk:k=3", "terngrad"};
    /* Frames of one kind are decoded one, two or four at a time; of every width there is a loop, and some have none. */
    static const char *const levels[KINDS] = {"qsgd:levels=7,bucket=512",
                                              "qsgd:levels=127,bucket=512",
                                              "qsgd:levels=7,bucket=64",
                                              "qsgd:levels=1,bucket=0",
                                              "qsgd:levels=31,bucket=512",
                                              "terngrad",
                                              "onebit",
                                              "qsgd:levels=7,bucket=512,coding=entropy"};
    static const uint64_t lengths_tried[] = {0, 1, 63, 4095, 4096, 4097, 20000, EMULATED ? 33333 : 333333};
    const unsigned times = wants_all(argc, argv) ? 400 : EMULATED ? 4 : 40;
    tg_device **all = open_devices();
    tg_device *devices[16] = {NULL};
    size_t count = 0;
    for (; all[count] && count < 14; count++)
        devices[count] = all[count];
    devices[count] = open_device("cpu:threads=3");
    generator g = {1};
    for (size_t i = 0; i < sizeof lengths_tried / sizeof *lengths_tried; i++) {
        for (unsigned t = 0; t < times; t++)
            compare(devices, sparse, KINDS, lengths_tried[i], &g);
        check_all("%llu elements of sparse frames", (unsigned long long)lengths_tried[i]);
        for (unsigned t = 0; t < times; t++)
            compare(devices, mixed, KINDS, lengths_tried[i], &g);
        check_all("%llu elements of frames of all kinds", (unsigned long long)lengths_tried[i]);
        for (unsigned t = 0; t < 3 * times; t++)
            compare(devices, &levels[t % KINDS], 1, lengths_tried[i], &g);
        check_all("%llu elements of packed levels", (unsigned long long)lengths_tried[i]);
    }
    tg_device_free(devices[count]);
    close_devices(all);
    return finish();
}
