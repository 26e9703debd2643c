/* Steps that are captured in a CUDA graph and replayed: frame, residual and report are those of the host's device, step
 * after step, with the step of the draw read from the card. On the emulated card a graph is a list of what was put on
 * the stream.
 *
 *     graph [--count N] [--steps N] [--only TEXT] [--device NAME] */
#define _GNU_SOURCE
#define STAGED_ITSELF
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph_capture.h"
#include "support.h"

static const char *const specs[] = {"topk:density=0.01",
                                    "topk:density=0.1,values=fp16",
                                    "gaussiank:density=0.01",
                                    "dgck:density=0.01",
                                    "trimk:density=0.01",
                                    "sidco:density=0.01",
                                    "randk:density=0.01",
                                    "qsgd:levels=7",
                                    "qsgd:levels=127,norm=l2",
                                    "qsgd:levels=7,range=minmax",
                                    "qsgd:levels=7,bucket=1000",
                                    "qsgd:levels=7,bucket=10000,norm=l2",
                                    "qsgd:levels=7,coding=entropy",
                                    "qsgd:levels=7,coding=elias",
                                    "topk:density=0.1,values=levels,levels=7",
                                    "gaussiank:density=0.05,values=levels,bucket=0,norm=l2,coding=auto",
                                    "terngrad",
                                    "onebit",
                                    "fp16",
                                    NULL};

/* Of which there are many tensors in one call. */
static const char *const many[] = {"topk:density=0.01",       "gaussiank:density=0.05,values=fp16",
                                   "dgck:density=0.1",        "topk:density=0.1,values=levels,levels=7",
                                   "qsgd:levels=7",           "terngrad:bucket=512",
                                   "qsgd:levels=127,norm=l2", NULL};

static uint64_t steps_to_do = 9;

/* One spec on the card, and beside it on the host. */
typedef struct pair {
    uint64_t count;
    tg_device *card, *host;
    tg_codec *on_card, *on_host;
    tg_feedback *card_feedback, *host_feedback; /* or NULL */
    void *gradient, *frame, *step;              /* on the card */
    void *sum;                                  /* likewise */
    tg_encode_report *report;                   /* shared */
    tg_status *verdict;
    tg_tensor values, expected, seen; /* on the host */
    uint8_t *host_frame, *copy;
    float *residuals[2];
    size_t room;
} pair;

static void open_pair(pair *p, const char *spec, uint64_t count, tg_feedback_kind kind, tg_device *card,
                      tg_device *host)
{
    const tg_feedback_spec ef = {.kind = kind, .alpha = 1, .beta = 1, .momentum = kind == TG_FEEDBACK_DGC ? 0.5f : 0};
    tg_error error = {""};
    *p = (pair){.count = count, .card = card, .host = host};
    p->on_card = make_codec(card, spec, count);
    p->on_host = make_codec(host, spec, count);
    p->room = tg_frame_bound(p->on_card, count);
    p->values = make_tensor(count, TG_FLOAT32, 0);
    p->expected = make_tensor(count, TG_FLOAT32, 0);
    p->seen = make_tensor(count, TG_FLOAT32, 0);
    p->host_frame = malloc(p->room);
    p->copy = malloc(p->room);
    p->residuals[0] = malloc(count * sizeof(float));
    p->residuals[1] = malloc(count * sizeof(float));
    bool fine = p->host_frame && p->copy && p->residuals[0] && p->residuals[1] &&
                tg_device_allocate(card, count * sizeof(float), &p->gradient, &error) == TG_OK &&
                tg_device_allocate(card, p->room, &p->frame, &error) == TG_OK &&
                tg_device_allocate(card, sizeof(uint64_t), &p->step, &error) == TG_OK &&
                tg_device_allocate(card, count * sizeof(float), &p->sum, &error) == TG_OK &&
                tg_device_reserve(card, tg_codec_spec(p->on_card), count, 2, &error) == TG_OK &&
                tg_device_allocate_shared(card, sizeof *p->verdict, (void **)&p->verdict, &error) == TG_OK &&
                tg_device_allocate_shared(card, sizeof *p->report, (void **)&p->report, &error) == TG_OK;
    if (kind != TG_FEEDBACK_NONE)
        fine =
            fine &&
            tg_feedback_create(card, &ef, tg_codec_spec(p->on_card), count, true, &p->card_feedback, &error) == TG_OK &&
            tg_feedback_create(host, &ef, tg_codec_spec(p->on_host), count, true, &p->host_feedback, &error) == TG_OK;
    expect(fine, "memory: %s", error.message);
}

