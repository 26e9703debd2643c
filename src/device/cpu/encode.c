/* Encodes a vector, or a list of selected elements, to a frame. */
#include <stdint.h>
#include <stdlib.h>

#include "codec/header.h"
#include "codec/sparse.h"
#include "device/cpu/checksum.h"
#include "device/cpu/cpu.h"

struct tg_encoder {
    const tg_codec_row *row;
    tg_spec largest; /* the spec that the memory was allocated for */
    uint64_t max_count;
    void *workspace;
    size_t workspace_size;
    uint64_t *digests; /* one for each leaf of the largest payload */
    /* undo buffer of tg_job, for TG_NONFINITE_REJECT: takes memory only when it is used. NULL for sparsifiers */
    uint8_t *undo;
};

enum { LINE = 64 }; /* of a cache */

void tg_cpu_free_encoder(tg_device *device, tg_encoder *encoder)
{
    (void)device;
    if (encoder) {
        free(encoder->workspace);
        free(encoder->digests);
        free(encoder->undo);
    }
    free(encoder);
}

tg_status tg_cpu_make_encoder(tg_device *device, const tg_spec *spec, uint64_t max_count, tg_encoder **encoder,
                              tg_error *error)
{
    (void)error;
    const tg_codec_row *row = tg_codec_row_of(spec->codec);
    tg_encoder *made = calloc(1, sizeof *made);
    if (!made)
        return TG_OUT_OF_MEMORY;
    const size_t bound = row->bound(spec, max_count);
    *made = (tg_encoder){.row = row,
                         .largest = *spec,
                         .max_count = max_count,
                         .workspace_size = row->workspace(spec, max_count, tg_pool_threads(tg_cpu_of(device)->pool))};
    made->workspace = malloc(made->workspace_size ? made->workspace_size : 1);
    /* A list of selected elements may have up to twice the segments that a bound of its count allows for, at 9 bytes.
     */
    made->digests = malloc((bound / TG_LEAF + (size_t)(max_count >> 21) + 2) * sizeof *made->digests);
    made->undo = row->sparse ? NULL
                             /* sparsifiers write only after they have checked all values */
                             : aligned_alloc(LINE, (bound / LINE + 1) * LINE);
    if (made->workspace && made->digests && (made->undo || row->sparse)) {
        *encoder = made;
        return TG_OK;
    }
    tg_cpu_free_encoder(device, made);
    return TG_OUT_OF_MEMORY;
}

bool tg_cpu_encoder_fits(const tg_device *device, const tg_encoder *encoder, const tg_spec *spec)
{
    const tg_codec_row *row = encoder->row;
    const unsigned threads = tg_pool_threads(tg_cpu_of_const(device)->pool);
    return row->workspace(spec, encoder->max_count, threads) <= encoder->workspace_size &&
           row->bound(spec, encoder->max_count) <= row->bound(&encoder->largest, encoder->max_count);
}

/* Writes header, checksum and report of a finished job. */
static void finish(tg_encode_job *job, const tg_job *done)
{
    const tg_frame_info info = {.spec = *job->spec,
                                .dtype = done->source.dtype,
                                .count = done->source.count,
                                .bytes = TG_HEADER_SIZE + done->payload_size,
                                .draw = job->options.draw,
                                .layout = done->layout,
                                .has_checksum = !job->options.no_checksum};
    tg_header_write(&info, job->frame);
    if (info.has_checksum)
        tg_header_set_checksum(job->frame, tg_checksum(done->kernels, done->pool, job->frame, done->payload,
                                                       done->payload_size, &done->digests, NULL));
    job->report = (tg_encode_report){.bytes = (size_t)info.bytes,
                                     .selected = done->selected,
                                     .saturated = done->saturated,
                                     .dropped = done->dropped};
}

/* Kernels store whole lines of an undo buffer, and a part of a tensor begins anywhere. A feedback's buffer begins with
 * a line, and what is in it counts only until the job ends, before the next one: so a part may use some of the place of
 * those before it. */
static float *whole_lines(float *undo)
{
    return undo ? (float *)(void *)((char *)undo - (uintptr_t)undo % LINE) : NULL;
}

static void encode(const tg_cpu *cpu, tg_encode_job *job)
{
    const tg_encoder *encoder = job->encoder;
    const tg_nonfinite policy = job->options.nonfinite;
    uint64_t damaged = 0;
    tg_job doing = {.kernels = cpu->kernels,
                    .pool = cpu->pool,
                    .spec = job->spec,
                    .source = job->source,
                    .draw = job->options.draw,
                    .check_finite = policy != TG_NONFINITE_ZERO,
                    .undo = policy == TG_NONFINITE_REJECT ? encoder->undo : NULL,
                    .workspace = encoder->workspace,
                    .payload = job->list ? NULL : (uint8_t *)job->frame + TG_HEADER_SIZE,
                    .digests.of = job->options.no_checksum ? NULL : encoder->digests};
    if (job->list) {
        doing.list.indices = job->list->indices;
        doing.list.values = job->list->values;
    }
    doing.source.drop_nonfinite = policy == TG_NONFINITE_ZERO;
    doing.source.damaged = &damaged;
    /* Under trust the residual is recomputed, up to rounding, where that can be done. */
    if (policy == TG_NONFINITE_ZERO || (policy == TG_NONFINITE_TRUST && tg_source_recomputes(&job->source)))
        doing.source.undo = NULL;
    doing.source.undo = whole_lines(doing.source.undo);
    if (encoder->row->encode(&doing) != TG_OK) {
        job->report = (tg_encode_report){.status = TG_NONFINITE};
        if (job->list)
            job->list->count = 0;
        job->nonfinite = tg_source_first_nonfinite(&job->source, cpu->kernels, cpu->pool);
        return;
    }
    if (!job->list) {
        finish(job, &doing);
    } else {
        job->list->count = (size_t)doing.selected;
        job->report = (tg_encode_report){
            .selected = doing.selected, .saturated = doing.saturated, .dropped = doing.dropped};
    }
    if (damaged) {
        job->report.status = TG_BAD_RESIDUAL;
        job->nonfinite = ~damaged;
    }
}

static void encode_list(const tg_cpu *cpu, tg_encode_job *job)
{
    const tg_list *list = job->selected;
    const size_t from = tg_cpu_list_place(list, job->first),
                 to = tg_cpu_list_place(list, job->first + job->source.count);
    tg_job doing = {.kernels = cpu->kernels,
                    .pool = cpu->pool,
                    .spec = job->spec,
                    .source = job->source,
                    .draw = job->options.draw,
                    .workspace = job->encoder->workspace,
                    .sent = job->sent ? job->sent + from : NULL,
                    .payload = (uint8_t *)job->frame + TG_HEADER_SIZE,
                    .digests.of = job->encoder->digests};
    tg_sparse_encode_list(&doing, (uint32_t)job->first, list->indices + from, list->values + from, to - from);
    finish(job, &doing);
}

void tg_cpu_encode(tg_device *device, tg_encode_job *jobs, size_t count)
{
    for (tg_encode_job *job = jobs; job < jobs + count; job++) {
        if (job->end)
            job->frame = *job->end;
        if (job->selected)
            encode_list(tg_cpu_of(device), job);
        else
            encode(tg_cpu_of(device), job);
        if (job->end && job->report.status != TG_NONFINITE)
            *job->end += job->options.on_device ? tg_frame_place(job->report.bytes) : job->report.bytes;
    }
}
