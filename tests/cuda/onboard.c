/* Frames that stay on the card: the same bytes and sums as cpu/scalar, whether the card expected such a frame or not;
 * damaged ones are refused with the same words, and nothing is added.
 *
 *     onboard [--count N] [--only TEXT] [--device NAME]      N elements; specs that contain TEXT */
#define STAGED_ITSELF
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { PEERS = 4 };

static const char *const specs[] = {"qsgd:levels=7",
                                    "qsgd:levels=7,norm=l2",
                                    "qsgd:levels=1",
                                    "qsgd:levels=127",
                                    "qsgd:levels=7,range=minmax",
                                    "qsgd:levels=7,bucket=1000",
                                    "qsgd:levels=7,coding=entropy",
                                    "terngrad:clip=1,bucket=512,coding=entropy",
                                    "qsgd:levels=127,coding=entropy",
                                    "onebit",
                                    "none",
                                    "fp16",
                                    "topk:density=0.01",
                                    "topk:density=0.1,values=fp16",
                                    "gaussiank:density=0.01",
                                    "topk:density=0.1,values=levels",
                                    "gaussiank:density=0.05,values=levels,levels=127,bucket=100,range=minmax",
                                    "topk:density=0.3,values=levels,coding=auto",
                                    "topk:density=0.3,values=levels,levels=300,bucket=0,coding=entropy",
                                    NULL};

/* One spec on the card, and beside it on the host. */
typedef struct pair {
    const char *spec;
    uint64_t count;
    tg_device *card, *host;
    tg_codec *on_card, *on_host;
    tg_feedback *card_feedback, *host_feedback;
    void *gradient, *sum, *frames[PEERS]; /* on the card */
    tg_tensor values, expected, seen;     /* on the host: gradient, sum, the card's sum */
    uint8_t *host_frames[PEERS], *copy;
    size_t sizes[PEERS], room;
    void (*shape)(int i, tg_tensor *values); /* of gradient i; or NULL */
} pair;

/* In a few segments of a payload is so much that blocks of threads share them: thinly, so that gaps are coded as usual;
 * at the start, before segments that have less or much less; in runs, for the other code; and so that half of the
 * elements of a segment are selected, and a bitmap is shorter. */
static void crowd(int i, tg_tensor *values)
{
    const uint64_t n = values->count;
    float *at = values->data;
    cut(GAUSSIAN, (uint64_t)i, values);
    for (uint64_t j = 0; j < n; j++)
        if (i == 0   ? j > n / 3 && j < 2 * n / 3
            : i == 1 ? j < n / 17 || (j > n / 2 && j < n / 2 + n / 50) || j % 30 == 0
            : i == 2 ? j > n / 3 && j < n / 3 + n / 4 && j % 500 < 200
                     : j >= n / 32768 / 3 * 32768 && j < n / 32768 / 3 * 32768 + n / 5)
            at[j] *= 1000;
}

/* Little more than what is selected is not 0, and all of that is nearly alike: bins of keys are wide, as they begin at
 * 0, and the threshold is in the last one, which must not reach farther than what is counted. */
static void flatten(int i, tg_tensor *values)
{
    const uint64_t n = values->count, few = n / 8 + n / 108;
    float *at = values->data;
    for (uint64_t j = 0; j < n; j++) {
        const uint64_t place = (j * 2654435761u + (uint64_t)i) % n;
        at[j] = place < few ? 1 + (float)(place * 7919 % few) / (float)few * 0.02f : 0;
    }
}

static void open_pair(pair *p, const char *spec, uint64_t count, bool feedback, tg_device *card, tg_device *host)
{
    const tg_feedback_spec ef = {.kind = TG_FEEDBACK_EF, .alpha = 1, .beta = 1};
    tg_error error = {""};
    const size_t bytes = (size_t)count * sizeof(float);
    *p = (pair){.spec = spec, .count = count, .card = card, .host = host};
    p->on_card = make_codec(card, spec, count);
    p->on_host = make_codec(host, spec, count);
    p->room = tg_frame_bound(p->on_card, count);
    p->values = make_tensor(count, TG_FLOAT32, 0);
    p->expected = make_tensor(count, TG_FLOAT32, 0);
    p->seen = make_tensor(count, TG_FLOAT32, 0);
    p->copy = malloc(p->room);
    bool fine = p->copy && tg_device_allocate(card, bytes, &p->gradient, &error) == TG_OK &&
                tg_device_allocate(card, bytes, &p->sum, &error) == TG_OK;
    for (int i = 0; i < PEERS; i++) {
        p->host_frames[i] = malloc(p->room);
        fine = fine && p->host_frames[i] && tg_device_allocate(card, p->room, &p->frames[i], &error) == TG_OK;
    }
    if (feedback)
        fine =
            fine &&
            tg_feedback_create(card, &ef, tg_codec_spec(p->on_card), count, true, &p->card_feedback, &error) == TG_OK &&
            tg_feedback_create(host, &ef, tg_codec_spec(p->on_host), count, true, &p->host_feedback, &error) == TG_OK;
    expect(fine, "memory: %s", error.message);
}

