/* Between frames and the coders of levels. */
#include "device/cuda/coded_frames.cuh"

#include "device/cuda/coding.h"
#include "device/cuda/received.cuh"

static tg_levels_shape shape_of(const tg_spec *spec, const dense_frame *f)
{
    tg_levels_shape shape = {};
    shape.count = f->count;
    shape.levels = f->levels;
    shape.bucket = spec->bucket;
    shape.affine = f->affine;
    shape.coding = tg_spec_coding(spec);
    return shape;
}

/* ---- writing ---- */

bool tg_cuda_wants_coding(const tg_spec *spec) { return tg_spec_coding(spec) != TG_CODING_PACKED; }

size_t tg_cuda_codes_room(const dense_frame *f) { return (size_t)tg_packed_size(f->count, f->width) + 64; }

/* What the coder finds out is first, and its own memory behind that. */
size_t tg_cuda_coder_room(const tg_spec *spec, const dense_frame *f)
{
    const tg_levels_shape shape = shape_of(spec, f);
    return 256 + tg_cuda_coding_workspace(&shape);
}

void tg_cuda_place_apart(dense_frame *f, u8 *codes)
{
    f->scales = f->codes;
    f->codes = codes;
}

void tg_cuda_code_frame(tg_cuda *cuda, const tg_spec *spec, const dense_frame *f, u8 *coder, control *result)
{
    const tg_levels_shape shape = shape_of(spec, f);
    tg_coded *coded = (tg_coded *)(void *)coder;
    tg_cuda_code_levels(cuda->stream, &shape, NULL, f->codes, coder + 256, f->scales, coded, result);
}

/* ---- reading ---- */

bool tg_cuda_reads_layout(unsigned layout, bool blindly)
{
    return layout < TG_LAYOUTS && !(layout == TG_LAYOUT_ENTROPY_SPARSE && blindly);
}

static u64 scales_size(const dense_frame *f) { return 4 * tg_cuda_scale_words(f); }

/* The directory of listed levels, which the host reads: as much as there may be of it, or bytes that are none. */
static const u8 *fetch_directory(tg_cuda *cuda, const u8 *from, u64 size, u64 count)
{
    static const u8 none[8] = {0};
    const u64 most = 8 + 8 * (count / 4096 + 2), bytes = most < size ? most : size;
    if (bytes > cuda->directory_room) {
        (void)cudaFreeHost(cuda->directory);
        cuda->directory_room = 0;
        if (cudaMallocHost(&cuda->directory, (size_t)bytes) == cudaSuccess)
            cuda->directory_room = (size_t)bytes;
        else
            cuda->directory = NULL;
    }
    if (!cuda->directory) {
        (void)cudaGetLastError();
        return none;
    }
    tg_cuda_copy(cuda, cuda->directory, from, (size_t)bytes, cudaMemcpyDeviceToHost);
    (void)tg_cuda_fine(cuda, cudaStreamSynchronize(cuda->stream));
    return cuda->directory;
}

/* What follows the scales, where the host can read it, as far as it does: NULL if that is nothing. */
static const u8 *coded_bytes(tg_cuda *cuda, tg_frame frame, bool on_device, const tg_frame_info *info,
                             const dense_frame *f)
{
    const u64 before = TG_HEADER_SIZE + scales_size(f);
    const u8 *bytes = (const u8 *)frame.data + before;
    if (!on_device)
        return bytes;
    return info->layout == TG_LAYOUT_ENTROPY_SPARSE ? fetch_directory(cuda, bytes, frame.size - before, info->count)
                                                    : NULL;
}

/* The directory tells where values end. Each element takes a bit of a stream at least: a frame that lists more must not
 * ask for memory. */
bool tg_cuda_find_values(tg_cuda *cuda, tg_frame frame, bool on_device, const tg_frame_info *info, tg_frame *values,
                         tg_frame_info *values_info)
{
    const u64 size = frame.size - TG_HEADER_SIZE;
    const u8 *payload = (const u8 *)frame.data + TG_HEADER_SIZE;
    if (size < 8)
        return false;
    if (on_device)
        payload = fetch_directory(cuda, payload, size, info->count);
    const u64 listed = tg_load32(payload), log = tg_load32(payload + 4);
    if (listed > info->count || log < 12 || log > 30)
        return false;
    const u64 before = 8 + 8 * ((info->count + (1ull << log) - 1) >> log);
    u64 streams = 0;
    if (before > size)
        return false;
    for (u64 at = 8; at < before; at += 8)
        streams += tg_load32(payload + at + 4) & 0x3fffffffu;
    if (streams > size - before || listed > 8 * streams)
        return false;
    *values = {(const u8 *)frame.data + before, (size_t)(TG_HEADER_SIZE + size - before - streams)};
    *values_info = *info;
    values_info->count = listed;
    return true;
}

