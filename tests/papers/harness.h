/* What the tests of the papers' formulas share: checks that print what was measured beside what was expected, vectors
 * drawn from named distributions, and one vector through one codec. Every seed is fixed, so a check that holds once
 * holds always; a tolerance of five standard deviations says how surprising a failure would have been when the seed was
 * chosen. */
#ifndef TG_TESTS_PAPERS_HARNESS_H
#define TG_TESTS_PAPERS_HARNESS_H

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"
#include "tersegrad.h"

#define HEADER_BYTES 64u /* of a frame; docs/format.md, 1 */
#define HALF_ULP 0x1p-24 /* relative error of one rounding to float32 */

/* ---- checks ---- */

static unsigned passed, failed, skipped;

__attribute__((format(printf, 3, 4))) static inline bool check(bool good, const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s %s: ", good ? "ok  " : "FAIL", name);
    (void)vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    passed += good;
    failed += !good;
    return good;
}

/* |measured - expected| <= tolerance; false for NaN. */
static inline bool check_near(const char *name, double measured, double expected, double tolerance)
{
    return check(fabs(measured - expected) <= tolerance, name, "measured %.8g, expected %.8g +- %.2g", measured,
                 expected, tolerance);
}

static inline bool check_below(const char *name, double measured, double bound)
{
    return check(measured <= bound, name, "measured %.8g, bound %.8g", measured, bound);
}

static inline void skip(const char *reason)
{
    printf("skip: %s\n", reason);
    skipped++;
}

static inline int finish(void)
{
    printf("%u passed, %u failed, %u skipped\n", passed, failed, skipped);
    return failed > 0;
}

/* For calls whose success is not what is being tested. */
static inline void must(tg_status status, const tg_error *error)
{
    if (status == TG_OK)
        return;
    (void)check(false, "setting up", "%s: %s", tg_status_text(status), error->message);
    exit(finish());
}

static inline void *memory(size_t count, size_t size)
{
    void *made = calloc(count ? count : 1, size);
    if (!made) {
        (void)check(false, "setting up", "no memory for %zu x %zu bytes", count, size);
        exit(finish());
    }
    return made;
}

static inline float *floats(size_t count) { return memory(count, sizeof(float)); }

__attribute__((format(printf, 1, 2))) static inline const char *text(const char *format, ...)
{
    static char buffers[8][256];
    static unsigned next;
    char *buffer = buffers[next++ % 8];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(buffer, sizeof buffers[0], format, arguments);
    va_end(arguments);
    return buffer;
}

/* ---- vectors ---- */

static inline uint64_t next_bits(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Strictly between 0 and 1. */
static inline double next_unit(uint64_t *state) { return ((double)(next_bits(state) >> 12) + 0.5) * 0x1p-52; }

/* Two independent normal numbers (Marsaglia's polar method). */
static inline void next_normals(uint64_t *state, double pair[2])
{
    double x, y, square;
    do {
        x = 2 * next_unit(state) - 1;
        y = 2 * next_unit(state) - 1;
        square = x * x + y * y;
    } while (square >= 1 || square == 0);
    double factor = sqrt(-2 * log(square) / square);
    pair[0] = x * factor;
    pair[1] = y * factor;
}

typedef enum distribution {
    GAUSSIAN,
    LAPLACE,  /* density exp(-|x|) / 2 */
    STUDENT3, /* Student's t with three degrees of freedom */
    UNIFORM,  /* on -1 ... 1 */
    SIGNS,    /* +1 or -1 */
    DISTRIBUTIONS
} distribution;

static const char *const distribution_names[] = {"Gaussian", "Laplace", "Student t3", "uniform", "+-1"};

static inline double next_of(distribution kind, uint64_t *state)
{
    double a[2], b[2];
    switch (kind) {
    case LAPLACE:
        a[0] = next_unit(state);
        return a[0] < 0.5 ? log(2 * a[0]) : -log(2 * (1 - a[0]));
    case UNIFORM:
        return 2 * next_unit(state) - 1;
    case SIGNS:
        return next_bits(state) >> 63 ? 1 : -1;
    case STUDENT3:
        next_normals(state, a);
        next_normals(state, b);
        return a[0] / sqrt((a[1] * a[1] + b[0] * b[0] + b[1] * b[1]) / 3);
    default:
        next_normals(state, a);
        return a[0];
    }
}

static inline void fill(float *values, size_t count, distribution kind, uint64_t seed)
{
    uint64_t state = seed * UINT64_C(0xd1342543de82ef95) + (uint64_t)kind;
    double pair[2];
    for (size_t i = 0; i < count; i++) {
        if (kind == GAUSSIAN) {
            if (i % 2 == 0)
                next_normals(&state, pair);
            values[i] = (float)pair[i % 2];
        } else {
            values[i] = (float)next_of(kind, &state);
        }
    }
}

static inline double square_norm(const float *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)values[i];
    return sum;
}

static inline double sum_of_magnitudes(const float *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += fabs((double)values[i]);
    return sum;
}

static inline double largest_magnitude(const float *values, size_t count)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)values[i]));
    return largest;
}

static inline double square_distance(const float *a, const float *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double difference = (double)a[i] - (double)b[i];
        sum += difference * difference;
    }
    return sum;
}

/* ---- one vector through one codec ---- */

typedef struct coder {
    tg_device *device;
    tg_spec spec;
    tg_codec *codec;
    uint64_t count;
    uint8_t *frame;
    size_t capacity;
    tg_encode_report report;
} coder;

