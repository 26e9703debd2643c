/* Lists of selected elements. They lie on the card. Sums of lists, and lists that a frame is compared with, are made in
 * host memory for now: lists are short. Frames that are on the card are copied there. */
#include <stdlib.h>

#include "device/cuda/device.cuh"
#include "device/cuda/element.cuh"

/* What is done in host memory works there. */
struct tg_list_workspace {
    tg_list_workspace *host;
    tg_list sums, chosen;
    u32 *applied; /* on the card: indices */
    /* Copies of frames that are on the card. They grow to the largest call, as the device's memory for frames does. */
    tg_frame *frames;
    u8 *bytes;
    size_t frames_room, bytes_room;
};

static void *host_array(u64 count)
{
    void *memory = NULL;
    return cudaMallocHost(&memory, 4 * (size_t)count + 4) == cudaSuccess ? memory : NULL;
}

static tg_list host_list(u64 room) { return {(u32 *)host_array(room), (float *)host_array(room), 0}; }

static void drop_list(tg_list *list)
{
    (void)cudaFreeHost(list->indices);
    (void)cudaFreeHost(list->values);
}

void tg_cuda_free_list_workspace(tg_device *device, tg_list_workspace *w)
{
    if (!w)
        return;
    const occupied now(device);
    tg_cuda_settle(now.cuda);
    now.cuda->host->operations->free_list_workspace(now.cuda->host, w->host);
    drop_list(&w->sums);
    drop_list(&w->chosen);
    (void)cudaFree(w->applied);
    (void)cudaFreeHost(w->bytes);
    free(w->frames);
    free(w);
}

tg_list_workspace *tg_cuda_make_list_workspace(tg_device *device, uint64_t longest, uint64_t most, uint64_t together)
{
    const occupied now(device);
    tg_device *host = now.cuda->host;
    tg_list_workspace *w = (tg_list_workspace *)calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->host = host->operations->make_list_workspace(host, longest, most, together);
    w->sums = host_list(together > most ? together : most);
    w->chosen = host_list(most);
    if (cudaMalloc(&w->applied, 4 * (size_t)most + 4) == cudaSuccess && w->host && w->sums.indices && w->sums.values &&
        w->chosen.indices && w->chosen.values)
        return w;
    (void)cudaGetLastError();
    tg_cuda_free_list_workspace(device, w);
    return NULL;
}

static void copy_list(tg_cuda *cuda, tg_list *to, const tg_list *from, cudaMemcpyKind kind)
{
    to->count = from->count;
    tg_cuda_copy(cuda, to->indices, from->indices, 4 * from->count, kind);
    tg_cuda_copy(cuda, to->values, from->values, 4 * from->count, kind);
}

static bool grow(tg_list_workspace *w, size_t count, size_t bytes)
{
    if (count > w->frames_room) {
        free(w->frames);
        w->frames = (tg_frame *)malloc(count * sizeof *w->frames);
        w->frames_room = w->frames ? count : 0;
    }
    if (bytes > w->bytes_room) {
        (void)cudaFreeHost(w->bytes);
        w->bytes = NULL;
        w->bytes_room = 0;
        if (cudaMallocHost(&w->bytes, bytes + bytes / 4) == cudaSuccess)
            w->bytes_room = bytes + bytes / 4;
        else
            (void)cudaGetLastError();
    }
    return count <= w->frames_room && bytes <= w->bytes_room;
}

/* Frames where the host can read them; NULL if there is no memory for copies. */
static const tg_frame *on_host(tg_cuda *cuda, tg_list_workspace *w, const tg_frame *frames, size_t count,
                               bool on_device)
{
    size_t bytes = 0;
    if (!on_device)
        return frames;
    for (size_t i = 0; i < count; i++)
        bytes += frames[i].data ? tg_frame_place(frames[i].size) : 0;
    if (!grow(w, count, bytes))
        return NULL;
    u8 *at = w->bytes;
    for (size_t i = 0; i < count; i++) {
        w->frames[i] = frames[i];
        if (!frames[i].data)
            continue;
        tg_cuda_copy(cuda, at, frames[i].data, frames[i].size, cudaMemcpyDeviceToHost);
        w->frames[i].data = at;
        at += tg_frame_place(frames[i].size);
    }
    (void)tg_cuda_fine(cuda, cudaStreamSynchronize(cuda->stream));
    return w->frames;
}

/* ---- summing ---- */

static void sum_list(tg_cuda *cuda, tg_sum_job *job)
{
    tg_list_workspace *w = job->workspace;
    tg_sum_job there = *job;
    there.workspace = w->host;
    there.sums = &w->sums;
    there.chosen = &w->chosen;
    there.frames = on_host(cuda, w, job->frames, job->frame_count, job->on_device);
    if (!there.frames) {
        (void)tg_cuda_fine(cuda, cudaErrorMemoryAllocation);
        return;
    }
    cuda->host->operations->sum_lists(cuda->host, &there, 1);
    job->nonfinite = there.nonfinite;
    job->dropped = there.dropped;
    copy_list(cuda, job->sums, &w->sums, cudaMemcpyHostToDevice);
    copy_list(cuda, job->chosen, &w->chosen, cudaMemcpyHostToDevice);
    (void)tg_cuda_fine(cuda, cudaStreamSynchronize(cuda->stream)); /* the next job works in the same place */
}

