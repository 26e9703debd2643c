/* See launcher.h. */
#include "launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const fronts[] = {"mpirun",  "mpiexec",      "mpirun.openmpi", "mpiexec.openmpi", "orterun",
                                     "prterun", "mpirun.mpich", "mpiexec.mpich",  "mpiexec.hydra",   NULL};
static const char proxy[] = "hydra_pmi_proxy";
static const char *const daemons[] = {"orted", "prted", proxy, NULL};

static bool is_of(const char *name, const char *const *list)
{
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

/* The end of the pipe, the file or the terminal that it writes to. A socket cannot be had this way. */
static int open_voice(int64_t number)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)number, STDERR_FILENO);
    return open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
}

void launcher_find(struct launcher *launcher, int64_t rank_process)
{
    enum { MOST_BETWEEN = 4 };
    struct process process;
    int64_t parent;
    char name[PROCESS_NAME_SIZE];
    *launcher = (struct launcher){.voice = -1};
    if (!process_look(rank_process, &process, &parent, name))
        return;
    for (int i = 0; launcher->nearest.number == 0; i++) {
        if (i > MOST_BETWEEN || parent <= 1 || !process_look(parent, &process, &parent, name))
            return;
        if (is_of(name, fronts) || is_of(name, daemons))
            launcher->nearest = process;
    }
    launcher->is_proxy = strcmp(name, proxy) == 0;
    /* MPICH has its daemon on the front's machine too. */
    if (is_of(name, fronts) || (parent > 1 && process_look(parent, &process, &parent, name) && is_of(name, fronts))) {
        launcher->front = process;
        launcher->voice = open_voice(process.number);
    }
}

bool launcher_lives(const struct launcher *launcher)
{
    return process_lives(&launcher->nearest) || process_lives(&launcher->front);
}

void launcher_ask_to_end(const struct launcher *launcher)
{
    if (launcher->is_proxy)
        process_signal(&launcher->nearest, SIGKILL);
    else if (launcher->front.number > 0)
        process_signal(&launcher->front, SIGTERM);
}

void launcher_signal(const struct launcher *launcher, int signal)
{
    process_signal(&launcher->nearest, signal);
    if (launcher->front.number != launcher->nearest.number)
        process_signal(&launcher->front, signal);
}

int launcher_voice(const struct launcher *launcher)
{
    const bool is_heard = process_lives(&launcher->nearest) && process_lives(&launcher->front);
    return launcher->voice >= 0 && !is_heard ? launcher->voice : STDERR_FILENO;
}
