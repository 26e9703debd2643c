/* How long a training step takes, from what its reduction exchanges (tg_description) and from what a network and a
 * processor need for it. Pure functions: no files, no clock, no randomness. docs/planning.md has the formulas.
 *
 * Inputs are filled by whoever has them: `plan --probe` measures them, `plan --rate --latency` makes them up. */
#ifndef PREDICT_PREDICT_H
#define PREDICT_PREDICT_H

#include "tersegrad.h"

#include "common/failure.h"

#include <stddef.h>
#include <stdint.h>

enum { PREDICT_MOST_RANKS = 1000000 };

/* ---- The network ---- */

/* How ranks exchange: TG_ALL_GATHER and TG_ALL_TO_ALL of tg_exchange, and a ring all-reduce of float32, the baseline.
 */
enum predict_pattern { PREDICT_ALL_GATHER, PREDICT_ALL_TO_ALL, PREDICT_RING, PREDICT_PATTERNS };

/* An exchange in which the busiest rank sends or gets `bytes`, over all its peers and rounds, took so long: the median
 * over trials, and the quantiles between which 80 % of them lie. For a ring all-reduce of a vector of V bytes, `bytes`
 * is 2 (P - 1)/P V. */
struct predict_point {
    double bytes;
    double seconds, low, high;
};

enum { PREDICT_MOST_POINTS = 48 };

/* Between points time is linear; before the first it is the first's; beyond the last it grows at the last slope. So
 * bytes must rise, and seconds must not fall (predict_network_check). */
struct predict_wire {
    struct predict_point points[PREDICT_MOST_POINTS];
    size_t count;  /* 0: from rate and latency */
    double hidden; /* of the seconds of an exchange, those in which the next one may already pass: its latency */
    double burst;  /* seconds less that exchanges take after a pause, all together: what links let pass at once */
};

struct predict_network {
    uint32_t world, per_node; /* with which the points were measured; not used where there are none */
    struct predict_wire patterns[PREDICT_PATTERNS];
    /* Where a pattern has no points: latency + message * messages + max(0, bytes - burst) / rate */
    double rate;      /* bytes a second, of a host's link, each way; INFINITY: the wire takes no time */
    double burst;     /* bytes that pass at once after a pause */
    double latency;   /* seconds of a round; a ring has 2 (P - 1) of them, other patterns one */
    double message;   /* seconds of a rank for each message, sent and got: software */
    double inside;    /* bytes a second between ranks of one host, each */
    double low, high; /* factors of such a time between which 80 % are believed to lie; 1, 1: exactly */
};

/* ---- Coding ---- */

/* A whole reduction that was measured: so many tensors of so many elements, after a rest and with nothing computed
 * beside it. The median over trials, and the quantiles between which 80 % of them lie. */
struct predict_sample {
    uint64_t tensors, elements;
    double seconds, low, high;
};

enum { PREDICT_MOST_SAMPLES = 4 };

/* What such reductions took, by what exchanges and coding say of them by themselves; both rise. */
struct predict_fit {
    struct {
        double model,
            seconds;      /* between points, logarithms are linear; before the first and beyond the last, a ratio */
        double low, high; /* factors of them between which 80 % of trials lie */
    } points[PREDICT_MOST_SAMPLES];
    size_t count; /* 0: nothing was measured */
};

/* Reductions in one level, in which every rank exchanges with every other; and in two, where hosts have several ranks.
 */
enum { PREDICT_ONE_LEVEL, PREDICT_TWO_LEVELS, PREDICT_LEVELS };

struct predict_measured {
    struct predict_sample samples[PREDICT_MOST_SAMPLES]; /* on the network of the probe */
    size_t count;
    struct predict_fit fit; /* to these: predict_fit_samples */
};

/* What the reducer takes for its elements with one codec (and feedback), on one rank that is otherwise idle. */
struct predict_coding {
    char spec[TG_SPEC_TEXT]; /* as tg_spec_print writes it */
    double encode;           /* seconds an element: feedback, compressing (tg_described_exchange.encoded) */
    double check;            /* seconds an element of a frame that came (.checked) */
    double add;              /* seconds an element of a frame that is added up (.summed, and info.applied) */
    double frame;            /* seconds a frame, made or come (.frames) */
    double low, high;        /* factors of all four between which 80 % of trials lie: 0.9, 1.2; 1, 1: exactly */
    struct predict_measured measured[PREDICT_LEVELS];
};