void tg_cuda_sum_lists(tg_device *device, tg_sum_job *jobs, size_t count)
{
    const occupied now(device);
    tg_cuda_settle(now.cuda); /* frames of this rank may be on their way to the host */
    for (size_t i = 0; i < count; i++)
        sum_list(now.cuda, &jobs[i]);
}

/* ---- adding ---- */

/* Whether an increasing list has this index. */
__device__ __forceinline__ bool is_listed(const u32 *list, u64 count, u32 index)
{
    u64 from = 0, to = count;
    while (from < to) {
        const u64 middle = (from + to) / 2;
        if (list[middle] < index)
            from = middle + 1;
        else
            to = middle;
    }
    return from < count && list[from] == index;
}

struct adding {
    float *h;
    const u32 *indices;
    float *values;
    u64 listed, first, end;
    const float *sent;
    const u32 *applied;
    u64 applied_count;
    float factor;
    bool limits;
};

__global__ void add_list_kernel(adding a, control *c)
{
    u32 overflows = 0;
    for (u64 j = (u64)blockIdx.x * blockDim.x + threadIdx.x; j < (a.listed + 31) / 32 * 32;
         j += (u64)gridDim.x * blockDim.x) {
        const u32 i = j < a.listed ? a.indices[j] : 0;
        if (j >= a.listed || i < a.first || i >= a.end)
            continue;
        float value = a.values[j];
        if (a.sent) {
            a.values[j] = a.sent[j];
            value -= a.sent[j];
        }
        if (is_listed(a.applied, a.applied_count, i))
            continue;
        const float sum = a.h[i] + a.factor * value;
        if (a.limits)
            a.h[i] = limited_sum(sum, &overflows);
        else if (sum - sum == 0)
            a.h[i] = sum;
        else
            overflows++;
    }
    warp_count(&c->limited, overflows);
}

static void complete_add(tg_cuda *cuda, const pending *p, const control *seen)
{
    (void)cuda;
    ((tg_list_job *)p->of)->overflows = seen->limited;
}

/* The indices that a frame lists, on the card; returns how many. */
static size_t list_applied(tg_cuda *cuda, const tg_list_job *job)
{
    tg_list_workspace *w = job->workspace;
    const tg_frame *frame = on_host(cuda, w, &job->applied, 1, job->on_device);
    if (!frame) {
        (void)tg_cuda_fine(cuda, cudaErrorMemoryAllocation);
        return 0;
    }
    tg_sum_job there = {.workspace = w->host,
                        .frames = frame,
                        .frame_count = 1,
                        .first = job->first,
                        .count = job->count,
                        .factor = 1,
                        .drops = true,
                        .sums = &w->sums,
                        .chosen_count = 1,
                        .chosen = &w->chosen};
    cuda->host->operations->sum_lists(cuda->host, &there, 1);
    tg_cuda_copy(cuda, w->applied, w->sums.indices, 4 * w->sums.count, cudaMemcpyHostToDevice);
    (void)tg_cuda_fine(cuda, cudaStreamSynchronize(cuda->stream)); /* the next job works in the same place */
    return w->sums.count;
}

void tg_cuda_add_lists(tg_device *device, tg_list_job *jobs, size_t count)
{
    const occupied now(device);
    tg_cuda *cuda = now.cuda;
    tg_cuda_settle(cuda); /* how many elements a list has may be a result */
    for (tg_list_job *job = jobs; job < jobs + count; job++) {
        const u64 n = job->list->count;
        job->overflows = 0;
        if (n == 0)
            continue;
        const size_t applied = job->applied.data ? list_applied(cuda, job) : 0;
        const adding a = {job->h,
                          job->list->indices,
                          job->list->values,
                          n,
                          job->first,
                          job->first + job->count,
                          job->sent,
                          applied > 0 ? job->workspace->applied : NULL,
                          applied,
                          job->factor,
                          job->limits};
        control *c = tg_cuda_slot(cuda, {complete_add, job, NULL, 0});
        LAUNCH(add_list_kernel, grid_for(n, 256, 16 * (u64)cuda->processors), 256, 0, cuda->stream, a, c);
    }
}

/* ---- other forms ---- */

__global__ void spread_kernel(const u32 *indices, const float *values, u64 count, u64 first, float *out)
{
    for (u64 j = (u64)blockIdx.x * blockDim.x + threadIdx.x; j < count; j += (u64)gridDim.x * blockDim.x)
        out[indices[j] - first] = values[j];
}

void tg_cuda_spread_list(tg_device *device, const tg_list *list, uint64_t first, uint64_t count, float *out)
{
    const occupied now(device);
    tg_cuda_settle(now.cuda);
    (void)tg_cuda_fine(now.cuda, cudaMemsetAsync(out, 0, 4 * (size_t)count, now.cuda->stream));
    if (list->count > 0)
        LAUNCH(spread_kernel, grid_for(list->count, 256, 16 * (u64)now.cuda->processors), 256, 0, now.cuda->stream,
               list->indices, list->values, (u64)list->count, (u64)first, out);
    now.cuda->busy = true;
}

void tg_cuda_cut_list(tg_device *device, const tg_list *list, uint32_t parts, uint32_t *indices)
{
    const occupied now(device);
    tg_cuda_settle(now.cuda);
    for (u32 j = 0; j < parts; j++)
        tg_cuda_copy(now.cuda, indices + j, list->indices + (u64)list->count * j / parts, 4, cudaMemcpyDeviceToHost);
}
