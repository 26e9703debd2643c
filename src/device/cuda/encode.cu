/* Vectors to frames. An encoder has memory on the card for a frame and what it takes to make one; the frame goes to the
 * host when it is known that there is one. */
#include "device/cuda/checksum.cuh"
#include "device/cuda/coded_frames.cuh"
#include "device/cuda/dense.cuh"
#include "device/cuda/sparse.h"

#include <stdlib.h>

extern "C" {
#include "codec/codec_table.h"
#include "codec/sparse.h"
}

struct tg_encoder {
    const tg_codec_row *row;
    tg_spec largest;
    u64 max_count;
    u8 *memory; /* on the card, and what it is divided into */
    u8 *areas;  /* what jobs have for themselves, one after the other, until they have been handed over */
    size_t areas_size, areas_used;
    u64 areas_of; /* when the first of them was taken: age_of */
    unit *units;
    int *exponents;
    u8 *sparse, *part; /* what a sparsifier works in, and what encodes its lists */
    u8 *levels;        /* what its values work in, where they become levels */
    u8 *codes, *coder; /* packed codes, and what the coder of another layout works in, if there is one */
    bool busy;         /* a list in the workspace has not been copied yet */
    bool joined;       /* the batch has a job that works in `sparse` */
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
    u64 *digests;
    tg_hash_key *drawn;
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
    area->marks = take((size_t)(count / TG_GROUP + 1));
    area->drawn = (tg_hash_key *)(void *)take(tg_cuda_drawn_room());
    return used;
}

/* The longest list that a selection can be. */
static u64 most_listed(const tg_spec *spec, u64 count) { return tg_spec_selected(spec, count) * 4 / 3 + 1; }

/* The most bytes of the payload of a job. All of a list may be in the range that a job sends. */
static size_t payload_bound(const tg_codec_row *row, const tg_spec *spec, u64 count, u64 listed)
{
    const size_t selected = row->bound(spec, count);
    const size_t list = listed > 0 ? tg_sparse_list_bound(spec, count, listed < count ? listed : count) : 0;
    return selected > list ? selected : list;
}

static size_t payload_bound_of(const tg_encode_job *job)
{
    return payload_bound(job->encoder->row, job->spec, job->source.count, job->selected ? job->selected->count : 0);
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
    const u64 listed = is_sparse(&e->largest) ? most_listed(&e->largest, e->max_count) : 0;
    /* a shorter vector may have twice the segments, at 9 bytes, of which there are 2048 elements each */
    const size_t bound = payload_bound(e->row, &e->largest, e->max_count, listed) + 9 * (size_t)(listed / 2048 + 1);
    const u64 buckets = f->count == 0 ? 0 : (f->count - 1) / f->bucket + 1, units = units_in_bucket(f);
    e->areas_size = areas_room(bound, e->max_count);
    e->areas = take(e->areas_size);
    e->units = (unit *)(void *)take(f->kind != PLAIN && units > 1 ? (size_t)(buckets * units * sizeof(unit)) : 0);
    e->exponents = (int *)(void *)take(units > 1 ? (size_t)buckets * sizeof(int) : 0);
    e->sparse = take(is_sparse(&e->largest) ? tg_cuda_sparse_workspace(&e->largest, e->max_count) : 0);
    e->part = take(listed > 0 ? tg_cuda_sparse_part_workspace(e->max_count, listed) : 0);
    e->levels = take(listed > 0 ? tg_cuda_sparse_levels_workspace(&e->largest, listed) : 0);
    if (f->kind == LEVELS && tg_cuda_wants_coding(&e->largest)) {
        e->codes = take(tg_cuda_codes_room(f));
        e->coder = take(tg_cuda_coder_room(&e->largest, f));
    }
    return at;
}