static void close_pair(pair *p)
{
    tg_device_release(p->card, p->gradient);
    tg_device_release(p->card, p->frame);
    tg_device_release(p->card, p->step);
    tg_device_release(p->card, p->sum);
    tg_device_release_shared(p->card, p->report);
    tg_device_release_shared(p->card, p->verdict);
    tg_feedback_free(p->card_feedback);
    tg_feedback_free(p->host_feedback);
    tg_codec_free(p->on_card);
    tg_codec_free(p->on_host);
    free(p->host_frame);
    free(p->copy);
    free(p->residuals[0]);
    free(p->residuals[1]);
    drop(&p->values);
    drop(&p->expected);
    drop(&p->seen);
}

static tg_encode_call call_of(pair *p, tg_nonfinite policy)
{
    return (tg_encode_call){.codec = p->on_card,
                            .feedback = p->card_feedback,
                            .gradient = {p->gradient, p->count, TG_FLOAT32},
                            .options = {.draw = {.seed = 5, .tensor = 3}, .nonfinite = policy, .on_device = true},
                            .step = p->step,
                            .frame = p->frame,
                            .capacity = p->room,
                            .report = p->report};
}

/* The gradient of a step: now and then with a value that is refused. */
static void set_step(pair *p, uint64_t step, tg_nonfinite policy)
{
    cut(step % 3 == 1 ? LAYERED : GAUSSIAN, step, &p->values);
    if (policy == TG_NONFINITE_REJECT && step % 5 == 3)
        ((float *)p->values.data)[p->count / 2] = strtof("inf", NULL);
    tg_error error = {""};
    expect(tg_device_copy_in(p->card, p->gradient, p->values.data, p->count * sizeof(float), &error) == TG_OK &&
               tg_device_copy_in(p->card, p->step, &step, sizeof step, &error) == TG_OK,
           "copy: %s", error.message);
}

static size_t compare_step(pair *p, uint64_t step, tg_nonfinite policy, const char *what)
{
    const tg_encode_options options = {.draw = {.seed = 5, .step = step, .tensor = 3}, .nonfinite = policy};
    tg_encode_report here;
    const tg_status status = p->host_feedback
                                 ? tg_encode_with_feedback(p->on_host, p->host_feedback, &p->values, &options,
                                                           p->host_frame, p->room, &here, NULL)
                                 : tg_encode(p->on_host, &p->values, &options, p->host_frame, p->room, &here, NULL);
    const tg_encode_report *there = p->report;
    expect(there->status == status, "%s, step %llu: %s instead of %s", what, (unsigned long long)step,
           tg_status_text(there->status), tg_status_text(status));
    expect(there->bytes == here.bytes && there->selected == here.selected && there->saturated == here.saturated &&
               there->dropped == here.dropped,
           "%s, step %llu: the report differs: %zu bytes, %llu selected instead of %zu, %llu", what,
           (unsigned long long)step, there->bytes, (unsigned long long)there->selected, here.bytes,
           (unsigned long long)here.selected);
    if (status == TG_OK && there->status == TG_OK) {
        expect(tg_device_copy_out(p->card, p->copy, p->frame, here.bytes, NULL) == TG_OK, "copy");
        expect(memcmp(p->copy, p->host_frame, here.bytes) == 0, "%s, step %llu: the frame differs", what,
               (unsigned long long)step);
    }
    if (!p->host_feedback)
        return here.bytes;
    expect(tg_feedback_read(p->host_feedback, TG_RESIDUAL, 0, p->count, p->residuals[0], NULL) == TG_OK &&
               tg_feedback_read(p->card_feedback, TG_RESIDUAL, 0, p->count, p->residuals[1], NULL) == TG_OK,
           "residuals");
    expect(memcmp(p->residuals[0], p->residuals[1], p->count * sizeof(float)) == 0,
           "%s, step %llu: the residual differs", what, (unsigned long long)step);
    return here.bytes;
}

