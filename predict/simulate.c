/* See simulate.h. */
#include "simulate.h"

#include <math.h>
#include <stdlib.h>

/* ---- chance ---- */

/* SplitMix64 of a few numbers: no order of calls matters. */
static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) + b * UINT64_C(0xbf58476d1ce4e5b9) + c + UINT64_C(0x94d049bb133111eb);
    for (int i = 0; i < 3; i++) {
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        z ^= z >> 31;
    }
    return z;
}

static double uniform(uint64_t bits) { return (double)(bits >> 11) * 0x1p-53; }

/* Of mean 0 and variance 1: a sum of twelve uniform numbers, so that no library's logarithm is needed. */
static double normal(uint64_t seed, uint64_t step, uint64_t rank)
{
    double sum = -6;
    for (uint64_t i = 0; i < 12; i++)
        sum += uniform(mix(seed + i, step, rank));
    return sum;
}

/* ---- the cluster ---- */

/* Of an exchange, what is the same for all ranks. */
struct event {
    struct exchange_time time; /* of a host */
    double hidden;
    double most;   /* seconds of the busiest rank's bytes */
    double uplink; /* seconds of a rack's uplink for one host's bytes */
};

struct state {
    const struct schedule *schedule;
    const struct predict_job *job;
    const struct cluster *cluster;
    struct event *events;
    double *came;               /* of each exchange of the step */
    double *now, *pace, *end;   /* of each rank: its thread, its computing in this step, when its backward pass ends */
    struct link *link, *inside; /* of each host: its link, its memory */
    double *coding;             /* of each host, how many times longer its coding takes than by itself */
    double *uplink;             /* of each rack */
    double *steps;
    uint32_t hosts, racks;
    uint64_t happened; /* events */
};

static void *room(size_t count) { return calloc(count ? count : 1, sizeof(double)); }

static void make_event(struct event *event, const struct scheduled *e, const struct state *s,
                       const struct predict_network *network)
{
    const struct predict_job *job = s->job;
    const struct exchange_time time = exchange_time_of(network, job, e->pattern, e->scope, e->usual_bytes, e->messages,
                                                       PREDICT_MIDDLE),
                               most = exchange_time_of(network, job, e->pattern, e->scope, e->bytes, e->messages,
                                                       PREDICT_MIDDLE);
    const double stretch = s->schedule->stretch;
    *event = (struct event){.time = {.fixed = stretch * (time.fixed - time.hidden),
                                     .volume = stretch * time.volume,
                                     .burst = stretch * time.burst,
                                     .inside = stretch * time.inside},
                            .hidden = stretch * time.hidden,
                            .most = stretch * bytes_time(&most)};
    if (s->racks < 2 || e->scope == PREDICT_INSIDE)
        return;
    /* Of what a host sends, the part for other racks. A ring leaves a rack once. */
    const double ranks = job->world, here = job->per_node, in_rack = here * s->cluster->rack_hosts,
                 share = e->pattern == PREDICT_RING ? 1.0 / s->cluster->rack_hosts : (ranks - in_rack) / (ranks - here);
    event->uplink = event->time.volume * share * s->cluster->oversubscription / s->cluster->rack_hosts;
}

static bool is_slow(const struct cluster *c, uint32_t host)
{
    return uniform(mix(c->seed, ~UINT64_C(0), host)) < c->stragglers;
}

static bool make_state(struct state *s, const struct predict_network *network)
{
    const uint32_t per_node = s->job->per_node;
    s->hosts = (s->job->world + per_node - 1) / per_node;
    s->racks = s->cluster->rack_hosts ? (s->hosts + s->cluster->rack_hosts - 1) / s->cluster->rack_hosts : 1;
    s->events = calloc(s->schedule->count + 1, sizeof *s->events);
    s->came = room(s->schedule->count);
    s->now = room(s->job->world);
    s->pace = room(s->job->world);
    s->end = room(s->job->world);
    s->link = calloc(s->hosts, sizeof *s->link);
    s->inside = calloc(s->hosts, sizeof *s->inside);
    s->coding = room(s->hosts);
    s->uplink = room(s->racks);
    s->steps = room(s->cluster->steps);
    if (!s->events || !s->came || !s->now || !s->pace || !s->end || !s->link || !s->inside || !s->coding ||
        !s->uplink || !s->steps)
        return false;
    for (uint32_t host = 0; host < s->hosts; host++)
        s->coding[host] = s->schedule->stretch *
                          (s->cluster->codes_on_hosts && is_slow(s->cluster, host) ? s->cluster->slowdown : 1);
    for (uint32_t host = 0; host < s->hosts; host++)
        s->link[host] = s->inside[host] = (struct link){-INFINITY, -INFINITY};
    for (size_t i = 0; i < s->schedule->count; i++)
        make_event(&s->events[i], &s->schedule->exchanges[i], s, network);
    return true;
}

