/* Predictions that are fitted to whole reductions. See predict.h.
 *
 * What exchanges take by themselves and what coding takes by itself do not say what both take at once where they need
 * the same processors. Reductions that were measured do: a step's reduction is predicted as one of its size, and each
 * of its parts takes as many times longer as all of them do together. */
#include "predict.h"

#include "schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Without computing, and without a fit. */
static double bare_seconds(const struct schedule *schedule, const struct predict_job *job,
                           const struct predict_network *network)
{
    static const struct shares all_but_computing = {0, 1, 1, 1};
    return schedule_best(schedule, job, network, PREDICT_MIDDLE, &all_but_computing, NULL);
}

/* What the model says of one sample. */
static bool model_of(const struct predict_network *network, const tg_spec *codec, const tg_feedback_spec *feedback,
                     const tg_reducer_options *options, const struct predict_coding *coding,
                     const struct predict_sample *sample, double *seconds, struct failure *failure)
{
    enum { NAME = 24 };
    struct predict_tensor *tensors = calloc(sample->tensors, sizeof *tensors);
    char(*names)[NAME] = calloc(sample->tensors, sizeof *names);
    bool is_well = (tensors && names) || fail(failure, "out of memory for %zu tensors", (size_t)sample->tensors);
    for (size_t i = 0; is_well && tensors && names && i < sample->tensors; i++) {
        snprintf(names[i], NAME, "t%zu", i);
        tensors[i] = (struct predict_tensor){names[i], sample->elements, 0};
    }
    const struct predict_job job = {.tensors = tensors,
                                    .tensor_count = sample->tensors,
                                    .world = network->world,
                                    .per_node = network->per_node,
                                    .kappa = 1};
    struct schedule schedule = {0};
    is_well = is_well && schedule_of_reduction(&job, coding, codec, feedback, options, &schedule, failure);
    *seconds = is_well ? bare_seconds(&schedule, &job, network) : 0;
    schedule_free(&schedule);
    free(tensors);
    free(names);
    return is_well &&
           (*seconds > 0 || fail(failure,
                                 "the model predicts 0 seconds for a measured reduction of %zu tensors of %" PRIu64
                                 " elements; probe again",
                                 (size_t)sample->tensors, (uint64_t)sample->elements));
}

/* In its place by what the model says. What is equal by the model is one point, the slower one; seconds rise, too. */
static void insert(struct predict_fit *fit, double model, const struct predict_sample *sample)
{
    size_t same = 0;
    while (same < fit->count && fit->points[same].model != model)
        same++;
    if (same < fit->count && fit->points[same].seconds >= sample->seconds)
        return;
    size_t at = same < fit->count ? same : fit->count++;
    for (; at > 0 && fit->points[at - 1].model > model; at--)
        fit->points[at] = fit->points[at - 1];
    fit->points[at].model = model;
    fit->points[at].seconds = sample->seconds;
    fit->points[at].low = sample->low / sample->seconds;
    fit->points[at].high = sample->high / sample->seconds;
}

bool predict_fit_samples(const struct predict_network *network, const tg_spec *codec, const tg_feedback_spec *feedback,
                         tg_algorithm algorithm, struct predict_coding *coding, struct failure *failure)
{
    const struct predict_job ranks = {.world = network->world, .per_node = network->per_node};
    uint32_t *hosts = schedule_hosts(&ranks);
    bool is_well = hosts || fail(failure, "out of memory for %u ranks", ranks.world);
    for (size_t levels = 0; is_well && levels < PREDICT_LEVELS; levels++) {
        const tg_reducer_options options = {.algorithm = algorithm,
                                            .host_of_rank = levels == PREDICT_TWO_LEVELS ? hosts : NULL};
        struct predict_measured *measured = &coding->measured[levels];
        struct predict_fit fit = {.count = 0};
        for (size_t i = 0; is_well && i < measured->count; i++) {
            const struct predict_sample *sample = &measured->samples[i];
            double model;
            is_well = model_of(network, codec, feedback, &options, coding, sample, &model, failure);
            if (is_well)
                insert(&fit, model, sample);
        }
        for (size_t i = 1; i < fit.count; i++)
            fit.points[i].seconds = fmax(fit.points[i].seconds, fit.points[i - 1].seconds);
        measured->fit = fit;
    }
    free(hosts);
    return is_well;
}

void schedule_fit(struct schedule *schedule, const struct predict_job *job, const struct predict_network *network,
                  const struct predict_coding *coding)
{
    const bool has_levels = schedule_has_levels(schedule);
    const struct predict_fit *fit = &coding->measured[has_levels ? PREDICT_TWO_LEVELS : PREDICT_ONE_LEVEL].fit;
    const bool has_hosts = job->world > job->per_node, /* one host by itself compresses nothing */
        is_alike = has_levels ? has_hosts && job->per_node == network->per_node : !left_links(network, job);
    const double model = fit->count > 0 && is_alike ? bare_seconds(schedule, job, network) : 0;
    if (!(model > 0))
        return;
    size_t above = 0;
    while (above + 1 < fit->count && fit->points[above].model < model)
        above++;
    const double right = fit->points[above].model, seconds = fit->points[above].seconds;
    schedule->stretch = seconds / right;
    if (above > 0 && model < right && fit->points[above - 1].model < right) {
        const double left = fit->points[above - 1].model, before = fit->points[above - 1].seconds;
        schedule->stretch = before * pow(seconds / before, log(model / left) / log(right / left)) / model;
    }
    schedule->low = fit->points[above].low;
    schedule->high = fit->points[above].high;
}
