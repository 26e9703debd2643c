/* The watcher of a machine's lowest rank speaks for the machine where ranks are on several. It gives signs of life and
 * listens for others' (beat.h). When a host falls silent, or does not answer when the ranks here are ended by others,
 * it is named, once, and the job ended on all hosts that are still there, the launcher included, which would wait for
 * the silent one. */
#ifndef TRAIN_SPEAKER_H
#define TRAIN_SPEAKER_H

#include "beat.h"
#include "roll.h"

/* What the speakers must know of each other. */
struct speaker_place {
    struct beat_place beat;
    uint64_t has_front; /* what the person started runs here: from here a sentence surely reaches the person */
};

struct speaker;

/* `places` must stay. NULL: no memory; `*own` is good in any case. */
struct speaker *speaker_open(const struct roll *roll, const struct place *places, struct speaker_place *own);
/* Every rank's place (zeros where it does not speak), and where this machine's rank counts what the ranks have done
 * together. */
void speaker_join(struct speaker *speaker, const struct speaker_place *all, const _Atomic uint64_t *steps);

/* To be waited for, and for how many milliseconds; then comes a turn. It does not return if a host has fallen silent.
 */
int speaker_socket(const struct speaker *speaker);
int speaker_wait(const struct speaker *speaker);
void speaker_turn(struct speaker *speaker);

/* The ranks here were ended, and not by themselves. Asks at once whether all hosts are there, and names those that do
 * not answer within a second. True: there are such. */
bool speaker_enquire(struct speaker *speaker);
/* Sleeps, but answers others that ask. */
void speaker_pause(struct speaker *speaker, unsigned seconds);
/* The ranks here are dead. Lets go of all files but the job's name (or -1), sees that the launcher ends if it may wait
 * for a host that is lost, stays for some seconds, because other hosts may ask, and leaves. */
void speaker_see_off(struct speaker *speaker, int name, bool is_any_lost);
/* Nobody is to wait for this machine any more. */
void speaker_leave(struct speaker *speaker);

#endif
