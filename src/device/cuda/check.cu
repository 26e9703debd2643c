/* Checking frames: the header on the host, the rest on the card. */
#include "device/cuda/checksum.cuh"
#include "device/cuda/received.cuh"

#include <inttypes.h>

constexpr u32 THREADS = 256, AT_ONCE = 64;

/* Looks at every value, or every scale and the padding. */
__global__ void __launch_bounds__(THREADS) inspect(dense_frame f, u64 words, control *c)
{
    u32 largest = 0;
    bool bad = false;
    const u64 start = blockIdx.x * (u64)THREADS + threadIdx.x, step = (u64)gridDim.x * THREADS;
    if (f.kind != PLAIN) {
        look_at_scales(f, 0, words, start, step, c);
        return;
    }
    for (u64 i = start; i < words; i += step) {
        const u32 magnitude = tg_float_bits(element_at(f.codes, f.wire, i)) & TG_MAGNITUDE_MASK;
        bad = bad || magnitude >= TG_INFINITY_BITS;
        largest = max(largest, magnitude);
    }
    largest = warp_max(largest);
    if (__any_sync(FULL, bad) && lane_id() == 0)
        atomicOr(&c->bad, 1u);
    if (lane_id() == 0)
        atomicMax(&c->peak, largest);
}

#define FLOAT16_PEAK UINT32_C(0x477fe000) /* 65504: as on the CPU, which does not look */

static uint32_t peak_of(const tg_check_job *job, const control *seen)
{
    dense_frame f;
    const tg_values values = tg_spec_values(&job->info.spec);
    if (is_sparse(&job->info) && values != TG_VALUES_LEVELS)
        return values == TG_VALUES_FP16 ? FLOAT16_PEAK : seen->peak;
    (void)tg_cuda_dense_frame(&job->info.spec, job->info.dtype, job->info.count, NULL, &f);
    if (f.kind == PLAIN && f.wire == TG_FLOAT16)
        return FLOAT16_PEAK;
    const uint32_t doubled = seen->peak + UINT32_C(0x800000);
    return !f.affine ? seen->peak : doubled < TG_MAX_FINITE_BITS ? doubled : TG_MAX_FINITE_BITS;
}

static bool has_wrong_count(const tg_check_job *job)
{
    return job->count != TG_ANY_COUNT && job->info.count != job->count;
}

static tg_status check_count(tg_check_job *job)
{
    if (has_wrong_count(job))
        return tg_fail(&job->error, TG_SHAPE_MISMATCH, "it has %" PRIu64 " elements instead of %" PRIu64,
                       job->info.count, job->count);
    return TG_OK;
}

/* p->number: the checksum that the header has, and 1 if the payload has the size that it should have. */
static void complete_check(tg_cuda *cuda, const pending *p, const control *seen)
{
    tg_check_job *job = (tg_check_job *)p->of;
    const uint32_t written = (uint32_t)(p->number >> 1);
    if (cuda->failure != cudaSuccess)
        job->status = tg_fail(&job->error, TG_UNAVAILABLE, "device %s failed: %s", cuda->device.name,
                              cudaGetErrorString(cuda->failure));
    else if (job->info.has_checksum && !job->header_only && seen->checksum != written)
        job->status = tg_fail(&job->error, TG_CHECKSUM_MISMATCH,
                              "checksum mismatch: the header has %08" PRIx32 ", the bytes give %08" PRIx32
                              "; the frame is damaged",
                              written, seen->checksum);
    else
        job->status = check_count(job);
    if (job->status == TG_OK && !job->header_only && (!(p->number & 1) || seen->bad))
        job->status = tg_fail(&job->error, TG_CORRUPT, "the payload of this %s frame breaks a rule of the format",
                              tg_codec_row_of(job->info.spec.codec)->name);
    if (job->status == TG_OK && job->wants_peak)
        job->peak = peak_of(job, seen);
}

/* The header; false if that is all there is to do. */
static bool begin(tg_cuda *cuda, tg_frame header, tg_check_job *job)
{
    job->info = tg_frame_info{};
    job->error.message[0] = '\0';
    job->status = tg_frame_read(header, &job->info, &job->error);
    const bool reads = job->status == TG_OK && can_read(&job->info, false);
    if (job->status == TG_OK && !reads && !job->on_device) /* damaged frames get the verdict that they get elsewhere */
        cuda->host->operations->check(cuda->host, job, 1);
    if (job->status == TG_OK && !reads)
        job->status = tg_fail(&job->error, TG_UNAVAILABLE, "device %s cannot read frames of %s with layout %s yet",
                              cuda->device.name, tg_codec_row_of(job->info.spec.codec)->name,
                              tg_layout_text(job->info.layout));
    const bool lists = job->status == TG_OK && is_sparse(&job->info) && header.size >= TG_HEADER_SIZE + 4;
    job->selected = lists ? tg_load32((const u8 *)header.data + TG_HEADER_SIZE) : 0;
    if (job->status == TG_OK && job->on_device)
        tg_cuda_remember(cuda, (const u8 *)header.data, &job->info);
    if (job->status == TG_OK && job->header_only)
        job->status = check_count(job);
    return job->status == TG_OK && (!job->header_only || job->wants_peak);
}