/* ---- adding ---- */

/* The frame that is there, twice. */
static tg_status add_later(pair *p, size_t size, const tg_frame_info *like, bool verified, tg_error *error)
{
    const tg_frame frames[2] = {{p->frame, size}, {p->frame, size}};
    const tg_decode_call call = {.frames = frames,
                                 .frame_count = 2,
                                 .like = like,
                                 .weight = 0.25f,
                                 .verified = verified,
                                 .out = {p->sum, p->count, TG_FLOAT32},
                                 .status = p->verdict};
    return tg_decode_add_later(p->card, &call, 1, error);
}

static void set_sum(pair *p)
{
    cut(GRID, 9, &p->expected);
    expect(tg_device_copy_in(p->card, p->sum, p->expected.data, p->count * sizeof(float), NULL) == TG_OK, "copy");
}

/* The sum is what the host's frame gives, or what it was where another verdict is expected. */
static void compare_sum(pair *p, size_t bytes, tg_status expected, const char *what)
{
    tg_error error = {""};
    expect(tg_device_wait(p->card, &error) == TG_OK, "%s", error.message);
    expect(*p->verdict == expected, "%s: %s instead of %s", what, tg_status_text(*p->verdict),
           tg_status_text(expected));
    const tg_frame frames[2] = {{p->host_frame, bytes}, {p->host_frame, bytes}};
    if (expected == TG_OK)
        expect(tg_decode_add(p->host, frames, 2, 0.25f, 0, &p->expected, &error) == TG_OK, "%s", error.message);
    expect(tg_device_copy_out(p->card, p->seen.data, p->sum, p->count * sizeof(float), NULL) == TG_OK &&
               memcmp(p->seen.data, p->expected.data, p->count * sizeof(float)) == 0,
           "%s: the sum differs", what);
}

/* One byte of the frame is another one. */
static void add_damaged(pair *p, size_t size, size_t bytes, const tg_frame_info *like, size_t place, tg_status expected)
{
    uint8_t byte = p->host_frame[place] ^ 0x10;
    set_sum(p);
    expect(tg_device_copy_in(p->card, (uint8_t *)p->frame + place, &byte, 1, NULL) == TG_OK &&
               add_later(p, size, like, false, NULL) == TG_OK,
           "a damaged frame");
    compare_sum(p, bytes, expected, "a damaged frame");
    byte ^= 0x10;
    expect(tg_device_copy_in(p->card, (uint8_t *)p->frame + place, &byte, 1, NULL) == TG_OK, "copy");
}

/* Adds the frame on the card, which is the host's; `sparse`: then its size need not be known. */
static void try_adding(pair *p, bool sparse, size_t bytes)
{
    tg_frame_info like;
    tg_error error = {""};
    expect(tg_frame_read((tg_frame){p->host_frame, bytes}, &like, &error) == TG_OK, "%s", error.message);
    const size_t size = sparse ? p->room : bytes;
    set_sum(p);
    const tg_status status = add_later(p, size, &like, false, &error);
    if (status == TG_UNAVAILABLE)
        return;
    expect(status == TG_OK, "adding later: %s", error.message);
    compare_sum(p, bytes, TG_OK, "adding later");
    set_sum(p);
    expect(add_later(p, size, &like, true, &error) == TG_OK, "%s", error.message);
    compare_sum(p, bytes, TG_OK, "adding later what has been verified");
    add_damaged(p, size, bytes, &like, 9, TG_LAYOUT_MISMATCH);
    add_damaged(p, size, bytes, &like, 50, TG_CORRUPT);
    add_damaged(p, size, bytes, &like, bytes - 1, TG_CORRUPT);
    if (bytes > 80)
        add_damaged(p, size, bytes, &like, 72, TG_CORRUPT);
}

/* ---- both ---- */

