/* How long codecs take: in reductions of all ranks, by the reducer's own clocks; see probe.h. */
#include "probe.h"

#include "common/clock.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* What is reduced: a large tensor, for the time of an element, and many small ones, for that of a frame. */
enum { LARGE = 1 << 20, SMALL = 1 << 10, MANY = 64, ROOM = LARGE, MOST_TRIALS = 24, LEAST_TRIALS = 3 };

static const char *const standard_specs[] = {
    "none",
    "fp16",
    "qsgd:levels=7,bucket=512",
    "qsgd:levels=7,bucket=512/ef",
    "qsgd:levels=127,bucket=512",
    "terngrad",
    "onebit/ef",
    "topk:density=0.01/ef",
    "topk:density=0.001/ef",
    "randk:density=0.01",
    "gaussiank:density=0.01/ef",
    "dgck:density=0.01/ef",
};

/* Seconds of each stage, and by how many elements the reducer's plan counts it. */
enum stage { ENCODE, CHECK, ADD, STAGES };
struct stages {
    double seconds[STAGES], elements[STAGES], frames;
};

struct bench {
    const struct probe_team *team;
    tg_device *device;
    float *source, *gradient;
};

/* Normal numbers, about: sums of four uniform ones. Every rank has its own. */
static void fill(float *values, size_t count, uint64_t seed)
{
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const uint64_t bits = state ^ state >> 29;
        const uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        values[i] = ((float)sum / 65536 - 2) * 1e-3f;
    }
}

/* ---- one reduction ---- */

static bool count_elements(uint32_t world, uint32_t rank, const tg_reducer_tensor *tensors, size_t count,
                           const tg_reducer_options *options, struct stages *stages, tg_error *error)
{
    tg_description *description = NULL;
    tg_description_info info;
    tg_described_exchange exchange;
    tg_status status = tg_description_create(world, tensors, count, options, &description, error);
    if (status == TG_OK)
        status = tg_description_of(description, &info, error);
    for (size_t i = 0; status == TG_OK && i < info.exchange_count; i++) {
        status = tg_description_exchange(description, rank, i, &exchange, error);
        stages->elements[ENCODE] += (double)exchange.encoded;
        stages->elements[CHECK] += (double)exchange.checked;
        stages->elements[ADD] += (double)exchange.summed;
        stages->frames += (double)exchange.frames;
    }
    if (status == TG_OK)
        stages->elements[ADD] += (double)info.applied;
    tg_description_free(description);
    return status == TG_OK;
}

static bool time_reduction(const struct bench *b, tg_reducer *reducer, const tg_tensor *tensors, uint64_t step,
                           double seconds[STAGES], struct message *message)
{
    tg_reducer_stats before, after;
    tg_error error = {""};
    memcpy(b->gradient, b->source, ROOM * sizeof *b->source);
    if (tg_reducer_stats_of(reducer, &before, &error) != TG_OK ||
        tg_reduce(reducer, b->team->team.transport, tensors, step, &error) != TG_OK ||
        tg_reducer_stats_of(reducer, &after, &error) != TG_OK)
        return fail(message, "%s", error.message);
    const double own[STAGES] = {after.encode_seconds - before.encode_seconds,
                                after.verify_seconds - before.verify_seconds,
                                after.decode_seconds - before.decode_seconds};
    for (unsigned i = 0; i < STAGES; i++) /* the step is as slow as its slowest rank */
        if (!probe_slowest(b->team, own[i], &seconds[i], message))
            return false;
    return true;
}

/* ---- a codec ---- */

struct trials {
    double seconds[STAGES][MOST_TRIALS], all[MOST_TRIALS];
    size_t count;
};

