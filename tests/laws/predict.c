/* Laws of predictions: time never falls when something takes longer; dense steps have their closed form; one rank has
 * no wire; equal inputs give equal outputs; points on a line say what rate and latency say. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "predict/costs.h"
#include "predict/models.h"
#include "predict/schedule.h"
#include "support.h"

/* Sums are added up in another order, a thousand of them at most. */
static const double rounding = 1000 * DBL_EPSILON;

enum { TENSORS = 40 };

static struct predict_tensor tensors[TENSORS];

static double between(generator *g, double low, double high) { return low * exp(next_uniform(g) * log(high / low)); }

static struct predict_job random_job(generator *g)
{
    struct predict_job job = {.tensors = tensors,
                              .tensor_count = 1 + next_random(g) % TENSORS,
                              .forward = between(g, 1e-3, 1),
                              .world = (uint32_t)between(g, 2, 200),
                              .kappa = between(g, 1, 4)};
    job.per_node = next_random(g) % 3 ? 1 : (uint32_t)(1 + next_random(g) % 8);
    for (size_t i = 0; i < job.tensor_count; i++) {
        job.backward += next_random(g) % 4 ? between(g, 1e-5, 1e-2) : 0;
        tensors[i] = (struct predict_tensor){"t", 1 + (uint64_t)between(g, 10, 4e6), job.backward};
    }
    return job;
}

static struct predict_network random_network(generator *g)
{
    return (struct predict_network){.rate = between(g, 1e6, 1e11),
                                    .burst = next_random(g) % 2 ? between(g, 1e3, 1e6) : 0,
                                    .latency = between(g, 1e-7, 1e-2),
                                    .message = between(g, 1e-7, 1e-4),
                                    .inside = between(g, 1e8, 1e11),
                                    .low = 0.8,
                                    .high = 1.3};
}

static const char *const specs[] = {"none", "fp16", "qsgd", "onebit", "topk:density=0.01"};
enum { SPECS = sizeof specs / sizeof *specs };

struct codec {
    tg_spec spec;
    tg_feedback_spec feedback;
    struct predict_coding coding;
    tg_reducer_options options;
};

static struct codec random_codec(generator *g)
{
    struct codec codec = {.feedback = {.kind = TG_FEEDBACK_NONE}};
    struct failure failure = {""};
    expect(tg_spec_parse(specs[next_random(g) % SPECS], &codec.spec, NULL) == TG_OK, "a spec");
    expect(predict_costs(PREDICT_CPU, &codec.spec, false, &codec.coding, &failure), "%s", failure.text);
    codec.options.algorithm = next_random(g) % 2 ? TG_GATHER : TG_SHARD;
    return codec;
}

static struct predict_step predicted(const struct predict_job *job, const struct predict_network *network,
                                     const struct codec *codec)
{
    struct predict_step step = {0};
    struct failure failure = {""};
    expect(predict_reduction(job, network, &codec->coding, &codec->spec, &codec->feedback, &codec->options, &step,
                             &failure),
           "%s", failure.text);
    return step;
}

static struct predict_step ring(const struct predict_job *job, const struct predict_network *network)
{
    struct predict_step step = {0};
    struct failure failure = {""};
    expect(predict_ring(job, network, &step, &failure), "%s", failure.text);
    return step;
}

/* ---- what takes longer ---- */

/* Something to predict, in one level or in two, with a fit or without. */
struct scene {
    struct predict_job job;
    struct predict_network network;
    struct codec codec;
    uint32_t *hosts; /* NULL: one level */
};

static struct scene random_scene(generator *g, bool has_levels)
{
    struct scene s = {.job = random_job(g), .network = random_network(g), .codec = random_codec(g)};
    if (!has_levels)
        return s;
    s.job.per_node = (uint32_t)(2 + next_random(g) % 7);
    s.job.world += s.job.per_node;
    s.hosts = schedule_hosts(&s.job);
    s.codec.options.host_of_rank = s.hosts;
    return s;
}

static const char *const changes[] = {"latency", "a lower rate", "messages", "less burst", "encode",
                                      "check",   "add",          "frames",   "kappa",      "the backward pass"};
enum { CHANGES = sizeof changes / sizeof *changes, OF_NETWORK = 4 };

