/* See speaker.h. */
#include "speaker.h"

#include "common/clock.h"
#include "job_name.h"
#include "launcher.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct speaker {
    const struct roll *roll;
    const struct place *places;
    struct beat beat;
    struct beat_peer *peers; /* of each host, which are in the order of their lowest ranks */
    bool *is_lost;           /* each host */
    struct launcher launcher;
    const _Atomic uint64_t *steps;
    uint64_t steps_seen;
    uint32_t front;    /* the host with the front, or the number of hosts */
    uint32_t lowest[]; /* rank of each host */
};

struct speaker *speaker_open(const struct roll *roll, const struct place *places, struct speaker_place *own)
{
    const uint32_t hosts = count_machines(places, roll->world);
    struct speaker *speaker = calloc(1, sizeof *speaker + hosts * sizeof speaker->lowest[0]);
    memset(own, 0, sizeof *own);
    if (!speaker)
        return NULL;
    speaker->peers = calloc(hosts, sizeof *speaker->peers);
    speaker->is_lost = calloc(hosts, sizeof *speaker->is_lost);
    if (!speaker->peers || !speaker->is_lost) {
        free(speaker->peers);
        free(speaker->is_lost);
        free(speaker);
        return NULL;
    }
    speaker->roll = roll;
    speaker->places = places;
    for (uint32_t i = 0, host = 0; i < roll->world; i++)
        if (first_beside(places, i) == i)
            speaker->lowest[host++] = i;
    launcher_find(&speaker->launcher, places[roll->rank].process.number);
    beat_open(&speaker->beat, &own->beat);
    own->has_front = speaker->launcher.front.number > 0;
    return speaker;
}

void speaker_join(struct speaker *speaker, const struct speaker_place *all, const _Atomic uint64_t *steps)
{
    const uint32_t hosts = count_machines(speaker->places, speaker->roll->world);
    uint32_t self = 0;
    speaker->steps = steps;
    speaker->front = hosts;
    for (uint32_t i = 0; i < hosts; i++) {
        const struct speaker_place *place = &all[speaker->lowest[i]];
        speaker->peers[i].place = place->beat;
        if (place->has_front)
            speaker->front = i;
        if (speaker->lowest[i] == speaker->roll->rank)
            self = i;
    }
    beat_join(&speaker->beat, speaker->peers, hosts, self, clock_ns());
}

int speaker_socket(const struct speaker *speaker) { return speaker->beat.socket; }

int speaker_wait(const struct speaker *speaker) { return beat_wait(&speaker->beat, clock_ns()); }

/* ---- listening ---- */

/* All packets that have come. Returns the host that another has lost, or the number of hosts. */
static uint32_t listen_to_others(struct speaker *speaker)
{
    enum { MOST_AT_ONCE = 1000 }; /* whoever floods the port does not keep us from our work */
    uint32_t lost = speaker->beat.count, about;
    bool more = true;
    for (int i = 0; i < MOST_AT_ONCE && more; i++)
        if (beat_receive(&speaker->beat, clock_ns(), &about, &more) == BEAT_LOST)
            lost = about;
    return lost;
}

/* Listens and answers for some milliseconds, or until a packet has come. */
static void attend(struct speaker *speaker, int milliseconds)
{
    struct pollfd file = {.fd = speaker->beat.socket, .events = POLLIN};
    const int wait = speaker_wait(speaker);
    (void)poll(&file, 1, wait < milliseconds ? wait : milliseconds);
    (void)listen_to_others(speaker);
    beat_turn(&speaker->beat, clock_ns());
}

void speaker_pause(struct speaker *speaker, unsigned seconds)
{
    const uint64_t end = clock_ns() + seconds * BEAT_SECOND;
    while (clock_ns() < end)
        attend(speaker, 100);
}

void speaker_leave(struct speaker *speaker)
{
    enum { TIMES = 3 }; /* packets may be lost */
    const struct timespec between = {.tv_nsec = 20000000};
    close_all_but(&speaker->beat.socket, 1);
    for (int i = 0; i < TIMES; i++) {
        beat_send(&speaker->beat, BEAT_LEFT, 0);
        (void)nanosleep(&between, NULL);
    }
}

/* ---- naming ---- */

static void say(const struct speaker *speaker, uint32_t host, const char *what)
{
    char text[512];
    describe_machine(speaker->places, speaker->roll->world, speaker->lowest[host], text, sizeof text);
    dprintf(launcher_voice(&speaker->launcher), "tersegrad train: %s %s; the job ends\n", text, what);
}

static bool is_there(const struct speaker *speaker, uint32_t host)
{
    return beat_is_known(&speaker->beat, host) && !speaker->is_lost[host];
}

/* One host says it: that of the front, or the lowest that is there. */
static bool is_mine_to_say(const struct speaker *speaker)
{
    const uint32_t self = speaker->beat.self, front = speaker->front;
    if (front == self || (front < speaker->beat.count && is_there(speaker, front)))
        return front == self;
    uint32_t lowest = 0;
    while (lowest < self && !is_there(speaker, lowest))
        lowest++;
    return lowest == self;
}

