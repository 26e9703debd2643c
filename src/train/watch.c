/* See watch.h. The watcher reads from a pipe that its rank holds open: first who the others are, then either a word of farewell or, when
 * the rank is killed, nothing. */
#include "watch.h"

#include "blob.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* A rank, as the others see it: its process, the watcher and the end of the pipe that it reads, and on which machine these numbers hold. */
struct place {
    int64_t process, watcher, pipe;
    uint64_t machine;
};

/* What the watcher is told, and then the places of `world` ranks. `job` is the same for all ranks of a job, and for no other job: made of rank
 * 0's machine and process. */
struct roll {
    uint32_t rank, world;
    int64_t process;
    uint64_t job;
};

static int pipe_to_watcher = -1;
static int watched_end; /* as the watcher numbers it */
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

static void name_job(uint64_t job)
{
    job_name = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(job_name.sun_path + 1, sizeof job_name.sun_path - 1, "tersegrad-train-%016llx",
                          (unsigned long long)job);
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

/* A launcher kills the others as soon as one is dead, and they may be dead as well by the time that its watcher comes to its turn. The kernel
 * has the order all the same: what becomes ready is appended to the list of an epoll, a pipe that nobody writes to any more is ready, and a
 * process that ends gives up its files, the one of the highest number first (watch_begin sees to that). So every watcher has every rank's
 * pipe in such a list. */
static bool add_to(int list, int file, uint32_t events, uint32_t rank)
{
    struct epoll_event event = {.events = events, .data = {.u32 = rank}};
    return file >= 0 && epoll_ctl(list, EPOLL_CTL_ADD, file, &event) == 0;
}

/* Another watcher's end of a pipe. Nothing is read from it. */
static int open_pipe(const struct place *place)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)place->watcher, (long long)place->pipe);
    return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

/* The pipes of all ranks of this machine; false if the system does not let us. `*elsewhere` says whether there are other ranks. */
static bool list_ranks(const struct roll *roll, const struct place *places, int from, int list, int *files, bool *elsewhere)
{
    bool is_complete = add_to(list, from, EPOLLIN, roll->rank);
    for (uint32_t i = 0; i < roll->world; i++) {
        const bool is_here = places[i].machine == places[roll->rank].machine;
        files[i] = is_here && i != roll->rank ? open_pipe(&places[i]) : -1;
        if (is_here && i != roll->rank)
            is_complete = add_to(list, files[i], 0, i) && is_complete;
        *elsewhere = *elsewhere || !is_here;
    }
    return is_complete;
}

/* Waits until the rank is dead, and returns which of the listed was first. Or `roll->world`: it said farewell. */
static uint32_t wait_for_death(const struct roll *roll, int from, int list, const int *files)
{
    uint32_t first = roll->world;
    for (;;) {
        struct epoll_event event;
        char farewell;
        const int got = epoll_wait(list, &event, 1, -1);
        if (got < 0 && errno == EINTR)
            continue;
        const uint32_t rank = got == 1 ? event.data.u32 : roll->rank;
        if (rank == roll->rank)
            return read_whole(from, &farewell, 1) ? roll->world : first < roll->world ? first : rank;
        first = first < roll->world ? first : rank;
        (void)epoll_ctl(list, EPOLL_CTL_DEL, files[rank], &event);
    }
}

enum standing { FIRST, FIRST_HERE, UNKNOWN }; /* of all ranks, or of those of this machine */

static void announce(const struct roll *roll, enum standing standing)
{
    static const char *const words[] = {"", ", the first on that host", ", and whether another was before it cannot be told"};
    char host[64] = "";
    int place = take_name();
    if (place < 0)
        return;
    (void)gethostname(host, sizeof host - 1);
    dprintf(STDERR_FILENO, "tersegrad train: rank %u (process %lld on %s) is dead%s; the job ends\n", (unsigned)roll->rank,
            (long long)roll->process, host, words[standing]);
    hold_name(place);
}

static void watch_ranks(const struct roll *roll, const struct place *places, int from, int *files)
{
    enum { SECONDS_TO_SPEAK = 2 };
    char farewell;
    bool elsewhere = false;
    int list = epoll_create1(EPOLL_CLOEXEC);
    if (list < 0 || !list_ranks(roll, places, from, list, files, &elsewhere)) {
        if (!read_whole(from, &farewell, 1))
            announce(roll, roll->world == 1 ? FIRST : UNKNOWN);
        return;
    }
    const uint32_t first = wait_for_death(roll, from, list, files);
    if (first == roll->world)
        return;
    if (first != roll->rank)
        sleep(SECONDS_TO_SPEAK); /* the watcher of that one speaks, unless it had ended well */
    announce(roll, first != roll->rank ? UNKNOWN : elsewhere ? FIRST_HERE : FIRST);
}

static void watch(int from)
{
    struct roll roll;
    if (!read_whole(from, &roll, sizeof roll))
        return;
    struct place *places = calloc(roll.world, sizeof *places);
    int *files = calloc(roll.world, sizeof *files);
    name_job(roll.job);
    if (places && files && read_whole(from, places, roll.world * sizeof *places))
        watch_ranks(&roll, places, from, files);
    free(places);
    free(files);
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
    watched_end = ends[0];
    close(ends[0]);
    pipe_to_watcher = lift(ends[1]);
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

bool watch_team(const struct team *team, struct message *message)
{
    const struct place own = {getpid(), watcher, watched_end, machine_number()};
    struct roll roll = {.rank = team->rank, .world = team->world, .process = own.process};
    struct shared_bytes *all = team_share(team, &own, sizeof own, false, message);
    if (!all)
        return false;
    roll.job = digest_bytes(all->parts[0].data, sizeof own);
    name_job(roll.job);
    snprintf(last_words, sizeof last_words, "tersegrad train: rank %u (process %lld) ends, because the process that watches it is dead\n",
             (unsigned)roll.rank, (long long)roll.process);
    /* The parts lie one behind the other. */
    const size_t size = team->world * sizeof own;
    bool is_told = write(pipe_to_watcher, &roll, sizeof roll) == (ssize_t)sizeof roll &&
                   write(pipe_to_watcher, all->parts[0].data, size) == (ssize_t)size;
    shared_bytes_free(all);
    return is_told || fail(message, "cannot tell the watcher who the ranks are: %s", strerror(errno));
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
