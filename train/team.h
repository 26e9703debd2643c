/* What the ranks tell each other besides gradients: whether one has failed, and bytes of any length. */
#ifndef TRAIN_TEAM_H
#define TRAIN_TEAM_H

#include "common/failure.h"
#include "tersegrad.h"

struct team {
    tg_transport *transport;
    uint32_t rank, world;
    double timeout; /* seconds to wait for the others; 0: no limit, for threads of one process */
};

/* Every rank gets every rank's bytes; or, with `to_first`, rank 0 does, and the others get none but their own. */
struct shared_bytes {
    uint8_t *storage;
    tg_state parts[]; /* world of them */
};
struct shared_bytes *team_share(const struct team *team, const void *bytes, size_t size, bool to_first,
                                struct failure *failure);
void shared_bytes_free(struct shared_bytes *shared);

/* Whether any rank has failed. TEAM_FAILED and TEAM_REFUSED, which every rank gets: `failure` becomes that of the
 * lowest failing rank, and `*culprit` its number; refused is what is wrong usage. TEAM_LOST: the exchange itself
 * failed, and the message says why. */
enum verdict { TEAM_WELL, TEAM_FAILED, TEAM_REFUSED, TEAM_LOST };
enum verdict team_agree(const struct team *team, enum verdict own, uint32_t *culprit, struct failure *failure);
/* The same where nothing is refused. */
enum verdict team_verdict(const struct team *team, bool well, uint32_t *culprit, struct failure *failure);

#endif
