/* Plans from a probe. See plan.h. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Codecs run where they were probed; what was measured elsewhere says nothing about another device. */
static bool use_device(struct plan *plan, struct failure *failure)
{
    const enum predict_device probed = strncmp(plan->probe->device, "cuda", 4) == 0 ? PREDICT_CARD : PREDICT_CPU;
    if (plan->options->device >= 0 && plan->device != probed)
        return fail(failure,
                    "--device %s is not where the probe '%s' was made, %s: leave --device out, or probe again with "
                    "--device %s",
                    plan_devices[plan->device], plan->options->probe, plan->probe->device, plan_devices[plan->device]);
    plan->device = probed;
    return true;
}

static bool is_far(const struct plan *plan) { return plan->job.world > 2 * (uint64_t)plan->probe->network.world; }

static bool load(const char *path, struct probe *probe, struct failure *failure)
{
    struct failure reason = {""};
    if (probe_load(path, probe, &reason))
        return true;
    return fail(failure, "%s%s", reason.text, access(path, F_OK) == 0 ? "" : "; to measure one, start it under mpirun");
}

bool plan_probe_load(struct plan *plan, struct failure *failure)
{
    const struct plan_options *options = plan->options;
    struct probe_doubts doubts;
    char machine[192];
    plan->probe = malloc(sizeof *plan->probe);
    if (!plan->probe)
        return fail(failure, "out of memory for a probe");
    probe_machine(machine);
    if (!load(options->probe, plan->probe, failure) ||
        !probe_judge(plan->probe, machine, (int64_t)time(NULL), options->insist, &doubts, failure))
        return false;
    if (!use_device(plan, failure))
        return false;
    const char *const texts[] = {doubts.machine, doubts.age, doubts.scatter};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i][0])
            warn("plan", "%s", texts[i]);
    const struct predict_network *network = &plan->probe->network;
    plan->job.world = options->world ? (uint32_t)options->world : network->world;
    plan->job.per_node = options->per_node ? (uint32_t)options->per_node : network->per_node;
    plan->job.kappa = options->kappa > 0 ? options->kappa : plan->probe->kappa;
    plan_note(plan, "measured: coding, on %u ranks of %s", network->world, plan->probe->machine);
    if (options->rate && is_far(plan))
        plan_note(plan, "extrapolated: coding was measured with %u ranks, and %u are more than twice as many",
                  network->world, plan->job.world);
    return true;
}

bool plan_probe_has_levels(const struct plan *plan)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->probe->coding_count; i++)
        count += plan->probe->codings[i].coding.measured[PREDICT_TWO_LEVELS].count;
    return count > 0 && plan->job.world > plan->job.per_node && plan->job.per_node == plan->probe->network.per_node;
}

bool plan_probe_network(struct plan *plan, struct failure *failure)
{
    if (is_of_one_host(&plan->probe->network) && plan->job.per_node < plan->job.world)
        return fail(failure,
                    "the probe '%s' was made on one host and says nothing of links between hosts; give --rate and "
                    "--latency, or probe on the hosts",
                    plan->options->probe);
    const struct predict_network assumed = plan_network(1, 0); /* within hosts, of which a probe has nothing */
    plan->network = plan->probe->network;
    plan->network.message = assumed.message;
    plan->network.inside = assumed.inside;
    plan->network.low = assumed.low;
    plan->network.high = assumed.high;
    if (!left_links(&plan->network, &plan->job))
        plan_note(plan, "measured: exchanges of %u ranks, %u on a host (%s)", plan->network.world,
                  plan->network.per_node, plan->options->probe);
    if (plan->probe->sharing > plan->network.per_node)
        plan_note(plan, "measured: %u ranks shared the processors of one machine, and waited for each other",
                  plan->probe->sharing);
    if (is_far(plan))
        plan_note(plan, "extrapolated: %u ranks are more than twice as many as were probed", plan->job.world);
    return true;
}

bool plan_probe_coding(struct plan *plan, struct plan_row *row, struct failure *failure)
{
    if (!plan->probe)
        return true;
    const struct probe_coding *found = probe_coding_of(plan->probe, &row->codec, &row->feedback,
                                                       row->options.algorithm);
    char feedback[TG_SPEC_TEXT] = "";
    if (tg_feedback_print(&row->feedback, feedback, sizeof feedback, NULL) != TG_OK)
        return fail(failure, "the feedback '%s' cannot be written", row->feedback_text);
    if (!found)
        row->was_not_probed = true;
    else {
        row->coding = found->coding;
        row->is_far = is_far(plan);
        if (strcmp(found->feedback, feedback) != 0)
            snprintf(row->probed_feedback, sizeof row->probed_feedback, "%s", found->feedback);
    }
    /* On links of another rate, exchanges and coding compete in other proportions than they did. */
    const bool is_same = plan->network.patterns[PREDICT_ALL_GATHER].count > 0;
    return !found || !is_same ||
           predict_fit_samples(&plan->network, &row->codec, &row->feedback, row->options.algorithm, &row->coding,
                               failure);
}
