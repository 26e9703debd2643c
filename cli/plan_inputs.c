/* What a plan is made from: the model, the network, the costs of coding. See plan.h. */
#include "plan.h"

#include "files.h"
#include "suggest.h"
#include "units.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From gentle to coarse: of codecs that take equally long, the first is recommended. */
static const char *const standard_codecs[] = {
    "none",     "fp16",   "qsgd:levels=127",   "qsgd:levels=7",     "qsgd:coding=entropy",
    "terngrad", "onebit", "topk:density=0.01", "topk:density=0.001"};

/* TCP over Ethernet: 1448 bytes of a packet of 1514 are the caller's. */
static const double payload = 1448.0 / 1514;
/* Of which nothing is known without a probe: what software takes for a message, and how fast ranks of one host are. */
static const double message_seconds = 5e-6, inside_bytes = 5e9;

/* ---- the model ---- */

static bool read_time(const char *option, const char *text, double *seconds, struct failure *failure)
{
    if (parse_time(text, strlen(text), seconds) && *seconds <= 1e6)
        return true;
    return fail(failure, "%s takes a time of 0s to 1000000s with its unit, such as 80ms or 1.5s, not '%s'", option,
                text);
}

/* `known`: of the model's own; negative: there is none. */
static bool choose_times(struct plan *plan, double known, const char *source, struct failure *failure)
{
    const struct plan_options *options = plan->options;
    double *forward = &plan->job.forward, *backward = &plan->job.backward;
    char text[TIME_TEXT], other[TIME_TEXT];
    if (options->backward && !read_time("--backward", options->backward, backward, failure))
        return false;
    if (options->forward && !read_time("--forward", options->forward, forward, failure))
        return false;
    if (!options->backward && known < 0)
        return fail(failure, "'%s' has no times \"ready\", so give the time of a backward pass: --backward 80ms",
                    plan->what);
    if (!options->backward)
        *backward = known;
    if (!options->forward)
        *forward = *backward / 2;
    plan_note(plan, "%s: backward pass %s (%s), forward %s%s",
              options->backward  ? "stated"
              : source[0] == 'f' ? "stated"
                                 : "assumed",
              time_text(*backward, text), options->backward ? "--backward" : source, time_text(*forward, other),
              options->forward ? "" : " (half of it, assumed)");
    return true;
}

static bool use_layout(struct plan *plan, struct failure *failure)
{
    bool has_times;
    struct failure reason = {""};
    const char *path = plan->options->layout;
    if (!layout_load(path, UINT64_MAX, &plan->layout, failure))
        return false;
    snprintf(plan->what, sizeof plan->what, "%s", path);
    if (!plan_layout_check(&plan->layout, &has_times, &reason))
        return fail(failure, "cannot use the layout '%s': %s", path, reason.text);
    const size_t count = plan->layout.count;
    const double last = has_times ? plan->layout.layers[count - 1].ready : -1;
    if (!choose_times(plan, last, "from the layout", failure))
        return false;
    if (has_times && plan->job.backward < last)
        return fail(failure, "--backward %s is shorter than the layout's last time, %g seconds",
                    plan->options->backward, last);
    plan->tensors = calloc(count, sizeof *plan->tensors);
    if (!plan->tensors)
        return fail(failure, "out of memory for %zu tensors", count);
    plan_layout_ready(&plan->layout, has_times, plan->job.backward, plan->tensors);
    if (!has_times)
        plan_note(plan, "assumed: a layer's part of the backward pass is its share of the elements, last layer first");
    plan->job.tensor_count = count;
    return true;
}

static bool use_model(struct plan *plan, struct failure *failure)
{
    char source[120];
    const char *name = known_models[plan->options->model >= 0 ? plan->options->model : 0];
    if (!known_model_make(name, &plan->model, failure))
        return false;
    snprintf(plan->what, sizeof plan->what, "%s", name);
    snprintf(source, sizeof source, "%s at 10 TFLOP/s", plan->model.batch);
    if (!choose_times(plan, 2 * plan->model.work / KNOWN_MODEL_SPEED, source, failure))
        return false;
    plan->tensors = calloc(plan->model.count, sizeof *plan->tensors);
    if (!plan->tensors)
        return fail(failure, "out of memory for %zu tensors", plan->model.count);
    known_model_ready(&plan->model, plan->job.backward, plan->tensors);
    plan->job.tensor_count = plan->model.count;
    return true;
}

