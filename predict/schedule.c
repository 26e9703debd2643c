/* See schedule.h. */
#include "schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Ranks differ only in what they own. Of a large world so many are looked at; hosts with all their ranks, two at least.
 */
enum { LOOKED_AT = 512, LEAST_HOSTS = 2 };

static const uint64_t ring_bucket = 25 << 20;

/* ---- from a description ---- */

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* With two levels, what comes after verdicts in the list of roles stays within hosts: gradients as they are, which the
 * next exchange adds up, and results. Verdicts are among all; everything else is between hosts. */
static bool is_inside(tg_exchange_role role) { return role > TG_ROLE_VERDICT; }

/* What a rank has to do for an exchange, or for all of them. LOAD are the bytes of what it waits for: its own, or
 * between hosts, where owners of several shares use one link, those of all ranks of its host. */
enum { MESSAGES, OWN, LOAD, SENT, SUMMED, ENCODED, CHECKED, FRAMES, AMOUNTS };
struct amounts {
    double of[AMOUNTS];
};

/* Of what a rank sends to all others alike, the part for other hosts. Ranks of a host follow each other; the last host
 * may have fewer. */
static double leaving(const struct predict_job *job, uint32_t rank)
{
    const uint32_t first = rank - rank % job->per_node, left = job->world - first,
                   here = left < job->per_node ? left : job->per_node;
    return job->world > 1 ? (double)(job->world - here) / (job->world - 1.0) : 0;
}

/* With two levels, what the owners of a share exchange is all for other hosts. */
static double sent_over_links(const tg_described_exchange *e, const struct predict_job *job, uint32_t rank,
                              bool two_levels)
{
    if (is_inside(e->role))
        return 0;
    return (double)e->bytes_sent * (two_levels && e->role != TG_ROLE_VERDICT ? 1 : leaving(job, rank));
}

static struct amounts amounts_of(const tg_described_exchange *e, const struct predict_job *job, uint32_t rank,
                                 bool two_levels)
{
    const double own = (double)larger(e->bytes_sent, e->bytes_received);
    return (struct amounts){{[MESSAGES] = e->peers,
                             [OWN] = own,
                             [LOAD] = own,
                             [SENT] = sent_over_links(e, job, rank, two_levels),
                             [SUMMED] = (double)e->summed,
                             [ENCODED] = (double)e->encoded,
                             [CHECKED] = (double)e->checked,
                             [FRAMES] = (double)e->frames}};
}

/* Over ranks: of the one that has most, and in the mean. */
struct load {
    struct amounts most, mean;
};

static void count_in(struct load *load, const struct amounts *rank, double ranks)
{
    for (int i = 0; i < AMOUNTS; i++) {
        load->most.of[i] = rank->of[i] > load->most.of[i] ? rank->of[i] : load->most.of[i];
        load->mean.of[i] += rank->of[i] / ranks;
    }
}

/* Of the rank or host that has most, over all ranks: those that were looked at say how many owners share a link. */
static double most_load(const tg_described_exchange *e, const struct load *one)
{
    const double most = (double)larger(e->largest_sent, e->largest_received);
    return one->most.of[OWN] > 0 ? most * one->most.of[LOAD] / one->most.of[OWN] : most;
}

/* An exchange waits for the rank that has most to do for it, but that is another one in the next exchange: over a step,
 * no rank has more than the busiest has in all. */
static struct amounts usual(const struct load *one, const struct load *all)
{
    struct amounts amounts;
    for (int i = 0; i < AMOUNTS; i++) {
        const double amount = all->mean.of[i] > 0 ? one->mean.of[i] * all->most.of[i] / all->mean.of[i] : 0;
        amounts.of[i] = amount < one->most.of[i] ? amount : one->most.of[i];
    }
    return amounts;
}

static enum predict_scope scope_of(tg_exchange_role role, bool two_levels)
{
    return is_inside(role) ? PREDICT_INSIDE : two_levels && role != TG_ROLE_VERDICT ? PREDICT_BETWEEN : PREDICT_FLAT;
}

/* Copying, checking or adding an element that is sent as it is. */
static const struct predict_coding raw = {.encode = 0.3e-9, .check = 0.2e-9, .add = 0.24e-9};

static struct predict_coding costs_of(const tg_described_exchange *e, bool two_levels,
                                      const struct predict_coding *coding)
{
    struct predict_coding costs = *coding;
    if (is_inside(e->role) && e->kind == TG_ALL_TO_ALL) {
        costs.encode = raw.encode;
        costs.check = raw.check;
    }
    if (two_levels && e->role != TG_ROLE_RESULTS)
        costs.add = raw.add;
    return costs;
}

