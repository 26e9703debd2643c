/* Members wait at one barrier for work and at another for each other. */
#include "bench_team.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct member {
    struct team *team;
    unsigned number;
    pthread_t thread;
};

struct team {
    unsigned members;
    pthread_barrier_t start, end;
    team_work *run; /* NULL: go home */
    void *context;
    struct member others[];
};

static void *serve(void *of)
{
    const struct member *self = of;
    struct team *team = self->team;
    for (;;) {
        pthread_barrier_wait(&team->start);
        if (!team->run)
            return NULL;
        team->run(team->context, self->number, team->members);
        pthread_barrier_wait(&team->end);
    }
}

bool team_create(struct team **team, unsigned members, struct failure *failure)
{
    struct team *made = calloc(1, sizeof *made + members * sizeof made->others[0]);
    if (!made)
        return fail(failure, "out of memory for %u threads", members);
    made->members = members;
    pthread_barrier_init(&made->start, NULL, members);
    pthread_barrier_init(&made->end, NULL, members);
    for (unsigned i = 1; i < members; i++) {
        made->others[i] = (struct member){.team = made, .number = i};
        if (pthread_create(&made->others[i].thread, NULL, serve, &made->others[i]) != 0)
            return fail(failure, "cannot start %u threads for the benchmark",
                        members); /* those that wait end with it */
    }
    *team = made;
    return true;
}

void team_run(struct team *team, team_work *run, void *context)
{
    team->run = run;
    team->context = context;
    pthread_barrier_wait(&team->start);
    run(context, 0, team->members);
    pthread_barrier_wait(&team->end);
}

void team_free(struct team *team)
{
    if (!team)
        return;
    team->run = NULL;
    pthread_barrier_wait(&team->start);
    for (unsigned i = 1; i < team->members; i++)
        pthread_join(team->others[i].thread, NULL);
    pthread_barrier_destroy(&team->start);
    pthread_barrier_destroy(&team->end);
    free(team);
}

unsigned device_threads(const char *name)
{
    const char *option = strstr(name, ":threads=");
    return option ? (unsigned)strtoul(option + strlen(":threads="), NULL, 10) : 1;
}
