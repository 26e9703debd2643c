/* Mutated frames through a device's decoder, with the verdict of cpu/scalar as the reference: the same verdict on every
 * frame, the same bits where it is good, and where it is not and the caller claims that it is, nothing worse than
 * wrong numbers. Lengths and checksums are put right after most mutations, so that they reach the decoders.
 *
 *     mutate [--cases N] [--seed S] [--device NAME] */
#define STAGED_ITSELF
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/checksum.h"
#include "device/device.h"
#include "support.h"

enum { HEADER = 64, FLAGS_AT = 6, PAYLOAD_AT = 32, CHECKSUM_AT = 60, LAYOUTS = 6 };
enum { BATCH = 64, EXTRA = 5, COUNTS = 5, ADDED = TG_MAX_NARROW_FRAMES };
#define COUNT_MAX (UINT64_C(1) << 19) /* a small frame may stand for very many zeros, which only cost time */

static const uint64_t counts[COUNTS] = {1, 33, 600, 5000, 1000};
/* The prefix layout is for long vectors: of these, a few of the cases. */
enum { LONG = (1 << 18) + 77, LONG_PART = 400 };
static const char *const long_specs[] = {"qsgd:levels=7,coding=entropy", "qsgd:levels=7,norm=l2,coding=entropy",
                                         "qsgd:levels=3,range=minmax,coding=auto", "terngrad:coding=entropy", NULL};

/* Frames as encoders make them, all of one count. */
typedef struct stock {
    uint64_t count;
    tg_frame *frames;
    size_t frame_count, largest;
} stock;

typedef struct machine {
    tg_device *device, *scalar;
    tg_tensor out, expected; /* in device memory, and in host memory */
    float *start, *seen;
    tg_check_job jobs[BATCH];
    uint8_t *bytes[BATCH];
    uint64_t accepted, refused;
} machine;

static uint64_t layouts_seen[LAYOUTS];

