/* The engines that code gaps of indices, of every table that has one, against the coder's own loops: the same gaps,
 * costs and bytes, nothing written where nothing may be, and of any stream the same positions or, where it is refused,
 * the same refusal. */
#include <stdlib.h>
#include <string.h>

#include "code/rice.h"
#include "kernels/kernels.h"
#include "support.h"

enum { MOST_BYTES = 1 << 16, GUARD = 64, SPILL = 8 };

/* Increasing indices, with gaps that are alike or anything but. */
static uint32_t draw_indices(generator *g, uint32_t *indices)
{
    const uint64_t kind = next_random(g) % 6;
    const unsigned width = (unsigned)(next_random(g) % 22);
    const uint32_t before = next_random(g) % 2 ? UINT32_MAX : (uint32_t)(next_random(g) % 1000);
    uint32_t at = before;
    for (size_t i = 0; i < TG_RICE_BLOCK; i++) {
        uint32_t gap = (uint32_t)next_random(g) & ((UINT32_C(1) << width) - 1);
        if (kind == 0 && next_random(g) % 50 > 0) /* a few long ones among short ones: quotients of more than a word */
            gap &= 7;
        if (kind == 1)
            gap = next_random(g) % 2 ? 0 : gap >> next_random(g) % 22;
        if (kind == 2)
            gap = i == 77 ? UINT32_C(1) << (width + 7) : 0;
        at += gap + 1;
        indices[i] = at;
    }
    return before;
}

typedef struct written {
    uint8_t low[MOST_BYTES + GUARD], quotients[MOST_BYTES + GUARD];
    tg_bit_writer end;
    size_t low_size;
} written;

static void write(written *w, const tg_gaps_engine *engine, const uint32_t *gaps, unsigned parameter, unsigned pending)
{
    memset(w->low, 0x5a, sizeof w->low);
    memset(w->quotients, 0x5a, sizeof w->quotients);
    w->end = tg_bit_writer_at(w->quotients);
    tg_bits_put(&w->end, (1u << pending) - 1, pending);
    w->low_size = (size_t)(tg_rice_write(engine, gaps, TG_RICE_BLOCK, parameter, w->low, &w->end) - w->low);
}

/* Writes one more quotient of 0 and pads; returns the number of bytes. */
static size_t end_of(written *w)
{
    tg_bits_put(&w->end, 1, 1);
    return (size_t)(tg_bits_finish(&w->end) - w->quotients);
}

typedef struct outcome {
    bool sound;
    tg_bit_reader quotients;
    uint64_t following;
    uint32_t positions[TG_RICE_BLOCK];
} outcome;

static void read(outcome *o, const tg_gaps_engine *engine, const uint8_t *low, unsigned parameter,
                 const uint8_t *quotients, size_t size, unsigned skipped, uint32_t length, uint64_t following)
{
    *o = (outcome){.quotients = tg_bit_reader_at(quotients, size), .following = following};
    o->quotients.position = skipped;
    o->sound = tg_rice_read(engine, low, TG_RICE_BLOCK, parameter, &o->quotients, length, &o->following, o->positions);
}

/* From copies of exactly as many bytes as there are, so that a sanitizer sees one that is read behind them. */
static void both_read(const tg_gaps_engine *engine, const uint8_t *low, size_t low_size, unsigned parameter,
                      const uint8_t *quotients, size_t size, unsigned skipped, uint32_t length, uint64_t following,
                      const uint32_t *expected)
{
    static outcome fast, plain;
    uint8_t *low_copy = malloc(low_size + 1), *copy = malloc(size + 1); /* malloc(0) may fail */
    memcpy(low_copy, low, low_size);
    memcpy(copy, quotients, size);
    read(&fast, engine, low_copy, parameter, copy, size, skipped, length, following);
    read(&plain, NULL, low_copy, parameter, copy, size, skipped, length, following);
    expect(fast.sound == plain.sound, "%s, but not without an engine", fast.sound ? "sound" : "refused");
    if (plain.sound)
        expect(fast.quotients.position == plain.quotients.position && fast.following == plain.following &&
                   memcmp(fast.positions, plain.positions, sizeof fast.positions) == 0,
               "positions with parameter %u differ", parameter);
    if (expected)
        expect(plain.sound && memcmp(plain.positions, expected, sizeof plain.positions) == 0,
               "other positions than were written");
    free(low_copy);
    free(copy);
}

