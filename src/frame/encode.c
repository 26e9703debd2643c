/* Codec handles, and a vector to a frame. */
#include "frame/encode.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/fpenv.h"
#include "base/status.h"
#include "codec/header.h"

struct tg_codec {
    tg_device *device;
    tg_spec spec;
    const tg_codec_row *row;
    uint64_t max_count;
    tg_encoder *encoder;
};

tg_status tg_codec_create(tg_device *device, const tg_spec *spec, uint64_t max_count, tg_codec **codec, tg_error *error)
{
    if (!device || !spec || !codec)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_codec_create: device, spec and codec must not be NULL");
    tg_status status = tg_spec_check(spec, error);
    if (status != TG_OK)
        return status;
    if (max_count > TG_MAX_COUNT)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "a tensor of %" PRIu64 " elements is too large: the limit is %" PRIu32, max_count, TG_MAX_COUNT);
    status = tg_device_outcome(device, error);
    if (status != TG_OK)
        return status;
    const tg_codec_row *row = tg_codec_row_of(spec->codec);
    tg_codec *made = malloc(sizeof *made);
    tg_encoder *encoder = NULL;
    status = device->operations->make_encoder(device, spec, max_count, &encoder, error);
    if (!made || status != TG_OK) {
        free(made);
        if (status == TG_OK)
            device->operations->free_encoder(device, encoder);
        if (status == TG_UNAVAILABLE)
            return status;
        return tg_fail(error, TG_OUT_OF_MEMORY, "out of memory for the workspace of %s for %" PRIu64 " elements",
                       row->name, max_count);
    }
    *made = (tg_codec){.device = device, .spec = *spec, .row = row, .max_count = max_count, .encoder = encoder};
    *codec = made;
    return tg_succeed(error);
}

void tg_codec_free(tg_codec *codec)
{
    if (codec)
        codec->device->operations->free_encoder(codec->device, codec->encoder);
    free(codec);
}

const tg_spec *tg_codec_spec(const tg_codec *codec) { return codec ? &codec->spec : NULL; }

tg_device *tg_codec_device(const tg_codec *codec) { return codec->device; }

bool tg_codec_retune(tg_codec *codec, uint32_t amount)
{
    tg_spec other = codec->spec;
    other.amount = amount;
    if (!codec->device->operations->encoder_fits(codec->device, codec->encoder, &other))
        return false;
    codec->spec = other;
    return true;
}

size_t tg_frame_bound(const tg_codec *codec, uint64_t count)
{
    if (!codec || count > codec->max_count)
        return 0;
    return TG_HEADER_SIZE + codec->row->bound(&codec->spec, count);
}

tg_status tg_tensor_check(const tg_tensor *tensor, const char *what, tg_error *error)
{
    if (!tensor || (!tensor->data && tensor->count > 0))
        return tg_fail(error, TG_INVALID_ARGUMENT, "%s: data must not be NULL", what);
    if (tg_dtype_size(tensor->dtype) == 0)
        return tg_fail(error, TG_INVALID_ARGUMENT, "%s: invalid dtype %d", what, (int)tensor->dtype);
    return TG_OK;
}

tg_encode_job tg_encode_job_of(tg_codec *codec, const tg_source *source, const tg_encode_options *options)
{
    return (tg_encode_job){.encoder = codec->encoder, .spec = &codec->spec, .source = *source, .options = *options};
}

tg_status tg_encode_prepare(tg_codec *codec, const tg_source *source, const tg_encode_options *options, void *frame,
                            size_t capacity, tg_encode_job *job, tg_error *error)
{
    if (source->count > codec->max_count)
        return tg_fail(error, TG_SHAPE_MISMATCH,
                       "the tensor has %" PRIu64 " elements; the codec was created for at most %" PRIu64, source->count,
                       codec->max_count);
    if (!frame || capacity < tg_frame_bound(codec, source->count))
        return tg_fail(error, TG_BUFFER_TOO_SMALL, "the frame buffer has %zu bytes; tg_frame_bound requires %zu",
                       frame ? capacity : 0, tg_frame_bound(codec, source->count));
    if (tg_overlap(source->gradient, (size_t)source->count * tg_dtype_size(source->dtype), frame,
                   tg_frame_bound(codec, source->count)))
        return tg_fail(error, TG_INVALID_ARGUMENT, "the input and the frame buffer overlap; give them separate memory");
    if (options && (unsigned)options->nonfinite > TG_NONFINITE_TRUST)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "invalid non-finite policy %d%s; encoding takes TG_NONFINITE_REJECT, _ZERO or _TRUST",
                       (int)options->nonfinite,
                       (int)options->nonfinite == TG_NONFINITE_SKIP || (int)options->nonfinite == TG_NONFINITE_DROP
                           ? " (one of tg_nonfinite_step, for reducers)"
                           : "");
    const tg_encode_options defaults = {.no_checksum = false};
    *job = tg_encode_job_of(codec, source, options ? options : &defaults);
    job->frame = frame;
    return TG_OK;
}

