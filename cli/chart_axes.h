/* Axes: from values to places, and where ticks go. */
#ifndef CLI_CHART_AXES_H
#define CLI_CHART_AXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct axis {
    bool is_log, is_bytes;
    double low, high;  /* values; of a logarithmic axis their logarithms */
    double start, end; /* places */
};

/* An axis that shows low ... high, widened to whole ticks where it is not logarithmic. */
struct axis axis_over(double low, double high, bool is_log, double start, double end);
double axis_place(const struct axis *axis, double value);

/* Values at which ticks go, at most `most`. Returns how many. */
size_t axis_ticks(const struct axis *axis, size_t most, double *ticks);

/* A tick's text. Returns `text`. */
#define TICK_TEXT 24
const char *tick_text(const struct axis *axis, double value, char text[TICK_TEXT]);

#endif
