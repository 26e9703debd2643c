/* Training: several runs, one for each codec, from the same start, by the ranks of this process or of an MPI job. */
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include "model.h"
#include "tersegrad.h"

#include <stdatomic.h>

enum train_schedule {
    SCHEDULE_CONSTANT,
    SCHEDULE_LINEAR, /* to 0 at the last step */
    SCHEDULE_COSINE, /* to 0 at the last step */
    SCHEDULE_STEP    /* a tenth after half of the steps, a hundredth after three quarters */
};

enum train_algorithm { ALGORITHM_SGD, ALGORITHM_QSVRG };

#define TRAIN_MOST_RUNS 64
#define TRAIN_MOST_CHANGES 32
#define TRAIN_MOST_BYPASSES 4096 /* the reducer decides no more often */
#define TRAIN_MOST_WORKERS 256
#define TRAIN_POINT_ROWS 1000 /* at most, for points before the last */

struct train_codec {
    tg_spec codec;
    tg_feedback_spec feedback;
    char codec_text[TG_SPEC_TEXT], feedback_text[TG_SPEC_TEXT]; /* as they were typed */
};

struct train_settings {
    const char *data, *model; /* model NULL: what suits the data */
    uint32_t workers;         /* threads; under MPI the launcher decides */
    const char *link_text;    /* as it was typed; NULL: threads exchange as fast as they can */
    tg_link link;
    const char *group_text; /* as it was typed; NULL: as auto, if that makes two levels and all settings go with them */
    uint64_t group;         /* ranks on a host, in their order; 0: those whose hosts have the same name */
    uint64_t batch;         /* rows per rank and step */
    double lr;              /* 0: what suits the model */
    double momentum, weight_decay;
    enum train_schedule schedule;
    uint64_t steps; /* 0: as many as the epochs take */
    double epochs;  /* passes over the data of all workers together */
    uint64_t seed;  /* of the data, the weights, the order of rows and all draws */
    struct train_codec runs[TRAIN_MOST_RUNS];
    size_t run_count;
    bool insist; /* on feedback that would diverge */
    enum train_algorithm algorithm;
    tg_algorithm reduce;
    uint64_t min_size, warmup;
    const char *bypass_text; /* as it was typed; NULL: off */
    tg_bypass bypass;
    uint64_t bypass_changes[TRAIN_MOST_BYPASSES]; /* to be replayed */
    size_t bypass_change_count;
    tg_density_change changes[TRAIN_MOST_CHANGES];
    size_t change_count;
    tg_nonfinite_step nonfinite;
    const char *device;
    const char *checkpoint; /* NULL: none is written */
    uint64_t every;         /* steps between checkpoints; one is written at the end of each run as well */
    const char *resume;     /* NULL: from the start */
    const char *arguments;  /* what was typed, for whoever resumes the checkpoint; each ends with a 0 */
    size_t arguments_size;
    double timeout;         /* with mpi: seconds to wait for another rank; 0: for ever */
    const char *mpi;        /* the module of tg_transport_mpi; NULL: threads */
    uint64_t launched;      /* with mpi: as many ranks as the launcher says that it started; 0: it does not say */
    atomic_bool *interrupt; /* threads stop after their step when it is set; NULL: they do not */
    const char *refusal;    /* with mpi: why this rank cannot begin, which all ranks are told; NULL: it can */
};

/* Where a step's time goes, on rank 0, in seconds. */
enum train_stage { STAGE_DATA, STAGE_GRADIENT, STAGE_ENCODE, STAGE_EXCHANGE, STAGE_DECODE, STAGE_UPDATE, STAGE_COUNT };
extern const char *const train_stage_names[STAGE_COUNT];

/* The run at one moment. What is not known is NAN. */
struct train_point {
    uint64_t step; /* that many were made */
    uint64_t bytes_sent;
    double batch_loss;     /* rank 0's, mean since the point before */
    double loss, accuracy; /* over point_rows of the rows that the result is about; at the last step over all */
    double distance;       /* |w - w*|^2 */
    double residual_norm;
    double selected; /* elements that rank 0 sent in the step */
    double seconds;  /* that the steps took, on rank 0, without evaluating */
};

