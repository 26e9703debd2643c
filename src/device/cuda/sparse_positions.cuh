/* Positions of a list that another kernel made: those of levels that are not zero (docs/format.md, 4.4). Segments and
 * streams are the same as in a sparse vector; what lies between directory and streams is the caller's. */
#ifndef TG_DEVICE_CUDA_SPARSE_POSITIONS_CUH
#define TG_DEVICE_CUDA_SPARSE_POSITIONS_CUH

#include "device/cuda/sparse.h"
#include "device/cuda/sparse_encode.cuh"
#include "device/cuda/sparse_read.cuh"

/* Pieces of a workspace, each on 256 bytes. */
struct pieces_of {
    u8 *base;
    size_t used;
    u32 *take(u64 words)
    {
        u32 *here = (u32 *)(void *)(base + used);
        used += (size_t)rounded_up(4 * words, 256) * 256;
        return here;
    }
};

/* ---- writing ---- */

static inline writing writing_of_list(const positions_job *job, void *workspace, size_t *size)
{
    const u64 segments = segments_most(job->count, job->most);
    pieces_of memory = {(u8 *)workspace, 0};
    writing w = {};
    w.s.control = (select_control *)(void *)memory.take(sizeof(select_control) / 4);
    w.s.count = job->count;
    w.known = job->known;
    w.s.indices = (u32 *)(uintptr_t)job->indices;
    w.payload = job->out;
    w.starts = memory.take(segments + 1);
    w.blocks = memory.take(job->most / RICE_BLOCK + segments + 1);
    w.ends = (u64 *)(void *)memory.take(2 * segments);
    w.crowded = (crowded_segment *)(void *)memory.take(segments * sizeof(crowded_segment) / 4);
    w.result = job->result;
    *size = memory.used;
    return w;
}

/* Where each segment starts in the list, and what sparse_streams.cuh finds in the control block. The list's
 * length is only known here; `nonfinite` stops them where there is none. */
__global__ void __launch_bounds__(256) list_segments_kernel(writing w, positions_job job)
{
    const u32 listed = *job.listed, count = job.known ? *job.known : job.count;
    select_control *c = w.s.control;
    const u32 log = listed == POSITIONS_NONE ? 30 : segment_log(count, listed),
              segments = (count - 1) / (1u << log) + 1;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *c = select_control{};
        c->nonfinite = listed == POSITIONS_NONE;
        c->selected = listed;
        c->log = log;
        c->segments = segments;
        c->values_at = 8 + 8 * segments + (u32)*job.values;
    }
    if (listed == POSITIONS_NONE)
        return;
    for (u32 segment = blockIdx.x * 256 + threadIdx.x; segment <= segments; segment += gridDim.x * 256) {
        u32 low = 0, high = listed;
        while (low < high) {
            const u32 middle = low + (high - low) / 2;
            if (segment < segments && job.indices[middle] >> log >= segment)
                high = middle;
            else
                low = middle + 1;
        }
        w.starts[segment] = low;
        if (segment < segments) {
            w.ends[segment] = 0;
            w.crowded[segment] = crowded_segment{};
        }
    }
}

size_t tg_cuda_positions_workspace(u64 count, u64 most)
{
    const positions_job job = {.count = (u32)count, .most = (u32)most};
    size_t size;
    (void)writing_of_list(&job, NULL, &size);
    return size;
}

void tg_cuda_positions_write(cudaStream_t stream, const positions_job *job, void *workspace)
{
    size_t size;
    const writing w = writing_of_list(job, workspace, &size);
    const u64 segments = segments_most(job->count, job->most);
    LAUNCH(list_segments_kernel, grid_for(segments + 1, 256, 64), 256, 0, stream, w, *job);
    LAUNCH(streams_kernel, stream_blocks(job->most, segments), STREAM_THREADS, 0, stream,
           w); /* it takes a ticket at once */
}

/* ---- reading ---- */

/* Head, directory and streams one behind the other are a sparse payload without values. */
static inline reading reading_of_list(const positions_frame *f, void *workspace, control *result, size_t *size)
{
    const u64 segments = (f->count - 1) / (1ull << f->log) + 1, slots = f->listed / RICE_BLOCK + segments + 2;
    pieces_of memory = {(u8 *)workspace, 0};
    reading r = {};
    r.size = 8 + 8 * segments + f->stream_bytes;
    r.payload = (const u8 *)memory.take(rounded_up(r.size, 4) + 4);
    r.count = f->count;
    r.result = result;
    r.selected_most = f->listed;
    r.segments_most = (u32)segments;
    r.head = (sparse_head *)(void *)memory.take(sizeof(sparse_head) / 4);
    r.positions = f->positions;
    r.zeros = memory.take(slots);
    r.lows = memory.take(slots);
    r.bases = memory.take(slots);
    *size = memory.used;
    return r;
}

size_t tg_cuda_positions_read_workspace(const positions_frame *frame)
{
    size_t size;
    (void)reading_of_list(frame, NULL, NULL, &size);
    return size;
}

void tg_cuda_positions_read(cudaStream_t stream, const positions_frame *frame, void *workspace, control *result)
{
    size_t size;
    const reading r = reading_of_list(frame, workspace, result, &size);
    u8 *whole = (u8 *)(uintptr_t)r.payload;
    const size_t head = 8 + 8 * (size_t)r.segments_most;
    (void)cudaMemcpyAsync(whole, frame->in, head, cudaMemcpyDeviceToDevice, stream);
    if (frame->stream_bytes > 0)
        (void)cudaMemcpyAsync(whole + head, frame->streams, (size_t)frame->stream_bytes, cudaMemcpyDeviceToDevice,
                              stream);
    LAUNCH(positions_kernel, grid_for(r.segments_most, 1, 1024), READ_THREADS, 0, stream, r);
}

#endif