static void schedule_one(const tg_described_exchange *e, const struct load *one, const struct load *all,
                         const struct predict_coding *of_codec, bool two_levels, struct scheduled *scheduled)
{
    const struct amounts amounts = usual(one, all);
    const struct predict_coding own = costs_of(e, two_levels, of_codec), *coding = &own;
    *scheduled = (struct scheduled){
        .last_tensor = e->tensor_count > 0 ? e->first_tensor + e->tensor_count - 1 : SIZE_MAX,
        .after = e->after,
        .pattern = e->kind == TG_ALL_TO_ALL ? PREDICT_ALL_TO_ALL : PREDICT_ALL_GATHER,
        .scope = scope_of(e->role, two_levels),
        .messages = one->most.of[MESSAGES],
        .bytes = most_load(e, one),
        .usual_bytes = amounts.of[LOAD],
        .before = one->most.of[SUMMED] * coding->add + one->most.of[ENCODED] * coding->encode,
        .usual_before = amounts.of[SUMMED] * coding->add + amounts.of[ENCODED] * coding->encode,
        .behind = amounts.of[CHECKED] * coding->check + amounts.of[FRAMES] * coding->frame,
    };
}

/* Ranks that are looked at together: those of a host, with two levels. */
struct group {
    uint32_t first, count;
    struct amounts *here, *in_all; /* of each of them: of one exchange, and of all */
};

static tg_status look_at_exchange(const tg_description *description, const struct predict_job *job, bool two_levels,
                                  size_t index, struct group *group, tg_error *error)
{
    tg_status status = TG_OK;
    bool is_between = false;
    double on_link = 0;
    for (uint32_t i = 0; i < group->count && status == TG_OK; i++) {
        tg_described_exchange e = {.role = TG_ROLE_VERDICT};
        status = tg_description_exchange(description, group->first + i, index, &e, error);
        group->here[i] = amounts_of(&e, job, group->first + i, two_levels);
        is_between = scope_of(e.role, two_levels) == PREDICT_BETWEEN;
        on_link += group->here[i].of[OWN];
    }
    for (uint32_t i = 0; i < group->count && is_between; i++)
        group->here[i].of[LOAD] = on_link;
    return status;
}

static tg_status look_at_group(const tg_description *description, const struct predict_job *job, bool two_levels,
                               size_t count, double ranks, struct group *group, struct load *loads, struct load *all,
                               tg_error *error)
{
    tg_status status = TG_OK;
    memset(group->in_all, 0, group->count * sizeof *group->in_all);
    for (size_t e = 0; e < count && status == TG_OK; e++) {
        status = look_at_exchange(description, job, two_levels, e, group, error);
        for (uint32_t i = 0; i < group->count; i++) {
            count_in(&loads[e], &group->here[i], ranks);
            for (int a = 0; a < AMOUNTS; a++)
                group->in_all[i].of[a] += group->here[i].of[a];
        }
    }
    for (uint32_t i = 0; i < group->count; i++)
        count_in(all, &group->in_all[i], ranks);
    return status;
}

static tg_status count_all(const tg_description *description, const struct predict_job *job, bool two_levels,
                           size_t count, struct load *loads, struct load *all, tg_error *error)
{
    const uint32_t size = two_levels ? job->per_node : 1, hosts = (job->world + size - 1) / size,
                   most = LOOKED_AT / size > LEAST_HOSTS ? LOOKED_AT / size : LEAST_HOSTS,
                   step = hosts > most ? hosts / most : 1, last = (hosts - 1) / step * step * size;
    const uint32_t ranks = last / step + (job->world - last < size ? job->world - last : size); /* that are looked at */
    struct group group = {.here = calloc(size, sizeof *group.here), .in_all = calloc(size, sizeof *group.in_all)};
    tg_status status = group.here && group.in_all ? TG_OK : TG_OUT_OF_MEMORY;
    for (; group.first < job->world && status == TG_OK; group.first += step * size) {
        group.count = job->world - group.first < size ? job->world - group.first : size;
        status = look_at_group(description, job, two_levels, count, ranks, &group, loads, all, error);
    }
    free(group.here);
    free(group.in_all);
    return status;
}