/* How large the elements of rank 0's gradient were at one step: bin i counts 10^((i - 48) / 4) <= |g| < 10^((i - 47) /
 * 4). */
#define TRAIN_BINS 64
struct train_histogram {
    uint64_t step; /* 0: not taken */
    uint64_t zeros;
    uint64_t bins[TRAIN_BINS];
    double threshold; /* the smallest magnitude that the codec, a sparsifier, takes of this gradient; NAN for others */
};

struct train_result {
    const struct train_codec *codec;
    uint64_t steps, skipped;
    bool stopped; /* it failed or was interrupted after `steps`, and the figures are those of the last point */
    double final_loss, accuracy, distance; /* over all test rows, or all rows where there are no test rows */
    uint64_t bytes_sent, dense_bytes;
    double ratio, residual_norm;
    tg_algorithm reduce; /* what it became */
    double stages[STAGE_COUNT];
    char weights_hash[17];
    struct train_histogram early, late;
    uint64_t *bypass_changes; /* steps from which it was sent as it is, and compressed again */
    size_t bypass_change_count;
    struct train_point *points;
    size_t point_count, point_room;
};

struct train_report {
    bool is_wrong_usage; /* options of this rank or another made it fail, before the first step */
    bool is_alone;       /* this process found fewer ranks than its launcher started, so it speaks for itself */
    const char *transport;
    char device[64], blas[16], data[256], model[256];
    char link[64]; /* "1gbit,50us"; empty: none */
    uint32_t world;
    uint32_t hosts; /* with --group, or where two levels were found; else 0 */
    uint64_t train_rows, test_rows, parameters;
    uint32_t features, classes;
    bool on_test_rows;                /* what final_loss is about */
    uint64_t point_rows, result_rows; /* over how many rows loss and accuracy are: on the way, and at the end */
    uint64_t steps;                   /* of every run */
    size_t run_count;
    struct train_result runs[TRAIN_MOST_RUNS];
};

/* What rank 0 reports during training. */
struct train_progress {
    size_t run;
    uint64_t step, steps;            /* done, of */
    double loss, lr;                 /* of this step's batch */
    bool is_point;                   /* `point` is new */
    const struct train_point *point; /* the latest; NULL before the first */
    const struct train_result *result;
    uint64_t bytes_sent;
    double ratio;      /* float32 bytes over frame bytes */
    double wire_ratio; /* what a float32 ring all-reduce would have sent, over bytes_sent */
    bool skipped;
    bool bypassed; /* sent uncompressed, because of --bypass */
};
struct train_observer { /* any of these may be NULL */
    void *context;
    bool (*on_start)(void *context,
                     struct failure *failure); /* before anything else; false: all ranks end, with this message */
    void (*on_step)(void *context, const struct train_progress *progress);
    void (*on_end)(void *context, size_t run, const struct train_result *result);
    void (*on_levels)(void *context, uint32_t hosts, uint32_t least, uint32_t most); /* found: hosts of so many ranks */
    void (*on_failure)(void *context, const char *failure); /* of the rank of an MPI job that knows why it ends */
};

/* Checks the texts in the settings that need no file: the model's, a synthetic data set's, the device's; and the log of
 * bypass, if the number of steps is known. */
bool train_check(const struct train_settings *settings, struct failure *failure);

/* Whether a run has diverged: its loss is not finite any more, or a hundred times what it was at first. */
bool train_has_diverged(const struct train_result *result);

/* Runs everything. After a failure the report has what was completed: whole runs, and the last one if it has `stopped`.
 * `*speaks` says whether this process is the one that prints: the report if all went well, else the
 * message. In an MPI job that is rank 0 and a report alone; failures have been told to on_failure. The report must be
 * freed in any case. */
bool train(const struct train_settings *settings, const struct train_observer *observer, struct train_report *report,
           bool *speaks, struct failure *failure);
void train_report_free(struct train_report *report);

/* The arguments that a checkpoint was made with, from malloc, each with a 0 at its end; NULL where there are none or
 * the file cannot be read, which train() will explain. */
char *checkpoint_arguments(const char *path, size_t *size);

#endif
