/* Threads for the rulers of the benchmark: a device with several threads is held against what as many threads need to
 * move the same memory. */
#ifndef CLI_BENCH_TEAM_H
#define CLI_BENCH_TEAM_H

#include "complain.h"

#include <stddef.h>

struct team;

/* So many threads, the caller's own among them; they sleep until they are called. */
bool team_create(struct team **team, unsigned members, struct failure *failure);
void team_free(struct team *team);

/* Every member calls run(context, member, members) once; returns when all are done. */
typedef void team_work(void *context, unsigned member, unsigned members);
void team_run(struct team *team, team_work *run, void *context);

/* The threads of a device, from its name. */
unsigned device_threads(const char *name);

#endif
