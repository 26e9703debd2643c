/* A step as one rank sees it: exchanges in their order, with what is coded before and after each. */
#ifndef PREDICT_SCHEDULE_H
#define PREDICT_SCHEDULE_H

#include "network.h"

struct scheduled {
    size_t last_tensor; /* ready before it can be made; SIZE_MAX: none */
    size_t after;       /* fed before it can be made; SIZE_MAX: none */
    enum predict_pattern pattern;
    enum predict_scope scope;
    double messages; /* that a rank sends */
    /* Of the rank that has most; of a rank that has most over all exchanges of the step. With PREDICT_BETWEEN, of the
     * host that has most: what its owners of shares send over its link. */
    double bytes, usual_bytes;
    double before, usual_before; /* likewise, seconds of coding to make it */
    double behind;               /* seconds of coding to feed it */
};

struct schedule {
    struct scheduled *exchanges; /* from malloc */
    size_t count;
    double last;    /* seconds of coding after the last */
    uint64_t bytes; /* that the busiest rank sends to other hosts */
    tg_algorithm algorithm;
    bool estimated;
    double stretch;   /* exchanges and coding take so many times as long as they do by themselves */
    double low, high; /* factors of that between which 80 % of trials lie; 0: it was not fitted */
};

bool schedule_of_reduction(const struct predict_job *job, const struct predict_coding *coding, const tg_spec *codec,
                           const tg_feedback_spec *feedback, const tg_reducer_options *options,
                           struct schedule *schedule, struct failure *failure);
bool schedule_of_ring(const struct predict_job *job, struct schedule *schedule, struct failure *failure);
void schedule_free(struct schedule *schedule);

/* How much of each is counted: 1, or 0 to learn what a step would take without it. */
struct shares {
    double computing, coding, wire, latency;
};

/* Exchange e is made only when exchanges up to e - lag have been fed; then time grows with every duration, because the
 * order does not depend on them. What the reducer does, to feed whenever it would otherwise wait, is near the best of
 * these orders. */
enum { LAGS = 7 };
extern const size_t schedule_lags[LAGS];

/* The host of each rank: ranks of a host follow each other. From malloc; NULL without memory. */
uint32_t *schedule_hosts(const struct predict_job *job);

/* Whether it is one of PREDICT_TWO_LEVELS. */
bool schedule_has_levels(const struct schedule *schedule);

/* Takes the stretch from whole reductions that were measured on this network, in as many levels; with two, on
 * several hosts of as many ranks. Without a fit it stays 1. */
void schedule_fit(struct schedule *schedule, const struct predict_job *job, const struct predict_network *network,
                  const struct predict_coding *coding);

/* When coding of so many seconds ends that begins at `now`: slower by kappa until the backward pass ends. */
double coded_by(const struct predict_job *job, double backward, double now, double seconds);

double schedule_run(const struct schedule *schedule, const struct predict_job *job,
                    const struct predict_network *network, enum predict_end end, const struct shares *shares,
                    size_t lag);

/* The best over all lags, and which it is. */
double schedule_best(const struct schedule *schedule, const struct predict_job *job,
                     const struct predict_network *network, enum predict_end end, const struct shares *shares,
                     size_t *lag);

/* The prediction of a step; `low` and `high` are factors of all coding, where it was not fitted to whole reductions. */
bool predict_scheduled(const struct schedule *schedule, const struct predict_job *job,
                       const struct predict_network *network, double low, double high, struct predict_step *step,
                       struct failure *failure);

#endif
