/* The benchmark's results, for people and as JSON. */
#include "bench.h"
#include "json_writer.h"
#include "table.h"
#include "terminal.h"

#include <math.h>
#include <stdio.h>

enum floor_kind bench_encode_floor(const struct bench *bench)
{
    return bench->feedback ? FLOOR_ACCUMULATE : FLOOR_READ;
}

const double *bench_floors(const struct bench *bench, const struct bench_row *row)
{
    return bench->one_ruler ? bench->floors_ms : row->floors_ms;
}

static bool has_result(const struct bench_row *row) { return row->refusal[0] == '\0'; }

/* ---- for people ---- */

static void add_ms(struct table *table, double ms)
{
    if (ms >= 0.01)
        table_cell(table, "%.4f", ms);
    else
        table_cell(table, "%.2e", ms);
}

static void print_floors(const struct bench *bench)
{
    struct table table;
    table_start(&table, "lrr");
    table_cell(&table, "floor");
    table_cell(&table, "ms");
    table_cell(&table, "GB/s");
    for (int i = 0; i < FLOOR_COUNT; i++) {
        table_cell(&table, "%s", floor_names[i]);
        add_ms(&table, bench->floors_ms[i]);
        table_cell(&table, "%.1f", (double)bench->count * floor_bytes[i] / bench->floors_ms[i] * 1e-6);
    }
    table_end(&table, stdout);
}

static void add_error(struct table *table, double error)
{
    if (isfinite(error))
        table_cell(table, "%.2g", error);
    else
        table_cell(table, "-");
}

static void add_wide_row(struct table *table, const struct bench *bench, const struct bench_row *row)
{
    const struct measurement *measured = &row->measurement;
    const double *floors = bench_floors(bench, row), break_even = bench_break_even(bench, row);
    add_ms(table, row->encode_ms);
    table_cell(table, "%.1f", bench_speed(bench, row->encode_ms));
    table_cell(table, "%.2f", row->encode_ms / floors[bench_encode_floor(bench)]);
    add_ms(table, row->decode_ms);
    add_ms(table, row->add_ms);
    table_cell(table, "%.1f", bench_speed(bench, row->add_ms));
    table_cell(table, "%.2f", row->add_ms / floors[FLOOR_SCALE]);
    table_cell(table, "%.2f", row->peers_add_ms / floors[FLOOR_SCALE]);
    add_ms(table, row->verify_ms);
    table_cell(table, "%.4f", measured->bits_per_element);
    table_cell(table, "%.4f", measured->limit_bits_per_element);
    add_error(table, measured->relative_error);
    if (break_even > 0)
        table_cell(table, "%.3g", break_even);
    else
        table_cell(table, "-");
}

static void add_row(struct table *table, const struct bench *bench, const struct bench_row *row, bool wide)
{
    table_cell(table, "%s", row->spec->label);
    if (!has_result(row)) {
        for (size_t i = 1; i < table->columns; i++)
            table_cell(table, "-");
        return;
    }
    if (wide) {
        add_wide_row(table, bench, row);
        return;
    }
    table_cell(table, "%.1f", bench_speed(bench, row->encode_ms));
    table_cell(table, "%.1f", bench_speed(bench, row->add_ms));
    table_cell(table, "%.3f", row->measurement.bits_per_element);
    add_error(table, row->measurement.relative_error);
}

static void print_rows(const struct bench *bench, const struct bench_row *rows, size_t row_count, bool wide)
{
    static const char *const few[] = {"codec", "enc GB/s", "add GB/s", "bits", "error", NULL};
    static const char *const all[] = {"codec",      "encode ms", "GB/s",    "x read",     "decode ms",
                                      "add ms",     "GB/s",      "x scale", "4 peers",    "verify ms",
                                      "bits/elem.", "limit",     "error",   "pays below", NULL};
    struct table table;
    table_start(&table, wide ? "lrrrrrrrrrrrrr" : "lrrrr");
    for (const char *const *name = wide ? all : few; *name; name++)
        table_cell(&table, "%s", wide && name == all + 3 && bench->feedback ? "x accum." : *name);
    for (size_t i = 0; i < row_count; i++)
        add_row(&table, bench, &rows[i], wide);
    if (!wide)
        table_fit(&table, 0, terminal_width(stdout));
    table_end(&table, stdout);
    print_wrapped(
        stdout,
        "GB/s of gradient (4 bytes per element); bits per element; error: |decoded - x|^2 / |x|^2 of one encode "
        "without feedback",
        2);
    if (wide)
        print_wrapped(stdout, "pays below: Gbit/s of a rank's link below which it saves time", 2);
}

