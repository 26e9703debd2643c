/* The benchmark's results, for people and as JSON. */
#include "bench.h"
#include "json_writer.h"
#include "table.h"

#include <math.h>
#include <stdio.h>

enum floor_kind bench_encode_floor(const struct bench *bench)
{
    return bench->feedback ? FLOOR_ACCUMULATE : FLOOR_READ;
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

static void add_row(struct table *table, const struct bench *bench, const struct bench_row *row)
{
    enum { FIGURES = 9 };
    table_cell(table, "%s", row->spec->label);
    if (!has_result(row)) {
        for (int i = 0; i < FIGURES; i++)
            table_cell(table, "-");
        return;
    }
    const struct measurement *measured = &row->measurement;
    add_ms(table, row->encode_ms);
    table_cell(table, "%.2f", row->encode_ms / row->floors_ms[bench_encode_floor(bench)]);
    add_ms(table, row->add_ms);
    table_cell(table, "%.2f", row->add_ms / row->floors_ms[FLOOR_SCALE]);
    table_cell(table, "%.2f", row->peers_add_ms / row->floors_ms[FLOOR_SCALE]);
    add_ms(table, row->verify_ms);
    table_cell(table, "%.4f", measured->bits_per_element);
    table_cell(table, "%.4f", measured->limit_bits_per_element);
    if (isfinite(measured->relative_error))
        table_cell(table, "%.3g", measured->relative_error);
    else
        table_cell(table, "-");
}

void bench_print_text(const struct bench *bench, const struct bench_row *rows, size_t row_count,
                      const struct comparison *comparison)
{
    char count[GROUPED_MAX];
    printf("%s, %s elements, %s%s\n\n", tg_device_name(bench->device), grouped(bench->count, count),
           bench->distribution, bench->feedback ? ", with error feedback" : "");
    print_floors(bench);
    puts("");

    struct table table;
    table_start(&table, "lrrrrrrrrr");
    table_cell(&table, "codec");
    table_cell(&table, "encode ms");
    table_cell(&table, bench->feedback ? "x accum." : "x read");
    table_cell(&table, "add ms");
    table_cell(&table, "x scale");
    table_cell(&table, "4 peers");
    table_cell(&table, "verify ms");
    table_cell(&table, "bits/elem.");
    table_cell(&table, "limit");
    table_cell(&table, "rel. error");
    for (size_t i = 0; i < row_count; i++)
        add_row(&table, bench, &rows[i]);
    table_end(&table, stdout);

    for (size_t i = 0; i < row_count; i++)
        if (!has_result(&rows[i]))
            printf("\n%s: %s\n", rows[i].spec->label, rows[i].refusal);
    if (comparison)
        comparison_print(comparison);
}

/* ---- for machines ---- */

static void put_row(struct json_writer *json, const struct bench *bench, const struct bench_row *row)
{
    bool done = has_result(row);
    const struct measurement *measured = &row->measurement;
    json_open_object(json, NULL);
    json_put_text(json, "codec", row->spec->text);
    json_put_unsigned(json, "count", bench->count);
    json_put_text(json, "distribution", bench->distribution);
    json_put_bool(json, "feedback", bench->feedback);
    json_put_real(json, "encode_ms", row->encode_ms);
    json_put_real(json, "decode_add_ms", row->add_ms);
    json_put_real(json, "decode_add_4_ms", row->peers_add_ms);
    json_put_real(json, "verify_ms", row->verify_ms);
    json_put_real(json, "encode_x_floor", row->encode_ms / row->floors_ms[bench_encode_floor(bench)]);
    json_put_real(json, "decode_add_x_floor", row->add_ms / row->floors_ms[FLOOR_SCALE]);
    json_put_real(json, "decode_add_4_x_floor", row->peers_add_ms / row->floors_ms[FLOOR_SCALE]);
    json_put_real(json, "verified_add_x_floor", row->verified_add_ms / row->floors_ms[FLOOR_SCALE]);
    json_put_real(json, "verified_add_4_x_floor", row->verified_peers_add_ms / row->floors_ms[FLOOR_SCALE]);
    json_open_object(json, "floors_ms");
    for (int i = 0; i < FLOOR_COUNT; i++)
        json_put_real(json, floor_names[i], row->floors_ms[i]);
    json_close_object(json);
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
    json_close_object(&json);
}
