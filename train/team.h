/* What the ranks tell each other besides gradients: whether all are well, and bytes of any length. */
#ifndef TRAIN_TEAM_H
#define TRAIN_TEAM_H

#include "common/message.h"
#include "tersegrad.h"

struct team {
    tg_transport *transport;
    uint32_t rank, world;
    double timeout; /* seconds to wait for the others, 0 for ever: threads of one process cannot get lost */
};

/* Every rank gets every rank's bytes; or, with `to_first`, rank 0 does, and the others get none but their own. */
struct shared_bytes {
    uint8_t *storage;
    tg_state parts[]; /* world of them */
};
struct shared_bytes *team_share(const struct team *team, const void *bytes, size_t size, bool to_first,
                                struct message *message);
void shared_bytes_free(struct shared_bytes *shared);

/* Whether all are well. TEAM_ILL, which every rank gets alike: `message` becomes that of the lowest rank that is not,
 * and `*culprit` its number. TEAM_LOST: the ranks cannot even talk any more, and the message says why. */
enum verdict { TEAM_WELL, TEAM_ILL, TEAM_LOST };
enum verdict team_verdict(const struct team *team, bool well, uint32_t *culprit, struct message *message);

#endif
