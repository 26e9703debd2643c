/* Predictions of a step, from its schedule. */
#include "predict.h"

#include "schedule.h"

#include <math.h>

/* That without which a step would be shortest; computing if nothing else matters. */
static enum predict_bound bound_of(const struct schedule *schedule, const struct predict_job *job,
                                   const struct predict_network *network)
{
    static const struct {
        enum predict_bound bound;
        struct shares without;
    } tries[] = {{PREDICT_COMPUTING, {0, 1, 1, 1}},
                 {PREDICT_CODING, {1, 0, 1, 1}},
                 {PREDICT_WIRE, {1, 1, 0, 1}},
                 {PREDICT_LATENCY, {1, 1, 1, 0}}};
    enum predict_bound bound = PREDICT_COMPUTING;
    double shortest = INFINITY;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        const double seconds = schedule_best(schedule, job, network, PREDICT_MIDDLE, &tries[i].without, NULL);
        if (seconds < shortest) {
            shortest = seconds;
            bound = tries[i].bound;
        }
    }
    return bound;
}

/* What is uncertain is what comes beside computing, which is what it was measured or said to be. */
static double with_error(double seconds, double computing, double error)
{
    return seconds > computing ? computing + (seconds - computing) * (1 + error) : seconds;
}

bool predict_scheduled(const struct schedule *schedule, const struct predict_job *job,
                       const struct predict_network *network, double low, double high, struct predict_step *step,
                       struct failure *failure)
{
    const struct shares all = {1, 1, 1, 1}, fast = {1, low, 1, 1}, slow = {1, high, 1, 1};
    const bool is_fitted = schedule->low > 0;
    const double unfitted = schedule_has_levels(schedule) && !is_fitted ? PREDICT_LEVELS_ERROR : PREDICT_MODEL_ERROR,
                 error = is_fitted ? PREDICT_FIT_ERROR : unfitted;
    struct predict_step made = {
        .seconds = schedule_best(schedule, job, network, PREDICT_MIDDLE, &all, NULL),
        .computing = job->forward + job->backward,
        .low = schedule_best(schedule, job, network, PREDICT_LOW, &fast, NULL),
        .high = schedule_best(schedule, job, network, PREDICT_HIGH, &slow, NULL),
        .fast_network = schedule_best(schedule, job, network, PREDICT_LOW, &slow, NULL),
        .slow_network = schedule_best(schedule, job, network, PREDICT_HIGH, &fast, NULL),
        .bytes = schedule->bytes,
        .error = unfitted,
        .bound = bound_of(schedule, job, network),
        .algorithm = schedule->algorithm,
        .estimated = schedule->estimated,
    };
    if (isnan(made.seconds))
        return fail(failure, "out of memory for %zu exchanges", schedule->count);
    if (is_fitted) { /* how reductions vary says more than how their parts do */
        const struct shares least = {1, schedule->low, schedule->low, schedule->low},
                            most = {1, schedule->high, schedule->high, schedule->high};
        made.low = schedule_best(schedule, job, network, PREDICT_MIDDLE, &least, NULL);
        made.high = schedule_best(schedule, job, network, PREDICT_MIDDLE, &most, NULL);
    }
    made.low = with_error(made.low, made.computing, -error);
    made.high = with_error(made.high, made.computing, error);
    /* Beyond the last points of a probe, its quantiles go on with slopes of their own, and may cross. */
    made.low = made.low < made.seconds ? made.low : made.seconds;
    made.high = made.high > made.seconds ? made.high : made.seconds;
    made.coding = schedule->last;
    for (size_t i = 0; i < schedule->count; i++) {
        const struct scheduled *e = &schedule->exchanges[i];
        made.coding += e->usual_before + e->behind;
        const struct exchange_time time = exchange_time_of(network, job, e->pattern, e->scope, e->usual_bytes,
                                                           e->messages, PREDICT_MIDDLE);
        made.wire += time.fixed + bytes_time(&time);
        made.extrapolated = made.extrapolated || is_extrapolated(network, job, e->pattern, e->scope, e->bytes);
    }
    *step = made;
    return true;
}

bool predict_reduction(const struct predict_job *job, const struct predict_network *network,
                       const struct predict_coding *coding, const tg_spec *codec, const tg_feedback_spec *feedback,
                       const tg_reducer_options *options, struct predict_step *step, struct failure *failure)
{
    struct schedule schedule;
    if (!predict_job_check(job, failure) || !predict_network_check(network, failure) ||
        !predict_coding_check(coding, failure) ||
        !schedule_of_reduction(job, coding, codec, feedback, options, &schedule, failure))
        return false;
    schedule_fit(&schedule, job, network, coding);
    const bool is_done = predict_scheduled(&schedule, job, network, coding->low, coding->high, step, failure);
    schedule_free(&schedule);
    return is_done;
}

bool predict_ring(const struct predict_job *job, const struct predict_network *network, struct predict_step *step,
                  struct failure *failure)
{
    struct schedule schedule;
    if (!predict_job_check(job, failure) || !predict_network_check(network, failure) ||
        !schedule_of_ring(job, &schedule, failure))
        return false;
    const bool is_done = predict_scheduled(&schedule, job, network, 1, 1, step, failure);
    schedule_free(&schedule);
    return is_done;
}

struct predict_gain predict_gain_of(const struct predict_step *step, const struct predict_step *over)
{
    if (!(step->seconds > 0 && step->fast_network > 0 && step->slow_network > 0))
        return (struct predict_gain){1, 1, 1}; /* nothing takes any time */
    const double fast = over->fast_network / step->fast_network, slow = over->slow_network / step->slow_network;
    const struct predict_gain middle = {.factor = over->seconds / step->seconds};
    const bool fast_gains_less = fast < slow;
    /* Two errors that are independent: each counts 1 in sqrt 2. */
    const double error = step->error * 0.70710678118654752, over_error = over->error * 0.70710678118654752;
    const double over_low = fast_gains_less ? over->fast_network : over->slow_network,
                 step_low = fast_gains_less ? step->fast_network : step->slow_network,
                 over_high = fast_gains_less ? over->slow_network : over->fast_network,
                 step_high = fast_gains_less ? step->slow_network : step->fast_network;
    const double low = with_error(over_low, over->computing, -over_error) /
                       with_error(step_low, step->computing, error),
                 high = with_error(over_high, over->computing, over_error) /
                        with_error(step_high, step->computing, -error);
    return (struct predict_gain){middle.factor, low < middle.factor ? low : middle.factor,
                                 high > middle.factor ? high : middle.factor};
}