static inline coder coder_open(const char *spec, uint64_t count)
{
    coder c = {.count = count};
    tg_error error;
    must(tg_device_open("cpu", NULL, &c.device, &error), &error);
    must(tg_spec_parse(spec, &c.spec, &error), &error);
    must(tg_codec_create(c.device, &c.spec, count, &c.codec, &error), &error);
    c.capacity = tg_frame_bound(c.codec, count);
    c.frame = memory(c.capacity, 1);
    return c;
}

static inline void coder_close(coder *c)
{
    free(c->frame);
    tg_codec_free(c->codec);
    tg_device_free(c->device);
}

static inline tg_tensor tensor_of(const float *values, uint64_t count)
{
    return (tg_tensor){.data = (void *)values, .count = count, .dtype = TG_FLOAT32};
}

static inline tg_frame frame_of(const coder *c) { return (tg_frame){.data = c->frame, .size = c->report.bytes}; }

static inline void encode_drawn(coder *c, const float *values, tg_draw draw)
{
    tg_tensor input = tensor_of(values, c->count);
    tg_encode_options options = {.draw = draw, .no_checksum = true};
    tg_error error;
    must(tg_encode(c->codec, &input, &options, c->frame, c->capacity, &c->report, &error), &error);
}

static inline void encode(coder *c, const float *values, uint64_t step)
{
    encode_drawn(c, values, (tg_draw){.seed = 1, .step = step});
}

static inline void decode(const coder *c, float *values)
{
    tg_tensor out = tensor_of(values, c->count);
    tg_frame frame = frame_of(c);
    tg_error error;
    must(tg_decode(c->device, &frame, 1, 1, 0, &out, &error), &error);
}

static inline tg_frame_parts measure(const coder *c)
{
    tg_frame_parts parts;
    tg_error error;
    must(tg_frame_measure(c->device, frame_of(c), &parts, &error), &error);
    return parts;
}

static inline tg_frame_info info_of(const coder *c)
{
    tg_frame_info info;
    tg_error error;
    must(tg_frame_read(frame_of(c), &info, &error), &error);
    return info;
}

/* ---- feedback ---- */

static inline tg_feedback_spec parse_feedback(const char *how)
{
    tg_feedback_spec spec;
    tg_error error;
    must(tg_feedback_parse(how, &spec, &error), &error);
    return spec;
}

static inline tg_feedback *open_feedback(const coder *c, const char *how, bool insist)
{
    tg_feedback_spec spec = parse_feedback(how);
    tg_feedback *feedback;
    tg_error error;
    must(tg_feedback_create(c->device, &spec, &c->spec, c->count, insist, &feedback, &error), &error);
    return feedback;
}

static inline void encode_step(coder *c, tg_feedback *feedback, const float *gradient, uint64_t step, uint32_t rank)
{
    tg_tensor input = tensor_of(gradient, c->count);
    tg_encode_options options = {.draw = {.seed = 4, .step = step, .rank = rank}, .no_checksum = true};
    tg_error error;
    must(tg_encode_with_feedback(c->codec, feedback, &input, &options, c->frame, c->capacity, &c->report, &error),
         &error);
}

static inline tg_stats stats_of(const tg_feedback *feedback)
{
    tg_stats stats;
    tg_error error;
    must(tg_feedback_stats(feedback, &stats, &error), &error);
    return stats;
}

/* ---- real gradients ---- */

/* The flat vector of a little-endian float32 .npy file, or NULL where there is none. */
static inline float *load_npy(const char *path, size_t *count)
{
    unsigned char head[10], bytes[4];
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    float *values = NULL;
    if (fread(head, 1, sizeof head, file) == sizeof head && memcmp(head, "\x93NUMPY\x01", 7) == 0 &&
        fseek(file, 0, SEEK_END) == 0) {
        long start = 10 + head[8] + 256L * head[9], end = ftell(file);
        size_t i = 0;
        *count = (size_t)(end - start) / sizeof bytes;
        values = floats(*count);
        if (fseek(file, start, SEEK_SET) == 0) {
            for (; i < *count && fread(bytes, 1, sizeof bytes, file) == sizeof bytes; i++) {
                uint32_t bits = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                                (uint32_t)bytes[3] << 24;
                memcpy(&values[i], &bits, sizeof bits);
            }
        }
        if (i < *count) {
            free(values);
            values = NULL;
        }
    }
    (void)fclose(file);
    return values;
}

static const char *const real_gradients[] = {"chargpt-step20",   "chargpt-step1500", "mnistcnn-worker0",
                                             "mnistcnn-worker1", "mnistcnn-worker2", "mnistcnn-worker3"};
enum { REAL_GRADIENTS = sizeof real_gradients / sizeof *real_gradients };

/* The i-th real gradient. The folder is the program's first argument, where one that is absent is a counted skip; or
 * one beside the checkout; or tests/data, which has only some of them: NULL for the others. */
static inline float *real_gradient(int argc, char **argv, size_t i, size_t *count)
{
    const char *const folders[] = {argc > 1 ? argv[1] : "../shared/data/gradients", "tests/data"};
    float *values = NULL;
    for (size_t f = 0; !values && f < (argc > 1 ? 1 : 2); f++)
        values = load_npy(text("%s/%s.npy", folders[f], real_gradients[i]), count);
    if (!values && argc > 1)
        skip(text("no real gradient %s.npy in %s", real_gradients[i], argv[1]));
    return values;
}

#endif
