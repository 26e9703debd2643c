/* The launcher's processes above a rank on this machine. */
#ifndef TRAIN_LAUNCHER_H
#define TRAIN_LAUNCHER_H

#include "process.h"

struct launcher {
    struct process
        nearest; /* of which the rank is a child, or a grandchild with a shell between: mpirun itself, or its daemon */
    struct process front; /* what the person has started, where it runs on this machine */
    bool is_proxy;        /* the nearest is MPICH's daemon */
    int voice;            /* a copy of the front's stderr, or -1 */
};

/* Nothing is found where the names are not those of a launcher we know: a shell or another's supervisor is never taken
 * for one. */
void launcher_find(struct launcher *launcher, int64_t rank_process);

bool launcher_lives(const struct launcher *launcher);

/* To be done before the ranks are killed, where a launcher would else wait for a host that does not answer: for ever,
 * as was measured. MPICH's front ends if a daemon is lost, and goes on to wait if one ends well. OpenMPI's front, asked
 * to end, tells its daemons. */
void launcher_ask_to_end(const struct launcher *launcher);

void launcher_signal(const struct launcher *launcher, int signal);

/* Where a sentence still reaches the person: our stderr, unless one that would pass it on is gone. */
int launcher_voice(const struct launcher *launcher);

#endif
