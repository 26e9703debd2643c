/* Headers of frames that are on the card, for the host. */
#include "device/cuda/received.cuh"

struct seen_frame {
    const u8 *frame;
    u64 size;
};

/* A warp for each frame: its first bytes, to memory that the host reads. */
__global__ void __launch_bounds__(32) fetch_headers(const seen_frame *frames, u8 *to)
{
    const seen_frame f = frames[blockIdx.x];
    for (u32 i = threadIdx.x; i < SEEN_BYTES && i < f.size; i += 32)
        to[blockIdx.x * SEEN_BYTES + i] = f.frame[i];
}

void tg_cuda_fetch_headers(tg_cuda *cuda, const tg_frame *frames, size_t count, bool on_device, tg_frame *headers)
{
    seen_frame seen[SLOTS];
    u32 n = 0;
    for (size_t i = 0; i < count; i++) {
        headers[i] = frames[i];
        if (!on_device || !frames[i].data)
            continue;
        headers[i].data = cuda->headers + n * SEEN_BYTES;
        seen[n++] = seen_frame{(const u8 *)frames[i].data, frames[i].size};
    }
    if (n == 0)
        return;
    const void *there = tg_cuda_upload(cuda, seen, n * sizeof *seen);
    if (there)
        LAUNCH(fetch_headers, n, 32, 0, cuda->stream, (const seen_frame *)there, cuda->headers);
    for (u32 i = 0; !there && i < n; i++)
        tg_cuda_copy(cuda, cuda->headers + i * SEEN_BYTES, seen[i].frame,
                     seen[i].size < SEEN_BYTES ? (size_t)seen[i].size : SEEN_BYTES, cudaMemcpyDeviceToHost);
    (void)tg_cuda_fine(cuda, cudaStreamSynchronize(cuda->stream));
}
