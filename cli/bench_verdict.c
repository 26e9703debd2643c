/* What the figures mean for a choice: how small, how fast, and on which links it saves time. */
#include "bench.h"

#include <math.h>
#include <stdio.h>

double bench_speed(const struct bench *bench, double ms) { return 4 * (double)bench->count / ms * 1e-6; }

double bench_break_even(const struct bench *bench, const struct bench_row *row)
{
    double saved_bits = 8 * (4 * (double)bench->count - (double)row->measurement.bytes);
    return saved_bits / (row->encode_ms + row->add_ms) * 1e-6;
}

/* The smallest frame whose error is within the limit; NULL if none is. */
static const struct bench_row *smallest_within(const struct bench_row *rows, size_t row_count, double limit)
{
    const struct bench_row *best = NULL;
    for (size_t i = 0; i < row_count; i++) {
        if (rows[i].refusal[0] || !(rows[i].measurement.relative_error <= limit))
            continue;
        if (!best || rows[i].measurement.bytes < best->measurement.bytes)
            best = &rows[i];
    }
    return best;
}

static void describe(const struct bench *bench, const struct bench_row *row, const char *what, char text[VERDICT_TEXT])
{
    const struct measurement *measured = &row->measurement;
    const double break_even = bench_break_even(bench, row);
    int used = snprintf(
        text, VERDICT_TEXT,
        "%s: %s, %.3g bits per element (%.3g times smaller than float32), squared error %.2g %%. It encodes "
        "%.1f and adds %.1f GB/s of gradient",
        what, row->spec->label, measured->bits_per_element, 32 / measured->bits_per_element,
        100 * measured->relative_error, bench_speed(bench, row->encode_ms), bench_speed(bench, row->add_ms));
    if (break_even > 0)
        snprintf(text + used, VERDICT_TEXT - (size_t)used,
                 ": it saves time where a rank sends at less than %.3g Gbit/s.", break_even);
    else
        snprintf(text + used, VERDICT_TEXT - (size_t)used, ". It saves no bytes.");
}

size_t bench_verdict(const struct bench *bench, const struct bench_row *rows, size_t row_count,
                     char verdict[VERDICT_MAX][VERDICT_TEXT])
{
    static const struct {
        double limit;
        const char *what;
    } questions[VERDICT_MAX] = {{0.01, "Smallest with a squared error of at most 1 %"},
                                {0.1, "Smallest with a squared error of at most 10 %"},
                                {INFINITY, "Smallest of all"}};
    const struct bench_row *before = NULL;
    size_t count = 0;
    for (size_t i = 0; i < VERDICT_MAX; i++) {
        const struct bench_row *row = smallest_within(rows, row_count, questions[i].limit);
        if (row && row != before)
            describe(bench, row, questions[i].what, verdict[count++]);
        before = row;
    }
    return count;
}
