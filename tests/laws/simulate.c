/* Laws of simulated clusters: a uniform one takes as long as the closed form says; racks, stragglers and chance never
 * make it faster than that; the same seed gives the same times, and another seed others. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "predict/costs.h"
#include "predict/simulate.h"
#include "support.h"

enum { TENSORS = 30, STEPS = 20 };

static struct predict_tensor tensors[TENSORS];
static uint32_t hosts[100]; /* of each rank */
static const struct cluster uniform = {.oversubscription = 1, .slowdown = 1, .steps = STEPS, .seed = 1};

struct scene {
    struct predict_job job;
    struct predict_network network;
    struct schedule schedule;
    bool is_ring;
};

static double between(generator *g, double low, double high) { return low * exp(next_uniform(g) * log(high / low)); }

static void make_scene(struct scene *s, generator *g, bool is_ring)
{
    static const char *const specs[] = {"none", "qsgd", "topk:density=0.01"};
    struct failure failure = {""};
    *s = (struct scene){.job = {.tensors = tensors,
                                .tensor_count = TENSORS,
                                .forward = between(g, 1e-3, 1e-1),
                                .world = (uint32_t)between(g, 2, 100),
                                .per_node = next_random(g) % 2 ? 1 : (uint32_t)(1 + next_random(g) % 8),
                                .kappa = between(g, 1, 3),
                                .ring_bucket = 1 << 20},
                        .network = {.rate = between(g, 1e7, 1e11),
                                    .burst = next_random(g) % 2 ? 1e5 : 0,
                                    .latency = between(g, 1e-6, 1e-3),
                                    .message = between(g, 1e-7, 1e-5),
                                    .inside = between(g, 1e9, 1e11),
                                    .low = 1,
                                    .high = 1},
                        .is_ring = is_ring};
    for (size_t i = 0; i < TENSORS; i++) {
        s->job.backward += between(g, 1e-4, 1e-2);
        tensors[i] = (struct predict_tensor){"t", 1 + (uint64_t)between(g, 10, 1e6), s->job.backward};
    }
    tg_spec spec;
    const tg_feedback_spec feedback = {.kind = TG_FEEDBACK_NONE};
    const bool has_levels = s->job.per_node > 1 && next_random(g) % 2;
    const tg_reducer_options options = {.algorithm = next_random(g) % 2 ? TG_GATHER : TG_SHARD,
                                        .host_of_rank = has_levels ? hosts : NULL};
    for (uint32_t rank = 0; rank < sizeof hosts / sizeof *hosts; rank++)
        hosts[rank] = rank / s->job.per_node;
    struct predict_coding coding;
    expect(tg_spec_parse(specs[next_random(g) % 3], &spec, NULL) == TG_OK, "a spec");
    expect(predict_costs(PREDICT_CPU, &spec, false, &coding, &failure), "%s", failure.text);
    expect(is_ring ? schedule_of_ring(&s->job, &s->schedule, &failure)
                   : schedule_of_reduction(&s->job, &coding, &spec, &feedback, &options, &s->schedule, &failure),
           "%s", failure.text);
}

static struct simulated run(const struct scene *s, const struct cluster *cluster)
{
    struct simulated result = {0};
    struct failure failure = {""};
    expect(simulate_check(cluster, &s->job, &failure) &&
               simulate(&s->schedule, &s->job, &s->network, cluster, &result, &failure),
           "%s", failure.text);
    return result;
}

static void uniform_is_the_closed_form(generator *g, size_t rounds)
{
    const struct shares all = {1, 1, 1, 1};
    double worst = 0;
    for (size_t i = 0; i < rounds; i++) {
        struct scene s;
        make_scene(&s, g, i % 3 == 0);
        const double closed = schedule_best(&s.schedule, &s.job, &s.network, PREDICT_MIDDLE, &all, NULL);
        const struct simulated result = run(&s, &uniform);
        const double error = fabs(result.mean - closed) / closed;
        worst = error > worst ? error : worst;
        expect(error <= 0.01, "%u ranks, %u on a host: %g s, not %g s", s.job.world, s.job.per_node, result.mean,
               closed);
        expect(result.events == (uint64_t)STEPS * s.job.world * s.schedule.count, "events");
        schedule_free(&s.schedule);
    }
    check_all("a uniform cluster takes as long as the closed form says, within 1 %% (%.4f %% at most)", 100 * worst);
}