static void close_pair(pair *p)
{
    for (int i = 0; i < PEERS; i++) {
        tg_device_release(p->card, p->frames[i]);
        free(p->host_frames[i]);
    }
    tg_device_release(p->card, p->gradient);
    tg_device_release(p->card, p->sum);
    tg_feedback_free(p->card_feedback);
    tg_feedback_free(p->host_feedback);
    tg_codec_free(p->on_card);
    tg_codec_free(p->on_host);
    free(p->copy);
    drop(&p->values);
    drop(&p->expected);
    drop(&p->seen);
}

/* Frame i, on both sides. */
static void make_frame(pair *p, int i, tg_nonfinite policy)
{
    const size_t bytes = (size_t)p->count * sizeof(float);
    tg_encode_options options = {.draw = {.seed = 5, .step = (uint64_t)i}, .nonfinite = policy};
    tg_encode_report here = {.bytes = 0}, there = {.bytes = 0};
    tg_error error = {""};
    if (p->shape)
        p->shape(i, &p->values);
    else
        cut(i == 1 ? LAYERED : GAUSSIAN, (uint64_t)i, &p->values);
    tg_status status = p->host_feedback
                           ? tg_encode_with_feedback(p->on_host, p->host_feedback, &p->values, &options,
                                                     p->host_frames[i], p->room, &here, &error)
                           : tg_encode(p->on_host, &p->values, &options, p->host_frames[i], p->room, &here, &error);
    expect(status == TG_OK, "host: %s", error.message);
    const tg_tensor gradient = {p->gradient, p->count, TG_FLOAT32};
    options.on_device = true;
    expect(tg_device_copy_in(p->card, p->gradient, p->values.data, bytes, &error) == TG_OK, "%s", error.message);
    status = p->card_feedback ? tg_encode_with_feedback(p->on_card, p->card_feedback, &gradient, &options, p->frames[i],
                                                        p->room, &there, &error)
                              : tg_encode(p->on_card, &gradient, &options, p->frames[i], p->room, &there, &error);
    expect(status == TG_OK && here.bytes == there.bytes, "frame %d has %zu bytes, not %zu: %s", i, there.bytes,
           here.bytes, error.message);
    p->sizes[i] = here.bytes;
    if (status == TG_OK)
        (void)!tg_device_copy_out(p->card, p->copy, p->frames[i], here.bytes, &error);
    expect(memcmp(p->copy, p->host_frames[i], here.bytes) == 0, "frame %d differs", i);
}

/* Adds the first frames on both sides to the same values, and compares status and sums. */
static void add_both(pair *p, size_t frame_count, unsigned flags, bool fresh, const char *what)
{
    const size_t bytes = (size_t)p->count * sizeof(float);
    tg_frame here[PEERS], there[PEERS];
    tg_error why_here = {""}, why_there = {""};
    const tg_tensor sum = {p->sum, p->count, TG_FLOAT32};
    for (size_t i = 0; i < frame_count; i++) {
        here[i] = (tg_frame){p->host_frames[i], p->sizes[i]};
        there[i] = (tg_frame){p->frames[i], p->sizes[i]};
    }
    cut(GRID, 9, &p->expected);
    (void)!tg_device_copy_in(p->card, p->sum, p->expected.data, bytes, NULL);
    const tg_status on_host = fresh ? tg_decode(p->host, here, frame_count, 0.25f, flags, &p->expected, &why_here)
                                    : tg_decode_add(p->host, here, frame_count, 0.25f, flags, &p->expected, &why_here);
    flags |= TG_ON_DEVICE;
    const tg_status on_card = fresh ? tg_decode(p->card, there, frame_count, 0.25f, flags, &sum, &why_there)
                                    : tg_decode_add(p->card, there, frame_count, 0.25f, flags, &sum, &why_there);
    (void)!tg_device_copy_out(p->card, p->seen.data, p->sum, bytes, NULL);
    expect(on_host == on_card, "%s, %zu frames: %s (%s) instead of %s (%s)", what, frame_count, tg_status_text(on_card),
           why_there.message, tg_status_text(on_host), why_here.message);
    expect(memcmp(p->seen.data, p->expected.data, bytes) == 0, "%s, %zu frames: sums differ", what, frame_count);
}