/* Reductions of `count` tensors of `elements` each: the first is not counted. */
static bool run_trials(const struct bench *b, const tg_reducer_tensor *like, size_t count, size_t elements,
                       tg_algorithm algorithm, double until, struct trials *trials, struct stages *stages,
                       struct message *message)
{
    const struct team *t = &b->team->team;
    tg_reducer_tensor tensors[MANY];
    tg_tensor gradients[MANY];
    char names[MANY][8];
    const tg_reducer_options options = {.algorithm = algorithm, .timeout = t->timeout};
    tg_reducer *reducer = NULL;
    tg_error error = {""};
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "t%zu", i);
        tensors[i] = *like;
        tensors[i].name = names[i];
        tensors[i].count = elements;
        gradients[i] = (tg_tensor){b->gradient + i * elements, elements, TG_FLOAT32};
    }
    bool is_well = tg_reducer_create(b->device, t->rank, t->world, tensors, count, &options, &reducer, &error) ==
                       TG_OK &&
                   count_elements(t->world, t->rank, tensors, count, &options, stages, &error);
    if (!is_well)
        fail(message, "%s", error.message);
    is_well = probe_agree(b->team, is_well, message);
    trials->count = 0;
    double began = 0, now = 0, each = 0;
    for (uint64_t step = 0; is_well && trials->count < MOST_TRIALS; step++) {
        double seconds[STAGES];
        began = now;
        is_well = time_reduction(b, reducer, gradients, step, seconds, message) &&
                  (now = probe_now(b->team, message)) >= 0;
        if (!is_well || step == 0)
            continue;
        each = now - began;
        trials->all[trials->count] = 0;
        for (unsigned i = 0; i < STAGES; i++) {
            trials->seconds[i][trials->count] = seconds[i];
            trials->all[trials->count] += seconds[i];
        }
        trials->count++;
        if (trials->count >= LEAST_TRIALS && now + each > until)
            break;
    }
    for (unsigned i = 0; is_well && i < STAGES; i++) {
        probe_sort(trials->seconds[i], trials->count);
        stages->seconds[i] += probe_quantile(trials->seconds[i], trials->count, 0.5);
    }
    probe_sort(trials->all, trials->count);
    tg_reducer_free(reducer);
    return is_well;
}

bool probe_parse_codec(const char *text, tg_reducer_tensor *tensor, struct probe_coding *c, struct message *message)
{
    char spec[TG_SPEC_TEXT];
    tg_error error = {""};
    const size_t length = strcspn(text, "/");
    snprintf(spec, sizeof spec, "%.*s", length < sizeof spec ? (int)length : (int)sizeof spec - 1, text);
    if (tg_spec_parse(spec, &tensor->codec, &error) != TG_OK ||
        tg_feedback_parse(text[length] ? text + length + 1 : "none", &tensor->feedback, &error) != TG_OK ||
        tg_spec_print(&tensor->codec, c->coding.spec, sizeof c->coding.spec, &error) != TG_OK ||
        tg_feedback_print(&tensor->feedback, c->feedback, sizeof c->feedback, &error) != TG_OK)
        return fail(message, "%s", error.message);
    return true;
}

static bool probe_codec(const struct bench *b, const char *text, double until, struct probe_coding *c,
                        struct message *message)
{
    tg_reducer_tensor tensor = {0};
    struct trials trials;
    struct stages large = {0}, small = {0};
    struct predict_coding *p = &c->coding;
    double low = 1, high = 1;
    if (!probe_parse_codec(text, &tensor, c, message))
        return false;
    const double now = probe_now(b->team, message), share = (until - now) / 3;
    static const tg_algorithm algorithms[] = {TG_GATHER, TG_SHARD};
    if (now < 0)
        return false;
    for (unsigned i = 0; i < 2; i++) {
        if (!run_trials(b, &tensor, 1, LARGE, algorithms[i], now + (i + 1) * share, &trials, &large, message))
            return false;
        const double middle = fmax(probe_quantile(trials.all, trials.count, 0.5), 1e-9);
        low = fmin(low, probe_quantile(trials.all, trials.count, 0.1) / middle);
        high = fmax(high, probe_quantile(trials.all, trials.count, 0.9) / middle);
    }
    if (!run_trials(b, &tensor, MANY, SMALL, TG_GATHER, until, &trials, &small, message))
        return false;
    double per[STAGES], rest = 0;
    for (unsigned i = 0; i < STAGES; i++) {
        per[i] = large.elements[i] > 0 ? large.seconds[i] / large.elements[i] : 0;
        rest += small.seconds[i] - per[i] * small.elements[i];
    }
    p->encode = per[ENCODE];
    p->check = per[CHECK];
    p->add = per[ADD];
    p->frame = fmax(0, rest / small.frames);
    p->low = low;
    p->high = high;
    return true;
}

