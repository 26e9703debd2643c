/* The page of `tersegrad train --report`: one file, nothing from elsewhere, charts drawn here. */
#include "chart.h"
#include "files.h"
#include "table.h"
#include "train.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    ":root{color-scheme:light dark;--page:#fbfbfa;--ink:#1d1d1f;--soft:#5c5c61;--grid:#e3e3e0;--box:#fff;"
    "--c0:#5c5c61;--c1:#0b62c4;--c2:#c2410c;--c3:#0f766e;--c4:#a21caf;--c5:#a16207;--c6:#be123c;--c7:#4d7c0f;"
    "--t0:#c9c9c6;--t1:#8b8b88;--t2:#0b62c4;--t3:#f0953f;--t4:#4ba3a0;--t5:#b9a3d6}\n"
    "@media (prefers-color-scheme:dark){:root{--page:#151517;--ink:#ededf0;--soft:#a5a5ad;--grid:#323238;--box:#1d1d20;"
    "--c0:#b4b4bc;--c1:#69b1ff;--c2:#ff9b66;--c3:#4fd1c5;--c4:#e58cf0;--c5:#e3b341;--c6:#ff8fa3;--c7:#a3d65c;"
    "--t0:#4a4a50;--t1:#7f7f87;--t2:#69b1ff;--t3:#f0a35a;--t4:#5cc4bd;--t5:#c0a8e6}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,sans-serif}\n"
    "main{max-width:76rem;margin:0 auto;padding:1.25rem 1rem 3rem}\n"
    "h1{font-size:1.5rem;line-height:1.2;margin:0 0 .4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:2rem 0 "
    ".6rem}\n"
    "p{margin:.3rem 0;color:var(--soft);overflow-wrap:anywhere;max-width:60rem}\n"
    ".charts{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,23rem),1fr))}\n"
    "figure{margin:0;padding:.8rem .8rem .4rem;background:var(--box);border:1px solid "
    "var(--grid);border-radius:.6rem;min-width:0}\n"
    "figcaption{font-weight:600;margin-bottom:.3rem;overflow-wrap:anywhere}\n"
    "svg{display:block;width:100%;height:auto;max-width:36rem;font:12.5px system-ui,sans-serif}\n"
    ".scroll{overflow-x:auto;border:1px solid var(--grid);border-radius:.6rem;background:var(--box)}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem;width:100%}\n"
    "th,td{padding:.45rem .8rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid)}\n"
    "tr:last-child td,tr:last-child th{border-bottom:0}thead th{color:var(--soft);font-weight:600}\n"
    "th:first-child,.left{text-align:left}tbody th{font-weight:500}\n"
    ".dot{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.5em}\n"
    "code{font:.85em ui-monospace,monospace;overflow-wrap:anywhere}\n"
    ".grid{stroke:var(--grid)}.axis{stroke:var(--soft)}.tick{fill:var(--soft);font-size:12px}.name{fill:var(--soft)}\n"
    ".end{text-anchor:end}.middle{text-anchor:middle}.label{font-weight:600}.plain{fill:var(--ink)}\n"
    ".line,.outline,.mark{fill:none;stroke-width:2;stroke-linejoin:round}.early{opacity:.5;stroke-dasharray:4 3}\n"
    ".mark{stroke-width:1.5}.outline.late{stroke-width:2.2}\n";

/* ---- names ---- */

enum { SHORT = 40 };

/* "topk+ef": the codec's name and the kind of feedback; where two runs would be called the same, with a number. */
static void short_names(const struct train_report *report, char names[][SHORT])
{
    static const char *const kinds[] = {"", "+ef", "+ecq", "+dgc"};
    for (size_t i = 0; i < report->run_count; i++) {
        const struct train_codec *codec = report->runs[i].codec;
        size_t length = strcspn(codec->codec_text, ":");
        snprintf(names[i], SHORT, "%.*s%s", (int)(length < 16 ? length : 16), codec->codec_text,
                 kinds[codec->feedback.kind]);
    }
    for (size_t i = 0; i < report->run_count; i++) {
        unsigned alike = 1;
        for (size_t k = i + 1; k < report->run_count; k++)
            if (strcmp(names[k], names[i]) == 0)
                snprintf(names[k] + strlen(names[k]), SHORT - strlen(names[k]), " %u", ++alike);
        if (alike > 1)
            snprintf(names[i] + strlen(names[i]), SHORT - strlen(names[i]), " 1");
    }
}

/* ---- the table ---- */

static void put_cell(FILE *out, const char *format, double number)
{
    char text[48];
    snprintf(text, sizeof text, format, number); /* NOLINT: the formats are ours */
    fprintf(out, "<td>%s</td>", isfinite(number) ? text : "–");
}

static void put_table(FILE *out, const struct train_report *report, char names[][SHORT], bool has_accuracy,
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
    fputs("<th scope=\"col\">sent</th><th scope=\"col\">ratio</th><th scope=\"col\" class=\"left\">codec</th><th "
          "scope=\"col\" class=\"left\">feedback</th></tr></thead>\n"
          "<tbody>\n",
          out);
    for (size_t i = 0; i < report->run_count; i++) {
        const struct train_result *run = &report->runs[i];
        char bytes[BYTES_TEXT];
        fprintf(out, "<tr><th scope=\"row\"><span class=\"dot\" style=\"background:var(--c%zu)\"></span>%s</th>",
                i % CHART_COLOURS, names[i]);
        put_cell(out, "%.5g", run->final_loss);
        if (has_accuracy)
            put_cell(out, "%.2f %%", 100 * run->accuracy);
        if (has_distance)
            put_cell(out, "%.3e", run->distance);
        fprintf(out, "<td>%s</td>", bytes_text((double)run->bytes_sent, bytes));
        put_cell(out, "%.1f×", run->ratio);
        fputs("<td class=\"left\"><code>", out);
        put_html(out, run->codec->codec_text);
        fputs("</code></td><td class=\"left\"><code>", out);
        put_html(out, run->codec->feedback_text);
        fputs("</code></td></tr>\n", out);
    }
    fputs("</tbody>\n</table>\n</div>\n", out);
}

