/* Vectors to frames. An encoder has memory on the card for a frame and what it takes to make one; the frame goes to the
 * host when it is known that there is one. */
#include "device/cuda/checksum.cuh"
#include "device/cuda/coded_frames.cuh"
#include "device/cuda/dense.cuh"
#include "device/cuda/sparse.h"

#include <stdlib.h>

struct tg_encoder {
    const tg_codec_row *row;
    tg_spec largest;
    u64 max_count;
    tg_encoder *host; /* of the host's device: for lists, which are encoded in host memory */
    u8 *memory;       /* on the card, and what it is divided into */
    u8 *areas; /* what jobs have for themselves, one after the other, until they have been handed over */
    size_t areas_size, areas_used;
    u64 areas_of; /* the number of waits when the first of them was taken */
    unit *units;
    int *exponents;
    u8 *sparse;        /* what a sparsifier works in */
    u8 *codes, *coder; /* packed codes, and what the coder of another layout works in, if there is one */
    bool busy; /* a list in the workspace has not been copied yet */
    tg_list staged; /* a sparsifier's: a list in host memory, of which parts are encoded, and what decoders see */
    float *staged_sent;
};

static bool is_sparse(const tg_spec *spec) { return tg_codec_row_of(spec->codec)->sparse; }

static bool has_kernels(const tg_spec *spec, u64 count, dense_frame *frame)
{
    *frame = dense_frame{.kind = PLAIN, .bucket = 1};
    if (is_sparse(spec))
        return tg_cuda_sparse_has(spec, count);
    return tg_cuda_dense_frame(spec, TG_FLOAT32, count, NULL, frame);
}

/* ---- encoders ---- */

/* What one job has for itself, so that others may follow before it has been handed over. */
struct job_area {
    u8 *frame, *marks;
    u64 *digests, *sums;
};

/* Divides what begins at `at`, or only adds up what it takes. */
static size_t divide_area(size_t bound, u64 count, bool in_place, u8 *at, job_area *area)
{
    size_t used = 0;
    const auto take = [&](size_t bytes) {
        u8 *place = at ? at + used : NULL;
        used += arena_room(bytes);
        return place;
    };
    area->frame = take(in_place ? 0 : TG_HEADER_SIZE + bound + 64);
    area->digests = (u64 *)(void *)take(tg_cuda_digests_room(bound));
    area->sums = (u64 *)(void *)take(bound / 16 + 64);
    area->marks = take((size_t)(count / TG_GROUP + 1));
    return used;
}

/* Room for one of the largest jobs, and for several where they are small. */
static size_t areas_room(size_t bound, u64 count)
{
    constexpr size_t several = 16, enough = 32 << 20;
    job_area area;
    const size_t one = divide_area(bound, count, false, NULL, &area);
    return several * one < enough ? several * one : one < enough ? enough : one;
}

/* Divides the memory, or only adds up what it takes. */
static size_t divide(tg_encoder *e, const dense_frame *f)
{
    size_t at = 0;
    const auto take = [&](size_t bytes) {
        u8 *place = e->memory ? e->memory + at : NULL;
        at += arena_room(bytes);
        return place;
    };
    const size_t bound = e->row->bound(&e->largest, e->max_count);
    const u64 buckets = f->count == 0 ? 0 : (f->count - 1) / f->bucket + 1, units = units_in_bucket(f);
    e->areas_size = areas_room(bound, e->max_count);
    e->areas = take(e->areas_size);
    e->units = (unit *)(void *)take(f->kind != PLAIN && units > 1 ? (size_t)(buckets * units * sizeof(unit)) : 0);
    e->exponents = (int *)(void *)take(units > 1 ? (size_t)buckets * sizeof(int) : 0);
    e->sparse = take(is_sparse(&e->largest) ? tg_cuda_sparse_workspace(&e->largest, e->max_count) : 0);
    if (f->kind == LEVELS && tg_cuda_wants_coding(&e->largest)) {
        e->codes = take(tg_cuda_codes_room(f));
        e->coder = take(tg_cuda_coder_room(&e->largest, f));
    }
    return at;
}

