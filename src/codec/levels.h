/* Quantised levels: the payload that qsgd, terngrad and sparsifiers with values=levels share (docs/format.md, 4). */
#ifndef TG_CODEC_LEVELS_H
#define TG_CODEC_LEVELS_H

#include "codec/codec.h"
#include "codec/dense.h"

/* The layouts and their numbers in the header. */
enum {
    TG_LAYOUT_PACKED = 0,
    TG_LAYOUT_ELIAS_SPARSE = 1,
    TG_LAYOUT_ELIAS_DENSE = 2,
    TG_LAYOUT_ENTROPY = 3,
    TG_LAYOUT_ENTROPY_SPARSE = 4,
    TG_LAYOUT_PREFIX = 5,
    TG_LAYOUTS = 6
};

typedef struct tg_levels_shape {
    uint64_t count;
    uint32_t levels, bucket;
    uint32_t clip; /* thousandths of a standard deviation; 0 = none */
    bool max_norm, affine;
    tg_coding coding;
} tg_levels_shape;

/* The shape that the fields norm, range, coding, levels and bucket of a spec describe. */
tg_levels_shape tg_levels_shape_of(const tg_spec *spec, uint64_t count);

/* Bits of a packed code: the least w with 2^w >= 2 * levels + 1. */
unsigned tg_code_width(uint32_t levels);
static inline uint64_t tg_packed_size(uint64_t count, unsigned width) { return (count * width + 7) / 8; }
uint64_t tg_bucket_count(uint64_t count, uint32_t bucket);
/* Bytes of all scales. */
size_t tg_scales_size(const tg_levels_shape *shape);

size_t tg_levels_bound(const tg_levels_shape *shape);
size_t tg_levels_workspace(const tg_levels_shape *shape);
/* Encodes job->source (shape->count elements) to job->payload. */
tg_status tg_levels_encode(tg_job *job, const tg_levels_shape *shape);

/* Chooses the layout among those that the shape's coding allows, and completes the payload, which begins with the
 * scales; returns the end. `packed` has tg_levels_code_workspace bytes: the packed codes, then working memory. */
uint8_t *tg_levels_code(tg_job *job, const tg_levels_shape *shape, uint8_t *packed);
size_t tg_levels_code_bound(const tg_levels_shape *shape);
size_t tg_levels_code_workspace(const tg_levels_shape *shape);
/* The n packed codes from `first` on, within a block, unpacked. */
void tg_packed_block(const tg_job *job, const tg_levels_shape *shape, const uint8_t *packed, uint64_t first, size_t n,
                     uint16_t *codes);

/* One bucket's scale. */
typedef struct tg_scale {
    float centre, radius;
} tg_scale;

tg_quantiser tg_quantiser_of(const tg_levels_shape *shape, tg_scale scale);
/* The scale of the n elements from `start` on, which are read from job->source if `u` is NULL. False if one is not
 * finite. */
bool tg_bucket_scale(tg_job *job, const tg_levels_shape *shape, uint64_t start, uint64_t n, const float *u,
                     tg_scale *scale);
/* The mean magnitude, in the same way. */
bool tg_bucket_mean(tg_job *job, uint64_t start, uint64_t n, const float *u, float *mean);

/* Gamma of the quantisers: docs/numerics.md. */
double tg_gamma_l2(double bucket, double levels);
double tg_gamma_max(double bucket, double levels);
double tg_levels_gamma(const tg_levels_shape *shape);

/* Defines the functions of a quantiser's row and the row itself from `shape_of(spec, count)` and `parameters`; `...` is
 * its default spec. */
#define TG_LEVELS_ROW(row_name, row_id, row_text, row_summary, row_has_norm, ...)  \
    static size_t bound(const tg_spec *spec, uint64_t count)                       \
    {                                                                              \
        const tg_levels_shape shape = shape_of(spec, count);                       \
        return tg_levels_bound(&shape);                                            \
    }                                                                              \
    static size_t workspace(const tg_spec *spec, uint64_t count, unsigned threads) \
    {                                                                              \
        (void)threads;                                                             \
        const tg_levels_shape shape = shape_of(spec, count);                       \
        return tg_levels_workspace(&shape);                                        \
    }                                                                              \
    static tg_status encode(tg_job *job)                                           \
    {                                                                              \
        const tg_levels_shape shape = shape_of(job->spec, job->source.count);      \
        return tg_levels_encode(job, &shape);                                      \
    }                                                                              \
    static bool open(tg_reader *reader, const tg_payload *payload)                 \
    {                                                                              \
        const tg_levels_shape shape = shape_of(payload->spec, payload->count);     \
        return tg_levels_row_open(reader, &shape, payload);                        \
    }                                                                              \
    static double gamma_of(const tg_spec *spec, uint64_t count)                    \
    {                                                                              \
        const tg_levels_shape shape = shape_of(spec, count);                       \
        return tg_levels_gamma(&shape);                                            \
    }                                                                              \
    const tg_codec_row row_name = {                                                \
        .id = (row_id),                                                            \
        .name = (row_text),                                                        \
        .summary = (row_summary),                                                  \
        .unbiased = true,                                                          \
        .has_norm = (row_has_norm),                                                \
        .parameters = parameters,                                                  \
        .standard = {.codec = (row_id), __VA_ARGS__},                              \
        .bound = bound,                                                            \
        .workspace = workspace,                                                    \
        .encode = encode,                                                          \
        .open = open,                                                              \
        .read = tg_levels_row_read,                                                \
        .done = tg_levels_row_done,                                                \
        .seek = tg_levels_row_seek,                                                \
        .packed = tg_levels_row_packed,                                            \
        .peak = tg_levels_row_peak,                                                \
        .gamma = gamma_of,                                                         \
    }

#endif
