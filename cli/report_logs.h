/* Logs of `tersegrad train --log`, as `tersegrad report` reads them: any number of them make one report. */
#ifndef CLI_REPORT_LOGS_H
#define CLI_REPORT_LOGS_H

#include "files.h"
#include "origin.h"
#include "train.h"

/* What was read: the runs' codecs and logs beside the report that points to them. */
struct report_logs {
    struct train_report report;
    struct train_codec codecs[TRAIN_MOST_RUNS];
    const char *sources[TRAIN_MOST_RUNS];
    const char *commands[TRAIN_MOST_RUNS]; /* each in `texts` */
    char texts[TRAIN_MOST_RUNS + 1][ORIGIN_TEXT + 256];
    size_t text_count;
};

/* Adds the runs of a log, a JSON object on each line, to `logs`, which begin as zero. False with a sentence where it is
 * no log; `logs` are still to be freed then. */
bool report_logs_read(struct report_logs *logs, const struct file_bytes *file, const char *source,
                      struct failure *failure);

/* After the last one: the figures of each run are those of its last point. */
void report_logs_settle(struct report_logs *logs);

void report_logs_free(struct report_logs *logs);

#endif
