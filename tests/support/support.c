/* Counting, data, and handles for the law tests. */
#include "support.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"

static unsigned passed, failed, skipped;
static bool expectation_failed;
static char expectation[480];
static struct {
    const char *device;
    shape shape;
    uint64_t count;
} place;

static void print_failure(const char *text)
{
    if (failed <= 10)
        printf("FAIL %s\n", text);
}

bool check(bool held, const char *format, ...)
{
    if (held) {
        passed++;
        return true;
    }
    failed++;
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    print_failure(text);
    return false;
}

void expect(bool held, const char *format, ...)
{
    if (held || expectation_failed)
        return;
    expectation_failed = true;
    va_list arguments;
    va_start(arguments, format);
    size_t used = 0;
    if (place.device)
        used = (size_t)snprintf(expectation, 120, "%.64s, %s, %llu elements: ", place.device, shape_names[place.shape],
                                (unsigned long long)place.count);
    vsnprintf(expectation + used, sizeof expectation - used, format, arguments);
    va_end(arguments);
}

void now_at(const char *device, shape s, uint64_t count)
{
    place.device = device;
    place.shape = s;
    place.count = count;
}

void check_all(const char *format, ...)
{
    char name[200], text[720];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    snprintf(text, sizeof text, "%s: %s", name, expectation);
    check(!expectation_failed, "%s", text);
    expectation_failed = false;
}

void skip(const char *reason)
{
    skipped++;
    printf("skip: %s\n", reason);
}

int finish(void)
{
    printf("%u passed, %u failed, %u skipped\n", passed, failed, skipped);
    return failed > 0;
}

