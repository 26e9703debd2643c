/* What jobs that are done later need besides the kernels of others. */
#include "device/cuda/later.cuh"

/* ---- draws ---- */

__global__ void draw_keys(tg_draw draw, const uint64_t *step, tg_hash_key *drawn)
{
    draw.step = *step;
    drawn[threadIdx.x] = tg_hash_key_of(&draw, (tg_purpose)threadIdx.x);
}

void tg_cuda_draw(tg_cuda *cuda, const tg_draw *draw, const uint64_t *step, tg_hash_key *drawn)
{
    LAUNCH(draw_keys, 1, PURPOSES, 0, cuda->stream, *draw, step, drawn);
}

/* ---- arrays, as arguments of a kernel ---- */

constexpr size_t ARGUMENT = 3968; /* of 4096 bytes that all arguments of a kernel may have */

struct carried {
    u8 *to;
    u64 words;
    u8 bytes[ARGUMENT]; /* on 8 bytes */
};

__global__ void __launch_bounds__(256) store_argument(const __grid_constant__ carried c)
{
    for (u32 i = threadIdx.x; i < c.words; i += 256)
        ((u64 *)c.to)[i] = ((const u64 *)c.bytes)[i];
}

const void *tg_cuda_store(tg_cuda *cuda, const void *array, size_t bytes)
{
    const size_t at = cuda->stored, room = (bytes + 15) / 16 * 16;
    if (room > STORES - at)
        return NULL;
    for (size_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < ARGUMENT ? bytes - done : ARGUMENT;
        carried c;
        c.to = cuda->stored_to + at + done;
        c.words = (n + 7) / 8;
        memcpy(c.bytes, (const u8 *)array + done, n);
        LAUNCH(store_argument, 1, 256, 0, cuda->stream, c);
    }
    cuda->stored += room;
    return cuda->stored_to + at;
}

/* ---- reports ---- */

struct ending {
    control *result;
    tg_encode_report *report_to;
    u32 *side; /* that becomes the other one; or NULL */
    u64 bytes, selected;
};

struct endings {
    ending of[LATER_SLOTS];
};

/* A job each: its report goes to the host, and the slot is zero again. */
__global__ void __launch_bounds__(32) end_jobs(const __grid_constant__ endings all)
{
    const ending &e = all.of[blockIdx.x];
    wait_for_previous();
    if (threadIdx.x == 0) {
        const control *c = e.result;
        const bool damaged = c->least != 0, fails = damaged || c->nonfinite != 0;
        e.report_to->status = damaged ? TG_BAD_RESIDUAL : fails ? TG_NONFINITE : TG_OK;
        e.report_to->bytes = fails ? 0 : (size_t)(e.bytes ? e.bytes : TG_HEADER_SIZE + c->payload);
        e.report_to->selected = fails ? 0 : e.selected == AS_COUNTED ? c->selected : e.selected;
        e.report_to->saturated = fails ? 0 : c->limited;
        e.report_to->dropped = fails ? 0 : c->dropped;
        if (e.side && !fails)
            *e.side ^= 1;
    }
    __syncwarp();
    for (u32 i = threadIdx.x; i < sizeof(control) / 8; i += 32)
        ((u64 *)(void *)e.result)[i] = 0;
}

static_assert(sizeof(endings) <= 4000, "they are the arguments of a kernel");

control *tg_cuda_later_slot(tg_cuda *cuda, u64 bytes, u64 selected)
{
    cuda->endings[cuda->ending_count] = {bytes, selected, NULL};
    return &cuda->later_slots[cuda->ending_count++];
}

void tg_cuda_begin_later(tg_cuda *cuda)
{
    cuda->later = true;
    cuda->rounds++;
    cuda->ending_count = 0;
    cuda->stored = 0;
}

