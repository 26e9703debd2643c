/* Codec handles, and a vector to a frame. */
#include "frame/encode.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/fpenv.h"
#include "base/status.h"
#include "codec/sparse.h"
#include "frame/checksum.h"
#include "frame/device.h"
#include "frame/header.h"

struct tg_codec {
    tg_device *device;
    tg_spec spec;
    tg_spec largest; /* what the memory was made for */
    const tg_codec_row *row;
    uint64_t max_count;
    void *workspace;
    size_t workspace_size;
    uint64_t *digests; /* one for each chunk of the largest payload */
    uint8_t
        *kept; /* tg_job's, for TG_NONFINITE_REJECT: pages that are not used are never touched. NULL for sparsifiers */
};

enum { LINE = 64 }; /* of a cache */

tg_status tg_codec_create(tg_device *device, const tg_spec *spec, uint64_t max_count, tg_codec **codec, tg_error *error)
{
    if (!device || !spec || !codec)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_codec_create needs a device, a spec and a place for the codec");
    tg_status status = tg_spec_check(spec, error);
    if (status != TG_OK)
        return status;
    if (max_count > TG_MAX_COUNT)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "a tensor of %" PRIu64 " elements is too large: the limit is %" PRIu32, max_count, TG_MAX_COUNT);
    const tg_codec_row *row = tg_codec_row_of(spec->codec);
    tg_codec *made = malloc(sizeof *made);
    const size_t workspace_size = row->workspace(spec, max_count, tg_pool_threads(device->pool));
    void *workspace = malloc(workspace_size ? workspace_size : 1);
    /* A list of selected elements may have up to twice the segments that a bound of its count allows for, at 9 bytes.
     */
    uint64_t *digests = malloc((row->bound(spec, max_count) / TG_CHUNK + (size_t)(max_count >> 21) + 2) *
                               sizeof *digests);
    /* Sparsifiers write when they have seen all. */
    uint8_t *kept = row->sparse ? NULL : aligned_alloc(LINE, (row->bound(spec, max_count) / LINE + 1) * LINE);
    if (!made || !workspace || !digests || !(kept || row->sparse)) {
        free(made);
        free(workspace);
        free(digests);
        free(kept);
        return tg_fail(error, TG_OUT_OF_MEMORY,
                       "no memory for the %zu bytes of workspace of %s for %" PRIu64 " elements", workspace_size,
                       row->name, max_count);
    }
    *made = (tg_codec){.device = device,
                       .spec = *spec,
                       .largest = *spec,
                       .row = row,
                       .max_count = max_count,
                       .workspace = workspace,
                       .workspace_size = workspace_size,
                       .digests = digests,
                       .kept = kept};
    *codec = made;
    return tg_succeed(error);
}

void tg_codec_free(tg_codec *codec)
{
    if (codec) {
        free(codec->workspace);
        free(codec->digests);
        free(codec->kept);
    }
    free(codec);
}

const tg_spec *tg_codec_spec(const tg_codec *codec) { return codec ? &codec->spec : NULL; }

bool tg_codec_retune(tg_codec *codec, uint32_t amount)
{
    tg_spec other = codec->spec;
    other.amount = amount;
    if (codec->row->workspace(&other, codec->max_count, tg_pool_threads(codec->device->pool)) > codec->workspace_size ||
        codec->row->bound(&other, codec->max_count) > codec->row->bound(&codec->largest, codec->max_count))
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
        return tg_fail(error, TG_INVALID_ARGUMENT, "%s has no data", what);
    if (tg_dtype_size(tensor->dtype) == 0)
        return tg_fail(error, TG_INVALID_ARGUMENT, "%s has dtype %d, which is none", what, (int)tensor->dtype);
    return TG_OK;
}

static tg_status check_part(const float *values, const char *name, const tg_source *source, const tg_device *device,
                            tg_error *error)
{
    const tg_source part = {.gradient = values, .dtype = TG_FLOAT32, .count = values ? source->count : 0};
    const uint64_t bad = tg_source_first_nonfinite(&part, device->kernels, device->pool);
    if (bad == part.count)
        return TG_OK;
    return tg_fail(error, TG_BAD_RESIDUAL,
                   "element %" PRIu64 " of the %s is not finite; reset the feedback, or restore it from a checkpoint",
                   bad, name);
}

tg_status tg_residual_check(const tg_source *source, const tg_device *device, tg_error *error)
{
    tg_status status = check_part(source->residual, "residual", source, device, error);
    return status == TG_OK ? check_part(source->momentum, "momentum", source, device, error) : status;
}

/* A codec met a value that is not finite: of the residual, or of the input. */
static tg_status nonfinite(const tg_source *source, const tg_device *device, tg_error *error)
{
    tg_status status = tg_residual_check(source, device, error);
    if (status != TG_OK)
        return status;
    return tg_fail(error, TG_NONFINITE,
                   "element %" PRIu64 " is not finite; mend the input, or choose the policy that drops such values",
                   tg_source_first_nonfinite(source, device->kernels, device->pool));
}

