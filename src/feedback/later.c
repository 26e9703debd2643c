/* Encoding without waiting: arguments are looked at, then jobs go to the device. */
#include <inttypes.h>

#include "base/fpenv.h"
#include "base/status.h"
#include "feedback/feedback.h"
#include "frame/encode.h"

/* Jobs that a device gets at once: more than most models have tensors, for 60 KiB of stack. One that reads host memory
 * does them one after the other, on this very stack. */
enum { TOGETHER = 224, ON_THIS_STACK = 4 };

static tg_status check(const tg_encode_call *call, const tg_device *device, tg_error *error)
{
    if (!call->codec || tg_codec_device(call->codec) != device)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_encode_later: every call needs a codec, all of one device");
    if (!call->report || !device->operations->is_shared(device, call->report))
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "the report must lie in memory from tg_device_allocate_shared, where device %s can write it",
                       device->name);
    if (!call->options.on_device || (uintptr_t)call->frame % 16 != 0)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "a frame that is encoded later stays on the device: set on_device, and give it a place at a "
                       "multiple of 16");
    if (call->feedback && call->feedback->spec.clip > 0)
        return tg_fail(error, TG_UNAVAILABLE,
                       "dgc with clipping cannot be encoded later, because the host needs the norm of the gradient; "
                       "use clip=0, or tg_encode_with_feedback");
    return call->feedback ? tg_feedback_check_step(call->codec, call->feedback, &call->gradient, error)
                          : tg_tensor_check(&call->gradient, "the input", error);
}

static tg_status make_job(const tg_encode_call *call, tg_encode_job *job, tg_error *error)
{
    const tg_tensor *g = &call->gradient;
    const tg_source source = call->feedback ? tg_feedback_source_later(call->feedback, g)
                                            : (tg_source){.gradient = g->data, .dtype = g->dtype, .count = g->count};
    tg_status status = tg_encode_prepare(call->codec, &source, &call->options, call->frame, call->capacity, job, error);
    job->step = call->step;
    job->report_to = call->report;
    return status;
}

static tg_status check_all(const tg_encode_call *calls, size_t count, const tg_device *device, tg_error *error)
{
    tg_encode_job job;
    tg_status status = TG_OK;
    size_t checked = 0;
    for (; status == TG_OK && checked < count; checked++) {
        tg_feedback *feedback = calls[checked].feedback;
        if (feedback && feedback->given) {
            status = tg_fail(error, TG_INVALID_ARGUMENT,
                             "tg_encode_later: call %zu has a feedback of an earlier call; each needs its own",
                             checked);
            break;
        }
        status = check(&calls[checked], device, error);
        if (status == TG_OK)
            status = make_job(&calls[checked], &job, error);
        if (feedback)
            feedback->given = true;
    }
    for (size_t i = 0; i < checked; i++)
        if (calls[i].feedback)
            calls[i].feedback->given = false;
    return status;
}

static void give(tg_device *device, const tg_encode_call *calls, size_t count, tg_encode_job *jobs, size_t room)
{
    for (size_t done = 0, n; done < count; done += n) {
        for (n = 0; n < room && done + n < count; n++)
            (void)make_job(&calls[done + n], &jobs[n], NULL);
        device->operations->encode_later(device, jobs, n);
    }
}

__attribute__((noinline)) static void give_few(tg_device *device, const tg_encode_call *calls, size_t count)
{
    tg_encode_job jobs[ON_THIS_STACK];
    give(device, calls, count, jobs, ON_THIS_STACK);
}

__attribute__((noinline)) static void give_many(tg_device *device, const tg_encode_call *calls, size_t count)
{
    tg_encode_job jobs[TOGETHER];
    give(device, calls, count, jobs, TOGETHER);
}

tg_status tg_encode_later(const tg_encode_call *calls, size_t count, tg_error *error)
{
    if (!calls && count > 0)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_encode_later: calls must not be NULL");
    if (count == 0)
        return tg_succeed(error);
    if (!calls[0].codec)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_encode_later: codec must not be NULL");
    tg_device *device = tg_codec_device(calls[0].codec);
    tg_status status = check_all(calls, count, device, error);
    if (status == TG_OK)
        status = tg_device_outcome(device, error);
    if (status != TG_OK)
        return status;
    tg_fp_mode before = tg_fp_enter();
    (device->reads_host ? give_few : give_many)(device, calls, count);
    tg_fp_leave(before);
    return device->failure ? tg_device_outcome(device, error) : tg_succeed(error);
}