void tg_cuda_end_later(tg_cuda *cuda, const tg_encode_job *jobs)
{
    endings all;
    for (u32 i = 0; i < cuda->ending_count; i++)
        all.of[i] = {&cuda->later_slots[i], jobs[i].report_to, jobs[i].moved ? jobs[i].source.side : NULL,
                     cuda->endings[i].bytes, cuda->endings[i].selected};
    if (cuda->ending_count > 0) /* one has been on the stream itself, not on branches: a kernel comes before this */
        LAUNCH_BESIDE(cuda->overlaps && cuda->ending_count == 1, end_jobs, cuda->ending_count, 32, cuda->stream, all);
    cuda->later = false;
    cuda->busy = true;
}

/* ---- verdicts ---- */

struct verdicts {
    control *slots;
    tg_status *of[LATER_SLOTS];
};

__global__ void __launch_bounds__(32) end_adding(const __grid_constant__ verdicts all)
{
    control *c = &all.slots[blockIdx.x];
    if (threadIdx.x == 0 && all.of[blockIdx.x])
        *all.of[blockIdx.x] = c->bad & OTHER_HEADER ? TG_LAYOUT_MISMATCH : c->bad ? TG_CORRUPT : TG_OK;
    __syncwarp();
    for (u32 i = threadIdx.x; i < sizeof(control) / 8; i += 32)
        ((u64 *)(void *)c)[i] = 0;
}

control *tg_cuda_later_verdict(tg_cuda *cuda, tg_status *status_to)
{
    cuda->endings[cuda->ending_count] = {0, 0, status_to};
    return &cuda->later_slots[cuda->ending_count++];
}

void tg_cuda_end_adding(tg_cuda *cuda)
{
    verdicts all;
    all.slots = cuda->later_slots;
    for (u32 i = 0; i < cuda->ending_count; i++)
        all.of[i] = cuda->endings[i].verdict;
    if (cuda->ending_count > 0)
        LAUNCH(end_adding, cuda->ending_count, 32, 0, cuda->stream, all);
    cuda->later = false;
    cuda->busy = true;
}

/* ---- branches ---- */

bool tg_cuda_make_branches(tg_cuda *cuda)
{
    bool fine = cudaEventCreateWithFlags(&cuda->forked, cudaEventDisableTiming) == cudaSuccess;
    for (u32 i = 0; fine && i < BRANCHES; i++)
        fine = cudaStreamCreateWithFlags(&cuda->branches[i], cudaStreamNonBlocking) == cudaSuccess &&
               cudaEventCreateWithFlags(&cuda->joined[i], cudaEventDisableTiming) == cudaSuccess;
    return fine;
}

void tg_cuda_free_branches(tg_cuda *cuda)
{
    for (u32 i = 0; i < BRANCHES; i++) {
        if (cuda->joined[i])
            (void)cudaEventDestroy(cuda->joined[i]);
        if (cuda->branches[i])
            (void)cudaStreamDestroy(cuda->branches[i]);
    }
    if (cuda->forked)
        (void)cudaEventDestroy(cuda->forked);
}

void tg_cuda_branch(tg_cuda *cuda, u32 which)
{
    if (!cuda->branched) {
        cuda->trunk = cuda->stream;
        cuda->branched = true;
        cuda->branches_used = 0;
        (void)tg_cuda_fine(cuda, cudaEventRecord(cuda->forked, cuda->trunk));
    }
    if (!(cuda->branches_used >> which & 1))
        (void)tg_cuda_fine(cuda, cudaStreamWaitEvent(cuda->branches[which], cuda->forked, 0));
    cuda->branches_used |= 1u << which;
    cuda->stream = cuda->branches[which];
    cuda->branch = which + 1;
}

void tg_cuda_join(tg_cuda *cuda)
{
    if (!cuda->branched)
        return;
    for (u32 i = 0; i < BRANCHES; i++) {
        if (!(cuda->branches_used >> i & 1))
            continue;
        (void)tg_cuda_fine(cuda, cudaEventRecord(cuda->joined[i], cuda->branches[i]));
        (void)tg_cuda_fine(cuda, cudaStreamWaitEvent(cuda->trunk, cuda->joined[i], 0));
    }
    cuda->stream = cuda->trunk;
    cuda->branch = 0;
    cuda->branched = false;
}
