/* How long codecs take: in reductions of all ranks, by the reducer's own clocks; see probe.h. */
#include "probe.h"

#include "common/clock.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* What is reduced: a large tensor, for the time of an element, and many small ones, for that of a frame. */
enum { LARGEST = 1 << 24, LEAST_LARGE = 1 << 17, SMALL = 1 << 10, MANY = 64, MOST_TRIALS = 24, ROUNDS = 3 };

static const char *const standard[] = {
    "none",     "fp16",   "qsgd:levels=127",   "qsgd:levels=7",     "qsgd:coding=entropy",
    "terngrad", "onebit", "topk:density=0.01", "topk:density=0.001"};

/* By how many elements the reducer's plan counts each stage, and what a rank sends or gets. */
enum stage { ENCODE, CHECK, ADD, STAGES };
struct stages {
    double elements[STAGES], frames, bytes;
};

struct bench {
    const struct probe_team *team;
    tg_device *device;
    float *source, *gradient;
    double encode; /* seconds for LEAST_LARGE elements, with all ranks at it */
    double idle;   /* between two barriers with nothing between them */
    const struct predict_network *network;
    double crowd; /* where ranks share processors, some wait: so many times longer is all ranks' work than one's */
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

static double seconds_now(void) { return 1e-9 * (double)clock_ns(); }

/* In training the backward pass comes before, and leaves little of a large gradient and its residual in the caches. So
 * other memory is read. */
static void cool_caches(const struct bench *b)
{
    enum { LINE = 64 / sizeof(float) };
    for (size_t i = 0; i < LARGEST; i += LINE)
        (void)*(const volatile float *)&b->source[i];
}

/* Seconds of each stage by the reducer's clocks, of the rank in the middle; and of the whole, of the slowest. As a step
 * makes it: after a rest. */
static bool time_reduction(const struct bench *b, tg_reducer *reducer, const tg_tensor *tensors, size_t elements,
                           uint64_t step, double rest, double seconds[STAGES], double *whole, struct failure *failure)
{
    tg_reducer_stats before, after;
    tg_error error = {""};
    double ignored;
    memcpy(b->gradient, b->source, elements * sizeof *b->source);
    if (elements >= LEAST_LARGE)
        cool_caches(b);
    probe_rest(rest);
    if (!probe_slowest(b->team, 0, &ignored, failure))
        return false;
    const double start = seconds_now();
    if (tg_reducer_stats_of(reducer, &before, &error) != TG_OK ||
        tg_reduce(reducer, b->team->team.transport, tensors, step, &error) != TG_OK ||
        tg_reducer_stats_of(reducer, &after, &error) != TG_OK)
        return fail(failure, "%s", error.message);
    return probe_slowest(b->team, seconds_now() - start, whole, failure) &&
           probe_middle(b->team, after.encode_seconds - before.encode_seconds, &seconds[ENCODE], failure) &&
           probe_middle(b->team, after.verify_seconds - before.verify_seconds, &seconds[CHECK], failure) &&
           probe_middle(b->team, after.decode_seconds - before.decode_seconds, &seconds[ADD], failure);
}

static bool count_elements(uint32_t world, const tg_reducer_tensor *tensors, size_t count,
                           const tg_reducer_options *options, struct stages *stages, tg_error *error)
{
    tg_description *description = NULL;
    tg_description_info info;
    tg_described_exchange exchange;
    tg_status status = tg_description_create(world, tensors, count, options, &description, error);
    if (status == TG_OK)
        status = tg_description_of(description, &info, error);
    *stages = (struct stages){0};
    for (size_t i = 0; status == TG_OK && i < info.exchange_count; i++) {
        status = tg_description_exchange(description, 0, i, &exchange, error);
        stages->elements[ENCODE] += (double)exchange.encoded;
        stages->elements[CHECK] += (double)exchange.checked;
        stages->elements[ADD] += (double)exchange.summed;
        stages->frames += (double)exchange.frames;
        stages->bytes += fmax((double)exchange.bytes_sent, (double)exchange.bytes_received);
    }
    if (status == TG_OK)
        stages->elements[ADD] += (double)info.applied;
    tg_description_free(description);
    return status == TG_OK;
}

/* ---- a codec ---- */

/* Of each codec, by each algorithm; the same again in two levels, where hosts have several ranks. */
enum { SIZE_LARGE, SIZE_MEDIUM, SIZE_SMALL, SIZES, TASKS_OF_LEVEL = 2 * SIZES };
/* Of the time for all of them. */
static const double share_of_size[SIZES] = {[SIZE_LARGE] = 0.6, [SIZE_MEDIUM] = 0.25, [SIZE_SMALL] = 0.15};

/* What is reduced how, and what that takes. Tasks take turns, because a machine is slow for seconds at a time. */
struct task {
    tg_reducer_tensor like;   /* codec and feedback */
    size_t tensors, elements; /* 0: left out */
    tg_algorithm algorithm;
    const uint32_t *host_of_rank; /* NULL: in one level */
    struct stages counts;
    double seconds[STAGES][MOST_TRIALS], all[MOST_TRIALS], wholes[MOST_TRIALS];
    size_t count;
};

/* So long that links have back what they let pass at once: a step's computing gives them that, too. */
static double rest_after(const struct bench *b, const struct task *task)
{
    static const double least = 0.002, most = 0.05, spare = 1.25;
    const struct predict_job job = {.world = b->network->world, .per_node = b->network->per_node, .kappa = 1};
    struct predict_network at_rest = *b->network;
    const double burst = at_rest.patterns[PREDICT_ALL_TO_ALL].burst;
    at_rest.patterns[PREDICT_ALL_TO_ALL].burst = 0;
    const double sent = predict_exchange(&at_rest, &job, PREDICT_ALL_TO_ALL, task->counts.bytes, PREDICT_MIDDLE);
    return fmin(fmax(spare * fmin(burst, sent), least), most);
}

/* The first step has a greeting, and is not counted. */
static bool run_steps(const struct bench *b, tg_reducer *reducer, const tg_tensor *gradients, double until,
                      struct task *task, struct failure *failure)
{
    const size_t elements = task->tensors * task->elements;
    const double rest = rest_after(b, task);
    double now = 0;
    for (uint64_t step = 0; step <= MOST_TRIALS / ROUNDS && task->count < MOST_TRIALS; step++) {
        const double began = now;
        double seconds[STAGES], whole;
        if (!time_reduction(b, reducer, gradients, elements, step, step > 0 ? rest : 0, seconds, &whole, failure))
            return false;
        now = probe_now(b->team, failure);
        if (now < 0)
            return false;
        if (step == 0)
            continue;
        for (unsigned i = 0; i < STAGES; i++)
            task->seconds[i][task->count] = seconds[i];
        task->wholes[task->count] = whole;
        task->all[task->count++] = seconds[ENCODE] + seconds[CHECK] + seconds[ADD];
        if (now + (now - began) > until)
            break;
    }
    return true;
}

static bool run_task(const struct bench *b, struct task *task, double until, struct failure *failure)
{
    const struct team *t = &b->team->team;
    tg_reducer_tensor tensors[MANY];
    tg_tensor gradients[MANY];
    char names[MANY][24];
    const tg_reducer_options options = {
        .algorithm = task->algorithm, .timeout = t->timeout, .host_of_rank = task->host_of_rank};
    tg_reducer *reducer = NULL;
    tg_error error = {""};
    for (size_t i = 0; i < task->tensors; i++) {
        snprintf(names[i], sizeof names[i], "t%zu", i);
        tensors[i] = task->like;
        tensors[i].name = names[i];
        tensors[i].count = task->elements;
        gradients[i] = (tg_tensor){b->gradient + i * task->elements, task->elements, TG_FLOAT32};
    }
    bool is_well = tg_reducer_create(b->device, t->rank, t->world, tensors, task->tensors, &options, &reducer,
                                     &error) == TG_OK &&
                   count_elements(t->world, tensors, task->tensors, &options, &task->counts, &error);
    if (!is_well)
        fail(failure, "%s", error.message);
    is_well = probe_agree(b->team, is_well, failure);
    if (is_well && task->host_of_rank) { /* as training does */
        is_well = tg_reducer_share_memory(reducer, t->transport, NULL, &error) == TG_OK ||
                  fail(failure, "%s", error.message);
        is_well = probe_agree(b->team, is_well, failure);
    }
    is_well = is_well && run_steps(b, reducer, gradients, until, task, failure);
    tg_reducer_free(reducer);
    return is_well;
}

static double middle(const double *sorted, const struct task *task) { return probe_quantile(sorted, task->count, 0.5); }

/* ---- which codecs ---- */

static tg_codec_info info_of(const tg_spec *spec)
{
    tg_codec_info info = {.name = ""};
    for (size_t i = 0; tg_codec_list(i, &info) == TG_OK; i++)
        if (info.id == spec->codec)
            break;
    return info;
}

static size_t codec_count(const struct probe_request *request)
{
    return request->specs.count > 0 ? request->specs.count : sizeof standard / sizeof *standard;
}

/* As plan does: what was asked for; what a codec needs, where nothing was, and for those of the standard list that it
 * is not for. `none` has none. */
static tg_status choose_feedback(const struct probe_request *request, tg_reducer_tensor *tensor, tg_error *error)
{
    const tg_codec_info info = info_of(&tensor->codec);
    const bool is_dense = strcmp(info.name, "none") == 0;
    const char *usual = info.wants_feedback ? "ef" : "none";
    const tg_status status = tg_feedback_parse(request->feedback && !is_dense ? request->feedback : usual,
                                               &tensor->feedback, error);
    if (status != TG_OK || tensor->feedback.kind != TG_FEEDBACK_DGC || info.sparse || request->specs.count > 0)
        return status;
    return tg_feedback_parse(usual, &tensor->feedback, error);
}

/* The codec of that number for the reducer and for the file. */
static bool choose_codec(const struct probe_request *request, size_t number, tg_reducer_tensor *tensor,
                         struct probe_coding *coding, struct failure *failure)
{
    const char *spec = request->specs.count > 0 ? request->specs.items[number] : standard[number];
    tg_error error = {""};
    *tensor = (tg_reducer_tensor){.insist = true}; /* whether it converges is not asked here */
    tg_status status = tg_spec_parse(spec, &tensor->codec, &error);
    if (status == TG_OK)
        status = choose_feedback(request, tensor, &error);
    if (status == TG_OK)
        status = tg_spec_print(&tensor->codec, coding->coding.spec, sizeof coding->coding.spec, &error);
    if (status == TG_OK)
        status = tg_feedback_print(&tensor->feedback, coding->feedback, sizeof coding->feedback, &error);
    if (status != TG_OK)
        return fail(failure, "%s", library_message(status, &error));
    return tensor->feedback.kind != TG_FEEDBACK_DGC || info_of(&tensor->codec).sparse ||
           fail(failure, "feedback '%s' is for sparsifiers, but '%s' is not a sparsifier; use ef, or probe without it",
                request->feedback, spec);
}

bool probe_check_codecs(const struct probe_request *request, struct failure *failure)
{
    const size_t count = codec_count(request);
    char specs[PROBE_MOST_CODINGS / 2][TG_SPEC_TEXT];
    if (2 * count > PROBE_MOST_CODINGS)
        return fail(failure, "%zu codecs are more than a probe takes: give at most %d", count, PROBE_MOST_CODINGS / 2);
    for (size_t i = 0; i < count; i++) {
        tg_reducer_tensor tensor;
        struct probe_coding coding;
        if (!choose_codec(request, i, &tensor, &coding, failure))
            return false;
        strcpy(specs[i], coding.coding.spec);
        for (size_t before = 0; before < i; before++)
            if (strcmp(specs[before], specs[i]) == 0)
                return fail(failure, "--codec %s and --codec %s are the same: give one of them",
                            request->specs.items[before], request->specs.items[i]);
    }
    return true;
}

/* ---- */

/* As many elements as can be reduced so often in so many seconds, about: a rank codes its own and those that come. */
static size_t elements_for(const struct bench *b, const struct predict_network *network, const tg_reducer_tensor *like,
                           double seconds)
{
    const struct predict_job job = {.world = network->world, .per_node = network->per_node, .kappa = 1};
    size_t elements = LARGEST;
    for (; elements > LEAST_LARGE; elements /= 2) {
        tg_reducer_tensor tensor = *like;
        const tg_reducer_options options = {.algorithm = TG_GATHER, .batch_elements = elements};
        tg_description *description = NULL;
        tg_described_exchange exchange = {0};
        tensor.name = "gradient";
        tensor.count = elements;
        const bool is_known = tg_description_create(b->team->team.world, &tensor, 1, &options, &description, NULL) ==
                                  TG_OK &&
                              tg_description_exchange(description, 0, 0, &exchange, NULL) == TG_OK;
        tg_description_free(description);
        const double coding = b->encode * (double)elements / LEAST_LARGE * (2 + b->team->team.world),
                     wire = predict_exchange(network, &job, PREDICT_ALL_GATHER, (double)exchange.bytes_sent,
                                             PREDICT_MIDDLE);
        if (is_known && 2 * ROUNDS * (coding + wire) < seconds)
            break;
    }
    return elements;
}

static void sort_trials(struct task *task)
{
    for (unsigned i = 0; i < STAGES; i++)
        probe_sort(task->seconds[i], task->count);
    probe_sort(task->all, task->count);
    probe_sort(task->wholes, task->count);
}

/* What was timed once or twice may as well take half or twice as long. */
static void keep_sample(const struct task *task, struct predict_measured *measured)
{
    const double seconds = middle(task->wholes, task);
    const bool is_few = task->count < ROUNDS;
    measured->samples[measured->count++] = (struct predict_sample){
        .tensors = task->tensors,
        .elements = task->elements,
        .seconds = seconds,
        .low = is_few ? seconds / 2 : probe_quantile(task->wholes, task->count, 0.1),
        .high = is_few ? seconds * 2 : probe_quantile(task->wholes, task->count, 0.9)};
}

/* One algorithm: seconds of an element in each stage, and what is left of many small tensors for a frame. */
static void summarise(const struct bench *b, struct task tasks[SIZES], struct probe_coding *c)
{
    struct task *large = &tasks[SIZE_LARGE], *small = &tasks[SIZE_SMALL];
    struct predict_coding *p = &c->coding;
    double *const per[STAGES] = {[ENCODE] = &p->encode, [CHECK] = &p->check, [ADD] = &p->add};
    double elements = 0;
    for (size_t i = 0; i < SIZES; i++) {
        sort_trials(&tasks[i]);
        keep_sample(&tasks[i], &p->measured[PREDICT_ONE_LEVEL]);
    }
    for (unsigned i = 0; i < STAGES; i++) {
        *per[i] = b->crowd * middle(large->seconds[i], large) / large->counts.elements[i];
        elements += *per[i] * small->counts.elements[i];
    }
    p->frame = fmax(0, (b->crowd * middle(small->all, small) - elements) / small->counts.frames);
    const double all = fmax(middle(large->all, large), 1e-9);
    p->low = probe_quantile(large->all, large->count, 0.1) / all;
    p->high = probe_quantile(large->all, large->count, 0.9) / all;
    c->algorithm = large->algorithm;
}

/* Two levels: what whole reductions take. */
static void summarise_levels(struct task tasks[SIZES], struct probe_coding *c)
{
    for (size_t i = 0; i < SIZES && tasks[i].tensors > 0; i++) {
        sort_trials(&tasks[i]);
        keep_sample(&tasks[i], &c->coding.measured[PREDICT_TWO_LEVELS]);
    }
}

static bool list_tasks(const struct bench *b, const struct predict_network *network,
                       const struct probe_request *request, size_t number, double seconds, struct task *tasks,
                       struct probe_coding c[2], struct failure *failure)
{
    if (!choose_codec(request, number, &tasks[0].like, &c[0], failure))
        return false;
    c[1] = c[0];
    tasks[0].elements = elements_for(b, network, &tasks[0].like, seconds);
    tasks[0].tensors = 1;
    tasks[0].algorithm = TG_GATHER;
    tasks[SIZE_MEDIUM] = tasks[SIZE_SMALL] = tasks[SIZE_LARGE];
    tasks[SIZE_MEDIUM].elements /= 4;
    tasks[SIZE_SMALL].tensors = MANY;
    tasks[SIZE_SMALL].elements = SMALL;
    for (size_t i = 0; i < SIZES; i++) {
        tasks[SIZES + i] = tasks[i];
        tasks[SIZES + i].algorithm = TG_SHARD;
    }
    const tg_feedback_spec *feedback_spec = &tasks[0].like.feedback;
    const bool is_refused = feedback_spec->kind == TG_FEEDBACK_DGC && feedback_spec->clip > 0; /* in two levels */
    for (size_t i = 0; b->team->host_of_rank && i < TASKS_OF_LEVEL; i++) {
        tasks[TASKS_OF_LEVEL + i] = tasks[i];
        tasks[TASKS_OF_LEVEL + i].host_of_rank = b->team->host_of_rank;
        tasks[TASKS_OF_LEVEL + i].tensors *= !is_refused;
    }
    return true;
}

/* Rounds over all tasks. The first is made in any case; large ones have more of the time than small ones. */
static bool run_rounds(const struct bench *b, struct task *tasks, size_t count, double until, struct failure *failure)
{
    double now = probe_now(b->team, failure), took = 0;
    for (unsigned round = 0; round < ROUNDS && now >= 0 && (round == 0 || now + 0.7 * took < until); round++) {
        const double began = now, end = now + (until - now) / (ROUNDS - round);
        for (size_t i = 0; now >= 0 && i < count; i++) {
            const size_t behind = count / SIZES - i / SIZES - 1;
            double left = (double)behind;
            for (size_t size = i % SIZES; size < SIZES; size++)
                left += share_of_size[size];
            if (tasks[i].tensors > 0 &&
                !run_task(b, &tasks[i], now + share_of_size[i % SIZES] * (end - now) / left, failure))
                return false;
            now = probe_now(b->team, failure);
        }
        took = now - began;
    }
    return now >= 0;
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

static bool encode(const struct bench *b, tg_codec *codec, void *frame)
{
    const tg_tensor tensor = {b->source, LEAST_LARGE, TG_FLOAT32};
    const tg_encode_options options = {0};
    tg_encode_report report;
    return tg_encode(codec, &tensor, &options, frame, tg_frame_bound(codec, LEAST_LARGE), &report, NULL) == TG_OK;
}

/* Seconds for encoding on the slowest rank, all of them at it for a while. */
static bool time_encoding(const struct bench *b, tg_codec *codec, void *frame, double *seconds, struct failure *failure)
{
    static const double while_seconds = 0.05;
    double ignored, spent = 0;
    unsigned count = 0;
    bool is_well = true;
    if (!probe_slowest(b->team, 0, &ignored, failure))
        return false;
    const double start = seconds_now();
    while (is_well && spent < while_seconds) {
        is_well = encode(b, codec, frame);
        spent = seconds_now() - start;
        count += is_well;
    }
    return probe_slowest(b->team, count > 0 ? spent / count : 0, seconds, failure);
}

/* Some milliseconds of work on every rank: how long until the last has done it, over how long it takes a rank by its
 * own clock. A rank that waits for a processor is not at work by its clock, but the others wait for it all the same. */
static bool probe_crowd(struct bench *b, tg_codec *codec, void *frame, struct failure *failure)
{
    enum { TRIALS = 15, AT_A_TIME = 128 };
    double factors[TRIALS];
    for (unsigned i = 0; i < TRIALS; i++) {
        double ignored, own, all;
        if (!probe_slowest(b->team, 0, &ignored, failure))
            return false;
        const double start = seconds_now();
        for (unsigned j = 0; j < AT_A_TIME; j++)
            (void)encode(b, codec, frame);
        const double spent = seconds_now() - start;
        if (!probe_slowest(b->team, 0, &ignored, failure))
            return false;
        const double until_all = seconds_now() - start;
        if (!probe_middle(b->team, spent, &own, failure) || !probe_slowest(b->team, until_all, &all, failure))
            return false;
        factors[i] = fmax(1, (all - b->idle) / own);
    }
    probe_sort(factors, TRIALS);
    b->crowd = factors[TRIALS / 2];
    return true;
}

/* How much longer coding takes while another thread of every rank computes, as a backward pass does. */
static bool probe_kappa(struct bench *b, tg_codec *codec, void *frame, double *kappa, struct failure *failure)
{
    enum { TRIALS = 5 };
    struct computing *c = calloc(1, sizeof *c);
    double alone[TRIALS], beside[TRIALS];
    pthread_t thread;
    bool is_well = probe_agree(b->team, c || fail(failure, "out of memory"), failure);
    for (unsigned i = 0; is_well && i < TRIALS; i++) {
        is_well = time_encoding(b, codec, frame, &alone[i], failure);
        const bool is_busy = is_well && pthread_create(&thread, NULL, compute, c) == 0;
        is_well = is_well && probe_agree(b->team, is_busy || fail(failure, "cannot start a thread"), failure) &&
                  time_encoding(b, codec, frame, &beside[i], failure);
        if (is_busy) {
            atomic_store(&c->stop, true);
            (void)pthread_join(thread, NULL);
            atomic_store(&c->stop, false);
        }
    }
    free(c);
    if (!is_well)
        return false;
    probe_sort(alone, TRIALS);
    probe_sort(beside, TRIALS);
    b->encode = alone[TRIALS / 2];
    *kappa = fmax(1, alone[TRIALS / 2] > 0 ? beside[TRIALS / 2] / alone[TRIALS / 2] : 1);
    return true;
}

/* What a call seems to take that does nothing. */
static bool probe_idle(struct bench *b, struct failure *failure)
{
    enum { TRIALS = 21 };
    double samples[TRIALS], ignored;
    for (unsigned i = 0; i < TRIALS; i++) {
        if (!probe_slowest(b->team, 0, &ignored, failure))
            return false;
        const double start = seconds_now();
        if (!probe_slowest(b->team, 0, &ignored, failure) ||
            !probe_slowest(b->team, seconds_now() - start, &samples[i], failure))
            return false;
    }
    probe_sort(samples, TRIALS);
    b->idle = probe_quantile(samples, TRIALS, 0.5);
    return true;
}

/* Ranks among each other, and beside computing. */
static bool probe_company(struct bench *b, double *kappa, struct failure *failure)
{
    tg_spec spec;
    tg_codec *codec = NULL;
    void *frame = NULL;
    if (tg_spec_parse("qsgd", &spec, NULL) == TG_OK &&
        tg_codec_create(b->device, &spec, LEAST_LARGE, &codec, NULL) == TG_OK)
        frame = malloc(tg_frame_bound(codec, LEAST_LARGE));
    const bool is_well = probe_agree(b->team, frame || fail(failure, "out of memory for a codec"), failure) &&
                         probe_idle(b, failure) && probe_crowd(b, codec, frame, failure) &&
                         probe_kappa(b, codec, frame, kappa, failure);
    tg_codec_free(codec);
    free(frame);
    return is_well;
}

static bool measure_codecs(const struct bench *b, const struct probe_request *request, double until,
                           struct probe *probe, struct failure *failure)
{
    const size_t count = codec_count(request), levels = b->team->host_of_rank ? PREDICT_LEVELS : 1,
                 tasks_of_codec = levels * TASKS_OF_LEVEL;
    struct task *tasks = calloc(tasks_of_codec * count, sizeof *tasks);
    bool is_well = tasks || fail(failure, "out of memory for %zu codecs", count);
    const double now = probe_now(b->team, failure), each = 0.35 * fmax(0, until - now) / (double)(levels * count);
    for (size_t i = 0; is_well && tasks && i < count; i++)
        is_well = list_tasks(b, &probe->network, request, i, each, &tasks[tasks_of_codec * i], &probe->codings[2 * i],
                             failure);
    is_well = probe_agree(b->team, is_well, failure) && tasks &&
              run_rounds(b, tasks, tasks_of_codec * count, until, failure);
    for (size_t i = 0; is_well && i < 2 * count; i++) {
        struct task *const of_level = &tasks[tasks_of_codec * (i / 2) + SIZES * (i % 2)];
        struct probe_coding *const coding = &probe->codings[probe->coding_count++];
        summarise(b, of_level, coding);
        if (levels > 1)
            summarise_levels(of_level + TASKS_OF_LEVEL, coding);
    }
    free(tasks);
    return is_well;
}

bool probe_codecs(const struct probe_team *team, const struct probe_request *request, double until, struct probe *probe,
                  struct failure *failure)
{
    struct bench b = {.team = team,
                      .network = &probe->network,
                      .source = malloc(LARGEST * sizeof(float)),
                      .gradient = malloc(LARGEST * sizeof(float))};
    tg_error error = {""};
    bool is_well = true;
    if (!b.source || !b.gradient)
        is_well = fail(failure, "out of memory for a gradient of %d elements", LARGEST);
    else if (tg_device_open(request->device, NULL, &b.device, &error) != TG_OK)
        is_well = fail(failure, "%s", error.message);
    if (is_well && b.source) {
        fill(b.source, LARGEST, team->team.rank + 1);
        snprintf(probe->device, sizeof probe->device, "%s", tg_device_name(b.device));
    }
    is_well = probe_agree(team, is_well, failure) && probe_company(&b, &probe->kappa, failure);
    is_well = is_well && measure_codecs(&b, request, until, probe, failure);
    tg_device_free(b.device);
    free(b.source);
    free(b.gradient);
    return is_well;
}
