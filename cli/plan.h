/* `tersegrad plan`: from its options to inputs, predictions and a recommendation. */
#ifndef CLI_PLAN_H
#define CLI_PLAN_H

#include "layout.h"
#include "options.h"
#include "origin.h"
#include "probe_file.h"

#include "predict/costs.h"
#include "predict/models.h"
#include "predict/simulate.h"

struct plan_options {
    int model; /* its place in known_models; negative: not given */
    const char *layout;
    const char *probe; /* measured under mpirun, used without */
    double seconds;    /* for measuring; 0: not given */
    bool insist;
    bool flat;
    uint64_t world, per_node; /* 0: those of the probe, or 8 and 1 */
    const char *rate, *latency, *forward, *backward;
    double kappa; /* 0: that of the probe, or 1 */
    int device;   /* enum predict_device; negative: that of the probe, or PREDICT_CPU */
    struct text_list codecs;
    const char *feedback;
    uint64_t min_size;
    const char *report;
    bool simulate;
    uint64_t steps, seed, rack;
    double oversubscription, jitter, stragglers, slowdown; /* negative: not given */
    bool json;
};

/* A codec by one algorithm, or the dense baseline. */
struct plan_row {
    char codec_text[TG_SPEC_TEXT], feedback_text[TG_SPEC_TEXT]; /* "none" twice for the baseline */
    char name[2 * TG_SPEC_TEXT];                                /* for people: "topk:density=0.01+ef" */
    tg_spec codec;
    tg_feedback_spec feedback;
    bool is_ring; /* not by the reducer: the baseline, or with `is_tree` its kind for many ranks */
    bool is_tree;
    bool is_flat;  /* in one level, whatever ranks share hosts */
    bool is_dense; /* one of these, or the reducer's `none` */
    tg_reducer_options options;
    struct predict_coding coding;
    bool was_not_probed;                /* there is a probe, but not of this codec by this algorithm */
    bool is_far;                        /* its coding was probed with less than half of the ranks */
    char probed_feedback[TG_SPEC_TEXT]; /* the probe has it with this one alone; "": with its own */
    struct predict_step step;
    struct predict_gain gain; /* over the baseline: the ring, or the tree where that is faster */
    double uniform_seconds;   /* with --simulate: of the step on a uniform network, without chance */
    bool is_too_slow;         /* to be simulated: the step is that of a uniform network, and would take longer */
    struct simulated simulated;
};

enum { PLAN_MOST_ON_A_HOST = 1024 };
enum { PLAN_MOST_ROWS = 2 * TEXT_LIST_MAX + 2 };

struct plan {
    const struct plan_options *options;
    struct known_model model; /* where one was named */
    struct layout layout;     /* or read */
    char what[300];           /* "resnet50", or the file's name */
    struct predict_tensor *tensors;
    uint64_t parameters;
    struct predict_job job;
    struct predict_network network;
    struct probe *probe; /* where one was given */
    enum predict_device device;
    double rate_bits, latency; /* as they were given */
    struct cluster cluster;    /* of --simulate */
    struct plan_row *rows;     /* the baseline first; those of other worlds too: plan_has_row */
    size_t row_count;
    const struct plan_row *recommended; /* the baseline: `none` */
    char reason[640];
    /* What the prediction rests on: each with "stated", "measured" or "assumed" before it. */
    char **notes; /* from malloc */
    size_t note_count;
    bool lacks_notes; /* for want of memory: then there is no plan */
};

/* A row that takes many events to simulate is left out if it takes so many times as long without unevenness, which
 * never makes a step shorter, as the best of its kind does at most: with a codec, or without. */
#define PLAN_TOO_SLOW 4

/* Speed-up that the lower end of the interval must show before compression is recommended. */
#define PLAN_LEAST_GAIN 1.05

/* Notes may be many and long: none is left out or cut. */
void plan_note(struct plan *plan, const char *format, ...) PRINTF_LIKE(2, 3);
/* Of what is asked about, where the costs of coding are from, and which rows are not simulated. */
void plan_note_job(struct plan *plan);
void plan_note_coding(struct plan *plan);
void plan_note_too_slow(struct plan *plan);
void plan_notes_free(struct plan *plan);

/* Tensors in the order in which they become ready. With `ready` in the file, that is the file's order; else the file
 * has the order of the forward pass, and tensors are ready, last first, by their share of the elements. `backward` is
 * negative where it was not given. */
bool plan_layout_check(const struct layout *layout, bool *has_times, struct failure *failure);
void plan_layout_ready(const struct layout *layout, bool has_times, double backward, struct predict_tensor *tensors);

/* Reads the probe, says what is doubtful about it, and takes what the options leave to it. */
bool plan_probe_load(struct plan *plan, struct failure *failure);
/* Whether reductions in two levels were measured, on several hosts of as many ranks. */
bool plan_probe_has_levels(const struct plan *plan);
/* Its network, unless that says nothing of what is asked; and its coding of a row's codec by the row's algorithm, where
 * it has that. */
bool plan_probe_network(struct plan *plan, struct failure *failure);
bool plan_probe_coding(struct plan *plan, struct plan_row *row, struct failure *failure);

/* From the options; free with plan_free in any case. */
bool plan_inputs(struct plan *plan, const struct plan_options *options, struct failure *failure);
bool plan_predict(struct plan *plan, struct failure *failure);
void plan_free(struct plan *plan);

void plan_print_table(const struct plan *plan, FILE *out);
void plan_print_json(const struct plan *plan, FILE *out);

/* Whether it is a row for so many ranks. The page has other worlds than the table, so a plan has the rows of all. */
bool plan_has_row(const struct plan_row *row, uint32_t world);

/* Which row to recommend to so many ranks if they took so long; 0, the baseline, if none is surely faster. */
size_t plan_choice(const struct plan *plan, const struct predict_step *steps, uint32_t world);

/* The schedule of a row, for a job like the plan's; free it with schedule_free. */
bool plan_schedule(const struct plan_row *row, const struct predict_job *job, struct schedule *schedule,
                   struct failure *failure);

/* Names of enum predict_device, ends with NULL. */
extern const char *const plan_devices[];

/* "gather", "shard", "ring" or "tree"; "wire". */
const char *plan_algorithm(const struct plan_row *row);
const char *plan_bound(const struct plan_row *row);

/* Links of so many bits a second, with what is assumed besides. */
struct predict_network plan_network(double bits_per_second, double latency);
/* Of what is assumed within hosts, where ranks of one exchange among themselves. */
void plan_note_inside(struct plan *plan);

/* One self-contained page. */
bool plan_write_page(const char *path, const struct plan *plan, const struct origin *origin, struct failure *failure);

/* "12.3 ms". Returns `text`. */
#define TIME_TEXT 16
const char *time_text(double seconds, char text[TIME_TEXT]);
/* Of a row: "12.3 ms"; ">12.3 ms" where it would take longer, but is too slow to be simulated. */
const char *step_text(const struct plan_row *row, char text[TIME_TEXT]);

#endif
