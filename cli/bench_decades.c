/* Whether cost grows with the vector and no faster: the time that an element takes, at each decade. */
#include "bench.h"
#include "json_writer.h"
#include "table.h"

#include <stdio.h>
#include <stdlib.h>

enum { LEAST = 10000, DECADES = 6 };

struct decade {
    size_t count;
    double read_ms; /* the floor */
    struct bench_row *rows;
};

static double ns_each(double ms, size_t count) { return ms * 1e6 / (double)count; }

static void print_text(const struct bench *bench, const struct decade *decades, int decade_count, size_t row_count)
{
    printf("%s, %s%s: nanoseconds per element\n\n", tg_device_name(bench->device), bench->distribution,
           bench->feedback ? ", with error feedback" : "");
    struct table table;
    table_start(&table, "llrrrrrr");
    table_cell(&table, "codec");
    table_cell(&table, "%s", "");
    for (int d = 0; d < DECADES; d++)
        if (d < decade_count)
            table_cell(&table, "%zu", decades[d].count);
        else
            table_cell(&table, "%s", "");
    for (size_t i = 0; i <= row_count; i++) {
        for (int add = 0; add < (i < row_count ? 2 : 1); add++) {
            table_cell(&table, "%s", i < row_count ? (add ? "" : decades[0].rows[i].spec->label) : "(read)");
            table_cell(&table, "%s", i == row_count ? "" : add ? "add" : "encode");
            for (int d = 0; d < DECADES; d++) {
                if (d >= decade_count) {
                    table_cell(&table, "%s", "");
                    continue;
                }
                const struct bench_row *row = &decades[d].rows[i < row_count ? i : 0]; /* there is one at least */
                double ms = i == row_count ? decades[d].read_ms : add ? row->add_ms : row->encode_ms;
                table_cell(&table, "%.3f", ns_each(ms, decades[d].count));
            }
        }
    }
    table_end(&table, stdout);
}

static void print_json(const struct bench *bench, const struct decade *decades, int decade_count, size_t row_count)
{
    struct json_writer json = json_writer_on(stdout);
    json_open_object(&json, NULL);
    json_put_text(&json, "device", tg_device_name(bench->device));
    json_open_array(&json, "decades");
    for (int d = 0; d < decade_count; d++) {
        json_open_object(&json, NULL);
        json_put_unsigned(&json, "count", decades[d].count);
        json_put_real(&json, "read_ns", ns_each(decades[d].read_ms, decades[d].count));
        json_open_array(&json, "rows");
        for (size_t i = 0; i < row_count; i++) {
            const struct bench_row *row = &decades[d].rows[i];
            json_open_object(&json, NULL);
            json_put_text(&json, "codec", row->spec->text);
            json_put_real(&json, "encode_ns", ns_each(row->encode_ms, decades[d].count));
            json_put_real(&json, "decode_add_ns", ns_each(row->add_ms, decades[d].count));
            json_close_object(&json);
        }
        json_close_array(&json);
        json_close_object(&json);
    }
    json_close_array(&json);
    json_close_object(&json);
}

bool bench_run_decades(struct bench *bench, const struct spec_list *specs, bool as_json, struct failure *failure)
{
    struct decade decades[DECADES] = {{0}};
    int decade_count = 0;
    bool is_done = true;
    const size_t most = bench->count;
    for (size_t count = LEAST; count <= most && decade_count < DECADES && is_done; count *= 10) {
        struct decade *decade = &decades[decade_count++];
        decade->count = bench->count = count;
        decade->rows = calloc(specs->count, sizeof *decade->rows);
        if (!decade->rows) {
            decade_count--;
            is_done = fail(failure, "out of memory for %zu rows", specs->count);
            break;
        }
        is_done = bench_measure(bench, specs, decade->rows, failure);
        decade->read_ms = bench->floors_ms[FLOOR_READ];
    }
    if (is_done && decade_count == 0)
        is_done = fail(failure, "--decades starts with %d elements; use a larger -n", (int)LEAST);
    if (is_done)
        (as_json ? print_json : print_text)(bench, decades, decade_count, specs->count);
    for (int d = 0; d < decade_count; d++)
        free(decades[d].rows);
    return is_done;
}
