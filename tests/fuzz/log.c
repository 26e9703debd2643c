/* Any bytes as a log of `tersegrad train --log`. What is refused says why. What is accepted is drawn on a page and
 * printed as JSON that can be read; and its points, written as a log again, are the same points. */
#include "cli/json_reader.h"
#include "cli/report_logs.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>

#ifdef CLI_HAS_JANSSON

static bool read_log(struct report_logs *logs, const char *text, size_t size, struct failure *failure)
{
    char *exact = exact_buffer(size, 0); /* the sanitizer sees a byte behind it */
    memcpy(exact, text, size);
    const struct file_bytes file = {(uint8_t *)exact, size};
    memset(logs, 0, sizeof *logs);
    const bool is_read = report_logs_read(logs, &file, "a.jsonl", failure);
    free(exact);
    REQUIRE(!is_read || (logs->report.run_count > 0 && failure->text[0] == 0),
            "accepted without a run, or with a sentence");
    return is_read;
}

static json_t *real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static void write_line(FILE *out, json_t *line)
{
    REQUIRE(line && json_dumpf(line, out, JSON_REAL_PRECISION(17)) == 0, "a line cannot be written");
    fputc('\n', out);
    json_decref(line);
}

static void write_point(FILE *out, size_t run, const struct train_codec *codec, const struct train_point *p)
{
    write_line(out,
               json_pack("{sI ss ss sI so sI so so so so so so}", "run", (json_int_t)run, "codec", codec->codec_text,
                         "feedback", codec->feedback_text, "step", (json_int_t)p->step, "batch_loss",
                         real(p->batch_loss), "bytes_sent", (json_int_t)p->bytes_sent, "loss", real(p->loss),
                         "accuracy", real(p->accuracy), "distance_to_optimum", real(p->distance), "residual_norm",
                         real(p->residual_norm), "selected", real(p->selected), "seconds", real(p->seconds)));
}

/* The points alone, behind a first line for each run, which has none. */
static char *written(const struct train_report *report, size_t *size)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    REQUIRE(out, "memory for a text");
    for (size_t i = 0; i < report->run_count; i++) {
        const struct train_codec *codec = report->runs[i].codec;
        write_line(out, json_pack("{sI ss ss sI}", "run", (json_int_t)i, "codec", codec->codec_text, "feedback",
                                  codec->feedback_text, "step", (json_int_t)0));
        for (size_t j = 0; j < report->runs[i].point_count; j++)
            write_point(out, i, codec, &report->runs[i].points[j]);
    }
    REQUIRE(fclose(out) == 0 && text, "memory for a text");
    return text;
}

static bool same(double a, double b) { return a == b || (!isfinite(a) && !isfinite(b)); }

static void compare(const struct train_result *a, const struct train_result *b)
{
    REQUIRE(strcmp(a->codec->codec_text, b->codec->codec_text) == 0 &&
                strcmp(a->codec->feedback_text, b->codec->feedback_text) == 0,
            "another codec");
    REQUIRE(a->point_count == b->point_count, "%zu points, then %zu", a->point_count, b->point_count);
    for (size_t i = 0; i < a->point_count; i++) {
        const struct train_point *p = &a->points[i], *q = &b->points[i];
        REQUIRE(p->step == q->step && p->bytes_sent == q->bytes_sent && same(p->batch_loss, q->batch_loss) &&
                    same(p->loss, q->loss) && same(p->accuracy, q->accuracy) && same(p->distance, q->distance) &&
                    same(p->residual_norm, q->residual_norm) && same(p->selected, q->selected) &&
                    same(p->seconds, q->seconds),
                "point %zu is another one", i);
    }
}

static void read_again(const struct train_report *report)
{
    static struct report_logs again;
    struct failure failure = {{0}};
    size_t size;
    char *text = written(report, &size);
    REQUIRE(read_log(&again, text, size, &failure), "what was written is refused: %s", failure.text);
    REQUIRE(again.report.run_count == report->run_count, "%zu runs, then %zu", report->run_count,
            again.report.run_count);
    for (size_t i = 0; i < report->run_count; i++)
        compare(&report->runs[i], &again.report.runs[i]);
    report_logs_free(&again);
    free(text);
}

static void check_json(const struct train_report *report)
{
    char *text = NULL;
    size_t size = 0;
    struct failure failure = {{0}};
    FILE *out = open_memstream(&text, &size);
    REQUIRE(out, "memory for a text");
    train_print_json(report, NULL, NULL, out);
    REQUIRE(fclose(out) == 0 && text, "memory for a text");
    json_t *value = json_read(text, size, &failure);
    REQUIRE(value, "%s", failure.text);
    json_decref(value);
    free(text);
}

static void check_page(const struct report_logs *logs)
{
    static const struct origin origin;
    const struct page page = {.report = &logs->report,
                              .origin = &origin,
                              .heading = "Run",
                              .description = "",
                              .sources = logs->sources,
                              .commands = logs->commands};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    REQUIRE(out, "memory for a page");
    REQUIRE(page_put(out, &page), "no memory for a page");
    REQUIRE(fclose(out) == 0 && text, "memory for a page");
    REQUIRE(strstr(text, "</html>"), "a page without an end");
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct report_logs logs;
    struct failure failure = {{0}};
    if (read_log(&logs, (const char *)data, size, &failure)) {
        report_logs_settle(&logs);
        check_page(&logs);
        check_json(&logs.report);
        read_again(&logs.report);
    } else
        REQUIRE(failure.text[0] != 0, "refused without a reason");
    report_logs_free(&logs);
    return 0;
}

#else

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)data, (void)size;
    return 0;
}

#endif