/* A call that waits, some that do not, a graph that is replayed, and a call that waits again. */
static void try_pair(const char *spec, uint64_t count, tg_feedback_kind kind, tg_nonfinite policy, tg_device *card,
                     tg_device *host)
{
    pair p;
    tg_error error = {""};
    uint64_t step = 0;
    size_t bytes = 0;
    const bool sparse = strstr(spec, "density") != NULL;
    now_at(tg_device_name(card), GAUSSIAN, count);
    open_pair(&p, spec, count, kind, card, host);
    const tg_encode_call call = call_of(&p, policy);
    const tg_encode_options options = {.draw = {.seed = 5, .tensor = 3}, .nonfinite = policy, .on_device = true};
    for (; step < 3; step++) {
        set_step(&p, step, policy);
        expect(tg_encode_later(&call, 1, &error) == TG_OK && tg_device_wait(card, &error) == TG_OK, "%s",
               error.message);
        bytes = compare_step(&p, step, policy, "later");
        if (step == 0)
            try_adding(&p, sparse, bytes);
    }
    tg_frame_info like;
    expect(tg_frame_read((tg_frame){p.host_frame, bytes}, &like, &error) == TG_OK, "%s", error.message);
    capture_begin();
    tg_status status = tg_encode_later(&call, 1, &error);
    const bool adds = add_later(&p, sparse ? p.room : bytes, &like, false, NULL) == TG_OK;
    void *graph = capture_end();
    expect(status == TG_OK && graph, "capture: %s", error.message);
    for (; graph && step < 3 + steps_to_do; step++) {
        set_step(&p, step, policy);
        set_sum(&p);
        capture_launch(graph);
        expect(tg_device_wait(card, &error) == TG_OK, "%s", error.message);
        bytes = compare_step(&p, step, policy, "replay");
        if (adds && bytes > 0 && (sparse || bytes == like.bytes))
            compare_sum(&p, bytes, TG_OK, "replay");
    }
    if (graph)
        capture_forget(graph);
    set_step(&p, 0, policy);
    tg_encode_report report;
    const tg_status waited = p.card_feedback
                                 ? tg_encode_with_feedback(p.on_card, p.card_feedback, &call.gradient, &options,
                                                           p.frame, p.room, &report, &error)
                                 : tg_encode(p.on_card, &call.gradient, &options, p.frame, p.room, &report, &error);
    expect(waited == TG_OK, "a call that waits, afterwards: %s", error.message);
    *p.report = report;
    compare_step(&p, 0, policy, "a call that waits, afterwards");
    close_pair(&p);
    check_all("%s: %s, %llu elements, %s%s", tg_device_name(card), spec, (unsigned long long)count,
              kind == TG_FEEDBACK_NONE ? "no feedback"
              : kind == TG_FEEDBACK_EF ? "ef"
                                       : "dgc",
              policy == TG_NONFINITE_REJECT ? ", reject" : ", trust");
}

/* ---- many tensors in one call ---- */

enum { TENSORS = 70 }; /* more than an emulated card puts on the stream together: MANY_TOGETHER */