/* Room for the longest selection in host memory. */
static bool make_staged(tg_encoder *e)
{
    const size_t room = (size_t)(tg_spec_selected(&e->largest, e->max_count) * 4 / 3 + 1) * sizeof(float);
    e->staged.indices = (u32 *)malloc(room);
    e->staged.values = (float *)malloc(room);
    e->staged_sent = (float *)malloc(room);
    return e->staged.indices && e->staged.values && e->staged_sent;
}

static void free_staged(tg_encoder *e)
{
    free(e->staged.indices);
    free(e->staged.values);
    free(e->staged_sent);
}

tg_status tg_cuda_make_encoder(tg_device *device, const tg_spec *spec, uint64_t max_count, tg_encoder **encoder,
                               tg_error *error)
{
    const occupied now(device);
    dense_frame frame;
    if (!has_kernels(spec, max_count, &frame)) {
        char text[TG_SPEC_TEXT] = "";
        (void)!tg_spec_print(spec, text, sizeof text, NULL);
        return tg_fail(error, TG_UNAVAILABLE, "device %s cannot encode %.120s yet; use a cpu device", device->name, text);
    }
    tg_encoder *made = (tg_encoder *)calloc(1, sizeof *made);
    if (!made)
        return TG_OUT_OF_MEMORY;
    made->row = tg_codec_row_of(spec->codec);
    made->largest = *spec;
    made->max_count = max_count;
    tg_device *host = now.cuda->host;
    if ((is_sparse(spec) && (host->operations->make_encoder(host, spec, max_count, &made->host, error) != TG_OK ||
                             !make_staged(made))) ||
        cudaMalloc(&made->memory, divide(made, &frame)) != cudaSuccess) {
        (void)cudaGetLastError();
        host->operations->free_encoder(host, made->host);
        free_staged(made);
        free(made);
        return TG_OUT_OF_MEMORY;
    }
    (void)divide(made, &frame);
    if (is_sparse(spec))
        tg_cuda_sparse_prepare(now.cuda, made->sparse);
    *encoder = made;
    return TG_OK;
}

void tg_cuda_free_encoder(tg_device *device, tg_encoder *encoder)
{
    if (!encoder)
        return;
    const occupied now(device);
    tg_cuda_settle(now.cuda);
    (void)cudaStreamSynchronize(now.cuda->stream);
    (void)cudaFree(encoder->memory);
    now.cuda->host->operations->free_encoder(now.cuda->host, encoder->host);
    free_staged(encoder);
    free(encoder);
}

bool tg_cuda_encoder_fits(const tg_device *device, const tg_encoder *encoder, const tg_spec *spec)
{
    const tg_codec_row *row = encoder->row;
    const tg_device *host = ((const tg_cuda *)(const void *)device)->host;
    if (encoder->host && (!host->operations->encoder_fits(host, encoder->host, spec) ||
                          tg_cuda_sparse_workspace(spec, encoder->max_count) >
                              tg_cuda_sparse_workspace(&encoder->largest, encoder->max_count)))
        return false;
    return row->bound(spec, encoder->max_count) <= row->bound(&encoder->largest, encoder->max_count);
}

/* ---- one job ---- */

/* Whether the frame is made where the caller wants it. */
static bool is_in_place(const tg_encode_job *job)
{
    return job->options.on_device && !job->end && (uintptr_t)job->frame % 16 == 0;
}

/* Whether there is room for the area of another job before those that are there have been handed over. */
static bool has_area(const tg_cuda *cuda, const tg_encode_job *job)
{
    const tg_encoder *e = job->encoder;
    job_area area;
    const size_t bound = e->row->bound(job->spec, job->source.count);
    return e->areas_of != cuda->waits ||
           divide_area(bound, job->source.count, is_in_place(job), NULL, &area) <= e->areas_size - e->areas_used;
}

/* The area of a job; waits for those before it if there is no room. */
static job_area take_area(tg_cuda *cuda, tg_encode_job *job)
{
    tg_encoder *e = job->encoder;
    job_area area;
    if (!has_area(cuda, job) || cuda->used == SLOTS)
        tg_cuda_settle(cuda);
    if (e->areas_of != cuda->waits)
        e->areas_used = 0;
    e->areas_of = cuda->waits;
    const size_t bound = e->row->bound(job->spec, job->source.count);
    e->areas_used += divide_area(bound, job->source.count, is_in_place(job), e->areas + e->areas_used, &area);
    if (is_in_place(job))
        area.frame = (u8 *)job->frame;
    return area;
}

