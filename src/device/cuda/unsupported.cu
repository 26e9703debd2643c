/* What this device does not have yet: it says so, and does nothing else. */
#include "device/cuda/device.cuh"

extern "C" tg_status tg_cuda_lacks(const tg_device *device, const tg_spec *spec, tg_error *error)
{
    return tg_fail(error, TG_UNAVAILABLE, "device %s does not have the codec %s yet; use a cpu device", device->name,
                   tg_codec_row_of(spec->codec)->name);
}

tg_status tg_cuda_make_encoder(tg_device *device, const tg_spec *spec, uint64_t, tg_encoder **, tg_error *error)
{
    return tg_cuda_lacks(device, spec, error);
}
void tg_cuda_free_encoder(tg_device *, tg_encoder *) {}
bool tg_cuda_encoder_fits(const tg_device *, const tg_encoder *, const tg_spec *) { return false; }
void tg_cuda_encode(tg_device *, tg_encode_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        jobs[i].report = tg_encode_report{.status = TG_UNAVAILABLE};
}
void tg_cuda_encode_list(tg_device *, tg_encode_job *job, const tg_list *, uint64_t, float *)
{
    job->report = tg_encode_report{.status = TG_UNAVAILABLE};
}
void tg_cuda_check(tg_device *device, tg_check_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        jobs[i].status = tg_frame_read(jobs[i].frame, &jobs[i].info, &jobs[i].error);
        if (jobs[i].status == TG_OK)
            jobs[i].status = tg_cuda_lacks(device, &jobs[i].info.spec, &jobs[i].error);
    }
}
void tg_cuda_add(tg_device *, tg_add_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        jobs[i].status = TG_UNAVAILABLE;
}
void tg_cuda_update(tg_device *, tg_settle_job *) {}
void tg_cuda_return_frame(tg_device *, tg_settle_job *) {}