/* Without overlap, a ring is arithmetic: computing, then rounds and bytes of each bucket. */
static void ring_is_arithmetic(generator *g, size_t rounds)
{
    for (size_t i = 0; i < rounds; i++) {
        struct scene s;
        make_scene(&s, g, true);
        s.job.per_node = 1;
        s.network.burst = 0;
        double step = s.job.forward + s.job.backward;
        const double peers = s.job.world - 1.0;
        for (size_t t = 0; t < TENSORS; t++) {
            tensors[t].ready = s.job.backward;
            step += 2 * peers / s.job.world * 4 * (double)tensors[t].count / s.network.rate;
        }
        step += (double)s.schedule.count * 2 * peers * (s.network.latency + s.network.message);
        const struct simulated result = run(&s, &uniform);
        expect(fabs(result.mean - step) <= 0.01 * step, "%u ranks: %g s, not %g s", s.job.world, result.mean, step);
        schedule_free(&s.schedule);
    }
    check_all("rings on a uniform cluster are arithmetic");
}

static void unevenness_costs_time(generator *g, size_t rounds)
{
    for (size_t i = 0; i < rounds; i++) {
        struct scene s;
        make_scene(&s, g, i % 3 == 0);
        const double even = run(&s, &uniform).mean, error = 1e-12 * even; /* sums in another order */
        struct cluster uneven = uniform;
        uneven.rack_hosts = (uint32_t)(1 + next_random(g) % 8);
        uneven.oversubscription = between(g, 1, 16);
        const double racks = run(&s, &uneven).mean;
        expect(racks >= even - error, "racks: %.17g, %.17g", racks, even);
        uneven.oversubscription *= 2;
        expect(run(&s, &uneven).mean >= racks - error, "more oversubscription");
        uneven = uniform;
        uneven.stragglers = 0.2;
        uneven.slowdown = between(g, 1, 4);
        const double slow = run(&s, &uneven).mean;
        expect(slow >= even - error, "stragglers: %.17g, %.17g", slow, even);
        uneven.stragglers = 0.6; /* those of before, and others */
        expect(run(&s, &uneven).mean >= slow - error, "more stragglers");
        schedule_free(&s.schedule);
    }
    check_all("racks and stragglers never make a step shorter");
}

/* Where the network takes no time, hosts that are all slow are so many times slower; if codecs run elsewhere, less. */
static void slow_hosts_code_slowly(generator *g, size_t rounds)
{
    for (size_t i = 0; i < rounds; i++) {
        struct scene s;
        make_scene(&s, g, false);
        s.network = (struct predict_network){.rate = INFINITY, .inside = INFINITY, .low = 1, .high = 1};
        const double even = run(&s, &uniform).mean;
        struct cluster slow = uniform;
        slow.stragglers = 1;
        slow.slowdown = between(g, 1.5, 4);
        slow.codes_on_hosts = true;
        const double all = run(&s, &slow).mean;
        expect(fabs(all - slow.slowdown * even) <= 1e-9 * all, "%g times slower: %.17g, %.17g", slow.slowdown, all,
               even);
        slow.codes_on_hosts = false;
        expect(run(&s, &slow).mean < all, "coding elsewhere");
        slow.stragglers = 0.4; /* those few hosts are as long at it as all of them */
        slow.codes_on_hosts = true;
        const double some = run(&s, &slow).mean;
        expect(some <= all * (1 + 1e-9) && some >= even * (1 - 1e-9), "some: %.17g, all: %.17g", some, all);
        schedule_free(&s.schedule);
    }
    check_all("slow hosts code as slowly as they compute, where codecs run on them");
}

static void seeds(generator *g)
{
    struct scene s;
    make_scene(&s, g, false);
    while (s.job.world < 8) {
        schedule_free(&s.schedule);
        make_scene(&s, g, false);
    }
    struct cluster c = uniform;
    c.jitter = 0.1;
    const struct simulated one = run(&s, &c), again = run(&s, &c);
    c.seed = 2;
    const struct simulated other = run(&s, &c);
    expect(one.mean == again.mean && one.low == again.low && one.high == again.high, "the same seed");
    expect(one.mean != other.mean, "another seed");
    expect(one.low < one.high && one.low <= one.mean && one.mean <= one.high, "steps vary: %g, %g, %g", one.low,
           one.mean, one.high);
    schedule_free(&s.schedule);
    check_all("a seed decides everything that varies");
}

/* ---- what is promised to fit ---- */

/* 10,000 ranks, 25 buckets, 20 steps: 10 s and 1 GiB. They take 0.03 to 0.07 s, so the limit is far away; and it is of
 * processor time, which a busy machine hardly lengthens. */
static const double most_seconds = 10;
static const long most_kilobytes = 1 << 20;