/* Whether so few bytes can hold so many codes: a frame that cannot must not ask for memory. In the other layouts a few
 * bytes may stand for any number of equal codes. */
static bool may_hold(const tg_frame_info *info, const dense_frame *f, u64 size)
{
    if (size < scales_size(f))
        return false;
    const u64 coded = size - scales_size(f);
    if (info->layout == TG_LAYOUT_PREFIX)
        return 8 * coded >= tg_packed_size(f->count, f->width);
    if (info->layout == TG_LAYOUT_ELIAS_SPARSE || info->layout == TG_LAYOUT_ELIAS_DENSE)
        return coded * 4096 >= f->count;
    return true;
}

size_t tg_cuda_expansion_room(tg_cuda *cuda, tg_frame host, bool on_device, const tg_frame_info *info)
{
    dense_frame f;
    if (info->layout == TG_LAYOUT_PACKED || !tg_cuda_dense_frame(&info->spec, info->dtype, info->count, NULL, &f) ||
        !may_hold(info, &f, host.size - TG_HEADER_SIZE))
        return 0;
    const tg_levels_shape shape = shape_of(&info->spec, &f);
    return arena_room(tg_cuda_codes_room(&f)) +
           arena_room(tg_cuda_expand_workspace(&shape, info->layout, coded_bytes(cuda, host, on_device, info, &f),
                                               host.size - TG_HEADER_SIZE - scales_size(&f)));
}

bool tg_cuda_find_coded(tg_cuda *cuda, const tg_frame_info *info, u64 size, u8 *payload, dense_frame *f)
{
    if (!tg_cuda_dense_frame(&info->spec, info->dtype, info->count, payload, f) || !may_hold(info, f, size))
        return false;
    tg_cuda_place_apart(f, tg_cuda_take(cuda, tg_cuda_codes_room(f)));
    return true;
}

void tg_cuda_expand_frame(tg_cuda *cuda, tg_frame host, bool on_device, const tg_frame_info *info, const dense_frame *f,
                          control *result)
{
    const tg_levels_shape shape = shape_of(&info->spec, f);
    const u64 size = host.size - TG_HEADER_SIZE - scales_size(f), codes = tg_packed_size(f->count, f->width);
    const u8 *bytes = coded_bytes(cuda, host, on_device, info, f);
    u8 *workspace = tg_cuda_take(cuda, tg_cuda_expand_workspace(&shape, info->layout, bytes, size));
    (void)tg_cuda_fine(cuda, cudaMemsetAsync(f->codes + codes / 4 * 4, 0, 4, cuda->stream)); /* the rest of a word */
    tg_cuda_expand_levels(cuda->stream, &shape, info->layout, bytes, f->scales + scales_size(f), size, f->codes,
                          workspace, result);
}

/* It takes many streams to hide how long each of them is; with few, all of them are better decoded at once. */
bool tg_cuda_adds_coded(const tg_cuda *cuda, const tg_frame_info *info, const addition *a)
{
    constexpr u64 ENOUGH = 8 * 32 * 8192 / 8; /* bytes of packed codes for a processor: 8 warps, with 1 KiB a stream */
    const u64 codes = tg_packed_size(a->out.count, a->frames[0].width);
    return a->frame_count == 1 && codes >= ENOUGH * cuda->processors && info->layout == TG_LAYOUT_PREFIX &&
           a->out.count > 0 && tg_cuda_is_fast_addition(a);
}

void tg_cuda_add_coded(tg_cuda *cuda, tg_frame host, const tg_frame_info *info, const addition *a)
{
    const dense_frame *f = &a->frames[0];
    const tg_levels_shape shape = shape_of(&info->spec, f);
    const u64 size = host.size - TG_HEADER_SIZE - scales_size(f);
    const tg_coded_sum sum = {fast_frame_of(*f), a->weight, a->scale, a->fresh, (float *)a->out.data};
    u8 *workspace = tg_cuda_take(cuda, tg_cuda_expand_workspace(&shape, info->layout, NULL, size));
    tg_cuda_add_prefix(cuda->stream, &shape, f->scales + scales_size(f), size, &sum, workspace, a->result);
}