static tg_status bad_residual(uint64_t index, const char *name, tg_error *error)
{
    return tg_fail(error, TG_BAD_RESIDUAL,
                   "element %" PRIu64 " of the %s is not finite; reset the feedback, or restore it from a checkpoint",
                   index, name);
}

static tg_status check_part(const float *values, const char *name, const tg_source *source, uint64_t first,
                            tg_device *device, tg_error *error)
{
    const tg_source part = {.gradient = values, .dtype = TG_FLOAT32, .count = values ? source->count : 0};
    uint64_t bad = part.count;
    device->operations->first_nonfinite(device, &part, &bad);
    device->operations->wait(device);
    if (device->failure)
        return tg_device_outcome(device, error);
    if (bad == part.count)
        return TG_OK;
    return bad_residual(first + bad, name, error);
}

tg_status tg_residual_check(const tg_source *source, uint64_t first, tg_device *device, tg_error *error)
{
    tg_status status = check_part(source->residual, "residual", source, first, device, error);
    return status == TG_OK ? check_part(source->momentum, "momentum", source, first, device, error) : status;
}

tg_status tg_encode_outcome(tg_device *device, const tg_encode_job *job, uint64_t first, const char *policy,
                            tg_error *error)
{
    if (device->failure)
        return tg_device_outcome(device, error);
    if (job->report.status == TG_OK)
        return tg_succeed(error);
    if (job->report.status == TG_BAD_RESIDUAL)
        return tg_fail(error, TG_BAD_RESIDUAL,
                       "element %" PRIu64 " of the %s was not finite, and is 0 now; restore the feedback from a "
                       "checkpoint, or go on without what was there",
                       first + job->nonfinite, job->source.momentum ? "residual or the momentum" : "residual");
    /* The codec found a value that is not finite: in the residual, or in the input. */
    tg_status status = tg_residual_check(&job->source, first, device, error);
    if (status != TG_OK)
        return status;
    return tg_fail(error, TG_NONFINITE, "element %" PRIu64 " is not finite; fix the input, or set nonfinite to %s",
                   first + job->nonfinite, policy);
}

tg_status tg_encode_begin(tg_codec *codec, const tg_source *source, const tg_encode_options *options, void *frame,
                          size_t capacity, tg_encode_job *job, tg_error *error)
{
    tg_status status = tg_encode_prepare(codec, source, options, frame, capacity, job, error);
    if (status == TG_OK)
        codec->device->operations->encode(codec->device, job, 1);
    return status;
}

static tg_status encode(tg_codec *codec, const tg_tensor *input, const tg_encode_options *options, void *frame,
                        size_t capacity, tg_encode_report *report, tg_error *error)
{
    if (!codec)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_encode: codec must not be NULL");
    tg_status status = tg_tensor_check(input, "the input", error);
    if (status != TG_OK)
        return status;
    const tg_source source = {.gradient = input->data, .dtype = input->dtype, .count = input->count};
    tg_encode_job job;
    tg_fp_mode before = tg_fp_enter();
    status = tg_encode_begin(codec, &source, options, frame, capacity, &job, error);
    if (status == TG_OK) {
        codec->device->operations->wait(codec->device);
        status = tg_encode_outcome(codec->device, &job, 0, TG_ENCODE_POLICY, error);
        *report = job.report;
    }
    tg_fp_leave(before);
    return status;
}

tg_status tg_encode(tg_codec *codec, const tg_tensor *input, const tg_encode_options *options, void *frame,
                    size_t capacity, tg_encode_report *report, tg_error *error)
{
    tg_encode_report made = {.status = TG_OK};
    tg_status status = encode(codec, input, options, frame, capacity, &made, error);
    if (report)
        *report = status == TG_OK ? made : (tg_encode_report){.status = status};
    return status;
}
