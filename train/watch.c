/* See watch.h. The watcher reads from a pipe that its rank holds open: first who the others are, then either a word of
 * farewell or, when the rank is killed, nothing. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "watch.h"

#include "blob.h"
#include "job_name.h"
#include "speaker.h"
#include "watcher.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int pipe_to_watcher = -1;
static int watched_end;            /* as the watcher numbers it */
static int pipe_from_watcher = -1; /* stays open, for the watcher to see when this process is gone */
static _Atomic uint64_t *steps;    /* the watcher sees them too; NULL: there is none */
static pid_t watcher;
static volatile sig_atomic_t is_watched;

/* Without its watcher a rank would die in silence, so it does not go on. Other children, which an MPI may have, are not
 * our affair. */
static char last_words[128];

static void on_child(int number)
{
    (void)number;
    if (!is_watched || waitpid(watcher, NULL, WNOHANG) != watcher)
        return;
    is_watched = 0;
    int name = job_name_take();
    if (name >= 0 && write(STDERR_FILENO, last_words, strlen(last_words)) > 0 && fork() == 0)
        job_name_hold(name);
    sleep(1); /* time for that process to leave the group that the launcher kills */
    _exit(1);
}

static void say_farewell(enum farewell farewell)
{
    const char word = (char)farewell;
    if (pipe_to_watcher < 0)
        return;
    is_watched = 0;
    if (write(pipe_to_watcher, &word, 1) == 1)
        close(pipe_to_watcher);
    pipe_to_watcher = -1;
}

/* Asked to end, by a launcher or a person: no death to be announced. */
static void on_request(int number)
{
    say_farewell(FAREWELL_MADE);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* The same file with a number above all others: the first to be given up. */
static int lift(int file)
{
    enum { HIGH = 4000 };
    struct rlimit limit;
    const int most = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < HIGH ? (int)limit.rlim_cur : HIGH;
    const int high = fcntl(file, F_DUPFD_CLOEXEC, most - 1);
    if (high < 0) {
        (void)fcntl(file, F_SETFD, FD_CLOEXEC);
        return file;
    }
    close(file);
    return high;
}

static bool make_pipes(int there[2], int back[2], struct message *message)
{
    if (pipe(there) != 0 || pipe(back) != 0)
        return fail(message, "cannot make a pipe: %s", strerror(errno));
    // cppcheck-suppress invalidFunctionArg ; no file belongs to it
    void *page = mmap(NULL, sizeof *steps, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return fail(message, "cannot share memory with another process: %s", strerror(errno));
    steps = page;
    return true;
}

bool watch_begin(struct message *message)
{
    int there[2] = {-1, -1}, back[2] = {-1, -1};
    if (!make_pipes(there, back, message))
        return false;
    (void)signal(SIGPIPE, SIG_IGN);
    watcher = fork();
    if (watcher < 0)
        return fail(message, "cannot start a process: %s", strerror(errno));
    if (watcher == 0) {
        close_all_but((const int[]){there[0], back[1], STDERR_FILENO}, 3);
        (void)setsid(); /* out of the reach of a launcher that kills the rank's group */
        watcher_run(there[0], back[1], steps);
        _exit(0);
    }
    watched_end = there[0];
    close(there[0]);
    close(back[1]);
    pipe_to_watcher = lift(there[1]);
    pipe_from_watcher = back[0];
    (void)fcntl(pipe_from_watcher, F_SETFD, FD_CLOEXEC);
    struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_NOCLDSTOP | SA_RESTART};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGCHLD, &action, NULL);
    action.sa_handler = on_request;
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGINT, &action, NULL);
    is_watched = 1;
    return true;
}

/* A number for this run of this machine's kernel and this name space of processes. */
static uint64_t machine_number(void)
{
    struct {
        char boot[64], host[64];
        uint64_t processes;
    } what;
    struct stat status;
    memset(&what, 0, sizeof what);
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        (void)!read(file, what.boot, sizeof what.boot);
        close(file);
    }
    (void)gethostname(what.host, sizeof what.host - 1);
    if (stat("/proc/self/ns/pid", &status) == 0)
        what.processes = status.st_ino;
    return digest_bytes(&what, sizeof what);
}

static struct place place_of_this(void)
{
    struct place own;
    int64_t parent;
    char name[PROCESS_NAME_SIZE];
    memset(&own, 0, sizeof own); /* to the last byte: it travels */
    if (!process_look(getpid(), &own.process, &parent, name))
        own.process = (struct process){.number = getpid()};
    own.watcher = watcher;
    own.pipe = watched_end;
    own.machine = machine_number();
    (void)gethostname(own.host, sizeof own.host - 1);
    return own;
}

static bool tell_watcher(const void *bytes, size_t size)
{
    return write(pipe_to_watcher, bytes, size) == (ssize_t)size;
}

/* The parts lie one behind the other. */
static bool tell_all_parts(const struct shared_bytes *all, uint32_t world)
{
    return tell_watcher(all->parts[0].data, world * all->parts[0].size);
}

/* Between several machines, the watchers that speak for them must know how to reach each other. */
static bool introduce_speakers(const struct team *team, const struct place *places, struct message *message)
{
    const bool speaks = first_beside(places, team->rank) == team->rank;
    struct speaker_place own;
    memset(&own, 0, sizeof own);
    if (speaks && !read_whole(pipe_from_watcher, &own, sizeof own))
        memset(&own, 0, sizeof own); /* it is dead, and this rank will hear of it */
    struct shared_bytes *all = team_share(team, &own, sizeof own, false, message);
    const bool is_told = all && (!speaks || tell_all_parts(all, team->world));
    shared_bytes_free(all);
    return is_told || (all && fail(message, "cannot tell the watcher how to reach the others: %s", strerror(errno)));
}

bool watch_team(const struct team *team, struct message *message)
{
    const struct place own = place_of_this();
    struct roll roll;
    struct shared_bytes *all = team_share(team, &own, sizeof own, false, message);
    if (!all)
        return false;
    const struct place *places = (const void *)all->parts[0].data;
    memset(&roll, 0, sizeof roll);
    roll.rank = team->rank;
    roll.world = team->world;
    roll.job = digest_bytes(&places[0], sizeof own);
    job_name_set(roll.job);
    snprintf(last_words, sizeof last_words,
             "tersegrad train: rank %u (process %lld) ends, because the process that watches it is dead\n",
             (unsigned)roll.rank, (long long)own.process.number);
    bool is_told = (tell_watcher(&roll, sizeof roll) && tell_all_parts(all, team->world)) ||
                   fail(message, "cannot tell the watcher who the ranks are: %s", strerror(errno));
    is_told = is_told && (count_machines(places, team->world) == 1 || introduce_speakers(team, places, message));
    shared_bytes_free(all);
    return is_told;
}

void watch_step(void)
{
    if (steps)
        ++*steps;
}

void watch_end(bool by_itself) { say_farewell(by_itself ? FAREWELL_WELL : FAREWELL_MADE); }
