/* The page of `tersegrad train --report` and `tersegrad report`: one file, nothing from elsewhere, charts drawn here.
 */
#include "chart.h"
#include "page_frame.h"
#include "table.h"
#include "train.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

static void put_cell(FILE *out, const char *format, double number)
{
    char text[48];
    snprintf(text, sizeof text, format, number); /* NOLINT: the formats are ours */
    fprintf(out, "<td>%s</td>", isfinite(number) ? text : "–");
}

static void put_table(FILE *out, const struct train_report *report, char names[][SHORT_NAME], bool has_accuracy,
                      bool has_distance)
{
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Results\">\n<table>\n<thead><tr><th "
          "scope=\"col\">run</th>",
          out);
    fprintf(out, "<th scope=\"col\">%s</th>", report->on_test_rows ? "test loss" : "loss");
    if (has_accuracy)
        fputs("<th scope=\"col\">accuracy</th>", out);
    if (has_distance)
        fputs("<th scope=\"col\">‖w−w*‖²</th>", out);
    fputs("<th scope=\"col\">sent</th><th scope=\"col\">wire</th><th scope=\"col\">frames</th>"
          "<th scope=\"col\">steps</th><th scope=\"col\" class=\"left\">codec</th>"
          "<th scope=\"col\" class=\"left\">feedback</th></tr></thead>\n<tbody>\n",
          out);
    for (size_t i = 0; i < report->run_count; i++) {
        const struct train_result *run = &report->runs[i];
        char bytes[BYTES_TEXT];
        fputs("<tr><th scope=\"row\">", out);
        chart_put_key(out, i);
        put_html(out, names[i]);
        fputs("</th>", out);
        if (train_has_diverged(run))
            fputs("<td>diverged</td>", out);
        else
            put_cell(out, "%.5g", run->final_loss);
        if (has_accuracy)
            put_cell(out, "%.2f %%", 100 * run->accuracy);
        if (has_distance)
            put_cell(out, "%.3e", run->distance);
        fprintf(out, "<td>%s</td>", bytes_text((double)run->bytes_sent, bytes));
        put_cell(out, "%.1f×", train_wire_ratio(run));
        put_cell(out, "%.1f×", run->ratio);
        fprintf(out, "<td>%" PRIu64 "%s</td><td class=\"left\"><code>", run->steps, run->stopped ? " (stopped)" : "");
        put_html(out, run->codec->codec_text);
        fputs("</code></td><td class=\"left\"><code>", out);
        put_html(out, run->codec->feedback_text);
        fputs("</code></td></tr>\n", out);
    }
    fprintf(out,
            "</tbody>\n</table>\n</div>\n<p>Sent: %s. Wire: how many times less than a float32 ring all-reduce sends. "
            "Frames: float32 bytes divided by compressed bytes, each gradient counted once.</p>\n",
            train_sent_legend(report));
}

/* ---- lines ---- */

enum quantity { OF_STEPS, OF_BYTES, OF_LOSS, OF_DISTANCE, OF_ACCURACY, OF_RESIDUAL, OF_SELECTED, OF_TIME };

static double value_of(const struct train_point *point, enum quantity quantity)
{
    switch (quantity) {
    case OF_STEPS:
        return (double)point->step;
    case OF_BYTES:
        return (double)point->bytes_sent;
    case OF_LOSS:
        return point->loss;
    case OF_ACCURACY:
        return 100 * point->accuracy;
    case OF_RESIDUAL:
        return point->residual_norm;
    case OF_SELECTED:
        return point->selected;
    case OF_TIME:
        return point->seconds;
    case OF_DISTANCE:
        break;
    }
    return point->distance;
}

/* Losses that fall by more than this are read on a logarithmic axis. */
static bool wants_log(const struct train_report *report, enum quantity quantity)
{
    double low = INFINITY, high = 0;
    for (size_t r = 0; r < report->run_count; r++) {
        const struct train_result *run = &report->runs[r];
        for (size_t i = 0; i < run->point_count && !train_has_diverged(run); i++) {
            double value = value_of(&run->points[i], quantity);
            if (isfinite(value) && value > 0) {
                low = value < low ? value : low;
                high = value > high ? value : high;
            }
        }
    }
    return high > 10 * low;
}

