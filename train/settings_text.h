/* Settings as names and texts: to compare those of a checkpoint, and those of other ranks, with one's own. */
#ifndef TRAIN_SETTINGS_TEXT_H
#define TRAIN_SETTINGS_TEXT_H

#include "team.h"
#include "train.h"

struct setting {
    const char *name; /* the option's */
    char value[512];  /* of a longer one the beginning and a digest */
    bool is_lasting;  /* a run that goes on must keep it */
};

#define SETTINGS_MOST (22 + 2 * TRAIN_MOST_RUNS + TRAIN_MOST_CHANGES)
/* With the shape and the content of the data: a name may stand for other ones on another host, or some days later. */
size_t settings_list(const struct train_settings *settings, const struct dataset *data,
                     struct setting list[SETTINGS_MOST]);

/* Whether all ranks were started alike; if not, every rank gets the same message, which names the option. */
enum verdict settings_agree(const struct team *team, const struct train_settings *settings, const struct dataset *data,
                            struct failure *failure);

#endif
