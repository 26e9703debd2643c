/* Charts as SVG inside an HTML page. The page has the colours: series i has the class "c" i modulo CHART_COLOURS, and
 * of those that share a colour each a dash pattern, "d" i / CHART_COLOURS; stages have "t" i. */
#ifndef CLI_CHART_H
#define CLI_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CHART_COLOURS 8
#define CHART_DASHES 8
#define CHART_MOST_SERIES 64

struct chart_series {
    const char *label;
    const double *x, *y;
    size_t count;  /* points that are not finite are left out */
    bool diverged; /* then they, and those far above the others, are drawn as a cross at the top */
};

struct chart_lines {
    const char *title, *summary; /* a sentence that stands below it */
    const char *x_label, *y_label;
    bool log_x, log_y, x_is_bytes;
    bool free_y; /* the axis need not begin at 0 */
    const struct chart_series *series;
    size_t series_count;
};
void chart_draw_lines(FILE *out, const struct chart_lines *chart);

/* A short piece of the line of a series, for tables and legends. */
void chart_put_key(FILE *out, size_t series);

/* Horizontal bars, one for each row, each made of parts side by side. */
struct chart_bars {
    const char *title, *summary, *unit; /* "ms a step" */
    const char *const *rows;
    size_t row_count;
    const char *const *parts;
    size_t part_count;
    const double *values; /* row by row */
};
void chart_draw_bars(FILE *out, const struct chart_bars *chart);

/* Two outlines over bins of equal width on a logarithmic axis, each with a mark or none. */
struct chart_outline {
    const double *shares; /* of each bin */
    double mark;          /* a magnitude; not finite: none */
};
struct chart_histogram {
    const char *title, *summary, *x_label;
    double first_edge, bins_a_decade; /* log10 of the lower edge of bin 0 */
    size_t bin_count;
    struct chart_outline early, late; /* early.shares may be NULL */
    unsigned colour;
};
void chart_draw_histogram(FILE *out, const struct chart_histogram *chart);

/* Which of some series is best over a field of two logarithmic axes: a cell for each pair of values. */
struct chart_regions {
    const char *title, *summary, *x_label, *y_label;
    const double *x, *y;     /* in the middle of the cells by their logarithms, rising */
    size_t x_count, y_count; /* at least 2 */
    const size_t *best;      /* row by row from the lowest y: a series */
    const char *const *labels;
    size_t series_count;
};
void chart_draw_regions(FILE *out, const struct chart_regions *chart);

/* Text with what HTML needs escaped. */
void put_html(FILE *out, const char *text);

#endif
