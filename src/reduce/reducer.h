/* A reducer and its reductions: everything that one rank keeps for the steps it makes with others. */
#ifndef TG_REDUCE_REDUCER_H
#define TG_REDUCE_REDUCER_H

#include <time.h>

#include "feedback/feedback.h"
#include "frame/encode.h"
#include "reduce/greeting.h"
#include "reduce/message.h"
#include "reduce/plan.h"
#include "reduce/arena.h"
#include "reduce/bypass.h"

/* The frames of a message where these stay on the device; see body.c. `exchange` comes first, as in a transfer. */
typedef struct tg_body {
    tg_exchange exchange;
    bool handed, fed;
    const void **send;
    size_t *send_size;
    void **receive;
    size_t *capacity; /* what comes, when its head has */
    size_t *received;
    size_t *room;    /* the most that comes from each rank */
    uint8_t *out;    /* device memory that `send` points into */
    size_t *places;  /* all-to-all: where in `out` the frames for each rank start */
    void *memory[2]; /* to be released */
} tg_body;

/* One exchange of a reduction, with its buffers. The exchange comes first: a driver hands it back to be fed. */
typedef struct tg_transfer {
    tg_exchange exchange;
    tg_message_kind kind;
    uint32_t number;
    bool handed, fed;
    const void **send;
    size_t *send_size;
    void **receive;
    size_t *capacity;
    size_t *received;
    struct tg_relay *relay; /* that it is a round of; NULL: none */
    uint8_t *out;           /* what `send` points into */
    size_t *places;         /* all-to-all: where in `out` the message to each rank starts; one more for the end */
    size_t out_capacity, out_size;
    tg_body *body;   /* then the above is of heads; NULL: messages are whole */
    uint8_t *notice; /* two levels: that `out` is in shared memory; NULL: it is sent */
    bool begun;      /* gather: its encodings are on the device's stream, or done: so many, up to `end` */
    size_t frames;
    uint8_t *end;
} tg_transfer;

/* All ranks' way to one outcome; see agreement.c. */
typedef struct tg_agreement {
    tg_transfer *rounds;
    uint32_t round_count, round; /* the next */
    tg_transfer sentence;
    uint8_t *heard; /* room for one that comes */
    tg_vote lowest; /* of all ranks that have been heard of */
    bool settled;
    tg_verdict outcome; /* then */
} tg_agreement;

/* Other ranks' messages of one batch on their way through this rank; see relay.c. */
typedef struct tg_block {
    const uint8_t *data;
    size_t size;
} tg_block;
typedef struct tg_relay {
    size_t batch, room; /* most bytes of a message */
    tg_transfer *rounds;
    uint32_t round_count, round; /* the next */
    tg_block *blocks;            /* of this rank, and of those after it */
} tg_relay;

typedef struct tg_reducing_tensor {
    tg_reducer_tensor given; /* with a name of our own */
    tg_spec spec;            /* of steps that compress: `none` below the minimum size */
    bool sparse;
    size_t codec;          /* in the reducer's list */
    tg_feedback *feedback; /* NULL: none */
    bool idle;             /* bypass: the residual is known to be zero */
    uint64_t aside_at;     /* gather: of its mean among those that are set aside */
    uint64_t most;         /* sparse: the most elements that are ever selected */
    uint32_t largest;      /* the spec's amount, at its largest */
    tg_stats stats;        /* without feedback; else they are the feedback's */
    uint32_t *boundaries;  /* shard, balanced: where parts begin, world + 1 of them for each of `depth` reductions */
    uint32_t *parts;       /* scatter: where ranks' parts begin, as the caller has it; world + 1 */
} tg_reducing_tensor;

/* A frame that is being made, or a selection. */
typedef struct tg_encoded {
    size_t piece;
    tg_frame *frame; /* where it is recorded if all goes well; NULL: a selection */
} tg_encoded;

/* What a frame must be. */
typedef struct tg_due {
    uint32_t tensor;
    tg_spec spec;
    tg_dtype dtype;
    uint64_t count;
    uint64_t most; /* elements that it may list, if it is sparse; 0: any number */
    uint32_t draw;
    bool *is_whole; /* not NULL: it may be all elements instead, as `none`, and then this is set */
} tg_due;

/* A frame that is being checked. */
typedef struct tg_checked {
    tg_due due; /* only its tensor and `most`, where the header has been compared already */
    uint32_t peer;
    bool compares;      /* its header lies on the device, and is compared when it is known */
    bool *may_overflow; /* is set where values are so large that a sum of all ranks' may not be finite; or NULL */
    tg_frame *frame;    /* is forgotten where it is bad; or NULL */
} tg_checked;

