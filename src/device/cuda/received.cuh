/* Frames that came from elsewhere: from host memory to the arena. */
#ifndef TG_DEVICE_CUDA_RECEIVED_CUH
#define TG_DEVICE_CUDA_RECEIVED_CUH

#include "device/cuda/coded_frames.cuh"
#include "device/cuda/sparse.h"

static inline bool is_sparse(const tg_frame_info *info) { return tg_codec_row_of(info->spec.codec)->sparse; }

/* Whether the card can read a frame with this header; blindly, where the host reads nothing of one that is on the card.
 */
static inline bool can_read(const tg_frame_info *info, bool blindly)
{
    dense_frame f;
    if (is_sparse(info))
        return tg_cuda_sparse_reads(info, blindly);
    return tg_cuda_reads_layout(info->layout, blindly) &&
           tg_cuda_dense_frame(&info->spec, info->dtype, info->count, NULL, &f);
}

/* Room in the arena for a frame. */
static inline size_t frame_room(tg_frame frame) { return arena_room(frame.size + 64); }

/* received.cu: the headers of up to SLOTS frames where the host can read them, and SEEN_BYTES of each: as far as frames
 * are on the card, copies, which are there when this returns. */
void tg_cuda_fetch_headers(tg_cuda *cuda, const tg_frame *frames, size_t count, bool on_device, tg_frame *headers);

/* Copies a frame to the arena unless it is on the card already; returns where its payload is. */
static inline u8 *receive_bytes(tg_cuda *cuda, tg_frame frame, bool on_device)
{
    u8 *place = (u8 *)(uintptr_t)frame.data;
    if (!on_device || (uintptr_t)frame.data % 16 != 0) {
        place = tg_cuda_take(cuda, frame.size + 64);
        tg_cuda_copy(cuda, place, frame.data, frame.size,
                     on_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice);
    }
    return place + TG_HEADER_SIZE;
}

/* Room in the arena for what reading a frame takes besides its bytes. */
static inline size_t reading_room(tg_cuda *cuda, tg_frame frame, bool on_device, const tg_frame_info *info)
{
    tg_frame coded;
    tg_frame_info coded_info;
    dense_frame codes = {};
    if (!is_sparse(info))
        return tg_cuda_expansion_room(cuda, frame, on_device, info);
    if (info->layout == TG_LAYOUT_PACKED)
        return arena_room(tg_cuda_sparse_read_workspace(info, frame.size - TG_HEADER_SIZE, NULL));
    if (!tg_cuda_find_values(cuda, frame, on_device, info, &coded, &coded_info))
        return 0;
    codes.count = (u32)coded_info.count;
    return arena_room(tg_cuda_sparse_read_workspace(info, frame.size - TG_HEADER_SIZE, &codes)) +
           tg_cuda_expansion_room(cuda, coded, on_device, &coded_info);
}

/* A sparse frame, and memory to read it in. False if it cannot be one. */
static inline bool receive_sparse(tg_cuda *cuda, tg_frame frame, bool on_device, const tg_frame_info *info,
                                  sparse_frame *f, u8 **workspace)
{
    const u64 size = frame.size - TG_HEADER_SIZE;
    u8 *const payload = receive_bytes(cuda, frame, on_device);
    *f = {.payload = payload, .size = size, .info = info, .on_device = on_device};
    if (!tg_cuda_sparse_fits(info, size))
        return false;
    if (info->layout != TG_LAYOUT_PACKED &&
        !(tg_cuda_find_values(cuda, frame, on_device, info, &f->coded, &f->coded_info) &&
          tg_cuda_find_coded(cuda, &f->coded_info, f->coded.size - TG_HEADER_SIZE,
                             payload + ((const u8 *)f->coded.data - (const u8 *)frame.data), &f->codes)))
        return false;
    *workspace = tg_cuda_take(cuda, tg_cuda_sparse_read_workspace(info, size, &f->codes));
    return true;
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

static inline void expand(tg_cuda *cuda, tg_frame frame, bool on_device, const tg_frame_info *info,
                          const dense_frame *f, control *result)
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

/* What a thread has seen of scales, and of the padding. */
struct scales_seen {
    u32 largest = 0;
    bool bad = false;
    __device__ __forceinline__ void look(const dense_frame &f, u64 word, u32 bits)
    {
        bad = bad | !scale_is_sound(f, word, bits);
        largest = max(largest, bits & TG_MAGNITUDE_MASK);
    }
    /* By whole warps. */
    __device__ __forceinline__ void tell(control *c)
    {
        largest = warp_max(largest);
        if (__any_sync(FULL, bad) && lane_id() == 0)
            atomicOr(&c->bad, (u32)BREAKS_RULE);
        if (lane_id() == 0 && largest > 0)
            atomicMax(&c->peak, largest);
    }
};

/* Looks at the scales first + start, first + start + step, ... before `end`, and with the first of all at the padding.
 * By whole warps. */
__device__ __forceinline__ void look_at_scales(const dense_frame &f, u64 first, u64 end, u64 start, u64 step,
                                               control *c)
{
    scales_seen seen;
    seen.bad = first == 0 && start == 0 && !padding_is_zero(f);
#pragma unroll 8
    for (u64 i = first + start; i < end; i += step)
        seen.look(f, i, ((const u32 *)f.scales)[i]);
    seen.tell(c);
}

/* Of `words` scales those that are in the `size` bytes from `at` on, by a warp; `leaf`, if not NULL, has these bytes.
 */
__device__ __forceinline__ void look_at_scales_within(const dense_frame &f, u64 words, const u8 *at, u32 size,
                                                      const uint4 (*leaf)[8], control *c)
{
    const long long first = (at - f.scales) / 4;
    if (first + (long long)(size / 4) <= 0 || first >= (long long)words)
        return;
    if (!leaf) {
        const u64 end = (u64)(first + size / 4);
        look_at_scales(f, first > 0 ? (u64)first : 0, end < words ? end : words, lane_id(), 32, c);
        return;
    }
    scales_seen seen;
    seen.bad = first <= 0 && lane_id() == 0 && !padding_is_zero(f);
#pragma unroll
    for (u32 j = 0; j < 8; j++) {
        const u32 bits[4] = {(*leaf)[j].x, (*leaf)[j].y, (*leaf)[j].z, (*leaf)[j].w};
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            const u64 word = (u64)(first + 128 * j + 4 * lane_id() + k); /* huge before the first scale */
            if (word < words)
                seen.look(f, word, bits[k]);
        }
    }
    seen.tell(c);
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

/* add_fast.cu: packed levels of 2, 4 or 8 bits in buckets of 512, to a float32 output. False if it is something else.
 */
bool tg_cuda_add_fast(tg_cuda *cuda, const addition *a);
bool tg_cuda_is_fast_addition(const addition *a);

#endif
