/* See watch.h. The watcher reads from a pipe that its rank holds open: first who the others are, then either a word of farewell or, when
 * the rank is killed, nothing. */
#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the watcher is told. `job` is the same for all ranks of a job, and for no other job of this machine: rank 0's process number. */
struct roll {
    uint32_t rank;
    int64_t process, job;
};

static int pipe_to_watcher = -1;
static pid_t watcher;
static volatile sig_atomic_t is_watched;

/* ---- the watcher ---- */

static bool read_whole(int from, void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = read(from, (char *)bytes + done, size - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        done += (size_t)got;
    }
    return true;
}

/* The launcher kills the rest at once, and their watchers see that too. The first on a machine takes the job's name (a socket of the
 * kernel's own name space, that leaves no file), and the others, who cannot have it any more, keep silent. */
static struct sockaddr_un job_name;
static socklen_t job_name_size;

static void name_job(int64_t job)
{
    job_name = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(job_name.sun_path + 1, sizeof job_name.sun_path - 1, "tersegrad-train-%lld", (long long)job);
    job_name_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* The socket, or -1 for whoever comes later. */
static int take_name(void)
{
    int place = socket(AF_UNIX, SOCK_STREAM, 0);
    return place >= 0 && bind(place, (const struct sockaddr *)&job_name, job_name_size) == 0 ? place : -1;
}

/* A launcher takes a rank for alive as long as anybody has the files that it gave to it. */
static void close_all_but(int one, int other)
{
    enum { MOST_FILES = 4096 };
    for (int file = 0; file < MOST_FILES; file++)
        if (file != one && file != other)
            close(file);
}

/* Until the others are dead as well. */
static void hold_name(int place)
{
    enum { SECONDS = 3 };
    (void)setsid();
    close_all_but(place, place);
    sleep(SECONDS);
    _exit(0);
}

static void watch(int from)
{
    struct roll roll;
    char farewell;
    if (!read_whole(from, &roll, sizeof roll) || read_whole(from, &farewell, 1))
        return;
    name_job(roll.job);
    int place = take_name();
    if (place < 0)
        return;
    dprintf(STDERR_FILENO, "tersegrad train: rank %u (process %lld) is dead; the job ends\n", (unsigned)roll.rank, (long long)roll.process);
    hold_name(place);
}

/* ---- the rank ---- */

/* Without its watcher a rank would die in silence, so it does not go on. Other children, which an MPI may have, are not our affair. */
static char last_words[128];

static void on_child(int number)
{
    (void)number;
    if (!is_watched || waitpid(watcher, NULL, WNOHANG) != watcher)
        return;
    is_watched = 0;
    int place = take_name();
    if (place >= 0 && write(STDERR_FILENO, last_words, strlen(last_words)) > 0 && fork() == 0)
        hold_name(place);
    sleep(1); /* time for that process to leave the group that the launcher kills */
    _exit(1);
}

/* Asked to end, by a launcher or a person: no death to be announced. */
static void on_request(int number)
{
    watch_end();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

bool watch_begin(struct message *message)
{
    int ends[2];
    if (pipe(ends) != 0)
        return fail(message, "cannot make a pipe: %s", strerror(errno));
    watcher = fork();
    if (watcher < 0)
        return fail(message, "cannot start a process: %s", strerror(errno));
    if (watcher == 0) {
        close_all_but(ends[0], STDERR_FILENO);
        (void)setsid(); /* out of the reach of a launcher that kills the rank's group */
        watch(ends[0]);
        _exit(0);
    }
    close(ends[0]);
    (void)fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    pipe_to_watcher = ends[1];
    (void)signal(SIGPIPE, SIG_IGN);
    struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_NOCLDSTOP | SA_RESTART};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGCHLD, &action, NULL);
    action.sa_handler = on_request;
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGINT, &action, NULL);
    is_watched = 1;
    return true;
}

bool watch_team(const struct team *team, struct message *message)
{
    struct roll roll = {.rank = team->rank, .process = getpid()};
    struct shared_bytes *all = team_share(team, &roll.process, sizeof roll.process, false, message);
    if (!all)
        return false;
    memcpy(&roll.job, all->parts[0].data, sizeof roll.job);
    shared_bytes_free(all);
    name_job(roll.job);
    snprintf(last_words, sizeof last_words, "tersegrad train: rank %u (process %lld) ends, because the process that watches it is dead\n",
             (unsigned)roll.rank, (long long)roll.process);
    if (write(pipe_to_watcher, &roll, sizeof roll) != (ssize_t)sizeof roll)
        return fail(message, "cannot tell the watcher who the ranks are: %s", strerror(errno));
    return true;
}

void watch_end(void)
{
    if (pipe_to_watcher < 0)
        return;
    is_watched = 0;
    if (write(pipe_to_watcher, "q", 1) == 1)
        close(pipe_to_watcher);
    pipe_to_watcher = -1;
}
