/* Damaged frames: every truncation and extension is refused, every change is found by the checksum, and where the checksum was made
 * anew a frame is either refused, leaving the output alone, or decodes the same by every way. */
#include <stdlib.h>
#include <string.h>

#include "frame/checksum.h"
#include "support.h"

enum { HEADER = 64, CHECKSUM_AT = 60 };

static void set_checksum(unsigned char *frame, size_t size)
{
    uint32_t sum = tg_checksum(&tg_kernels_scalar, NULL, frame, frame + HEADER, size - HEADER, NULL);
    for (int i = 0; i < 4; i++)
        frame[CHECKSUM_AT + i] = (unsigned char)(sum >> 8 * i);
}

typedef struct subject {
    tg_device *device;
    tg_tensor out, again;
    unsigned char *frame, *damaged;
    size_t size;
} subject;

static void refill(tg_tensor *t) { memset(t->data, 0x5a, (size_t)t->count * 4); }

static bool untouched(const tg_tensor *t)
{
    for (size_t i = 0; i < (size_t)t->count * 4; i++)
        if (((unsigned char *)t->data)[i] != 0x5a)
            return false;
    return true;
}

/* Decodes a copy that ends where its memory ends, so that a sanitizer sees any step beyond. */
static tg_status decode(subject *s, const unsigned char *bytes, size_t size, unsigned flags, tg_tensor *out)
{
    unsigned char *exact = malloc(size ? size : 1);
    memcpy(exact, bytes, size);
    tg_frame frame = {exact, size};
    tg_error error;
    refill(out);
    tg_status status = tg_decode(s->device, &frame, 1, 1, flags, out, &error);
    tg_frame_parts parts;
    if (flags == 0 && (tg_frame_measure(s->device, frame, &parts, NULL) == TG_OK) != (status == TG_OK))
        expect(status == TG_SHAPE_MISMATCH, "measure and decode disagree");
    free(exact);
    return status;
}

static void truncations(subject *s)
{
    for (size_t size = 0; size < s->size + 3; size += size < 200 || size + 40 > s->size ? 1 : 37) {
        if (size == s->size)
            continue;
        memset(s->damaged, 0, s->size + 3);
        memcpy(s->damaged, s->frame, size < s->size ? size : s->size);
        expect(decode(s, s->damaged, size, 0, &s->out) == TG_TRUNCATED, "length %zu of %zu is accepted",
               size, s->size);
        expect(untouched(&s->out), "a truncated frame changes the output");
        if (size < HEADER)
            continue;
        /* The same with a header that agrees with the length. */
        uint64_t payload = size - HEADER;
        for (int i = 0; i < 8; i++)
            s->damaged[32 + i] = (unsigned char)(payload >> 8 * i);
        set_checksum(s->damaged, size);
        expect(decode(s, s->damaged, size, 0, &s->out) == TG_CORRUPT, "a payload of length %zu, not %zu, is accepted", size,
               s->size);
        expect(untouched(&s->out), "a truncated payload changes the output");
    }
}

static void mutations(subject *s, generator *g, int tries)
{
    for (int i = 0; i < tries; i++) {
        memcpy(s->damaged, s->frame, s->size);
        for (uint64_t flips = 1 + next_random(g) % 3; flips > 0; flips--) {
            size_t at = 4 + next_random(g) % (s->size - 4);
            if (next_random(g) % 2)
                s->damaged[at] ^= (unsigned char)(1u << next_random(g) % 8);
            else
                s->damaged[at] = (unsigned char)next_random(g);
        }
        if (memcmp(s->damaged, s->frame, s->size) == 0)
            continue;
        bool flag = s->damaged[6] & 1;
        expect(!flag || decode(s, s->damaged, s->size, 0, &s->out) != TG_OK, "damage passes the checksum");
        expect(!flag || untouched(&s->out), "a damaged frame changes the output");
        if (flag)
            set_checksum(s->damaged, s->size);
        if (decode(s, s->damaged, s->size, 0, &s->out) != TG_OK) {
            expect(untouched(&s->out), "a refused frame changes the output");
            (void)decode(s, s->damaged, s->size, TG_VERIFIED, &s->again); /* must not crash */
            continue;
        }
        expect(decode(s, s->damaged, s->size, TG_VERIFIED, &s->again) == TG_OK &&
                   memcmp(s->out.data, s->again.data, (size_t)s->out.count * 4) == 0,
               "a frame that was accepted decodes in two ways");
    }
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    static const uint64_t counts[] = {0, 1, 33, 600, 5000, 700};
    for (size_t d = 0; tg_device_list(d); d++) {
        generator g = {3};
        for (const char *const *spec = all_specs(); *spec; spec++) {
            for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
                subject s = {.device = open_device(tg_device_list(d))};
                tg_tensor input = make_tensor(counts[c], TG_FLOAT32, 0);
                s.out = make_tensor(counts[c], TG_FLOAT32, 0);
                s.again = make_tensor(counts[c], TG_FLOAT32, 0);
                fill(c == 5 ? SCATTERED : c % 2 ? LAYERED : GAUSSIAN, c, &input);
                tg_codec *codec = make_codec(s.device, *spec, counts[c]);
                size_t bound = tg_frame_bound(codec, counts[c]);
                s.frame = malloc(bound);
                s.damaged = malloc(bound + 3);
                tg_encode_report report = {.bytes = 0};
                expect(tg_encode(codec, &input, NULL, s.frame, bound, &report, NULL) == TG_OK, "encode");
                s.size = report.bytes;
                truncations(&s);
                mutations(&s, &g, all ? 2000 : 60);
                free(s.frame);
                free(s.damaged);
                drop(&input);
                drop(&s.out);
                drop(&s.again);
                tg_codec_free(codec);
                tg_device_free(s.device);
            }
            check_all("%s %s: damage", tg_device_list(d), *spec);
        }
    }
    return finish();
}