static void free_state(struct state *s)
{
    double *const all[] = {s->came, s->now, s->pace, s->end, s->coding, s->uplink, s->steps};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(s->link);
    free(s->inside);
    free(s->events);
}

/* ---- a step ---- */

static void begin_step(struct state *s, uint64_t step)
{
    const struct cluster *c = s->cluster;
    for (uint32_t rank = 0; rank < s->job->world; rank++) {
        double pace = is_slow(c, rank / s->job->per_node) ? c->slowdown : 1;
        if (c->jitter > 0)
            pace *= 1 + c->jitter * normal(c->seed, step, rank);
        s->pace[rank] = pace > 0.1 ? pace : 0.1;
        s->now[rank] += s->pace[rank] * s->job->forward; /* the thread is free from here on */
        s->end[rank] = s->now[rank] + s->pace[rank] * s->job->backward;
    }
}

/* The rank feeds exchanges from `fed` to `until` - 1. */
static double feed(const struct state *s, uint32_t rank, size_t fed, size_t until)
{
    const double slower = s->coding[rank / s->job->per_node];
    double now = s->now[rank];
    for (; fed < until; fed++)
        now = coded_by(s->job, s->end[rank], now > s->came[fed] ? now : s->came[fed],
                       slower * s->schedule->exchanges[fed].behind);
    return now;
}

/* The rank makes an exchange; returns when it is made. */
static double make(struct state *s, uint32_t rank, const struct scheduled *e)
{
    const double began = s->end[rank] - s->pace[rank] * s->job->backward,
                 ready = e->last_tensor == SIZE_MAX ? began
                                                    : began + s->pace[rank] * s->job->tensors[e->last_tensor].ready;
    const double begun = s->now[rank] > ready ? s->now[rank] : ready, slower = s->coding[rank / s->job->per_node];
    s->now[rank] = coded_by(s->job, s->end[rank], begun, slower * e->usual_before);
    return coded_by(s->job, s->end[rank], begun, slower * e->before);
}

/* All ranks of a host make an exchange and send it over the host's link and the rack's uplink; returns when it is sent.
 */
static double send_from(struct state *s, uint32_t host, size_t index, size_t fed, size_t until)
{
    const struct event *event = &s->events[index];
    const uint32_t first = host * s->job->per_node, left = s->job->world - first,
                   ranks = left < s->job->per_node ? left : s->job->per_node;
    const bool is_inside = s->schedule->exchanges[index].scope == PREDICT_INSIDE;
    struct link *link = is_inside ? &s->inside[host] : &s->link[host];
    double *uplink = &s->uplink[s->racks > 1 ? host / s->cluster->rack_hosts : 0];
    const struct exchange_time each = {.fixed = event->time.fixed / ranks,
                                       .volume = event->time.volume / ranks,
                                       .burst = event->time.burst,
                                       .inside = event->time.inside / ranks};
    double sent = 0, earliest = INFINITY;
    s->happened += ranks;
    for (uint32_t rank = first; rank < first + ranks; rank++) {
        s->now[rank] = feed(s, rank, fed, until);
        const double made = make(s, rank, &s->schedule->exchanges[index]);
        (void)link_send(link, made, &each);
        earliest = made < earliest ? made : earliest;
        const double alone = made + event->time.fixed + event->most;
        sent = alone > sent ? alone : sent;
    }
    sent = link->free > sent ? link->free : sent;
    if (s->racks < 2 || is_inside)
        return sent;
    *uplink = (*uplink > earliest ? *uplink : earliest) + event->uplink;
    return *uplink > sent ? *uplink : sent;
}

