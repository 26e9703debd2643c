/* Verifying frames, and measuring them. */
#include "frame/verify.h"

#include <inttypes.h>

#include "base/fpenv.h"
#include "base/status.h"

static void check(tg_device *device, tg_check_job *jobs, size_t count)
{
    device->operations->check(device, jobs, count);
    device->operations->wait(device);
}

tg_status tg_frame_check(tg_device *device, tg_frame frame, tg_frame_info *info, uint32_t *peak, tg_error *error)
{
    tg_check_job job = {.frame = frame, .count = TG_ANY_COUNT, .wants_peak = peak != NULL};
    check(device, &job, 1);
    *info = job.info;
    if (peak)
        *peak = job.peak;
    return job.status == TG_OK ? tg_succeed(error) : tg_fail(error, job.status, "%s", job.error.message);
}

/* What is wrong with the frame of a job, which is frame `f` of a list. */
static tg_status judge(const tg_check_job *job, size_t f, tg_error *error)
{
    if (job->status == TG_SHAPE_MISMATCH)
        return tg_fail(error, TG_SHAPE_MISMATCH, "frame %zu has %" PRIu64 " elements, but the output has %" PRIu64, f,
                       job->info.count, job->count);
    return job->status == TG_OK ? TG_OK : tg_fail(error, job->status, "frame %zu: %s", f, job->error.message);
}

void tg_frames_ask(const tg_frame *frames, size_t frame_count, unsigned flags, uint64_t count, tg_check_job *jobs)
{
    for (size_t i = 0; i < frame_count; i++)
        jobs[i] = (tg_check_job){
            .frame = frames[i], .count = count, .header_only = flags & TG_VERIFIED, .on_device = flags & TG_ON_DEVICE};
}

tg_status tg_frames_judge(const tg_check_job *jobs, size_t frame_count, size_t first, tg_error *error)
{
    tg_status status = TG_OK;
    for (size_t i = 0; status == TG_OK && i < frame_count; i++)
        status = judge(&jobs[i], first + i, error);
    return status;
}

tg_status tg_frames_check(tg_device *device, const tg_frame *frames, size_t frame_count, unsigned flags, uint64_t count,
                          tg_error *error)
{
    tg_check_job jobs[TG_MAX_NARROW_FRAMES];
    tg_status status = TG_OK;
    for (size_t done = 0, n; status == TG_OK && done < frame_count; done += n) {
        n = frame_count - done < TG_MAX_NARROW_FRAMES ? frame_count - done : TG_MAX_NARROW_FRAMES;
        tg_frames_ask(frames + done, n, flags, count, jobs);
        check(device, jobs, n);
        status = tg_frames_judge(jobs, n, done, error);
    }
    return status;
}

uint32_t tg_frame_peak(tg_device *device, tg_frame frame)
{
    tg_check_job job = {.frame = frame, .count = TG_ANY_COUNT, .header_only = true, .wants_peak = true};
    check(device, &job, 1);
    return job.peak;
}

tg_status tg_frame_verify(tg_device *device, tg_frame frame, tg_frame_info *info, tg_error *error)
{
    if (!device)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_frame_verify: device must not be NULL");
    tg_frame_info read;
    tg_fp_mode before = tg_fp_enter();
    tg_status status = tg_frame_check(device, frame, &read, NULL, error);
    tg_fp_leave(before);
    if (status == TG_OK && info)
        *info = read;
    return status;
}

tg_status tg_frame_measure(tg_device *device, tg_frame frame, tg_frame_parts *parts, tg_error *error)
{
    if (!device || !parts)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_frame_measure: device and parts must not be NULL");
    tg_frame_info info;
    tg_fp_mode before = tg_fp_enter();
    tg_status status = tg_frame_check(device, frame, &info, NULL, error);
    if (status == TG_OK) {
        device->operations->measure(device, frame, &info, parts);
        device->operations->wait(device);
    }
    tg_fp_leave(before);
    return status;
}