static u64 find_first_nonfinite(tg_cuda *cuda, const tg_source *source)
{
    uint64_t index = source->count;
    tg_cuda_first_nonfinite(&cuda->device, source, &index);
    tg_cuda_settle(cuda);
    return index;
}

/* Gives the host a finished frame, at the place that is the next one now. `p->more` is where it was made. */
static void hand_over(tg_cuda *cuda, tg_encode_job *job, const u8 *made, size_t bytes)
{
    if (job->end) {
        job->frame = *job->end;
        *job->end += bytes;
    }
    if (made != job->frame)
        tg_cuda_copy(cuda, job->frame, made, bytes,
                     job->options.on_device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost);
}

static void complete_encode(tg_cuda *cuda, const pending *p, const control *seen)
{
    tg_encode_job *job = (tg_encode_job *)p->of;
    if (cuda->failure != cudaSuccess) {
        job->report = tg_encode_report{.status = TG_UNAVAILABLE};
        job->moved = false;
    } else if (seen->nonfinite) {
        job->report = tg_encode_report{.status = TG_NONFINITE};
        job->moved = false;
        job->nonfinite = find_first_nonfinite(cuda, &job->source);
    } else {
        job->report = tg_encode_report{.bytes = (size_t)p->number,
                                       .selected = job->source.count,
                                       .saturated = seen->limited,
                                       .dropped = seen->dropped};
        hand_over(cuda, job, (const u8 *)p->more, (size_t)p->number);
    }
}

/* ---- sparse vectors ---- */

/* A frame whose bytes only the card knew. */
static void complete_unknown(tg_cuda *cuda, const pending *p, const control *seen)
{
    pending made = *p;
    made.number = TG_HEADER_SIZE + seen->payload;
    complete_encode(cuda, &made, seen);
}

static void complete_sparse(tg_cuda *cuda, const pending *p, const control *seen)
{
    tg_encode_job *job = (tg_encode_job *)p->of;
    const bool fine = cuda->failure == cudaSuccess && !seen->nonfinite;
    complete_unknown(cuda, p, seen);
    if (fine)
        job->report.selected = seen->selected;
}

/* A selection that was left in the workspace: p->more has the indices, and the values behind them at p->number. */
static void complete_list(tg_cuda *cuda, const pending *p, const control *seen)
{
    tg_encode_job *job = (tg_encode_job *)p->of;
    job->encoder->busy = false;
    if (cuda->failure != cudaSuccess) {
        job->report = tg_encode_report{.status = TG_UNAVAILABLE};
    } else if (seen->nonfinite) {
        job->report = tg_encode_report{.status = TG_NONFINITE};
        job->nonfinite = find_first_nonfinite(cuda, &job->source);
    } else {
        job->report = tg_encode_report{
            .selected = seen->selected, .saturated = seen->limited, .dropped = seen->dropped};
        job->list->count = (size_t)seen->selected;
        const u8 *indices = (const u8 *)p->more;
        tg_cuda_copy(cuda, job->list->indices, indices, 4 * job->list->count, cudaMemcpyDeviceToDevice);
        tg_cuda_copy(cuda, job->list->values, indices + p->number, 4 * job->list->count, cudaMemcpyDeviceToDevice);
    }
}