static bool put_lines(FILE *out, const struct train_report *report, char names[][SHORT_NAME], struct chart_lines chart,
                      enum quantity of_x, enum quantity of_y)
{
    struct chart_series series[CHART_MOST_SERIES];
    size_t total = 0, used = 0;
    for (size_t r = 0; r < report->run_count; r++)
        total += report->runs[r].point_count;
    double *values = malloc((2 * total + 1) * sizeof *values);
    if (!values)
        return false;
    for (size_t r = 0; r < report->run_count; r++) {
        const struct train_result *run = &report->runs[r];
        double *x = values + used, *y = x + run->point_count;
        for (size_t i = 0; i < run->point_count; i++) {
            x[i] = value_of(&run->points[i], of_x);
            y[i] = value_of(&run->points[i], of_y);
        }
        bool is_unbounded = of_y == OF_LOSS || of_y == OF_DISTANCE || of_y == OF_RESIDUAL;
        series[r] = (struct chart_series){names[r], x, y, run->point_count, is_unbounded && train_has_diverged(run)};
        used += 2 * run->point_count;
    }
    chart.series = series;
    chart.series_count = report->run_count;
    chart.log_y = of_y != OF_ACCURACY && wants_log(report, of_y);
    chart_draw_lines(out, &chart);
    free(values);
    return true;
}

/* ---- the charts ---- */

/* Whether any run has something to show other than 0. */
static bool has_any(const struct train_report *report, enum quantity quantity)
{
    for (size_t r = 0; r < report->run_count; r++)
        for (size_t i = 0; i < report->runs[r].point_count; i++) {
            double value = value_of(&report->runs[r].points[i], quantity);
            if (isfinite(value) && value != 0)
                return true;
        }
    return false;
}

static bool has_stages(const struct train_report *report)
{
    for (size_t r = 0; r < report->run_count; r++)
        for (int i = 0; i < STAGE_COUNT; i++)
            if (report->runs[r].stages[i] > 0)
                return true;
    return false;
}

static void put_stages(FILE *out, const struct train_report *report, char names[][SHORT_NAME])
{
    double values[TRAIN_MOST_RUNS * STAGE_COUNT];
    const char *rows[TRAIN_MOST_RUNS];
    for (size_t r = 0; r < report->run_count; r++) {
        rows[r] = names[r];
        for (int i = 0; i < STAGE_COUNT; i++)
            values[r * STAGE_COUNT + (size_t)i] = 1000 * report->runs[r].stages[i] /
                                                  (double)(report->runs[r].steps ? report->runs[r].steps : 1);
    }
    chart_draw_bars(out, &(struct chart_bars){.title = "Time by stage",
                                              .summary = "Milliseconds of a step on rank 0, for each run: making or "
                                                         "reading the batch, computing the gradient, encoding, "
                                                         "exchanging, decoding, updating.",
                                              .unit = "ms/step",
                                              .rows = rows,
                                              .row_count = report->run_count,
                                              .parts = train_stage_names,
                                              .part_count = STAGE_COUNT,
                                              .values = values});
}

static void fill_shares(const struct train_histogram *histogram, double shares[TRAIN_BINS])
{
    uint64_t total = histogram->zeros;
    for (size_t i = 0; i < TRAIN_BINS; i++)
        total += histogram->bins[i];
    for (size_t i = 0; i < TRAIN_BINS; i++)
        shares[i] = total ? (double)histogram->bins[i] / (double)total : 0;
}

