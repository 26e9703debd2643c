/* Damaged frames: every truncation and extension is refused, every change is found by the checksum, and where the
 * checksum was made anew a frame is either refused, leaving the output alone, or decodes the same by every way and on
 * every device. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/checksum.h"
#include "support.h"

enum { HEADER = 64, CHECKSUM_AT = 60, EXTRA = 3 };

static void set_checksum(unsigned char *frame, size_t size)
{
    uint32_t sum = tg_checksum(&tg_kernels_scalar, NULL, frame, frame + HEADER, size - HEADER, NULL, NULL);
    for (int i = 0; i < 4; i++)
        frame[CHECKSUM_AT + i] = (unsigned char)(sum >> 8 * i);
}

typedef struct subject {
    tg_device *const *devices; /* the first one is cpu/scalar, the reference */
    tg_tensor out, again;
    unsigned char *frame, *damaged;
    size_t size;
    shape shape;
} subject;

static size_t bytes_of(const tg_tensor *t) { return (size_t)t->count * sizeof(float); }

static bool untouched(const tg_tensor *t)
{
    const unsigned char *bytes = t->data;
    return t->count == 0 || (bytes[0] == 0x5a && memcmp(bytes, bytes + 1, bytes_of(t) - 1) == 0);
}

/* Decodes a copy that ends where its memory ends, so that a sanitizer sees any step beyond. */
static tg_status decode(tg_device *device, const unsigned char *bytes, size_t size, unsigned flags, tg_tensor *out)
{
    unsigned char *exact = malloc(size ? size : 1);
    memcpy(exact, bytes, size);
    tg_frame frame = {exact, size};
    tg_error error;
    memset(out->data, 0x5a, bytes_of(out));
    tg_status status = tg_decode(device, &frame, 1, 1, flags, out, &error);
    tg_frame_parts parts;
    if (flags == 0 && (tg_frame_measure(device, frame, &parts, NULL) == TG_OK) != (status == TG_OK))
        expect(status == TG_SHAPE_MISMATCH, "measure and decode disagree");
    free(exact);
    return status;
}

/* Every device refuses it, for this reason, and leaves the output alone. */
static void expect_refused(subject *s, size_t size, tg_status reason, const char *what)
{
    for (size_t d = 0; s->devices[d]; d++) {
        now_at(tg_device_name(s->devices[d]), s->shape, s->out.count);
        tg_status status = decode(s->devices[d], s->damaged, size, 0, &s->out);
        expect(status == reason, "%s, %zu bytes of %zu: status %d", what, size, s->size, (int)status);
        expect(untouched(&s->out), "%s changes the output", what);
    }
}

static void truncate_at(subject *s, size_t size)
{
    memset(s->damaged, 0, s->size + EXTRA);
    memcpy(s->damaged, s->frame, size < s->size ? size : s->size);
    expect_refused(s, size, size < s->size ? TG_TRUNCATED : TG_TRAILING_BYTES, "a frame of another length");
    if (size < HEADER)
        return;
    /* The same with a header that agrees with the length. */
    uint64_t payload = size - HEADER;
    for (int i = 0; i < 8; i++)
        s->damaged[32 + i] = (unsigned char)(payload >> 8 * i);
    set_checksum(s->damaged, size);
    expect_refused(s, size, TG_CORRUPT, "a truncated payload");
}

static void truncations(subject *s)
{
    for (size_t size = 0; size < s->size + EXTRA; size += size < 200 || size + 40 > s->size ? 1 : 37)
        if (size != s->size)
            truncate_at(s, size);
}

static void mutate(subject *s, generator *g)
{
    memcpy(s->damaged, s->frame, s->size);
    for (uint64_t flips = 1 + next_random(g) % 3; flips > 0; flips--) {
        size_t at = 4 + next_random(g) % (s->size - 4);
        if (next_random(g) % 2)
            s->damaged[at] ^= (unsigned char)(1u << next_random(g) % 8);
        else
            s->damaged[at] = (unsigned char)next_random(g);
    }
}

/* With the right checksum: every device must think of it as cpu/scalar does, whose result is in s->out. */
static void expect_agreement(subject *s)
{
    tg_status first = TG_OK;
    for (size_t d = 0; s->devices[d]; d++) {
        now_at(tg_device_name(s->devices[d]), s->shape, s->out.count);
        tg_tensor *out = d == 0 ? &s->out : &s->again;
        const tg_status status = decode(s->devices[d], s->damaged, s->size, 0, out);
        if (d == 0)
            first = status;
        expect(status == first, "status %d, where cpu/scalar has %d", (int)status, (int)first);
        if (status != TG_OK) {
            expect(untouched(out), "a refused frame changes the output");
            (void)decode(s->devices[d], s->damaged, s->size, TG_VERIFIED, &s->again); /* must not crash */
            continue;
        }
        expect(memcmp(out->data, s->out.data, bytes_of(out)) == 0, "damage decodes to other values than on cpu/scalar");
        expect(decode(s->devices[d], s->damaged, s->size, TG_VERIFIED, &s->again) == TG_OK &&
                   memcmp(s->out.data, s->again.data, bytes_of(out)) == 0,
               "a frame that was accepted decodes in two ways");
    }
}

