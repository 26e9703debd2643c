/* Predictions for all rows, and which to recommend. See plan.h. */
#include "plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Steps so near the shortest are as good: the gentler codec, which comes first, is taken. */
static const double as_good = 1.02;

/* Beyond this, libraries may use a tree where a ring's rounds would take too long. */
static const uint32_t most_in_a_ring = 8;

bool plan_has_row(const struct plan_row *row, uint32_t world)
{
    if (row->is_tree)
        return world > most_in_a_ring;
    return row->is_ring || row->options.algorithm == TG_GATHER || world > 1; /* alone, both are the same */
}

/* Compression must beat the best that can be had without. */
static size_t best_dense(const struct plan *plan, const struct predict_step *steps, uint32_t world)
{
    size_t best = 0;
    for (size_t i = 1; i < plan->row_count; i++)
        if (plan->rows[i].is_dense && plan_has_row(&plan->rows[i], world) && steps[i].seconds < steps[best].seconds)
            best = i;
    return best;
}

/* The shortest step of a codec that compresses, or 0; only of those whose gain is sure, or of all. */
static size_t shortest(const struct plan *plan, const struct predict_step *steps, uint32_t world, size_t dense,
                       bool sure)
{
    size_t found = 0;
    for (size_t i = 1; i < plan->row_count; i++)
        if (!plan->rows[i].is_dense && plan_has_row(&plan->rows[i], world) &&
            (!sure || predict_gain_of(&steps[i], &steps[dense]).low >= PLAN_LEAST_GAIN) &&
            (found == 0 || steps[i].seconds < steps[found].seconds))
            found = i;
    return found;
}

size_t plan_choice(const struct plan *plan, const struct predict_step *steps, uint32_t world)
{
    const size_t dense = best_dense(plan, steps, world), best = shortest(plan, steps, world, dense, true);
    for (size_t i = 1; i < best; i++)
        if (!plan->rows[i].is_dense && plan_has_row(&plan->rows[i], world) &&
            steps[i].seconds <= as_good * steps[best].seconds &&
            predict_gain_of(&steps[i], &steps[dense]).low >= PLAN_LEAST_GAIN)
            return i;
    return best;
}

static void choose(struct plan *plan, const struct predict_step *steps)
{
    const uint32_t world = plan->job.world;
    const size_t choice = plan_choice(plan, steps, world), dense = best_dense(plan, steps, world),
                 nearest = choice > 0 ? choice : shortest(plan, steps, world, dense, false);
    const struct predict_gain gain = predict_gain_of(&steps[nearest], &steps[dense]);
    plan->recommended = &plan->rows[choice]; /* 0 says `none`, whether in a ring or a tree */
    if (choice > 0)
        snprintf(plan->reason, sizeof plan->reason,
                 "A step is %.2f times as fast as the fastest without compression (80 %%: %.2f to %.2f).", gain.factor,
                 gain.low, gain.high);
    else if (nearest > 0)
        snprintf(plan->reason, sizeof plan->reason,
                 "No codec is surely 5 %% faster: a step with the best, %s by %s, is %.2f times as fast as the fastest "
                 "without compression (80 %%: %.2f to %.2f).",
                 plan->rows[nearest].name, plan_algorithm(&plan->rows[nearest]), gain.factor, gain.low, gain.high);
    else
        snprintf(plan->reason, sizeof plan->reason, "No codec that compresses was asked about.");
}

bool plan_schedule(const struct plan_row *row, const struct predict_job *job, struct schedule *schedule,
                   struct failure *failure)
{
    struct predict_job dense = *job;
    dense.tree = row->is_tree;
    if (row->is_ring)
        return schedule_of_ring(&dense, schedule, failure);
    /* One host alone stays at one level, as a run does by itself. */
    const bool has_levels = job->per_node > 1 && job->per_node < job->world && !row->is_flat;
    uint32_t *hosts = has_levels ? schedule_hosts(job) : NULL;
    tg_reducer_options options = row->options;
    options.host_of_rank = hosts;
    const bool is_done = (hosts || !has_levels || fail(failure, "out of memory for %u ranks", job->world)) &&
                         schedule_of_reduction(job, &row->coding, &row->codec, &row->feedback, &options, schedule,
                                               failure);
    free(hosts);
    return is_done;
}

/* ---- a row ---- */

static bool fitted_schedule(const struct plan *plan, const struct plan_row *row, struct schedule *schedule,
                            struct failure *failure)
{
    if (!plan_schedule(row, &plan->job, schedule, failure))
        return false;
    schedule_fit(schedule, &plan->job, &plan->network, &row->coding);
    return true;
}

