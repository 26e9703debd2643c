/* The page of `tersegrad plan --report`: step times by bandwidth and by world, and where each codec wins. */
#include "plan.h"

#include "chart.h"
#include "page_frame.h"
#include "table.h"
#include "train.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RATES = 15, MOST_WORLDS = 16, MOST_SERIES = CHART_MOST_SERIES };

struct page_input {
    const struct plan *plan;
    const struct origin *origin;
};

/* A codec by its better algorithm; the baseline is series 0. */
struct sweep {
    size_t series_count;
    const char *labels[MOST_SERIES];
    double rates[RATES], gigabits[RATES], worlds[MOST_WORLDS];
    size_t world_count;
    double by_rate[MOST_SERIES][RATES], by_world[MOST_SERIES][MOST_WORLDS]; /* milliseconds of a step */
    size_t best[MOST_WORLDS * RATES];
    struct predict_step steps[RATES][PLAN_MOST_ROWS]; /* of the world in work */
};

/* Where only a probe says how long messages take, what-if questions have the usual latency. */
static double plan_latency(const struct plan *plan) { return plan->latency > 0 ? plan->latency : 50e-6; }

/* ---- predictions ---- */

/* Rows of one codec follow each other. */
static void name_series(const struct plan *plan, struct sweep *sweep, size_t series_of[PLAN_MOST_ROWS])
{
    for (size_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        const bool is_new = i == 0 || row[-1].is_ring || strcmp(row->name, row[-1].name) != 0;
        if (is_new && sweep->series_count < MOST_SERIES)
            sweep->labels[sweep->series_count++] = row->is_tree   ? "none, tree"
                                                   : row->is_ring ? "none, ring"
                                                                  : row->name;
        series_of[i] = sweep->series_count - 1;
    }
}

/* Keeps the shorter of a codec's two algorithms. */
static void keep(double *ms, const struct predict_step *step)
{
    *ms = *ms > 0 && *ms < 1e3 * step->seconds ? *ms : 1e3 * step->seconds;
}

/* `world`: its place among them. */
static bool sweep_rates(const struct plan *plan, const struct predict_job *job, struct sweep *sweep,
                        const size_t series_of[PLAN_MOST_ROWS], size_t world, struct failure *failure)
{
    const bool is_shown = job->world == plan->job.world;
    for (size_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        struct schedule schedule;
        if (!plan_has_row(row, job->world))
            continue;
        if (!plan_schedule(row, job, &schedule, failure))
            return false;
        bool is_done = true;
        for (size_t r = 0; r < RATES && is_done; r++) {
            const struct predict_network network = plan_network(sweep->rates[r], plan_latency(plan));
            struct predict_step *step = &sweep->steps[r][i];
            is_done = predict_scheduled(&schedule, job, &network, row->coding.low, row->coding.high, step, failure);
            if (is_done && is_shown)
                keep(&sweep->by_rate[series_of[i]][r], step);
        }
        schedule_free(&schedule);
        if (!is_done)
            return false;
    }
    for (size_t r = 0; r < RATES; r++)
        sweep->best[world * RATES + r] = series_of[plan_choice(plan, sweep->steps[r], job->world)];
    return true;
}

static bool sweep_worlds(const struct plan *plan, struct sweep *sweep, const size_t series_of[PLAN_MOST_ROWS],
                         struct failure *failure)
{
    for (size_t w = 0; w < sweep->world_count; w++) {
        struct predict_job job = plan->job;
        job.world = (uint32_t)sweep->worlds[w];
        for (size_t i = 0; i < plan->row_count; i++) {
            const struct plan_row *row = &plan->rows[i];
            struct schedule schedule;
            struct predict_step step;
            if (!plan_has_row(row, job.world) || (is_of_one_host(&plan->network) && job.per_node < job.world))
                continue;
            if (!plan_schedule(row, &job, &schedule, failure))
                return false;
            schedule_fit(&schedule, &job, &plan->network, &row->coding);
            const bool is_done = predict_scheduled(&schedule, &job, &plan->network, 1, 1, &step, failure);
            schedule_free(&schedule);
            if (!is_done)
                return false;
            keep(&sweep->by_world[series_of[i]][w], &step);
        }
        if (!sweep_rates(plan, &job, sweep, series_of, w, failure))
            return false;
    }
    return true;
}

/* 2, 4 ... 1024; four times as many each time, where the plan's own world is larger; and that one in its place. */
static void list_worlds(uint32_t own, struct sweep *sweep)
{
    for (uint32_t before = 0, next = 2; next <= 1024 || before < own; before = next, next *= next < 1024 ? 2 : 4) {
        if (before < own && own < next)
            sweep->worlds[sweep->world_count++] = own;
        if (next <= 1024 || next <= own)
            sweep->worlds[sweep->world_count++] = next;
    }
}

static bool fill_sweep(const struct plan *plan, struct sweep *sweep, struct failure *failure)
{
    size_t series_of[PLAN_MOST_ROWS];
    for (size_t r = 0; r < RATES; r++) {
        sweep->rates[r] = 1e8 * pow(10, (double)r / 4);
        sweep->gigabits[r] = 1e-9 * sweep->rates[r];
    }
    list_worlds(plan->job.world, sweep);
    name_series(plan, sweep, series_of);
    return sweep_worlds(plan, sweep, series_of, failure);
}

/* ---- the page ---- */