/* ---- the network ---- */

struct predict_network plan_network(double bits_per_second, double latency)
{
    return (struct predict_network){.rate = bits_per_second / 8 * payload,
                                    .latency = latency,
                                    .message = message_seconds,
                                    .inside = inside_bytes,
                                    .low = 0.9,
                                    .high = 1.25};
}

static bool use_rate(struct plan *plan, struct failure *failure)
{
    const struct plan_options *options = plan->options;
    const char *rate = options->rate ? options->rate : "10gbit",
               *latency = options->latency ? options->latency : "50us";
    if (!parse_rate(rate, strlen(rate), &plan->rate_bits) || plan->rate_bits < 1e3 || plan->rate_bits > 1e15)
        return fail(failure,
                    "--rate takes a rate of 1kbit to 1000tbit with its unit, such as 100mbit or 2.5gbit, not '%s'",
                    rate);
    if (!parse_time(latency, strlen(latency), &plan->latency) || !(plan->latency > 0 && plan->latency <= 1e3))
        return fail(failure,
                    "--latency takes a time above 0s and up to 1000s with its unit, such as 50us or 2ms, not '%s'",
                    latency);
    plan->network = plan_network(plan->rate_bits, plan->latency);
    plan_note(plan, "%s: links of %s; %s: latency %s", options->rate ? "stated" : "assumed", rate,
              options->latency ? "stated" : "assumed", latency);
    plan_note(plan, "assumed: TCP over Ethernet (96 %% of the rate), %.0f us of software for each message",
              1e6 * message_seconds);
    return true;
}

void plan_note_inside(struct plan *plan)
{
    const bool is_from_rate = plan->network.patterns[PREDICT_ALL_GATHER].count == 0,
               is_one_host = plan->job.per_node >= plan->job.world,
               /* What was measured flat has both in it, and what was measured on one host all of it. */
        has_inside = !is_from_rate && (is_one_host ? !left_links(&plan->network, &plan->job) : plan->options->flat);
    if (plan->job.per_node < 2 || has_inside)
        return;
    if (is_from_rate) /* messages were mentioned with the links */
        plan_note(plan, "assumed: %.0f GB/s between ranks of one host", 1e-9 * plan->network.inside);
    else
        plan_note(plan, "assumed: %.0f GB/s between ranks of one host, %.0f us of software for each message there",
                  1e-9 * plan->network.inside, 1e6 * plan->network.message);
    if (!is_from_rate && plan->job.world > plan->job.per_node)
        plan_note(
            plan, "%s",
            plan_probe_has_levels(plan)
                ? "measured: reductions in two levels"
                : "assumed: two levels take as long as their exchanges and coding; no such reductions were measured");
}

/* ---- rows ---- */

static bool find_info(const tg_spec *spec, tg_codec_info *info)
{
    for (size_t i = 0; tg_codec_list(i, info) == TG_OK; i++)
        if (info->id == spec->codec)
            return true;
    return false;
}

/* What was asked for, where it suits the codec; what a codec needs, where nothing was. */
static bool choose_feedback(const struct plan_options *options, const tg_codec_info *info, struct plan_row *row,
                            struct failure *failure)
{
    tg_error error = {""};
    const char *text = row->is_dense          ? "none"
                       : options->feedback    ? options->feedback
                       : info->wants_feedback ? "ef"
                                              : "none";
    tg_status status = tg_feedback_parse(text, &row->feedback, &error);
    if (status == TG_OK && row->feedback.kind == TG_FEEDBACK_DGC && !info->sparse) {
        if (options->codecs.count > 0)
            return fail(
                failure,
                "feedback '%s' is for sparsifiers, but '%s' is not a sparsifier; use ef, or run plan for each codec",
                text, row->codec_text);
        text = info->wants_feedback ? "ef" : "none"; /* of the standard list, those that it is not for */
        status = tg_feedback_parse(text, &row->feedback, &error);
    }
    snprintf(row->feedback_text, sizeof row->feedback_text, "%s", text);
    return status == TG_OK || fail(failure, "%s", library_message(status, &error));
}

