/* Predictions for all rows, and which to recommend. See plan.h. */
#include "plan.h"

#include <stdio.h>

/* Steps so near the shortest are as good: the gentler codec, which comes first, is taken. */
static const double as_good = 1.02;

/* Compression must beat the best that can be had without. */
static const struct plan_row *best_dense(const struct plan *plan)
{
    const struct plan_row *best = &plan->rows[0];
    for (size_t i = 1; i < plan->row_count; i++)
        if (plan->rows[i].is_dense && plan->rows[i].step.seconds < best->step.seconds)
            best = &plan->rows[i];
    return best;
}

static bool may_be_recommended(const struct plan_row *row, const struct plan_row *dense)
{
    return !row->is_dense && predict_gain_of(&row->step, &dense->step).low >= PLAN_LEAST_GAIN;
}

static void choose(struct plan *plan)
{
    const struct plan_row *dense = best_dense(plan), *shortest = NULL, *nearest = NULL;
    for (size_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->rows[i];
        if (!row->is_dense && (!nearest || row->step.seconds < nearest->step.seconds))
            nearest = row;
        if (may_be_recommended(row, dense) && (!shortest || row->step.seconds < shortest->step.seconds))
            shortest = row;
    }
    plan->recommended = &plan->rows[0];
    for (size_t i = 0; shortest && i < plan->row_count; i++)
        if (may_be_recommended(&plan->rows[i], dense) &&
            plan->rows[i].step.seconds <= as_good * shortest->step.seconds) {
            plan->recommended = &plan->rows[i];
            break;
        }
    if (shortest) {
        const struct predict_gain gain = predict_gain_of(&plan->recommended->step, &dense->step);
        snprintf(plan->reason, sizeof plan->reason,
                 "A step is %.2f times as fast as the fastest without compression (80 %%: %.2f to %.2f).", gain.factor,
                 gain.low, gain.high);
    } else if (nearest) {
        const struct predict_gain gain = predict_gain_of(&nearest->step, &dense->step);
        snprintf(plan->reason, sizeof plan->reason,
                 "No codec is surely 5 %% faster: a step with the best, %s by %s, is %.2f times as fast as the fastest "
                 "without compression (80 %%: %.2f to %.2f).",
                 nearest->name, tg_algorithm_text(nearest->step.algorithm), gain.factor, gain.low, gain.high);
    } else {
        snprintf(plan->reason, sizeof plan->reason, "No codec that compresses was asked about.");
    }
}

bool plan_predict(struct plan *plan, struct message *message)
{
    for (size_t i = 0; i < plan->row_count; i++) {
        struct plan_row *row = &plan->rows[i];
        const bool is_done = row->is_ring ? predict_ring(&plan->job, &plan->network, &row->step, message)
                                          : predict_reduction(&plan->job, &plan->network, &row->coding, &row->codec,
                                                              &row->feedback, &row->options, &row->step, message);
        if (!is_done)
            return false;
        row->gain = predict_gain_of(&row->step, &plan->rows[0].step);
    }
    choose(plan);
    return true;
}