static void make_worse(struct scene *s, size_t change, double factor)
{
    double *const changed[] = {&s->network.latency,  &s->network.rate,        &s->network.message,
                               &s->network.burst,    &s->codec.coding.encode, &s->codec.coding.check,
                               &s->codec.coding.add, &s->codec.coding.frame,  &s->job.kappa};
    if (change < sizeof changed / sizeof *changed)
        *changed[change] *= change == 1 || change == 3 ? 1 / factor : factor;
    else
        s->job.backward += factor * 1e-3;
}

static void grows_with_costs(generator *g, size_t rounds, bool has_levels)
{
    for (size_t i = 0; i < rounds; i++) {
        struct scene s = random_scene(g, has_levels);
        const double before = predicted(&s.job, &s.network, &s.codec).seconds, dense = ring(&s.job, &s.network).seconds;
        const size_t change = i % 2 ? i / 2 % CHANGES : i / 2 % OF_NETWORK; /* these more often */
        make_worse(&s, change, between(g, 1.001, 5));
        const double after = predicted(&s.job, &s.network, &s.codec).seconds;
        expect(after >= before * (1 - rounding), "%s, %s, %u ranks, %u on a host: %.17g, %.17g", changes[change],
               s.codec.coding.spec, s.job.world, s.job.per_node, before, after);
        expect(ring(&s.job, &s.network).seconds >= dense * (1 - rounding), "%s, ring", changes[change]);
        free(s.hosts);
    }
    check_all("a step never takes less time when latency, rate, coding or computing take more, %s",
              has_levels ? "in two levels" : "in one level");
}

static void grows_with_bytes(generator *g, size_t rounds, bool has_levels)
{
    const struct shares all = {1, 1, 1, 1};
    for (size_t i = 0; i < rounds; i++) {
        const struct scene s = random_scene(g, has_levels);
        const struct codec *codec = &s.codec;
        struct schedule schedule;
        struct failure failure = {""};
        expect(schedule_of_reduction(&s.job, &codec->coding, &codec->spec, &codec->feedback, &codec->options, &schedule,
                                     &failure),
               "%s", failure.text);
        const double before = schedule_best(&schedule, &s.job, &s.network, PREDICT_MIDDLE, &all, NULL);
        struct scheduled *e = &schedule.exchanges[next_random(g) % schedule.count];
        const double factor = between(g, 1.001, 10);
        e->bytes *= factor;
        e->usual_bytes *= factor;
        expect(schedule_best(&schedule, &s.job, &s.network, PREDICT_MIDDLE, &all, NULL) >= before * (1 - rounding),
               "%s, %u ranks", codec->coding.spec, s.job.world);
        schedule_free(&schedule);
        free(s.hosts);
        const double bytes = between(g, 1, 1e9);
        for (int pattern = 0; pattern < PREDICT_PATTERNS; pattern++)
            expect(
                predict_exchange(&s.network, &s.job, (enum predict_pattern)pattern, bytes * factor, PREDICT_MIDDLE) >=
                    predict_exchange(&s.network, &s.job, (enum predict_pattern)pattern, bytes, PREDICT_MIDDLE),
                "pattern %d", pattern);
    }
    check_all("a step never takes less time when an exchange has more bytes, %s",
              has_levels ? "in two levels" : "in one level");
}

/* ---- closed forms ---- */

static bool is(double seconds, double expected) { return fabs(seconds - expected) <= rounding * expected; }

