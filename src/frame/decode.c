/* Frames to vectors: checks everything, then adds. */
#include "frame/decode.h"

#include "base/bytes.h"
#include "base/fpenv.h"
#include "base/numeric.h"
#include "base/status.h"
#include "frame/encode.h"
#include "frame/verify.h"

static tg_status add(tg_device *device, tg_add_job *job, tg_error *error)
{
    device->operations->add(device, job, 1);
    device->operations->wait(device);
    if (device->failure)
        return tg_device_outcome(device, error);
    const tg_status checked = job->checks ? tg_frames_judge(job->checks, job->frame_count, 0, error) : TG_OK;
    if (checked != TG_OK)
        return checked;
    if (job->status == TG_CORRUPT)
        return tg_fail(error, job->status, "a frame that was passed as verified breaks a rule of the format");
    if (job->status != TG_OK)
        return tg_fail(error, job->status, "device %s has no memory for the frames", device->name);
    return TG_OK;
}

tg_add_job tg_mean_job(const tg_frame *frames, size_t frame_count, float scale, float *wide, uint64_t among,
                       const tg_tensor *out)
{
    /* A power of two can scale each value instead of the sum: nothing is rounded, and a pass over the sum is saved. */
    const bool exact = (tg_float_bits(scale) & UINT32_C(0x7fffff)) == 0;
    return (tg_add_job){.frames = frames,
                        .frame_count = frame_count,
                        .weight = exact ? scale : 1,
                        .scale = exact ? 1 : scale,
                        .fresh = true,
                        .among = among,
                        .wide = wide,
                        .out = *out};
}

static tg_status decode(tg_device *device, const tg_frame *frames, size_t frame_count, float weight, unsigned flags,
                        bool fresh, const tg_tensor *out, tg_error *error)
{
    if (!device || (!frames && frame_count > 0))
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_decode: device and frames must not be NULL");
    tg_status status = tg_tensor_check(out, "the output", error);
    if (status != TG_OK)
        return status;
    if (weight - weight != 0)
        return tg_fail(error, TG_INVALID_ARGUMENT, "the weight %g is not finite", (double)weight);
    if (flags & ~(TG_VERIFIED | TG_ON_DEVICE))
        return tg_fail(error, TG_INVALID_ARGUMENT, "the flags %#x set reserved bits", flags);
    if (out->dtype != TG_FLOAT32 && frame_count > TG_MAX_NARROW_FRAMES)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "%zu frames are too many for a 16-bit output: the limit is %d; use a float32 output",
                       frame_count, TG_MAX_NARROW_FRAMES);
    for (size_t i = 0; i < frame_count; i++)
        if (tg_overlap(frames[i].data, frames[i].size, out->data, (size_t)out->count * tg_dtype_size(out->dtype)))
            return tg_fail(error, TG_INVALID_ARGUMENT, "frame %zu and the output overlap; give them separate memory",
                           i);
    tg_add_job job = {.frames = frames,
                      .frame_count = frame_count,
                      .on_device = flags & TG_ON_DEVICE,
                      .weight = weight,
                      .scale = 1,
                      .fresh = fresh,
                      .among = out->count,
                      .out = *out};
    tg_check_job checks[TG_MAX_NARROW_FRAMES];
    if (frame_count <= TG_MAX_NARROW_FRAMES) { /* one wait for both */
        job.checks = checks;
        tg_frames_ask(frames, frame_count, flags, out->count, checks);
    } else {
        status = tg_frames_check(device, frames, frame_count, flags, out->count, error);
    }
    if (status == TG_OK)
        status = add(device, &job, error);
    return status == TG_OK ? tg_succeed(error) : status;
}

tg_status tg_decode(tg_device *device, const tg_frame *frames, size_t frame_count, float weight, unsigned flags,
                    const tg_tensor *out, tg_error *error)
{
    tg_fp_mode before = tg_fp_enter();
    tg_status status = decode(device, frames, frame_count, weight, flags, true, out, error);
    tg_fp_leave(before);
    return status;
}

tg_status tg_decode_add(tg_device *device, const tg_frame *frames, size_t frame_count, float weight, unsigned flags,
                        const tg_tensor *out, tg_error *error)
{
    tg_fp_mode before = tg_fp_enter();
    tg_status status = decode(device, frames, frame_count, weight, flags, false, out, error);
    tg_fp_leave(before);
    return status;
}
