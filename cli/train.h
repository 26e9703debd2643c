/* The parts of `tersegrad train`: from options to settings, what is shown on the way, and what is left at the end. */
#ifndef CLI_TRAIN_H
#define CLI_TRAIN_H

#include "options.h"
#include "origin.h"
#include "terminal.h"
#include "train_names.h"
#include "train/train.h"

#include <stdio.h>

/* The options as they were typed. */
struct train_options {
    const char *data, *model, *device;
    uint64_t workers, batch, steps, seed, min_size, warmup, every;
    double lr, momentum, weight_decay, epochs, timeout;
    struct text_list codecs, feedbacks;
    int schedule, algorithm, reduce, nonfinite;
    const char *density_schedule, *link, *group, *bypass;
    const char *log, *report, *checkpoint, *resume;
    bool insist, wide, json;
};

extern const char *const train_schedule_choices[], *const train_algorithm_choices[],
                                                       *const train_reduce_choices[], *const train_nonfinite_choices[];

/* The arguments of this run: those that were typed, and with --resume those of the checkpoint that were not. */
struct train_arguments {
    int count;
    char **items;
    char *text; /* what a checkpoint keeps of them, each with a 0 at its end */
    size_t text_size;
    char *storage, *stored; /* where they lie */
};
bool train_arguments_make(const struct command *command, int argc, char **argv, struct train_arguments *arguments,
                          struct failure *failure);
void train_arguments_free(struct train_arguments *arguments);

/* False with a sentence where an option makes no sense. */
bool train_settings_fill(const struct train_options *options, struct train_settings *settings, struct failure *failure);

/* The module of tg_transport_mpi for the launcher that started this process; NULL if none did. */
const char *train_mpi_module(void);
/* How many ranks it started; 0 where it does not say. */
uint64_t train_launched_ranks(void);
/* Whether this is rank 0 of a job, or no rank of any. */
bool train_is_first_process(void);

/* The live line, and the log: rank 0 tells, these show. */
struct train_live {
    const struct train_settings *settings;
    const struct train_options *options;
    const struct train_report *report;
    const struct origin *origin;
    struct progress progress;
    bool is_shown;  /* there is a progress bar for this run */
    char label[40]; /* of the bar: short, so that the figures have room on a line of 80 */
    size_t run;
    uint64_t start_ns, spoken_ns;
    FILE *log;
    bool has_header;
    bool log_goes_on; /* from an earlier run, whose last steps may be made again */
    int log_error;    /* errno of the first line that could not be written; 0: none */
    const char *command;
};
void train_live_step(void *context, const struct train_progress *progress);
void train_live_levels(void *context, uint32_t hosts, uint32_t least, uint32_t most);
void train_live_end(void *context, size_t run, const struct train_result *result);

/* Whether it can be written, before any work is done. It is opened by the first step: what is refused before leaves an
 * old one as it was. */
bool train_log_check(const char *path, struct failure *failure);
void train_log_open(struct train_live *live);
void train_log_step(struct train_live *live, const struct train_progress *progress);
bool train_log_close(struct train_live *live, struct failure *failure);

void train_print_table(const struct train_report *report, bool wide, FILE *out);
void train_print_json(const struct train_report *report, const char *algorithm, const char *stopped, FILE *out);

/* The loss of a run when its steps had taken so long: that of the last point before. NAN where there is none. */
double train_loss_after(const struct train_result *result, double seconds);
/* How long the run took that was done first; 0 where that is not known. */
double train_shortest(const struct train_report *report);

/* What a float32 ring all-reduce would have sent, over what was sent. */
double train_wire_ratio(const struct train_result *result);

/* What stands on a page beside the results. */
struct page {
    const struct train_report *report;
    const struct origin *origin;
    const char *heading, *description; /* what was trained */
    const char *stopped;               /* why the last run ended early; NULL: it did not */
    const char *const *sources;        /* the log of each run; NULL: they were just trained */
    const char *const *commands;       /* what wrote the log of each run, with date, host and seed */
    bool has_seed;
    uint64_t seed;
};

/* One self-contained page; false where there is no memory for it. */
bool page_put(FILE *out, const struct page *page);
bool page_write(const char *path, const struct page *page, struct failure *failure);

/* "1.23 MB". Returns `text`. */
#define BYTES_TEXT 16
const char *bytes_text(double bytes, char text[BYTES_TEXT]);

/* "4.1x"; "-" where nothing was sent. Returns `text`. */
const char *ratio_text(double ratio, char text[BYTES_TEXT]);

/* What 'sent' of a report is about. */
const char *train_sent_legend(const struct train_report *report);

/* "qsgd:levels=7, ef": what a run is called. Returns `text`. */
#define RUN_NAME (2 * TG_SPEC_TEXT + 4)
const char *run_name(const struct train_codec *codec, char text[RUN_NAME]);

#endif
