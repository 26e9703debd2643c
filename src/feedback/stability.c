/* Whether a residual stays bounded: lambda = alpha^2 gamma + (beta - alpha)^2 (ECQ-SGD, Wu et al. 2018). */
#include "base/status.h"
#include "feedback/feedback.h"
#include "frame/traits.h"

tg_status tg_stability_of(const tg_spec *codec, const tg_feedback_spec *feedback, uint64_t count,
                          tg_stability *stability, tg_error *error)
{
    if (!codec || !feedback || !stability)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_stability_of: codec, feedback and stability must not be NULL");
    tg_traits traits;
    tg_status status = tg_traits_of(codec, count, &traits, error);
    if (status == TG_OK)
        status = tg_feedback_spec_check(feedback, error);
    if (status != TG_OK)
        return status;
    const double alpha = (double)feedback->alpha, drift = (double)feedback->beta - alpha;
    tg_stability result = {.gamma = traits.gamma};
    if (feedback->kind != TG_FEEDBACK_NONE)
        result.lambda = alpha * alpha * result.gamma + drift * drift;
    result.binding = result.lambda >= 1 && traits.l2;
    *stability = result;
    return tg_succeed(error);
}