static tg_status fill_in(const tg_description *description, const struct predict_job *job,
                         const struct predict_coding *coding, struct schedule *schedule, tg_error *error)
{
    struct load all = {0}, *loads = calloc(schedule->count + 1, sizeof *loads);
    if (!loads)
        return TG_OUT_OF_MEMORY;
    tg_described_exchange first = {.role = TG_ROLE_VERDICT};
    tg_status status = schedule->count > 0 ? tg_description_exchange(description, 0, 0, &first, error) : TG_OK;
    const bool two_levels = is_inside(first.role); /* they begin with one */
    if (status == TG_OK)
        status = count_all(description, job, two_levels, schedule->count, loads, &all, error);
    for (size_t i = 0; i < schedule->count && status == TG_OK; i++) {
        tg_described_exchange e;
        status = tg_description_exchange(description, 0, i, &e, error);
        if (status == TG_OK)
            schedule_one(&e, &loads[i], &all, coding, two_levels, &schedule->exchanges[i]);
    }
    schedule->bytes = (uint64_t)all.most.of[SENT];
    free(loads);
    return status;
}

static tg_status describe(const struct predict_job *job, const struct predict_coding *coding,
                          const tg_reducer_tensor *tensors, const tg_reducer_options *options,
                          struct schedule *schedule, tg_error *error)
{
    tg_description *description;
    tg_description_info info;
    tg_status status = tg_description_create(job->world, tensors, job->tensor_count, options, &description, error);
    if (status != TG_OK)
        return status;
    status = tg_description_of(description, &info, error);
    if (status == TG_OK) {
        *schedule = (struct schedule){.exchanges = calloc(info.exchange_count + 1, sizeof *schedule->exchanges),
                                      .count = info.exchange_count,
                                      .last = (double)info.applied * coding->add,
                                      .algorithm = info.algorithm,
                                      .estimated = info.estimated,
                                      .stretch = 1};
        status = schedule->exchanges ? fill_in(description, job, coding, schedule, error) : TG_OUT_OF_MEMORY;
    }
    tg_description_free(description);
    return status;
}

bool schedule_of_reduction(const struct predict_job *job, const struct predict_coding *coding, const tg_spec *codec,
                           const tg_feedback_spec *feedback, const tg_reducer_options *options,
                           struct schedule *schedule, struct failure *failure)
{
    *schedule = (struct schedule){0};
    struct predict_coding as_raw = raw;
    const tg_spec none = {.codec = 0};
    const tg_feedback_spec no_feedback = {.kind = TG_FEEDBACK_NONE};
    if (options && options->host_of_rank && job->per_node >= job->world) { /* one host compresses nothing */
        as_raw.frame = coding->frame;
        as_raw.low = coding->low;
        as_raw.high = coding->high;
        coding = &as_raw;
        codec = &none;
        feedback = &no_feedback;
    }
    tg_reducer_tensor *tensors = calloc(job->tensor_count + 1, sizeof *tensors);
    if (!tensors)
        return fail(failure, "out of memory for %zu tensors", job->tensor_count);
    for (size_t i = 0; i < job->tensor_count; i++)
        tensors[i] = (tg_reducer_tensor){.name = job->tensors[i].name,
                                         .count = job->tensors[i].count,
                                         .dtype = TG_FLOAT32,
                                         .codec = *codec,
                                         .feedback = *feedback,
                                         .insist = true}; /* whether it converges is not asked here */
    tg_error error = {""};
    const tg_status status = describe(job, coding, tensors, options, schedule, &error);
    free(tensors);
    if (status == TG_OK)
        return true;
    schedule_free(schedule);
    return fail(failure, "%s", error.message[0] ? error.message : tg_status_text(status));
}

/* ---- the dense baseline ---- */

bool schedule_of_ring(const struct predict_job *job, struct schedule *schedule, struct failure *failure)
{
    const uint64_t room = job->ring_bucket ? job->ring_bucket : ring_bucket;
    *schedule = (struct schedule){
        .exchanges = calloc(job->tensor_count + 1, sizeof *schedule->exchanges), .algorithm = TG_AUTO, .stretch = 1};
    if (!schedule->exchanges)
        return fail(failure, "out of memory for %zu tensors", job->tensor_count);
    double rounds = messages_of(PREDICT_RING, job->world), factor = rounds / job->world; /* ranks hand on shares */
    if (job->tree) {
        factor = 2; /* up and down */
        for (rounds = 0; UINT64_C(1) << (unsigned)(rounds / 2) < job->world; rounds += 2)
            ;
    }
    uint64_t bytes = 0;
    for (size_t i = 0; i < job->tensor_count && job->world > 1; i++) {
        bytes += sizeof(float) * job->tensors[i].count;
        if (bytes < room && i + 1 < job->tensor_count)
            continue;
        schedule->exchanges[schedule->count++] = (struct scheduled){.last_tensor = i,
                                                                    .after = SIZE_MAX,
                                                                    .pattern = PREDICT_RING,
                                                                    .messages = rounds,
                                                                    .bytes = factor * (double)bytes,
                                                                    .usual_bytes = factor * (double)bytes};
        if (job->per_node < job->world) /* else no rank has a neighbour on another host */
            schedule->bytes += (uint64_t)(factor * (double)bytes);
        bytes = 0;
    }
    return true;
}

