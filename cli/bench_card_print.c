/* What was measured on a card, as a table or as JSON. */
#include "bench_card.h"

#include "json_writer.h"
#include "table.h"

#include <math.h>
#include <stdio.h>

static const char *const names[KINDS] = {"encode", "verify + add", "verify + add 4", "add", "add 4"};
static const char *const keys[KINDS] = {"encode", "verify_add", "verify_add_peers", "add", "add_peers"};

/* Bytes that an operation must read and write. */
static double bytes_of(const struct card_report *report, const struct card_row *row, enum card_kind kind)
{
    const double vector = 4 * (double)report->count, frame = (double)row->bytes;
    switch (kind) {
    case ENCODE:
        return (report->feedback ? 3 : 1) * vector + frame;
    case VERIFY_ADD:
    case ADD:
        return 2 * vector + frame;
    default:
        return 2 * vector + BENCH_PEERS * frame;
    }
}

static double seconds_of(const struct card_row *row, enum card_kind kind)
{
    return isnan(row->seconds[kind]) ? row->waiting[kind] : row->seconds[kind];
}

double card_fraction(const struct card_report *report, const struct card_row *row, enum card_kind kind)
{
    return bytes_of(report, row, kind) / seconds_of(row, kind) / report->copied;
}

static void add_row(struct table *table, const struct card_report *report, const struct card_row *row, bool wide)
{
    if (row->parts > 1)
        table_cell(table, "  as %zu tensors", row->parts);
    else
        table_cell(table, "%s", row->label);
    table_cell(table, "%.3f", 8 * (double)row->bytes / (double)report->count);
    for (enum card_kind kind = 0; kind < KINDS; kind++) {
        if (isnan(seconds_of(row, kind)))
            table_cell(table, "-");
        else
            table_cell(table, "%.1f%s (%.2f)", seconds_of(row, kind) * 1e6, isnan(row->seconds[kind]) ? "w" : "",
                       card_fraction(report, row, kind));
    }
    if (!wide || row->parts > 1)
        return;
    table_cell(table, "  and a wait for each");
    table_cell(table, "%s", "");
    for (enum card_kind kind = 0; kind < KINDS; kind++)
        table_cell(table, "%.1f", row->waiting[kind] * 1e6);
}

void card_print_text(const struct card_report *report, bool wide)
{
    struct table table;
    bool waits = false;
    printf("%s, %zu elements%s; copy %.2f TB/s read and written\n\n", report->device, report->count,
           report->feedback ? ", with feedback" : "", report->copied * 1e-12);
    table_start(&table, "lrrrrrr");
    table_cell(&table, "microseconds (fraction of copy)");
    table_cell(&table, "bits");
    for (enum card_kind kind = 0; kind < KINDS; kind++)
        table_cell(&table, "%s", names[kind]);
    for (size_t i = 0; i < report->row_count; i++) {
        if (report->rows[i].refusal[0])
            continue;
        add_row(&table, report, &report->rows[i], wide);
        for (enum card_kind kind = 0; kind < KINDS; kind++)
            waits |= isnan(report->rows[i].seconds[kind]) && !isnan(report->rows[i].waiting[kind]);
    }
    table_end(&table, stdout);
    if (waits)
        puts("w: a call that waits, launches included; the others follow each other on the card");
    for (size_t i = 0; i < report->row_count; i++)
        if (report->rows[i].refusal[0])
            printf("%s: %s\n", report->rows[i].label, report->rows[i].refusal);
    comparison_print_card(report->comparison);
}

static void put_row(struct json_writer *json, const struct card_report *report, const struct card_row *row)
{
    json_open_object(json, NULL);
    json_put_text(json, "codec", row->label);
    json_put_unsigned(json, "tensors", row->parts);
    json_put_text(json, "refusal", row->refusal[0] ? row->refusal : NULL);
    json_put_unsigned(json, "bytes", row->bytes);
    for (enum card_kind kind = 0; !row->refusal[0] && kind < KINDS; kind++) {
        json_open_object(json, keys[kind]);
        json_put_real(json, "microseconds", row->seconds[kind] * 1e6);
        json_put_real(json, "waiting_microseconds", row->waiting[kind] * 1e6);
        json_put_real(json, "fraction_of_copy", card_fraction(report, row, kind));
        json_close_object(json);
    }
    json_close_object(json);
}

void card_print_json(const struct card_report *report)
{
    struct json_writer json = json_writer_on(stdout);
    json_open_object(&json, NULL);
    json_put_text(&json, "device", report->device);
    json_put_unsigned(&json, "count", report->count);
    json_put_bool(&json, "feedback", report->feedback);
    json_put_real(&json, "copy_bytes_per_second", report->copied);
    json_open_array(&json, "rows");
    for (size_t i = 0; i < report->row_count; i++)
        put_row(&json, report, &report->rows[i]);
    json_close_array(&json);
    if (report->comparison)
        comparison_put_card(report->comparison, &json);
    json_close_object(&json);
}