static void mutations(subject *s, generator *g, int tries)
{
    for (int i = 0; i < tries; i++) {
        mutate(s, g);
        if (memcmp(s->damaged, s->frame, s->size) == 0)
            continue;
        const bool has_checksum = s->damaged[6] & 1;
        for (size_t d = 0; has_checksum && s->devices[d]; d++) {
            now_at(tg_device_name(s->devices[d]), s->shape, s->out.count);
            expect(decode(s->devices[d], s->damaged, s->size, 0, &s->out) != TG_OK, "damage passes the checksum");
            expect(untouched(&s->out), "a damaged frame changes the output");
        }
        if (has_checksum)
            set_checksum(s->damaged, s->size);
        expect_agreement(s);
    }
}

/* Devices take turns in encoding: their bytes are the same. */
static subject make_subject(tg_device *const *devices, tg_device *encoder, const char *spec, tg_dtype dtype,
                            shape shape, uint64_t count, uint64_t seed)
{
    subject s = {.devices = devices, .shape = shape};
    tg_tensor input = make_tensor(count, dtype, 0);
    s.out = make_tensor(count, TG_FLOAT32, 0);
    s.again = make_tensor(count, TG_FLOAT32, 0);
    cut(shape, seed, &input);
    tg_codec *codec = make_codec(encoder, spec, count);
    const size_t bound = tg_frame_bound(codec, count);
    s.frame = malloc(bound);
    s.damaged = malloc(bound + EXTRA);
    tg_encode_report report = {.bytes = 0};
    expect(tg_encode(codec, &input, NULL, s.frame, bound, &report, NULL) == TG_OK, "encode");
    s.size = report.bytes;
    tg_codec_free(codec);
    drop(&input);
    return s;
}

static void drop_subject(subject *s)
{
    free(s->frame);
    free(s->damaged);
    drop(&s->out);
    drop(&s->again);
}

/* A few lengths, and every truncation that is not like its neighbours. */
static void in_depth(tg_device *const *devices, const char *spec, generator *g)
{
    static const uint64_t counts[] = {0, 1, 33, 600, 5000, 700};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        subject s = make_subject(devices, devices[0], spec, TG_FLOAT32,
                                 c == 5  ? SCATTERED
                                 : c % 2 ? LAYERED
                                         : GAUSSIAN,
                                 counts[c], c);
        truncations(&s);
        mutations(&s, g, EMULATED ? 12 : 60);
        drop_subject(&s);
    }
    check_all("%s: damage", spec);
}

/* Every length, with places and kinds of damage that are drawn: one truncation anywhere, one at the very end, two
 * mutations; of long vectors, one of each. */
static void at_all_lengths(tg_device *const *devices, size_t device_count, const char *spec, tg_dtype dtype,
                           generator *g)
{
    for (const uint64_t *count = lengths(true); *count != UINT64_MAX; count++) {
        const uint64_t draw = next_random(g);
        const bool is_long = *count > 1025;
        subject s = make_subject(devices, devices[draw % device_count], spec, dtype, (shape)((draw >> 8) % SHAPES),
                                 *count, draw >> 32);
        const size_t near_end = s.size - 8 + (size_t)(draw >> 16) % (8 + EXTRA);
        if (!is_long || draw >> 24 & 1)
            truncate_at(&s, next_random(g) % s.size);
        if (!is_long || !(draw >> 24 & 1))
            truncate_at(&s, near_end == s.size ? s.size - 1 : near_end);
        mutations(&s, g, is_long ? 1 : 2);
        drop_subject(&s);
    }
    check_all("%s, dtype %d: damage at all lengths", spec, (int)dtype);
}

int main(int argc, char **argv)
{
    const bool all = wants_all(argc, argv);
    tg_device **devices = open_devices();
    size_t device_count = 0;
    while (devices[device_count])
        device_count++;
    for (const char *const *spec = all_specs(); *spec; spec++) {
        generator g = generator_for(*spec, 3);
        in_depth(devices, *spec, &g);
        for (int dtype = 0; all && dtype <= 2; dtype++)
            at_all_lengths(devices, device_count, *spec, (tg_dtype)dtype, &g);
    }
    close_devices(devices);
    return finish();
}