uint32_t *schedule_hosts(const struct predict_job *job)
{
    uint32_t *hosts = malloc(job->world * sizeof *hosts);
    for (uint32_t rank = 0; hosts && rank < job->world; rank++)
        hosts[rank] = rank / job->per_node;
    return hosts;
}

bool schedule_has_levels(const struct schedule *schedule)
{
    for (size_t i = 0; i < schedule->count; i++)
        if (schedule->exchanges[i].scope != PREDICT_FLAT)
            return true;
    return false;
}

void schedule_free(struct schedule *schedule)
{
    free(schedule->exchanges);
    *schedule = (struct schedule){0};
}

/* ---- its time ---- */

const size_t schedule_lags[LAGS] = {1, 2, 4, 8, 16, 32, SIZE_MAX};

double coded_by(const struct predict_job *job, double backward, double now, double seconds)
{
    const double beside = now < backward ? (backward - now) / job->kappa : 0;
    return seconds <= beside ? now + seconds * job->kappa : now + (beside > 0 ? backward - now : 0) + seconds - beside;
}

double schedule_run(const struct schedule *schedule, const struct predict_job *job,
                    const struct predict_network *network, enum predict_end end, const struct shares *shares,
                    size_t lag)
{
    const double backward = shares->computing * job->backward, coding = schedule->stretch * shares->coding,
                 on_wire = schedule->stretch * shares->wire, latency = schedule->stretch * shares->latency;
    struct link links[2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}}; /* of the host, and its memory */
    double now = 0;                                                          /* of the thread that codes */
    double *came = calloc(schedule->count + 1, sizeof *came);
    size_t fed = 0;
    if (!came)
        return NAN;
    for (size_t i = 0; i < schedule->count; i++) {
        const struct scheduled *e = &schedule->exchanges[i];
        const size_t by_lag = i > lag ? i - lag : 0, needed = e->after == SIZE_MAX ? 0 : e->after + 1;
        for (const size_t until = by_lag > needed ? by_lag : needed; fed < until; fed++)
            now = coded_by(job, backward, now > came[fed] ? now : came[fed], coding * schedule->exchanges[fed].behind);
        const double ready = e->last_tensor == SIZE_MAX ? 0 : shares->computing * job->tensors[e->last_tensor].ready;
        const double begun = now > ready ? now : ready, made = coded_by(job, backward, begun, coding * e->before);
        now = coded_by(job, backward, begun, coding * e->usual_before);
        const struct exchange_time most = exchange_time_of(network, job, e->pattern, e->scope, e->bytes, e->messages,
                                                           end),
                                   time = exchange_time_of(network, job, e->pattern, e->scope, e->usual_bytes,
                                                           e->messages, end);
        const struct exchange_time stretched = {.fixed = latency * (time.fixed - time.hidden),
                                                .volume = on_wire * time.volume,
                                                .burst = on_wire * time.burst,
                                                .inside = on_wire * time.inside};
        const double sent = link_send(&links[e->scope == PREDICT_INSIDE], made, &stretched),
                     alone = made + stretched.fixed + on_wire * bytes_time(&most);
        came[i] = (sent > alone ? sent : alone) + latency * time.hidden;
    }
    for (; fed < schedule->count; fed++)
        now = coded_by(job, backward, now > came[fed] ? now : came[fed], coding * schedule->exchanges[fed].behind);
    free(came);
    now = now > backward ? now : backward;
    return shares->computing * job->forward + now + coding * schedule->last;
}

double schedule_best(const struct schedule *schedule, const struct predict_job *job,
                     const struct predict_network *network, enum predict_end end, const struct shares *shares,
                     size_t *lag)
{
    double best = INFINITY;
    for (size_t i = 0; i < LAGS; i++) {
        const double seconds = schedule_run(schedule, job, network, end, shares, schedule_lags[i]);
        if (!(seconds >= best)) { /* also where there was no memory */
            best = seconds;
            if (lag)
                *lag = schedule_lags[i];
        }
    }
    return best;
}