static void dense_is_its_closed_form(generator *g, size_t rounds)
{
    for (size_t i = 0; i < rounds; i++) {
        struct predict_job job = random_job(g);
        struct predict_network network = random_network(g);
        const double peers = job.world - 1.0;
        uint64_t elements = 0;
        job.per_node = 1;
        job.ring_bucket = UINT64_MAX;
        network.burst = 0;
        for (size_t t = 0; t < job.tensor_count; t++) {
            tensors[t].count += t == 0 ? 100000 : 0; /* too many to be handed on from rank to rank */
            elements += tensors[t].count;
            tensors[t].ready = job.backward; /* all at the end */
        }
        const double volume = 2 * peers / job.world * 4 * (double)elements,
                     step = job.forward + job.backward + 2 * peers * (network.latency + network.message) +
                            volume / network.rate;
        expect(is(ring(&job, &network).seconds, step), "ring of %u: %.17g, not %.17g", job.world,
               ring(&job, &network).seconds, step);

        job.tree = true; /* all bytes up and down, a latency at each of the two times log2 P levels */
        const double levels = 2 * ceil(log2(job.world)), tree = job.forward + job.backward +
                                                                levels * (network.latency + network.message) +
                                                                8 * (double)elements / network.rate;
        expect(is(ring(&job, &network).seconds, tree), "tree of %u: %.17g, not %.17g", job.world,
               ring(&job, &network).seconds, tree);

        /* Gather of `none` in one batch: its bytes and a latency; then the rounds of the verdict, one after the other.
         */
        struct codec none = {.feedback = {.kind = TG_FEEDBACK_NONE},
                             .coding = {.low = 1, .high = 1},
                             .options = {.algorithm = TG_GATHER, .batch_elements = UINT64_C(1) << 31}};
        struct schedule schedule;
        struct failure failure = {""};
        expect(tg_spec_parse("none", &none.spec, NULL) == TG_OK, "none");
        expect(
            schedule_of_reduction(&job, &none.coding, &none.spec, &none.feedback, &none.options, &schedule, &failure),
            "%s", failure.text);
        double bytes = 0, messages = 0;
        for (size_t e = 0; e < schedule.count; e++) {
            bytes += schedule.exchanges[e].bytes;
            messages += schedule.exchanges[e].messages;
        }
        expect(schedule.exchanges[0].messages == peers && (job.world > 8 || schedule.count == 2), "one batch");
        const double gather = job.forward + job.backward + messages * network.message +
                              (double)schedule.count * network.latency + bytes / network.rate;
        /* A rank sends P - 1 times its frames, which have the elements and a few hundred bytes besides. */
        expect(bytes >= 4 * peers * (double)elements, "bytes of gather");
        const double seconds = predicted(&job, &network, &none).seconds;
        expect(is(seconds, gather), "gather of %u: %.17g, not %.17g", job.world, seconds, gather);
        schedule_free(&schedule);
    }
    check_all("dense steps take as long as their closed forms say");
}

/* Of gradients of `none` that are ready at once, hosts send each other what one of them would with one rank: however
 * many ranks they have, only owners of shares send, and there are as many of those as the smallest host has ranks. */
static void links_carry_shares(generator *g, size_t rounds)
{
    static const tg_algorithm algorithms[] = {TG_GATHER, TG_SHARD};
    const struct predict_coding no_time = {.low = 1, .high = 1};
    const struct predict_network network = {.rate = 1e6, .inside = INFINITY, .low = 1, .high = 1};
    const tg_feedback_spec feedback = {.kind = TG_FEEDBACK_NONE};
    tg_spec none;
    expect(tg_spec_parse("none", &none, NULL) == TG_OK, "none");
    for (size_t i = 0; i < rounds; i++) {
        uint32_t hosts[64];
        const uint32_t per_node = (uint32_t)(2 + next_random(g) % 8), count = (uint32_t)(2 + next_random(g) % 4),
                       last = (uint32_t)(1 + next_random(g) % per_node);
        tensors[0] = (struct predict_tensor){"t", 4000000 + next_random(g) % 4000000, 0};
        const struct predict_job job = {.tensors = tensors,
                                        .tensor_count = 1,
                                        .world = (count - 1) * per_node + last,
                                        .per_node = per_node,
                                        .kappa = 1};
        for (uint32_t rank = 0; rank < job.world; rank++)
            hosts[rank] = rank / per_node;
        for (size_t a = 0; a < 2; a++) {
            const tg_reducer_options options = {.algorithm = algorithms[a], .host_of_rank = hosts};
            struct predict_step step = {0};
            struct failure failure = {""};
            expect(predict_reduction(&job, &network, &no_time, &none, &feedback, &options, &step, &failure), "%s",
                   failure.text);
            const double bytes = 4.0 * (double)tensors[0].count,
                         sent = algorithms[a] == TG_GATHER ? bytes * (count - 1) : 2 * bytes * (count - 1) / count;
            /* Of gather, headers and verdicts. Of shard, pieces are of whole blocks, and some owners of a mean have
             * more than others. */
            const double error = algorithms[a] == TG_GATHER ? 0.001 : 0.12;
            expect(fabs(step.seconds - sent / network.rate) <= error * sent / network.rate,
                   "%u hosts of %u ranks, the last of %u, by %s: %g s, not %g s", count, per_node, last,
                   tg_algorithm_text(algorithms[a]), step.seconds, sent / network.rate);
        }
    }
    check_all("between hosts, links carry what the owners of shares send");
}