/* Returns when the last rank is done. */
static double run_step(struct state *s, size_t lag)
{
    const struct schedule *schedule = s->schedule;
    size_t fed = 0;
    for (size_t i = 0; i < schedule->count; i++) {
        const size_t by_lag = i > lag ? i - lag : 0,
                     needed = schedule->exchanges[i].after == SIZE_MAX ? 0 : schedule->exchanges[i].after + 1;
        size_t until = by_lag > needed ? by_lag : needed;
        until = until > fed ? until : fed;
        double last = 0;
        for (uint32_t host = 0; host < s->hosts; host++) {
            const double sent = send_from(s, host, i, fed, until);
            last = sent > last ? sent : last;
        }
        s->came[i] = last + s->events[i].hidden; /* everybody waits for everybody */
        fed = until;
    }
    double done = 0;
    for (uint32_t rank = 0; rank < s->job->world; rank++) {
        const double now = feed(s, rank, fed, schedule->count);
        s->now[rank] = (now > s->end[rank] ? now : s->end[rank]) + s->coding[rank / s->job->per_node] * schedule->last;
        done = s->now[rank] > done ? s->now[rank] : done;
    }
    return done;
}

/* ---- all of them ---- */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool simulate_in_order(const struct schedule *schedule, const struct predict_job *job,
                              const struct predict_network *network, const struct cluster *cluster, size_t lag,
                              struct simulated *result)
{
    struct state s = {.schedule = schedule, .job = job, .cluster = cluster};
    const bool is_made = make_state(&s, network);
    double before = 0;
    *result = (struct simulated){0};
    for (uint32_t step = 0; is_made && step < cluster->steps; step++) {
        begin_step(&s, step);
        const double done = run_step(&s, lag);
        s.steps[step] = done - before;
        result->mean += s.steps[step] / cluster->steps;
        before = done;
    }
    if (is_made) {
        qsort(s.steps, cluster->steps, sizeof *s.steps, ascending);
        result->low = s.steps[cluster->steps / 10];
        result->high = s.steps[cluster->steps - 1 - cluster->steps / 10];
        result->events = s.happened;
    }
    free_state(&s);
    return is_made;
}

bool simulate(const struct schedule *schedule, const struct predict_job *job, const struct predict_network *network,
              const struct cluster *cluster, struct simulated *result, struct failure *failure)
{
    const struct shares all = {1, 1, 1, 1};
    size_t lag = 0;
    const bool is_done = !isnan(schedule_best(schedule, job, network, PREDICT_MIDDLE, &all, &lag)) &&
                         simulate_in_order(schedule, job, network, cluster, lag, result);
    return is_done || fail(failure, "out of memory for %u ranks and %zu exchanges", job->world, schedule->count);
}

bool simulate_check(const struct cluster *cluster, const struct predict_job *job, struct failure *failure)
{
    if (job->world > SIMULATE_MOST_RANKS)
        return fail(failure, "%u ranks are too many to simulate: use at most %d, or leave --simulate out", job->world,
                    SIMULATE_MOST_RANKS);
    if (cluster->steps < 1 || cluster->steps > SIMULATE_MOST_STEPS)
        return fail(failure, "%u steps cannot be simulated: use 1 to %d", cluster->steps, SIMULATE_MOST_STEPS);
    if (!(cluster->oversubscription >= 1 && cluster->slowdown >= 1 && cluster->jitter >= 0 && cluster->jitter <= 1 &&
          cluster->stragglers >= 0 && cluster->stragglers <= 1) ||
        !isfinite(cluster->oversubscription) || !isfinite(cluster->slowdown))
        return fail(failure,
                    "invalid cluster: oversubscription %g and slowdown %g must be at least 1, jitter %g and stragglers "
                    "%g 0 to 1",
                    cluster->oversubscription, cluster->slowdown, cluster->jitter, cluster->stragglers);
    return true;
}
