/* What a reduction exchanges, from its plan alone. */
#ifndef TG_REDUCE_DESCRIBE_H
#define TG_REDUCE_DESCRIBE_H

#include "reduce/levels.h"

/* What one owner has of a batch. */
typedef struct tg_described_share {
    uint32_t owner;
    uint32_t frames;
    uint64_t elements, bytes;
} tg_described_share;

/* The exchanges of one batch. */
typedef struct tg_described_batch {
    size_t first_tensor, tensor_count;
    size_t first_share, share_count;  /* owners of pieces that have one owner, in rising order */
    tg_described_share every;         /* what each owner has of balanced pieces, in parts */
    uint64_t every_result, balanced;  /* bytes of their results, and how many there are */
    uint64_t elements, frames, bytes; /* of one rank's gradients, all owners together */
    uint32_t owners;                  /* that have something of it, in any step */
    uint64_t largest_share;           /* bytes of the shares above */
    uint64_t smallest_share;          /* likewise; 0 where a rank has none */
    bool relayed;                     /* messages are handed on, in rounds */
} tg_described_batch;

/* Exchanges come in the order in which the step machine hands them out. */
typedef struct tg_described_entry {
    tg_exchange_role role;
    size_t batch, after;
    uint32_t round; /* of a batch that is handed on */
} tg_described_entry;

/* Two levels: what there is of one share in a message, or of all shares. */
typedef struct tg_described_part {
    uint64_t pieces, elements;
    uint64_t ended;  /* elements that go between hosts then */
    uint64_t raw;    /* bytes of a message of raw parts */
    uint64_t spread; /* and of one of results */
    uint64_t frames; /* of the latter, and so many elements */
    uint64_t carried;
    uint64_t meant; /* elements of those that are means under gather */
} tg_described_part;

/* The same over all shares, so that an exchange of a rank is described without looking at each of them. */
typedef struct tg_described_message {
    tg_described_part all, smallest, largest; /* sums; the least and the most bytes of a share */
    struct {
        uint64_t sent, received; /* by any owner, between hosts */
    } most[2];                   /* of gradients or parts; of results */
} tg_described_message;

struct tg_description {
    tg_reducer *reducer; /* tensors and plan, nothing else */
    tg_described_batch *batches;
    tg_described_share *shares;
    tg_described_entry *entries;
    size_t entry_count;
    uint64_t elements;
    uint64_t spread; /* two levels: elements of the frames that a rank decodes in the end */
    bool estimated;
    tg_description **levels; /* two levels: what happens between hosts, of each share; else NULL */
    uint32_t *place;         /* of each rank, how many of its host come before it */
    uint32_t *host_size;
    uint32_t largest_host;    /* ranks of it */
    size_t **inner_message;   /* of each share and message, that between hosts; SIZE_MAX: none */
    tg_described_part *parts; /* of each message and share, a message's shares one behind the other */
    tg_described_message *messages;
};

/* Fills in batches, in memory of the description's reducer, which has been kept. */
tg_status tg_description_fill_in(tg_description *description, tg_error *error);

/* What one rank has of an exchange of a batch: bytes and elements, and peers where these are not all others; the rest
 * is left as it is. */
void tg_describe(const tg_description *description, uint32_t rank, tg_exchange_role role, size_t batch,
                 tg_described_exchange *exchange);
/* shard: bytes of the results of a batch, of all owners together, without messages' headers. */
uint64_t tg_described_results(const tg_description *description, size_t batch);
/* Bytes of a frame of so many elements of a tensor. */
uint64_t tg_described_frame(const tg_reducer *reducer, uint32_t tensor, uint64_t count);

/* ---- describe_levels.c ---- */

tg_status tg_describe_levels(tg_description *description, tg_error *error);
void tg_describe_levels_free(tg_description *description);
void tg_describe_level(const tg_description *description, uint32_t rank, tg_exchange_role role, size_t message,
                       tg_described_exchange *exchange);

#endif