/* The first place of a list in host memory with an index of at least `limit`. */
static size_t place_in(const tg_list *list, u64 limit)
{
    size_t from = 0, to = list->count;
    while (from < to) {
        const size_t middle = (from + to) / 2;
        if (list->indices[middle] < limit)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Elements that have been selected already are encoded in host memory, where their frame goes. */
static void encode_list(tg_cuda *cuda, tg_encode_job *job)
{
    tg_encode_job there = *job;
    if (job->options.on_device) { /* nobody asks for that */
        job->report = tg_encode_report{.status = TG_UNAVAILABLE};
        return;
    }
    tg_cuda_settle(cuda); /* frames before this one may have the same end */
    tg_list *staged = &job->encoder->staged;
    float *sent = job->encoder->staged_sent;
    staged->count = job->selected->count;
    tg_cuda_copy(cuda, staged->indices, job->selected->indices, 4 * staged->count, cudaMemcpyDeviceToHost);
    tg_cuda_copy(cuda, staged->values, job->selected->values, 4 * staged->count, cudaMemcpyDeviceToHost);
    (void)tg_cuda_fine(cuda, cudaStreamSynchronize(cuda->stream));
    there.encoder = job->encoder->host;
    there.selected = staged;
    there.sent = sent;
    cuda->host->operations->encode(cuda->host, &there, 1);
    job->frame = there.frame;
    job->report = there.report;
    const size_t from = place_in(staged, job->first), to = place_in(staged, job->first + job->source.count);
    if (job->sent && tg_spec_values(job->spec) != TG_VALUES_FP32) {
        tg_cuda_copy(cuda, job->sent + from, sent + from, 4 * (to - from), cudaMemcpyHostToDevice);
        (void)tg_cuda_fine(cuda, cudaStreamSynchronize(cuda->stream)); /* the next job works in the same place */
    }
}

static tg_source sparse_source(const tg_encode_job *job)
{
    const tg_nonfinite policy = job->options.nonfinite;
    tg_source source = job->source;
    source.may_move = source.may_move && !job->list;
    source.drop_nonfinite = policy == TG_NONFINITE_ZERO;
    /* As on the CPU: under trust the residual is recomputed, which beta = 0 makes impossible. */
    if (policy == TG_NONFINITE_ZERO || (policy == TG_NONFINITE_TRUST && job->source.beta != 0))
        source.undo = NULL;
    return source;
}

static void select_list(tg_cuda *cuda, tg_encode_job *job)
{
    const tg_source source = sparse_source(job);
    const u32 *indices;
    const float *values;
    tg_cuda_sparse_lists(job->spec, source.count, job->encoder->sparse, &indices, &values);
    control *c = tg_cuda_slot(cuda, {complete_list, job, (void *)(uintptr_t)indices,
                                     (u64)((const u8 *)values - (const u8 *)indices)});
    tg_cuda_sparse_select(cuda, job->spec, &source, &job->options.draw, job->encoder->sparse, c);
}

static void encode_sparse(tg_cuda *cuda, tg_encode_job *job)
{
    tg_encoder *e = job->encoder;
    if (e->busy)
        tg_cuda_settle(cuda);
    if (job->selected) {
        encode_list(cuda, job);
        return;
    }
    if (job->list) {
        e->busy = true;
        select_list(cuda, job);
        return;
    }
    const job_area area = take_area(cuda, job);
    u8 *frame = area.frame;
    const tg_source source = sparse_source(job);
    control *result = tg_cuda_slot(cuda, {complete_sparse, job, frame, 0});
    job->moved = source.count > 0 && tg_cuda_sparse_moves(&source);
    const tg_frame_info info = {.spec = *job->spec,
                                .dtype = source.dtype,
                                .count = source.count,
                                .bytes = TG_HEADER_SIZE,
                                .draw = job->options.draw,
                                .has_checksum = !job->options.no_checksum};
    tg_cuda_sparse_encode(cuda, job->spec, &source, &job->options.draw, e->sparse, frame + TG_HEADER_SIZE, result);
    checksum_job c = {.payload = frame + TG_HEADER_SIZE,
                      .size = e->row->bound(job->spec, source.count),
                      .known = result,
                      .digests = area.digests,
                      .frame = frame,
                      .has_checksum = info.has_checksum,
                      .result = result};
    tg_header_write(&info, c.header);
    if (job->options.on_device)
        tg_cuda_remember(cuda, c.header, &info);
    tg_cuda_checksum(cuda, &c, 1);
}

/* ---- the others ---- */

static norm_kind norm_of(const tg_spec *spec, const dense_frame *f)
{
    if (f->kind == SIGNS)
        return NORM_MEAN;
    if (f->affine)
        return NORM_EXTREMES;
    const bool is_qsgd = spec->codec == 3;
    return !is_qsgd || spec->choices & TG_CHOICE_NORM_MAX ? NORM_MAX : NORM_L2;
}

static dense_job dense_job_of(const tg_encode_job *job, const job_area *area)
{
    const tg_nonfinite policy = job->options.nonfinite;
    const tg_encoder *e = job->encoder;
    dense_job d = {.source = job->source};
    (void)tg_cuda_dense_frame(job->spec, job->source.dtype, job->source.count, area->frame + TG_HEADER_SIZE, &d.frame);
    d.norm = norm_of(job->spec, &d.frame);
    d.clip = d.frame.kind == LEVELS && job->spec->codec == 4 ? job->spec->levels : 0;
    d.key = tg_hash_key_of(&job->options.draw, TG_FOR_ROUNDING);
    d.checks = policy != TG_NONFINITE_ZERO;
    d.source.drop_nonfinite = policy == TG_NONFINITE_ZERO;
    /* As on the CPU: under trust the residual is recomputed, which beta = 0 makes impossible. */
    if (policy == TG_NONFINITE_ZERO || (policy == TG_NONFINITE_TRUST && job->source.beta != 0))
        d.source.undo = NULL;
    d.units = e->units;
    d.sums = area->sums;
    d.exponents = e->exponents;
    d.marks = job->source.residual && d.checks && !d.source.undo ? area->marks : NULL;
    return d;
}

/* Jobs that are put on the stream together. */
struct batch {
    static constexpr u32 MOST = 64;
    dense_job jobs[MOST];
    checksum_job sums[MOST];
    u32 count;
};

static void flush(tg_cuda *cuda, batch *b)
{
    if (b->count == 0)
        return;
    tg_cuda_fast_encode_many(cuda, b->jobs, b->count);
    tg_cuda_checksum(cuda, b->sums, b->count);
    b->count = 0;
}

static void encode(tg_cuda *cuda, tg_encode_job *job, batch *b)
{
    tg_encoder *e = job->encoder;
    if (b->count == batch::MOST || !has_area(cuda, job) || cuda->used == SLOTS)
        flush(cuda, b);
    const job_area area = take_area(cuda, job);
    u8 *frame = area.frame;
    dense_job d = dense_job_of(job, &area);
    const bool coded = tg_cuda_wants_coding(job->spec), fast = !coded && tg_cuda_is_fast(&d) && d.frame.count > 0;
    if (coded)
        tg_cuda_place_apart(&d.frame, e->codes);
    const u64 payload = coded ? e->row->bound(job->spec, job->source.count) : tg_cuda_dense_size(&d.frame);
    d.result = tg_cuda_slot(cuda, {coded ? complete_unknown : complete_encode, job, frame, TG_HEADER_SIZE + payload});
    const tg_frame_info info = {.spec = *job->spec,
                                .dtype = job->source.dtype,
                                .count = job->source.count,
                                .bytes = TG_HEADER_SIZE + payload,
                                .draw = job->options.draw,
                                .layout = TG_LAYOUT_PACKED,
                                .has_checksum = !job->options.no_checksum};
    checksum_job c = {.payload = frame + TG_HEADER_SIZE,
                      .size = payload,
                      .known = coded ? d.result : NULL,
                      .digests = area.digests,
                      .sums = area.sums,
                      .summed = fast ? tg_cuda_summed_leaves(&d) : 0,
                      .frame = frame,
                      .has_checksum = info.has_checksum,
                      .result = d.result};
    tg_header_write(&info, c.header);
    if (job->options.on_device && !coded)
        tg_cuda_remember(cuda, c.header, &info);
    d.moves = job->moved = fast && d.source.may_move && d.source.residual && d.source.undo;
    if (fast) {
        b->jobs[b->count] = d;
        b->sums[b->count++] = c;
        return;
    }
    tg_cuda_dense_encode(cuda, &d);
    if (coded)
        tg_cuda_code_frame(cuda, job->spec, &d.frame, e->coder, d.result);
    tg_cuda_checksum(cuda, &c, 1);
}

void tg_cuda_encode(tg_device *device, tg_encode_job *jobs, size_t count)
{
    const occupied now(device);
    batch b;
    b.count = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_sparse(jobs[i].spec)) {
            flush(now.cuda, &b);
            encode_sparse(now.cuda, &jobs[i]);
        } else {
            encode(now.cuda, &jobs[i], &b);
        }
    }
    flush(now.cuda, &b);
}
