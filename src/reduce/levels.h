/* Two levels, for hosts with several ranks (docs/collectives.md, 14). Every tensor is divided into shares, and on every
 * host each share has one owner:
 *
 *     raw        within a host: ranks send each owner its part of their gradients, as it is; the owner adds them up
 *     between    the owners of a share, one on each host, exchange the sums of their hosts by gather or shard
 *     spread     within a host: each owner sends the frames that this came to, which all decode
 *
 * What happens between hosts is done by another reducer, `inner`: its world are the hosts and its tensors the shares,
 * and it divides by the number of all ranks. Greetings and verdicts are those of all ranks. */
#ifndef TG_REDUCE_LEVELS_H
#define TG_REDUCE_LEVELS_H

#include "reduce/reducer.h"
#include "transport/transport.h"

#define TG_NO_SHARE UINT32_MAX

/* The exchanges of a message, in their order: each comes this many messages after the one before, as results do. So as
 * many messages and one more are under way at once, and these take turns with the buffers that hold nothing for long.
 */
enum { TG_STAGES = 4, TG_STAGE_BEHIND = TG_RESULTS_BEHIND, TG_TURNS = TG_STAGE_BEHIND + 1 };
typedef enum tg_stage { TG_STAGE_RAW, TG_STAGE_BETWEEN, TG_STAGE_RESULTS, TG_STAGE_SPREAD } tg_stage;

/* Shared memory of the ranks of a host (shared.c): of each reduction the gradients as float32, unless they lie
 * there already, and what is spread. */
typedef struct tg_host_memory {
    bool used;                    /* else ranks send each other messages */
    tg_shared *of;                /* that of each rank of the host, in their order */
    uint32_t own;                 /* this rank among them */
    uint64_t size;                /* of one reduction's part of it */
    uint64_t *gradients, *spread; /* where those of tensors and messages are in that */
    const float **values;         /* room for what is added up */
} tg_host_memory;

struct tg_levels {
    uint32_t hosts, host;   /* in the order of their first ranks; that of this rank */
    uint32_t shares, share; /* TG_NO_SHARE: this rank owns none */
    uint32_t *host_of_rank; /* of each rank */
    uint32_t *local;        /* the ranks of this host; the first own shares, in this order */
    uint32_t local_count;
    uint32_t *owners; /* of this rank's share, on each host */
    uint64_t digest;  /* of which ranks share hosts */
    uint64_t longest; /* share of 16-bit elements that is not cut */
    tg_stage stages[TG_STAGES];
    unsigned stage_count;
    tg_reducer *inner;        /* NULL: this rank owns no share */
    size_t *inner_message[2]; /* of each message of the coded and the dense plan, that of inner's; SIZE_MAX: none */
    tg_frame *frames;         /* room for those of one message that are spread */
    tg_host_memory memory;
};

/* A place in the order of exchanges. */
typedef struct tg_turn {
    size_t slot;
    unsigned stage;
} tg_turn;

/* What one reduction keeps besides. */
struct tg_level_step {
    tg_reduction *inner;
    float *sums;      /* of this host, this rank's shares of all tensors: device memory */
    uint64_t *places; /* where each tensor's share begins in it */
    tg_transfer raw[TG_TURNS];
    tg_transfer between[2][TG_TURNS]; /* inner's exchanges, among all ranks */
    size_t fed[TG_STAGES];            /* messages of each stage */
    tg_turn next, oldest;             /* to be handed out, and to be fed */
};

/* ---- hosts.c: who owns what ---- */

/* Reads the list of hosts. Where one has several ranks, the reducer has levels from then on. */
tg_status tg_levels_make(tg_reducer *reducer, const tg_reducer_options *options, tg_error *error);
/* Divides all tensors into shares: tg_reducing_tensor.parts. */
tg_status tg_levels_share(tg_reducer *reducer, tg_error *error);
/* The tensors of a share: names, counts, and how they travel between hosts. */
tg_reducer_tensor tg_share_tensor(const tg_reducer *reducer, size_t number, uint32_t share);
tg_reducer_options tg_share_options(const tg_reducer *reducer, uint32_t share);
/* Elements of a tensor that are in a share. */
static inline uint64_t tg_share_count(const tg_reducing_tensor *t, uint32_t share)
{
    return t->parts[share + 1] - t->parts[share];
}
/* What a piece ends of its share, and what is spread then; see tg_piece_ends. */
bool tg_share_ends(const tg_reducer *reducer, bool dense, const tg_piece *piece, tg_piece *slice);
/* gather: whether of a slice the mean is spread, because the frames of all hosts may be larger; and whether it is so
 * for all slices of a share. By the plan, so that all ranks know. */
bool tg_spreads_mean(const tg_reducer *reducer, bool dense, const tg_piece *slice);
bool tg_share_spreads_means(const tg_reducer *reducer, uint32_t share);
/* Most bytes of what the owner of a share spreads of a message. */
size_t tg_spread_room(const tg_reducer *reducer, const tg_plan *plan, size_t message, uint32_t share);
/* Makes the reducer between hosts. */
tg_status tg_levels_fill_in(tg_reducer *reducer, tg_error *error);
void tg_levels_free(tg_reducer *reducer);
/* Whether residuals of a tensor are kept; and this rank's residual, 0 where it owns nothing. */
bool tg_levels_keep(const tg_reducer *reducer, size_t tensor);
tg_status tg_levels_residual(const tg_reducer *reducer, size_t tensor, float *out, tg_error *error);
void tg_levels_stats(const tg_reducer *reducer, tg_reducer_stats *stats);

/* Whether what goes to a rank stays on this host. */
static inline bool tg_share_a_host(const tg_reducer *r, uint32_t peer)
{
    return r->levels && r->levels->host_of_rank[peer] == r->levels->host;
}

/* ---- levels.c: a step ---- */

/* Buffers of one reduction. */
void tg_levels_transfers(tg_reduction *reduction);
void tg_levels_begin(tg_reduction *reduction);
/* Whether all exchanges but the verdicts have been fed. */
bool tg_levels_are_through(const tg_reduction *reduction);
/* The next exchange, filled in; NULL if there is none for now. Then the oldest that was handed out, and what is done
 * with what it brought. */
tg_transfer *tg_levels_next(tg_reduction *reduction);
tg_transfer *tg_levels_oldest(tg_reduction *reduction);
void tg_levels_feed(tg_reduction *reduction);
/* What has gone wrong on one level is lost on both. */
void tg_levels_share_failure(tg_reduction *reduction);

/* ---- shared.c: the same without messages, through memory ---- */

bool tg_shared_make(tg_reducer *reducer);
void tg_shared_free(tg_reducer *reducer);
/* Says where the raw parts of a message are; finds those of others; and adds up those of a piece. */
void tg_shared_send_raw(tg_reduction *reduction, size_t number);
void tg_shared_take_raw(tg_reduction *reduction, size_t number);
void tg_shared_sum_raw(tg_reduction *reduction, size_t index, float *sums);
/* Says where a message is that this rank spreads; and copies those of others, as if they had been sent. */
void tg_shared_send_spread(tg_reduction *reduction, tg_transfer *transfer);
void tg_shared_take_spread(tg_reduction *reduction, tg_transfer *transfer);

/* ---- spread.c: what owners came to, to the ranks of their hosts ---- */

void tg_spread_send(tg_reduction *reduction, size_t number);
void tg_spread_take(tg_reduction *reduction, size_t number);
void tg_spread_apply(tg_reduction *reduction);

#endif