static bool predict_row(const struct plan *plan, struct plan_row *row, struct failure *failure)
{
    struct schedule schedule;
    if (!predict_coding_check(&row->coding, failure) || !fitted_schedule(plan, row, &schedule, failure))
        return false;
    const bool is_done = predict_scheduled(&schedule, &plan->job, &plan->network, row->coding.low, row->coding.high,
                                           &row->step, failure);
    schedule_free(&schedule);
    row->step.extrapolated = row->step.extrapolated || row->is_far;
    row->uniform_seconds = -1; /* not looked at by the simulation */
    return is_done;
}

/* ---- simulated ---- */

/* A second or less. Beyond so many events, rows that would not be chosen are left out. */
static const double few_events = 2e7;

/* The simulation says how much longer a step is than on a uniform network; intervals move with it, and are as wide as
 * its steps differ at least. */
static void use_simulated(struct plan_row *row)
{
    struct predict_step *step = &row->step;
    const double factor = step->seconds > 0 ? row->simulated.mean / step->seconds : 1;
    step->seconds = row->simulated.mean;
    step->low = step->low * factor < row->simulated.low ? step->low * factor : row->simulated.low;
    step->high = step->high * factor > row->simulated.high ? step->high * factor : row->simulated.high;
    step->fast_network *= factor;
    step->slow_network *= factor;
}

/* `limit`: beyond so many seconds it will not be chosen. */
static bool simulate_row(const struct plan *plan, struct plan_row *row, double limit, struct failure *failure)
{
    struct schedule schedule;
    if (!fitted_schedule(plan, row, &schedule, failure))
        return false;
    const double events = (double)plan->cluster.steps * plan->job.world * (double)schedule.count;
    row->uniform_seconds = row->step.seconds;
    row->is_too_slow = events > few_events && row->step.seconds > limit;
    const bool is_done = row->is_too_slow ||
                         simulate(&schedule, &plan->job, &plan->network, &plan->cluster, &row->simulated, failure);
    schedule_free(&schedule);
    if (is_done && !row->is_too_slow)
        use_simulated(row);
    return is_done;
}

/* Of those with or without compression the fastest that was not looked at yet; NULL: all were. */
static struct plan_row *next_to_simulate(struct plan *plan, bool is_dense)
{
    struct plan_row *next = NULL;
    for (size_t i = 0; i < plan->row_count; i++) {
        struct plan_row *row = &plan->rows[i];
        if (plan_has_row(row, plan->job.world) && row->is_dense == is_dense && row->uniform_seconds < 0 &&
            (!next || row->step.seconds < next->step.seconds))
            next = row;
    }
    return next;
}

static bool simulate_rows(struct plan *plan, bool is_dense, struct failure *failure)
{
    double limit = INFINITY;
    for (struct plan_row *row; (row = next_to_simulate(plan, is_dense)) != NULL;) {
        if (!simulate_row(plan, row, limit, failure))
            return false;
        if (!row->is_too_slow && PLAN_TOO_SLOW * row->step.high < limit)
            limit = PLAN_TOO_SLOW * row->step.high;
    }
    return true;
}

/* ---- all of them ---- */

bool plan_predict(struct plan *plan, struct failure *failure)
{
    struct predict_step steps[PLAN_MOST_ROWS] = {{0}};
    for (size_t i = 0; i < plan->row_count; i++) {
        struct plan_row *row = &plan->rows[i];
        if (!plan_has_row(row, plan->job.world))
            continue;
        if (!predict_row(plan, row, failure))
            return false;
    }
    if (plan->options->simulate && !(simulate_rows(plan, true, failure) && simulate_rows(plan, false, failure)))
        return false;
    for (size_t i = 0; i < plan->row_count; i++)
        steps[i] = plan->rows[i].step;
    plan_note_too_slow(plan);
    if (plan->lacks_notes)
        return fail(failure, "out of memory for the list of inputs");
    const struct plan_row *ring = &plan->rows[0], *second = &plan->rows[1];
    const bool has_tree = plan_has_row(second, plan->job.world);
    const struct plan_row *baseline = has_tree && second->step.seconds < ring->step.seconds ? second : ring;
    for (size_t i = 0; i < plan->row_count; i++)
        if (plan_has_row(&plan->rows[i], plan->job.world))
            plan->rows[i].gain = predict_gain_of(&plan->rows[i].step, &baseline->step);
    choose(plan, steps);
    return true;
}
