/* What `tersegrad train` shows while it works, on stderr: on a terminal a line that moves, elsewhere one line for each
 * run and one every ten seconds. */
#include "train.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define TEN_SECONDS UINT64_C(10000000000)

const char *bytes_text(double bytes, char text[BYTES_TEXT])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    for (; bytes >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++)
        bytes /= 1000;
    snprintf(text, BYTES_TEXT,
             unit == 0 || bytes >= 99.95 ? "%.0f %s"
             : bytes >= 9.995            ? "%.1f %s"
                                         : "%.2f %s",
             bytes, units[unit]);
    return text;
}

const char *ratio_text(double ratio, char text[BYTES_TEXT])
{
    snprintf(text, BYTES_TEXT, isfinite(ratio) && ratio > 0 ? "%.1fx" : "-", ratio);
    return text;
}

const char *run_name(const struct train_codec *codec, char text[RUN_NAME])
{
    bool has_feedback = codec->feedback.kind != TG_FEEDBACK_NONE;
    snprintf(text, RUN_NAME, "%s%s%s", codec->codec_text, has_feedback ? ", " : "",
             has_feedback ? codec->feedback_text : "");
    return text;
}

/* ---- the line ---- */

static void describe(const struct train_progress *progress, char *text, size_t capacity)
{
    char bytes[BYTES_TEXT], ratio[BYTES_TEXT];
    int used = snprintf(text, capacity, "loss %.4g", progress->point ? progress->point->loss : progress->loss);
    if (progress->point && isfinite(progress->point->accuracy))
        used += snprintf(text + used, capacity - (size_t)used, "  %.1f %% correct", 100 * progress->point->accuracy);
    snprintf(text + used, capacity - (size_t)used, "  sent %s  %s", bytes_text((double)progress->bytes_sent, bytes),
             ratio_text(progress->wire_ratio, ratio));
}

static void show(struct train_live *live, const struct train_progress *progress)
{
    char text[160], name[RUN_NAME];
    uint64_t now = clock_ns();
    if (!live->is_shown || live->run != progress->run) {
        live->run = progress->run;
        live->is_shown = true;
        live->start_ns = live->spoken_ns = now;
        const char *codec = live->settings->runs[live->run].codec_text;
        snprintf(live->label, sizeof live->label, "%zu/%zu %.*s", live->run + 1, live->settings->run_count,
                 (int)(strcspn(codec, ":") < 16 ? strcspn(codec, ":") : 16), codec);
        progress_start(&live->progress, live->label);
    }
    describe(progress, text, sizeof text);
    progress_update(&live->progress, (double)progress->step / (double)progress->steps, text);
    if (!live->progress.terminal && now - live->spoken_ns >= TEN_SECONDS) {
        live->spoken_ns = now;
        fprintf(stderr, "%s: step %" PRIu64 " of %" PRIu64 "  %s\n", run_name(&live->settings->runs[live->run], name),
                progress->step, progress->steps, text);
    }
}

void train_live_levels(void *context, uint32_t hosts, uint32_t least, uint32_t most)
{
    (void)context;
    if (least == most)
        fprintf(stderr, "two levels: %" PRIu32 " hosts of %" PRIu32 " ranks\n", hosts, least);
    else
        fprintf(stderr, "two levels: %" PRIu32 " hosts of %" PRIu32 " to %" PRIu32 " ranks\n", hosts, least, most);
}

void train_live_step(void *context, const struct train_progress *progress)
{
    struct train_live *live = context;
    show(live, progress);
    if (live->options->log)
        train_log_step(live, progress);
}

void train_live_end(void *context, size_t run, const struct train_result *result)
{
    struct train_live *live = context;
    char name[RUN_NAME], bytes[BYTES_TEXT], wire[BYTES_TEXT], frames[BYTES_TEXT];
    if (live->options->log)
        train_log_open(live); /* a run may end without a step, and an old log is not of this training */
    if (live->is_shown)
        progress_end(&live->progress);
    live->is_shown = false;
    run_name(&live->settings->runs[run], name);
    if (train_has_diverged(result))
        fprintf(stderr, "%s: diverged (try a smaller --lr)", name);
    else
        fprintf(stderr, "%s: loss %.4g", name, result->final_loss);
    if (isfinite(result->accuracy))
        fprintf(stderr, ", accuracy %.2f %%", 100 * result->accuracy);
    fprintf(stderr, " after %" PRIu64 " steps; sent %s, wire %s, frames %s", result->steps,
            bytes_text((double)result->bytes_sent, bytes), ratio_text(train_wire_ratio(result), wire),
            ratio_text(result->ratio, frames));
    if (result->skipped)
        fprintf(stderr, "; %" PRIu64 " steps skipped", result->skipped);
    fputc('\n', stderr);
}
