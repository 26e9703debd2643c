/* Messages between ranks: a header, an extra part that depends on the kind, and frames (docs/collectives.md). Whatever
 * arrives is untrusted until it has been opened here. */
#ifndef TG_REDUCE_MESSAGE_H
#define TG_REDUCE_MESSAGE_H

#include "base/bytes.h"
#include "kernels/kernels.h"

#define TG_MESSAGE_HEADER 48u

typedef enum tg_message_kind {
    TG_MESSAGE_GREETING,  /* what this rank's reducer looks like */
    TG_MESSAGE_GRADIENTS, /* gather: frames of this rank's gradients */
    TG_MESSAGE_PARTS,     /* shard: frames of what the receiver owns */
    TG_MESSAGE_RESULTS,   /* shard: frames of the mean of what the sender owns */
    TG_MESSAGE_VERDICT,   /* whether ranks can apply the step, as far as is known */
    TG_MESSAGE_SENTENCE,  /* why not */
    TG_MESSAGE_KINDS
} tg_message_kind;

typedef struct tg_message {
    tg_message_kind kind;
    bool abstain; /* the sender cannot take part in this step: no frames follow */
    uint64_t step;
    uint32_t rank, world;
    uint32_t number; /* which message of its kind in this step */
    uint32_t frames;
    uint64_t layout; /* digest of the sender's greeting */
    uint32_t extra;  /* bytes between header and frames */
} tg_message;

/* Writes the header for a message whose extra part already lies behind it, checksum included. */
void tg_message_seal(const tg_kernels *kernels, const tg_message *message, uint8_t *bytes);

/* Where the message at the start of these bytes ends, by what it says; all of them if they are no message. */
size_t tg_message_size(const void *data, size_t size);

/* Where its head ends, of one whose frames follow it. */
size_t tg_head_size(const void *data, size_t size);

/* The fields of TG_MESSAGE_HEADER bytes, whatever they are. */
tg_message tg_message_fields(const uint8_t *bytes);

/* Reads a message and compares it with what is expected of this rank at this point (all fields but abstain, frames and
 * extra). On TG_OK, `extra` and `frames` are cursors over the two parts. The sentence says what is wrong, without
 * naming the rank. */
tg_status tg_message_open(const tg_kernels *kernels, const void *data, size_t size, const tg_message *expected,
                          tg_message *message, tg_cursor *extra, tg_cursor *frames, tg_error *error);

/* The next frame: as many bytes as its header says; false if they are not there. */
bool tg_message_frame(tg_cursor *frames, tg_frame *frame);

/* Where frames lie in device memory: the extra part ends with an entry for each. */
#define TG_ENTRY_BYTES 16u
typedef struct tg_entry {
    uint64_t place, size; /* from the start of the body */
} tg_entry;
void tg_entry_write(const tg_entry *entry, uint8_t *bytes);
bool tg_entry_read(tg_cursor *entries, tg_entry *entry); /* false if there is none */
/* How many bytes of frames follow this head, whoever sent it and for whatever step; false if it is damaged. */
bool tg_message_body(const tg_kernels *kernels, const void *data, size_t size, uint64_t *body);

/* Which of the n tensors of a message the sender has a gradient for: a bit for each, the first in the lowest bit of the
 * first byte. Left out, with no bytes at all, where it has all of them. Reading refuses any other bytes than writing
 * makes. */
static inline uint32_t tg_bitmap_bytes(uint32_t n) { return n / 8 + (n % 8 != 0); }
void tg_bitmap_write(const bool *bits, uint32_t n, uint8_t *bytes);
bool tg_bitmap_read(tg_cursor *extra, uint32_t n, bool *bits);

/* What a rank makes of a step. */
#define TG_VERDICT_TEXT 232u
typedef struct tg_verdict {
    tg_status status; /* TG_OK: it can be applied; else what tg_reduce_end is to return */
    char text[TG_VERDICT_TEXT];
} tg_verdict;

__attribute__((format(printf, 2, 3))) void tg_verdict_print(tg_verdict *verdict, const char *text, ...);

/* The numbers of verdicts' messages, twice the number of the round more; and of sentences. */
enum { TG_VERDICT_ON_GREETING = 0, TG_VERDICT_ON_STEP = 1, TG_VERDICT_NUMBERS = 2 };

/* The lowest rank of some that cannot apply a step, and what it makes of it; TG_NO_RANK and TG_OK where all can. */
#define TG_NO_RANK UINT32_MAX
#define TG_VOTE_BYTES 8u
#define TG_TIMED_BYTES 12u
typedef struct tg_vote {
    uint32_t rank;
    tg_status status;
    uint32_t microseconds; /* bypass: the longest that one of them took */
} tg_vote;
/* To and from the extra part of a verdict's message, with a time or without; a rank must be below `world`. */
uint32_t tg_vote_write(const tg_vote *vote, bool timed, uint8_t *extra);
bool tg_vote_read(tg_cursor extra, bool timed, uint32_t world, tg_vote *vote);
/* Whether a rank of such a world may have it. */
bool tg_vote_is_valid(const tg_vote *vote, uint32_t world);
/* A verdict's text from the extra part of a sentence's message. */
bool tg_sentence_read(tg_cursor extra, tg_verdict *verdict);

#endif