static void costs_of_ten_thousand(struct scene *s, const char *what)
{
    struct rusage before, after;
    struct cluster c = uniform;
    c.rack_hosts = 32;
    c.oversubscription = 4;
    c.jitter = 0.05;
    c.stragglers = 0.01;
    c.slowdown = 2;
    expect(getrusage(RUSAGE_SELF, &before) == 0, "getrusage");
    const clock_t began = clock();
    const struct simulated result = run(s, &c);
    const double seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
    expect(getrusage(RUSAGE_SELF, &after) == 0, "getrusage");
    const long kilobytes = after.ru_maxrss - before.ru_maxrss; /* by which the most that was ever used has grown */
    expect(isfinite(result.mean) && result.mean > 0, "%s: %g s", what, result.mean);
    expect(result.events == (uint64_t)STEPS * s->schedule.count * s->job.world,
           "%s: %" PRIu64 " events of %zu exchanges", what, result.events, s->schedule.count);
    expect(kilobytes <= most_kilobytes, "%s: %ld kB", what, kilobytes);
    expect(seconds <= most_seconds, "%s: %g s of processor time", what, seconds);
    check_all("ten thousand ranks, %s: %" PRIu64 " events take %.2g s and %ld kB", what, result.events, seconds,
              kilobytes);
}

static void ten_thousand(generator *g)
{
    struct scene s;
    struct failure failure = {""};
    make_scene(&s, g, false);
    schedule_free(&s.schedule);
    s.job.world = EMULATED ? 500 : 10000;
    s.job.per_node = 8;
    s.job.tensor_count = 25;
    s.job.ring_bucket = 1; /* each tensor by itself */
    expect(schedule_of_ring(&s.job, &s.schedule, &failure), "%s", failure.text);
    expect(s.schedule.count == 25, "%zu buckets", s.schedule.count);
    costs_of_ten_thousand(&s, "a ring");
    schedule_free(&s.schedule);

    tg_spec spec;
    struct predict_coding coding;
    const tg_feedback_spec feedback = {.kind = TG_FEEDBACK_NONE};
    for (size_t t = 0; t < s.job.tensor_count; t++)
        tensors[t].count = 1 << 20; /* a message */
    expect(tg_spec_parse("qsgd", &spec, NULL) == TG_OK, "a spec");
    expect(predict_costs(PREDICT_CPU, &spec, false, &coding, &failure), "%s", failure.text);
    for (int algorithm = TG_GATHER; algorithm <= TG_SHARD; algorithm++) {
        const tg_reducer_options options = {.algorithm = (tg_algorithm)algorithm, .batch_elements = 1 << 20};
        expect(schedule_of_reduction(&s.job, &coding, &spec, &feedback, &options, &s.schedule, &failure), "%s",
               failure.text);
        expect(s.schedule.count >= 25, "%zu exchanges", s.schedule.count);
        costs_of_ten_thousand(&s, tg_algorithm_text((tg_algorithm)algorithm));
        schedule_free(&s.schedule);
    }
}

static void refusals(generator *g)
{
    struct scene s;
    struct failure failure = {""};
    make_scene(&s, g, true);
    schedule_free(&s.schedule);
    struct cluster bad = uniform;
    bad.steps = 0;
    expect(!simulate_check(&bad, &s.job, &failure) && strstr(failure.text, "0 steps"), "%s", failure.text);
    bad = uniform;
    bad.oversubscription = 0.5;
    expect(!simulate_check(&bad, &s.job, &failure), "an uplink that is too fast");
    bad.oversubscription = NAN;
    expect(!simulate_check(&bad, &s.job, &failure), "an uplink that is no number");
    bad = uniform;
    bad.stragglers = 1.5;
    expect(!simulate_check(&bad, &s.job, &failure), "more stragglers than hosts");
    s.job.world = SIMULATE_MOST_RANKS + 1;
    expect(!simulate_check(&uniform, &s.job, &failure) && strstr(failure.text, "100001"), "%s", failure.text);
    check_all("clusters that cannot be are refused");
}

int main(int argc, char **argv)
{
    const size_t rounds = EMULATED ? 4 : wants_all(argc, argv) ? 600 : 60;
    generator g = {20261118};
    uniform_is_the_closed_form(&g, rounds);
    ring_is_arithmetic(&g, rounds / 2);
    unevenness_costs_time(&g, rounds / 2);
    slow_hosts_code_slowly(&g, rounds / 2);
    seeds(&g);
    ten_thousand(&g);
    refusals(&g);
    return finish();
}
