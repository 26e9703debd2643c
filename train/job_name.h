/* Who of a job's processes on this machine may say that the job ends. When one rank is dead, launchers kill the rest at
 * once, and their watchers see that too; the first takes the job's name, and the others, who cannot have it any more,
 * keep silent. */
#ifndef TRAIN_JOB_NAME_H
#define TRAIN_JOB_NAME_H

#include <stdint.h>

void job_name_set(uint64_t job);

/* A file that holds the name as long as it is open, or -1 for whoever comes later. */
int job_name_take(void);

/* Holds it until the others are dead as well, and ends this process. */
_Noreturn void job_name_hold(int place);

#endif
