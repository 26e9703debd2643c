/* How long exchanges take: the patterns that the reducer makes, and the ring that it is compared with; see probe.h. */
#include "probe.h"

#include "common/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIZES = 17, MOST_TRIALS = 32, LEAST_TRIALS = 3, MOST_AT_ONCE = 32 };
static const size_t largest = 64 << 20;
/* Of a train of exchanges: several times what a link lets pass as a burst. */
static const double train_bytes = 4 << 20;
enum { TRAIN_OF_LARGE = 8 }; /* exchanges of a train of large ones */
static const double shortest_rest = 0.001, longest_rest = 0.05;

/* One exchange after the other through the same buffers. `messages` has what goes to each rank, `arrivals` what comes
 * from each. */
struct exchanger {
    const struct probe_team *team;
    uint8_t *messages, *arrivals;
    const void **send;
    void **receive;
    size_t *send_size, *capacity, *received;
};

static void exchanger_free(struct exchanger *x)
{
    free(x->messages);
    free(x->arrivals);
    free(x->send);
    free(x->receive);
    free(x->send_size);
    free(x->capacity);
    free(x->received);
}

static bool exchanger_make(const struct probe_team *team, size_t room, struct exchanger *x, struct failure *failure)
{
    const size_t world = team->team.world;
    *x = (struct exchanger){
        .team = team,
        .messages = malloc(room),
        .arrivals = malloc(room),
        .send = calloc(world, sizeof *x->send),
        .receive = calloc(MOST_AT_ONCE * world, sizeof *x->receive),
        .send_size = calloc(world, sizeof *x->send_size),
        .capacity = calloc(world, sizeof *x->capacity),
        .received = calloc(MOST_AT_ONCE * world, sizeof *x->received),
    };
    if (!x->messages || !x->arrivals || !x->send || !x->receive || !x->send_size || !x->capacity || !x->received)
        return fail(failure, "out of memory for exchanges of %zu bytes", room);
    memset(x->messages, 1, room); /* pages that nobody has written are all one page, and too fast */
    memset(x->arrivals, 1, room);
    return true;
}

static bool start_all(const struct exchanger *x, tg_exchange *exchanges, size_t count, struct failure *failure)
{
    tg_error error = {""};
    for (size_t i = 0; i < count; i++)
        if (tg_transport_start(x->team->team.transport, &exchanges[i], &error) != TG_OK)
            return fail(failure, "%s", error.message);
    return true;
}

static bool wait_all(const struct exchanger *x, tg_exchange *exchanges, size_t count, struct failure *failure)
{
    tg_error error = {""};
    for (size_t i = 0; i < count; i++)
        if (tg_transport_wait(x->team->team.transport, &exchanges[i], x->team->team.timeout, &error) != TG_OK)
            return fail(failure, "%s", error.message);
    return true;
}

/* `size` bytes to and from every rank, `count` times. */
static void list_exchanges(const struct exchanger *x, tg_exchange_kind kind, size_t size, size_t count,
                           tg_exchange *exchanges)
{
    const struct team *t = &x->team->team;
    uint8_t *arrival = x->arrivals;
    for (uint32_t i = 0, peer = 0; i < t->world; i++) {
        x->send[i] = x->messages + (kind == TG_ALL_TO_ALL ? peer * size : 0);
        x->send_size[i] = x->capacity[i] = size;
        peer += i != t->rank;
    }
    for (size_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < t->world; j++) {
            x->receive[i * t->world + j] = arrival;
            arrival += j != t->rank ? size : 0;
        }
        exchanges[i] = (tg_exchange){
            kind, t->world, x->send, x->send_size, &x->receive[i * t->world], x->capacity, &x->received[i * t->world],
            false};
    }
}

/* All of them at once. */
static bool exchange_all(const struct exchanger *x, tg_exchange_kind kind, size_t size, size_t count,
                         struct failure *failure)
{
    tg_exchange exchanges[MOST_AT_ONCE];
    list_exchanges(x, kind, size, count, exchanges);
    return start_all(x, exchanges, count, failure) && wait_all(x, exchanges, count, failure);
}

/* A ring all-reduce of world * size bytes of floats: in each of 2 (P - 1) rounds every rank sends a share to the next;
 * in the first half it adds what comes. */