/* A tensor that may not be cut goes to one owner, which need not be the first rank of its host: it sends all the same.
 */
static void whole_tensors_send_messages(void)
{
    static const struct predict_tensor small[] = {{"t", 10, 0}};
    const struct predict_job job = {.tensors = small, .tensor_count = 1, .world = 9, .per_node = 3, .kappa = 1};
    const tg_feedback_spec feedback = {.kind = TG_FEEDBACK_NONE};
    uint32_t *const hosts = schedule_hosts(&job);
    generator g = {11};
    const struct codec codec = random_codec(&g);
    for (int algorithm = TG_GATHER; algorithm <= TG_SHARD; algorithm++) {
        const tg_reducer_options options = {.algorithm = (tg_algorithm)algorithm, .host_of_rank = hosts};
        struct schedule schedule;
        struct failure failure = {""};
        size_t between = 0;
        expect(schedule_of_reduction(&job, &codec.coding, &codec.spec, &feedback, &options, &schedule, &failure), "%s",
               failure.text);
        for (size_t i = 0; i < schedule.count; i++) {
            const struct scheduled *e = &schedule.exchanges[i];
            between += e->scope == PREDICT_BETWEEN;
            expect(e->scope != PREDICT_BETWEEN || e->messages == 2, "%g messages to two hosts", e->messages);
            expect(e->scope != PREDICT_BETWEEN || e->usual_bytes > 0, "nothing over the link");
        }
        expect(between > 0, "nothing between hosts");
        schedule_free(&schedule);
    }
    free(hosts);
    check_all("owners of whole tensors send messages, whichever of their host they are");
}

static void alone_has_no_wire(generator *g, size_t rounds)
{
    for (size_t i = 0; i < rounds; i++) {
        struct predict_job job = random_job(g);
        const struct predict_network slow = {.rate = 1, .latency = 1e3, .message = 1, .inside = 1, .low = 1, .high = 1};
        const struct codec codec = random_codec(g);
        job.world = 1;
        const struct predict_step step = predicted(&job, &slow, &codec), dense = ring(&job, &slow);
        expect(step.bytes == 0 && step.wire == 0 && dense.bytes == 0 && dense.wire == 0, "a wire");
        expect(step.seconds == job.forward + job.backward + step.coding, "a step of one rank");
        expect(dense.seconds == job.forward + job.backward, "a dense step of one rank");
        expect(predict_exchange(&slow, &job, PREDICT_ALL_GATHER, 1e6, PREDICT_MIDDLE) == 0, "an exchange of one rank");
    }
    check_all("one rank has no wire");
}

/* Points that lie on the line of a rate and a latency. */
static void points_say_the_same(generator *g, size_t rounds)
{
    for (size_t i = 0; i < rounds; i++) {
        struct predict_job job = random_job(g);
        struct predict_network network = random_network(g);
        const struct codec codec = random_codec(g);
        job.per_node = 1;
        network.burst = 0;
        struct predict_network points = network;
        points.world = job.world;
        points.per_node = 1;
        for (int pattern = 0; pattern < PREDICT_PATTERNS; pattern++) {
            struct predict_wire *wire = &points.patterns[pattern];
            wire->hidden = pattern == PREDICT_RING ? 0 : network.latency;
            /* The first stands for everything that is smaller: here, for nothing. */
            for (double bytes = 1e-3; bytes < 1e9; bytes *= 1e2) {
                const double seconds = predict_exchange(&network, &job, (enum predict_pattern)pattern, bytes,
                                                        PREDICT_MIDDLE);
                wire->points[wire->count++] = (struct predict_point){bytes, seconds, seconds, seconds};
            }
        }
        const double one = predicted(&job, &network, &codec).seconds, other = predicted(&job, &points, &codec).seconds;
        expect(fabs(one - other) <= 1e-6 * one, "%.17g, from points %.17g", one, other); /* a byte in a thousand */
        expect(fabs(ring(&job, &network).seconds - ring(&job, &points).seconds) <= 1e-6 * one, "ring");
        job.world = 2 * points.world + 1;
        expect(predicted(&job, &points, &codec).extrapolated, "more than twice the world is extrapolated");
    }
    check_all("points on a line say what rate and latency say");
}