/* The body of the message that is being read. */
typedef struct tg_opened {
    const uint8_t *bytes;
    uint64_t left, used;
} tg_opened;

/* A mean that is looked at before it is applied or sent. */
typedef struct tg_mean {
    size_t piece;
    uint64_t first; /* element of its tensor */
    tg_source values;
    tg_tensor narrow; /* receives it in 16 bits, unless it has no data */
    uint64_t found;   /* the first value that is not finite, or how many were dropped */
} tg_mean;

/* What one reduction keeps of a sparse tensor under shard and scatter. */
typedef struct tg_shard_list_step {
    bool selected;         /* this rank has */
    tg_list sent;          /* what this rank selected, and what others see of it */
    tg_list result;        /* shard: what was chosen of the sums of this rank's part */
    float *seen;           /* what decoders see of the values of one of these, where it is not the same */
    uint32_t *proposals;   /* shard, balanced: where this rank would have parts begin; then where they will */
    uint64_t proposal_sum; /* of all ranks' proposals for this rank's part */
} tg_shard_list_step;

typedef struct tg_algorithm_functions tg_algorithm_functions;
typedef struct tg_levels tg_levels;
typedef struct tg_level_step tg_level_step;

/* What the caller has said about a tensor in this step. */
typedef enum tg_given {
    TG_NOT_GIVEN,
    TG_GIVEN, /* its gradient */
    TG_ABSENT /* that this rank has none */
} tg_given;

struct tg_reduction {
    tg_reducer *reducer;
    bool active;
    uint64_t step;
    uint64_t number; /* of this reducer's reductions */
    bool dense;      /* a warm-up step, or one that bypass sends as it is */
    double begun;    /* when; and what the verdict tells of the reduction before, in this place: */
    bool timed, timed_dense;
    uint32_t microseconds;
    const tg_plan *plan;
    tg_tensor *gradients; /* of absent tensors where the mean goes; data may be NULL then */
    uint8_t *given;       /* tg_given of each tensor */
    size_t missing;       /* tensors that are not given yet */
    bool *anywhere;       /* of each tensor, whether some rank has a gradient, as far as is known */
    bool *has;            /* of each tensor of the message that is looked at, whether its sender has a gradient */
    uint8_t *had_last;    /* of each rank, whether it has the last tensor of the message before; or that is not known */
    float *clips;         /* DGC's factor of each tensor */
    tg_encode_report *reports;
    tg_verdict verdict; /* what is wrong here, as far as is known */
    bool peer_failed;   /* another rank abstains, and will say why in its verdict */
    bool greets;
    bool settled; /* the outcome is known */
    tg_verdict outcome;
    tg_transfer greeting;
    tg_agreement introduction, agreement; /* on the greeting, and on the step */
    tg_transfer *batches, *results;
    size_t batches_handed, batches_fed, results_handed, results_fed;
    float *aside; /* gather: means of all tensors until the verdict, in device memory; NULL: frames are kept instead */
    tg_relay *relays;                              /* gather: of the batches that have one, in their order */
    size_t relay_count, relays_handed, relays_fed; /* of this step's plan; exchanges after the first of each */
    tg_frame *sent;                                /* this rank's frames, by part */
    tg_frame *received; /* what is summed here, this rank's own included: by piece and rank */
    bool *may_overflow; /* not shard: of each piece, whether values are so large that their sum may not be finite */
    tg_frame *means;    /* shard: results, by part */
    bool *is_whole;     /* shard: results of a sparse tensor that are not chosen elements, but all */
    tg_shard_list_step *sparse; /* of each tensor, under shard and scatter */
    void *lists;                /* device memory for their lists */
    tg_level_step *levels;      /* where hosts have several ranks; else NULL */
    tg_body **bodies;           /* all there are; NULL where messages are whole */
    size_t body_count;
    void *window;         /* gather: device memory that bodies come to in turn */
    tg_transfer **headed; /* those with bodies, in the order in which their heads are handed out */
    size_t heads_handed, heads_fed, bodies_handed, bodies_fed;
    tg_opened opened;
    tg_exchange **queue; /* drive.c: started and not fed, oldest first; places count on, modulo its room */
    size_t queue_room, queue_from, queue_to;
};

/* A reducer between hosts (levels.h): of one share of every tensor. */
typedef struct tg_share {
    const tg_reducer *whole; /* whose share it is; NULL: this is not one */
    uint32_t number;
    const uint32_t *ranks; /* of each host, the rank that has it there, by which messages name it */
} tg_share;