static bool exchange_ring(const struct exchanger *x, size_t size, struct failure *failure)
{
    const struct team *t = &x->team->team;
    const uint32_t next = (t->rank + 1) % t->world, before = (t->rank + t->world - 1) % t->world;
    for (uint32_t round = 0; round < 2 * (t->world - 1); round++) {
        const uint32_t out = (t->rank + 2 * t->world - round) % t->world, in = (out + t->world - 1) % t->world;
        float *own = (float *)(void *)(x->messages + in * size);
        const float *come = (const float *)(const void *)x->arrivals;
        for (uint32_t i = 0; i < t->world; i++) {
            x->send_size[i] = i == next ? size : TG_NO_MESSAGE;
            x->capacity[i] = i == before ? size : TG_NO_MESSAGE;
            x->send[i] = x->messages + out * size;
            x->receive[i] = x->arrivals;
        }
        tg_exchange exchange = {TG_ALL_TO_ALL, t->world,    x->send,     x->send_size,
                                x->receive,    x->capacity, x->received, false};
        if (!start_all(x, &exchange, 1, failure) || !wait_all(x, &exchange, 1, failure))
            return false;
        if (round < t->world - 1)
            for (size_t i = 0; i < size / sizeof *own; i++)
                own[i] += come[i];
        else
            memcpy(own, come, size);
    }
    return true;
}

/* ---- what is measured ---- */

/* One size of exchanges. Of all-gather and all-to-all, two trains of them are timed: a reduction has many exchanges
 * under way, and a large one by itself is slower than as many bytes in several. */
struct point {
    size_t size; /* of a message */
    double bytes;
    size_t counts[2]; /* exchanges of the shorter and of the longer train; of a ring 0 and 1 */
    double samples[2][MOST_TRIALS];
    double estimate;
};

struct pattern {
    enum predict_pattern kind;
    struct point points[SIZES];
    size_t count;
    double single[MOST_TRIALS]; /* the smallest exchange by itself */
    double per_byte;            /* seconds, about */
};

/* Bytes rise by four, and by two from 16 KiB on; they are rounded down to whole floats in each message. */
static void list_points(uint32_t world, struct pattern *pattern)
{
    const size_t messages = (pattern->kind == PREDICT_RING ? 2 : 1) * ((size_t)world - 1);
    for (size_t bytes = 64; bytes <= largest && pattern->count < SIZES; bytes *= bytes < 16384 ? 4 : 2) {
        const size_t size = bytes / messages / sizeof(float) * sizeof(float);
        if (size > 0)
            pattern->points[pattern->count++] = (struct point){.size = size, .bytes = (double)(size * messages)};
    }
}

void probe_rest(double seconds)
{
    const struct timespec pause = {.tv_nsec = (long)(seconds * 1e9)};
    (void)nanosleep(&pause, NULL);
}

/* A link that lets bursts pass must have its burst back before it is measured again: a step's computing gives it that,
 * too. It takes no longer than what was sent would take without a burst. */
static bool time_point(const struct exchanger *x, const struct pattern *pattern, const struct point *point,
                       size_t count, double *seconds, struct failure *failure)
{
    const enum predict_pattern kind = pattern->kind;
    double ignored;
    probe_rest(fmin(fmax((double)count * point->bytes * pattern->per_byte, shortest_rest), longest_rest));
    if (!probe_slowest(x->team, 0, &ignored, failure))
        return false;
    const uint64_t start = clock_ns();
    const bool is_done = kind == PREDICT_RING
                             ? exchange_ring(x, point->size, failure)
                             : exchange_all(x, kind == PREDICT_ALL_GATHER ? TG_ALL_GATHER : TG_ALL_TO_ALL, point->size,
                                            count, failure);
    return is_done && probe_slowest(x->team, 1e-9 * (double)(clock_ns() - start), seconds, failure);
}

/* By itself beyond what a link lets pass as a burst. */
static bool is_large(const struct point *p) { return p->bytes >= train_bytes / 4; }

/* As many as make a train, but none that takes too long. */
static void choose_counts(struct point *p, enum predict_pattern kind, double most)
{
    double count = fmin(fmax(train_bytes / p->bytes, TRAIN_OF_LARGE), most / fmax(p->estimate, 1e-9));
    count = fmin(fmax(floor(count), 2), fmin(MOST_AT_ONCE, floor((double)largest / p->bytes)));
    p->counts[1] = kind == PREDICT_RING ? 1 : (size_t)count;
    p->counts[0] = p->counts[1] > 1 && is_large(p) ? 1 : p->counts[1] / 2;
}

/* Once for every size, from small to large, until one would take too long: larger ones are left out. What it takes the
 * first time also has connections to be made, and is not counted. */
