/* See chart.h. A chart is 420 units wide, so that its text can be read on a telephone and does not shout on a desk. */
#include "chart.h"

#include "chart_axes.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 420, HEIGHT = 290, LEFT = 58, TOP = 14, BOTTOM = 248, MOST_TICKS = 8 };

void put_html(FILE *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
        }
    }
}

static void open_chart(FILE *out, const char *title, const char *summary, int height)
{
    fputs("<figure>\n<figcaption>", out);
    put_html(out, title);
    fprintf(out, "</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, height);
    put_html(out, title);
    fputs(". ", out);
    put_html(out, summary);
    fputs("\">\n", out);
}

static void close_chart(FILE *out, const char *summary)
{
    fputs("</svg>\n<p class=\"note\">", out);
    put_html(out, summary);
    fputs("</p>\n</figure>\n", out);
}

static void put_text(FILE *out, double x, double y, const char *classes, const char *text)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, classes);
    put_html(out, text);
    fputs("</text>\n", out);
}

/* The grid, the numbers and the names of both axes. */
static void draw_axes(FILE *out, const struct axis *x, const struct axis *y, const char *x_label, const char *y_label)
{
    double ticks[MOST_TICKS];
    char text[TICK_TEXT];
    size_t count = y ? axis_ticks(y, MOST_TICKS, ticks) : 0;
    for (size_t i = 0; i < count; i++) {
        double at = axis_place(y, ticks[i]);
        fprintf(out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", x->start, x->end, at,
                at);
        put_text(out, LEFT - 6, at + 4, "tick end", tick_text(y, ticks[i], text));
    }
    count = axis_ticks(x, x->is_bytes || x->is_log ? 5 : 6, ticks);
    for (size_t i = 0; i < count; i++) {
        double at = axis_place(x, ticks[i]);
        fprintf(out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n", at, at, BOTTOM,
                BOTTOM + 4);
        tick_text(x, ticks[i], text);
        bool is_at_edge = at + 3.8 * (double)strlen(text) > WIDTH;
        put_text(out, is_at_edge ? WIDTH - 2 : at, BOTTOM + 18, is_at_edge ? "tick end" : "tick middle", text);
    }
    fprintf(out, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n", x->start, x->end, BOTTOM,
            BOTTOM);
    put_text(out, (x->start + x->end) / 2, BOTTOM + 36, "name middle", x_label);
    if (y_label)
        fprintf(out, "<text class=\"name middle\" transform=\"translate(11 %d) rotate(-90)\">%s</text>\n",
                (TOP + BOTTOM) / 2, y_label);
}

/* ---- lines ---- */

static void put_classes(FILE *out, const char *first, size_t series)
{
    fprintf(out, "class=\"%s c%zu d%zu\"", first, series % CHART_COLOURS, series / CHART_COLOURS % CHART_DASHES);
}

void chart_put_key(FILE *out, size_t series)
{
    fputs("<svg class=\"key\" viewBox=\"0 0 30 8\" aria-hidden=\"true\"><line ", out);
    put_classes(out, "line", series);
    fputs(" stroke-width=\"3\" x1=\"1\" x2=\"29\" y1=\"4\" y2=\"4\"/></svg>", out);
}

static void put_legend(FILE *out, const struct chart_lines *chart)
{
    fputs("</svg>\n<ul class=\"legend\">", out);
    for (size_t s = 0; s < chart->series_count; s++) {
        fputs("<li>", out);
        chart_put_key(out, s);
        put_html(out, chart->series[s].label);
        fputs(chart->series[s].diverged ? " (diverged)</li>" : "</li>", out);
    }
    fputs("</ul>\n<p class=\"note\">", out);
    put_html(out, chart->summary);
    fputs("</p>\n</figure>\n", out);
}

static bool is_shown(const struct chart_lines *chart, double x, double y)
{
    return isfinite(x) && isfinite(y) && (!chart->log_x || x > 0) && (!chart->log_y || y > 0);
}

static void widen(double value, double *low, double *high)
{
    *low = value < *low ? value : *low;
    *high = value > *high ? value : *high;
}

struct ranges {
    double x_low, x_high, y_low, y_high;
};