static void one_case(const tg_gaps_engine *engine, generator *g)
{
    static written fast, plain;
    uint32_t indices[TG_RICE_BLOCK], gaps[TG_RICE_BLOCK], plain_gaps[TG_RICE_BLOCK];
    const uint32_t before = draw_indices(g, indices);
    const tg_gaps_costs costs = tg_gaps_weigh(engine, indices, TG_RICE_BLOCK, before, gaps);
    const tg_gaps_costs plain_costs = tg_gaps_weigh(NULL, indices, TG_RICE_BLOCK, before, plain_gaps);
    expect(memcmp(gaps, plain_gaps, sizeof gaps) == 0, "gaps differ");
    expect(costs.parameter == plain_costs.parameter && costs.quotient_bits == plain_costs.quotient_bits &&
               costs.omega_least == plain_costs.omega_least,
           "parameter %u, %llu bits of quotients, %llu for Elias", costs.parameter,
           (unsigned long long)costs.quotient_bits, (unsigned long long)costs.omega_least);

    /* The best parameter, and others, as far as the quotients have room. */
    const unsigned pending = (unsigned)(next_random(g) % 8);
    unsigned parameter = plain_costs.parameter + (unsigned)(next_random(g) % 3);
    parameter = parameter < TG_RICE_PARAMETER_MAX ? parameter : TG_RICE_PARAMETER_MAX;
    write(&fast, engine, gaps, parameter, pending);
    write(&plain, NULL, gaps, parameter, pending);
    expect(fast.low_size == plain.low_size && memcmp(fast.low, plain.low, sizeof fast.low) == 0,
           "low bits, parameter %u", parameter);
    expect(fast.end.out - fast.quotients == plain.end.out - plain.quotients && fast.end.pending == plain.end.pending &&
               fast.end.pending_count == plain.end.pending_count,
           "the end of the quotients");
    const size_t behind = (size_t)(plain.end.out - plain.quotients) + SPILL;
    expect(memcmp(fast.quotients + behind, plain.quotients + behind, sizeof fast.quotients - behind) == 0,
           "written too far");
    const size_t size = end_of(&plain);
    expect(end_of(&fast) == size && memcmp(fast.quotients, plain.quotients, size) == 0, "quotients, parameter %u",
           parameter);

    /* Back, with and without more behind them; with an end that leaves some out; and damaged. */
    const uint32_t length = indices[TG_RICE_BLOCK - 1] + 1;
    const uint64_t following = (uint32_t)(before + 1);
    const uint32_t *expected = (uint64_t)length + 7 < UINT32_C(1) << 30 ? indices : NULL;
    both_read(engine, plain.low, plain.low_size, parameter, plain.quotients, size, pending, length, following,
              expected);
    both_read(engine, plain.low, plain.low_size, parameter, plain.quotients, size + 9, pending, length + 7, following,
              expected);
    both_read(engine, plain.low, plain.low_size, parameter, plain.quotients, size, pending, length - 1, following,
              NULL);
    both_read(engine, plain.low, plain.low_size, parameter, plain.quotients, next_random(g) % (size + 1), 0, length,
              following, NULL);
    for (int i = 0; i < 4; i++) {
        plain.quotients[next_random(g) % size] ^= (uint8_t)next_random(g);
        plain.low[next_random(g) % (plain.low_size + 1)] ^= (uint8_t)next_random(g);
        both_read(engine, plain.low, plain.low_size, parameter, plain.quotients, size, pending, length, following,
                  NULL);
    }
    const uint8_t none[512] = {0};
    both_read(engine, plain.low, plain.low_size, parameter, none, sizeof none, pending, length, following, NULL);
}

int main(int argc, char **argv)
{
    const size_t cases = wants_all(argc, argv) ? 100000 : 3000;
    bool any = false;
    for (size_t t = 0; tg_kernels_at(t); t++) {
        const tg_kernels *k = tg_kernels_at(t);
        generator g = {1};
        any |= k->gaps != NULL;
        for (size_t i = 0; k->gaps && i < cases; i++) {
            one_case(k->gaps, &g);
            check_all("%s: case %zu", k->name, i);
        }
    }
    if (!any)
        skip("this machine's kernels code no gaps");
    return finish();
}