struct tg_reducer {
    tg_device *device;
    const tg_kernels *kernels;
    tg_arena arena;
    void *rooms; /* for messages, in memory shared with the device: each piece starts with the address of that before */
    uint64_t room_bytes;
    uint32_t rank, world;
    tg_levels *levels; /* where hosts have several ranks; else NULL */
    tg_share share;
    tg_algorithm algorithm;
    const tg_algorithm_functions *functions;
    tg_reducer_options options; /* with a schedule of our own, and defaults filled in */
    uint32_t *amounts;          /* of the schedule's entries */
    tg_reducing_tensor *tensors;
    const char **names;
    size_t tensor_count;
    tg_codec **codecs;
    size_t codec_count;
    tg_codec *plain; /* `none` */
    tg_plan coded, dense;
    uint8_t *greeting;
    uint32_t greeting_size;
    uint64_t layout; /* digest of the greeting */
    bool greeted;
    uint32_t gather_window; /* see tg_gather_window */
    float *wide;  /* the largest piece, or all of a batch that are summed here, as float32, in device memory */
    void *narrow; /* shard: and in 16 bits */
    uint32_t *old_boundaries; /* shard: room for those of one tensor */
    uint8_t **ends;           /* shard, scatter: where each owner's message ends, and its frames, while it is written */
    uint32_t *frame_counts;
    tg_encode_job *encodings; /* jobs for the device; see jobs.c */
    tg_encoded *encoded;
    tg_check_job *checks;
    tg_checked *checked;
    tg_add_job *addings;
    tg_mean *checked_means;
    tg_frame *outgoing; /* of a message that is being made, where it has a body */
    size_t encoding_count, check_count, check_room, adding_count, adding_room;
    tg_transfer *begun_message; /* gather: whose encodings have not been waited for; NULL: none */
    tg_reduction *begun_by;
    tg_status adding_status;           /* TG_OK until the device cannot add: then sums are not what they should be */
    tg_feedback **second;              /* shard: residuals of the second encoding, of the pieces owned here */
    tg_list_workspace *list_workspace; /* shard: for sums of lists; these, of a batch, are in `sum_memory` */
    void *sum_memory;                  /* of the device: indices, and behind them values */
    uint64_t sum_room;                 /* elements */
    tg_sum_job *sum_jobs;
    tg_list *sums;
    size_t *summed; /* the pieces of these */
    size_t sum_count;
    tg_list_job *list_jobs;
    tg_feedback **list_feedbacks; /* to whose residuals they are added */
    size_t list_count, list_room;
    uint64_t begun;     /* reductions */
    size_t relay_count; /* batches whose messages are handed on, of all plans */
    tg_bypass_rule bypass_rule;
    uint64_t *bypass_changes; /* the log, or what is replayed; NULL where bypass is off */
    size_t bypass_change_count;
    bool folded;              /* bypass: second residuals are known to be zero */
    tg_reduction *reductions; /* `depth` of them */
    tg_reducer_stats stats;
};

/* What algorithms do differently: with one batch of a reduction, which may be lost already, and then this rank
 * only keeps step; and at the end of all of it. What goes wrong is recorded with tg_reduction_fail. */
struct tg_algorithm_functions {
    tg_algorithm algorithm;
    bool has_parts;   /* ranks sum parts, and are sent these */
    bool has_results; /* and send what they come to */
    /* Compresses the batch's pieces and fills in what the transfer sends. */
    void (*send)(tg_reduction *reduction, size_t batch);
    /* Checks what came. */
    void (*take)(tg_reduction *reduction, size_t batch);
    void (*take_results)(tg_reduction *reduction, size_t batch);
    /* The mean, into the gradients; residuals are settled. */
    void (*apply)(tg_reduction *reduction);
    /* What was sent goes back into the residuals. */
    void (*undo)(tg_reduction *reduction);
};
extern const tg_algorithm_functions tg_gather, tg_shard, tg_scatter, tg_two_levels;

/* By what a sum over all that is exchanged is divided for the mean. */
static inline uint32_t tg_divisor(const tg_reducer *r) { return r->share.whole ? r->share.whole->world : r->world; }
/* The rank that messages name. */
static inline uint32_t tg_named(const tg_reducer *r, uint32_t rank)
{
    return r->share.ranks ? r->share.ranks[rank] : rank;
}

/* The element that they name: with two levels, a tensor between hosts is a share of another one. */
static inline uint64_t tg_named_element(const tg_reducer *r, uint32_t tensor, uint64_t element)
{
    return element + (r->share.whole ? r->share.whole->tensors[tensor].parts[r->share.number] : 0);
}

static inline double tg_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- reducer.c ---- */

/* Copies tensors and options, and lays them out. Without a device the reducer is one that is only described. */
tg_status tg_reducer_keep(tg_reducer *reducer, const tg_reducer_tensor *tensors, const tg_reducer_options *options,
                          tg_error *error);
/* All that a reducer has, by its tensors and options. */
tg_status tg_reducer_fill_in(tg_reducer *reducer, const tg_reducer_tensor *tensors, const tg_reducer_options *options,
                             tg_error *error);
