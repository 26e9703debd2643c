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

static void add_row(struct table *table, const struct train_result *result, bool has_accuracy, bool has_distance)
{
    char bytes[BYTES_TEXT];
    table_cell(table, "%s", result->codec->codec_text);
    table_cell(table, "%s", result->codec->feedback_text);
    add_number(table, "%.5g", result->final_loss);
    if (has_accuracy)
        add_number(table, "%.2f %%", 100 * result->accuracy);
    if (has_distance)
        add_number(table, "%.3e", result->distance);
    table_cell(table, "%s", bytes_text((double)result->bytes_sent, bytes));
    table_cell(table, "%.1f", result->ratio);
    for (int i = 0; i < STAGE_COUNT; i++)
        table_cell(table, "%.3f", result->stages[i]);
}

void train_print_table(const struct train_report *report, FILE *out)
{
    char parameters[GROUPED_MAX], rows[GROUPED_MAX];
    bool has_accuracy = false, has_distance = false;
    for (size_t i = 0; i < report->run_count; i++) {
        has_accuracy = has_accuracy || isfinite(report->runs[i].accuracy);
        has_distance = has_distance || isfinite(report->runs[i].distance);
    }
    fprintf(out, "%s, %s rows; %s: %s parameters; %" PRIu32 " workers (%s), %" PRIu64 " steps, %s, %s\n\n",
            report->data, grouped(report->train_rows, rows), report->model, grouped(report->parameters, parameters),
            report->world, report->transport, report->runs[0].steps, report->device, report->blas);
    struct table table;
    char alignment[16] = "llrrr";
    size_t columns = 5;
    for (size_t extra = (size_t)STAGE_COUNT + has_accuracy + has_distance; extra > 0; extra--)
        alignment[columns++] = 'r';
    alignment[columns] = '\0';
    table_start(&table, alignment);
    table_cell(&table, "codec");
    table_cell(&table, "feedback");
    table_cell(&table, report->on_test_rows ? "test loss" : "loss");
    if (has_accuracy)
        table_cell(&table, "accuracy");
    if (has_distance)
        table_cell(&table, "|w-w*|²");
    table_cell(&table, "sent");
    table_cell(&table, "ratio");
    for (int i = 0; i < STAGE_COUNT; i++)
        table_cell(&table, "%s s", train_stage_names[i]);
    for (size_t i = 0; i < report->run_count; i++)
        add_row(&table, &report->runs[i], has_accuracy, has_distance);
    table_end(&table, out);
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
    json_put_real(json, "final_loss", result->final_loss);
    json_put_real(json, "accuracy", result->accuracy);
    json_put_real(json, "distance_to_optimum", result->distance);
    json_put_unsigned(json, "bytes_sent", result->bytes_sent);
    json_put_unsigned(json, "dense_bytes", result->dense_bytes);
    json_put_real(json, "ratio", result->ratio);
    json_open_object(json, "stages");
    for (int i = 0; i < STAGE_COUNT; i++)
        json_put_real(json, train_stage_names[i], result->stages[i]);
    json_close_object(json);
    json_put_text(json, "weights_hash", result->weights_hash);
    json_put_unsigned(json, "steps", result->steps);
    json_put_unsigned(json, "skipped", result->skipped);
    json_put_text(json, "reduce", train_reduce_choices[result->reduce]);
    json_put_real(json, "residual_norm", result->residual_norm);
    json_close_object(json);
}

void train_print_json(const struct train_report *report, const char *algorithm, FILE *out)
{
    struct json_writer json = json_writer_on(out);
    json_open_object(&json, NULL);
    json_open_array(&json, "runs");
    for (size_t i = 0; i < report->run_count; i++)
        put_run(&json, report, &report->runs[i], algorithm);
    json_close_array(&json);
    json_close_object(&json);
}