static bool first_round(const struct exchanger *x, struct pattern *pattern, double most, struct failure *failure)
{
    pattern->per_byte = longest_rest / 16384;
    for (size_t i = 0; i < pattern->count; i++) {
        struct point *p = &pattern->points[i];
        if (i > 1 && p[-1].estimate * p->bytes / p[-1].bytes > most) {
            pattern->count = i;
            break;
        }
        if (!time_point(x, pattern, p, 1, &p->estimate, failure))
            return false;
        choose_counts(p, pattern->kind, most);
    }
    pattern->per_byte = pattern->points[pattern->count - 1].estimate / pattern->points[pattern->count - 1].bytes;
    return true;
}

static bool further_round(const struct exchanger *x, struct pattern *patterns, size_t trial, struct failure *failure)
{
    for (size_t i = 0; i < SIZES; i++)
        for (unsigned kind = 0; kind < PREDICT_PATTERNS; kind++) {
            struct pattern *pattern = &patterns[kind];
            struct point *p = &pattern->points[i];
            if (i == 0 && !time_point(x, pattern, p, 1, &pattern->single[trial], failure))
                return false;
            for (unsigned j = 0; i < pattern->count && j < 2; j++)
                if (p->counts[j] > 0 && !time_point(x, pattern, p, p->counts[j], &p->samples[j][trial], failure))
                    return false;
        }
    return true;
}

static bool run_rounds(const struct exchanger *x, double until, struct pattern *patterns, size_t *trials,
                       struct failure *failure)
{
    const double most = until / (12 * (LEAST_TRIALS + 1));
    for (unsigned kind = 0; kind < PREDICT_PATTERNS; kind++) {
        patterns[kind].kind = (enum predict_pattern)kind;
        list_points(x->team->team.world, &patterns[kind]);
        if (!first_round(x, &patterns[kind], most, failure))
            return false;
    }
    double before = probe_now(x->team, failure), round = 0;
    while (before >= 0 && *trials < MOST_TRIALS &&
           (*trials == 0 || before + round < (*trials < LEAST_TRIALS ? 1.5 : 1) * until)) {
        if (!further_round(x, patterns, (*trials)++, failure))
            return false;
        const double now = probe_now(x->team, failure);
        round = now - before;
        before = now;
    }
    return before >= 0;
}

/* ---- what it says ---- */

/* Whole nanoseconds. */
static double rounded(double seconds) { return round(seconds * 1e9) / 1e9; }

/* What one exchange more adds to a train. */
static double slope_of(const struct point *p, size_t trials)
{
    const double shorter = p->counts[0] > 0 ? probe_quantile(p->samples[0], trials, 0.5) : 0,
                 longer = probe_quantile(p->samples[1], trials, 0.5);
    return fmax(0, longer - shorter) / (double)(p->counts[1] - p->counts[0]);
}

/* What large exchanges and trains take less than their exchanges among others: what links let pass as a burst after a
 * rest. It is the links', whatever the pattern; of a ring, the largest two exchanges say what one takes among others.
 */
static double burst_of(const struct pattern *patterns, size_t trials)
{
    double saved[PREDICT_PATTERNS * SIZES];
    size_t count = 0;
    for (size_t kind = 0; kind < PREDICT_PATTERNS; kind++) {
        const struct pattern *pattern = &patterns[kind];
        const struct point *last = &pattern->points[pattern->count - 1];
        const bool is_ring = pattern->kind == PREDICT_RING;
        const double single = probe_quantile(pattern->single, trials, 0.5);
        const double per_byte = pattern->count < 2 ? 0
                                                   : (probe_quantile(last->samples[1], trials, 0.5) -
                                                      probe_quantile(last[-1].samples[1], trials, 0.5)) /
                                                         (last->bytes - last[-1].bytes);
        for (const struct point *p = pattern->points; p <= last; p++)
            if (is_ring ? is_large(p) && p->bytes < train_bytes && p + 1 < last
                        : p->bytes < train_bytes && (double)p->counts[0] * p->bytes >= train_bytes / 4)
                saved[count++] = single + (is_ring ? per_byte * p->bytes : (double)p->counts[0] * slope_of(p, trials)) -
                                 probe_quantile(p->samples[is_ring], trials, 0.5);
    }
    probe_sort(saved, count);
    return count > 0 ? fmax(0, probe_quantile(saved, count, 0.5)) : 0;
}

/* What one exchange takes of the wire among others. Trains that a burst was a part of had it all. */
static double each_of(const struct point *p, size_t trials, double single, double burst)
{
    if ((double)p->counts[1] * p->bytes < train_bytes / 4)
        return slope_of(p, trials);
    return fmax(0, probe_quantile(p->samples[1], trials, 0.5) - single + burst) / (double)p->counts[1];
}

/* What one exchange of each size takes, and the quantiles relative to that. */
struct estimate {
    double seconds, low, high;
};