/* Checksums that are made together. */
struct checksums {
    checksum_job of[AT_ONCE];
    size_t count;
};

static void check(tg_cuda *cuda, const u8 *header, tg_check_job *job, checksums *sums)
{
    dense_frame f;
    sparse_frame s = {};
    u8 *payload, *workspace = NULL;
    const u64 size = job->frame.size - TG_HEADER_SIZE;
    const bool sparse = is_sparse(&job->info);
    bool fits = false;
    if (has_wrong_count(job)) /* no memory is asked for by this count: only the bytes are looked at */
        payload = receive_bytes(cuda, job->frame, job->on_device);
    else if (!sparse)
        fits = receive(cuda, job->frame, job->on_device, &job->info, &payload, &f);
    else {
        fits = receive_sparse(cuda, job->frame, job->on_device, &job->info, &s, &workspace);
        payload = (u8 *)(uintptr_t)s.payload;
    }
    control *c = tg_cuda_slot(cuda, {complete_check, job, NULL, (u64)tg_header_checksum(header) << 1 | fits});
    if (job->info.has_checksum && !job->header_only) {
        checksum_job *sum = &sums->of[sums->count++];
        *sum = checksum_job{.payload = payload,
                            .size = size,
                            .digests = (u64 *)(void *)tg_cuda_take(cuda, tg_cuda_digests_room(size)),
                            .has_checksum = true,
                            .result = c};
        if (fits && !sparse && f.kind != PLAIN && f.count > 0) {
            sum->looked_at = f;
            sum->words = tg_cuda_scale_words(&f);
        }
        memcpy(sum->header, header, TG_HEADER_SIZE);
        tg_header_set_checksum(sum->header, 0);
    }
    if (!fits)
        return;
    if (sparse) {
        tg_cuda_sparse_check(cuda, &s, workspace, c);
        return;
    }
    expand(cuda, job->frame, job->on_device, &job->info, &f, c);
    const u64 words = f.kind == PLAIN ? f.count : tg_cuda_scale_words(&f);
    const bool with_checksum = f.kind != PLAIN && job->info.has_checksum && !job->header_only;
    if (f.count > 0 && !with_checksum)
        LAUNCH(inspect, grid_for(words, THREADS, 8 * cuda->processors), THREADS, 0, cuda->stream, f, words, c);
}

static void check_some(tg_cuda *cuda, tg_check_job *jobs, size_t count)
{
    tg_frame frames[AT_ONCE], headers[AT_ONCE];
    bool goes_on[AT_ONCE];
    size_t room = 0;
    for (size_t i = 0; i < count; i++)
        frames[i] = jobs[i].frame;
    tg_cuda_fetch_headers(cuda, frames, count, count > 0 && jobs[0].on_device, headers);
    for (size_t i = 0; i < count; i++) {
        goes_on[i] = begin(cuda, headers[i], &jobs[i]);
        if (goes_on[i])
            room += frame_room(frames[i]) + arena_room(tg_cuda_digests_room(frames[i].size)) +
                    (has_wrong_count(&jobs[i]) ? 0 : reading_room(cuda, frames[i], jobs[i].on_device, &jobs[i].info));
    }
    const bool has_room = tg_cuda_arena(cuda, room);
    checksums sums;
    sums.count = 0;
    if (cuda->used + count > SLOTS) /* none of these may be handed over before all are on the stream */
        tg_cuda_settle(cuda);
    for (size_t i = 0; i < count; i++) {
        if (goes_on[i] && has_room)
            check(cuda, (const u8 *)headers[i].data, &jobs[i], &sums);
        else if (goes_on[i])
            jobs[i].status = tg_fail(&jobs[i].error, TG_OUT_OF_MEMORY,
                                     "device %s has no memory for %zu bytes of frames", cuda->device.name, room);
    }
    tg_cuda_checksum(cuda, sums.of, sums.count, false);
}

void tg_cuda_check(tg_device *device, tg_check_job *jobs, size_t count)
{
    const occupied now(device);
    for (size_t done = 0; done < count; done += AT_ONCE)
        check_some(now.cuda, jobs + done, count - done < AT_ONCE ? count - done : AT_ONCE);
}
