/* The results of `tersegrad train`, as a table and as JSON. */
#include "json_writer.h"
#include "table.h"
#include "train.h"

#include <inttypes.h>
#include <math.h>

/* ---- for people ---- */

static void add_number(struct table *table, const char *format, double number)
{
    if (!isfinite(number)) {
        table_cell(table, "-");
        return;
    }
    char text[40];
    snprintf(text, sizeof text, format, number); /* NOLINT: the formats are ours */
    table_cell(table, "%s", text);
}

double train_wire_ratio(const struct train_result *result)
{
    return result->bytes_sent ? (double)result->dense_bytes / (double)result->bytes_sent : NAN;
}

const char *train_sent_legend(const struct train_report *report)
{
    return report->hosts > 0 ? "by rank 0, to other hosts only" : "by rank 0, to all peers together";
}

double train_loss_after(const struct train_result *result, double seconds)
{
    double loss = NAN;
    for (size_t i = 0; i < result->point_count && result->points[i].seconds <= seconds; i++)
        loss = result->points[i].loss;
    return loss;
}

double train_shortest(const struct train_report *report)
{
    double shortest = 0;
    for (size_t i = 0; i < report->run_count; i++) {
        const struct train_result *run = &report->runs[i];
        const double seconds = run->point_count ? run->points[run->point_count - 1].seconds : 0;
        shortest = i == 0 || seconds < shortest ? seconds : shortest;
    }
    return shortest;
}

struct columns {
    bool wide, accuracy, distance;
    double seconds; /* with a link: when the first run was done; else 0 */
};

static void add_row(struct table *table, const struct train_result *result, const char *name, struct columns columns)
{
    char bytes[BYTES_TEXT], ratio[BYTES_TEXT];
    if (columns.wide) {
        table_cell(table, "%s", result->codec->codec_text);
        table_cell(table, "%s", result->codec->feedback_text);
    } else {
        table_cell(table, "%s", name);
    }
    if (train_has_diverged(result))
        table_cell(table, "diverged");
    else
        add_number(table, "%.5g", result->final_loss);
    if (columns.accuracy)
        add_number(table, "%.2f %%", 100 * result->accuracy);
    if (columns.distance)
        add_number(table, "%.3e", result->distance);
    if (columns.seconds > 0)
        add_number(table, "%.4g", train_loss_after(result, columns.seconds));
    table_cell(table, "%s", bytes_text((double)result->bytes_sent, bytes));
    table_cell(table, "%s", ratio_text(train_wire_ratio(result), ratio));
    table_cell(table, "%s", ratio_text(result->ratio, ratio));
    double seconds = 0;
    for (int i = 0; i < STAGE_COUNT; i++) {
        seconds += result->stages[i];
        if (columns.wide)
            table_cell(table, "%.3f", result->stages[i]);
    }
    if (!columns.wide)
        add_number(table, "%.3g", 1000 * seconds / (double)(result->steps ? result->steps : 1));
}

static void add_headings(struct table *table, const struct train_report *report, struct columns columns)
{
    table_cell(table, columns.wide ? "codec" : "run");
    if (columns.wide)
        table_cell(table, "feedback");
    table_cell(table, report->on_test_rows ? "test loss" : "loss");
    if (columns.accuracy)
        table_cell(table, "accuracy");
    if (columns.distance)
        table_cell(table, "|w-w*|²");
    if (columns.seconds > 0)
        table_cell(table, "at %.3g s", columns.seconds);
    table_cell(table, "sent");
    table_cell(table, "wire");
    table_cell(table, "frames");
    for (int i = 0; i < STAGE_COUNT && columns.wide; i++)
        table_cell(table, "%s s", train_stage_names[i]);
    if (!columns.wide)
        table_cell(table, "ms/step");
}

static void print_heading(const struct train_report *report, FILE *out)
{
    char parameters[GROUPED_MAX], rows[GROUPED_MAX], hosts[32] = "", text[1024];
    if (report->hosts > 0)
        snprintf(hosts, sizeof hosts, ", %" PRIu32 " host%s", report->hosts, report->hosts == 1 ? "" : "s");
    snprintf(text, sizeof text,
             "%s, %s rows; %s: %s parameters; %" PRIu32 " workers (%s%s%s%s), %" PRIu64 " steps, %s, %s", report->data,
             grouped(report->train_rows, rows), report->model, grouped(report->parameters, parameters), report->world,
             report->transport, hosts, report->link[0] ? ", link " : "", report->link, report->steps, report->device,
             report->blas);
    print_wrapped(out, text, 0);
    fputc('\n', out);
}

/* The steps at which a run changed how it sends, as --bypass takes them. */
static void print_bypass(const struct train_result *result, const char *name, FILE *out)
{
    if (result->bypass_change_count == 0)
        return;
    fprintf(out, "  %s was sent uncompressed as by --bypass replay:", name);
    for (size_t i = 0; i < result->bypass_change_count; i++)
        fprintf(out, "%s%" PRIu64, i ? "," : "", result->bypass_changes[i]);
    fputs("\n", out);
}

