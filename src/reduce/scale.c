/* Residuals that follow a change of the loss scale. */
#include <inttypes.h>

#include "base/fpenv.h"
#include "base/status.h"
#include "reduce/levels.h"

static tg_status check(const tg_reducer *r, tg_feedback *f, uint32_t tensor, float factor, tg_error *error)
{
    if (!f || tg_feedback_can_scale(f, factor))
        return TG_OK;
    return tg_fail(error, TG_INVALID_ARGUMENT,
                   "a residual of tensor '%.60s' would overflow if multiplied by %g; no residual was changed",
                   r->names[tensor], (double)factor);
}

static tg_status scale_all(tg_reducer *r, float factor, tg_error *error)
{
    const size_t seconds = r->second ? r->coded.piece_count : 0;
    tg_status status = TG_OK;
    for (size_t i = 0; status == TG_OK && i < r->tensor_count; i++)
        status = check(r, r->tensors[i].feedback, (uint32_t)i, factor, error);
    for (size_t i = 0; status == TG_OK && i < seconds; i++)
        status = check(r, r->second[i], r->coded.pieces[i].tensor, factor, error);
    if (status != TG_OK)
        return status;
    for (size_t i = 0; i < r->tensor_count; i++)
        tg_feedback_scale(r->tensors[i].feedback, factor);
    for (size_t i = 0; i < seconds; i++)
        tg_feedback_scale(r->second[i], factor);
    r->stats.residual_norm *= (double)factor;
    return tg_succeed(error);
}

tg_status tg_reducer_scale(tg_reducer *reducer, float factor, tg_error *error)
{
    if (!reducer)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_reducer_scale: reducer must not be NULL");
    if (!(factor > 0 && factor - factor == 0))
        return tg_fail(error, TG_INVALID_ARGUMENT, "the factor %g is out of range: above 0 and finite", (double)factor);
    for (uint32_t i = 0; i < reducer->options.depth; i++)
        if (reducer->reductions[i].active)
            return tg_fail(error, TG_INVALID_ARGUMENT, "a reduction is in progress; scale between steps");
    tg_reducer *home = reducer->levels ? reducer->levels->inner : reducer;
    tg_fp_mode before = tg_fp_enter();
    tg_status status = home ? scale_all(home, factor, error) : tg_succeed(error);
    tg_fp_leave(before);
    return status == TG_OK ? tg_device_outcome(reducer->device, error) : status;
}
