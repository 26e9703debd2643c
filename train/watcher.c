/* See watcher.h. */
#include "watcher.h"

#include "job_name.h"
#include "speaker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

struct watcher {
    struct roll roll;
    struct place *places;
    int from, back;          /* the rank's pipes */
    int list;                /* of all that is waited for */
    int *files;              /* the other ranks' pipes, or -1 */
    struct speaker *speaker; /* or NULL */
};

/* ---- what is waited for ---- */

/* A launcher kills the others as soon as one is dead, and they may be dead as well by the time that its watcher comes
 * to its turn. The kernel has the order all the same: what becomes ready is appended to the list of an epoll, a pipe
 * that nobody writes to any more is ready, and a process that ends gives up its files, the one of the highest number
 * first (watch_begin sees to that). So every watcher has every rank's pipe in such a list. */
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

/* The pipes of all ranks of this machine, and the speaker's socket under the number of no rank; false if the system
 * does not let us have all of the pipes. */
static bool list_ranks(struct watcher *watcher)
{
    const uint32_t rank = watcher->roll.rank;
    bool is_complete = add_to(watcher->list, watcher->from, EPOLLIN, rank);
    if (!is_complete)
        watcher->list = -1; /* then its pipe alone is waited for */
    for (uint32_t i = 0; i < watcher->roll.world; i++) {
        const bool is_beside = i != rank && is_same_machine(watcher->places, i, rank);
        watcher->files[i] = is_beside ? open_pipe(&watcher->places[i]) : -1;
        if (is_beside)
            is_complete = add_to(watcher->list, watcher->files[i], 0, i) && is_complete;
    }
    if (watcher->speaker && speaker_socket(watcher->speaker) >= 0)
        (void)add_to(watcher->list, speaker_socket(watcher->speaker), EPOLLIN, watcher->roll.world);
    return is_complete;
}

/* ---- waiting ---- */

/* The rank whose pipe has something to tell. */
static uint32_t next_event(struct watcher *watcher)
{
    for (;;) {
        struct epoll_event event;
        const int got = epoll_wait(watcher->list, &event, 1, watcher->speaker ? speaker_wait(watcher->speaker) : -1);
        if (got < 0 && errno != EINTR)
            return watcher->roll.rank;
        if (got == 1 && event.data.u32 < watcher->roll.world)
            return event.data.u32;
        if (watcher->speaker)
            speaker_turn(watcher->speaker);
    }
}

static void forget(struct watcher *watcher, int file)
{
    struct epoll_event ignored = {0};
    (void)epoll_ctl(watcher->list, EPOLL_CTL_DEL, file, &ignored);
}

/* Waits until the rank has written its farewell, and returns that; or until it is dead, and returns 0. `*first` is
 * which of the listed was dead first. */
static char wait_for_end(struct watcher *watcher, uint32_t *first)
{
    const uint32_t world = watcher->roll.world;
    *first = world;
    for (;;) {
        char farewell = 0;
        const uint32_t rank = next_event(watcher);
        if (rank != watcher->roll.rank) {
            *first = *first < world ? *first : rank;
            forget(watcher, watcher->files[rank]);
            continue;
        }
        if (read_whole(watcher->from, &farewell, 1))
            return farewell;
        *first = *first < world ? *first : rank;
        return 0;
    }
}

/* The rank has said that it is well, but until its process is gone, other hosts may still fall silent. */
static void wait_for_exit(struct watcher *watcher)
{
    forget(watcher, watcher->from);
    if (!add_to(watcher->list, watcher->back, 0, watcher->roll.rank))
        return;
    for (uint32_t rank = next_event(watcher); rank != watcher->roll.rank; rank = next_event(watcher))
        forget(watcher, watcher->files[rank]);
}

/* ---- the end ---- */

enum standing { FIRST, FIRST_HERE, UNKNOWN }; /* of all ranks, or of those of this machine */

/* What job_name_take returned: the file with the name, or -1 for whoever comes later and has said nothing. */
static int announce(const struct watcher *watcher, enum standing standing)
{
    static const char *const words[] = {"", ", the first on that host",
                                        ", and whether another was before it cannot be told"};
    const struct place *place = &watcher->places[watcher->roll.rank];
    const int name = job_name_take();
    if (name >= 0)
        dprintf(STDERR_FILENO, "tersegrad train: rank %u (process %lld on %.*s) is dead%s; the job ends\n",
                (unsigned)watcher->roll.rank, (long long)place->process.number, ROLL_NAME_SIZE - 1, place->host,
                words[standing]);
    return name;
}

