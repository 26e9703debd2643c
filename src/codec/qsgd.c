/* `qsgd`: unbiased stochastic quantisation to `levels` levels on each side of zero, a scale for each bucket (Alistarh et al. 2017). */
#include "codec/levels.h"
#include "codec/reader.h"
#include "codec/table.h"

static size_t bound(const tg_spec *spec, uint64_t count)
{
    tg_levels_shape shape = tg_levels_shape_of(spec, count);
    return tg_levels_bound(&shape);
}

static size_t workspace(const tg_spec *spec, uint64_t count, unsigned threads)
{
    (void)threads;
    tg_levels_shape shape = tg_levels_shape_of(spec, count);
    return tg_levels_workspace(&shape);
}

static tg_status encode(tg_job *job)
{
    tg_levels_shape shape = tg_levels_shape_of(job->spec, job->source.count);
    return tg_levels_encode(job, &shape);
}

static bool open(tg_reader *reader, const tg_payload *payload)
{
    tg_levels_shape shape = tg_levels_shape_of(payload->spec, payload->count);
    return tg_levels_row_open(reader, &shape, payload);
}

static double gamma_of(const tg_spec *spec, uint64_t count)
{
    tg_levels_shape shape = tg_levels_shape_of(spec, count);
    return tg_levels_gamma(&shape);
}

static const tg_parameter *const parameters[] = {&tg_parameter_levels, &tg_parameter_bucket, &tg_parameter_norm,
                                                 &tg_parameter_range,  &tg_parameter_coding, NULL};

const tg_codec_row tg_codec_qsgd = {
    .id = 3,
    .name = "qsgd",
    .summary = "unbiased stochastic quantisation, a scale for each bucket",
    .unbiased = true,
    .parameters = parameters,
    .standard = {.codec = 3, .choices = TG_CHOICE_NORM_MAX, .levels = 7, .bucket = 512},
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