/* One byte of the second frame is another one. */
static void damage(pair *p, size_t place, const char *what)
{
    uint8_t *byte = &p->host_frames[1][place];
    *byte ^= 0x10;
    (void)!tg_device_copy_in(p->card, (uint8_t *)p->frames[1] + place, byte, 1, NULL);
    add_both(p, 2, 0, false, what);
    *byte ^= 0x10;
    (void)!tg_device_copy_in(p->card, (uint8_t *)p->frames[1] + place, byte, 1, NULL);
}

static void try_pair(const char *spec, uint64_t count, bool feedback, tg_nonfinite policy, tg_device *card,
                     tg_device *host)
{
    static const size_t places[] = {0, 5, 7, 8, 9, 12, 21, 25, 33, 49, 61};
    pair p;
    now_at(tg_device_name(card), GAUSSIAN, count);
    open_pair(&p, spec, count, feedback, card, host);
    for (int i = 0; i < PEERS; i++)
        make_frame(&p, i, policy);
    for (int round = 0; round < 2; round++) { /* the second time they are expected */
        add_both(&p, 1, 0, false, "one");
        add_both(&p, PEERS, 0, false, "all");
        add_both(&p, 1, TG_VERIFIED, false, "one, verified");
        add_both(&p, PEERS, TG_VERIFIED, false, "all, verified");
        add_both(&p, 2, 0, true, "fresh");
    }
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        damage(&p, places[i], "a damaged header");
    if (p.sizes[1] > 64) {
        damage(&p, 64, "the payload's first byte");
        damage(&p, 64 + (p.sizes[1] - 64) / 2, "the payload's middle");
        damage(&p, p.sizes[1] - 1, "the payload's last byte");
    }
    add_both(&p, 2, 0, false, "repaired");
    p.sizes[1] -= 4;
    add_both(&p, 2, 0, false, "too short");
    close_pair(&p);
    check_all("%s: %s, %llu elements%s", tg_device_name(card), spec, (unsigned long long)count,
              !feedback                       ? ""
              : policy == TG_NONFINITE_REJECT ? ", feedback, reject"
                                              : ", feedback, trust");
}

static void try_shape(const char *spec, uint64_t count, const char *name, void (*shape)(int, tg_tensor *),
                      bool feedback, tg_device *card, tg_device *host)
{
    pair p;
    now_at(tg_device_name(card), GAUSSIAN, count);
    open_pair(&p, spec, count, feedback, card, host);
    p.shape = shape;
    for (int i = 0; i < PEERS; i++)
        make_frame(&p, i, TG_NONFINITE_REJECT);
    add_both(&p, PEERS, 0, false, "all");
    close_pair(&p);
    check_all("%s: %s, %s, %llu elements%s", tg_device_name(card), spec, name, (unsigned long long)count,
              feedback ? ", feedback" : "");
}

int main(int argc, char **argv)
{
    static const char *const crowded[] = {"topk:density=0.1", "gaussiank:density=0.1,values=bf16",
                                          "topk:density=0.1,values=levels", NULL};
    static const uint64_t small[] = {1, 511, 5120, 70001, 0};
    uint64_t one[] = {0, 0};
    const char *only = "";
    for (; argc > 2 && (strcmp(argv[1], "--count") == 0 || strcmp(argv[1], "--only") == 0); argc -= 2, argv += 2) {
        if (strcmp(argv[1], "--only") == 0)
            only = argv[2];
        else
            one[0] = strtoull(argv[2], NULL, 10);
    }
    (void)wants_all(argc, argv);
    tg_device *card = open_device(device_to_try(0)), *host = open_device(one[0] ? "cpu" : "cpu/scalar");
    for (const uint64_t *count = one[0] ? one : small; *count; count++)
        for (size_t i = 0; specs[i]; i++) {
            if (!strstr(specs[i], only))
                continue;
            if (!has_codec(card, specs[i])) {
                skip_codec(specs[i]);
                continue;
            }
            /* short vectors have the layout of listed levels, which a card reads from host memory only */
            if (*count < 512 && strstr(specs[i], "entropy"))
                continue;
            try_pair(specs[i], *count, false, TG_NONFINITE_REJECT, card, host);
            try_pair(specs[i], *count, true, TG_NONFINITE_REJECT, card, host);
            try_pair(specs[i], *count, true, TG_NONFINITE_TRUST, card, host);
        }
    for (size_t i = 0; crowded[i]; i++) {
        if (one[0] || !strstr(crowded[i], only))
            continue;
        try_shape(crowded[i], 300007, "crowded", crowd, false, card, host);
        try_shape(crowded[i], 300007, "crowded", crowd, true, card, host);
    }
    for (uint64_t n = 4096; n <= 16384 && !one[0] && strstr("topk:density=0.125", only); n *= 2) {
        try_shape("topk:density=0.125", n, "flat", flatten, false, card, host);
        try_shape("topk:density=0.125", n, "flat", flatten, true, card, host);
    }
    tg_device_free(card);
    tg_device_free(host);
    return finish();
}
