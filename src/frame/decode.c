/* Turning frames back into vectors. */
#include "frame/decode.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/fpenv.h"
#include "base/status.h"
#include "codec/sparse.h"
#include "frame/device.h"
#include "frame/encode.h"
#include "frame/header.h"
#include "frame/verify.h"
#include "kernels/ranges.h"

bool tg_frame_open(tg_reader *reader, const tg_kernels *kernels, tg_frame frame, const tg_frame_info *info)
{
    memset(reader, 0, sizeof *reader);
    reader->kernels = kernels;
    reader->row = tg_codec_row_of(info->spec.codec);
    reader->step = reader->grain = TG_BLOCK;
    tg_payload payload = tg_frame_payload(frame, info);
    return reader->row->open(reader, &payload);
}

/* The next block of all frames with the fused kernel, if all of them are packed levels. */
static bool add_packed(const tg_kernels *k, tg_reader *readers, size_t frame_count, size_t n, tg_storing how,
                       float weight, float *sum)
{
    tg_levels_decoding next[TG_MAX_NARROW_FRAMES];
    if (!k->decode_levels || n != TG_BLOCK || frame_count == 0)
        return false;
    for (size_t i = 0; i < frame_count; i++)
        if (!readers[i].row->packed || !readers[i].row->packed(&readers[i], &next[i]))
            return false;
    k->decode_levels(next, frame_count, n, how, weight, sum);
    for (size_t i = 0; i < frame_count; i++)
        readers[i].levels.position += n;
    return true;
}

/* Up to TG_MAX_NARROW_FRAMES frames that are added in one pass. */
typedef struct batch {
    const tg_kernels *kernels;
    const tg_reader *opened;
    size_t frame_count;
    float weight;
    bool fresh;  /* the first one sets the output */
    float scale; /* of the sum, at the end */
    const tg_tensor *out;
    tg_storing how;   /* for frames whose values can be stored while they are decoded */
    bool past_caches; /* sparse frames make the output block by block, and no block is seen again */
    uint64_t step;
    tg_ranges ranges;
    atomic_bool broken;
} batch;

static void scale_in_place(const tg_kernels *k, float scale, size_t n, float *values)
{
    for (size_t first = 0; first < n; first += TG_BLOCK)
        k->set_scaled(values + first, scale, tg_block_size(n, first), values + first);
}

/* Adds the next n elements, the first of which is `first`, of all frames; in `block`, unless that can be done where
 * they belong. */
static bool add_step(const batch *b, tg_reader *readers, size_t frame_count, uint64_t first, size_t n, float *block)
{
    const tg_kernels *k = b->kernels;
    const tg_dtype dtype = b->out->dtype;
    char *elements = (char *)b->out->data + first * tg_dtype_size(dtype);
    float *sum = block;
    if (dtype == TG_FLOAT32 && !b->past_caches)
        sum = (float *)b->out->data + first;
    else if (!b->fresh)
        k->widen(dtype, elements, n, sum);
    if (b->fresh && !b->past_caches && (frame_count == 0 || readers[0].row->sparse))
        memset(sum, 0, n * sizeof *sum);
    const bool fused = add_packed(k, readers, frame_count, n, b->how, b->weight, sum);
    for (size_t i = 0; !fused && i < frame_count; i++)
        if (!tg_frame_next(&readers[i], n, b->fresh && i == 0 ? TG_READ_SET : TG_READ_ADD, b->weight, sum))
            return false;
    if (b->scale != 1)
        scale_in_place(k, b->scale, n, sum);
    if (dtype != TG_FLOAT32)
        (void)k->narrow(dtype, sum, n, elements);
    else if (b->past_caches)
        k->set_aside(sum, n * sizeof *sum, elements);
    return true;
}

static void add_range(void *of, size_t part)
{
    batch *b = of;
    tg_reader readers[TG_MAX_NARROW_FRAMES];
    float block[TG_BLOCK];
    tg_traces traces = {.block = block, .count = TG_BLOCK};
    const size_t frame_count = b->frame_count;
    const uint64_t start = tg_range_first(&b->ranges, part), end = tg_range_end(&b->ranges, part);
    for (size_t i = 0; i < frame_count; i++) {
        readers[i] = b->opened[i];
        readers[i].sparse.traces = b->past_caches ? &traces : NULL;
        tg_reader_seek(&readers[i], start);
    }
    for (uint64_t first = start; first < end && !atomic_load_explicit(&b->broken, memory_order_relaxed);
         first += b->step) {
        if (b->past_caches)
            tg_traces_clear(&traces);
        if (!add_step(b, readers, frame_count, first, tg_reader_step(end, first, b->step), block))
            atomic_store(&b->broken, true);
    }
    if (b->past_caches || b->how == TG_SET_ASIDE)
        b->kernels->aside_is_set();
}

