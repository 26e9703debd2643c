/* Laws of selecting to a list: it is what a frame of the same selection lists, and leaves the same residual; a part of
 * the list is encoded to the same bytes whatever the number of threads. */
#include <stdlib.h>
#include <string.h>

#include "feedback/feedback.h"
#include "frame/encode.h"
#include "support.h"

enum { SLACK = 128 };

static void *allocate(tg_device *device, size_t bytes)
{
    void *memory = NULL;
    if (tg_device_allocate(device, bytes, &memory, NULL) != TG_OK)
        abort();
    return memory;
}

static tg_list make_list(tg_device *device, uint64_t count)
{
    return (tg_list){allocate(device, (count + SLACK) * sizeof(uint32_t)),
                     allocate(device, (count + SLACK) * sizeof(float)), 0};
}

static void drop_list(tg_device *device, tg_list *list)
{
    tg_device_release(device, list->indices);
    tg_device_release(device, list->values);
}

/* Whether `count` numbers of 32 bits in the device's memory are the same. */
static bool same(tg_device *device, const void *a, const void *b, size_t count)
{
    const size_t size = count * sizeof(uint32_t);
    char *x = malloc(size + 1), *y = malloc(size + 1);
    if (!x || !y || tg_device_copy_out(device, x, a, size, NULL) != TG_OK ||
        tg_device_copy_out(device, y, b, size, NULL) != TG_OK)
        abort();
    const bool are = memcmp(x, y, size) == 0;
    free(x);
    free(y);
    return are;
}

/* What a frame of `count` elements lists: the sum of it alone. */
static size_t list_frame(tg_device *device, tg_frame frame, uint64_t first, uint64_t count, tg_list *list)
{
    tg_list_workspace *workspace = device->operations->make_list_workspace(device, count, count, count);
    tg_list chosen = make_list(device, count);
    tg_sum_job job = {.workspace = workspace,
                      .frames = &frame,
                      .frame_count = 1,
                      .first = first,
                      .count = count,
                      .factor = 1,
                      .sums = list,
                      .chosen_count = count,
                      .chosen = &chosen};
    device->operations->sum_lists(device, &job, 1);
    device->operations->wait(device);
    expect(chosen.count == list->count && job.nonfinite == first + count, "not all are chosen");
    drop_list(device, &chosen);
    device->operations->free_list_workspace(device, workspace);
    return list->count;
}

static tg_feedback *make_feedback(tg_device *device, const char *text, const tg_spec *spec, uint64_t count)
{
    tg_feedback_spec parsed;
    tg_feedback *feedback = NULL;
    tg_error error;
    expect(tg_feedback_parse(text, &parsed, &error) == TG_OK &&
               tg_feedback_create(device, &parsed, spec, count, true, &feedback, &error) == TG_OK,
           "%s", error.message);
    return feedback;
}

/* Two steps by a list and by a frame, with feedback. */
static void is_what_a_frame_lists(tg_device *device, const char *spec, const char *feedback, const tg_tensor *gradient)
{
    tg_codec *codec = make_codec(device, spec, gradient->count);
    tg_feedback *a = make_feedback(device, feedback, tg_codec_spec(codec), gradient->count),
                *b = make_feedback(device, feedback, tg_codec_spec(codec), gradient->count);
    const size_t bound = tg_frame_bound(codec, gradient->count);
    uint8_t *frame = malloc(bound);
    tg_list framed = make_list(device, gradient->count), direct = make_list(device, gradient->count);
    float *x = malloc((gradient->count + 1) * sizeof *x), *y = malloc((gradient->count + 1) * sizeof *y);
    const size_t size = (size_t)gradient->count * sizeof(float);
    const tg_tensor there = {allocate(device, size + 1), gradient->count, gradient->dtype};
    if (tg_device_copy_in(device, there.data, gradient->data, size, NULL) != TG_OK)
        abort();
    for (uint64_t step = 0; step < 2; step++) {
        const tg_encode_options options = {.draw = {.seed = 1, .step = step}};
        const tg_source sources[] = {tg_feedback_piece(a, &there, 0, 1), tg_feedback_piece(b, &there, 0, 1)};
        tg_encode_job jobs[] = {tg_encode_job_of(codec, &sources[0], &options),
                                tg_encode_job_of(codec, &sources[1], &options)};
        jobs[0].frame = frame;
        jobs[1].list = &direct;
        device->operations->encode(device, jobs, 2);
        device->operations->wait(device);
        const tg_encode_report made = jobs[0].report, selected = jobs[1].report;
        tg_error error;
        expect(made.status == TG_OK && selected.status == TG_OK, "a finite gradient was refused");
        (void)list_frame(device, (tg_frame){frame, made.bytes}, 0, gradient->count, &framed);
        expect(framed.count == direct.count && selected.selected == made.selected, "%zu selected, not %zu",
               direct.count, framed.count);
        expect(same(device, framed.indices, direct.indices, framed.count), "other indices");
        expect(same(device, framed.values, direct.values, framed.count), "other values");
        expect(tg_feedback_read(a, TG_RESIDUAL, 0, gradient->count, x, &error) == TG_OK &&
                   tg_feedback_read(b, TG_RESIDUAL, 0, gradient->count, y, &error) == TG_OK,
               "%s", error.message);
        expect(memcmp(x, y, gradient->count * sizeof *x) == 0, "step %d: another residual", (int)step);
    }
    drop_list(device, &framed);
    drop_list(device, &direct);
    tg_device_release(device, there.data);
    free(x);
    free(y);
    free(frame);
    tg_feedback_free(a);
    tg_feedback_free(b);
    tg_codec_free(codec);
}

