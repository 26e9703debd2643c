/* Frames that came from elsewhere: from host memory to the arena. */
#ifndef TG_DEVICE_CUDA_RECEIVED_CUH
#define TG_DEVICE_CUDA_RECEIVED_CUH

#include "device/cuda/coded_frames.cuh"
#include "device/cuda/sparse.h"

static inline bool is_sparse(const tg_frame_info *info) { return tg_codec_row_of(info->spec.codec)->sparse; }

/* Whether the card can read a frame with this header. */
static inline bool can_read(const tg_frame_info *info, bool on_device)
{
    dense_frame f;
    if (is_sparse(info))
        return tg_cuda_sparse_reads(info);
    return tg_cuda_reads_layout(info->layout, on_device) &&
           tg_cuda_dense_frame(&info->spec, info->dtype, info->count, NULL, &f);
}

/* Room in the arena for a frame. */
static inline size_t frame_room(tg_frame frame) { return arena_room(frame.size + 64); }

/* The headers of up to SLOTS frames where the host can read them: as far as they are on the card, copies. */
static inline void fetch_headers(tg_cuda *cuda, const tg_frame *frames, size_t count, bool on_device, tg_frame *headers)
{
    for (size_t i = 0; i < count; i++) {
        headers[i] = frames[i];
        if (!on_device || !frames[i].data)
            continue;
        u8 *copy = cuda->headers + i * TG_HEADER_SIZE;
        tg_cuda_copy(cuda, copy, frames[i].data, frames[i].size < TG_HEADER_SIZE ? frames[i].size : TG_HEADER_SIZE,
                     cudaMemcpyDeviceToHost);
        headers[i].data = copy;
    }
    if (on_device)
        (void)tg_cuda_fine(cuda, cudaStreamSynchronize(cuda->stream));
}

/* Copies a frame to the arena unless it is on the card already; returns where its payload is. */
static inline u8 *receive_bytes(tg_cuda *cuda, tg_frame frame, bool on_device)
{
    u8 *place = (u8 *)(uintptr_t)frame.data;
    if (!on_device || (uintptr_t)frame.data % 16 != 0) {
        place = tg_cuda_take(cuda, frame.size + 64);
        tg_cuda_copy(cuda, place, frame.data, frame.size, on_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice);
    }
    return place + TG_HEADER_SIZE;
}

/* Room in the arena for what reading a frame takes besides its bytes. */
static inline size_t reading_room(tg_frame frame, bool on_device, const tg_frame_info *info)
{
    return is_sparse(info) ? arena_room(tg_cuda_sparse_read_workspace(info, frame.size - TG_HEADER_SIZE))
                           : tg_cuda_expansion_room(frame, on_device, info);
}

/* A sparse frame, and memory to read it in. False if it cannot be one. */
static inline bool receive_sparse(tg_cuda *cuda, tg_frame frame, bool on_device, const tg_frame_info *info,
                                  sparse_frame *f, u8 **workspace)
{
    f->payload = receive_bytes(cuda, frame, on_device);
    f->size = frame.size - TG_HEADER_SIZE;
    f->info = info;
    *workspace = tg_cuda_take(cuda, tg_cuda_sparse_read_workspace(info, f->size));
    return tg_cuda_sparse_fits(info, f->size);
}

/* Receives a dense frame, and says where its parts are; codes that are not packed in the frame are only there when
 * `expand` has been called too. False if its payload does not have the size that its header asks for: then only its
 * bytes can be looked at. */
static inline bool receive(tg_cuda *cuda, tg_frame frame, bool on_device, const tg_frame_info *info, u8 **payload,
                           dense_frame *f)
{
    *payload = receive_bytes(cuda, frame, on_device);
    if (info->layout != TG_LAYOUT_PACKED)
        return tg_cuda_find_coded(cuda, info, frame.size - TG_HEADER_SIZE, *payload, f);
    return tg_cuda_dense_frame(&info->spec, info->dtype, info->count, *payload, f) &&
           tg_cuda_dense_size(f) == frame.size - TG_HEADER_SIZE;
}

static inline void expand(tg_cuda *cuda, tg_frame frame, bool on_device, const tg_frame_info *info, const dense_frame *f,
                          control *result)
{
    if (info->layout != TG_LAYOUT_PACKED)
        tg_cuda_expand_frame(cuda, frame, on_device, info, f, result);
}

/* Whether the bits behind the last code are zero. */
__device__ __forceinline__ bool padding_is_zero(const dense_frame &f)
{
    const u64 bits = (u64)f.count * f.width;
    return bits % 32 == 0 || ((const u32 *)f.codes)[bits / 32] >> (bits % 32) == 0;
}

/* Whether a scale may be what these bits say. */
__device__ __forceinline__ bool scale_is_sound(const dense_frame &f, u64 word, u32 bits)
{
    return (f.affine && word % 2 == 0 ? bits & TG_MAGNITUDE_MASK : bits) < TG_INFINITY_BITS;
}

/* Looks at scales from `start` on, and at the padding. By whole warps. */
__device__ __forceinline__ void look_at_scales(const dense_frame &f, u64 words, u64 start, u64 step, control *c)
{
    u32 largest = 0;
    bool bad = start == 0 && !padding_is_zero(f);
    for (u64 i = start; i < words; i += step) {
        const u32 bits = ((const u32 *)f.scales)[i];
        bad = bad || !scale_is_sound(f, i, bits);
        largest = max(largest, bits & TG_MAGNITUDE_MASK);
    }
    largest = warp_max(largest);
    if (__any_sync(FULL, bad) && lane_id() == 0)
        atomicOr(&c->bad, (u32)BREAKS_RULE);
    if (lane_id() == 0 && largest > 0)
        atomicMax(&c->peak, largest);
}

/* Frames that are added in one pass. */
struct addition {
    dense_frame frames[TG_MAX_NARROW_FRAMES];
    u32 frame_count;
    float weight, scale;
    bool fresh;
    tg_tensor out;
    control *result;
};

/* add_fast.cu: packed levels of 2, 4 or 8 bits in buckets of 512, to a float32 output. False if it is something else. */
bool tg_cuda_add_fast(tg_cuda *cuda, const addition *a);

#endif
