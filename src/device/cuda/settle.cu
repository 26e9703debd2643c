/* What a frame, which has been checked, does to the feedback state of its elements. */
#include "device/cuda/received.cuh"

constexpr u32 THREADS = 256;

struct settling {
    tg_source source;
    dense_frame frame;
    const u32 *applied;
    u64 applied_count;
    bool returns, only_checks;
    control *result;
};

__device__ __forceinline__ bool is_applied(const settling &s, u32 i)
{
    u64 from = 0, to = s.applied_count;
    while (from < to) {
        const u64 middle = (from + to) / 2;
        if (s.applied[middle] < i)
            from = middle + 1;
        else
            to = middle;
    }
    return from < s.applied_count && s.applied[from] == i;
}

__global__ void __launch_bounds__(THREADS) settle(settling s)
{
    u32 limited = 0, dropped = 0;
    for (u64 i = blockIdx.x * (u64)THREADS + threadIdx.x; i < s.frame.count; i += (u64)gridDim.x * THREADS) {
        if (s.returns && is_applied(s, (u32)i))
            continue;
        const float sent = value_at(s.frame, (u32)i), h = s.source.residual[i];
        const float after = s.returns ? h + sent : source_at(s.source, i, h, &dropped).rest - sent;
        if (s.only_checks) {
            if (!is_finite(after))
                atomicMax(&s.result->least, ~(u64)i);
        } else {
            s.source.residual[i] = s.returns ? limited_sum(after, &limited) : after;
            if (!s.returns && s.source.momentum)
                s.source.momentum[i] = 0; /* a dense frame sends everything */
        }
    }
    warp_count(&s.result->limited, limited);
}

static void complete_settle(tg_cuda *, const pending *p, const control *seen)
{
    tg_settle_job *job = (tg_settle_job *)p->of;
    job->overflow = seen->least ? ~seen->least : p->number;
    job->limited = seen->limited;
}

/* The applied indices of a return, on the card. */
static const u32 *applied_of(tg_cuda *cuda, const tg_settle_job *job, u64 count)
{
    u32 *applied = (u32 *)(void *)tg_cuda_take(cuda, 4 * (size_t)count);
    tg_cuda_copy(cuda, applied, job->applied, 4 * (size_t)count, cudaMemcpyHostToDevice);
    return applied;
}

static void start(tg_device *device, tg_settle_job *job, bool returns)
{
    const occupied now(device);
    tg_cuda *cuda = now.cuda;
    tg_frame_info info;
    tg_frame header;
    u8 *place;
    settling s = {.source = job->source, .returns = returns, .only_checks = job->only_checks};
    s.applied_count = returns && job->applied ? job->applied_count : 0;
    tg_cuda_fetch_headers(cuda, &job->frame, 1, job->on_device, &header);
    if (tg_frame_read(header, &info, NULL) != TG_OK || !can_read(&info, false) ||
        !tg_cuda_arena(cuda, frame_room(job->frame) + reading_room(cuda, job->frame, job->on_device, &info) +
                                 arena_room(4 * (size_t)s.applied_count)))
        return; /* cannot happen: it was checked */
    s.applied = s.applied_count ? applied_of(cuda, job, s.applied_count) : NULL;
    sparse_frame sparse = {};
    if (is_sparse(&info)) {
        if (receive_sparse(cuda, job->frame, job->on_device, &info, &sparse, &place))
            tg_cuda_sparse_settle(cuda, &sparse, place, job, returns, s.applied,
                                  tg_cuda_slot(cuda, {complete_settle, job, NULL, info.count}));
    } else if (receive(cuda, job->frame, job->on_device, &info, &place, &s.frame)) {
        s.result = tg_cuda_slot(cuda, {complete_settle, job, NULL, info.count});
        expand(cuda, job->frame, job->on_device, &info, &s.frame, s.result);
        LAUNCH(settle, grid_for(info.count, THREADS, 16 * cuda->processors), THREADS, 0, cuda->stream, s);
    }
}

void tg_cuda_update(tg_device *device, tg_settle_job *job) { start(device, job, false); }
void tg_cuda_return_frame(tg_device *device, tg_settle_job *job) { start(device, job, true); }