tg_status tg_cuda_make_encoder(tg_device *device, const tg_spec *spec, uint64_t max_count, tg_encoder **encoder,
                               tg_error *error)
{
    const occupied now(device);
    dense_frame frame;
    if (!has_kernels(spec, max_count, &frame)) {
        char text[TG_SPEC_TEXT] = "";
        (void)!tg_spec_print(spec, text, sizeof text, NULL);
        if (is_sparse(spec) && has_kernels(spec, TG_CUDA_SPARSE_MOST, &frame))
            return tg_fail(
                error, TG_UNAVAILABLE,
                "device %s encodes vectors of at most %u elements with %.120s, not of %llu; use a cpu device, "
                "or divide the vector",
                device->name, TG_CUDA_SPARSE_MOST, text, (unsigned long long)max_count);
        return tg_fail(error, TG_UNAVAILABLE, "device %s cannot encode %.120s yet; use a cpu device", device->name,
                       text);
    }
    tg_encoder *made = (tg_encoder *)calloc(1, sizeof *made);
    if (!made)
        return TG_OUT_OF_MEMORY;
    made->row = tg_codec_row_of(spec->codec);
    made->largest = *spec;
    made->max_count = max_count;
    if (cudaMalloc(&made->memory, divide(made, &frame)) != cudaSuccess) {
        (void)cudaGetLastError();
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
    free(encoder);
}

bool tg_cuda_encoder_fits(const tg_device *device, const tg_encoder *encoder, const tg_spec *spec)
{
    const tg_codec_row *row = encoder->row;
    (void)device;
    if (is_sparse(spec) && (tg_cuda_sparse_workspace(spec, encoder->max_count) >
                                tg_cuda_sparse_workspace(&encoder->largest, encoder->max_count) ||
                            most_listed(spec, encoder->max_count) > most_listed(&encoder->largest, encoder->max_count)))
        return false;
    return row->bound(spec, encoder->max_count) <= row->bound(&encoder->largest, encoder->max_count);
}

/* ---- one job ---- */

/* Whether the frame is made where the caller wants it. */
static bool is_in_place(const tg_encode_job *job)
{
    return job->options.on_device && !job->end && (uintptr_t)job->frame % 16 == 0;
}

/* Areas of another age are free: their jobs have been handed over, or those to come are done later, behind them. */
static u64 age_of(const tg_cuda *cuda) { return cuda->later ? cuda->rounds | 1ull << 63 : cuda->waits; }

/* Whether there is room for the area of another job before those that are there have been handed over. */
static bool has_area(const tg_cuda *cuda, const tg_encode_job *job)
{
    const tg_encoder *e = job->encoder;
    job_area area;
    const size_t bound = payload_bound_of(job);
    return e->areas_of != age_of(cuda) ||
           divide_area(bound, job->source.count, is_in_place(job), NULL, &area) <= e->areas_size - e->areas_used;
}

/* The area of a job; waits for those before it if there is no room. What is done later uses it again without waiting:
 * the jobs before it are on the stream. */
static job_area take_area(tg_cuda *cuda, tg_encode_job *job)
{
    tg_encoder *e = job->encoder;
    job_area area;
    const bool has_room = has_area(cuda, job);
    if (!cuda->later && (!has_room || cuda->used == SLOTS))
        tg_cuda_settle(cuda);
    if (e->areas_of != age_of(cuda) || !has_room)
        e->areas_used = 0;
    e->areas_of = age_of(cuda);
    const size_t bound = payload_bound_of(job);
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

/* The keys of the draw, where its step is on the card; else NULL. */
static const tg_hash_key *draw_of(tg_cuda *cuda, const tg_encode_job *job, const job_area *area)
{
    if (!job->step)
        return NULL;
    tg_cuda_draw(cuda, &job->options.draw, job->step, area->drawn);
    return area->drawn;
}

/* Gives the host a finished frame, at the place that is the next one now. `p->more` is where it was made. */
static void hand_over(tg_cuda *cuda, tg_encode_job *job, const u8 *made, size_t bytes)
{
    if (job->end) {
        job->frame = *job->end;
        *job->end += job->options.on_device ? tg_frame_place(bytes) : bytes;
    }
    if (!job->options.on_device)
        tg_cuda_send(cuda, job->frame, made, bytes);
    else if (made != job->frame)
        tg_cuda_copy(cuda, job->frame, made, bytes, cudaMemcpyDeviceToDevice);
}

/* What the card reports, after it is known whether the residual moves. */
static later_report report_of(const tg_cuda *cuda, const tg_encode_job *job, u64 bytes, u64 selected)
{
    if (!cuda->later)
        return later_report{};
    return later_report{job->report_to, job->moved ? job->source.side : NULL, bytes, selected};
}

/* Whether a value was not finite; then the report says so. */
static bool fails(tg_cuda *cuda, tg_encode_job *job, const control *seen)
{
    if (!seen->nonfinite)
        return false;
    job->report = tg_encode_report{.status = TG_NONFINITE};
    job->nonfinite = find_first_nonfinite(cuda, &job->source);
    return true;
}

/* Whether the residual was damaged, and is 0 there now; all else has been done. */
static void note_damage(tg_encode_job *job, const control *seen)
{
    if (!seen->least)
        return;
    job->report.status = TG_BAD_RESIDUAL;
    job->nonfinite = ~seen->least;
}

static void complete_encode(tg_cuda *cuda, const pending *p, const control *seen)
{
    tg_encode_job *job = (tg_encode_job *)p->of;
    if (cuda->failure != cudaSuccess) {
        job->report = tg_encode_report{.status = TG_UNAVAILABLE};
        job->moved = false;
    } else if (fails(cuda, job, seen)) {
        job->moved = false;
    } else {
        job->report = tg_encode_report{.bytes = (size_t)p->number,
                                       .selected = job->source.count,
                                       .saturated = seen->limited,
                                       .dropped = seen->dropped};
        hand_over(cuda, job, (const u8 *)p->more, (size_t)p->number);
        note_damage(job, seen);
    }
}

/* ---- several jobs ---- */

/* Jobs that are put on the stream together: dense ones, which the same kernels can do, or sparse ones. */
struct batch {
    dense_job jobs[BATCH_MOST];
    sparse_batch *sparse;
    checksum_job sums[BATCH_MOST];
    tg_encoder *encoders[BATCH_MOST]; /* of sparse jobs */
    tg_encode_job later[LATER_SLOTS]; /* those of a call that is done later */
    u32 count;
    bool is_sparse;
};

struct batch *tg_cuda_make_batch(void)
{
    batch *made = (batch *)calloc(1, sizeof *made);
    if (made && !(made->sparse = tg_cuda_sparse_make_batch())) {
        free(made);
        return NULL;
    }
    return made;
}

void tg_cuda_free_batch(struct batch *batch)
{
    if (batch)
        tg_cuda_sparse_free_batch(batch->sparse);
    free(batch);
}

static void flush(tg_cuda *cuda)
{
    batch *b = cuda->batch;
    if (b->count == 0)
        return;
    if (b->is_sparse)
        tg_cuda_sparse_launch(cuda, b->sparse);
    else
        tg_cuda_fast_encode_many(cuda, b->jobs, b->count);
    tg_cuda_checksum(cuda, b->sums, b->count, true);
    for (u32 i = 0; b->is_sparse && i < b->count; i++)
        b->encoders[i]->joined = false;
    b->count = 0;
}

/* Before a job gets its area and its slot: those that are not on the stream yet must not lose theirs. */
static void make_room(tg_cuda *cuda, const tg_encode_job *job)
{
    if (!has_area(cuda, job) || cuda->batch->count == BATCH_MOST || (!cuda->later && cuda->used == SLOTS))
        flush(cuda);
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
    complete_unknown(cuda, p, seen);
    if (job->report.bytes > 0)
        job->report.selected = seen->selected;
}

/* A selection that was left in the workspace: p->more has the indices, and the values behind them at p->number. */
static void complete_list(tg_cuda *cuda, const pending *p, const control *seen)
{
    tg_encode_job *job = (tg_encode_job *)p->of;
    job->encoder->busy = false;
    job->list->count = 0;
    if (cuda->failure != cudaSuccess) {
        job->report = tg_encode_report{.status = TG_UNAVAILABLE};
    } else if (!fails(cuda, job, seen)) {
        job->report = tg_encode_report{
            .selected = seen->selected, .saturated = seen->limited, .dropped = seen->dropped};
        job->list->count = (size_t)seen->selected;
        const u8 *indices = (const u8 *)p->more;
        tg_cuda_copy(cuda, job->list->indices, indices, 4 * job->list->count, cudaMemcpyDeviceToDevice);
        tg_cuda_copy(cuda, job->list->values, indices + p->number, 4 * job->list->count, cudaMemcpyDeviceToDevice);
        note_damage(job, seen);
    }
}

/* `result` is where the kernels leave what they found. */
static tg_source sparse_source(const tg_encode_job *job, control *result)
{
    const tg_nonfinite policy = job->options.nonfinite;
    tg_source source = job->source;
    source.may_move = source.may_move && !job->list;
    source.drop_nonfinite = policy == TG_NONFINITE_ZERO;
    source.damaged = (uint64_t *)&result->least;
    /* As on the CPU: under trust the residual is recomputed, where that can be done. */
    if (policy == TG_NONFINITE_ZERO || (policy == TG_NONFINITE_TRUST && tg_source_recomputes(&job->source)))
        source.undo = NULL;
    return source;
}

static void select_list(tg_cuda *cuda, tg_encode_job *job)
{
    const u32 *indices;
    const float *values;
    tg_cuda_sparse_lists(job->spec, job->source.count, job->encoder->sparse, &indices, &values);
    control *c = tg_cuda_slot(
        cuda, {complete_list, job, (void *)(uintptr_t)indices, (u64)((const u8 *)values - (const u8 *)indices)});
    const tg_source source = sparse_source(job, c);
    tg_cuda_sparse_select(cuda, job->spec, &source, &job->options.draw, job->encoder->sparse, c);
}

/* A vector whose frame is made, by the kernels of the batch or by those of one vector. */
static void encode_vector(tg_cuda *cuda, tg_encode_job *job)
{
    tg_encoder *e = job->encoder;
    batch *b = cuda->batch;
    if (e->joined || !b->is_sparse)
        flush(cuda);
    make_room(cuda, job);
    b->is_sparse = true;
    const job_area area = take_area(cuda, job);
    u8 *frame = area.frame;
    control *result = cuda->later ? tg_cuda_later_slot(cuda) : tg_cuda_slot(cuda, {complete_sparse, job, frame, 0});
    const tg_source source = sparse_source(job, result);
    job->moved = !job->selected && source.count > 0 && tg_cuda_sparse_moves(&source);
    const tg_frame_info info = {.spec = *job->spec,
                                .dtype = source.dtype,
                                .count = source.count,
                                .bytes = TG_HEADER_SIZE,
                                .draw = job->options.draw,
                                .has_checksum = !job->options.no_checksum};
    checksum_job c = {.payload = frame + TG_HEADER_SIZE,
                      .size = payload_bound_of(job),
                      .known = result,
                      .digests = area.digests,
                      .frame = frame,
                      .has_checksum = info.has_checksum,
                      .result = result,
                      .step = job->step,
                      .report = report_of(cuda, job, 0, AS_COUNTED)};
    tg_header_write(&info, c.header);
    if (job->options.on_device && !tg_cuda_wants_coding(job->spec)) /* else the layout is not known yet */
        tg_cuda_remember(cuda, c.header, &info);
    u8 *const payload = frame + TG_HEADER_SIZE;
    if (job->selected) {
        flush(cuda);
        tg_cuda_sparse_encode_part(cuda, job, e->part, e->levels, payload, result);
        tg_cuda_checksum(cuda, &c, 1, job->source.count > 0);
        return;
    }
    const tg_hash_key *drawn = tg_cuda_sparse_draws(job->spec) ? draw_of(cuda, job, &area) : NULL;
    for (int attempt = 0; attempt < 2; attempt++) { /* it may be the first of the next batch */
        if (tg_cuda_sparse_join(b->sparse, job->spec, &source, &job->options.draw, drawn, e->sparse, payload, result)) {
            e->joined = true;
            b->encoders[b->count] = e;
            b->sums[b->count++] = c;
            return;
        }
        flush(cuda);
    }
    tg_cuda_sparse_encode(cuda, job->spec, &source, &job->options.draw, drawn, e->sparse, e->levels, payload, result);
    tg_cuda_checksum(cuda, &c, 1, job->source.count > 0);
}

static void encode_sparse(tg_cuda *cuda, tg_encode_job *job)
{
    tg_encoder *e = job->encoder;
    if ((e->busy && !cuda->later) || job->selected || job->list)
        flush(cuda);
    if (e->busy && !cuda->later)
        tg_cuda_settle(cuda);
    if (job->selected)
        tg_cuda_settle(cuda); /* how many elements a list has may be a result */
    if (job->list) {
        e->busy = true;
        select_list(cuda, job);
    } else {
        encode_vector(cuda, job);
    }
}

/* ---- the others ---- */

static norm_kind norm_of(const tg_spec *spec, const dense_frame *f)
{
    if (f->kind == SIGNS)
        return NORM_MEAN;
    if (f->affine)
        return NORM_EXTREMES;
    const bool is_qsgd = spec->codec == tg_codec_qsgd.id;
    return !is_qsgd || spec->choices & TG_CHOICE_NORM_MAX ? NORM_MAX : NORM_L2;
}

static dense_job dense_job_of(const tg_encode_job *job, const job_area *area)
{
    const tg_nonfinite policy = job->options.nonfinite;
    const tg_encoder *e = job->encoder;
    dense_job d = {.source = job->source};
    (void)tg_cuda_dense_frame(job->spec, job->source.dtype, job->source.count, area->frame + TG_HEADER_SIZE, &d.frame);
    d.norm = norm_of(job->spec, &d.frame);
    d.clip = d.frame.kind == LEVELS && job->spec->codec == tg_codec_terngrad.id ? job->spec->levels : 0;
    d.key = tg_hash_key_of(&job->options.draw, TG_FOR_ROUNDING);
    d.checks = policy != TG_NONFINITE_ZERO;
    d.source.drop_nonfinite = policy == TG_NONFINITE_ZERO;
    /* As on the CPU: under trust the residual is recomputed, where that can be done. */
    if (policy == TG_NONFINITE_ZERO || (policy == TG_NONFINITE_TRUST && tg_source_recomputes(&job->source)))
        d.source.undo = NULL;
    d.units = e->units;
    d.digests = area->digests;
    d.exponents = e->exponents;
    d.marks = job->source.residual && d.checks && !d.source.undo ? area->marks : NULL;
    return d;
}

static void encode_dense(tg_cuda *cuda, tg_encode_job *job)
{
    tg_encoder *e = job->encoder;
    batch *b = cuda->batch;
    if (b->is_sparse)
        flush(cuda);
    make_room(cuda, job);
    b->is_sparse = false;
    const job_area area = take_area(cuda, job);
    u8 *frame = area.frame;
    dense_job d = dense_job_of(job, &area);
    d.drawn = draw_of(cuda, job, &area);
    const bool coded = tg_cuda_wants_coding(job->spec), fast = !coded && tg_cuda_is_fast(&d) && d.frame.count > 0;
    if (coded)
        tg_cuda_place_apart(&d.frame, e->codes);
    const u64 payload = coded ? e->row->bound(job->spec, job->source.count) : tg_cuda_dense_size(&d.frame);
    d.result = cuda->later ? tg_cuda_later_slot(cuda)
                           : tg_cuda_slot(cuda, {coded ? complete_unknown : complete_encode, job, frame,
                                                 TG_HEADER_SIZE + payload});
    d.source.damaged = (uint64_t *)&d.result->least;
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
                      .digested = fast ? tg_cuda_digested_leaves(&d) : 0,
                      .frame = frame,
                      .has_checksum = info.has_checksum,
                      .result = d.result,
                      .step = job->step};
    tg_header_write(&info, c.header);
    if (job->options.on_device && !coded)
        tg_cuda_remember(cuda, c.header, &info);
    d.moves = job->moved = fast && d.source.may_move && d.source.residual && d.source.undo;
    c.undone = undoing_of(&d);
    c.report = report_of(cuda, job, coded ? 0 : TG_HEADER_SIZE + payload, job->source.count);
    if (fast) {
        b->jobs[b->count] = d;
        b->sums[b->count++] = c;
        return;
    }
    tg_cuda_dense_encode(cuda, &d);
    if (coded)
        tg_cuda_code_frame(cuda, job->spec, &d.frame, e->coder, d.result);
    tg_cuda_checksum(cuda, &c, 1, job->source.count > 0);
}

/* Sparse vectors that no batch takes, beside each other; those with the same encoder follow each other. */
static void encode_beside(tg_cuda *cuda, tg_encode_job *jobs, size_t count)
{
    u32 encoder[LATER_SLOTS], encoders = 0;
    for (size_t i = 0; i < count; i++) {
        size_t same = 0;
        while (jobs[same].encoder != jobs[i].encoder)
            same++;
        encoder[i] = same < i ? encoder[same] : encoders++;
        tg_cuda_branch(cuda, encoder[i] % BRANCHES);
        encode_sparse(cuda, &jobs[i]);
    }
    tg_cuda_join(cuda);
}

static void encode_all(tg_cuda *cuda, tg_encode_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (is_sparse(jobs[i].spec))
            encode_sparse(cuda, &jobs[i]);
        else
            encode_dense(cuda, &jobs[i]);
    }
    flush(cuda);
}

void tg_cuda_encode(tg_device *device, tg_encode_job *jobs, size_t count)
{
    const occupied now(device);
    encode_all(now.cuda, jobs, count);
}

/* Whether all of them are sparse, and none can join a batch. */
static bool go_beside(const tg_encode_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!is_sparse(jobs[i].spec) || tg_cuda_sparse_joins(jobs[i].spec, &jobs[i].source))
            return false;
    return count > 1;
}

void tg_cuda_encode_later(tg_device *device, const tg_encode_job *jobs, size_t count)
{
    const occupied now(device);
    tg_encode_job *some = now.cuda->batch->later;
    for (size_t done = 0, n; done < count; done += n) {
        n = count - done < LATER_SLOTS ? count - done : (size_t)LATER_SLOTS;
        memcpy(some, jobs + done, n * sizeof *some);
        tg_cuda_begin_later(now.cuda);
        if (go_beside(some, n))
            encode_beside(now.cuda, some, n);
        else
            encode_all(now.cuda, some, n);
        tg_cuda_end_later(now.cuda);
    }
}
