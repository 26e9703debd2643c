/* One rank: what it has for all runs, and what it has for one. */
#ifndef TRAIN_WORKER_H
#define TRAIN_WORKER_H

#include "blob.h"
#include "team.h"
#include "train.h"

#include <stdatomic.h>

/* What the ranks of one process share and only read. */
struct task {
    const struct train_settings *settings;
    struct dataset data;
    struct model model;
    uint64_t steps; /* of every run */
    double lr;
    atomic_uint_fast64_t *stop_at; /* after that many steps of the run in progress all ranks stop; NULL: never */
};

/* How a rank came to fail. */
enum how_failed {
    FAILED_ALONE,    /* the others do not know yet */
    FAILED_TOGETHER, /* every rank stops here, with the same message */
    FAILED_LOST      /* because another rank has left or does not answer */
};

struct worker {
    const struct task *task;
    const struct train_observer *observer; /* rank 0's; NULL on the others */
    struct train_report *report;           /* rank 0's; NULL on the others */
    struct team team;
    tg_device *device;
    struct model_work work;             /* for batches */
    struct model_work score;            /* rank 0's, for evaluation */
    float *gradient, *second;           /* of all parameters */
    uint64_t shard_rows;                /* rows rank, rank + world, rank + 2 world, ... */
    uint32_t *hosts;                    /* of each rank; NULL: every rank is a host of its own */
    struct blob saved[TRAIN_MOST_RUNS]; /* rank 0: the state of each run as last saved; empty where there is none */
    enum how_failed how_failed;
    uint32_t culprit;    /* of FAILED_TOGETHER: the rank whose message it is */
    bool is_wrong_usage; /* it failed because of options, before the first step */
    struct failure failure;
};

struct run {
    struct worker *worker;
    size_t index;
    const struct train_codec *codec;
    float *weights;
    float *velocity;             /* NULL without momentum */
    float *anchor, *mean;        /* QSVRG's y and the full gradient there; else NULL */
    tg_reducer *reducer, *exact; /* exact: uncompressed, for QSVRG's full gradients; else NULL */
    uint64_t step;
    uint64_t uncounted; /* steps before the reducer's reduction 0: where it was loaded into another world or plan */
    double loss_sum;    /* of rank 0's batches since the last point */
    uint64_t loss_count;
    bool diverged;               /* at this step: it ends here */
    bool is_scored;              /* the last point is over all rows: the result needs no evaluation of its own */
    struct train_result *result; /* the report's on rank 0, else one of its own */
    struct train_result own_result;
};

/* Everything one rank does. False with a message, and then no rank goes on. */
bool worker_run(struct worker *worker);

/* One run, from the start or from its saved state, to its last step. */
bool run_all_steps(struct worker *worker, size_t index, const tg_state *saved);

/* After a reduction: whether the gradient was not finite because some rank's loss is not. Then the run has diverged. */
bool run_diverges(struct run *run, tg_status status, double loss);

/* The gradient of this rank for the run's step in worker->gradient; its seconds are added to the stages. Returns the
 * batch's loss. QSVRG may have to reduce a full gradient first, so it can fail. */
bool run_gradient(struct run *run, double *loss);

/* Whether a run can be had, and goes on from its saved state. All are asked before the first begins: what one is
 * refused for, such as a feedback that is not stable, is known without training the others. */
bool run_check(struct worker *worker, size_t index, const tg_state *saved);

/* Room and reducers for a run; the weights are those that every run begins with. */
bool run_create(struct worker *worker, size_t index, struct run *run);
void run_free(struct run *run);

/* Adds a point to the result: `step` steps were made. On rank 0. */
bool run_add_point(struct run *run);
/* The last figures: loss and accuracy over all rows, hash, counters. */
bool run_finish(struct run *run);
/* The figures of a run that ends before its last step: those of a point there. Does nothing but on rank 0. False, with
 * a message, where a run that has diverged cannot be told of; after a failure its message stays. */
bool run_keep(struct run *run);
/* The reducers' counters, both together. */
bool run_counters(struct run *run, tg_reducer_stats *stats);
void take_histogram(struct run *run, struct train_histogram *histogram);

/* The run's state to worker->saved on rank 0, and back. All ranks call them together. */
bool run_save(struct run *run);
bool run_restore(struct run *run, const tg_state *saved);
/* The same on this rank alone. */
bool run_load(struct run *run, const tg_state *saved);

/* All saved states to the file, and from it (rank 0 reads; every rank gets them). */
bool checkpoint_write(struct worker *worker);
bool checkpoint_read(struct worker *worker, struct shared_bytes **bytes, tg_state saved[TRAIN_MOST_RUNS]);
/* Whether the file could be written at all, before any work is done. */
bool checkpoint_probe(const char *path, struct failure *failure);

/* The library's sentence becomes the worker's message; false. */
bool worker_fails(struct worker *worker, tg_status status, const tg_error *error);
/* The same before the first step, where it may be options that the library refuses. */
bool worker_is_refused(struct worker *worker, tg_status status, const tg_error *error);
/* What this rank has failed for are its options; false. */
bool worker_refuses(struct worker *worker);
/* Whether no rank has failed; otherwise all stop. */
bool worker_agrees(struct worker *worker, bool well);

#endif