/* Writes the greeting anew, to be sent with the next reduction. */
void tg_reducer_greet(tg_reducer *reducer);
/* Elements of reducer->wide, and of `narrow`. */
uint64_t tg_wide_room(const tg_reducer *reducer);

/* ---- layout.c: what travels how ---- */

/* The amount of a spec in a step, by the schedule. */
uint32_t tg_amount_at(const tg_reducer *reducer, const tg_spec *spec, uint64_t step);
/* The spec of a tensor's frames in a reduction. */
tg_spec tg_spec_in(const tg_reduction *reduction, uint32_t tensor);
/* The codec that makes them. */
tg_codec *tg_codec_in(tg_reduction *reduction, uint32_t tensor);
/* The spec of a tensor where it is compressed, of steps that compress: of two levels, between hosts. */
tg_spec tg_wire_spec(const tg_reducer *reducer, const tg_reducing_tensor *tensor);
/* Where a vector with this spec may be cut: at multiples of this; 0: nowhere. */
uint64_t tg_grain_of(const tg_spec *spec);
/* Most bytes of a frame of `count` elements of this tensor. */
size_t tg_frame_room(const tg_reducer *reducer, bool dense, uint32_t tensor, uint64_t count);
/* Most bytes of a frame of selected elements that an owner gets of a piece, or sends as results: what writing it takes,
 * or what arrives. */
size_t tg_list_room(const tg_reducer *reducer, const tg_piece *piece, uint32_t owner, bool results, bool arrives);
/* shard: the most means that an owner chooses of a sparse tensor. */
uint64_t tg_most_chosen(const tg_reducer *reducer, const tg_piece *piece);
/* shard: whether an owner has results of a batch, in any step. */
bool tg_has_results(const tg_reducer *reducer, size_t batch, uint32_t owner);
/* Most bytes of the frames of a batch, in any step; from specs alone. */
uint64_t tg_batch_bound(const tg_reducer *reducer, size_t batch);
/* Whether the elements of this piece are selected: such pieces are not cut where ranks have parts. */
bool tg_piece_is_sparse(const tg_reduction *reduction, const tg_piece *piece);
/* Plans and the algorithm, from tensors and options. */
tg_status tg_reducer_lay_out(tg_reducer *reducer, tg_error *error);
/* And the codecs that they need. */
tg_status tg_reducer_make_codecs(tg_reducer *reducer, tg_error *error);

/* ---- present.c: which tensors are given, and which ranks have them ---- */

void tg_given_reset(tg_reduction *reduction);
tg_status tg_gradient_check(const tg_reducer *reducer, size_t index, const tg_tensor *gradient, tg_error *error);
/* Takes a gradient that was checked. The caller has entered the floating-point mode. */
void tg_give(tg_reduction *reduction, size_t index, const tg_tensor *gradient);
/* Whether all tensors of a message are given. */
bool tg_message_is_given(const tg_reduction *reduction, size_t message);
/* The error that names the tensors that are not given. */
tg_status tg_missing_fail(const tg_reduction *reduction, tg_error *error);
/* The bitmap of tensors that this rank has in a message: its bytes, and writing it. */
uint32_t tg_present_size(const tg_reduction *reduction, size_t message);
void tg_present_write(const tg_reduction *reduction, size_t message, uint8_t *extra);
/* Reads a peer's into reduction->has; what is wrong is recorded, and then the answer is false. */
bool tg_present_read(tg_reduction *reduction, size_t message, uint32_t peer, tg_cursor *extra);
enum { TG_NOT_KNOWN = 2 }; /* reduction->had_last, where the message before was damaged */

/* ---- transfers.c: buffers of exchanges ---- */

/* Room for messages, all zero: host memory that a card copies from and to while others work. It is pinned, and so taken
 * whether it is touched or not: no more of it than gradients take as float32, because rooms are for the longest frames
 * that could be. Beyond that, and where no more can be had, ordinary memory serves too: copies are slower then, and
 * nothing else differs. NULL, and the arena has failed, where there is none. */
uint8_t *tg_message_room(tg_reducer *reducer, uint64_t bytes);
void tg_message_rooms_free(tg_reducer *reducer);
/* The arrays of an exchange, and room for what goes out and for what comes from every other rank. */
void tg_transfer_prepare(tg_reducer *reducer, tg_transfer *transfer, tg_message_kind kind, tg_exchange_kind exchange,
                         uint32_t number);
