/* Feedback step by step: compensate, then (the caller encodes) update; and return, for a frame that was not applied. */
#include <inttypes.h>

#include "base/bytes.h"
#include "base/fpenv.h"
#include "base/status.h"
#include "feedback/feedback.h"
#include "frame/encode.h"
#include "frame/verify.h"

static tg_status check(tg_feedback *f, const tg_tensor *gradient, tg_error *error)
{
    if (!f)
        return tg_fail(error, TG_INVALID_ARGUMENT, "feedback must not be NULL");
    tg_status status = tg_tensor_check(gradient, "the gradient", error);
    if (status == TG_OK && gradient->count != f->count)
        return tg_fail(error, TG_SHAPE_MISMATCH, "the gradient has %" PRIu64 " elements, but the residual has %" PRIu64,
                       gradient->count, f->count);
    return status;
}

static tg_status check_finite(const tg_feedback *f, const tg_source *source, tg_error *error)
{
    uint64_t bad = source->count;
    f->device->operations->first_nonfinite(f->device, source, &bad);
    f->device->operations->wait(f->device);
    if (f->device->failure)
        return tg_device_outcome(f->device, error);
    if (bad == source->count)
        return TG_OK;
    tg_status status = tg_residual_check(source, 0, f->device, error);
    if (status != TG_OK)
        return status;
    return tg_fail(error, TG_NONFINITE,
                   "element %" PRIu64 " of the gradient, or its sum with the residual, is not finite", bad);
}

static tg_status compensate(tg_feedback *f, const tg_tensor *gradient, const tg_tensor *u, tg_error *error)
{
    const tg_source source = tg_feedback_source(f, gradient);
    tg_status status = check_finite(f, &source, error);
    if (status != TG_OK)
        return status;
    f->device->operations->compensate(f->device, &source, u->data);
    f->device->operations->wait(f->device);
    return f->device->failure ? tg_device_outcome(f->device, error) : tg_succeed(error);
}

tg_status tg_feedback_compensate(tg_feedback *feedback, const tg_tensor *gradient, const tg_tensor *u, tg_error *error)
{
    tg_status status = check(feedback, gradient, error);
    if (status == TG_OK)
        status = tg_tensor_check(u, "u", error);
    if (status != TG_OK)
        return status;
    if (u->dtype != TG_FLOAT32 || u->count != feedback->count)
        return tg_fail(error, TG_SHAPE_MISMATCH, "u must be float32 and have the residual's %" PRIu64 " elements",
                       feedback->count);
    const size_t gradient_size = (size_t)gradient->count * tg_dtype_size(gradient->dtype);
    const bool in_place = gradient->data == u->data && gradient->dtype == TG_FLOAT32;
    if (!in_place && tg_overlap(gradient->data, gradient_size, u->data, (size_t)u->count * sizeof(float)))
        return tg_fail(error, TG_INVALID_ARGUMENT, "the gradient and u overlap; give them separate memory");
    tg_fp_mode before = tg_fp_enter();
    tg_feedback_find(feedback);
    status = compensate(feedback, gradient, u, error);
    tg_fp_leave(before);
    return status;
}

/* Compares the count in a frame's header with the expected one, before the contents are checked: a few bytes may stand
 * for four billion elements, and take as long to check. */
static tg_status compare_count(tg_frame frame, uint64_t count, tg_error *error)
{
    tg_frame_info info;
    tg_status status = tg_frame_read(frame, &info, error);
    if (status == TG_OK && info.count != count)
        return tg_fail(error, TG_SHAPE_MISMATCH, "the frame has %" PRIu64 " elements, but the residual has %" PRIu64,
                       info.count, count);
    return status;
}

/* Frames with smaller values cannot make a residual overflow: they are less than half a unit in the last place of the
 * largest float32. */
static const uint32_t harmless = UINT32_C(0x73000000); /* 2^103 */

typedef void settle(tg_device *device, tg_settle_job *job);

