/* Plans from a probe. See plan.h. */
#include "plan.h"

#include <stdlib.h>
#include <time.h>

bool plan_probe_load(struct plan *plan, struct message *message)
{
    const struct plan_options *options = plan->options;
    struct probe_doubts doubts;
    char machine[192];
    plan->probe = malloc(sizeof *plan->probe);
    if (!plan->probe)
        return fail(message, "out of memory for a probe");
    probe_machine(machine);
    if (!probe_load(options->probe, plan->probe, message) ||
        !probe_judge(plan->probe, machine, (int64_t)time(NULL), options->insist, &doubts, message))
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
    return true;
}

void plan_probe_network(struct plan *plan)
{
    plan->network = plan->probe->network;
    plan_note(plan, "measured: exchanges of %u ranks, %u on a host (%s)", plan->network.world, plan->network.per_node,
              plan->options->probe);
    if (plan->probe->sharing > plan->network.per_node)
        plan_note(plan, "measured: %u ranks shared the processors of one machine, and waited for each other",
                  plan->probe->sharing);
    if (plan->job.world > 2 * (uint64_t)plan->network.world)
        plan_note(plan, "extrapolated: %u ranks are more than twice as many as were probed", plan->job.world);
}

bool plan_probe_coding(struct plan *plan, struct plan_row *row, struct message *message)
{
    if (!plan->probe)
        return true;
    const struct predict_coding *found = probe_coding_of(plan->probe, &row->codec, &row->feedback,
                                                         row->options.algorithm);
    if (found)
        row->coding = *found;
    else
        row->was_not_probed = true;
    /* On links of another rate, exchanges and coding compete in other proportions than they did. */
    const bool is_same = plan->network.patterns[PREDICT_ALL_GATHER].count > 0;
    return !found || !is_same ||
           predict_fit_samples(&plan->network, &row->codec, &row->feedback, row->options.algorithm, &row->coding,
                               message);
}