void tg_transfer_give_room(tg_reducer *reducer, tg_transfer *transfer, size_t out, const size_t *in);
/* Makes the transfers of one reduction. */
bool tg_transfers_make(tg_reducer *reducer, tg_reduction *reduction);
/* Everything that a transfer sends is one message of this size, at its start, to all. */
void tg_transfer_send_all(tg_reducer *reducer, tg_transfer *transfer, size_t size);
/* Header of a message that this rank sends on this transfer; the extra part is in place. */
void tg_transfer_seal(tg_reduction *reduction, const tg_transfer *transfer, uint32_t frames, uint32_t extra,
                      uint8_t *bytes);
/* Opens what came from `peer`; what is wrong is recorded, and then the answer is false; also where the peer abstains.
 */
bool tg_transfer_open(tg_reduction *reduction, tg_transfer *transfer, uint32_t peer, tg_message *message,
                      tg_cursor *extra, tg_cursor *frames);

/* After everything has been taken out of a message: nothing may be left. */
void tg_transfer_close(tg_reduction *reduction, uint32_t peer, const tg_message *message, uint32_t due,
                       const tg_cursor *extra, const tg_cursor *frames);

/* ---- body.c: messages, whole or in two ---- */

/* Gives a transfer a body, with room for so many bytes; `in` is NULL where room to receive is given otherwise. */
void tg_body_make(tg_reducer *reducer, tg_reduction *reduction, tg_transfer *transfer, size_t out, const size_t *in);
void tg_bodies_free(tg_reducer *reducer);
/* Of the message to an owner, or TG_EVERY_OWNER: its extra part, and where frames start behind so many bytes of it. */
uint8_t *tg_extra_at(const tg_transfer *transfer, uint32_t owner);
uint8_t *tg_frames_at(const tg_transfer *transfer, uint32_t owner, uint32_t extra);
/* Fills in what the transfer sends to an owner, or to all: the extra part is in place, and `count` frames that end at
 * `end`. Nothing but a header where the step is lost. `frames` are only needed where they make up a body. */
void tg_message_send(tg_reduction *reduction, tg_transfer *transfer, uint32_t owner, uint32_t extra,
                     const tg_frame *frames, uint32_t count, const uint8_t *end);
/* Nothing is sent to anybody. */
void tg_message_none(tg_reducer *reducer, tg_transfer *transfer);
/* The heads have come: how long bodies will be. */
tg_status tg_body_expect(const tg_reduction *reduction, const tg_transfer *transfer, tg_error *error);
/* A message whose head has been opened: its entries are taken off the extra part, and are what frames are read by. */
void tg_body_open(tg_reduction *reduction, const tg_transfer *transfer, uint32_t peer, const tg_message *message,
                  tg_cursor *extra, tg_cursor *frames);
/* The next frame of it; false if there is none. */
bool tg_body_frame(tg_reduction *reduction, tg_cursor *frames, tg_frame *frame);
static inline bool tg_receives_from(const tg_transfer *t, uint32_t peer) { return t->capacity[peer] != TG_NO_MESSAGE; }

/* ---- agreement.c: all ranks come to the same outcome ---- */

/* Rounds, and peers that a rank sends to and hears from in each. */
uint32_t tg_agreement_rounds(uint32_t world);
uint32_t tg_agreement_peers(uint32_t world);
/* Exchanges of a reducer's verdict, without the sentence: as many as there are rounds, or one where the back end finds
 * the least of all ranks' numbers, so many bytes. */
uint32_t tg_agreement_exchanges(const tg_reducer *reducer);
#define TG_MINIMUM_BYTES 64u
bool tg_agreement_tells(const tg_reducer *reducer, uint32_t round, uint32_t peer);
bool tg_agreement_hears(const tg_reducer *reducer, uint32_t round, uint32_t peer);
void tg_agreement_reset(tg_agreement *agreement);
/* The next exchange, filled in; NULL if there is none for now. */
tg_transfer *tg_agreement_next(tg_reduction *reduction, tg_agreement *agreement);
/* Takes what came. An error where this rank cannot know what the others do. */
tg_status tg_agreement_take(tg_reduction *reduction, tg_agreement *agreement, tg_transfer *transfer, tg_error *error);

/* ---- gather.c ---- */

/* How many batches are under way at once where means are made as messages come and set aside until the verdict, so that
 * room for messages is used again: fewer where a batch of all ranks is large. 0: every batch has room of its own,
 * unless frames of all ranks would take more than twice as much as the means and the window. */
uint32_t tg_gather_window(const tg_reducer *reducer);
/* Waits for the reports of a message that was begun before its turn, if there is one: what is encoded next takes the
 * place of its jobs. Its frames may still be on their way to the host. */
void tg_message_reports(tg_reducer *reducer);
/* The mean of a piece among those that are set aside. */
float *tg_aside_of(const tg_reduction *reduction, const tg_piece *piece);

/* ---- relay.c: small messages of many ranks ---- */