static void put_lines(FILE *out, const struct sweep *sweep, struct chart_lines chart, const double *x, size_t count,
                      const double *first, size_t stride)
{
    struct chart_series series[MOST_SERIES];
    for (size_t s = 0; s < sweep->series_count; s++)
        series[s] = (struct chart_series){.label = sweep->labels[s], .x = x, .y = first + s * stride, .count = count};
    chart.series = series;
    chart.series_count = sweep->series_count;
    chart.y_label = "ms a step";
    chart.log_x = chart.log_y = true;
    chart_draw_lines(out, &chart);
}

static void put_charts(FILE *out, const struct plan *plan, const struct sweep *sweep)
{
    char by_rate[300], by_world[300], time[TIME_TEXT];
    snprintf(
        by_rate, sizeof by_rate,
        "Lower is better. %u ranks; latency %s. Each codec by the better of its two algorithms. A line that is flat "
        "is bound by computing or coding.",
        plan->job.world, time_text(plan_latency(plan), time));
    snprintf(by_world, sizeof by_world,
             "Lower is better. The network of the table above. Each codec by the better of its two algorithms.%s",
             is_of_one_host(&plan->network)
                 ? " What was probed on one host says nothing of several: those are left out."
                 : "");
    fputs("<h2>What if</h2>\n", out);
    if (plan->options->simulate)
        fputs("<p>These charts are without what was simulated: racks, slow hosts and chance are in the table above "
              "alone.</p>\n",
              out);
    fputs("<div class=\"charts\">\n", out);
    put_lines(out, sweep,
              (struct chart_lines){
                  .title = "Step time by bandwidth", .summary = by_rate, .x_label = "Gbit/s of a host's link"},
              sweep->gigabits, RATES, sweep->by_rate[0], RATES);
    put_lines(out, sweep, (struct chart_lines){.title = "Step time by world", .summary = by_world, .x_label = "ranks"},
              sweep->worlds, sweep->world_count, sweep->by_world[0], MOST_WORLDS);
    chart_draw_regions(
        out,
        &(struct chart_regions){
            .title = "Which codec wins",
            .summary = "What would be recommended: the codec with the shortest step, where its gain is surely 5 %; "
                       "elsewhere none. This is about time, not about accuracy.",
            .x_label = "Gbit/s of a host's link",
            .y_label = "ranks",
            .x = sweep->gigabits,
            .y = sweep->worlds,
            .x_count = RATES,
            .y_count = sweep->world_count,
            .best = sweep->best,
            .labels = sweep->labels,
            .series_count = sweep->series_count});
    fputs("</div>\n", out);
}

static void put_table(FILE *out, const struct plan *plan)
{
    fputs(
        "<h2>Prediction</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
        "aria-label=\"Prediction\">\n<table>\n"
        "<thead><tr><th scope=\"col\">codec</th><th scope=\"col\" class=\"left\">reduce</th><th scope=\"col\">step</th>"
        "<th scope=\"col\">80 %</th><th scope=\"col\">gain</th><th scope=\"col\">sent</th>"
        "<th scope=\"col\" class=\"left\">bound by</th></tr></thead>\n<tbody>\n",
        out);
    for (size_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        if (!plan_has_row(row, plan->job.world))
            continue;
        char text[TIME_TEXT], low[TIME_TEXT], high[TIME_TEXT], bytes[BYTES_TEXT];
        fputs("<tr><th scope=\"row\">", out);
        put_html(out, row->name);
        fprintf(out, "</th><td class=\"left\">%s</td><td>", plan_algorithm(row));
        put_html(out, step_text(row, text));
        fprintf(out, "</td><td>%s to %s</td>", time_text(row->step.low, low), time_text(row->step.high, high));
        fprintf(out, "<td>%.2f×</td><td>%s</td><td class=\"left\">%s</td></tr>\n", row->gain.factor,
                bytes_text((double)row->step.bytes, bytes), plan_bound(row));
    }
    fputs("</tbody>\n</table>\n</div>\n", out);
    fputs("<p>Gain: how many times longer the step of the baseline is, all-reduces of float32 in a ring or a tree. "
          "Sent: by the busiest rank to other hosts. Bound by: what would have to be faster for a shorter step.</p>\n",
          out);
}

static bool put_page(FILE *out, const void *input)
{
    const struct page_input *page = input;
    const struct plan *plan = page->plan;
    char heading[720], description[1024], number[GROUPED_MAX];
    struct failure failure = {""};
    struct sweep *sweep = calloc(1, sizeof *sweep);
    if (!sweep || !fill_sweep(plan, sweep, &failure)) {
        free(sweep);
        return false;
    }
    snprintf(heading, sizeof heading, "Recommended for %s: %s%s%s", plan->what, plan->recommended->name,
             plan->recommended->is_ring ? "" : " by ",
             plan->recommended->is_ring ? "" : plan_algorithm(plan->recommended));
    snprintf(description, sizeof description,
             "%s elements in %zu tensors, %u ranks, %u on a host. %s This predicts time, not accuracy.",
             grouped(plan->parameters, number), plan->job.tensor_count, plan->job.world, plan->job.per_node,
             plan->reason);
    page_put_head(out, "plan", heading, description);
    put_table(out, plan);
    put_charts(out, plan, sweep);
    free(sweep);
    page_put_command(out, page->origin);
    for (size_t i = 0; i < plan->note_count; i++)
        page_put_item(out, "input", plan->notes[i]);
    page_put_end(out, page->origin);
    return true;
}

bool plan_write_page(const char *path, const struct plan *plan, const struct origin *origin, struct failure *failure)
{
    const struct page_input page = {plan, origin};
    return page_save(path, put_page, &page, failure);
}