static double median_of(double *numbers, size_t count)
{
    probe_sort(numbers, count);
    return probe_quantile(numbers, count, 0.5);
}

/* Large exchanges lie on a line, but for what disturbed them. Among others their time is as their bytes; a ring, which
 * is timed by itself, also waits and has its burst: there it is the line of the median slope between two of them. */
static void straighten(const struct pattern *pattern, struct estimate *estimates)
{
    double slopes[SIZES * SIZES], rests[SIZES], lows[SIZES], highs[SIZES];
    const bool is_ring = pattern->kind == PREDICT_RING;
    size_t first = 0, count = 0, pairs = 0;
    while (first < pattern->count && !is_large(&pattern->points[first]))
        first++;
    for (size_t i = first; i < pattern->count; i++) {
        const struct point *p = pattern->points;
        for (size_t j = i + 1; is_ring && j < pattern->count; j++)
            slopes[pairs++] = (estimates[j].seconds - estimates[i].seconds) / (p[j].bytes - p[i].bytes);
        if (!is_ring)
            slopes[pairs++] = estimates[i].seconds / p[i].bytes;
    }
    if (pairs == 0)
        return;
    const double slope = fmax(0, median_of(slopes, pairs));
    for (size_t i = first; i < pattern->count; i++, count++) {
        rests[count] = is_ring ? estimates[i].seconds - slope * pattern->points[i].bytes : 0;
        lows[count] = estimates[i].low;
        highs[count] = estimates[i].high;
    }
    const struct estimate at = {median_of(rests, count), median_of(lows, count), median_of(highs, count)};
    for (size_t i = first; i < pattern->count; i++)
        estimates[i] = (struct estimate){fmax(0, at.seconds + slope * pattern->points[i].bytes), at.low, at.high};
}

/* Medians of noisy samples may fall where there are more bytes; those of a network do not. */
static void summarise(const struct pattern *pattern, size_t trials, double burst, struct predict_wire *wire)
{
    const bool is_ring = pattern->kind == PREDICT_RING; /* by itself, after a rest: as it is made */
    struct estimate estimates[SIZES] = {{0}};
    struct predict_point before = {0};
    const double single = is_ring ? 0 : probe_quantile(pattern->single, trials, 0.5);
    wire->burst = is_ring ? 0 : rounded(burst);
    for (size_t i = 0; i < pattern->count; i++) {
        const struct point *p = &pattern->points[i];
        const double middle = fmax(probe_quantile(p->samples[1], trials, 0.5), 1e-9);
        estimates[i] = (struct estimate){each_of(p, trials, single, wire->burst),
                                         probe_quantile(p->samples[1], trials, 0.1) / middle,
                                         probe_quantile(p->samples[1], trials, 0.9) / middle};
    }
    straighten(pattern, estimates);
    wire->hidden = rounded(fmax(0, single - estimates[0].seconds));
    for (size_t i = 0; i < pattern->count; i++) {
        const double seconds = fmax(before.seconds, rounded(wire->hidden + estimates[i].seconds));
        wire->points[wire->count++] = before = (struct predict_point){
            .bytes = pattern->points[i].bytes,
            .seconds = seconds,
            .low = fmax(before.low, rounded(seconds * fmin(1, estimates[i].low))),
            .high = fmax(before.high, rounded(seconds * fmax(1, estimates[i].high)))};
    }
}

static void sort_samples(struct pattern *patterns, size_t trials)
{
    for (unsigned kind = 0; kind < PREDICT_PATTERNS; kind++) {
        for (size_t i = 0; i < patterns[kind].count; i++) {
            probe_sort(patterns[kind].points[i].samples[0], trials);
            probe_sort(patterns[kind].points[i].samples[1], trials);
        }
        probe_sort(patterns[kind].single, trials);
    }
}

bool probe_network(const struct probe_team *team, double until, struct predict_network *network,
                   struct failure *failure)
{
    struct exchanger x;
    struct pattern *patterns = calloc(PREDICT_PATTERNS, sizeof *patterns);
    const bool is_made = exchanger_make(team, largest, &x, failure);
    size_t trials = 0;
    const bool is_done = probe_agree(team, patterns && is_made, failure) && patterns &&
                         run_rounds(&x, until, patterns, &trials, failure);
    if (is_done) {
        sort_samples(patterns, trials);
        const double burst = burst_of(patterns, trials);
        for (unsigned kind = 0; kind < PREDICT_PATTERNS; kind++)
            summarise(&patterns[kind], trials, burst, &network->patterns[kind]);
    }
    exchanger_free(&x);
    free(patterns);
    return is_done;
}
