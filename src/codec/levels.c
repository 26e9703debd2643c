/* Encoding levels: scales and codes in one pass where buckets lie within blocks, in two where they do not. */
#include "codec/levels.h"

#include <string.h>

#include "base/bytes.h"

tg_levels_shape tg_levels_shape_of(const tg_spec *spec, uint64_t count)
{
    return (tg_levels_shape){.count = count,
                             .levels = spec->levels,
                             .bucket = spec->bucket,
                             .max_norm = spec->choices & TG_CHOICE_NORM_MAX,
                             .affine = spec->choices & TG_CHOICE_MINMAX,
                             .coding = tg_spec_coding(spec)};
}

unsigned tg_code_width(uint32_t levels)
{
    unsigned width = 1;
    while (UINT32_C(1) << width < 2 * levels + 1)
        width++;
    return width;
}

uint64_t tg_bucket_count(uint64_t count, uint32_t bucket)
{
    if (count == 0)
        return 0;
    return bucket == 0 ? 1 : (count - 1) / bucket + 1;
}

static size_t scale_bytes(const tg_levels_shape *shape) { return shape->affine ? 8 : 4; }

size_t tg_scales_size(const tg_levels_shape *shape)
{
    return (size_t)tg_bucket_count(shape->count, shape->bucket) * scale_bytes(shape);
}

static void store_scale(const tg_levels_shape *shape, uint8_t *scales, uint64_t bucket, tg_scale scale)
{
    uint8_t *at = scales + bucket * scale_bytes(shape);
    if (shape->affine) {
        tg_store_float(at, scale.centre);
        at += 4;
    }
    tg_store_float(at, scale.radius);
}

static tg_quantiser load_quantiser(const tg_levels_shape *shape, const uint8_t *scales, uint64_t bucket)
{
    const uint8_t *at = scales + bucket * scale_bytes(shape);
    tg_scale scale = {.centre = shape->affine ? tg_load_float(at) : 0,
                      .radius = tg_load_float(at + scale_bytes(shape) - 4)};
    return tg_quantiser_of(shape, scale);
}

/* Whether every bucket lies within one block, so that its scale can be computed while the block is in the cache. */
static bool nested(const tg_levels_shape *shape) { return shape->bucket != 0 && TG_BLOCK % shape->bucket == 0; }

size_t tg_levels_workspace(const tg_levels_shape *shape)
{
    return shape->coding == TG_CODING_PACKED ? 0 : tg_levels_code_workspace(shape);
}

size_t tg_levels_bound(const tg_levels_shape *shape) { return tg_scales_size(shape) + tg_levels_code_bound(shape); }

/* Where codes are packed first: at their place in the payload, or in the workspace if another layout is made from
 * them. */
static uint8_t *packed_codes(const tg_job *job, const tg_levels_shape *shape)
{
    return shape->coding == TG_CODING_PACKED ? job->payload : job->workspace;
}

/* Where the scales lie in the payload: behind packed codes, before codes of other layouts. */
static size_t scales_at(const tg_levels_shape *shape)
{
    const uint64_t packed = tg_packed_size(shape->count, tg_code_width(shape->levels));
    return shape->coding == TG_CODING_PACKED ? (size_t)tg_padded(packed) : 0;
}

/* The end of the bucket that contains `index`, at most `end`. */
static uint64_t bucket_end(const tg_levels_shape *shape, uint64_t index, uint64_t end)
{
    if (shape->bucket == 0)
        return end;
    uint64_t next = (index / shape->bucket + 1) * shape->bucket;
    return next < end ? next : end;
}

static uint64_t bucket_of(const tg_levels_shape *shape, uint64_t index)
{
    return shape->bucket == 0 ? 0 : index / shape->bucket;
}

/* What the functions of one encode call share. The key is computed once, because that takes as long as the random
 * numbers of a hundred elements. */
typedef struct encoding {
    const tg_levels_shape *shape;
    tg_hash_key key;
    size_t scales_at;
} encoding;

static bool encode_block(tg_job *job, const void *of, uint64_t first, size_t n, const float *u, float *sent)
{
    const encoding *d = of;
    const tg_levels_shape *shape = d->shape;
    const tg_kernels *k = job->kernels;
    const unsigned width = tg_code_width(shape->levels);
    uint16_t *codes = job->scratch->codes;
    uint8_t *scales = job->payload + d->scales_at;
    for (uint64_t at = first; at < first + n;) {
        uint64_t end = bucket_end(shape, at, first + n), bucket = bucket_of(shape, at), offset = at - first;
        size_t here = (size_t)(end - at);
        if (nested(shape)) {
            tg_scale scale;
            if (!tg_bucket_scale(job, shape, at, here, u + offset, &scale))
                return false;
            store_scale(shape, scales, bucket, scale);
        }
        tg_quantiser q = load_quantiser(shape, scales, bucket);
        k->quantise(&q, u + offset, here, (uint32_t)at, d->key, codes + offset);
        if (sent)
            k->dequantise(&q, codes + offset, here, sent + offset);
        at = end;
    }
    k->pack(codes, n, width, packed_codes(job, shape) + first / 8 * width);
    return true;
}

