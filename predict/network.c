/* See network.h. */
#include "network.h"

#include <math.h>

double link_share(enum predict_pattern pattern, enum predict_scope scope, uint32_t world, uint32_t per_node)
{
    const double ranks = world, here = per_node < world ? per_node : world;
    if (here >= ranks || scope == PREDICT_INSIDE)
        return 0;
    if (scope == PREDICT_BETWEEN)
        return 1;
    /* A ring crosses a host's link once, whatever the host's ranks; else each of them sends to all that are elsewhere.
     */
    return pattern == PREDICT_RING ? 1 : here * (ranks - here) / (ranks - 1);
}

/* Of the bytes that a rank sends, those that stay on its host. */
static double inside_share(enum predict_pattern pattern, enum predict_scope scope, uint32_t world, uint32_t per_node)
{
    const double ranks = world, here = per_node < world ? per_node : world;
    if (here <= 1 || scope == PREDICT_BETWEEN)
        return 0;
    return pattern == PREDICT_RING ? 1 : (here - 1) / (ranks - 1);
}

double messages_of(enum predict_pattern pattern, uint32_t world)
{
    const double peers = world > 0 ? world - 1.0 : 0;
    return pattern == PREDICT_RING ? 2 * peers : peers;
}

static double at(const struct predict_point *point, enum predict_end end)
{
    return end == PREDICT_LOW ? point->low : end == PREDICT_HIGH ? point->high : point->seconds;
}

static double from_points(const struct predict_wire *wire, double bytes, enum predict_end end)
{
    const struct predict_point *p = wire->points;
    if (wire->count == 1 || bytes <= p[0].bytes)
        return at(&p[0], end);
    size_t i = 1;
    while (i + 1 < wire->count && p[i].bytes < bytes)
        i++;
    const double slope = (at(&p[i], end) - at(&p[i - 1], end)) / (p[i].bytes - p[i - 1].bytes);
    return at(&p[i - 1], end) + slope * (bytes - p[i - 1].bytes);
}

/* Bytes of an exchange here that load the links as much as so many did where the points were measured. */
static double as_measured(const struct predict_network *network, const struct predict_job *job,
                          enum predict_pattern pattern, enum predict_scope scope, double bytes)
{
    const double then = link_share(pattern, PREDICT_FLAT, network->world, network->per_node),
                 now = link_share(pattern, scope, job->world, job->per_node);
    return then > 0 ? bytes * now / then : bytes;
}

bool left_links(const struct predict_network *network, const struct predict_job *job)
{
    return network->per_node < network->world && job->per_node >= job->world;
}

bool is_of_one_host(const struct predict_network *network)
{
    return network->patterns[PREDICT_ALL_GATHER].count > 0 && network->per_node >= network->world;
}

static struct exchange_time measured(const struct predict_network *network, const struct predict_job *job,
                                     enum predict_pattern pattern, enum predict_scope scope, double bytes,
                                     double messages, enum predict_end end)
{
    const struct predict_wire *wire = &network->patterns[pattern];
    const double fixed = at(&wire->points[0], end), hidden = wire->hidden < fixed ? wire->hidden : fixed;
    /* Latency is there once; software takes its time for each message. */
    return (struct exchange_time){
        .fixed = hidden + (fixed - hidden) * messages / messages_of(pattern, network->world),
        .volume = from_points(wire, as_measured(network, job, pattern, scope, bytes), end) - fixed,
        .burst = wire->burst,
        .hidden = hidden,
    };
}

/* Through memory: a probe has no points for that. */
static struct exchange_time inside_hosts(const struct predict_network *network, double bytes, double messages,
                                         double factor)
{
    static const double usual = 5e9;
    return (struct exchange_time){.fixed = factor * network->message * messages,
                                  .volume = factor * bytes / (network->inside > 0 ? network->inside : usual)};
}

struct exchange_time exchange_time_of(const struct predict_network *network, const struct predict_job *job,
                                      enum predict_pattern pattern, enum predict_scope scope, double bytes,
                                      double messages, enum predict_end end)
{
    const double low = network->low > 0 ? network->low : 1, high = network->high > 0 ? network->high : 1,
                 factor = end == PREDICT_LOW    ? low
                          : end == PREDICT_HIGH ? high
                                                : 1;
    if (job->world <= 1)
        return (struct exchange_time){0};
    if (scope == PREDICT_INSIDE || left_links(network, job))
        return inside_hosts(network, bytes, messages, factor);
    if (network->patterns[pattern].count > 0)
        return measured(network, job, pattern, scope, bytes, messages, end);
    const double share = link_share(pattern, scope, job->world, job->per_node),
                 inside = bytes * inside_share(pattern, scope, job->world, job->per_node) / network->inside,
                 link = bytes * share / network->rate, rounds = pattern == PREDICT_RING ? messages : 1;
    return (struct exchange_time){
        .fixed = factor * (network->latency * rounds + network->message * messages),
        .volume = factor * link,
        .burst = factor * network->burst / network->rate,
        .inside = factor * inside,
        .hidden = pattern == PREDICT_RING ? 0 : factor * network->latency,
    };
}

static double later(double a, double b) { return a > b ? a : b; }

double bytes_time(const struct exchange_time *time)
{
    return later(time->inside, later(0, time->volume - time->burst));
}