void bench_print_text(const struct bench *bench, const struct bench_row *rows, size_t row_count, bool wide,
                      const struct comparison *comparison)
{
    char count[GROUPED_MAX], verdict[VERDICT_MAX][VERDICT_TEXT];
    printf("%s, %s elements, %s%s\n\n", tg_device_name(bench->device), grouped(bench->count, count),
           bench->distribution, bench->feedback ? ", with error feedback" : "");
    print_floors(bench);
    puts("");
    print_rows(bench, rows, row_count, wide);
    for (size_t i = 0; i < row_count; i++) {
        if (has_result(&rows[i]))
            continue;
        char text[sizeof rows[i].refusal + TG_SPEC_TEXT + 2];
        snprintf(text, sizeof text, "%s: %s", rows[i].spec->label, rows[i].refusal);
        puts("");
        print_wrapped(stdout, text, 0);
    }
    if (comparison)
        comparison_print(bench, rows, row_count, comparison);
    size_t sentences = bench_verdict(bench, rows, row_count, verdict);
    if (sentences > 0)
        printf("\n%sIn short%s\n", colour_on(stdout, COLOUR_HEADING), colour_off(stdout));
    for (size_t i = 0; i < sentences; i++)
        print_wrapped(stdout, verdict[i], 2);
}

/* ---- for machines ---- */

static void put_row(struct json_writer *json, const struct bench *bench, const struct bench_row *row)
{
    bool done = has_result(row);
    const double *floors = bench_floors(bench, row), break_even = done ? bench_break_even(bench, row) : NAN;
    const struct measurement *measured = &row->measurement;
    json_open_object(json, NULL);
    json_put_text(json, "codec", row->spec->text);
    json_put_unsigned(json, "count", bench->count);
    json_put_text(json, "distribution", bench->distribution);
    json_put_bool(json, "feedback", bench->feedback);
    json_put_real(json, "encode_ms", row->encode_ms);
    json_put_real(json, "decode_ms", row->decode_ms);
    json_put_real(json, "decode_add_ms", row->add_ms);
    json_put_real(json, "decode_add_4_ms", row->peers_add_ms);
    json_put_real(json, "verify_ms", row->verify_ms);
    json_put_real(json, "encode_x_floor", row->encode_ms / floors[bench_encode_floor(bench)]);
    json_put_real(json, "decode_add_x_floor", row->add_ms / floors[FLOOR_SCALE]);
    json_put_real(json, "decode_add_4_x_floor", row->peers_add_ms / floors[FLOOR_SCALE]);
    json_put_real(json, "verified_add_x_floor", row->verified_add_ms / floors[FLOOR_SCALE]);
    json_put_real(json, "verified_add_4_x_floor", row->verified_peers_add_ms / floors[FLOOR_SCALE]);
    json_open_object(json, "floors_ms");
    for (int i = 0; i < FLOOR_COUNT; i++)
        json_put_real(json, floor_names[i], floors[i]);
    json_close_object(json);
    json_put_real(json, "encode_gb_per_s", done ? bench_speed(bench, row->encode_ms) : NAN);
    json_put_real(json, "decode_add_gb_per_s", done ? bench_speed(bench, row->add_ms) : NAN);
    json_put_real(json, "break_even_gbit_per_s", break_even > 0 ? break_even : NAN);
    json_put_real(json, "encode_x_moves", row->encode_ms / row->encode_moves_ms);
    if (!row->spec->info.sparse) {
        json_put_real(json, "verified_add_x_moves", row->verified_add_ms / row->add_moves_ms);
        json_put_real(json, "verified_add_4_x_moves", row->verified_peers_add_ms / row->peers_moves_ms);
    }
    if (done) {
        json_put_unsigned(json, "bytes", measured->bytes);
        json_put_real(json, "bits_per_element", measured->bits_per_element);
        json_put_real(json, "limit_bits_per_element", measured->limit_bits_per_element);
        if (row->spec->info.sparse) {
            json_put_unsigned(json, "index_bits", measured->index_bits);
            json_put_unsigned(json, "selected", measured->selected);
        }
        json_put_real(json, "relative_error", measured->relative_error);
    } else {
        json_put_null(json, "bytes");
        json_put_null(json, "bits_per_element");
        json_put_null(json, "limit_bits_per_element");
        json_put_null(json, "relative_error");
        json_put_text(json, "error", row->refusal);
    }
    json_close_object(json);
}

void bench_print_json(const struct bench *bench, const struct bench_row *rows, size_t row_count,
                      const struct comparison *comparison)
{
    struct json_writer json = json_writer_on(stdout);
    json_open_object(&json, NULL);
    json_put_text(&json, "device", tg_device_name(bench->device));
    json_open_object(&json, "floors_ms");
    for (int i = 0; i < FLOOR_COUNT; i++)
        json_put_real(&json, floor_names[i], bench->floors_ms[i]);
    json_close_object(&json);
    json_open_array(&json, "rows");
    for (size_t i = 0; i < row_count; i++)
        put_row(&json, bench, &rows[i]);
    json_close_array(&json);
    if (comparison)
        comparison_put(comparison, &json);
    char verdict[VERDICT_MAX][VERDICT_TEXT];
    size_t sentences = bench_verdict(bench, rows, row_count, verdict);
    json_open_array(&json, "verdict");
    for (size_t i = 0; i < sentences; i++)
        json_put_text(&json, NULL, verdict[i]);
    json_close_array(&json);
    json_close_object(&json);
}