/* Whether a batch's messages are handed on from rank to rank. */
bool tg_is_relayed(const tg_reducer *reducer, size_t batch);
/* Messages that are handed on in a round, each with an entry for its size before them. */
#define TG_RELAY_ENTRY 4u
uint32_t tg_relay_blocks(uint32_t world, uint32_t round);
/* The next round, filled in; and takes what came, until all messages of the batch are there. */
tg_transfer *tg_relay_next(tg_reduction *reduction, tg_relay *relay);
bool tg_relay_take(tg_reduction *reduction, tg_relay *relay);
/* Where what came from a rank in a round ends, by what it says. */
size_t tg_relay_size(const tg_reduction *reduction, const tg_transfer *round, uint32_t from);

/* ---- bypass.c: steps that are sent as they are because that is faster ---- */

tg_status tg_bypass_check(const tg_reducer_options *options, tg_error *error);
bool tg_bypass_keep(tg_reducer *reducer, const tg_reducer_options *options);
/* Forgets what was decided; and what is known of residuals, too. */
void tg_bypass_reset(tg_reducer *reducer);
void tg_bypass_forget(tg_reducer *reducer);
/* Whether a reduction is sent as it is. */
bool tg_bypass_at(const tg_reducer *reducer, uint64_t number);
/* What all ranks know of the time that r->timed is about. */
void tg_bypass_note(tg_reduction *reduction, uint32_t microseconds);
/* Residuals before and after a reduction. */
void tg_bypass_begin(tg_reduction *reduction);
void tg_bypass_end(tg_reduction *reduction, bool applied);
/* The feedback of a tensor, unless there is nothing in it and nothing will be; and a source that sends all of it. */
tg_feedback *tg_feedback_in(const tg_reduction *reduction, uint32_t tensor);
tg_source tg_source_in(const tg_reduction *reduction, const tg_source *source);

/* ---- pieces.c: frames of pieces ---- */

/* The draws of a frame are numbered by its piece, and of a piece that is cut further by its part; those of results have
 * this bit too. */
#define TG_RESULT_DRAW UINT32_C(0x80000000)
tg_draw tg_draw_of(const tg_reduction *reduction, uint32_t rank, uint32_t number);
tg_nonfinite tg_policy_of(const tg_reducer *reducer);

/* Whether this rank compresses a piece. Where the step is lost already that is for the residuals alone, so that what
 * they hold in the end does not depend on when a rank heard of it. */
bool tg_piece_is_sent(const tg_reduction *reduction, const tg_piece *piece);

/* The part of the gradient that a piece is; no data where this rank has no place for it. */
tg_tensor tg_piece_of(const tg_reduction *reduction, const tg_piece *piece);
/* The frames of a piece that are summed here, in rank order. */
static inline tg_frame *tg_received(const tg_reduction *r, size_t piece)
{
    return r->received + r->plan->pieces[piece].received;
}
/* This rank's own frames of a batch come to those that are summed here. */
void tg_receive_own(tg_reduction *reduction, const tg_batch *batch);
/* Moves the frames of the ranks that have the tensor to the front, in rank order; returns how many there are. */
size_t tg_pack_received(const tg_reduction *reduction, size_t piece);
/* shard: the number of an owner's part of a piece. */
static inline size_t tg_part_number(const tg_reduction *r, size_t piece, uint32_t owner)
{
    const tg_piece *p = &r->plan->pieces[piece];
    return p->part + (p->owner == TG_EVERY_OWNER ? owner : 0);
}
/* shard: the number of the draws of an owner's part of a piece. */
static inline uint32_t tg_part_draw(const tg_reduction *r, size_t piece, uint32_t owner)
{
    return (uint32_t)(piece * r->reducer->world + owner) & ~TG_RESULT_DRAW;
}
/* Collects the job that compresses a piece of the gradient, with its feedback; the frame becomes that of a part. */
void tg_piece_encode(tg_reduction *reduction, size_t index, uint32_t draw, uint8_t **end);
/* The source of a piece of the gradient. */
tg_source tg_piece_source(const tg_reduction *reduction, const tg_piece *piece);
/* Adds what an encoding of a tensor came to. */
void tg_report_add(tg_reduction *reduction, uint32_t tensor, const tg_encode_report *report);
/* Of the last `count` encodings, which are of gradients: asks for the norms of tensors whose last piece is among them.
 * When these are there: adds what the encodings came to, and brings the statistics of these tensors up to date. */
void tg_pieces_ask(tg_reduction *reduction, size_t count);
void tg_pieces_note(tg_reduction *reduction, size_t count);
/* Something about a tensor's values makes the step impossible. */
void tg_piece_fail(tg_reduction *reduction, uint32_t tensor, const char *what, tg_status status, const tg_error *why);