/* Tells the other hosts. One that is lost is reason enough for them to end, and what others are, they see for
 * themselves. */
static void spread(const struct speaker *speaker)
{
    uint32_t lost = 0;
    while (!speaker->is_lost[lost])
        lost++;
    beat_send(&speaker->beat, BEAT_LOST, lost);
}

/* Tells the person, if no other host does. A host that hears nobody any more is itself the one that is cut off. */
static void tell(const struct speaker *speaker, const char *what)
{
    const struct beat *beat = &speaker->beat;
    uint32_t known = 0, lost = 0;
    for (uint32_t i = 0; i < beat->count; i++) {
        known += beat_is_known(beat, i);
        lost += speaker->is_lost[i];
    }
    if (!is_mine_to_say(speaker))
        return;
    if (lost > 1 && lost == known) {
        say(speaker, beat->self, "hears from no other host any more");
        return;
    }
    for (uint32_t i = 0; i < beat->count; i++)
        if (speaker->is_lost[i])
            say(speaker, i, what);
}

/* ---- ending ---- */

static void signal_ranks(const struct speaker *speaker, int signal)
{
    for (uint32_t i = 0; i < speaker->roll->world; i++)
        if (is_same_machine(speaker->places, i, speaker->roll->rank))
            process_signal(&speaker->places[i].process, signal);
}

static bool await_end_of_launcher(struct speaker *speaker, unsigned seconds)
{
    const uint64_t end = clock_ns() + seconds * BEAT_SECOND;
    while (launcher_lives(&speaker->launcher) && clock_ns() < end)
        attend(speaker, 100);
    return !launcher_lives(&speaker->launcher);
}

/* The launcher's processes have some seconds to end by themselves, are then asked to, and then made to. */
static void end_launcher(struct speaker *speaker)
{
    enum { SECONDS_ALONE = 4, SECONDS_ASKED = 2 };
    if (await_end_of_launcher(speaker, SECONDS_ALONE))
        return;
    launcher_signal(&speaker->launcher, SIGTERM);
    if (await_end_of_launcher(speaker, SECONDS_ASKED))
        return;
    launcher_signal(&speaker->launcher, SIGKILL);
    signal_ranks(speaker, SIGKILL);
}

void speaker_see_off(struct speaker *speaker, int name, bool is_any_lost)
{
    enum { SECONDS = 3 };
    close_all_but((const int[]){name, speaker->beat.socket}, 2);
    if (is_any_lost)
        end_launcher(speaker);
    speaker_pause(speaker, SECONDS);
    speaker_leave(speaker);
}

/* ---- deciding ---- */

/* The number of known hosts that were not heard since then. */
static uint32_t count_dumb(struct speaker *speaker, uint64_t start)
{
    uint32_t dumb = 0;
    for (uint32_t i = 0; i < speaker->beat.count; i++) {
        speaker->is_lost[i] = beat_is_known(&speaker->beat, i) && speaker->peers[i].heard < start;
        dumb += speaker->is_lost[i];
    }
    return dumb;
}

/* A host that is there answers at once: even if its ranks are dead, its watchers outlive them by some seconds. */
bool speaker_enquire(struct speaker *speaker)
{
    const uint64_t between = BEAT_SECOND / 10;
    (void)listen_to_others(speaker); /* what has come before does not count */
    const uint64_t start = clock_ns(), end = start + BEAT_SECOND;
    uint64_t next = start;
    while (count_dumb(speaker, start) > 0 && clock_ns() < end) {
        if (clock_ns() >= next) {
            beat_send(&speaker->beat, BEAT_ASK, 0);
            next += between;
        }
        attend(speaker, 20);
    }
    if (count_dumb(speaker, start) == 0)
        return false;
    spread(speaker);
    tell(speaker, "does not answer any more");
    return true;
}

/* The job's name is ours first, so that the watchers of the ranks that are killed here do not name them. */
static _Noreturn void end_job(struct speaker *speaker)
{
    const int name = job_name_take();
    spread(speaker);
    tell(speaker, "has fallen silent");
    speaker_pause(speaker, 1); /* for the sentence to arrive */
    spread(speaker);           /* packets may be lost */
    launcher_ask_to_end(&speaker->launcher);
    signal_ranks(speaker, SIGKILL);
    speaker_see_off(speaker, name, true);
    _exit(0);
}

void speaker_turn(struct speaker *speaker)
{
    struct beat *beat = &speaker->beat;
    const uint32_t lost = listen_to_others(speaker);
    const uint64_t now = clock_ns(), steps = *speaker->steps;
    bool is_any = lost < beat->count;
    if (steps != speaker->steps_seen)
        beat_progress(beat, now);
    speaker->steps_seen = steps;
    beat_turn(beat, now);
    for (uint32_t i = 0; i < beat->count; i++)
        is_any = is_any || beat_is_silent(beat, i, now, BEAT_SILENCE);
    if (!is_any)
        return;
    for (uint32_t i = 0; i < beat->count; i++) /* those that were lost together are named together */
        speaker->is_lost[i] = i == lost || beat_is_silent(beat, i, now, BEAT_SILENCE - 2 * BEAT_PERIOD);
    end_job(speaker);
}