/* Does the work of encode_block and updates the residual, where the kernel set has a kernel for it. */
static size_t fuse_block(tg_job *job, const void *of, uint64_t first, size_t n, const float *gradient)
{
    const encoding *d = of;
    const tg_levels_shape *shape = d->shape;
    const tg_source *source = &job->source;
    const bool given = !nested(shape);
    tg_levels_encoding e = {.gradient = gradient,
                            .residual = source->residual ? source->residual + first : NULL,
                            .undo = source->undo ? source->undo + first : NULL,
                            .alpha = source->alpha,
                            .beta = source->beta,
                            .norm = given             ? TG_NORM_GIVEN
                                    : shape->max_norm ? TG_NORM_MAX
                                                      : TG_NORM_L2,
                            .exceeds = shape->clip > 0,
                            .levels = shape->levels,
                            .width = tg_code_width(shape->levels),
                            .bucket = given ? (uint32_t)n : shape->bucket,
                            .first = (uint32_t)first,
                            .key = d->key,
                            .u = job->scratch->block.u,
                            .rest = job->scratch->block.rest};
    e.scales = job->payload + d->scales_at + bucket_of(shape, first) * 4;
    uint8_t scale[4];
    if (given) { /* the kernel stores the scale again, which other threads may be reading */
        memcpy(scale, e.scales, sizeof scale);
        e.scales = scale;
    }
    e.packed = packed_codes(job, shape) + first / 8 * e.width;
    return job->kernels->encode_levels(&e, n);
}

/* Whether fuse_block can encode whole blocks: levels are symmetric; and where scales are known in advance, blocks lie
 * within buckets and non-finite values need not be dropped. */
static bool fusible(const tg_job *job, const tg_levels_shape *shape)
{
    if (!job->kernels->encode_levels || shape->affine || job->source.momentum)
        return false;
    if (nested(shape))
        return shape->bucket % TG_FUSED_BUCKET == 0 && shape->clip == 0;
    return shape->bucket % TG_BLOCK == 0 && !job->source.drop_nonfinite;
}

static void replay_block(tg_job *job, const void *of, uint64_t first, size_t n, float *sent)
{
    const encoding *d = of;
    const tg_levels_shape *shape = d->shape;
    const tg_kernels *k = job->kernels;
    uint16_t *codes = job->scratch->codes;
    unsigned width = tg_code_width(shape->levels);
    k->unpack(packed_codes(job, shape) + first / 8 * width, n, width, codes);
    for (uint64_t at = first; at < first + n;) {
        uint64_t end = bucket_end(shape, at, first + n);
        tg_quantiser q = load_quantiser(shape, job->payload + d->scales_at, bucket_of(shape, at));
        k->dequantise(&q, codes + (at - first), (size_t)(end - at), sent + (at - first));
        at = end;
    }
}

static bool measure_bucket(tg_job *job, const void *of, uint64_t start, uint64_t n)
{
    const encoding *d = of;
    tg_scale scale;
    if (!tg_bucket_scale(job, d->shape, start, n, NULL, &scale))
        return false;
    store_scale(d->shape, job->payload + d->scales_at, bucket_of(d->shape, start), scale);
    return true;
}

tg_status tg_levels_encode(tg_job *job, const tg_levels_shape *shape)
{
    /* Scales of buckets that do not lie within blocks need a pass of their own. */
    const tg_dense_steps steps = {.measure = nested(shape) ? NULL : measure_bucket,
                                  .bucket = shape->bucket ? shape->bucket : shape->count,
                                  .fused = fusible(job, shape) ? fuse_block : NULL,
                                  .block = encode_block,
                                  .replay = replay_block,
                                  .unit = tg_dense_unit(shape->bucket),
                                  .bits = shape->coding == TG_CODING_PACKED ? tg_code_width(shape->levels) : 0,
                                  .scales_at = scales_at(shape),
                                  .scales_size = tg_scales_size(shape)};
    const encoding d = {shape, tg_hash_key_of(&job->draw, TG_FOR_ROUNDING), steps.scales_at};
    job->layout = TG_LAYOUT_PACKED;
    tg_status status = tg_dense_encode(job, &steps, &d);
    if (status != TG_OK)
        return status;
    uint8_t *end;
    if (shape->coding == TG_CODING_PACKED)
        end = tg_pad(job->payload, tg_packed_size(shape->count, tg_code_width(shape->levels))) + steps.scales_size;
    else
        end = tg_levels_code(job, shape, packed_codes(job, shape));
    job->payload_size = (size_t)(end - job->payload);
    return TG_OK;
}

/* ---- bounds on the relative squared error ---- */

double tg_gamma_l2(double bucket, double levels)
{
    double by_size = bucket / (levels * levels), by_root = __builtin_sqrt(bucket) / levels;
    return by_size < by_root ? by_size : by_root;
}

/* The largest of c p (1 - p) / (1 + c p^2), c = (bucket - 1) / levels^2: one element at the maximum, the others equal.
 */
double tg_gamma_max(double bucket, double levels)
{
    double c = (bucket - 1) / (levels * levels);
    return c > 0 ? (__builtin_sqrt(1 + c) - 1) / 2 : 0;
}

double tg_levels_gamma(const tg_levels_shape *shape)
{
    if (shape->count == 0)
        return 0;
    double bucket = (double)(shape->bucket == 0 || shape->bucket > shape->count ? shape->count : shape->bucket);
    if (!shape->max_norm)
        return tg_gamma_l2(bucket, shape->levels);
    double gamma = tg_gamma_max(bucket, shape->levels);
    if (shape->affine) { /* zero need not be a level: all others at zero, half a level off */
        double off_grid = bucket / (8.0 * shape->levels * shape->levels);
        gamma = off_grid > gamma ? off_grid : gamma;
    }
    return gamma;
}