/* The values of a mean, for tg_means_check; `narrow` may be NULL. */
tg_mean tg_mean_of(const tg_reduction *reduction, size_t piece, float *values, void *narrow, tg_dtype dtype);
/* Whether means are finite; then they are narrowed. One that is not is dropped and counted where that is the policy,
 * else recorded, and the answer is false. */
bool tg_means_check(tg_reduction *reduction, tg_mean *means, size_t count);
/* Records that the mean of an element is not finite. */
void tg_mean_fail(tg_reduction *reduction, uint32_t tensor, uint64_t element);

/* Takes the next frame from `peer` off its message and compares its header; tg_jobs_check will check the rest. What is
 * wrong is recorded. `may_overflow`: see tg_checked. */
bool tg_piece_take(tg_reduction *reduction, uint32_t peer, tg_cursor *frames, const tg_due *due, tg_frame *frame,
                   bool *may_overflow);
/* Whether the frame of a job, whose header is known, is the one that is due. */
tg_status tg_piece_compare(const tg_reduction *reduction, uint32_t peer, const tg_frame_info *info, tg_due *due,
                           tg_error *error);
void tg_bad_frame(tg_reduction *reduction, uint32_t tensor, uint32_t peer, const tg_error *why);

/* The elements that an owner sums. */
typedef struct tg_owned {
    uint64_t first, count;
} tg_owned;

/* ---- jobs.c: what the device does for a whole message at once ---- */

void tg_jobs_make(tg_reducer *reducer);
/* Each collects one job: a frame of a source, at *end; the selection of a source; a frame of a part of a list; a frame
 * of a vector, as `none`, in the place of another. */
void tg_job_encode(tg_reduction *reduction, size_t index, const tg_source *source, uint32_t draw, uint8_t **end,
                   tg_frame *frame);
void tg_job_select(tg_reduction *reduction, size_t index, const tg_source *source, uint32_t draw, tg_list *list);
void tg_job_encode_list(tg_reduction *reduction, size_t index, const tg_list *list, const tg_owned *part, uint32_t draw,
                        float *sent, uint8_t **end, tg_frame *frame);
void tg_job_encode_plain(tg_reduction *reduction, size_t index, const tg_source *source, uint32_t draw,
                         tg_frame *frame);
/* Does what was collected. Returns how many; reports are in reducer->encodings, and what went wrong is recorded. */
size_t tg_jobs_encode(tg_reduction *reduction, const char *what);
/* The same in two halves, between which the device is waited for: its reports at least. */
size_t tg_jobs_begin(tg_reducer *reducer);
size_t tg_jobs_take(tg_reduction *reduction, const char *what);
void tg_job_check(tg_reduction *reduction, const tg_check_job *job, const tg_checked *checked);
void tg_jobs_check(tg_reduction *reduction);
/* out = sum of frames * scale; see tg_mean_job. */
void tg_job_mean(tg_reducer *reducer, const tg_frame *frames, size_t frame_count, float scale, uint64_t among,
                 const tg_tensor *out);
void tg_jobs_add(tg_reducer *reducer);
/* Collects a job that adds a list to a residual; what overflows is counted as saturated where it is limited, else as
 * dropped. */
void tg_job_add_list(tg_reducer *reducer, tg_feedback *feedback, const tg_list_job *job);
void tg_jobs_add_lists(tg_reducer *reducer);

/* ---- overflow.c: sums that are not finite, where no owner encodes them ---- */

/* Collects the jobs that look how large the values of this rank's own frames are. */
void tg_look_at_own(tg_reduction *reduction, const tg_batch *batch);
/* Adds up beforehand what may overflow, unless such sums are to be dropped: the part of a piece that is summed here,
 * as elements of its tensor. */
void tg_overflow_check(tg_reduction *reduction, size_t index, const tg_owned *part);
/* Collects the job that leaves the mean of a piece in `out`, its elements from `first` on; where sums may overflow and
 * are to be dropped, does it at once. Nothing where no rank has the tensor. */
void tg_mean_apply(tg_reduction *reduction, size_t index, uint64_t first, uint64_t among, const tg_tensor *out);

/* ---- shard.c ---- */

/* What ranks that sum parts need to send them. */
tg_status tg_parts_make(tg_reducer *reducer, tg_error *error);
/* Compresses a batch's pieces, to each owner its own; and collects the jobs that check what came for this rank. */
void tg_parts_send(tg_reduction *reduction, size_t number);
void tg_parts_take(tg_reduction *reduction, size_t number);
/* Returns what was sent. */
void tg_parts_undo(tg_reduction *reduction);

/* What shard keeps besides: residuals of the second encoding, and what sparse pieces need. */
tg_status tg_shard_make(tg_reducer *reducer, tg_error *error);