/* ---- whole reductions that were measured ---- */

enum { MEASURED = 3 };
static const struct {
    uint64_t count, elements;
} shapes[MEASURED] = {{1, 4000000}, {1, 700000}, {16, 1000}};

static struct predict_step of_shape(size_t count, uint64_t elements, struct predict_job job,
                                    const struct predict_network *network, const struct codec *codec)
{
    for (size_t i = 0; i < count; i++)
        tensors[i] = (struct predict_tensor){"t", elements, job.backward};
    job.tensors = tensors;
    job.tensor_count = count;
    return predicted(&job, network, codec);
}

/* A step that was measured takes what was measured, however far the model is from that, with computing before it too;
 * one of another size, no more than a larger and no less than a smaller one. */
static void fits_what_was_measured(generator *g, size_t rounds)
{
    for (size_t i = 0; i < rounds; i++) {
        struct predict_job job = random_job(g);
        struct predict_network network = random_network(g);
        struct codec codec = random_codec(g);
        struct failure failure = {""};
        uint32_t *const hosts = schedule_hosts(&job);
        const bool has_levels = job.per_node > 1 && job.world > job.per_node && i % 2;
        struct predict_measured *const measured =
            &codec.coding.measured[has_levels ? PREDICT_TWO_LEVELS : PREDICT_ONE_LEVEL];
        codec.options.host_of_rank = has_levels ? hosts : NULL;
        const struct predict_job alone = {.world = job.world, .per_node = job.per_node, .kappa = 1};
        const double backward = between(g, 1e-4, 1);
        struct predict_job beside = alone;
        beside.backward = backward;
        network.world = job.world;
        network.per_node = job.per_node;
        double before = INFINITY, larger = INFINITY;
        bool falls = true;
        for (size_t s = 0; s < MEASURED; s++) {
            const double model = of_shape(shapes[s].count, shapes[s].elements, alone, &network, &codec).seconds;
            before = fmin(before, model * between(g, 0.3, 5)); /* from large to small */
            falls = falls && model < larger;
            larger = model;
            measured->samples[measured->count++] = (struct predict_sample){shapes[s].count, shapes[s].elements, before,
                                                                           before * 0.9, before * 1.2};
        }
        if (!falls) { /* where messages take longer than bytes, many small tensors may take longest */
            free(hosts);
            continue;
        }
        expect(predict_fit_samples(&network, &codec.spec, &codec.feedback, codec.options.algorithm, &codec.coding,
                                   &failure),
               "%s", failure.text);
        for (size_t s = 0; s < MEASURED; s++) {
            const double seconds = measured->samples[s].seconds;
            const struct predict_step step = of_shape(shapes[s].count, shapes[s].elements, alone, &network, &codec),
                                      after = of_shape(shapes[s].count, shapes[s].elements, beside, &network, &codec);
            expect(fabs(step.seconds - seconds) <= 1e-9 * seconds, "%.17g s were measured, and %.17g predicted",
                   seconds, step.seconds);
            expect(fabs(after.seconds - backward - seconds) <= 1e-9 * (backward + seconds), "after computing: %.17g",
                   after.seconds);
            expect(step.low <= 0.9 * seconds && step.high >= 1.2 * seconds, "an interval of %g to %g for %g", step.low,
                   step.high, seconds);
        }
        struct codec plain = codec;
        memset(plain.coding.measured, 0, sizeof plain.coding.measured);
        double last = 0, last_model = 0;
        for (uint64_t elements = 700000; elements <= 4000000; elements += 330000) {
            const double model = of_shape(1, elements, alone, &network, &plain).seconds,
                         seconds = of_shape(1, elements, alone, &network, &codec).seconds;
            /* What the model says may itself fall where a tensor is cut into more batches. */
            expect(model < last_model || seconds >= last * (1 - rounding), "%g s, %g for less", seconds, last);
            last = seconds;
            last_model = model;
        }
        network.rate *= 2; /* what was fitted is of a network; another one has no fit */
        measured->count = 0;
        expect(predict_fit_samples(&network, &codec.spec, &codec.feedback, codec.options.algorithm, &codec.coding,
                                   &failure) &&
                   measured->fit.count == 0,
               "nothing was measured");
        free(hosts);
    }
    check_all("steps take what such reductions took where they were measured");
}