/* Of a run that ended before its last step. */
static void print_stop(const struct train_report *report, const struct train_result *result, const char *name,
                       FILE *out)
{
    if (train_has_diverged(result))
        fprintf(out, "  %s diverged after step %" PRIu64 " of %" PRIu64 ".\n", name, result->steps, report->steps);
    else
        fprintf(out, "  %s stopped after step %" PRIu64 " of %" PRIu64 "; loss measured on %" PRIu64 " rows.\n", name,
                result->steps, report->steps, report->point_rows);
}

void train_print_table(const struct train_report *report, bool wide, FILE *out)
{
    char names[TRAIN_MOST_RUNS][SHORT_NAME], alignment[20];
    struct columns columns = {.wide = wide, .seconds = report->link[0] ? train_shortest(report) : 0};
    for (size_t i = 0; i < report->run_count; i++) {
        columns.accuracy = columns.accuracy || isfinite(report->runs[i].accuracy);
        columns.distance = columns.distance || isfinite(report->runs[i].distance);
    }
    print_heading(report, out);
    train_short_names(report, NULL, names);
    size_t count = 4u + columns.accuracy + columns.distance + (columns.seconds > 0) + (wide ? (size_t)STAGE_COUNT : 1);
    snprintf(alignment, sizeof alignment, "%s%.*s", wide ? "ll" : "l", (int)count, "rrrrrrrrrrrrrrrr");
    struct table table;
    table_start(&table, alignment);
    add_headings(&table, report, columns);
    for (size_t i = 0; i < report->run_count; i++)
        add_row(&table, &report->runs[i], names[i], columns);
    if (!wide)
        table_fit(&table, 0, terminal_width(out));
    table_end(&table, out);
    char text[256];
    snprintf(text, sizeof text,
             "sent: %s. wire: how many times less than a float32 ring all-reduce sends. frames: float32 bytes divided "
             "by compressed bytes, each gradient counted once.",
             train_sent_legend(report));
    print_wrapped(out, text, 2);
    if (columns.seconds > 0) {
        snprintf(text, sizeof text,
                 "at %.3g s: the loss of every run when the first was done, by the time of its steps.",
                 columns.seconds);
        print_wrapped(out, text, 2);
    }
    for (size_t i = 0; i < report->run_count; i++)
        print_bypass(&report->runs[i], names[i], out);
    for (size_t i = 0; i < report->run_count; i++)
        if (report->runs[i].stopped)
            print_stop(report, &report->runs[i], names[i], out);
}

/* ---- for machines ---- */

static void put_run(struct json_writer *json, const struct train_report *report, const struct train_result *result,
                    const char *algorithm)
{
    json_open_object(json, NULL);
    json_put_text(json, "codec", result->codec->codec_text);
    json_put_text(json, "feedback", result->codec->feedback_text);
    json_put_text(json, "algorithm", algorithm);
    json_put_unsigned(json, "world", report->world);
    json_put_text(json, "transport", report->transport);
    if (report->link[0])
        json_put_text(json, "link", report->link);
    if (report->hosts > 0)
        json_put_unsigned(json, "hosts", report->hosts);
    json_put_real(json, "final_loss", result->final_loss);
    json_put_real(json, "accuracy", result->accuracy);
    json_put_real(json, "distance_to_optimum", result->distance);
    json_put_unsigned(json, "bytes_sent", result->bytes_sent);
    json_put_unsigned(json, "dense_bytes", result->dense_bytes);
    json_put_real(json, "wire_ratio", train_wire_ratio(result));
    json_put_real(json, "frame_ratio", result->ratio);
    json_open_object(json, "stages");
    for (int i = 0; i < STAGE_COUNT; i++)
        json_put_real(json, train_stage_names[i], result->stages[i]);
    json_close_object(json);
    json_put_text(json, "weights_hash", result->weights_hash);
    json_put_unsigned(json, "steps", result->steps);
    json_put_unsigned(json, "skipped", result->skipped);
    json_put_text(json, "reduce", train_reduce_choices[result->reduce]);
    json_put_real(json, "residual_norm", result->residual_norm);
    if (result->bypass_change_count > 0) {
        json_open_array(json, "bypass_changes");
        for (size_t i = 0; i < result->bypass_change_count; i++)
            json_put_unsigned(json, NULL, result->bypass_changes[i]);
        json_close_array(json);
    }
    json_put_bool(json, "diverged", train_has_diverged(result));
    json_put_bool(json, "stopped", result->stopped);
    json_close_object(json);
}

void train_print_json(const struct train_report *report, const char *algorithm, const char *stopped, FILE *out)
{
    struct json_writer json = json_writer_on(out);
    json_open_object(&json, NULL);
    json_open_array(&json, "runs");
    for (size_t i = 0; i < report->run_count; i++)
        put_run(&json, report, &report->runs[i], algorithm);
    json_close_array(&json);
    if (stopped)
        json_put_text(&json, "stopped", stopped);
    json_close_object(&json);
}
