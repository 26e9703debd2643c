/* `terngrad`: -1, 0 or +1 times the bucket's largest magnitude, after clipping to a number of standard deviations (Wen et al. 2017).
 * It is qsgd with one level and the max-norm; clipping is a smaller radius, since what lies outside is limited to it anyway. */
#include "codec/levels.h"
#include "codec/reader.h"
#include "codec/table.h"

static tg_levels_shape shape_of(const tg_spec *spec, uint64_t count)
{
    return (tg_levels_shape){.count = count,
                             .levels = 1,
                             .bucket = spec->bucket,
                             .clip = spec->levels,
                             .max_norm = true,
                             .coding = tg_spec_coding(spec)};
}

static size_t bound(const tg_spec *spec, uint64_t count)
{
    tg_levels_shape shape = shape_of(spec, count);
    return tg_levels_bound(&shape);
}

static size_t workspace(const tg_spec *spec, uint64_t count, unsigned threads)
{
    (void)threads;
    tg_levels_shape shape = shape_of(spec, count);
    return tg_levels_workspace(&shape);
}

static tg_status encode(tg_job *job)
{
    tg_levels_shape shape = shape_of(job->spec, job->source.count);
    return tg_levels_encode(job, &shape);
}

static bool open(tg_reader *reader, const tg_payload *payload)
{
    tg_levels_shape shape = shape_of(payload->spec, payload->count);
    return tg_levels_row_open(reader, &shape, payload);
}

static double gamma_of(const tg_spec *spec, uint64_t count)
{
    tg_levels_shape shape = shape_of(spec, count);
    return tg_levels_gamma(&shape);
}

static const tg_parameter *const parameters[] = {&tg_parameter_clip, &tg_parameter_bucket, &tg_parameter_coding, NULL};

const tg_codec_row tg_codec_terngrad = {
    .id = 4,
    .name = "terngrad",
    .summary = "-1, 0 or +1 times the bucket's largest magnitude",
    .unbiased = true,
    .parameters = parameters,
    .standard = {.codec = 4, .bucket = 512},
    .bound = bound,
    .workspace = workspace,
    .encode = encode,
    .open = open,
    .read = tg_levels_row_read,
    .done = tg_levels_row_done,
    .seek = tg_levels_row_seek,
    .packed = tg_levels_row_packed,
    .gamma = gamma_of,
};
