/* Measuring what `plan` predicts from: all ranks of an MPI job together. */
#ifndef CLI_PROBE_H
#define CLI_PROBE_H

#include "options.h"
#include "probe_file.h"

#include "train/team.h"

struct probe_request {
    const char *path;       /* which rank 0 writes */
    const char *device;     /* on which codecs run */
    double seconds;         /* for all of it */
    const char *command;    /* the command line, for the file */
    const char *feedback;   /* of all codecs; NULL: what suits each */
    struct text_list specs; /* none: a list that spans the codecs */
};

enum { PROBE_SECONDS = 28, PROBE_MOST_SECONDS = 30 };

/* This process as one rank of the job that a launcher started; returns an exit code. Rank 0 writes the file, complete
 * or not at all, and says so; one rank says what went wrong. */
int probe_run(const struct command *command, const struct probe_request *request);

/* ---- For the files of the probe ---- */

/* The ranks that measure, and the clock that all of them go by: rank 0's. */
struct probe_team {
    struct team team;
    uint64_t began; /* clock_ns of this rank */
    /* Where hosts have several ranks: all have as many, or one has fewer. NULL: reductions in two levels are not timed.
     */
    const uint32_t *host_of_rank;
};

/* After all ranks have come here: how long after the beginning that is, on rank 0's clock. Negative: the message says
 * why it failed. */
double probe_now(const struct probe_team *team, struct failure *failure);

/* Of all ranks' numbers the median, and the largest; also a barrier. */
bool probe_middle(const struct probe_team *team, double number, double *middle, struct failure *failure);
bool probe_slowest(const struct probe_team *team, double number, double *slowest, struct failure *failure);

/* Whether all ranks are well; if not, the message is that of the lowest that is not. */
bool probe_agree(const struct probe_team *team, bool well, struct failure *failure);

/* Sorts the samples; the quantile is linear between them. */
void probe_sort(double *samples, size_t count);
double probe_quantile(const double *sorted, size_t count, double at);

/* Before anything is measured: whether all codecs are ones, with a feedback that is for them. */
bool probe_check_codecs(const struct probe_request *request, struct failure *failure);

void probe_rest(double seconds);

/* Until `until` seconds after the beginning at the latest, about. */
bool probe_network(const struct probe_team *team, double until, struct predict_network *network,
                   struct failure *failure);
bool probe_codecs(const struct probe_team *team, const struct probe_request *request, double until, struct probe *probe,
                  struct failure *failure);

#endif
