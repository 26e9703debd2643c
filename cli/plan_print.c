/* A plan, as a table and as JSON. See plan.h. */
#include "plan.h"

#include "json_writer.h"
#include "table.h"
#include "terminal.h"
#include "train.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const bounds[] = {[PREDICT_COMPUTING] = "computing",
                                     [PREDICT_CODING] = "coding",
                                     [PREDICT_WIRE] = "wire",
                                     [PREDICT_LATENCY] = "latency"};

/* Shorter by one than the room, so that a sign may stand before it. */
const char *time_text(double seconds, char text[TIME_TEXT])
{
    const double us = 1e6 * seconds;
    const double shown = us < 1e3 ? us : us < 1e6 ? us / 1e3 : us / 1e6;
    const char *unit = us < 1e3 ? "us" : us < 1e6 ? "ms" : "s";
    snprintf(text, TIME_TEXT - 1, "%.*f %s", shown < 9.995 ? 2 : shown < 99.95 ? 1 : 0, shown, unit);
    return text;
}

const char *step_text(const struct plan_row *row, char text[TIME_TEXT])
{
    text[0] = '>';
    (void)time_text(row->step.seconds, text + row->is_too_slow);
    return text;
}

const char *plan_algorithm(const struct plan_row *row)
{
    return row->is_tree ? "tree" : row->is_ring ? "ring" : tg_algorithm_text(row->step.algorithm);
}

const char *plan_bound(const struct plan_row *row) { return bounds[row->step.bound]; }

/* Both ends in the unit of the step. */
static void add_interval(struct table *table, const struct predict_step *step)
{
    const double unit = step->seconds < 1e-3 ? 1e6 : step->seconds < 1 ? 1e3 : 1;
    const double low = step->low * unit, high = step->high * unit;
    const int digits = high < 9.995 ? 2 : high < 99.95 ? 1 : 0;
    table_cell(table, "%.*f-%.*f", digits, low, digits, high);
}

static void print_rows(const struct plan *plan, FILE *out)
{
    struct table table;
    table_start(&table, "llrrrrl");
    table_fit(&table, 0, terminal_width(out));
    static const char *const heading[] = {"codec", "reduce", "step", "80 %", "gain", "sent", "bound by"};
    for (size_t i = 0; i < sizeof heading / sizeof *heading; i++)
        table_cell(&table, "%s", heading[i]);
    for (size_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        if (!plan_has_row(row, plan->job.world))
            continue;
        char time[TIME_TEXT], bytes[BYTES_TEXT];
        table_cell(&table, "%s", row->name);
        table_cell(&table, "%s", plan_algorithm(row));
        table_cell(&table, "%s", step_text(row, time));
        add_interval(&table, &row->step);
        table_cell(&table, "%.2fx", row->gain.factor);
        table_cell(&table, "%s", bytes_text((double)row->step.bytes, bytes));
        table_cell(&table, "%s", plan_bound(row));
    }
    table_end(&table, out);
}

void plan_print_table(const struct plan *plan, FILE *out)
{
    char text[600], number[GROUPED_MAX];
    const struct predict_job *job = &plan->job;
    const uint32_t hosts = (job->world + job->per_node - 1) / job->per_node;
    fputs("A step of ", out);
    print_clean(out, plan->what);
    snprintf(text, sizeof text, "(%s elements in %zu tensors) on %u rank%s, %u host%s",
             grouped(plan->parameters, number), job->tensor_count, job->world, job->world == 1 ? "" : "s", hosts,
             hosts == 1 ? "" : "s");
    fprintf(out, "\n%s\n\n", text);
    print_rows(plan, out);
    const struct plan_row *row = plan->recommended;
    snprintf(text, sizeof text, "Recommended: %s%s%s", row->name, row->is_ring ? "" : " by ",
             row->is_ring ? "" : plan_algorithm(row));
    fprintf(out, "\n%s", colour_on(out, COLOUR_GOOD));
    print_wrapped(out, text, 0);
    fputs(colour_off(out), out);
    print_wrapped(out, plan->reason, 0);
    print_wrapped(out, "This predicts time, not accuracy: see how a codec trains with 'tersegrad train'.", 0);
    fputc('\n', out);
    for (size_t i = 0; i < plan->note_count; i++) {
        fputs("- ", out);
        print_rest(out, plan->notes[i], 2);
    }
}

/* ---- for machines ---- */

static void put_row(struct json_writer *json, const struct plan_row *row, bool simulated)
{
    json_open_object(json, NULL);
    json_put_text(json, "codec", row->codec_text);
    json_put_text(json, "feedback", row->feedback_text);
    json_put_text(json, "algorithm", plan_algorithm(row));
    json_put_real(json, "seconds", row->step.seconds);
    json_put_real(json, "low", row->step.low);
    json_put_real(json, "high", row->step.high);
    json_put_real(json, "speed_up", row->gain.factor);
    json_put_real(json, "speed_up_low", row->gain.low);
    json_put_real(json, "speed_up_high", row->gain.high);
    json_put_unsigned(json, "bytes_sent", row->step.bytes);
    json_put_bool(json, "bytes_estimated", row->step.estimated);
    json_put_text(json, "bound_by", plan_bound(row));
    json_put_real(json, "wire_seconds", row->step.wire);
    json_put_real(json, "coding_seconds", row->step.coding);
    json_put_bool(json, "extrapolated", row->step.extrapolated);
    if (simulated) {
        json_put_real(json, "uniform_seconds", row->uniform_seconds);
        json_put_bool(json, "simulated", !row->is_too_slow);
        json_put_unsigned(json, "events", row->simulated.events);
    }
    json_close_object(json);
}

void plan_print_json(const struct plan *plan, FILE *out)
{
    struct json_writer json = json_writer_on(out);
    json_open_object(&json, NULL);
    json_put_text(&json, "model", plan->what);
    json_put_unsigned(&json, "elements", plan->parameters);
    json_put_unsigned(&json, "tensors", plan->job.tensor_count);
    json_put_unsigned(&json, "world", plan->job.world);
    json_put_unsigned(&json, "per_node", plan->job.per_node);
    json_put_real(&json, "rate_bits_per_second", plan->rate_bits);
    json_put_real(&json, "latency_seconds", plan->latency);
    json_put_real(&json, "forward_seconds", plan->job.forward);
    json_put_real(&json, "backward_seconds", plan->job.backward);
    json_put_real(&json, "kappa", plan->job.kappa);
    json_open_object(&json, "recommended");
    json_put_text(&json, "codec", plan->recommended->codec_text);
    json_put_text(&json, "feedback", plan->recommended->feedback_text);
    json_put_text(&json, "algorithm", plan_algorithm(plan->recommended));
    json_put_text(&json, "reason", plan->reason);
    json_close_object(&json);
    json_open_array(&json, "rows");
    for (size_t i = 0; i < plan->row_count; i++)
        if (plan_has_row(&plan->rows[i], plan->job.world))
            put_row(&json, &plan->rows[i], plan->options->simulate);
    json_close_array(&json);
    json_open_array(&json, "inputs");
    for (size_t i = 0; i < plan->note_count; i++)
        json_put_text(&json, NULL, plan->notes[i]);
    json_close_array(&json);
    json_close_object(&json);
}