/* Header, checksum and report of a job that is done. */
static void finish(const tg_codec *codec, const tg_job *job, const tg_encode_options *options, void *frame,
                   tg_encode_report *report)
{
    tg_frame_info info = {.spec = codec->spec,
                          .dtype = job->source.dtype,
                          .count = job->source.count,
                          .bytes = TG_HEADER_SIZE + job->payload_size,
                          .draw = options->draw,
                          .layout = job->layout,
                          .has_checksum = !options->no_checksum};
    tg_header_write(&info, frame);
    if (info.has_checksum)
        tg_header_set_checksum(
            frame, tg_checksum(job->kernels, job->pool, frame, job->payload, job->payload_size, &job->digests, NULL));
    if (report)
        *report = (tg_encode_report){.bytes = (size_t)info.bytes,
                                     .selected = job->selected,
                                     .saturated = job->saturated,
                                     .dropped = job->dropped};
}

void tg_encode_list(tg_codec *codec, const tg_list *list, uint64_t first, uint64_t count, const tg_draw *draw,
                    float *sent, void *frame, tg_encode_report *report)
{
    const tg_encode_options options = {.draw = *draw};
    tg_job job = {.kernels = codec->device->kernels,
                  .spec = &codec->spec,
                  .source = {.dtype = TG_FLOAT32, .count = count},
                  .draw = *draw,
                  .workspace = codec->workspace,
                  .sent = sent,
                  .payload = (uint8_t *)frame + TG_HEADER_SIZE,
                  .digests.of = codec->digests};
    tg_sparse_encode_list(&job, (uint32_t)first, list->indices, list->values, list->count);
    finish(codec, &job, &options, frame, report);
}

tg_status tg_encode_source(tg_codec *codec, const tg_source *source, const tg_encode_options *options, void *frame,
                           size_t capacity, tg_encode_report *report, tg_error *error)
{
    const tg_encode_options defaults = {.nonfinite = TG_NONFINITE_REJECT};
    options = options ? options : &defaults;
    const tg_kernels *kernels = codec->device->kernels;
    tg_pool *pool = codec->device->pool;
    if (source->count > codec->max_count)
        return tg_fail(error, TG_SHAPE_MISMATCH,
                       "the tensor has %" PRIu64 " elements; the codec was made for up to %" PRIu64, source->count,
                       codec->max_count);
    if (!frame || capacity < tg_frame_bound(codec, source->count))
        return tg_fail(error, TG_BUFFER_TOO_SMALL, "the frame's buffer has %zu bytes; tg_frame_bound asks for %zu",
                       frame ? capacity : 0, tg_frame_bound(codec, source->count));
    if ((unsigned)options->nonfinite > TG_NONFINITE_TRUST)
        return tg_fail(error, TG_INVALID_ARGUMENT,
                       "invalid non-finite policy %d%s; encoding takes TG_NONFINITE_REJECT, _ZERO or _TRUST",
                       (int)options->nonfinite,
                       (int)options->nonfinite == TG_NONFINITE_SKIP || (int)options->nonfinite == TG_NONFINITE_DROP
                           ? " (one of tg_nonfinite_step, for reducers)"
                           : "");

    tg_job job = {.kernels = kernels,
                  .pool = pool,
                  .spec = &codec->spec,
                  .source = *source,
                  .draw = options->draw,
                  .check_finite = options->nonfinite != TG_NONFINITE_ZERO,
                  .kept = options->nonfinite == TG_NONFINITE_REJECT ? codec->kept : NULL,
                  .workspace = codec->workspace,
                  .payload = (uint8_t *)frame + TG_HEADER_SIZE,
                  .digests.of = options->no_checksum ? NULL : codec->digests};
    job.source.drop_nonfinite = options->nonfinite == TG_NONFINITE_ZERO;
    /* Under trust the residual goes back to rounding, but one that beta = 0 has wiped could not. */
    if (job.source.drop_nonfinite || (options->nonfinite == TG_NONFINITE_TRUST && source->beta != 0))
        job.source.kept = NULL;
    if (codec->row->encode(&job) != TG_OK)
        return nonfinite(source, codec->device, error);

    finish(codec, &job, options, frame, report);
    return tg_succeed(error);
}

tg_status tg_encode(tg_codec *codec, const tg_tensor *input, const tg_encode_options *options, void *frame,
                    size_t capacity, tg_encode_report *report, tg_error *error)
{
    if (!codec)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_encode needs a codec");
    tg_status status = tg_tensor_check(input, "the input", error);
    if (status != TG_OK)
        return status;
    tg_source source = {.gradient = input->data, .dtype = input->dtype, .count = input->count};
    tg_fp_mode before = tg_fp_enter();
    status = tg_encode_source(codec, &source, options, frame, capacity, report, error);
    tg_fp_leave(before);
    return status;
}