/* Reductions are fitted to what they took all together. Where something makes the parts of a step longer that overlap,
 * all together may take longer by less than the model says, and other parts are then stretched by less: a step may be
 * shorter, a little. */
static const double most_fall = 0.02;

static bool measure_scene(struct scene *s, generator *g)
{
    struct predict_measured *measured = &s->codec.coding.measured[s->hosts ? PREDICT_TWO_LEVELS : PREDICT_ONE_LEVEL];
    const struct predict_job alone = {.world = s->job.world, .per_node = s->job.per_node, .kappa = 1};
    struct predict_tensor *const own = malloc(sizeof tensors);
    if (!own)
        return false;
    memcpy(own, tensors, sizeof tensors); /* of_shape writes others there */
    struct failure failure = {""};
    s->network.world = s->job.world;
    s->network.per_node = s->job.per_node;
    double model[MEASURED], seconds = INFINITY;
    for (size_t i = 0; i < MEASURED; i++) {
        model[i] = of_shape(shapes[i].count, shapes[i].elements, alone, &s->network, &s->codec).seconds;
        seconds = fmin(seconds, model[i] * between(g, 0.7, 2.5));
        measured->samples[measured->count++] = (struct predict_sample){shapes[i].count, shapes[i].elements, seconds,
                                                                       0.9 * seconds, 1.2 * seconds};
    }
    memcpy(tensors, own, sizeof tensors);
    free(own);
    return model[0] > model[1] && model[1] > model[2] &&
           predict_fit_samples(&s->network, &s->codec.spec, &s->codec.feedback, s->codec.options.algorithm,
                               &s->codec.coding, &failure);
}

/* The fit is that of the network as it was. */
static void grows_with_a_fit(generator *g, size_t rounds, bool has_levels)
{
    double worst = 0;
    size_t falls = 0, count = 0;
    for (size_t i = 0; i < rounds; i++) {
        struct scene s = random_scene(g, has_levels);
        if (measure_scene(&s, g)) {
            const double before = predicted(&s.job, &s.network, &s.codec).seconds;
            make_worse(&s, i % CHANGES, between(g, 1.001, 5));
            const double fall = 1 - predicted(&s.job, &s.network, &s.codec).seconds / before;
            falls += fall > rounding;
            count++;
            worst = fall > worst ? fall : worst;
            expect(fall <= most_fall, "%s, %s, %u ranks, %u on a host: shorter by %g %%", changes[i % CHANGES],
                   s.codec.coding.spec, s.job.world, s.job.per_node, 100 * fall);
        }
        free(s.hosts);
    }
    check_all("what is fitted hardly ever takes less when something takes more, %s: %zu of %zu, by %.2g %% at most",
              has_levels ? "in two levels" : "in one level", falls, count, 100 * worst);
}

/* ---- outputs ---- */

static void intervals_and_equality(generator *g, size_t rounds)
{
    for (size_t i = 0; i < rounds; i++) {
        const struct predict_job job = random_job(g);
        const struct predict_network network = random_network(g);
        const struct codec codec = random_codec(g);
        const struct predict_step step = predicted(&job, &network, &codec), again = predicted(&job, &network, &codec),
                                  dense = ring(&job, &network);
        const struct predict_gain gain = predict_gain_of(&step, &dense);
        expect(step.low <= step.seconds && step.seconds <= step.high, "%g is not within %g to %g", step.seconds,
               step.low, step.high);
        expect(gain.low <= gain.factor && gain.factor <= gain.high, "a gain of %g is not within %g to %g", gain.factor,
               gain.low, gain.high);
        expect(step.seconds >= job.forward + job.backward, "a step is shorter than its computing");
        expect(step.seconds == again.seconds && step.low == again.low && step.high == again.high &&
                   step.bytes == again.bytes && step.bound == again.bound && step.wire == again.wire &&
                   step.coding == again.coding,
               "a second prediction differs");
    }
    check_all("intervals hold their middle, and equal inputs give equal outputs");
}

