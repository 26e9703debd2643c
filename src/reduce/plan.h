/* How the tensors of a step travel: which elements make up a frame, which frames a message, and who owns what. A
 * function of the layout and the world alone, so every rank comes to the same plan. */
#ifndef TG_REDUCE_PLAN_H
#define TG_REDUCE_PLAN_H

#include "reduce/arena.h"
#include "tersegrad.h"

/* What a plan needs to know of a tensor. */
typedef struct tg_plan_tensor {
    uint64_t count;
    uint64_t grain; /* may be cut at multiples of this; 0: may not be cut */
    bool balanced; /* under shard and scatter: its selected elements are divided among owners, and it is not cut here */
    const uint32_t *parts; /* scatter: where owners' parts begin, and the end */
} tg_plan_tensor;

#define TG_EVERY_OWNER UINT32_MAX

/* A range of elements of one tensor that is one frame. */
typedef struct tg_piece {
    uint32_t tensor;
    uint32_t owner; /* under shard: who sums it; TG_EVERY_OWNER where it is balanced */
    uint64_t first, count;
    size_t part;     /* number of its first part: it has one for each owner */
    size_t received; /* number of the first frame that is summed here, of `world` in rank order, if any are */
    uint64_t place;  /* of its mean, or a part of it, among those of a batch that are summed here */
    bool last;       /* of its tensor's pieces */
} tg_piece;

/* The pieces of one message: pieces[first ... first + count - 1]. */
typedef struct tg_batch {
    size_t first, count;
} tg_batch;

typedef struct tg_plan {
    tg_piece *pieces;
    size_t piece_count;
    tg_batch *batches;
    size_t batch_count;
    size_t part_count;
    size_t received_count;
    uint64_t largest; /* elements of the largest piece */
    uint64_t summed;  /* elements of the pieces of a batch that are summed here, at the most */
    uint64_t total;   /* elements of all pieces */
} tg_plan;

/* Whether `owner` sums something of this piece. */
static inline bool tg_goes_to(const tg_piece *piece, uint32_t owner)
{
    return piece->owner == TG_EVERY_OWNER || piece->owner == owner;
}

/* The order of exchanges is fixed, whatever comes when: results follow this many messages after their own, enough to
 * keep the wire busy while one is summed. Whether results are next, of `due` batches of which so many were handed out.
 */
enum { TG_RESULTS_BEHIND = 4 };
static inline bool tg_results_are_next(size_t batches, size_t results, size_t due)
{
    return results < due && (batches == due || batches > results + TG_RESULTS_BEHIND);
}

/* Whether `owner` sums something of a batch; false where the plan has fewer. */
bool tg_batch_goes_to(const tg_plan *plan, size_t batch, uint32_t owner);

/* Numbers the frames that are summed by `owner`, `world` of each of its pieces. */
void tg_plan_receive(tg_plan *plan, uint32_t owner, uint32_t world);

/* Cuts tensors into messages of about `batch_elements` elements, each divided among `owners` ranks (1: not divided).
 * All tensors have parts, or none has. False if there is no memory. */
bool tg_plan_make(const tg_plan_tensor *tensors, size_t tensor_count, uint64_t batch_elements, uint32_t owners,
                  tg_arena *arena, tg_plan *plan);

/* What a piece of `whole` ends of its tensor's share between hosts: itself, or where shares may not be cut, and then
 * with the last piece, all of it. As elements of the tensor, whose shares begin at `parts`. False where it ends
 * nothing. */
static inline bool tg_piece_ends(const tg_piece *piece, const uint32_t *parts, bool may_be_cut, tg_piece *slice)
{
    *slice = *piece;
    if (may_be_cut)
        return true;
    slice->first = parts[piece->owner];
    slice->count = parts[piece->owner + 1] - slice->first;
    return piece->first + piece->count == parts[piece->owner + 1];
}

/* The plan between hosts for one share, the pieces of one owner of `whole`: every message of that which has some is one
 * message here, divided among `owners` hosts. `tensors` are the shares, with the parts of the whole. False if there is
 * no memory. */
bool tg_plan_follow(const tg_plan *whole, uint32_t share, const tg_plan_tensor *tensors, uint32_t owners,
                    tg_arena *arena, tg_plan *plan);

#endif
