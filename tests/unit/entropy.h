/* What the tests of entropy coded streams and of their tables share. After cmocka.h. */
#ifndef TG_TESTS_UNIT_ENTROPY_H
#define TG_TESTS_UNIT_ENTROPY_H

#include <math.h>

#include "code/entropy.h"
#include "draws.h"

/* ---- Digits to code ---------------------------------------------------------------------------------------------- */

enum { LAPLACE, GAUSS, SPIKE, GEOMETRIC };

/* Relative probability of level q of -s .. s. For LAPLACE and GAUSS `width` is in units of s, else it is p(q != 0). */
static inline double weight(int shape, double width, int q, int s)
{
    const double size = q < 0 ? -q : q;
    switch (shape) {
    case LAPLACE:
        return exp(-size / (width * s));
    case GAUSS:
        return exp(-0.5 * (size / (width * s)) * (size / (width * s)));
    case SPIKE:
        return q == 0 ? 1 - width : size <= 1 ? width / 2 : 0;
    default:
        return q == 0 ? 1 - width : width * pow(0.5, size + 1);
    }
}

static inline void draw_digits(uint8_t *digits, size_t n, unsigned alphabet, int shape, double width, uint64_t *seed)
{
    double upto[256], sum = 0;
    uint8_t hint[4097];
    const int s = (int)alphabet / 2;
    for (unsigned a = 0; a < alphabet; a++)
        upto[a] = sum += weight(shape, width, (int)a - s, s);
    for (unsigned i = 0, a = 0; i <= 4096; i++) {
        while (a + 1 < alphabet && upto[a] / sum * 4096 < i)
            a++;
        hint[i] = (uint8_t)(a > 0 ? a - 1 : 0);
    }
    for (size_t i = 0; i < n; i++) {
        const double u = draw_unit(seed);
        unsigned a = hint[(unsigned)(u * 4096)];
        while (a + 1 < alphabet && upto[a] <= u * sum)
            a++;
        digits[i] = (uint8_t)a;
    }
}

/* ---- Plans, and streams as a decoder sees them ---------------------------------------------------------------------
 */

/* A plan as a decoder makes it: from the wire fields and the table's bytes. */
static inline bool read_plan(tg_entropy_plan *plan, const tg_entropy_plan *wire, const uint8_t *table, size_t size)
{
    *plan = (tg_entropy_plan){
        .table_log = wire->table_log,
        .tuple = wire->tuple,
        .mirrored = wire->mirrored,
        .grouped = wire->grouped,
        .lane_log = wire->lane_log,
        .chunk_log = wire->chunk_log,
        .alphabet = wire->alphabet,
        .zero_digit = wire->zero_digit,
    };
    uint8_t *copy = exact_copy(table, size);
    bool sound = tg_entropy_table_read(plan, copy, size);
    free(copy);
    return sound;
}

static inline void assert_plan_is_sound(const tg_entropy_plan *plan)
{
    uint32_t sum = 0;
    for (unsigned s = 0; s < plan->symbols; s++) {
        assert_int_equal(plan->start[s], sum);
        sum += plan->frequency[s];
    }
    assert_int_equal(sum, 1u << plan->table_log);
    uint8_t table[TG_ENTROPY_TABLE_MAX];
    const size_t size = tg_entropy_table_size(plan);
    assert_in_range(size, 1, TG_ENTROPY_TABLE_MAX);
    assert_ptr_equal(tg_entropy_table_write(plan, table), table + size);
    tg_entropy_plan back;
    assert_true(read_plan(&back, plan, table, size));
    assert_int_equal(back.symbols, plan->symbols);
    assert_memory_equal(back.frequency, plan->frequency, sizeof back.frequency);
    assert_memory_equal(back.start, plan->start, sizeof back.start);
    assert_memory_equal(back.guess, plan->guess, sizeof back.guess);
}

/* A plan that an encoder would not choose for a short vector: any shape, with every symbol possible, some rare. */
static inline tg_entropy_plan any_plan(unsigned table_log, unsigned tuple, unsigned lane_log, unsigned alphabet,
                                       uint64_t *seed)
{
    tg_entropy_plan wire = {.table_log = table_log,
                            .tuple = tuple,
                            .lane_log = lane_log,
                            .chunk_log = 16,
                            .alphabet = alphabet,
                            .zero_digit = alphabet / 2};
    wire.symbols = tuple == 2 ? alphabet * alphabet : alphabet;
    uint32_t left = (1u << table_log) - wire.symbols;
    for (unsigned s = 0; s < wire.symbols; s++) {
        const uint32_t extra = (uint32_t)draw_below(seed, left / 8 + 1);
        wire.frequency[s] = 1 + extra;
        left -= extra;
    }
    wire.frequency[draw_below(seed, wire.symbols)] += left;
    uint8_t table[TG_ENTROPY_TABLE_MAX];
    const size_t size = (size_t)(tg_entropy_table_write(&wire, table) - table);
    tg_entropy_plan plan;
    assert_true(read_plan(&plan, &wire, table, size));
    assert_plan_is_sound(&plan);
    return plan;
}

/* Whether the bytes are a chunk of n digits. If so, no other bytes are: coding what was decoded gives them again. (But
 * for pairs that complete a short run, whose second halves are not part of the digits.) */
static inline bool accepts(const tg_entropy_plan *plan, const uint8_t *bytes, size_t size, size_t n, size_t piece)
{
    uint8_t digits[1024], again[4096];
    uint8_t *copy = exact_copy(bytes, size);
    tg_entropy_reader reader;
    bool sound = tg_entropy_open(&reader, plan, copy, size, 0, n);
    if (!sound)
        assert_false(tg_entropy_next(&reader, n, digits, NULL));
    for (size_t done = 0; sound && done < n;) {
        const size_t step = n - done < piece ? n - done : piece;
        sound = tg_entropy_next(&reader, step, digits + done, NULL);
        for (size_t i = done; sound && i < done + step; i++)
            assert_in_range(digits[i], 0, plan->alphabet - 1);
        done += step;
    }
    assert_true(sound || !tg_entropy_done(&reader));
    sound = sound && tg_entropy_done(&reader);
    if (sound && (plan->tuple == 1 || n % 32 == 0)) {
        assert_ptr_equal(tg_entropy_write(plan, digits, n, again, sizeof again, NULL), again + size);
        assert_memory_equal(again, bytes, size);
    }
    free(copy);
    return sound;
}

#endif