static void pause_for(struct watcher *watcher, unsigned seconds)
{
    if (watcher->speaker)
        speaker_pause(watcher->speaker, seconds);
    else
        sleep(seconds);
}

/* A host may vanish bit by bit, its watchers after its ranks, and have answered just before: it is asked again after a
 * while. */
static bool is_any_host_lost(struct watcher *watcher, unsigned seconds_between)
{
    if (watcher->speaker && speaker_enquire(watcher->speaker))
        return true;
    pause_for(watcher, seconds_between);
    return watcher->speaker && speaker_enquire(watcher->speaker);
}

static void leave(struct watcher *watcher, int name, bool is_any_lost)
{
    if (watcher->speaker)
        speaker_see_off(watcher->speaker, name, is_any_lost);
    else if (name >= 0)
        job_name_hold(name);
}

/* The rank is dead. If another was before it, the watcher of that one speaks, unless it had ended well. */
static void see_off(struct watcher *watcher, bool knows_order, bool is_first)
{
    enum { SECONDS_TO_SPEAK = 2 };
    const bool is_spread = count_machines(watcher->places, watcher->roll.world) > 1,
               is_later = knows_order && !is_first;
    const enum standing standing = !knows_order || !is_first ? UNKNOWN : is_spread ? FIRST_HERE : FIRST;
    int name = is_later ? -1 : announce(watcher, standing);
    const bool is_any_lost = (is_later || watcher->speaker) &&
                             is_any_host_lost(watcher, is_later ? SECONDS_TO_SPEAK : 1);
    if (is_later && !is_any_lost)
        name = announce(watcher, standing);
    leave(watcher, name, is_any_lost);
}

/* The rank was made to end, and the launcher kills whichever other does not end as soon: nobody need name that one. A
 * rank that had died by itself before has been named by then. */
static void keep_quiet(struct watcher *watcher)
{
    if (!watcher->speaker)
        close_all_but(NULL, 0);
    const bool is_any_lost = is_any_host_lost(watcher, 1);
    leave(watcher, job_name_take(), is_any_lost);
}

static void watch(struct watcher *watcher)
{
    const bool knows_order = list_ranks(watcher) || watcher->roll.world == 1;
    uint32_t first;
    const char farewell = wait_for_end(watcher, &first);
    if (farewell == 0) {
        see_off(watcher, knows_order, first == watcher->roll.rank);
    } else if (farewell == FAREWELL_MADE) {
        keep_quiet(watcher);
    } else if (watcher->speaker) {
        wait_for_exit(watcher);
        speaker_leave(watcher->speaker);
    }
}

/* ---- being told ---- */

/* Speaks for the machine from here on, if there are others and nobody else here does. */
static bool become_speaker(struct watcher *watcher, const _Atomic uint64_t *steps)
{
    const struct roll *roll = &watcher->roll;
    if (count_machines(watcher->places, roll->world) == 1 || first_beside(watcher->places, roll->rank) != roll->rank)
        return true;
    struct speaker_place own, *all = calloc(roll->world, sizeof *all);
    watcher->speaker = speaker_open(roll, watcher->places, &own);
    const bool is_told = all && write(watcher->back, &own, sizeof own) == (ssize_t)sizeof own &&
                         read_whole(watcher->from, all, roll->world * sizeof *all);
    if (is_told && watcher->speaker)
        speaker_join(watcher->speaker, all, steps);
    free(all);
    return is_told;
}

void watcher_run(int from, int back, const _Atomic uint64_t *steps)
{
    struct watcher watcher = {.from = from, .back = back};
    if (!read_whole(from, &watcher.roll, sizeof watcher.roll))
        return;
    watcher.places = calloc(watcher.roll.world, sizeof *watcher.places);
    watcher.files = calloc(watcher.roll.world, sizeof *watcher.files);
    watcher.list = epoll_create1(EPOLL_CLOEXEC);
    job_name_set(watcher.roll.job);
    if (watcher.places && watcher.files &&
        read_whole(from, watcher.places, watcher.roll.world * sizeof *watcher.places) &&
        become_speaker(&watcher, steps))
        watch(&watcher);
    free(watcher.places);
    free(watcher.files);
}