uint64_t next_random(generator *g)
{
    uint64_t z = g->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double next_uniform(generator *g) { return ((double)(next_random(g) >> 12) + 0.5) / 4503599627370496.0; }

double next_gaussian(generator *g)
{
    uint64_t a = next_random(g), b = next_random(g);
    int sum = -4 * 65535;
    for (int i = 0; i < 4; i++, a >>= 16, b >>= 16)
        sum += (int)(a & 65535) + (int)(b & 65535);
    return sum / 53509.8; /* the root of 8 / 12 * 65536^2 */
}

const char *const shape_names[ALL_SHAPES] = {"gaussian", "layered", "signs",     "constant", "zeros",  "tiny",
                                             "huge",     "grid",    "scattered", "patched",  "sorted", "one layer"};

static double value(shape s, generator *g, uint64_t index)
{
    switch (s) {
    case GAUSSIAN:
        return next_gaussian(g);
    case LAYERED: {
        static const double scales[] = {1, 1e-3, 0, 1e-6, 30, 1e-2, 0, 1e-9};
        return next_gaussian(g) * scales[index / 37 % 8];
    }
    case SIGNS:
        return next_random(g) & 1 ? 1 : -1;
    case CONSTANT:
        return 0.7;
    case TINY:
        return next_gaussian(g) * 1e-39;
    case HUGE_ONES:
        return (next_uniform(g) * 2 - 1) * 3.4e38;
    case SORTED:
        return 1 + (double)index * 0x1p-12;
    case ONE_LAYER:
        return next_gaussian(g) * (index % 100000 / 20000 == 3 ? 100 : 1e-4);
    case GRID:
        return ((double)(next_random(g) % 2047) - 1023) / 1024;
    case SCATTERED:
        return next_random(g) % 40 == 0 ? next_gaussian(g) : 0;
    case PATCHED: {
        static const double scales[] = {1, 0x1p-100, 0x1p-66, 0x1p100, 0};
        const uint64_t kind = index / 512 % 6;
        if (kind < 5)
            return next_gaussian(g) * scales[kind];
        return index % 512 == 77 ? 0.7 : index % 512 == 400 ? 0.7 * 0x1p-13 : 0;
    }
    default:
        return 0;
    }
}

static uint16_t half_bits(double x, tg_dtype dtype)
{
    /* Through the command's own element type would test the library with itself; truncation is good enough for test
     * data. */
    float narrow = (float)x;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    if (dtype == TG_BFLOAT16)
        return (uint16_t)(bits >> 16);
    double magnitude = fabs(x) > 60000 ? 60000 : fabs(x);
    int exponent;
    double fraction = frexp(magnitude, &exponent); /* in [0.5, 1) */
    uint32_t half = 0;
    if (exponent > -14)
        half = (uint32_t)(exponent + 14) << 10 | ((uint32_t)(fraction * 2048) & 0x3ff);
    else
        half = (uint32_t)ldexp(magnitude, 24);
    return (uint16_t)(half | (bits >> 16 & 0x8000));
}

void fill(shape s, uint64_t seed, tg_tensor *t)
{
    generator g = {seed * 1000003 + (uint64_t)s};
    for (uint64_t i = 0; i < t->count; i++) {
        double x = value(s, &g, i);
        if (t->dtype == TG_FLOAT32)
            ((float *)t->data)[i] = (float)x;
        else
            ((uint16_t *)t->data)[i] = half_bits(x, t->dtype);
    }
}

static float wide(uint16_t half, tg_dtype dtype)
{
    if (dtype == TG_BFLOAT16) {
        uint32_t bits = (uint32_t)half << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    int exponent = half >> 10 & 31;
    double magnitude = exponent ? ldexp(1024 + (half & 0x3ff), exponent - 25) : ldexp(half & 0x3ff, -24);
    return (float)(half & 0x8000 ? -magnitude : magnitude);
}

float element(const tg_tensor *t, uint64_t i)
{
    return t->dtype == TG_FLOAT32 ? ((float *)t->data)[i] : wide(((uint16_t *)t->data)[i], t->dtype);
}

const float *widened(tg_dtype dtype)
{
    static float *tables[TG_BFLOAT16 + 1];
    if (!tables[dtype]) {
        tables[dtype] = malloc(65536 * sizeof(float));
        if (!tables[dtype])
            abort();
        for (uint32_t bits = 0; bits < 65536; bits++)
            tables[dtype][bits] = wide((uint16_t)bits, dtype);
    }
    return tables[dtype];
}

void cut(shape s, uint64_t seed, tg_tensor *t)
{
    static tg_tensor stock[ALL_SHAPES][TG_BFLOAT16 + 1];
    tg_tensor *from = &stock[s][t->dtype];
    if (from->count < t->count + t->count / 8 + 4096) {
        if (from->data)
            drop(from);
        *from = make_tensor(t->count + t->count / 4 + 8192, t->dtype, 0);
        fill(s, 1, from);
    }
    const size_t size = tg_dtype_size(t->dtype), start = (size_t)(seed * 7919 % (from->count - t->count));
    memcpy(t->data, (char *)from->data + start * size, (size_t)t->count * size);
}

enum { ROOM = 128 }; /* bytes before the data, so that a drop finds its block */

tg_tensor make_tensor(uint64_t count, tg_dtype dtype, size_t offset)
{
    size_t size = tg_dtype_size(dtype), lead = ROOM + offset * size;
    char *block = malloc(lead + (size_t)count * size + 1);
    if (!block)
        abort();
    tg_tensor t = {.data = block + lead, .count = count, .dtype = dtype};
    memcpy(block + lead - sizeof lead, &lead, sizeof lead);
    return t;
}

void drop(tg_tensor *t)
{
    size_t lead;
    memcpy(&lead, (char *)t->data - sizeof lead, sizeof lead);
    free((char *)t->data - lead);
}

bool same_report(const tg_encode_report *a, const tg_encode_report *b)
{
    return a->status == b->status && a->bytes == b->bytes && a->selected == b->selected &&
           a->saturated == b->saturated && a->dropped == b->dropped;
}

const uint64_t *lengths(bool all)
{
    static const uint64_t some[] = {0,   1,   2,   3,   15,  16,  17,   31,   32,   33,   63,   64,   65,        100,
                                    255, 256, 257, 511, 512, 513, 1000, 1023, 1024, 1025, 4097, 9001, UINT64_MAX};
    static const uint64_t large[] = {4095, 4096, 4097, 9001, 65535, 65536, 65537, 100003, 262147, 300007, 1000003};
    static uint64_t every[1026 + sizeof large / sizeof large[0] + 1];
    if (!all)
        return some;
    size_t n = 0;
    for (uint64_t length = 0; length <= 1025; length++)
        every[n++] = length;
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        every[n++] = large[i];
    every[n] = UINT64_MAX;
    return every;
}

tg_device *open_device(const char *name)
{
    tg_device *device;
    tg_error error;
    if (strncmp(name, "guarded:", 8) == 0)
        return open_guarded(name + 8, false);
    if (strncmp(name, "queued:", 7) == 0)
        return open_guarded(name + 7, true);
    if (tg_device_open(name, NULL, &device, &error) != TG_OK) {
        printf("FAIL cannot open %s: %s\n", name, error.message);
        exit(1);
    }
    return device;
}

static const char *given_device; /* by --device */

const char *named_device(void) { return given_device; }

const char *device_to_try(size_t index)
{
    if (given_device)
        return index == 0 ? given_device : NULL;
    const char *name = tg_device_list(index);
    return name && strncmp(name, "cpu", 3) == 0 ? name : NULL;
}

const char *any_device_to_try(size_t index)
{
    const char *name = device_to_try(index);
    return name || given_device || (index > 0 && !device_to_try(index - 1)) ? name : "queued:cpu";
}

tg_device **open_devices(void)
{
    size_t count = 0, next = 1;
    while (device_to_try(count))
        count++;
    tg_device **devices = calloc(count + 3, sizeof *devices);
    if (!devices)
        abort();
    devices[0] = open_device("cpu/scalar");
    for (size_t i = 0; i < count; i++)
        if (strcmp(device_to_try(i), "cpu/scalar") != 0)
            devices[next++] = open_device(device_to_try(i));
    if (!given_device)
        devices[next] = open_device("queued:cpu");
    return devices;
}

bool has_codec(tg_device *device, const char *text)
{
    tg_spec spec;
    tg_codec *codec = NULL;
    const bool has = tg_spec_parse(text, &spec, NULL) == TG_OK &&
                     tg_codec_create(device, &spec, 1, &codec, NULL) == TG_OK;
    tg_codec_free(codec);
    return has;
}

void skip_codec(const char *spec)
{
    char reason[TG_SPEC_TEXT + 40];
    (void)snprintf(reason, sizeof reason, "the device does not have %s", spec);
    skip(reason);
}

void close_devices(tg_device **devices)
{
    for (size_t i = 0; devices[i]; i++)
        tg_device_free(devices[i]);
    free(devices);
}

tg_codec *make_codec(tg_device *device, const char *text, uint64_t count)
{
    tg_spec spec;
    tg_codec *codec;
    tg_error error;
    if (tg_spec_parse(text, &spec, &error) != TG_OK || tg_codec_create(device, &spec, count, &codec, &error) != TG_OK) {
        printf("FAIL cannot make %s: %s\n", text, error.message);
        exit(1);
    }
    return codec;
}

/* Takes `--device NAME` off the end of the arguments. */
static int take_device(int argc, char **argv)
{
    if (argc < 3 || strcmp(argv[argc - 2], "--device") != 0)
        return argc;
    given_device = argv[argc - 1];
    tg_device *device = open_device(given_device);
    keep_specs_of(device);
    tg_device_free(device);
    return argc - 2;
}

bool wants_all(int argc, char **argv)
{
    unsigned part = 1, parts = 1;
    argc = take_device(argc, argv);
    if (argc > 2 && (sscanf(argv[2], "%u/%u", &part, &parts) != 2 || part < 1 || part > parts)) {
        fprintf(stderr, "usage: %s [--subset|--all [PART/PARTS]] [--device NAME]\n", argv[0]);
        exit(2);
    }
    share_specs(part, parts);
    return argc > 1 && strcmp(argv[1], "--all") == 0;
}
