/* Signs of life between the hosts of a job. A host that loses its power or its link says nothing, and a connection to
 * it looks like one on which nothing happens to be said. So one process of each host sends a small UDP packet to every
 * other host once a second.
 *
 * Packets are 32 bytes with a secret of the job's; what does not have it, or is of another size, is not looked at. A
 * host is taken for silent only if its packets came before, and nothing has come from it since then: neither a packet
 * nor its part of the ranks' common work. So a firewall may forbid packets, at any time, without harm. Times are
 * clock_ns's, and are given, so that tests can make them. */
#ifndef TRAIN_BEAT_H
#define TRAIN_BEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BEAT_MOST_ADDRESSES = 6, BEAT_PACKET_SIZE = 32 };

#define BEAT_SECOND UINT64_C(1000000000)
#define BEAT_PERIOD BEAT_SECOND
#define BEAT_SILENCE (12 * BEAT_SECOND) /* of a host that is lost */
#define BEAT_HICCUP (4 * BEAT_SECOND)   /* as long as a host that is well may keep silent, and this process may sleep */

/* An address of IPv6, where those of IPv4 have their place too. */
struct beat_address {
    uint8_t bytes[16];
    uint16_t port; /* as the network has it */
};

/* What the other hosts must know of one. All bytes 0: there will be no packets. */
struct beat_place {
    uint64_t secret[2]; /* the first host's is the job's */
    uint32_t count;
    struct beat_address addresses[BEAT_MOST_ADDRESSES];
};

struct beat_peer {
    struct beat_place place;
    struct beat_address from; /* where it was heard from */
    uint64_t heard;           /* when */
    bool was_heard, has_left;
};

struct beat {
    int socket; /* -1: none */
    bool is_ipv4;
    uint64_t secret[2];
    uint32_t self, count;
    struct beat_peer *peers; /* count of them, this host as well */
    uint64_t next;           /* when the next packets are due */
    uint64_t turned;         /* when beat_turn was called last */
    uint64_t woke;           /* when it was called after a long time */
    uint64_t steps[2];       /* when the last two steps were seen to be done */
    uint64_t progressed;     /* when all hosts were there, by what the ranks have done since */
};

enum beat_kind {
    BEAT_NONE,
    BEAT_HERE, /* I am here */
    BEAT_ASK,  /* are you? */
    BEAT_LEFT, /* I leave; do not wait for me */
    BEAT_LOST  /* host `about` does not answer, the job ends */
};

struct beat_packet {
    uint64_t secret[2];
    uint32_t kind, from, about, nothing;
};

/* A socket, and how others reach it. Where that cannot be had, `own` says so with its zeros. */
void beat_open(struct beat *beat, struct beat_place *own);
/* The hosts and which of them is this; `peers` stays the caller's, with their places set and the rest 0. */
void beat_join(struct beat *beat, struct beat_peer *peers, uint32_t count, uint32_t self, uint64_t now);

/* To all that have not left. */
void beat_send(const struct beat *beat, enum beat_kind kind, uint32_t about);
/* The next packet that has come, which is answered where it asks; BEAT_NONE: there is none that counts. `*more` is
 * whether to try again. */
enum beat_kind beat_receive(struct beat *beat, uint64_t now, uint32_t *about, bool *more);
/* What these bytes from there mean. */
enum beat_kind beat_take(struct beat *beat, const void *bytes, size_t size, const struct beat_address *from,
                         uint64_t now, struct beat_packet *packet);

/* To be called more often than once a second: sends what is due. If it was not called for long, this process was
 * stopped, and what it has not heard in that time says nothing: silence counts from now. */
void beat_turn(struct beat *beat, uint64_t now);
/* A step is done. All ranks have given their part of it; one may have given it before this rank was done with the step
 * before, and be dead since, but not before this rank was done with the one before that, whose outcome it needed. So
 * all hosts were there then, and those whose packets had not come for long cannot send any. */
void beat_progress(struct beat *beat, uint64_t now);
/* Milliseconds until the next packets are due. */
int beat_wait(const struct beat *beat, uint64_t now);

/* Whether it is another host that can be heard, and has not left. */
bool beat_is_known(const struct beat *beat, uint32_t host);
/* And that nothing was heard of for so long. */
bool beat_is_silent(const struct beat *beat, uint32_t host, uint64_t now, uint64_t for_so_long);

#endif
