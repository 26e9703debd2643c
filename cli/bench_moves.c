/* Loops that move memory as encoders and decoders do; see bench_moves.h. Vector by hand, as those of bench_floors.c
 * are, and frames a line at a time between the elements: a processor fetches ahead what it meets regularly. */
#include "bench_moves.h"

#include <string.h>

enum { STEP = 128, LINE = 64 }; /* elements, and bytes */

/* A member's share: elements from `first` on, and of every frame the bytes from `byte` on. */
struct share {
    const struct moves *moves;
    size_t first, count, byte, bytes;
    float factor;
};

static volatile uint64_t sink;

typedef float narrow_vector __attribute__((vector_size(16), may_alias));
typedef float wide_vector __attribute__((vector_size(32), may_alias));

/* The lines of frames that go with the elements before `end`: an upper half counts whole bytes, a lower half parts of
 * one. */
static inline __attribute__((always_inline)) void move_lines(const struct share *s, uint64_t *at, uint64_t end,
                                                             uint64_t *seen)
{
    for (; *at + LINE <= end >> 32; *at += LINE) {
        if (s->moves->written)
            memset(s->moves->written + s->byte + *at, 0x5a, LINE);
        for (size_t i = 0; i < s->moves->read_count; i++) {
            uint64_t word;
            memcpy(&word, s->moves->read[i] + s->byte + *at, sizeof word);
            *seen ^= word;
        }
    }
}

#define DEFINE_MOVES(NAME, TARGET, VECTOR)                                                          \
    TARGET static void move_##NAME(const struct share *s)                                           \
    {                                                                                               \
        enum { WIDTH = sizeof(VECTOR) / sizeof(float), VECTORS = STEP / WIDTH };                    \
        const enum floor_kind kind = s->moves->kind;                                                \
        const VECTOR *gradient = (const VECTOR *)(s->moves->gradient + s->first);                   \
        VECTOR *sum = (VECTOR *)(s->moves->sum + s->first), read[4] = {{0}};                        \
        const uint64_t each = s->count < STEP ? 0 : ((uint64_t)s->bytes << 32) / (s->count / STEP); \
        uint64_t at = 0, end = 0, seen = 0;                                                         \
        for (size_t i = 0; i + STEP <= s->count; i += STEP, gradient += VECTORS, sum += VECTORS) {  \
            if (kind == FLOOR_READ)                                                                 \
                for (int v = 0; v < VECTORS; v++)                                                   \
                    read[v % 4] += gradient[v];                                                     \
            else if (kind == FLOOR_ACCUMULATE)                                                      \
                for (int v = 0; v < VECTORS; v++)                                                   \
                    sum[v] += gradient[v];                                                          \
            else                                                                                    \
                for (int v = 0; v < VECTORS; v++)                                                   \
                    sum[v] *= s->factor;                                                            \
            move_lines(s, &at, end += each, &seen);                                                 \
        }                                                                                           \
        sink = seen + ((read[0] + read[1] + read[2] + read[3])[0] > 0);                             \
    }

DEFINE_MOVES(narrow, , narrow_vector)
#if defined(__x86_64__)
DEFINE_MOVES(wide, __attribute__((target("avx2"))), wide_vector)
#else
#define move_wide move_narrow
#endif

struct work {
    const struct moves *moves;
    unsigned way;
    float factor;
};

static void run_share(void *of, unsigned member, unsigned members)
{
    const struct work *work = of;
    const struct moves *moves = work->moves;
    const size_t each = moves->count / members / STEP * STEP, bytes = moves->frame_size / members / LINE * LINE;
    const int is_last = member + 1 == members;
    const struct share share = {moves,
                                each * member,
                                is_last ? moves->count - each * member : each,
                                bytes * member,
                                is_last ? moves->frame_size - bytes * member : bytes,
                                work->factor};
    work->way == 0 ? move_narrow(&share) : move_wide(&share);
}

void moves_run(const struct moves *moves, unsigned way, struct team *team)
{
    static float factor = 2.0f; /* alternating, as in bench_floors.c */
    struct work work = {moves, way, factor};
    team_run(team, run_share, &work);
    if (moves->kind == FLOOR_SCALE)
        factor = 1.0f / factor;
}
