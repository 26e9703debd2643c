/* Decoding without waiting: arguments are looked at, then jobs go to the device. */
#include <inttypes.h>

#include "base/bytes.h"
#include "base/fpenv.h"
#include "base/status.h"
#include "codec/header.h"
#include "device/device.h"
#include "frame/encode.h"

enum { TOGETHER = 64 };

static tg_status check_frames(const tg_decode_call *call, tg_error *error)
{
    if (!call->frames || call->frame_count == 0 || call->frame_count > TG_MAX_LATER_FRAMES)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_decode_add_later takes 1 to %d frames for an output, not %zu",
                       TG_MAX_LATER_FRAMES, call->frame_count);
    for (size_t k = 0; k < call->frame_count; k++) {
        const tg_frame f = call->frames[k];
        if (!f.data || f.size < TG_HEADER_SIZE || (uintptr_t)f.data % 16 != 0)
            return tg_fail(error, TG_INVALID_ARGUMENT,
                           "frame %zu needs memory of the device at a multiple of 16, and at least %d bytes of it", k,
                           TG_HEADER_SIZE);
        if (tg_overlap(f.data, f.size, call->out.data, (size_t)call->out.count * tg_dtype_size(call->out.dtype)))
            return tg_fail(error, TG_INVALID_ARGUMENT, "frame %zu and the output overlap; give them separate memory",
                           k);
    }
    return TG_OK;
}

static tg_status check(const tg_device *device, const tg_decode_call *call, tg_error *error)
{
    tg_status status = tg_tensor_check(&call->out, "the output", error);
    if (status == TG_OK)
        status = check_frames(call, error);
    if (status != TG_OK)
        return status;
    if (!call->status || !device->operations->is_shared(device, call->status))
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "the status must lie in memory from tg_device_allocate_shared, where device %s can write it",
                       device->name);
    if (call->weight - call->weight != 0)
        return tg_fail(error, TG_INVALID_ARGUMENT, "the weight %g is not finite", (double)call->weight);
    if (!call->like)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_decode_add_later: like must not be NULL");
    status = tg_spec_check(&call->like->spec, error);
    if (status == TG_OK && call->like->count != call->out.count)
        return tg_fail(error, TG_SHAPE_MISMATCH, "the frames have %" PRIu64 " elements, but the output has %" PRIu64,
                       call->like->count, call->out.count);
    return status;
}

static tg_add_later_job job_of(const tg_decode_call *call)
{
    return (tg_add_later_job){.frames = call->frames,
                              .frame_count = call->frame_count,
                              .like = call->like,
                              .verified = call->verified,
                              .weight = call->weight,
                              .out = call->out,
                              .status_to = call->status};
}

tg_status tg_decode_add_later(tg_device *device, const tg_decode_call *calls, size_t count, tg_error *error)
{
    if (!device || (!calls && count > 0))
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_decode_add_later: device and calls must not be NULL");
    tg_status status = tg_device_outcome(device, error);
    for (size_t i = 0; status == TG_OK && i < count; i++)
        status = check(device, &calls[i], error);
    for (size_t i = 0; status == TG_OK && i < count; i++) { /* all of them, before the first is put on the stream */
        const tg_add_later_job job = job_of(&calls[i]);
        status = device->operations->can_add_later(device, &job, error);
    }
    if (status != TG_OK)
        return status;
    tg_add_later_job jobs[TOGETHER];
    tg_fp_mode before = tg_fp_enter();
    for (size_t done = 0, n; done < count; done += n) {
        for (n = 0; n < TOGETHER && done + n < count; n++)
            jobs[n] = job_of(&calls[done + n]);
        device->operations->add_later(device, jobs, n);
    }
    tg_fp_leave(before);
    return device->failure ? tg_device_outcome(device, error) : tg_succeed(error);
}
