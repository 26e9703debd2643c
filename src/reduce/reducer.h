/* A reducer and its reductions: everything that one rank keeps for the steps it makes with others. */
#ifndef TG_REDUCE_REDUCER_H
#define TG_REDUCE_REDUCER_H

#include <time.h>

#include "feedback/feedback.h"
#include "frame/device.h"
#include "reduce/greeting.h"
#include "reduce/message.h"
#include "reduce/plan.h"
#include "reduce/pool.h"

/* One exchange of a reduction, with its buffers. The exchange comes first: a driver hands it back to be fed. */
typedef struct tg_leg {
    tg_exchange exchange;
    tg_message_kind kind;
    uint32_t number;
    bool handed, fed;
    const void **send;
    size_t *send_size;
    void **receive;
    size_t *capacity;
    size_t *received;
    uint8_t *out;         /* what `send` points into; behind each other, one message or one for each rank */
    size_t out_capacity;
} tg_leg;

typedef struct tg_reducing_tensor {
    tg_reducer_tensor given; /* with a name of our own */
    tg_spec spec;            /* of steps that compress: `none` below the minimum size */
    bool sparse;
    size_t codec;            /* in the reducer's list */
    tg_feedback *feedback;   /* NULL: none */
} tg_reducing_tensor;

/* Frames of a reduction that have been checked, or made here: of each piece, `per_piece` of them. */
typedef struct tg_frame_table {
    tg_frame *frames;
    uint32_t per_piece;
} tg_frame_table;

typedef struct tg_algorithm_functions tg_algorithm_functions;

struct tg_reduction {
    tg_reducer *reducer;
    bool active;
    uint64_t step;
    uint64_t number;        /* of this reducer's reductions */
    bool dense;             /* a warm-up step */
    const tg_plan *plan;
    tg_tensor *gradients;
    float *clips;           /* DGC's factor of each tensor */
    tg_encode_report *reports;
    tg_verdict verdict;     /* what is wrong here, as far as is known */
    bool doomed;            /* another rank abstains, and will say why in its verdict */
    bool greets;
    bool settled;           /* the outcome is known */
    tg_verdict outcome;
    tg_leg greeting, greeting_verdict, verdicts;
    tg_leg *parcels, *results;
    size_t parcels_handed, parcels_fed, results_handed, results_fed;
    tg_frame_table frames;  /* gather: of every rank. shard: own ones, to each owner */
    tg_frame_table summed;  /* shard: results, of the owners */
    tg_exchange **queue;    /* drive.c: started and not fed, oldest first; places count on, modulo its room */
    size_t queue_room, queue_from, queue_to;
};

struct tg_reducer {
    tg_device *device;
    const tg_kernels *kernels;
    tg_pool pool;
    uint32_t rank, world;
    tg_algorithm algorithm;
    const tg_algorithm_functions *functions;
    tg_reducer_options options; /* with a schedule of our own, and defaults filled in */
    uint32_t *amounts;          /* of the schedule's entries */
    tg_reducing_tensor *tensors;
    const char **names;
    size_t tensor_count;
    tg_codec **codecs;
    size_t codec_count;
    tg_codec *plain;            /* `none` */
    tg_plan coded, dense;
    uint8_t *greeting;
    uint32_t greeting_size;
    uint64_t layout;            /* digest of the greeting */
    bool greeted;
    float *wide;                /* the largest piece, as float32 */
    uint64_t begun;             /* reductions */
    tg_reduction *reductions;   /* `depth` of them */
    tg_reducer_stats stats;
    double residual_before;     /* norm, for its growth */
};

/* What gather and shard do differently. All work on one parcel of a reduction that has not failed so far, but apply and undo, which are the
 * end of all of it. What goes wrong is recorded with tg_reduction_fail. */
struct tg_algorithm_functions {
    tg_algorithm algorithm;
    bool has_results;
    /* Compresses the parcel's pieces and fills in what the leg sends. */
    void (*send)(tg_reduction *reduction, size_t parcel);
    /* Checks what came. */
    void (*take)(tg_reduction *reduction, size_t parcel);
    void (*take_results)(tg_reduction *reduction, size_t parcel);
    /* The mean, into the gradients; residuals are settled. */
    void (*apply)(tg_reduction *reduction);
    /* What was sent goes back into the residuals. */
    void (*undo)(tg_reduction *reduction);
};
extern const tg_algorithm_functions tg_gather;

static inline double tg_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- layout.c: what travels how ---- */

/* The spec of a tensor's frames in a reduction. */
tg_spec tg_spec_in(const tg_reduction *reduction, uint32_t tensor);
/* The codec that makes them. */
tg_codec *tg_codec_in(tg_reduction *reduction, uint32_t tensor);
/* Most bytes of a frame of `count` elements of this tensor. */
size_t tg_frame_room(const tg_reducer *reducer, bool dense, uint32_t tensor, uint64_t count);
/* Codecs, plans and the algorithm, from tensors and options. */
tg_status tg_reducer_lay_out(tg_reducer *reducer, tg_error *error);

/* ---- legs.c: buffers of exchanges ---- */

/* Makes the legs of one reduction. */
bool tg_legs_make(tg_reducer *reducer, tg_reduction *reduction);
/* Everything that a leg sends is one message of this size, at its start, to all. */
void tg_leg_send_all(tg_reducer *reducer, tg_leg *leg, size_t size);
/* Header of a message that this rank sends on this leg; the extra part is in place. */
void tg_leg_seal(tg_reduction *reduction, const tg_leg *leg, uint32_t frames, uint32_t extra, uint8_t *bytes);
/* Opens what came from `peer`; what is wrong is recorded, and then the answer is false; also where the peer abstains. */
bool tg_leg_open(tg_reduction *reduction, tg_leg *leg, uint32_t peer, tg_message *message, tg_cursor *extra, tg_cursor *frames);

/* ---- pieces.c: frames of pieces ---- */

/* The number of a frame's draws: of a piece, and of a part of it. */
#define TG_RESULT_DRAW UINT32_C(0x80000000)

/* The part of the gradient that a piece is. */
tg_tensor tg_piece_of(const tg_reduction *reduction, const tg_piece *piece);
/* Compresses a piece of the gradient, with its feedback; false if it was not finite, which is recorded. */
bool tg_piece_encode(tg_reduction *reduction, size_t piece, uint8_t *frame, size_t capacity, size_t *size);
/* Checks a frame that came from `peer`: everything about it, and that it is the one that is due. What is wrong is recorded. */
bool tg_piece_check(tg_reduction *reduction, uint32_t peer, tg_frame frame, uint32_t tensor, const tg_spec *spec, uint64_t count,
                    uint32_t draw);

/* ---- machine.c ---- */

/* Something makes this step impossible; the first one counts. `text` is a format. */
__attribute__((format(printf, 3, 4))) void tg_reduction_fail(tg_reduction *reduction, tg_status status, const char *text, ...);

#endif
