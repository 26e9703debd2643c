/* Short names for runs that stand side by side: what they are, and where that is the same, what differs. */
#ifndef CLI_TRAIN_NAMES_H
#define CLI_TRAIN_NAMES_H

#include "train/train.h"

#define SHORT_NAME 64

/* "topk+ef", or "topk k=10+ef" beside "topk k=20+ef". `origins` names where each run is from ("a.jsonl"), which goes in
 * front where it tells two runs apart; NULL: all are from one place. */
void train_short_names(const struct train_report *report, const char *const *origins, char names[][SHORT_NAME]);

#endif