static void bounds(void)
{
    static const struct predict_tensor one[] = {{"t", 1000000, 0.01}};
    struct predict_job job = {
        .tensors = one, .tensor_count = 1, .backward = 0.01, .world = 4, .per_node = 1, .kappa = 1};
    struct predict_network network = {.rate = 1e12, .latency = 1e-9, .inside = 1e12, .low = 1, .high = 1};
    generator g = {7};
    struct codec codec = random_codec(&g);
    codec.coding = (struct predict_coding){.encode = 1e-12, .low = 1, .high = 1};
    expect(predicted(&job, &network, &codec).bound == PREDICT_COMPUTING, "computing");
    codec.coding.encode = 1e-6;
    expect(predicted(&job, &network, &codec).bound == PREDICT_CODING, "coding");
    network.rate = 1e5;
    expect(predicted(&job, &network, &codec).bound == PREDICT_WIRE, "wire");
    network.latency = 1e3;
    expect(predicted(&job, &network, &codec).bound == PREDICT_LATENCY, "latency");
    check_all("what bounds a step is what takes longest");
}

static void refusals(void)
{
    generator g = {5};
    struct failure failure = {""};
    const struct predict_job job = random_job(&g);
    const struct predict_network network = random_network(&g);
    const struct codec codec = random_codec(&g);
    struct predict_job bad = job;
    bad.world = 0;
    expect(!predict_job_check(&bad, &failure) && strstr(failure.text, "0 ranks"), "%s", failure.text);
    bad.world = 1000001;
    expect(!predict_job_check(&bad, &failure) && strstr(failure.text, "1000001"), "%s", failure.text);
    bad = job;
    bad.backward = NAN;
    expect(!predict_job_check(&bad, &failure), "a time that is not a number");
    bad.backward = -1;
    expect(!predict_job_check(&bad, &failure), "a negative time");
    bad = job;
    bad.kappa = 0.5;
    expect(!predict_job_check(&bad, &failure), "coding that is faster beside computing");
    tensors[0].ready = 1e9;
    expect(!predict_job_check(&job, &failure) && strstr(failure.text, "decrease"), "%s", failure.text);
    tensors[0].ready = 0;
    struct predict_network no_network = network;
    no_network.rate = 0;
    expect(!predict_network_check(&no_network, &failure), "a rate of 0");
    no_network.rate = NAN;
    expect(!predict_network_check(&no_network, &failure), "a rate that is not a number");
    no_network = network;
    no_network.latency = INFINITY;
    expect(!predict_network_check(&no_network, &failure), "a latency without end");
    struct predict_network points = network;
    points.world = 2;
    points.per_node = 1;
    points.patterns[PREDICT_RING].count = 2;
    points.patterns[PREDICT_RING].points[0] = (struct predict_point){64, 2e-5, 2e-5, 2e-5};
    points.patterns[PREDICT_RING].points[1] = (struct predict_point){128, 1e-5, 1e-5, 1e-5};
    expect(!predict_network_check(&points, &failure) && strstr(failure.text, "ring"), "%s", failure.text);
    points.patterns[PREDICT_RING].points[1] = (struct predict_point){128, 3e-5, 2e-5, 4e-5};
    expect(predict_network_check(&points, &failure), "%s", failure.text);
    points.patterns[PREDICT_RING].points[1].bytes = 64;
    expect(!predict_network_check(&points, &failure), "two points of one size");
    struct predict_coding coding = codec.coding;
    coding.add = -1;
    expect(!predict_coding_check(&coding, &failure) && strstr(failure.text, coding.spec), "%s", failure.text);
    check_all("what nothing can be predicted from is refused");
}

int main(int argc, char **argv)
{
    const size_t rounds = EMULATED ? 20 : wants_all(argc, argv) ? 2000 : 300;
    generator g = {20261118};
    for (int has_levels = 0; has_levels < 2; has_levels++) {
        grows_with_costs(&g, 10 * rounds, has_levels);
        grows_with_bytes(&g, 2 * rounds, has_levels);
    }
    dense_is_its_closed_form(&g, rounds / 4);
    links_carry_shares(&(generator){20261119}, rounds / 4);
    whole_tensors_send_messages();
    alone_has_no_wire(&g, rounds / 4);
    points_say_the_same(&g, rounds / 4);
    fits_what_was_measured(&g, rounds / 4);
    for (int has_levels = 0; has_levels < 2; has_levels++)
        grows_with_a_fit(&g, 4 * rounds, has_levels);
    intervals_and_equality(&g, rounds / 4);
    bounds();
    refusals();
    return finish();
}