/* One run that diverges must not flatten the others: of such a one, values count up to a hundred times the first. */
static struct ranges find_ranges(const struct chart_lines *chart)
{
    struct ranges found = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (size_t s = 0; s < chart->series_count; s++) {
        const struct chart_series *series = &chart->series[s];
        double first = 0;
        for (size_t i = 0; i < series->count; i++) {
            if (!is_shown(chart, series->x[i], series->y[i]))
                continue;
            first = first > 0 ? first : series->y[i];
            widen(series->x[i], &found.x_low, &found.x_high);
            if (!series->diverged || series->y[i] <= 100 * first)
                widen(series->y[i], &found.y_low, &found.y_high);
        }
    }
    return found;
}

/* What shows when the pointer rests on a point. */
static void put_point(FILE *out, const struct chart_lines *chart, const struct chart_series *series, size_t i,
                      double at_x, double at_y, const struct axis *x)
{
    char text[TICK_TEXT];
    fprintf(out, "<circle class=\"hover\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\"><title>", at_x, at_y);
    put_html(out, series->label);
    fprintf(out, "\n%s %s\n%s %.6g</title></circle>\n", chart->x_label, tick_text(x, series->x[i], text),
            chart->y_label, series->y[i]);
}

static void draw_cross(FILE *out, size_t series, double x, double y)
{
    fputs("<path ", out);
    put_classes(out, "cross", series);
    fprintf(out, " d=\"M%.1f %.1fl8 8m0 -8l-8 8\"/>\n", x - 4, y - 4);
}

/* Earlier lines are wider: where several coincide, all of them show. */
static double line_width(size_t series, size_t count)
{
    return count < 2 ? 2 : 1.6 + 3.6 * (double)(count - 1 - series) / (double)(count - 1);
}

static void draw_line(FILE *out, const struct chart_lines *chart, size_t s, const struct axis *x, const struct axis *y)
{
    const struct chart_series *series = &chart->series[s];
    double cross_x = NAN;
    fputs("<polyline ", out);
    put_classes(out, "line", s);
    fprintf(out, " stroke-width=\"%.1f\" points=\"", line_width(s, chart->series_count));
    for (size_t i = 0; i < series->count; i++) {
        const bool is_inside = is_shown(chart, series->x[i], series->y[i]);
        if (!is_inside && (!series->diverged || !is_shown(chart, series->x[i], 1)))
            continue;
        double at_x = axis_place(x, series->x[i]), at_y = is_inside ? axis_place(y, series->y[i]) : TOP;
        if (series->diverged && at_y <= TOP) { /* the rest is out of the picture */
            fprintf(out, "%.1f,%d ", at_x, TOP);
            cross_x = at_x;
            break;
        }
        fprintf(out, "%.1f,%.1f ", at_x, at_y);
    }
    fputs("\"/>\n", out);
    if (isfinite(cross_x))
        draw_cross(out, s, cross_x, TOP);
    for (size_t i = 0; i < series->count; i++) {
        if (!is_shown(chart, series->x[i], series->y[i]))
            continue;
        double at_y = axis_place(y, series->y[i]);
        put_point(out, chart, series, i, axis_place(x, series->x[i]), at_y < TOP ? TOP : at_y, x);
    }
}

void chart_draw_lines(FILE *out, const struct chart_lines *chart)
{
    const struct ranges found = find_ranges(chart);
    open_chart(out, chart->title, chart->summary, HEIGHT);
    if (!(found.x_high >= found.x_low) || !(found.y_high >= found.y_low)) {
        put_text(out, WIDTH / 2.0, HEIGHT / 2.0, "name middle", "nothing to show");
        put_legend(out, chart);
        return;
    }
    struct axis x = axis_over(found.x_low, found.x_high, chart->log_x, LEFT, WIDTH - 14);
    struct axis y = axis_over(chart->log_y      ? found.y_low
                              : chart->free_y   ? found.y_low
                              : found.y_low < 0 ? found.y_low
                                                : 0,
                              found.y_high, chart->log_y, BOTTOM, TOP);
    x.is_bytes = chart->x_is_bytes;
    draw_axes(out, &x, &y, chart->x_label, chart->y_label);
    for (size_t s = 0; s < chart->series_count && s < CHART_MOST_SERIES; s++)
        draw_line(out, chart, s, &x, &y);
    put_legend(out, chart);
}

/* ---- bars ---- */

