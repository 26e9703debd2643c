/* The process beside a rank: see watch.h. */
#ifndef TRAIN_WATCHER_H
#define TRAIN_WATCHER_H

#include "roll.h"

/* What its rank writes in the end. Without it, it was killed. */
enum farewell {
    FAREWELL_WELL = 'w', /* ends of its own will, and has said why if there was anything to say */
    FAREWELL_MADE = 'm'  /* ends because others made it: a signal, or another rank that was lost */
};

/* Reads from the rank, in this order: struct roll; the places of all ranks; and, if there are several machines and this
 * is the lowest rank of its own, every rank's struct speaker_place, after it has written its own to `back`, which the
 * rank has open as long as it lives. `steps` is counted by the rank. */
void watcher_run(int from, int back, const _Atomic uint64_t *steps);

#endif