/* ---- scatter.c ---- */

/* Takes over where parts begin. */
tg_status tg_scatter_boundaries(tg_reducer *reducer, const tg_reducer_tensor *given, size_t number, tg_error *error);

/* ---- shard_lists.c: sparse pieces under shard, and parts of them under scatter ---- */

tg_status tg_shard_list_make(tg_reducer *reducer, tg_error *error);
bool tg_shard_list_make_steps(tg_reducer *reducer, tg_reduction *reduction);
void tg_shard_list_reset(tg_reduction *reduction);
/* Selects of all sparse pieces of a batch. */
void tg_shard_list_select(tg_reduction *reduction, const tg_batch *batch);
/* Cuts a selection at the boundaries, and collects the jobs that append to each owner's message. */
void tg_shard_list_send(tg_reduction *reduction, size_t index);
/* When they are done: what encoding left of the values returns to the residuals. */
void tg_shard_list_sent(tg_reduction *reduction, const tg_batch *batch);
/* Sums this rank's parts of a batch and selects again. What goes wrong is recorded. */
void tg_shard_list_sum(tg_reduction *reduction, const tg_batch *batch);
/* Collects the job that appends what was selected. When all of a batch are done: parts that are no larger as a whole
 * are sent so, and later frames follow them without gaps. */
void tg_shard_list_result(tg_reduction *reduction, size_t index, uint8_t **end);
void tg_shard_list_shrink(tg_reduction *reduction, const tg_batch *batch, uint8_t **end);
/* Whether the mean of a piece is made and sent here. */
bool tg_is_summed(const tg_reduction *reduction, const tg_piece *piece);
/* Collects the jobs that leave the mean in the gradient, and what it lacks in the residual. */
void tg_shard_list_apply(tg_reduction *reduction, size_t index);
void tg_shard_list_undo(tg_reduction *reduction, size_t index);
void tg_shard_list_free(tg_reducer *reducer);

/* ---- boundaries.c: where parts of sparse tensors begin ---- */

tg_owned tg_part_of(const tg_reduction *reduction, const tg_piece *piece, uint32_t owner);
/* Selections move slowly, so ranks propose boundaries every so many steps: to each owner, with its part, where that
 * should begin. The owner's mean of all proposals is where it will, and comes with its results. So many bytes for each
 * balanced piece, in parts and in results. */
enum { TG_BOUNDARIES_EVERY = 16, TG_PROPOSAL_SIZE = 4 };
/* Bytes of boundaries in a message. */
uint32_t tg_boundaries_size(const tg_reduction *reduction, const tg_batch *batch);
void tg_boundaries_propose(tg_reduction *reduction, const tg_batch *batch);
/* What `owner` is sent, or sends when it has decided. */
void tg_boundaries_write(const tg_reduction *reduction, const tg_batch *batch, uint32_t owner, uint8_t *extra);
bool tg_boundaries_read_proposals(tg_reduction *reduction, const tg_batch *batch, tg_cursor *extra);
void tg_boundaries_decide(tg_reduction *reduction, const tg_batch *batch);
bool tg_boundaries_read(tg_reduction *reduction, const tg_batch *batch, uint32_t owner, tg_cursor *extra);
/* Whether what all owners have decided are boundaries; and, when all is done with the old ones, these take their place.
 */
bool tg_boundaries_check(const tg_reduction *reduction, const tg_batch *batch);
void tg_boundaries_move(tg_reduction *reduction);
void tg_boundaries_reset(tg_reducer *reducer);
/* The most elements that a part may have under shard, whatever ranks propose, so that what may come from `world` ranks
 * does not take room for all of the tensor from each. */
uint64_t tg_part_limit(uint64_t count, uint32_t world);
/* Moves boundaries[1 ... world - 1], which do not decrease, so that no part has more. Where none has, nothing moves.
 * `old` is room for `world` of them. */
void tg_boundaries_limit(uint64_t count, uint32_t world, uint32_t *boundaries, uint32_t *old);

/* ---- machine.c ---- */

/* The start of a reduction, and its end: residuals and statistics are brought up to date. */
void tg_reduction_reset(tg_reduction *reduction, uint64_t step);
void tg_reduction_conclude(tg_reduction *reduction, bool applied);

/* This step will not be applied: something is wrong here, or another rank has said so. */
static inline bool tg_reduction_lost(const tg_reduction *reduction)
{
    return reduction->verdict.status != TG_OK || reduction->peer_failed;
}
/* Something makes this step impossible; the first one counts. `text` is a format. */
__attribute__((format(printf, 3, 4))) void tg_reduction_fail(tg_reduction *reduction, tg_status status,
                                                             const char *text, ...);

#endif