void chart_draw_bars(FILE *out, const struct chart_bars *chart)
{
    enum { ROW = 44, LEGEND = 22 };
    double most = 0;
    for (size_t row = 0; row < chart->row_count; row++) {
        double sum = 0;
        for (size_t part = 0; part < chart->part_count; part++)
            sum += chart->values[row * chart->part_count + part];
        most = sum > most ? sum : most;
    }
    const int height = ROW * (int)chart->row_count + 2 * LEGEND + 10;
    open_chart(out, chart->title, chart->summary, height);
    for (size_t row = 0; row < chart->row_count; row++) {
        double x = 4, sum = 0, y = (double)row * ROW;
        const double scale = most > 0 ? (WIDTH - 130) / most : 0;
        put_text(out, 4, y + 14, "label plain", chart->rows[row]);
        for (size_t part = 0; part < chart->part_count; part++) {
            double value = chart->values[row * chart->part_count + part], width = value * scale;
            sum += value;
            fprintf(out, "<rect class=\"t%zu\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"16\"><title>", part, x,
                    y + 20, width);
            put_html(out, chart->parts[part]);
            fprintf(out, ": %.3g %s</title></rect>\n", value, chart->unit);
            x += width;
        }
        char text[64];
        snprintf(text, sizeof text, "%.3g %s", sum, chart->unit);
        put_text(out, x + 6, y + 32, "tick", text);
    }
    double x = 4, y = (double)chart->row_count * ROW + 18;
    for (size_t part = 0; part < chart->part_count; part++) {
        double width = 24 + 7.2 * (double)strlen(chart->parts[part]);
        if (x + width > WIDTH) {
            x = 4;
            y += LEGEND;
        }
        fprintf(out, "<rect class=\"t%zu\" x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"10\"/>\n", part, x, y - 9);
        put_text(out, x + 14, y, "tick", chart->parts[part]);
        x += width;
    }
    close_chart(out, chart->summary);
}

/* ---- histograms ---- */

static void draw_outline(FILE *out, const struct chart_histogram *chart, const struct axis *x, const struct axis *y,
                         const struct chart_outline *outline, const char *classes)
{
    fprintf(out, "<polyline class=\"%s c%u\" points=\"", classes, chart->colour % CHART_COLOURS);
    for (size_t i = 0; i < chart->bin_count; i++) {
        double left = chart->first_edge + (double)i / chart->bins_a_decade, right = left + 1 / chart->bins_a_decade;
        if (left < x->low - 1e-9 || right > x->high + 1e-9)
            continue;
        double at = axis_place(y, outline->shares[i]);
        fprintf(out, "%.1f,%.1f %.1f,%.1f ", axis_place(x, pow(10, left)), at, axis_place(x, pow(10, right)), at);
    }
    fputs("\"/>\n", out);
}

static bool has_mark(const struct axis *x, const struct chart_outline *outline)
{
    return isfinite(outline->mark) && log10(outline->mark) >= x->low && log10(outline->mark) <= x->high;
}

/* The marks, and beside the outer one what they are. */
static void draw_marks(FILE *out, const struct chart_histogram *chart, const struct axis *x)
{
    const struct chart_outline *both[] = {&chart->early, &chart->late};
    double left = x->end;
    for (size_t k = 0; k < 2; k++) {
        if (!has_mark(x, both[k]))
            continue;
        double at = axis_place(x, both[k]->mark);
        left = at < left ? at : left;
        fprintf(out, "<line class=\"mark %s c%u\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n",
                k ? "late" : "early", chart->colour % CHART_COLOURS, at, at, TOP, BOTTOM);
    }
    if (left < x->end)
        put_text(out, left - 6, TOP + 10, "tick end", "selected from here on →");
}