/* ---- beside computing ---- */

struct computing {
    atomic_bool stop;
    float values[4096];
};

static void *compute(void *argument)
{
    struct computing *c = argument;
    while (!atomic_load_explicit(&c->stop, memory_order_relaxed))
        for (size_t i = 0; i < sizeof c->values / sizeof *c->values; i++)
            c->values[i] = c->values[i] * 0.999f + 1e-3f;
    return NULL;
}

/* How much longer coding takes while another thread of every rank computes, as a backward pass does. */
static bool probe_kappa(const struct bench *b, double until, double *kappa, struct message *message)
{
    tg_reducer_tensor tensor = {0};
    struct probe_coding ignored;
    struct trials trials;
    struct stages stages = {0};
    struct computing *c = calloc(1, sizeof *c);
    pthread_t thread;
    double middle[2] = {0, 0};
    const double now = probe_now(b->team, message);
    bool is_well = now >= 0 && probe_parse_codec(standard_specs[2], &tensor, &ignored, message);
    for (unsigned i = 0; is_well && i < 2; i++) {
        const bool is_busy = i == 1 && c && pthread_create(&thread, NULL, compute, c) == 0;
        is_well = probe_agree(b->team, i == 0 || is_busy || fail(message, "cannot start a thread"), message) &&
                  run_trials(b, &tensor, 1, LARGE / 4, TG_GATHER, now + (i + 1) * (until - now) / 2, &trials, &stages,
                             message);
        if (is_busy) {
            atomic_store(&c->stop, true);
            (void)pthread_join(thread, NULL);
        }
        middle[i] = is_well ? probe_quantile(trials.all, trials.count, 0.5) : 0;
    }
    free(c);
    *kappa = middle[0] > 0 ? fmax(1, middle[1] / middle[0]) : 1;
    return is_well;
}

bool probe_codecs(const struct probe_team *team, const struct probe_request *request, double until, struct probe *probe,
                  struct message *message)
{
    const char *const *specs = request->specs.count > 0 ? request->specs.items : standard_specs;
    const size_t count = request->specs.count > 0 ? request->specs.count
                                                  : sizeof standard_specs / sizeof *standard_specs;
    struct bench b = {.team = team, .source = malloc(ROOM * sizeof(float)), .gradient = malloc(ROOM * sizeof(float))};
    tg_error error = {""};
    bool is_well = true;
    if (!b.source || !b.gradient)
        is_well = fail(message, "out of memory for a gradient of %d elements", ROOM);
    else if (count > PROBE_MOST_CODINGS)
        is_well = fail(message, "%zu codecs are more than a probe takes, %d", count, PROBE_MOST_CODINGS);
    else if (tg_device_open(request->device, NULL, &b.device, &error) != TG_OK)
        is_well = fail(message, "%s", error.message);
    if (is_well) {
        fill(b.source, ROOM, team->team.rank + 1);
        snprintf(probe->device, sizeof probe->device, "%s", tg_device_name(b.device));
    }
    is_well = probe_agree(team, is_well, message);
    for (size_t i = 0; is_well && i < count; i++) {
        const double now = probe_now(team, message);
        is_well = now >= 0 &&
                  probe_codec(&b, specs[i], now + (until - now) / (double)(count + 1 - i), &probe->codings[i], message);
        probe->coding_count += is_well;
    }
    is_well = is_well && probe_kappa(&b, until, &probe->kappa, message);
    tg_device_free(b.device);
    free(b.source);
    free(b.gradient);
    return is_well;
}