static void put_histogram(FILE *out, const struct train_result *run, const char *name, size_t index)
{
    double early[TRAIN_BINS], late[TRAIN_BINS];
    char title[128], summary[256];
    fill_shares(&run->early, early);
    fill_shares(&run->late, late);
    snprintf(title, sizeof title, "%.39s: gradient at step %" PRIu64 " (dashed) and %" PRIu64, name, run->early.step,
             run->late.step);
    snprintf(summary, sizeof summary,
             "Share of the elements of rank 0's gradient by magnitude, on a logarithmic axis, early and late in the "
             "run%s.",
             isfinite(run->late.threshold) ? ", with the smallest magnitude that the codec selects of it" : "");
    chart_draw_histogram(out,
                         &(struct chart_histogram){
                             .title = title,
                             .summary = summary,
                             .x_label = "magnitude of an element",
                             .first_edge = -12,
                             .bins_a_decade = 4,
                             .bin_count = TRAIN_BINS,
                             .colour = (unsigned)index,
                             .early = {run->early.step ? early : NULL, run->early.step ? run->early.threshold : NAN},
                             .late = {run->late.step ? late : NULL, run->late.step ? run->late.threshold : NAN}});
}

/* Over which rows the loss of a chart is. */
static void describe_rows(const struct train_report *report, char *text, size_t capacity)
{
    char sample[GROUPED_MAX], all[GROUPED_MAX];
    const char *kind = report->on_test_rows ? "test" : "training";
    if (report->result_rows == 0)
        text[0] = '\0';
    else if (report->point_rows < report->result_rows)
        snprintf(text, capacity,
                 " Over %s of %s %s rows before the last step, and over all of them at the last step, as in the table.",
                 grouped(report->point_rows, sample), grouped(report->result_rows, all), kind);
    else
        snprintf(text, capacity, " Over all %s %s rows.", grouped(report->result_rows, all), kind);
}

static bool put_line_charts(FILE *out, const struct train_report *report, char names[][SHORT_NAME])
{
    char rows[256], by_step[512], by_bytes[512], accuracy[512], time_title[128], by_time[512];
    const char *loss = report->on_test_rows ? "test loss" : "loss";
    describe_rows(report, rows, sizeof rows);
    snprintf(by_step, sizeof by_step,
             "Lower is better. Where lines coincide, the wider one is visible on both sides of the narrower one; a "
             "cross marks where a run diverged.%s",
             rows);
    snprintf(by_bytes, sizeof by_bytes, "A curve further to the left reaches the same loss with fewer bytes.%s", rows);
    snprintf(time_title, sizeof time_title, report->link[0] ? "Loss by time, links of %s" : "Loss by time",
             report->link);
    snprintf(by_time, sizeof by_time,
             "A curve further to the left is at the same loss sooner. The time of the steps on rank 0, without "
             "evaluation%s.%s",
             report->link[0] ? "; exchanges took as long as over such links" : "", rows);
    snprintf(accuracy, sizeof accuracy, "Share of rows that are classified correctly.%s", rows);
    const struct {
        struct chart_lines chart;
        enum quantity x, y;
        bool is_wanted;
    } charts[] = {
        {{.title = "Loss by step", .x_label = "step", .y_label = loss, .summary = by_step}, OF_STEPS, OF_LOSS, true},
        {{.title = "Loss by bytes sent",
          .x_label = "sent by rank 0",
          .y_label = loss,
          .log_x = true,
          .x_is_bytes = true,
          .summary = by_bytes},
         OF_BYTES,
         OF_LOSS,
         true},
        {{.title = time_title, .x_label = "seconds", .y_label = loss, .summary = by_time},
         OF_TIME,
         OF_LOSS,
         has_any(report, OF_TIME)},
        {{.title = "Accuracy by step",
          .x_label = "step",
          .y_label = "accuracy, %",
          .free_y = true,
          .summary = accuracy},
         OF_STEPS,
         OF_ACCURACY,
         has_any(report, OF_ACCURACY)},
        {{.title = "Distance to the optimum",
          .x_label = "step",
          .y_label = "‖w−w*‖²",
          .summary = "Squared distance of the weights from those that the data were made with."},
         OF_STEPS,
         OF_DISTANCE,
         has_any(report, OF_DISTANCE)},
        {{.title = "Residual norm by step",
          .x_label = "step",
          .y_label = "‖residual‖",
          .summary = "The norm of what rank 0 has not sent yet. With stable feedback it stays bounded; if feedback "
                     "diverges, it grows without bound."},
         OF_STEPS,
         OF_RESIDUAL,
         has_any(report, OF_RESIDUAL)},
        {{.title = "Elements sent by step",
          .x_label = "step",
          .y_label = "elements",
          .summary = "Elements in rank 0's frames of the step. A sparsifier with an estimated threshold selects more "
                     "or fewer than its target."},
         OF_STEPS,
         OF_SELECTED,
         has_any(report, OF_SELECTED)},
    };
    bool is_done = true;
    for (size_t i = 0; i < sizeof charts / sizeof *charts && is_done; i++)
        if (charts[i].is_wanted)
            is_done = put_lines(out, report, names, charts[i].chart, charts[i].x, charts[i].y);
    return is_done;
}

