/* The log of `tersegrad train`: a JSON object on each line, for each step. A run that was killed had logged steps which
 * its checkpoint does not know of: they are made again, and logged again in the place of what was there. */
#include "train.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a file of that name could be made; none is left. A name that is taken is a link to nowhere: the first step
 * shows whether it can be written through. */
static bool can_make(const char *path)
{
    const int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (descriptor < 0)
        return errno == EEXIST;
    close(descriptor);
    unlink(path);
    return true;
}

bool train_log_check(const char *path, struct failure *failure)
{
    struct stat status;
    const bool exists = stat(path, &status) == 0;
    if (exists && S_ISDIR(status.st_mode))
        errno = EISDIR;
    else if (exists ? access(path, W_OK) == 0 : can_make(path))
        return true;
    return fail(failure, "cannot write the log '%s': %s", path, strerror(errno));
}

void train_log_open(struct train_live *live)
{
    if (live->log || live->log_error != 0)
        return;
    live->log_goes_on = live->settings->resume != NULL;
    live->log = fopen(live->options->log, live->log_goes_on ? "a" : "w");
    if (!live->log)
        live->log_error = errno;
}

bool train_log_close(struct train_live *live, struct failure *failure)
{
    if (live->log && fclose(live->log) != 0 && live->log_error == 0)
        live->log_error = errno;
    return live->log_error == 0 ||
           fail(failure, "cannot write the log '%s': %s", live->options->log, strerror(live->log_error));
}

/* Whether a line is whole, and not of this step of a run or a later one; what is not ours is left alone. */
static bool is_before(const char *line, size_t run, uint64_t step)
{
    const char *found = strstr(line, "\"step\": ");
    size_t its_run;
    uint64_t its_step;
    if (!strchr(line, '\n'))
        return false;
    if (sscanf(line, "{\"run\": %zu,", &its_run) != 1 || !found || sscanf(found, "\"step\": %" SCNu64, &its_step) != 1)
        return true;
    return its_run != run || its_step < step;
}

/* Takes off what was logged from this step on: whatever run a later line is of, it was written after the checkpoint.
 * What is no plain file is only appended to. */
static void cut(struct train_live *live, size_t run, uint64_t step)
{
    struct stat status;
    if (fstat(fileno(live->log), &status) != 0 || !S_ISREG(status.st_mode))
        return;
    FILE *old = fopen(live->options->log, "r");
    char *line = NULL;
    size_t room = 0;
    off_t kept = 0;
    while (old && getline(&line, &room, old) > 0 && is_before(line, run, step))
        kept = ftello(old);
    free(line);
    if (!old || ftruncate(fileno(live->log), kept) != 0)
        live->log_error = errno;
    if (old)
        (void)fclose(old);
}

static void put_string(FILE *out, const char *name, const char *text)
{
    fprintf(out, ", \"%s\": \"", name);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc((unsigned char)*text < 0x20 ? ' ' : *text, out);
    }
    fputc('"', out);
}

/* The first line says where the others are from. A log that goes on has one already. */
static void put_header(const struct train_live *live)
{
    const struct train_report *report = live->report;
    FILE *out = live->log;
    fprintf(out, "{\"tersegrad\": \"%s\"", tg_version());
    put_string(out, "command", live->origin->command);
    put_string(out, "date", live->origin->date);
    put_string(out, "host", live->origin->host);
    put_string(out, "data", report->data);
    put_string(out, "model", report->model);
    if (report->link[0])
        put_string(out, "link", report->link);
    if (report->hosts > 0)
        fprintf(out, ", \"hosts\": %" PRIu32, report->hosts);
    fprintf(out, ", \"workers\": %" PRIu32 ", \"steps\": %" PRIu64 ", \"batch\": %" PRIu64 ", \"seed\": %" PRIu64,
            report->world, report->steps, live->settings->batch, live->settings->seed);
    fprintf(out, ", \"on_test_rows\": %s, \"point_rows\": %" PRIu64 ", \"rows\": %" PRIu64 "}\n",
            report->on_test_rows ? "true" : "false", report->point_rows, report->result_rows);
}

static void put_field(FILE *out, const char *name, double value)
{
    if (isfinite(value))
        fprintf(out, ", \"%s\": %.9g", name, value);
    else
        fprintf(out, ", \"%s\": null", name);
}

void train_log_step(struct train_live *live, const struct train_progress *progress)
{
    train_log_open(live);
    FILE *out = live->log;
    if (!out)
        return;
    if (live->log_goes_on)
        cut(live, progress->run, progress->step);
    if (!live->has_header && ftello(out) <= 0) /* a pipe has no place */
        put_header(live);
    live->log_goes_on = false;
    live->has_header = true;
    const struct train_codec *codec = &live->settings->runs[progress->run];
    fprintf(out, "{\"run\": %zu, \"codec\": \"%s\", \"feedback\": \"%s\", \"step\": %" PRIu64, progress->run,
            codec->codec_text, codec->feedback_text, progress->step);
    put_field(out, "batch_loss", progress->loss);
    put_field(out, "lr", progress->lr);
    fprintf(out, ", \"bytes_sent\": %" PRIu64, progress->bytes_sent);
    put_field(out, "frame_ratio", progress->ratio);
    put_field(out, "wire_ratio", progress->wire_ratio);
    fprintf(out, ", \"skipped\": %s", progress->skipped ? "true" : "false");
    if (live->settings->bypass != TG_BYPASS_OFF)
        fprintf(out, ", \"bypassed\": %s", progress->bypassed ? "true" : "false");
    if (progress->is_point) {
        put_field(out, "loss", progress->point->loss);
        put_field(out, "accuracy", progress->point->accuracy);
        put_field(out, "distance_to_optimum", progress->point->distance);
        put_field(out, "residual_norm", progress->point->residual_norm);
        put_field(out, "selected", progress->point->selected);
        put_field(out, "seconds", progress->point->seconds);
    }
    fputs("}\n", out);
    if (fflush(out) != 0 && live->log_error == 0)
        live->log_error = errno;
}
