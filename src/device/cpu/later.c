/* What is done later on a card, a CPU does at once. */
#include <string.h>

#include "base/bytes.h"
#include "codec/header.h"
#include "device/cpu/cpu.h"

void tg_cpu_encode_later(tg_device *device, const tg_encode_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        tg_encode_job job = jobs[i];
        if (job.step)
            job.options.draw.step = *job.step;
        tg_cpu_encode(device, &job, 1);
        *job.report_to = job.report;
    }
}

/* Whether the header is what `like` says, but for the draw and, of a sparse frame, for a size that fits. Then `size` is
 * the frame's. */
static bool is_like(const tg_frame *frame, const tg_frame_info *like, size_t *size)
{
    uint8_t expected[TG_HEADER_SIZE];
    const uint8_t *header = frame->data;
    tg_frame_info info = *like;
    info.bytes = frame->size;
    tg_header_write(&info, expected);
    const bool sparse = tg_codec_row_of(like->spec.codec)->sparse;
    const uint64_t payload = tg_load64(header + 32), most = frame->size - TG_HEADER_SIZE;
    *size = sparse && payload <= most ? (size_t)payload + TG_HEADER_SIZE : frame->size;
    return memcmp(header, expected, 20) == 0 && memcmp(header + 24, expected + 24, 8) == 0 &&
           (sparse ? payload <= most : payload == most);
}

static tg_status add(tg_device *device, const tg_add_later_job *job)
{
    tg_frame frames[TG_MAX_LATER_FRAMES];
    tg_check_job checks[TG_MAX_LATER_FRAMES];
    for (size_t k = 0; k < job->frame_count; k++) {
        frames[k] = job->frames[k];
        if (!is_like(&job->frames[k], job->like, &frames[k].size))
            return TG_LAYOUT_MISMATCH;
        checks[k] = (tg_check_job){.frame = frames[k], .count = job->out.count, .header_only = job->verified};
    }
    tg_add_job adding = {.frames = frames,
                         .frame_count = job->frame_count,
                         .checks = checks,
                         .weight = job->weight,
                         .scale = 1,
                         .among = job->out.count,
                         .out = job->out};
    tg_cpu_add(device, &adding, 1);
    return adding.status == TG_OK ? TG_OK : TG_CORRUPT;
}

tg_status tg_cpu_can_add_later(const tg_device *device, const tg_add_later_job *job, tg_error *error)
{
    (void)device, (void)job, (void)error;
    return TG_OK;
}

void tg_cpu_add_later(tg_device *device, const tg_add_later_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        *jobs[i].status_to = add(device, &jobs[i]);
}

bool tg_cpu_reserve(tg_device *device, const tg_spec *spec, uint64_t count, size_t frames)
{
    (void)device, (void)spec, (void)count, (void)frames;
    return true;
}