static bool put_charts(FILE *out, const struct train_report *report, char names[][SHORT_NAME])
{
    fputs("<h2>Learning and time</h2>\n<div class=\"charts\">\n", out);
    bool is_done = put_line_charts(out, report, names);
    if (has_stages(report))
        put_stages(out, report, names);
    fputs("</div>\n", out);
    bool has_histograms = false;
    for (size_t r = 0; r < report->run_count; r++)
        has_histograms = has_histograms || report->runs[r].early.step || report->runs[r].late.step;
    if (!has_histograms)
        return is_done;
    fputs("<h2>Gradients</h2>\n<div class=\"charts\">\n", out);
    for (size_t r = 0; r < report->run_count; r++)
        if (report->runs[r].early.step || report->runs[r].late.step)
            put_histogram(out, &report->runs[r], names[r], r);
    fputs("</div>\n", out);
    return is_done;
}

/* ---- the page ---- */

static void put_log(FILE *out, const char *name, const char *command)
{
    fputs("<dt>log</dt><dd>", out);
    put_html(out, name);
    fputs(command[0] ? ": <code>" : " <code>", out);
    put_html(out, command);
    fputs("</code></dd>\n", out);
}

static void put_origin(FILE *out, const struct page *page)
{
    char seed[32];
    page_put_command(out, page->origin);
    for (size_t i = 0; page->sources && i < page->report->run_count; i++)
        if (i == 0 || strcmp(page->sources[i], page->sources[i - 1]) != 0)
            put_log(out, page->sources[i], page->commands[i]);
    snprintf(seed, sizeof seed, "%" PRIu64, page->seed);
    if (page->has_seed)
        page_put_item(out, "seed", seed);
    page_put_end(out, page->origin);
}

bool page_put(FILE *out, const struct page *page)
{
    const struct train_report *report = page->report;
    char names[TRAIN_MOST_RUNS][SHORT_NAME];
    bool has_accuracy = false, has_distance = false, has_sources = false;
    for (size_t i = 0; i < report->run_count; i++) {
        has_accuracy = has_accuracy || isfinite(report->runs[i].accuracy);
        has_distance = has_distance || isfinite(report->runs[i].distance);
        has_sources = has_sources || (page->sources && strcmp(page->sources[i], page->sources[0]) != 0);
    }
    train_short_names(report, has_sources ? page->sources : NULL, names);
    page_put_head(out, "train", page->heading, page->description);
    if (page->stopped) {
        fputs("<p class=\"stopped\">Training ended early: ", out);
        put_html(out, page->stopped);
        fputs("</p>\n", out);
    }
    fputs("<h2>Results</h2>\n", out);
    put_table(out, report, names, has_accuracy, has_distance);
    bool is_done = put_charts(out, report, names);
    put_origin(out, page);
    return is_done;
}

static bool put_page_of(FILE *out, const void *page) { return page_put(out, page); }

bool page_write(const char *path, const struct page *page, struct failure *failure)
{
    return page_save(path, put_page_of, page, failure);
}