void chart_draw_histogram(FILE *out, const struct chart_histogram *chart)
{
    const struct chart_outline *both[] = {&chart->early, &chart->late};
    size_t low = chart->bin_count, high = 0;
    double most = 0;
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; both[k]->shares && i < chart->bin_count; i++) {
            most = both[k]->shares[i] > most ? both[k]->shares[i] : most;
            if (both[k]->shares[i] > 0.0005) { /* the thin ends are not worth the room */
                low = i < low ? i : low;
                high = i > high ? i : high;
            }
        }
    }
    open_chart(out, chart->title, chart->summary, HEIGHT);
    if (low > high) {
        put_text(out, WIDTH / 2.0, HEIGHT / 2.0, "name middle", "the gradient was zero");
        close_chart(out, chart->summary);
        return;
    }
    struct axis x = {.is_log = true, .start = LEFT, .end = WIDTH - 12};
    x.low = chart->first_edge + (double)low / chart->bins_a_decade;
    x.high = chart->first_edge + ((double)high + 1) / chart->bins_a_decade;
    struct axis y = axis_over(0, most * 100, false, BOTTOM, TOP + 26);
    struct axis shares = y;
    shares.low /= 100;
    shares.high /= 100;
    draw_axes(out, &x, &y, chart->x_label, "% of elements");
    if (chart->early.shares)
        draw_outline(out, chart, &x, &shares, &chart->early, "outline early");
    if (chart->late.shares)
        draw_outline(out, chart, &x, &shares, &chart->late, "outline late");
    draw_marks(out, chart, &x);
    close_chart(out, chart->summary);
}

/* ---- regions ---- */

/* Colours that are used again are hatched by their opacity. */
static void put_cell(FILE *out, size_t series, double x, double y, double width, double height)
{
    fprintf(out,
            "<rect class=\"cell\" style=\"fill:var(--c%zu);stroke:none\" fill-opacity=\"%.2f\" x=\"%.1f\" y=\"%.1f\" "
            "width=\"%.1f\" height=\"%.1f\"",
            series % CHART_COLOURS, series < CHART_COLOURS ? 0.85 : 0.4, x, y, width, height);
}

/* Where cell i begins, and the one before it ends: half-way between their values. */
static double edge_of(const double *values, size_t count, size_t i)
{
    if (i == 0)
        return values[0] / sqrt(values[1] / values[0]);
    return i == count ? values[i - 1] * sqrt(values[i - 1] / values[i - 2]) : sqrt(values[i - 1] * values[i]);
}

void chart_draw_regions(FILE *out, const struct chart_regions *chart)
{
    const size_t columns = chart->x_count, rows = chart->y_count;
    struct axis x = {.is_log = true, .start = LEFT, .end = WIDTH - 14},
                y = {.is_log = true, .start = BOTTOM, .end = TOP};
    x.low = log10(edge_of(chart->x, columns, 0));
    x.high = log10(edge_of(chart->x, columns, columns));
    y.low = log10(edge_of(chart->y, rows, 0));
    y.high = log10(edge_of(chart->y, rows, rows));
    open_chart(out, chart->title, chart->summary, HEIGHT);
    draw_axes(out, &x, &y, chart->x_label, chart->y_label);
    bool occurs[CHART_MOST_SERIES] = {false};
    for (size_t i = 0; i < columns * rows; i++) {
        const size_t column = i % columns, row = i / columns, best = chart->best[i];
        const double at_x = chart->x[column], at_y = chart->y[row],
                     left = axis_place(&x, edge_of(chart->x, columns, column)),
                     top = axis_place(&y, edge_of(chart->y, rows, row + 1));
        put_cell(out, best, left, top, axis_place(&x, edge_of(chart->x, columns, column + 1)) - left,
                 axis_place(&y, edge_of(chart->y, rows, row)) - top);
        char text[TICK_TEXT];
        fputs("><title>", out);
        put_html(out, chart->labels[best]);
        fprintf(out, "\n%s %s", chart->x_label, tick_text(&x, at_x, text));
        fprintf(out, "\n%s %s</title></rect>\n", chart->y_label, tick_text(&y, at_y, text));
        occurs[best] = true;
    }
    fputs("</svg>\n<ul class=\"legend\">", out);
    for (size_t s = 0; s < chart->series_count && s < CHART_MOST_SERIES; s++) {
        if (!occurs[s])
            continue;
        fputs("<li><svg class=\"key\" viewBox=\"0 0 30 8\" aria-hidden=\"true\">", out);
        put_cell(out, s, 1, 0, 28, 8);
        fputs("/></svg>", out);
        put_html(out, chart->labels[s]);
        fputs("</li>", out);
    }
    fputs("</ul>\n<p class=\"note\">", out);
    put_html(out, chart->summary);
    fputs("</p>\n</figure>\n", out);
}