double link_send(struct link *link, double made, const struct exchange_time *time)
{
    link->paid = later(link->paid, made - time->burst) + time->fixed + time->volume;
    link->free = later(later(link->free, made) + time->fixed + time->inside, link->paid);
    return link->free;
}

double predict_exchange(const struct predict_network *network, const struct predict_job *job,
                        enum predict_pattern pattern, double bytes, enum predict_end end)
{
    const struct exchange_time time = exchange_time_of(network, job, pattern, PREDICT_FLAT, bytes,
                                                       messages_of(pattern, job->world), end);
    return time.fixed + bytes_time(&time);
}

bool is_extrapolated(const struct predict_network *network, const struct predict_job *job, enum predict_pattern pattern,
                     enum predict_scope scope, double bytes)
{
    const struct predict_wire *wire = &network->patterns[pattern];
    return wire->count > 0 &&
           (job->world > 2 * (uint64_t)network->world ||
            as_measured(network, job, pattern, scope, bytes) > 2 * wire->points[wire->count - 1].bytes);
}

/* ---- what can be used ---- */

static bool is_time(double seconds) { return isfinite(seconds) && seconds >= 0; }

static bool check_point(const char *name, const struct predict_point *points, size_t i, struct failure *failure)
{
    const struct predict_point *p = &points[i];
    if (!is_time(p->bytes) || !is_time(p->seconds) || !is_time(p->low) || !is_time(p->high) || p->low > p->seconds ||
        p->seconds > p->high)
        return fail(failure, "point %zu of '%s' has bytes or seconds that are negative, not finite or out of order", i,
                    name);
    if (i > 0 && (p->bytes <= points[i - 1].bytes || p->seconds < points[i - 1].seconds || p->low < points[i - 1].low ||
                  p->high < points[i - 1].high))
        return fail(failure, "point %zu of '%s' must have more bytes than the one before, and not less time", i, name);
    return true;
}

bool predict_network_check(const struct predict_network *network, struct failure *failure)
{
    static const char *const names[PREDICT_PATTERNS] = {"all-gather", "all-to-all", "ring"};
    bool needs_rate = false;
    for (int pattern = 0; pattern < PREDICT_PATTERNS; pattern++) {
        const struct predict_wire *wire = &network->patterns[pattern];
        needs_rate = needs_rate || wire->count == 0;
        if (wire->count > PREDICT_MOST_POINTS)
            return fail(failure, "'%s' has %zu points: use at most %d", names[pattern], wire->count,
                        PREDICT_MOST_POINTS);
        for (size_t i = 0; i < wire->count; i++)
            if (!check_point(names[pattern], wire->points, i, failure))
                return false;
        if (!is_time(wire->hidden) || !is_time(wire->burst))
            return fail(failure, "'%s' has \"hidden\" %g and \"burst\" %g: use seconds, 0 or more", names[pattern],
                        wire->hidden, wire->burst);
        if (wire->count > 0 && (network->world < 2 || network->per_node < 1))
            return fail(failure, "points were measured with %u ranks, %u on a host: use at least 2 and 1",
                        network->world, network->per_node);
    }
    if (needs_rate && (!(network->rate > 0) || !(network->inside > 0) || !is_time(network->burst) ||
                       !is_time(network->latency) || !is_time(network->message)))
        return fail(failure,
                    "invalid network: %g bytes per second, latency %g s, %g s for each message; the first must be "
                    "positive, no time may be negative",
                    network->rate, network->latency, network->message);
    if (needs_rate && !(network->low > 0 && network->low <= 1 && network->high >= 1 && isfinite(network->high)))
        return fail(failure, "factors %g and %g of a network must lie on both sides of 1", network->low, network->high);
    return true;
}

bool predict_coding_check(const struct predict_coding *coding, struct failure *failure)
{
    if (!is_time(coding->encode) || !is_time(coding->check) || !is_time(coding->add) || !is_time(coding->frame))
        return fail(failure, "'%s' has a time that is negative or not finite", coding->spec);
    if (!(coding->low > 0 && coding->low <= 1 && coding->high >= 1 && isfinite(coding->high)))
        return fail(failure, "factors %g and %g of '%s' must lie on both sides of 1", coding->low, coding->high,
                    coding->spec);
    return true;
}

bool predict_job_check(const struct predict_job *job, struct failure *failure)
{
    if (job->world == 0 || job->world > PREDICT_MOST_RANKS)
        return fail(failure, "a world of %u ranks cannot be planned: use 1 to %d", job->world, PREDICT_MOST_RANKS);
    if (job->per_node == 0)
        return fail(failure, "a host has at least 1 rank, not 0");
    if (!is_time(job->forward) || !is_time(job->backward))
        return fail(failure, "a step of %g and %g seconds of computing cannot be planned", job->forward, job->backward);
    if (!(job->kappa >= 1 && isfinite(job->kappa)))
        return fail(failure, "coding beside the backward pass takes %g times as long: use 1 or more", job->kappa);
    double before = 0;
    for (size_t i = 0; i < job->tensor_count; i++) {
        const struct predict_tensor *tensor = &job->tensors[i];
        if (!is_time(tensor->ready) || tensor->ready < before || tensor->ready > job->backward)
            return fail(failure, "tensor '%s' is ready after %g seconds: times must not decrease, nor pass %g",
                        tensor->name, tensor->ready, job->backward);
        before = tensor->ready;
    }
    return true;
}
