/* Sums that are not finite, under gather and scatter; under shard the owner finds them when it encodes them.
 *
 * Finite values may add up to an infinity. To find out by looking at every sum would be another pass, and too late:
 * sums are written over the gradients, which stay as they are where a step is not applied. So ranks look at how large
 * the values of frames can be, which their scales say, and add up beforehand what may come to too much. Under gather
 * every frame is looked at by another rank than its own, and all hear of what one finds by its verdict; under
 * TG_NONFINITE_DROP, where they say nothing, ranks look at their own as well. Under scatter nobody else has the frames
 * of a part, so its rank looks at all of them. */
#include "reduce/reducer.h"

static bool drops(const tg_reducer *r) { return tg_policy_of(r) == TG_NONFINITE_ZERO; }

void tg_look_at_own(tg_reduction *r, const tg_batch *batch)
{
    const uint32_t rank = r->reducer->rank;
    for (size_t i = batch->first; i < batch->first + batch->count; i++) {
        const bool here = !r->reducer->functions->has_parts || tg_goes_to(&r->plan->pieces[i], rank);
        const tg_frame own = here ? tg_received(r, i)[rank] : (tg_frame){NULL, 0};
        if (own.data) /* it was made here, so that nothing else is to be checked */
            tg_job_check(r,
                         &(tg_check_job){.frame = own, .count = TG_ANY_COUNT, .header_only = true, .wants_peak = true},
                         &(tg_checked){.may_overflow = &r->may_overflow[i]});
    }
}

/* The mean of a part of a piece in reducer->wide, looked at, and then in `narrow` unless that is NULL. Where it is not
 * finite, 0 takes its place if that is the policy; every rank that has these sums does the same. */
static void weigh(tg_reduction *r, size_t index, const tg_owned *part, const tg_tensor *narrow)
{
    tg_reducer *reducer = r->reducer;
    const tg_tensor wide = {reducer->wide, part->count, TG_FLOAT32};
    tg_job_mean(reducer, tg_received(r, index), tg_pack_received(r, index), 1.0f / (float)tg_divisor(reducer), 0,
                &wide);
    tg_jobs_add(reducer);
    tg_mean mean = {.piece = index,
                    .first = part->first,
                    .values = {.gradient = reducer->wide, .dtype = TG_FLOAT32, .count = part->count}};
    if (narrow)
        mean.narrow = *narrow;
    (void)tg_means_check(r, &mean, 1);
}

void tg_overflow_check(tg_reduction *r, size_t index, const tg_owned *part)
{
    if (!drops(r->reducer) && r->may_overflow[index])
        weigh(r, index, part, NULL);
}

void tg_mean_apply(tg_reduction *r, size_t index, uint64_t first, uint64_t among, const tg_tensor *out)
{
    tg_reducer *reducer = r->reducer;
    const size_t count = tg_pack_received(r, index);
    if (count == 0)
        return;
    if (r->may_overflow[index] && drops(reducer)) {
        tg_jobs_add(reducer); /* some of which may use reducer->wide */
        weigh(r, index, &(tg_owned){first, out->count}, out);
    } else {
        tg_job_mean(reducer, tg_received(r, index), count, 1.0f / (float)tg_divisor(reducer), among, out);
    }
}