/* Checks the frame; if it has huge values, also checks whether the residual would overflow; then runs the job. */
static tg_status check_and_settle(tg_feedback *f, tg_settle_job *job, settle *run, tg_error *error)
{
    tg_frame_info info;
    uint32_t peak = 0;
    tg_status status = tg_frame_check(f->device, job->frame, &info, &peak, error);
    if (status != TG_OK || f->spec.kind == TG_FEEDBACK_NONE)
        return status;
    if (peak >= harmless) {
        job->only_checks = true;
        run(f->device, job);
        f->device->operations->wait(f->device);
        job->only_checks = false;
        if (f->device->failure)
            return tg_device_outcome(f->device, error);
        if (job->overflow < f->count)
            return tg_fail(error, TG_NONFINITE,
                           "element %" PRIu64 " of the residual would overflow; the residual is unchanged",
                           job->overflow);
    }
    run(f->device, job);
    f->device->operations->wait(f->device);
    return f->device->failure ? tg_device_outcome(f->device, error) : tg_succeed(error);
}

static tg_status update(tg_feedback *f, const tg_tensor *gradient, tg_frame frame, tg_error *error)
{
    tg_status status = compare_count(frame, f->count, error);
    if (status != TG_OK)
        return status;
    tg_settle_job job = {.source = tg_feedback_source(f, gradient), .frame = frame};
    status = check_finite(f, &job.source, error);
    return status == TG_OK ? check_and_settle(f, &job, f->device->operations->update, error) : status;
}

tg_status tg_feedback_update(tg_feedback *feedback, const tg_tensor *gradient, tg_frame frame, tg_error *error)
{
    tg_status status = check(feedback, gradient, error);
    if (status != TG_OK)
        return status;
    tg_fp_mode before = tg_fp_enter();
    tg_feedback_find(feedback);
    status = update(feedback, gradient, frame, error);
    tg_fp_leave(before);
    return status;
}

/* Whether these are increasing indices of a vector of `count` elements. */
static tg_status check_applied(const uint32_t *applied, size_t applied_count, uint64_t count, tg_error *error)
{
    if (!applied && applied_count > 0)
        return tg_fail(error, TG_INVALID_ARGUMENT, "applied is NULL, but applied_count is %zu", applied_count);
    for (size_t i = 1; i < applied_count; i++)
        if (applied[i] <= applied[i - 1])
            return tg_fail(error, TG_INVALID_ARGUMENT,
                           "applied indices must increase: %" PRIu32 " comes after %" PRIu32, applied[i],
                           applied[i - 1]);
    if (applied_count > 0 && applied[applied_count - 1] >= count)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "applied index %" PRIu32 " is out of range: the residual has %" PRIu64 " elements",
                       applied[applied_count - 1], count);
    return TG_OK;
}

static tg_status give_back(tg_feedback *f, tg_frame frame, const uint32_t *applied, size_t applied_count,
                           tg_error *error)
{
    tg_status status = check_applied(applied, applied_count, f->count, error);
    if (status == TG_OK)
        status = compare_count(frame, f->count, error);
    if (status != TG_OK)
        return status;
    tg_settle_job job = {
        .source.residual = f->residual, .frame = frame, .applied = applied, .applied_count = applied_count};
    return check_and_settle(f, &job, f->device->operations->return_frame, error);
}

tg_status tg_feedback_return(tg_feedback *feedback, tg_frame frame, const uint32_t *applied, size_t applied_count,
                             tg_error *error)
{
    if (!feedback)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_feedback_return: feedback must not be NULL");
    if (feedback->spec.kind == TG_FEEDBACK_NONE)
        return tg_fail(error, TG_INVALID_ARGUMENT, "feedback none has no residual to return a frame to");
    tg_fp_mode before = tg_fp_enter();
    tg_feedback_find(feedback);
    tg_status status = give_back(feedback, frame, applied, applied_count, error);
    tg_fp_leave(before);
    return status;
}

uint64_t tg_feedback_return_piece(tg_feedback *feedback, tg_frame frame, bool on_device, uint64_t first)
{
    tg_device *device = feedback->device;
    if (feedback->spec.kind == TG_FEEDBACK_NONE)
        return 0;
    tg_check_job check = {.frame = frame, .count = TG_ANY_COUNT, .on_device = on_device};
    device->operations->check(device, &check, 1);
    device->operations->wait(device);
    /* This rank made the frame for this residual, so it cannot be refused. */
    if (check.status != TG_OK || check.info.count > feedback->count - first)
        return 0;
    tg_settle_job job = {.source.residual = feedback->residual + first, .frame = frame, .on_device = on_device};
    device->operations->return_frame(device, &job);
    device->operations->wait(device);
    return job.limited;
}