static void try_many(const char *spec, tg_device *card, tg_device *host)
{
    static pair pairs[TENSORS];
    static tg_encode_call encodes[TENSORS];
    static tg_decode_call decodes[TENSORS];
    static tg_frame frames[TENSORS];
    static tg_frame_info likes[TENSORS];
    tg_error error = {""};
    now_at(tg_device_name(card), GAUSSIAN, TENSORS);
    for (size_t t = 0; t < TENSORS; t++) {
        open_pair(&pairs[t], spec, 1 + 61 * t, TG_FEEDBACK_EF, card, host);
        encodes[t] = call_of(&pairs[t], TG_NONFINITE_REJECT);
    }
    capture_begin();
    const tg_status status = tg_encode_later(encodes, TENSORS, &error);
    void *graph = capture_end();
    expect(status == TG_OK && graph, "capture: %s", error.message);
    for (uint64_t step = 0; graph && step < 4; step++) {
        for (size_t t = 0; t < TENSORS; t++)
            set_step(&pairs[t], step, TG_NONFINITE_REJECT);
        capture_launch(graph);
        expect(tg_device_wait(card, &error) == TG_OK, "%s", error.message);
        for (size_t t = 0; t < TENSORS; t++) {
            const size_t bytes = compare_step(&pairs[t], step, TG_NONFINITE_REJECT, "many");
            if (step != 2)
                continue;
            expect(tg_frame_read((tg_frame){pairs[t].host_frame, bytes}, &likes[t], &error) == TG_OK, "%s",
                   error.message);
            frames[t] = (tg_frame){pairs[t].frame, bytes};
            decodes[t] = (tg_decode_call){.frames = &frames[t],
                                          .frame_count = 1,
                                          .like = &likes[t],
                                          .weight = 0.5f,
                                          .out = {pairs[t].sum, pairs[t].count, TG_FLOAT32},
                                          .status = pairs[t].verdict};
            set_sum(&pairs[t]);
        }
        if (step != 2)
            continue;
        const tg_status added = tg_decode_add_later(card, decodes, TENSORS, &error);
        expect(added == TG_OK || added == TG_UNAVAILABLE, "%s", error.message);
        if (added != TG_OK)
            continue;
        for (size_t t = 0; t < TENSORS; t++) {
            expect(tg_decode_add(host, &(tg_frame){pairs[t].host_frame, frames[t].size}, 1, 0.5f, 0, &pairs[t].expected,
                                 &error) == TG_OK,
                   "%s", error.message);
            expect(tg_device_wait(card, &error) == TG_OK && *pairs[t].verdict == TG_OK, "verdict %s",
                   tg_status_text(*pairs[t].verdict));
            (void)!tg_device_copy_out(card, pairs[t].seen.data, pairs[t].sum, pairs[t].count * sizeof(float), NULL);
            expect(memcmp(pairs[t].seen.data, pairs[t].expected.data, pairs[t].count * sizeof(float)) == 0,
                   "tensor %zu: the sum differs", t);
        }
    }
    if (graph)
        capture_forget(graph);
    for (size_t t = 0; t < TENSORS; t++)
        close_pair(&pairs[t]);
    check_all("%s: %s, %d tensors in one call", tg_device_name(card), spec, TENSORS);
}

int main(int argc, char **argv)
{
    static const uint64_t small[] = {1, 5120, 20011, 0};
    uint64_t one[] = {0, 0};
    const char *only = "";
    for (; argc > 2 && strncmp(argv[1], "--device", 8) != 0; argc -= 2, argv += 2) {
        if (strcmp(argv[1], "--only") == 0)
            only = argv[2];
        else if (strcmp(argv[1], "--steps") == 0)
            steps_to_do = strtoull(argv[2], NULL, 10);
        else if (strcmp(argv[1], "--count") == 0)
            one[0] = strtoull(argv[2], NULL, 10);
        else
            break;
    }
    (void)wants_all(argc, argv);
    tg_device *host = open_device(one[0] ? "cpu" : "cpu/scalar"), *card = NULL;
    tg_error error = {""};
    const char *why = capture_open(device_to_try(0), &card, &error);
    if (why) {
        printf("skipped: no graph can be captured here: %s\n", why);
        tg_device_free(host);
        return finish();
    }
    for (const uint64_t *count = one[0] ? one : small; *count; count++)
        for (size_t i = 0; specs[i]; i++) {
            if (!strstr(specs[i], only))
                continue;
            if (!has_codec(card, specs[i])) {
                skip_codec(specs[i]);
                continue;
            }
            const bool sparse = strstr(specs[i], "density") != NULL;
            try_pair(specs[i], *count, TG_FEEDBACK_NONE, TG_NONFINITE_REJECT, card, host);
            try_pair(specs[i], *count, TG_FEEDBACK_EF, TG_NONFINITE_REJECT, card, host);
            try_pair(specs[i], *count, TG_FEEDBACK_EF, TG_NONFINITE_TRUST, card, host);
            if (sparse)
                try_pair(specs[i], *count, TG_FEEDBACK_DGC, TG_NONFINITE_REJECT, card, host);
        }
    for (size_t i = 0; many[i] && !one[0]; i++)
        if (strstr(many[i], only) && has_codec(card, many[i]))
            try_many(many[i], card, host);
    tg_device_free(card);
    tg_device_free(host);
    capture_close();
    return finish();
}