static bool fill_row(struct plan *plan, const char *text, struct plan_row *row, struct failure *failure)
{
    const struct plan_options *options = plan->options;
    tg_codec_info info;
    if (!parse_spec(text, &row->codec, failure))
        return false;
    if (strlen(text) >= sizeof row->codec_text || !find_info(&row->codec, &info))
        return fail(failure, "the spec '%.40s...' is too long", text);
    strcpy(row->codec_text, text);
    row->is_dense = strcmp(info.name, "none") == 0;
    if (!choose_feedback(options, &info, row, failure))
        return false;
    const bool feedback = row->feedback.kind != TG_FEEDBACK_NONE;
    snprintf(row->name, sizeof row->name, "%s%s%s", text, feedback ? "+" : "", feedback ? row->feedback_text : "");
    row->options = (tg_reducer_options){.min_size = options->min_size};
    return predict_costs(plan->device, &row->codec, feedback, &row->coding, failure);
}

static bool fill_rows(struct plan *plan, struct failure *failure)
{
    const struct text_list *given = &plan->options->codecs;
    const size_t count = given->count ? given->count : sizeof standard_codecs / sizeof *standard_codecs;
    plan->rows = calloc(PLAN_MOST_ROWS, sizeof *plan->rows);
    if (!plan->rows)
        return fail(failure, "out of memory");
    const struct plan_row baseline = {.codec_text = "none",
                                      .feedback_text = "none",
                                      .name = "none",
                                      .is_ring = true,
                                      .is_dense = true,
                                      .coding = {.low = 1, .high = 1}};
    plan->rows[plan->row_count++] = baseline;
    plan->rows[plan->row_count] = baseline;
    plan->rows[plan->row_count++].is_tree = true;
    for (size_t i = 0; i < count; i++) {
        struct plan_row *row = &plan->rows[plan->row_count];
        if (!fill_row(plan, given->count ? given->items[i] : standard_codecs[i], row, failure))
            return false;
        row->options.algorithm = TG_GATHER;
        row->is_flat = plan->options->flat;
        row[1] = row[0];
        row[1].options.algorithm = TG_SHARD;
        if (!plan_probe_coding(plan, &row[0], failure) || !plan_probe_coding(plan, &row[1], failure))
            return false;
        plan->row_count += 2;
    }
    plan_note_coding(plan);
    return true;
}

/* ---- the cluster ---- */

static bool use_cluster(struct plan *plan, struct failure *failure)
{
    const struct plan_options *o = plan->options;
    const struct {
        const char *name;
        bool is_given;
    } given[] = {{"--steps", o->steps > 0},       {"--seed", o->seed != UINT64_MAX},
                 {"--rack", o->rack > 0},         {"--oversubscription", o->oversubscription >= 0},
                 {"--jitter", o->jitter >= 0},    {"--stragglers", o->stragglers >= 0},
                 {"--slowdown", o->slowdown >= 0}};
    for (size_t i = 0; i < sizeof given / sizeof *given && !o->simulate; i++)
        if (given[i].is_given)
            return fail(failure, "%s is about a simulation: give --simulate too", given[i].name);
    if (!o->simulate)
        return true;
    if (o->oversubscription >= 0 && o->rack == 0)
        return fail(failure, "--oversubscription %g is about racks: give --rack too", o->oversubscription);
    plan->cluster = (struct cluster){.rack_hosts = (uint32_t)o->rack,
                                     .oversubscription = o->oversubscription >= 0 ? o->oversubscription : 1,
                                     .jitter = o->jitter >= 0 ? o->jitter : 0.02,
                                     .stragglers = o->stragglers >= 0 ? o->stragglers : 0,
                                     .slowdown = o->slowdown >= 0 ? o->slowdown : 2,
                                     .steps = o->steps > 0 ? (uint32_t)o->steps : 20,
                                     .codes_on_hosts = plan->device == PREDICT_CPU,
                                     .seed = o->seed != UINT64_MAX ? o->seed : 1};
    const struct cluster *c = &plan->cluster;
    char racks[80] = "";
    if (c->rack_hosts > 0)
        snprintf(racks, sizeof racks, "racks of %u hosts, uplinks %g times oversubscribed, ", c->rack_hosts,
                 c->oversubscription);
    plan_note(plan,
              "simulated: %u steps, %scomputing varies by %g %%, %g %% of the hosts %s %g times slower, seed %" PRIu64,
              c->steps, racks, 100 * c->jitter, 100 * c->stragglers, c->codes_on_hosts ? "compute and code" : "compute",
              c->slowdown, c->seed);
    return simulate_check(c, &plan->job, failure);
}

