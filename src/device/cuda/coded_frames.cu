/* Between frames and the coders of levels. */
#include "device/cuda/coded_frames.cuh"

#include "device/cuda/coding.h"

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

__global__ void publish_coded(const tg_coded *coded, control *result)
{
    result->payload = coded->size;
    result->layout = coded->layout;
}

void tg_cuda_code_frame(tg_cuda *cuda, const tg_spec *spec, const dense_frame *f, u8 *coder, control *result)
{
    const tg_levels_shape shape = shape_of(spec, f);
    tg_coded *coded = (tg_coded *)(void *)coder;
    tg_cuda_code_levels(cuda->stream, &shape, f->codes, coder + 256, f->scales, coded);
    LAUNCH(publish_coded, 1, 1, 0, cuda->stream, coded, result);
}

/* ---- reading ---- */

bool tg_cuda_reads_layout(unsigned layout, bool on_device)
{
    return layout < TG_LAYOUTS && !(layout == TG_LAYOUT_ENTROPY_SPARSE && on_device);
}

static u64 scales_size(const dense_frame *f) { return 4 * tg_cuda_scale_words(f); }

/* What follows the scales in host memory: NULL if that is not there. */
static const u8 *coded_bytes(tg_frame host, bool on_device, const dense_frame *f)
{
    return on_device ? NULL : (const u8 *)host.data + TG_HEADER_SIZE + scales_size(f);
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

size_t tg_cuda_expansion_room(tg_frame host, bool on_device, const tg_frame_info *info)
{
    dense_frame f;
    if (info->layout == TG_LAYOUT_PACKED || !tg_cuda_dense_frame(&info->spec, info->dtype, info->count, NULL, &f) ||
        !may_hold(info, &f, host.size - TG_HEADER_SIZE))
        return 0;
    const tg_levels_shape shape = shape_of(&info->spec, &f);
    return arena_room(tg_cuda_codes_room(&f)) +
           arena_room(tg_cuda_expand_workspace(&shape, info->layout, coded_bytes(host, on_device, &f),
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
    const u8 *bytes = coded_bytes(host, on_device, f);
    u8 *workspace = tg_cuda_take(cuda, tg_cuda_expand_workspace(&shape, info->layout, bytes, size));
    (void)tg_cuda_fine(cuda, cudaMemsetAsync(f->codes + codes / 4 * 4, 0, 4, cuda->stream)); /* the rest of a word */
    tg_cuda_expand_levels(cuda->stream, &shape, info->layout, bytes, f->scales + scales_size(f), size, f->codes,
                          workspace, result);
}
