/* Loops that do nothing but move memory; see bench_floors.h. They are written with vectors by hand so that no compiler
 * option slows them down: a slow ruler would flatter whatever is measured with it. x86 gets every loop twice: inside
 * the caches vectors of 32 bytes are up to twice as fast, past them those of 16 bytes may be. */
#include "bench_floors.h"

#include <stdbool.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

const char *const floor_names[FLOOR_COUNT] = {"read", "scale", "accumulate", "copy", "memcpy"};
const unsigned floor_bytes[FLOOR_COUNT] = {4, 8, 12, 8, 8};

/* Where sums go, so that the compiler must compute them. */
static volatile float sink;

typedef float narrow_vector __attribute__((vector_size(16), may_alias));
typedef float wide_vector __attribute__((vector_size(32), may_alias));

/* Eight accumulators hide the latency of the addition. The tail, shorter than one block, is done in single floats. */
#define DEFINE_LOOPS(NAME, TARGET, VECTOR)                                                         \
    TARGET static float read_##NAME(const float *x, size_t count)                                  \
    {                                                                                              \
        enum { WIDTH = sizeof(VECTOR) / sizeof(float) };                                           \
        const VECTOR *v = (const VECTOR *)x;                                                       \
        VECTOR a = {0}, b = {0}, c = {0}, d = {0}, e = {0}, f = {0}, g = {0}, h = {0};             \
        size_t blocks = count / (8 * WIDTH);                                                       \
        for (size_t i = 0; i < blocks; i++, v += 8) {                                              \
            a += v[0];                                                                             \
            b += v[1];                                                                             \
            c += v[2];                                                                             \
            d += v[3];                                                                             \
            e += v[4];                                                                             \
            f += v[5];                                                                             \
            g += v[6];                                                                             \
            h += v[7];                                                                             \
        }                                                                                          \
        a += b + c + d + e + f + g + h;                                                            \
        float sum = 0;                                                                             \
        for (size_t i = 0; i < WIDTH; i++)                                                         \
            sum += a[i];                                                                           \
        for (size_t i = blocks * 8 * WIDTH; i < count; i++)                                        \
            sum += x[i];                                                                           \
        return sum;                                                                                \
    }                                                                                              \
                                                                                                   \
    TARGET static void scale_##NAME(float *x, float factor, size_t count)                          \
    {                                                                                              \
        enum { WIDTH = sizeof(VECTOR) / sizeof(float) };                                           \
        VECTOR *v = (VECTOR *)x;                                                                   \
        VECTOR by = {0};                                                                           \
        for (size_t i = 0; i < WIDTH; i++)                                                         \
            by[i] = factor;                                                                        \
        size_t blocks = count / (4 * WIDTH);                                                       \
        for (size_t i = 0; i < blocks; i++, v += 4) {                                              \
            VECTOR a = v[0] * by, b = v[1] * by, c = v[2] * by, d = v[3] * by;                     \
            v[0] = a;                                                                              \
            v[1] = b;                                                                              \
            v[2] = c;                                                                              \
            v[3] = d;                                                                              \
        }                                                                                          \
        for (size_t i = blocks * 4 * WIDTH; i < count; i++)                                        \
            x[i] *= factor;                                                                        \
    }                                                                                              \
                                                                                                   \
    TARGET static void accumulate_##NAME(float *restrict x, const float *restrict y, size_t count) \
    {                                                                                              \
        enum { WIDTH = sizeof(VECTOR) / sizeof(float) };                                           \
        VECTOR *v = (VECTOR *)x;                                                                   \
        const VECTOR *w = (const VECTOR *)y;                                                       \
        size_t blocks = count / (4 * WIDTH);                                                       \
        for (size_t i = 0; i < blocks; i++, v += 4, w += 4) {                                      \
            VECTOR a = v[0] + w[0], b = v[1] + w[1], c = v[2] + w[2], d = v[3] + w[3];             \
            v[0] = a;                                                                              \
            v[1] = b;                                                                              \
            v[2] = c;                                                                              \
            v[3] = d;                                                                              \
        }                                                                                          \
        for (size_t i = blocks * 4 * WIDTH; i < count; i++)                                        \
            x[i] += y[i];                                                                          \
    }

DEFINE_LOOPS(narrow, , narrow_vector)
#if defined(__x86_64__)
DEFINE_LOOPS(wide, __attribute__((target("avx2"))), wide_vector)
#define PICK(way, call_narrow, call_wide) ((way) == 0 ? call_narrow : call_wide)
#define HAS_WIDE __builtin_cpu_supports("avx2")
#else
#define PICK(way, call_narrow, call_wide) ((void)(way), call_narrow)
#define HAS_WIDE 0
#endif

static void copy_past_caches(float *restrict to, const float *restrict from, size_t count)
{
    size_t done = 0;
#ifdef __SSE2__
    for (; done + 16 <= count; done += 16) {
        const __m128i *in = (const __m128i *)(const void *)(from + done);
        __m128i *out = (__m128i *)(void *)(to + done);
        __m128i a = _mm_load_si128(in), b = _mm_load_si128(in + 1);
        __m128i c = _mm_load_si128(in + 2), d = _mm_load_si128(in + 3);
        _mm_stream_si128(out, a);
        _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c);
        _mm_stream_si128(out + 3, d);
    }
    _mm_sfence();
#endif
    for (; done < count; done++)
        to[done] = from[done];
}

unsigned floor_ways(enum floor_kind kind)
{
    bool is_loop = kind == FLOOR_READ || kind == FLOOR_SCALE || kind == FLOOR_ACCUMULATE;
    return is_loop && HAS_WIDE ? 2 : 1;
}

/* One floor's work, for all members. */
struct floor_work {
    struct floor_vectors vectors;
    enum floor_kind kind;
    unsigned way;
    float factor;
};

static void run_share(void *of, unsigned member, unsigned members)
{
    enum { LINE = 16 }; /* floats: shares start on whole lines of the cache */
    const struct floor_work *work = of;
    const struct floor_vectors *all = &work->vectors;
    size_t share = (all->count / members + LINE - 1) / LINE * LINE, first = share * member;
    if (first >= all->count)
        return;
    const float *gradient = all->gradient + first;
    float *sum = all->sum + first, *copy = all->copy + first;
    size_t count = member + 1 == members || all->count - first < share ? all->count - first : share;
    switch (work->kind) {
    case FLOOR_READ:
        sink = PICK(work->way, read_narrow(gradient, count), read_wide(gradient, count));
        break;
    case FLOOR_SCALE:
        PICK(work->way, scale_narrow(sum, work->factor, count), scale_wide(sum, work->factor, count));
        break;
    case FLOOR_ACCUMULATE:
        PICK(work->way, accumulate_narrow(sum, gradient, count), accumulate_wide(sum, gradient, count));
        break;
    case FLOOR_COPY:
        copy_past_caches(copy, gradient, count);
        break;
    case FLOOR_MEMCPY:
        memcpy(copy, gradient, count * sizeof(float));
        break;
    case FLOOR_COUNT:
        break;
    }
    sink = copy[0];
}

void floor_run(const struct floor_vectors *vectors, enum floor_kind kind, unsigned way, struct team *team)
{
    /* Doubling and halving alternately: the values stay as they are, neither overflowing nor becoming subnormal. */
    static float factor = 2.0f;
    struct floor_work work = {*vectors, kind, way, factor};
    team_run(team, run_share, &work);
    if (kind == FLOOR_SCALE)
        factor = 1.0f / factor;
}
