/* What people use today, beside us: a Python script that is part of the command does the work, in whatever python3 is
 * on PATH. */
#include "bench.h"
#include "json_writer.h"
#include "table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* share/compare.py, as it is. */
__asm__(".pushsection .rodata\n"
        ".global compare_script\n"
        "compare_script:\n"
        ".incbin \"share/compare.py\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char compare_script[];

enum { ROWS = 32 };

struct compared {
    char name[64], floor, note[160];
    double ms, bits; /* NaN: none */
};

struct comparison {
    size_t count;
    double floors_ms[FLOOR_COUNT];
    struct compared rows[ROWS];
};

static double floor_of(const struct comparison *c, char floor)
{
    return c->floors_ms[floor == 'A' ? FLOOR_ACCUMULATE : floor == 'S' ? FLOOR_SCALE : FLOOR_READ];
}

static void run_python(const struct bench *bench, int output)
{
    char count[32], seconds[32], threads[32];
    const char *device = tg_device_name(bench->device);
    snprintf(count, sizeof count, "%zu", bench->count);
    snprintf(seconds, sizeof seconds, "%g", bench->seconds);
    snprintf(threads, sizeof threads, "%u", device_threads(tg_device_name(bench->device)));
    dup2(output, STDOUT_FILENO);
    execlp("python3", "python3", "-c", compare_script, count, seconds, threads,
           strncmp(device, "cuda", 4) == 0 ? device : "cpu", (char *)NULL);
    _exit(127);
}

/* name, milliseconds, floor, bits per element, note; tabs in between, and - for what there is not. */
static bool parse(char *line, struct compared *row)
{
    char *fields[5];
    for (int i = 0; i < 5; i++) {
        fields[i] = line;
        if (!line)
            return false;
        line = strchr(line, i < 4 ? '\t' : '\n');
        if (line)
            *line++ = '\0';
    }
    snprintf(row->name, sizeof row->name, "%.60s", fields[0]);
    row->ms = strcmp(fields[1], "-") == 0 ? NAN : strtod(fields[1], NULL);
    row->floor = fields[2][0];
    row->bits = strcmp(fields[3], "-") == 0 ? NAN : strtod(fields[3], NULL);
    snprintf(row->note, sizeof row->note, "%.150s", fields[4]);
    return true;
}

bool comparison_run(const struct bench *bench, struct comparison **comparison, struct failure *failure)
{
    int ends[2];
    struct comparison *c = calloc(1, sizeof *c);
    if (!c || pipe(ends) != 0) {
        free(c);
        return fail(failure, "out of memory for a comparison");
    }
    memcpy(c->floors_ms, bench->floors_ms, sizeof c->floors_ms);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        run_python(bench, ends[1]);
    close(ends[1]);
    FILE *lines = child > 0 ? fdopen(ends[0], "r") : NULL;
    char line[512];
    while (lines && c->count < ROWS && fgets(line, sizeof line, lines))
        c->count += parse(line, &c->rows[c->count]);
    if (lines)
        fclose(lines);
    int status = -1;
    if (child > 0)
        waitpid(child, &status, 0);
    *comparison = c;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return fail(failure, "--compare needs python3, and there is none on PATH");
    return fail(failure, "--compare: python3 failed; its output is above");
}

/* Ours first, against the same floors. */
static void add_ours(struct table *table, const struct bench *bench, const struct bench_row *row)
{
    const enum floor_kind kind = bench_encode_floor(bench);
    if (row->refusal[0])
        return;
    table_cell(table, "%s", row->spec->label);
    table_cell(table, "%.4g", row->encode_ms);
    table_cell(table, "%.2f %c", row->encode_ms / bench->floors_ms[kind], kind == FLOOR_ACCUMULATE ? 'A' : 'R');
    table_cell(table, "%.4f", row->measurement.bits_per_element);
    table_cell(table, "tersegrad");
}

void comparison_print(const struct bench *bench, const struct bench_row *rows, size_t row_count,
                      const struct comparison *c)
{
    struct table table;
    puts("");
    table_start(&table, "lrrrl");
    table_cell(&table, "beside others");
    table_cell(&table, "ms");
    table_cell(&table, "x floor");
    table_cell(&table, "bits/elem.");
    table_cell(&table, "%s", "");
    for (size_t i = 0; i < row_count; i++)
        add_ours(&table, bench, &rows[i]);
    for (size_t i = 0; i < c->count; i++) {
        const struct compared *row = &c->rows[i];
        table_cell(&table, "%s", row->name);
        if (isnan(row->ms)) {
            table_cell(&table, "-");
            table_cell(&table, "-");
        } else {
            table_cell(&table, "%.4g", row->ms);
            table_cell(&table, "%.2f %c", row->ms / floor_of(c, row->floor), row->floor);
        }
        if (isnan(row->bits))
            table_cell(&table, "-");
        else
            table_cell(&table, "%.4f", row->bits);
        table_cell(&table, "%s", row->note);
    }
    table_fit(&table, 4, terminal_width(stdout));
    table_end(&table, stdout);
}

void comparison_put(const struct comparison *c, struct json_writer *json)
{
    json_open_array(json, "compare");
    for (size_t i = 0; i < c->count; i++) {
        const struct compared *row = &c->rows[i];
        const char floor[2] = {row->floor, '\0'};
        json_open_object(json, NULL);
        json_put_text(json, "name", row->name);
        json_put_real(json, "ms", row->ms);
        json_put_text(json, "floor", floor);
        json_put_real(json, "x_floor", row->ms / floor_of(c, row->floor));
        json_put_real(json, "bits_per_element", row->bits);
        json_put_text(json, "note", row->note);
        json_close_object(json);
    }
    json_close_array(json);
}

void comparison_print_card(const struct comparison *c)
{
    struct table table;
    if (!c)
        return;
    puts("");
    table_start(&table, "lrrl");
    table_cell(&table, "beside others, on the same card");
    table_cell(&table, "microseconds");
    table_cell(&table, "bits/elem.");
    table_cell(&table, "%s", "");
    for (size_t i = 0; i < c->count; i++) {
        const struct compared *row = &c->rows[i];
        table_cell(&table, "%s", row->name);
        if (isnan(row->ms))
            table_cell(&table, "-");
        else
            table_cell(&table, "%.1f", row->ms * 1e3);
        if (isnan(row->bits))
            table_cell(&table, "-");
        else
            table_cell(&table, "%.4f", row->bits);
        table_cell(&table, "%s", row->note);
    }
    table_fit(&table, 3, terminal_width(stdout));
    table_end(&table, stdout);
}

void comparison_put_card(const struct comparison *c, struct json_writer *json)
{
    json_open_array(json, "compare");
    for (size_t i = 0; i < c->count; i++) {
        const struct compared *row = &c->rows[i];
        json_open_object(json, NULL);
        json_put_text(json, "name", row->name);
        json_put_real(json, "microseconds", row->ms * 1e3);
        json_put_real(json, "bits_per_element", row->bits);
        json_put_text(json, "note", row->note);
        json_close_object(json);
    }
    json_close_array(json);
}