/* The frame of a part of a list, as this device makes it. */
static size_t encode_part(tg_device *device, const char *spec, const tg_list *list, uint64_t first, uint64_t count,
                          uint64_t whole, uint8_t *frame, float *sent)
{
    tg_codec *codec = make_codec(device, spec, whole);
    const tg_source part = {.dtype = TG_FLOAT32, .count = count};
    const tg_encode_options options = {.draw = {.seed = 5}};
    tg_encode_job job = tg_encode_job_of(codec, &part, &options);
    job.frame = frame;
    job.selected = list;
    job.first = first;
    job.sent = sent;
    device->operations->encode(device, &job, 1);
    device->operations->wait(device);
    tg_codec_free(codec);
    return job.report.bytes;
}

/* Every fourth element of a part that starts anywhere. */
static void same_with_threads(const char *spec, uint64_t first, uint64_t count)
{
    tg_device *one = open_device("cpu/scalar"), *three = open_device("cpu:threads=3");
    const uint64_t whole = first + count + 1000;
    const size_t room = 8 * count + 65536;
    tg_list list = make_list(one, count / 4 + 1), before = make_list(one, count);
    uint8_t *a = calloc(room, 1), *b = calloc(room, 1);
    float *x = calloc(count + 1, sizeof *x), *y = calloc(count + 1, sizeof *y);
    generator g = {first + count};
    for (uint64_t i = 0; i + 4 <= count; i += 4) {
        list.indices[list.count] = (uint32_t)(first + i + next_random(&g) % 4);
        list.values[list.count++] = (float)next_gaussian(&g);
    }
    memcpy(before.indices, list.indices, list.count * sizeof *list.indices);
    const size_t size = encode_part(one, spec, &list, first, count, whole, a, x);
    expect(encode_part(three, spec, &list, first, count, whole, b, y) == size && memcmp(a, b, size) == 0,
           "threads make another frame");
    expect(memcmp(x, y, count * sizeof *x) == 0, "threads see other values");
    expect(memcmp(before.indices, list.indices, list.count * sizeof *list.indices) == 0, "the list was changed");
    tg_error error;
    tg_frame_info info;
    expect(tg_frame_verify(one, (tg_frame){a, size}, &info, &error) == TG_OK && info.count == count, "%s",
           error.message);
    expect(list_frame(one, (tg_frame){a, size}, first, count, &before) == list.count &&
               memcmp(before.indices, list.indices, list.count * sizeof *list.indices) == 0,
           "the frame lists other elements");
    drop_list(one, &list);
    drop_list(one, &before);
    free(a);
    free(b);
    free(x);
    free(y);
    tg_device_free(one);
    tg_device_free(three);
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    static const char *const selectors[] = {"topk", "gaussiank", "dgck", "randk", "trimk", "sidco"};
    static const char *const feedbacks[] = {"ef", "ecq:alpha=0.5,beta=0.9", "dgc:momentum=0.5"};
    static const char *const devices[] = {"cpu", "cpu/scalar", "cpu:threads=3", "queued:cpu"};
    static const shape shapes[] = {GAUSSIAN, SIGNS, LAYERED};
    static const uint64_t counts[] = {0, 1, 5000, 300001};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t k = 0; k < sizeof selectors / sizeof *selectors; k++)
            for (size_t d = 0; d < (EMULATED ? 1 : 4); d++) {
                tg_device *device = open_device(devices[d]);
                tg_tensor gradient = make_tensor(counts[c], TG_FLOAT32, 1);
                fill(shapes[(k + d) % 3], 7 + k, &gradient);
                for (size_t f = 0; f < 3; f++)
                    is_what_a_frame_lists(device, selectors[k], feedbacks[f], &gradient);
                drop(&gradient);
                tg_device_free(device);
                check_all("%s, %s, %d elements: a list is what a frame lists", devices[d], selectors[k],
                          (int)counts[c]);
            }
    static const char *const values[] = {"topk:density=0.5", "topk:density=0.5,values=fp16",
                                         "topk:density=0.5,values=levels"};
    for (size_t v = 0; v < 3; v++)
        for (uint64_t first = 0; first < 300000; first += 99991) {
            same_with_threads(values[v], first, EMULATED ? 200000 : 500001);
            check_all("%s, from %d on: threads encode the same part", values[v], (int)first);
        }
    return finish();
}