/* The ranks of a host, which may be the probe's. */
static bool check_hosts(struct plan *plan, struct failure *failure)
{
    struct predict_job *job = &plan->job;
    if (plan->options->per_node > job->world)
        return fail(failure, "--per-node %" PRIu64 " is more than all %" PRIu32 " ranks; use at most that",
                    plan->options->per_node, job->world);
    if (job->per_node > job->world)
        job->per_node = job->world; /* the probe's */
    return job->per_node <= PLAN_MOST_ON_A_HOST ||
           fail(failure, "--per-node %" PRIu32 " is too many for one host; use at most %d", job->per_node,
                PLAN_MOST_ON_A_HOST);
}

bool plan_inputs(struct plan *plan, const struct plan_options *options, struct failure *failure)
{
    *plan = (struct plan){.options = options,
                          .device = options->device >= 0 ? (enum predict_device)options->device : PREDICT_CPU};
    plan->job = (struct predict_job){.world = options->world ? (uint32_t)options->world : 8,
                                     .per_node = options->per_node ? (uint32_t)options->per_node : 1,
                                     .kappa = options->kappa > 0 ? options->kappa : 1};
    if (options->model >= 0 && options->layout)
        return fail(failure, "--model %s and --layout %s are two models: give one of them",
                    known_models[options->model], options->layout);
    if (options->seconds > 0)
        return fail(failure, "--seconds %g is about measuring: start it under mpirun, with --probe", options->seconds);
    if (options->insist && !options->probe)
        return fail(failure, "--insist is about a probe: give --probe too, or leave --insist out");
    /* What was measured is not replaced by what is assumed without a word. */
    if (options->probe && !options->rate != !options->latency)
        return fail(failure, "%s %s replaces half of the network that was probed: give %s too, or leave it out",
                    options->rate ? "--rate" : "--latency", options->rate ? options->rate : options->latency,
                    options->rate ? "--latency" : "--rate");
    if (!(options->layout ? use_layout(plan, failure) : use_model(plan, failure)) ||
        (options->probe && !plan_probe_load(plan, failure)) || !check_hosts(plan, failure) ||
        !(options->probe && !options->rate ? plan_probe_network(plan, failure) : use_rate(plan, failure)))
        return false;
    plan_note_inside(plan);
    plan_note_job(plan);
    if (!fill_rows(plan, failure) || !use_cluster(plan, failure) ||
        (options->report && !can_write_file(options->report, failure)))
        return false;
    if (plan->lacks_notes)
        return fail(failure, "out of memory for the list of inputs");
    plan->job.tensors = plan->tensors;
    for (size_t i = 0; i < plan->job.tensor_count; i++)
        plan->parameters += plan->tensors[i].count;
    return predict_job_check(&plan->job, failure) && predict_network_check(&plan->network, failure);
}

void plan_free(struct plan *plan)
{
    known_model_free(&plan->model);
    layout_free(&plan->layout);
    free(plan->tensors);
    free(plan->rows);
    free(plan->probe);
    plan_notes_free(plan);
    *plan = (struct plan){0};
}