static tg_status add_batch(const tg_device *device, const tg_frame *frames, size_t frame_count, float weight,
                           bool fresh, float scale, uint64_t among, const tg_tensor *out, tg_error *error)
{
    tg_reader readers[TG_MAX_NARROW_FRAMES];
    tg_frame_info infos[TG_MAX_NARROW_FRAMES];
    batch b = {device->kernels, readers, frame_count, weight, fresh, scale, out, .how = fresh ? TG_SET : TG_ADD,
               .step = TG_BLOCK};
    uint64_t grain = TG_BLOCK;
    bool all_sparse = true;
    for (size_t i = 0; i < frame_count; i++) {
        if (tg_frame_read(frames[i], &infos[i], error) != TG_OK ||
            !tg_frame_open(&readers[i], device->kernels, frames[i], &infos[i]))
            return tg_fail(error, TG_CORRUPT, "a frame that was called verified breaks a rule of the format");
        if (out->dtype == TG_FLOAT32)
            b.step = i == 0 || readers[i].step < b.step ? readers[i].step : b.step;
        if (readers[i].grain == 0 || grain == 0)
            grain = 0;
        else
            grain = readers[i].grain > grain ? readers[i].grain : grain;
        all_sparse = all_sparse && readers[i].row->sparse;
    }
    if (frame_count == 1 && readers[0].row->sparse && !fresh && scale == 1 && out->dtype == TG_FLOAT32)
        b.step = TG_LONG_SPARSE_STEP;
    /* Stores past the caches need not read the lines that they overwrite; but what fits a cache is better left there.
     */
    if (fresh && out->dtype == TG_FLOAT32 && among >= device->cache / sizeof(float)) {
        b.past_caches = all_sparse;
        b.step = all_sparse ? TG_BLOCK : b.step;
        b.how = scale == 1 ? TG_SET_ASIDE : TG_SET;
    }
    b.ranges = tg_reader_ranges(device->pool, out->count, grain);
    tg_parallel(device->pool, b.ranges.parts, add_range, &b);
    if (b.broken)
        return tg_fail(error, TG_CORRUPT, "a frame that was called verified breaks a rule of the format");
    return TG_OK;
}

/* Any number of frames, in batches. */
static tg_status add_all(const tg_device *device, const tg_frame *frames, size_t frame_count, float weight, bool fresh,
                         float scale, uint64_t among, const tg_tensor *out, tg_error *error)
{
    tg_status status = TG_OK;
    for (size_t done = 0; status == TG_OK && (done < frame_count || (fresh && done == 0));) {
        size_t n = frame_count - done < TG_MAX_NARROW_FRAMES ? frame_count - done : TG_MAX_NARROW_FRAMES;
        const bool last = done + n == frame_count;
        status = add_batch(device, frames + done, n, weight, fresh && done == 0, last ? scale : 1, last ? among : 0,
                           out, error);
        done += n ? n : 1;
    }
    return status;
}

tg_status tg_decode_mean(const tg_device *device, const tg_frame *frames, size_t frame_count, float scale, float *wide,
                         uint64_t among, const tg_tensor *out, tg_error *error)
{
    /* A power of two may as well scale each value: nothing is rounded by it, and a pass over the sum is saved. */
    const bool exact = (tg_float_bits(scale) & UINT32_C(0x7fffff)) == 0;
    const float weight = exact ? scale : 1, after = exact ? 1 : scale;
    if (out->dtype == TG_FLOAT32 || frame_count <= TG_MAX_NARROW_FRAMES)
        return add_all(device, frames, frame_count, weight, true, after, among, out, error);
    const tg_tensor sum = {wide, out->count, TG_FLOAT32};
    tg_status status = add_all(device, frames, frame_count, weight, true, after, 0, &sum, error);
    for (uint64_t first = 0; status == TG_OK && first < out->count; first += TG_BLOCK)
        (void)device->kernels->narrow(out->dtype, wide + first, tg_block_size(out->count, first),
                                      (char *)out->data + first * tg_dtype_size(out->dtype));
    return status;
}

size_t tg_frame_list(const tg_kernels *kernels, tg_frame frame, uint64_t first, uint32_t *indices, float *values)
{
    tg_frame_info info;
    tg_reader reader;
    if (tg_frame_read(frame, &info, NULL) != TG_OK || !tg_frame_open(&reader, kernels, frame, &info) ||
        !reader.row->sparse || !tg_sparse_list(&reader, (uint32_t)first, indices, values))
        return 0; /* cannot be: it was checked */
    return (size_t)reader.sparse.positions.listed;
}

static tg_status decode(tg_device *device, const tg_frame *frames, size_t frame_count, float weight, unsigned flags,
                        bool fresh, const tg_tensor *out, tg_error *error)
{
    if (!device || (!frames && frame_count > 0))
        return tg_fail(error, TG_INVALID_ARGUMENT, "decoding needs a device and frames");
    tg_status status = tg_tensor_check(out, "the output", error);
    if (status != TG_OK)
        return status;
    if (weight - weight != 0)
        return tg_fail(error, TG_INVALID_ARGUMENT, "the weight %g is not finite", (double)weight);
    if (flags & ~TG_VERIFIED)
        return tg_fail(error, TG_INVALID_ARGUMENT, "unknown flags %#x", flags);
    if (out->dtype != TG_FLOAT32 && frame_count > TG_MAX_NARROW_FRAMES)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "%zu frames are too many for a 16-bit output: the limit is %d; sum into float32", frame_count,
                       TG_MAX_NARROW_FRAMES);
    status = tg_frames_check(device, frames, frame_count, flags, out->count, error);
    if (status == TG_OK)
        status = add_all(device, frames, frame_count, weight, fresh, 1, out->count, out, error);
    return status == TG_OK ? tg_succeed(error) : status;
}

tg_status tg_decode(tg_device *device, const tg_frame *frames, size_t frame_count, float weight, unsigned flags,
                    const tg_tensor *out, tg_error *error)
{
    tg_fp_mode before = tg_fp_enter();
    tg_status status = decode(device, frames, frame_count, weight, flags, true, out, error);
    tg_fp_leave(before);
    return status;
}

tg_status tg_decode_add(tg_device *device, const tg_frame *frames, size_t frame_count, float weight, unsigned flags,
                        const tg_tensor *out, tg_error *error)
{
    tg_fp_mode before = tg_fp_enter();
    tg_status status = decode(device, frames, frame_count, weight, flags, false, out, error);
    tg_fp_leave(before);
    return status;
}