static void put(uint8_t *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static tg_frame make_frame(tg_device *scalar, const char *spec, uint64_t count, shape s, tg_dtype dtype)
{
    tg_tensor input = make_tensor(count, dtype, 0);
    tg_codec *codec = make_codec(scalar, spec, count);
    const size_t bound = tg_frame_bound(codec, count);
    uint8_t *bytes = malloc(bound);
    tg_encode_report report;
    tg_frame_info info;
    cut(s, count, &input);
    if (!bytes || tg_encode(codec, &input, NULL, bytes, bound, &report, NULL) != TG_OK ||
        tg_frame_read((tg_frame){bytes, report.bytes}, &info, NULL) != TG_OK)
        abort();
    layouts_seen[info.layout % LAYOUTS]++;
    tg_codec_free(codec);
    drop(&input);
    return (tg_frame){bytes, report.bytes};
}

static stock make_stock(tg_device *scalar, const char *const *specs, uint64_t count, bool scattered)
{
    stock s = {.count = count};
    size_t n = 0;
    while (specs[n])
        n++;
    s.frames = malloc((n + 1) * sizeof *s.frames);
    for (size_t i = 0; s.frames && i < n; i++) {
        const shape kind = scattered ? SCATTERED : i % 2 ? LAYERED : GAUSSIAN;
        s.frames[i] = make_frame(scalar, specs[i], s.count, kind, count == LONG ? TG_FLOAT32 : (tg_dtype)(i % 3));
        s.largest = s.frames[i].size > s.largest ? s.frames[i].size : s.largest;
    }
    s.frame_count = n;
    return s;
}

/* One to four changes behind the magic number, now and then another length. */
static size_t damage(generator *g, tg_frame from, uint8_t *bytes)
{
    size_t size = from.size;
    memcpy(bytes, from.data, size);
    memset(bytes + size, 0, EXTRA);
    if (next_random(g) % 8 == 0)
        size = next_random(g) % 2 ? size + next_random(g) % EXTRA : size - next_random(g) % (size - HEADER + 1);
    for (uint64_t changes = 1 + next_random(g) % 4; changes > 0; changes--) {
        const uint64_t draw = next_random(g);
        const size_t reach = draw % 4 == 0 && size > HEADER + 16 ? 16 : size - HEADER; /* heads matter most */
        const bool in_header = reach == 0 || draw % 16 == 1;
        const size_t at = in_header ? 4 + (draw >> 32) % (HEADER - 4) : HEADER + (draw >> 32) % reach;
        bytes[at] = draw & 32 ? (uint8_t)(bytes[at] ^ 1u << (draw >> 8) % 8) : (uint8_t)(draw >> 16);
    }
    return size;
}

static void repair(uint8_t *frame, size_t size)
{
    put(frame + PAYLOAD_AT, size - HEADER, 8);
    put(frame + CHECKSUM_AT, 0, 4);
    if (frame[FLAGS_AT] & 1)
        put(frame + CHECKSUM_AT,
            tg_checksum(&tg_kernels_scalar, NULL, frame, frame + HEADER, size - HEADER, NULL, NULL), 4);
}

static tg_frame mutant(generator *g, const stock *s, uint8_t *bytes)
{
    tg_frame_info info;
    tg_frame frame = {bytes, 0};
    do {
        frame.size = damage(g, s->frames[next_random(g) % s->frame_count], bytes);
        if (next_random(g) % 16 > 0)
            repair(bytes, frame.size);
    } while (tg_frame_read(frame, &info, NULL) == TG_OK && info.count > COUNT_MAX);
    return frame;
}

static void restart(machine *m)
{
    if (tg_device_copy_in(m->device, m->out.data, m->start, m->out.count * sizeof(float), NULL) != TG_OK)
        expect(false, "cannot copy to the device");
}

/* Good frames, added: the same bits. */
static void compare_sums(machine *m, const tg_frame *good, size_t n)
{
    tg_error error;
    restart(m);
    memcpy(m->expected.data, m->start, m->out.count * sizeof(float));
    expect(tg_decode_add(m->device, good, n, 0.3f, 0, &m->out, &error) == TG_OK, "adding: %s", error.message);
    expect(tg_decode_add(m->scalar, good, n, 0.3f, TG_VERIFIED, &m->expected, &error) == TG_OK, "%s", error.message);
    expect(tg_device_copy_out(m->device, m->seen, m->out.data, m->out.count * sizeof(float), NULL) == TG_OK &&
               memcmp(m->seen, m->expected.data, m->out.count * sizeof(float)) == 0,
           "sums of %zu frames differ", n);
}

/* Bad frames that are called good: one bad frame that is not, and the output as it was; and all is well afterwards. */
static void lie(machine *m, const tg_frame *bad, size_t n)
{
    restart(m);
    expect(tg_decode_add(m->device, bad, n, 1, 0, &m->out, NULL) != TG_OK, "bad frames are added");
    expect(tg_device_copy_out(m->device, m->seen, m->out.data, m->out.count * sizeof(float), NULL) == TG_OK &&
               memcmp(m->seen, m->start, m->out.count * sizeof(float)) == 0,
           "a refused frame changes the output");
    for (size_t i = 0; i < n; i++)
        (void)!tg_decode_add(m->device, &bad[i], 1, 1, TG_VERIFIED, &m->out, NULL);
    expect(tg_device_wait(m->device, NULL) == TG_OK, "the device failed over a bad frame that was called good");
}

static void judge(machine *m, size_t n, uint64_t first)
{
    tg_frame good[ADDED], bad[ADDED];
    size_t good_count = 0, bad_count = 0;
    m->device->operations->check(m->device, m->jobs, n);
    m->device->operations->wait(m->device);
    for (size_t i = 0; i < n; i++) {
        const tg_check_job *job = &m->jobs[i];
        tg_frame_info info = {.count = 0};
        const tg_status verdict = tg_frame_verify(m->scalar, job->frame, &info, NULL);
        expect(job->status == verdict, "case %llu: codec %u, layout %u: '%s' (%s), where cpu/scalar has '%s'",
               (unsigned long long)(first + i), job->info.spec.codec, job->info.layout, tg_status_text(job->status),
               job->error.message, tg_status_text(verdict));
        *(verdict == TG_OK ? &m->accepted : &m->refused) += 1;
        if (verdict == TG_OK && info.count == m->out.count && good_count < ADDED)
            good[good_count++] = job->frame;
        if (verdict == TG_CORRUPT && job->info.count == m->out.count && bad_count < ADDED)
            bad[bad_count++] = job->frame;
    }
    if (good_count > 0)
        compare_sums(m, good, good_count);
    if (bad_count > 0)
        lie(m, bad, bad_count);
}

static void batches(machine *m, const stock *s, generator *g, uint64_t cases)
{
    m->out = (tg_tensor){.count = s->count};
    m->expected = make_tensor(s->count, TG_FLOAT32, 0);
    tg_tensor start = make_tensor(s->count, TG_FLOAT32, 0), seen = make_tensor(s->count, TG_FLOAT32, 0);
    fill(GAUSSIAN, 5, &start);
    m->start = start.data;
    m->seen = seen.data;
    if (tg_device_allocate(m->device, s->count * sizeof(float), &m->out.data, NULL) != TG_OK)
        abort();
    for (size_t i = 0; i < BATCH; i++)
        m->bytes[i] = malloc(s->largest + EXTRA);
    for (uint64_t done = 0; done < cases; done += BATCH) {
        const size_t n = cases - done < BATCH ? (size_t)(cases - done) : BATCH;
        for (size_t i = 0; i < n; i++)
            m->jobs[i] = (tg_check_job){.frame = mutant(g, s, m->bytes[i]), .count = TG_ANY_COUNT};
        judge(m, n, done);
    }
    for (size_t i = 0; i < BATCH; i++)
        free(m->bytes[i]);
    tg_device_release(m->device, m->out.data);
    drop(&m->expected);
    drop(&start);
    drop(&seen);
    check_all("%llu mutated frames of %llu elements", (unsigned long long)cases, (unsigned long long)s->count);
}

static void drop_stock(stock *s)
{
    for (size_t i = 0; i < s->frame_count; i++)
        free((void *)(uintptr_t)s->frames[i].data);
    free(s->frames);
}

int main(int argc, char **argv)
{
    uint64_t cases = 5000, seed = 1;
    for (; argc > 2 && strcmp(argv[1], "--device") != 0; argc -= 2, argv += 2)
        *(strcmp(argv[1], "--cases") == 0 ? &cases : &seed) = strtoull(argv[2], NULL, 10);
    (void)wants_all(argc, argv);
    machine m = {.device = open_device(device_to_try(0)), .scalar = open_device("cpu/scalar")};
    generator g = {seed};
    for (size_t c = 0; c < COUNTS; c++) {
        stock s = make_stock(m.scalar, all_specs(), counts[c], c == COUNTS - 1);
        batches(&m, &s, &g, cases / COUNTS);
        drop_stock(&s);
    }
    stock s = make_stock(m.scalar, long_specs, LONG, false);
    batches(&m, &s, &g, cases / LONG_PART);
    drop_stock(&s);
    for (unsigned layout = 0; layout < LAYOUTS; layout++)
        check(layouts_seen[layout] > 0, "there is no frame of layout %s", tg_layout_text(layout));
    printf("%s: %llu accepted, %llu refused\n", tg_device_name(m.device), (unsigned long long)m.accepted,
           (unsigned long long)m.refused);
    check(m.accepted > cases / 100 && m.refused > cases / 10, "mutations are neither all good nor all bad");
    tg_device_free(m.device);
    tg_device_free(m.scalar);
    return finish();
}
