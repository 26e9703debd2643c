/* Says which rank of an MPI job died. A launcher that loses a rank kills the others at once, and MPICH's names the
 * wrong process; so each rank has a small process beside it that sees it end and, if it was the first on its machine,
 * names it. Where ranks are on several machines the sentence claims no more than that, and several machines may each
 * have one to name; where the system does not show the order, it says so. A machine that is lost as a whole is named by
 * another. */
#ifndef TRAIN_WATCH_H
#define TRAIN_WATCH_H

#include "team.h"

/* Before MPI is opened: makes the watcher. */
bool watch_begin(struct message *message);

/* Tells it who the ranks are. All ranks call it. */
bool watch_team(const struct team *team, struct message *message);

/* The ranks have done something together: so all are there. */
void watch_step(void);

/* This rank ends, and has said why if there was anything to say: of its own will, or because another is lost. */
void watch_end(bool by_itself);

#endif