/* ---- The model and the machine ---- */

struct predict_tensor {
    const char *name;
    uint64_t count;
    double ready; /* seconds after the backward pass began; they do not decrease */
};

struct predict_job {
    const struct predict_tensor *tensors; /* in the order in which they become ready */
    size_t tensor_count;
    double forward;  /* seconds before the backward pass */
    double backward; /* seconds of it: not less than the last `ready` */
    uint32_t world, per_node;
    double kappa; /* coding takes so many times longer while the backward pass runs; 1: a card computes */
    bool tree;    /* the baseline goes up and down a tree, in 2 log2 P rounds, as libraries do with many ranks */
    uint64_t ring_bucket; /* bytes of gradients for each ring all-reduce of the baseline; 0: 25 MiB, as DDP has it */
};

/* ---- Predictions ---- */

enum predict_bound { PREDICT_COMPUTING, PREDICT_CODING, PREDICT_WIRE, PREDICT_LATENCY };

struct predict_step {
    double seconds, low, high; /* of a step: forward, backward and what of the reduction outlasts them */
    double fast_network;      /* the same if the network is as fast as it was at best, and coding as slow as at worst */
    double slow_network;      /* the other way round */
    uint64_t bytes;           /* that the busiest rank sends to other hosts in a step */
    enum predict_bound bound; /* that without which the step would be shortest */
    double computing;         /* forward and backward */
    double wire, coding;      /* seconds in which each is busy */
    double error;             /* of the model itself, where networks are compared: predict_gain_of */
    tg_algorithm algorithm;   /* TG_GATHER or TG_SHARD; TG_AUTO for the ring */
    bool estimated;           /* bytes depend on the data */
    bool extrapolated;        /* beyond twice the world of the probe, or its largest exchange */
};

/* Which of the measured values to take. */
enum predict_end { PREDICT_LOW, PREDICT_MIDDLE, PREDICT_HIGH };

/* What the model itself may be wrong by, beyond what its inputs are; likewise with two levels; and where it was fitted
 * to whole reductions: measured in docs/planning.md. */
#define PREDICT_MODEL_ERROR 0.1
#define PREDICT_LEVELS_ERROR 0.2
#define PREDICT_FIT_ERROR 0.12

/* How many times shorter a step is than another, with the same network for both. */
struct predict_gain {
    double factor, low, high;
};
struct predict_gain predict_gain_of(const struct predict_step *step, const struct predict_step *over);

/* One sentence where it cannot be used: points that fall, times that are not finite. */
bool predict_network_check(const struct predict_network *network, struct failure *failure);
bool predict_coding_check(const struct predict_coding *coding, struct failure *failure);
bool predict_job_check(const struct predict_job *job, struct failure *failure);

/* Seconds of one exchange by itself. */
double predict_exchange(const struct predict_network *network, const struct predict_job *job,
                        enum predict_pattern pattern, double bytes, enum predict_end end);

/* A step of the reducer with this codec for all tensors. `options` may be NULL. */
bool predict_reduction(const struct predict_job *job, const struct predict_network *network,
                       const struct predict_coding *coding, const tg_spec *codec, const tg_feedback_spec *feedback,
                       const tg_reducer_options *options, struct predict_step *step, struct failure *failure);

/* Fits the costs to their samples: reductions by this algorithm on this network. */
bool predict_fit_samples(const struct predict_network *network, const tg_spec *codec, const tg_feedback_spec *feedback,
                         tg_algorithm algorithm, struct predict_coding *coding, struct failure *failure);

/* A step of the dense baseline: ring (or tree) all-reduces of float32, bucket by bucket, as soon as one is ready. */
bool predict_ring(const struct predict_job *job, const struct predict_network *network, struct predict_step *step,
                  struct failure *failure);

#endif