/* ---- lines ---- */

enum quantity { OF_STEPS, OF_BYTES, OF_LOSS, OF_DISTANCE };

static double value_of(const struct train_point *point, enum quantity quantity)
{
    switch (quantity) {
    case OF_STEPS:
        return (double)point->step;
    case OF_BYTES:
        return (double)point->bytes_sent;
    case OF_LOSS:
        return point->loss;
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
        for (size_t i = 0; i < report->runs[r].point_count; i++) {
            double value = value_of(&report->runs[r].points[i], quantity);
            if (isfinite(value) && value > 0) {
                low = value < low ? value : low;
                high = value > high ? value : high;
            }
        }
    }
    return high > 10 * low;
}

static bool put_lines(FILE *out, const struct train_report *report, char names[][SHORT], struct chart_lines chart,
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
        series[r] = (struct chart_series){names[r], x, y, run->point_count};
        used += 2 * run->point_count;
    }
    chart.series = series;
    chart.series_count = report->run_count;
    chart.log_y = wants_log(report, of_y);
    chart_draw_lines(out, &chart);
    free(values);
    return true;
}

/* ---- the charts ---- */

static void put_stages(FILE *out, const struct train_report *report, char names[][SHORT])
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

static bool put_charts(FILE *out, const struct train_report *report, char names[][SHORT], bool has_distance)
{
    const char *loss = report->on_test_rows ? "test loss" : "loss";
    fputs("<h2>Learning and time</h2>\n<div class=\"charts\">\n", out);
    bool is_done =
        put_lines(out, report, names,
                  (struct chart_lines){
                      .title = "Loss by step",
                      .x_label = "step",
                      .y_label = loss,
                      .summary = "One line for each run; where lines lie on each other, compression costs nothing."},
                  OF_STEPS, OF_LOSS) &&
        put_lines(out, report, names,
                  (struct chart_lines){
                      .title = "Loss by bytes sent",
                      .x_label = "sent by rank 0",
                      .y_label = loss,
                      .log_x = true,
                      .x_is_bytes = true,
                      .summary = "One line for each run; further to the left is the same loss for fewer bytes."},
                  OF_BYTES, OF_LOSS) &&
        (!has_distance ||
         put_lines(out, report, names,
                   (struct chart_lines){
                       .title = "Distance to the optimum",
                       .x_label = "step",
                       .y_label = "‖w−w*‖²",
                       .summary = "Squared distance of the weights from those behind the data, one line for each run."},
                   OF_STEPS, OF_DISTANCE));
    put_stages(out, report, names);
    fputs("</div>\n<h2>Gradients</h2>\n<div class=\"charts\">\n", out);
    for (size_t r = 0; r < report->run_count; r++)
        put_histogram(out, &report->runs[r], names[r], r);
    fputs("</div>\n", out);
    return is_done;
}

/* ---- the page ---- */

static bool put_page(FILE *out, const struct train_settings *settings, const struct train_report *report)
{
    char names[TRAIN_MOST_RUNS][SHORT], rows[GROUPED_MAX], parameters[GROUPED_MAX];
    bool has_accuracy = false, has_distance = false;
    for (size_t i = 0; i < report->run_count; i++) {
        has_accuracy = has_accuracy || isfinite(report->runs[i].accuracy);
        has_distance = has_distance || isfinite(report->runs[i].distance);
    }
    short_names(report, names);
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>tersegrad train: ",
          out);
    put_html(out, report->data);
    fprintf(out, "</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n%s", style);
    for (unsigned i = 0; i < CHART_COLOURS; i++)
        fprintf(out, "svg .c%u{stroke:var(--c%u)}svg text.c%u{stroke:none;fill:var(--c%u)}", i, i, i, i);
    for (unsigned i = 0; i < STAGE_COUNT; i++)
        fprintf(out, "svg .t%u{fill:var(--t%u)}", i, i);
    fputs("\n</style>\n</head>\n<body>\n<main>\n<h1>", out);
    put_html(out, report->data);
    fprintf(out, ", %" PRIu32 " workers</h1>\n<p>", report->world);
    put_html(out, report->model);
    fprintf(out, ": %s parameters, %s rows, %" PRIu64 " steps of %" PRIu64 " rows a worker, %s, seed %" PRIu64 ". ",
            grouped(report->parameters, parameters), grouped(report->train_rows, rows), report->runs[0].steps,
            settings->batch, train_algorithm_choices[settings->algorithm], settings->seed);
    fprintf(out, "Transport %s, device %s. Written by tersegrad %s.</p>\n<h2>Results</h2>\n", report->transport,
            report->device, tg_version());
    put_table(out, report, names, has_accuracy, has_distance);
    bool is_done = put_charts(out, report, names, has_distance);
    fputs("</main>\n</body>\n</html>\n", out);
    return is_done;
}

bool train_write_report(const char *path, const struct train_settings *settings, const struct train_report *report,
                        struct message *message)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return fail(message, "no memory for the report");
    bool is_done = put_page(out, settings, report) && !ferror(out);
    is_done = fclose(out) == 0 && is_done;
    struct piece piece = {text, size};
    is_done = is_done ? write_file(path, &piece, 1, message) : fail(message, "no memory for the report");
    free(text);
    return is_done;
}
