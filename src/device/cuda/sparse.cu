/* Which kernels a selector needs. */
#include "device/cuda/sparse.h"

#include "device/cuda/received.cuh"
#include "device/cuda/selected_levels.cuh"
#include "device/cuda/sparse_many.cuh"
#include "device/cuda/sparse_part.cuh"
#include "device/cuda/sparse_read.cuh"

#include <stdlib.h>

extern "C" {
#include "base/numeric.h"
#include "codec/sparse.h"
#include "codec/sparse_writer.h"
}

constexpr u32 TOPK = 16, RANDK = 17, GAUSSIANK = 18, DGCK = 19, TRIMK = 20, SIDCO = 21; /* ids of codecs */

bool tg_cuda_sparse_has(const tg_spec *spec, uint64_t max_count)
{
    return spec->codec >= TOPK && spec->codec <= SIDCO && max_count <= TG_CUDA_SPARSE_MOST;
}

static bool has_levels(const tg_spec *spec) { return tg_spec_values(spec) == TG_VALUES_LEVELS; }

/* Bytes of a value in a frame; of levels only their bytes together are known. */
static u32 value_size_of(const tg_spec *spec)
{
    return has_levels(spec) ? 0 : (u32)tg_dtype_size(tg_values_dtype(tg_spec_values(spec)));
}

bool tg_cuda_sparse_draws(const tg_spec *spec)
{
    return spec->codec == RANDK || spec->codec == DGCK || has_levels(spec);
}

static bool is_exact(const tg_spec *spec) { return spec->codec == TOPK || spec->codec == RANDK; }

static select_amount amount_of(const tg_spec *spec, uint64_t count)
{
    const u64 target = count ? tg_spec_selected(spec, count) : 0;
    select_amount a = {};
    a.exact = is_exact(spec);
    a.exact_if_many = spec->codec == DGCK;
    a.target = (u32)target;
    a.fewest = (u32)(a.exact ? target : (2 * target + 2) / 3);
    a.most = (u32)(a.exact ? target : 4 * target / 3 < count ? 4 * target / 3 : count);
    a.needed = (u32)(a.exact ? target : 4 * target / 3 + 1);
    return a;
}

/* The least key of a candidate among random ones: slightly more than k elements are likely to have it. */
static u32 random_low(u64 count, u64 target)
{
    const double expected = (double)target, wanted = expected + 6 * tg_sqrt(expected) + 32, keys = 0x1p31;
    return wanted < (double)count ? (u32)(keys - keys * (wanted / (double)count)) : 0;
}

/* The elements of a selector's sample, and its runs. */
static void sample_of(const tg_spec *spec, u64 count, u32 *size, u32 *runs)
{
    u64 wanted = TG_SAMPLE;
    *size = *runs = 0;
    if (is_exact(spec))
        return;
    if (spec->codec == DGCK) {
        wanted = (count + 99) / 100 < 4096 ? 4096 : (count + 99) / 100;
        wanted = wanted < count ? wanted : count;
    }
    const u64 whole = rounded_up(wanted, TG_SAMPLE_RUN);
    const bool is_vector = spec->codec == DGCK ? whole * TG_SAMPLE_RUN >= count : count <= TG_SAMPLE;
    *runs = is_vector ? 0 : (u32)whole;
    *size = (u32)(is_vector ? count : whole * TG_SAMPLE_RUN);
}

/* Logarithms of the stages of an exponential distribution. */
static void set_stages(guessing *g, double share)
{
    g->stage_log = -tg_log(0.25);
    for (g->stages = 1; share < 0.25; share /= 0.25)
        g->stages++;
    g->last_log = -tg_log(share);
}

static guessing guess_of(const tg_spec *spec, u64 count, u64 target, const tg_draw *draw)
{
    const double share = (double)target / (double)count;
    guessing g = {};
    sample_of(spec, count, &g.size, &g.runs);
    if (spec->codec == GAUSSIANK) {
        g.kind = GUESS_GAUSSIAN;
        g.quantile = tg_normal_tail_quantile(share / 2);
    } else if (spec->codec == TRIMK) {
        g.kind = GUESS_TRIMMED;
    } else if (spec->codec == SIDCO) {
        g.kind = GUESS_EXPONENTIAL;
        set_stages(&g, share);
    } else if (spec->codec == DGCK) {
        const u64 rank = (target * g.size + count / 2) / count;
        g.kind = GUESS_BY_SAMPLE;
        g.hash = tg_hash_key_of(draw, TG_FOR_SAMPLING);
        g.rank = rank < 1 ? 1 : (u32)rank;
    }
    return g;
}

static sparse_plan plan_of(const tg_spec *spec, uint64_t count, const tg_draw *draw, const tg_hash_key *drawn)
{
    sparse_plan plan = {};
    plan.drawn = drawn;
    plan.amount = amount_of(spec, count);
    plan.values = tg_spec_values(spec);
    plan.value_size = value_size_of(spec);
    plan.guess = guess_of(spec, count, plan.amount.target, draw);
    plan.random = spec->codec == RANDK;
    if (plan.random && count > 0) {
        plan.hash = tg_hash_key_of(draw, TG_FOR_SELECTION);
        plan.random_low = random_low(count, plan.amount.target);
    }
    return plan;
}

size_t tg_cuda_sparse_workspace(const tg_spec *spec, uint64_t max_count)
{
    const select_amount amount = amount_of(spec, max_count);
    u32 sample, runs;
    sample_of(spec, max_count, &sample, &runs);
    return sparse_layout_of(&amount, max_count, sample).size;
}

size_t tg_cuda_sparse_levels_workspace(const tg_spec *spec, u64 most)
{
    return has_levels(spec) ? tg_cuda_selected_levels_room(spec, most) : 0;
}

void tg_cuda_sparse_prepare(tg_cuda *cuda, void *workspace) { sparse_prepare(cuda->stream, workspace); }

__global__ void empty_kernel(u8 *payload, u32 layout, control *result)
{
    ((u32 *)payload)[0] = 0;
    ((u32 *)payload)[1] = segment_log(0, 0);
    result->payload = 8;
    result->layout = layout;
}

static void write_empty(tg_cuda *cuda, const tg_spec *spec, u8 *payload, control *result)
{
    const u32 layout = has_levels(spec) ? tg_cuda_empty_layout(tg_spec_coding(spec)) : 0;
    LAUNCH(empty_kernel, 1, 1, 0, cuda->stream, payload, layout, result);
}

/* ---- values that become levels ---- */

/* Where a value is not finite, what was gathered means nothing. */
__global__ void count_selected_kernel(const select_control *c, u32 *count) { *count = c->nonfinite ? 0 : c->selected; }

/* Levels to their place in the payload: packed codes come before the scales, others behind them. */
__global__ void __launch_bounds__(256) put_levels_kernel(selected_levels l, const select_control *c, u8 *payload)
{
    set_count(l.frame, *l.count);
    const bool packed = l.coded->layout == TG_LAYOUT_PACKED;
    const u64 words = scale_words(l.frame), coded = l.coded->size;
    u8 *const values = payload + 8 + 8 * (u64)c->segments, *const scales = values + (packed ? coded : 0),
              *const codes = values + (packed ? 0 : 4 * words);
    const u64 from = blockIdx.x * 256ull + threadIdx.x, step = gridDim.x * 256ull;
    for (u64 i = from; i < words; i += step)
        ((u32 *)scales)[i] = ((const u32 *)l.frame.scales)[i];
    for (u64 i = from; i < coded / 4; i += step)
        ((u32 *)codes)[i] = ((const u32 *)l.made)[i];
    for (u64 i = coded / 4 * 4 + from; i < coded; i += step)
        codes[i] = l.made[i];
}

static unsigned grid_over(const tg_cuda *cuda, u64 elements) { return grid_for(elements, 256, 16 * cuda->processors); }

void tg_cuda_sparse_encode(tg_cuda *cuda, const tg_spec *spec, const tg_source *source, const tg_draw *draw,
                           const tg_hash_key *drawn, void *workspace, void *levels, u8 *payload, control *result)
{
    cuda->busy = true;
    if (source->count == 0) {
        write_empty(cuda, spec, payload, result);
        return;
    }
    sparse_plan plan = plan_of(spec, source->count, draw, drawn);
    writing w = sparse_writing(&plan, source, workspace, payload, result, false);
    launch_gather(cuda->stream, w, plan.guess, cuda->overlaps);
    if (has_levels(spec)) {
        const selected_levels l = tg_cuda_selected_levels(spec, w.s.amount.most, levels);
        LAUNCH(count_selected_kernel, 1, 1, 0, cuda->stream, w.s.control, l.count);
        tg_cuda_quantise_selected(cuda, spec, &l, w.as_they_are, draw, drawn, result);
        tg_cuda_code_selected(cuda, spec, &l, result);
        LAUNCH(put_levels_kernel, grid_over(cuda, w.s.amount.most), 256, 0, cuda->stream, l, w.s.control, payload);
        w.levels = l.frame;
        w.levels_size = l.size;
    }
    launch_settle(cuda->stream, w);
    launch_write(cuda->stream, w, plan.guess, cuda->overlaps);
}

/* ---- several ---- */

struct sparse_batch {
    sparse_job jobs[BATCH_MOST];
    u32 count, blocks[STAGES];
};

sparse_batch *tg_cuda_sparse_make_batch(void) { return (sparse_batch *)calloc(1, sizeof(sparse_batch)); }
void tg_cuda_sparse_free_batch(sparse_batch *batch) { free(batch); }

/* Selectors that need kernels of their own, and what leaves work for after it is known what is sent. */
bool tg_cuda_sparse_joins(const tg_spec *spec, const tg_source *source)
{
    const bool commits = source->residual && !source->momentum && source->alpha == source->beta;
    return source->count > 0 && !has_levels(spec) && spec->codec != DGCK && spec->codec != SIDCO &&
           (!source->residual || commits);
}

bool tg_cuda_sparse_join(sparse_batch *batch, const tg_spec *spec, const tg_source *source, const tg_draw *draw,
                         const tg_hash_key *drawn, void *workspace, u8 *payload, control *result)
{
    if (batch->count == BATCH_MOST || !tg_cuda_sparse_joins(spec, source))
        return false;
    sparse_plan plan = plan_of(spec, source->count, draw, drawn);
    const writing w = sparse_writing(&plan, source, workspace, payload, result, false);
    if (batch->count > 0 && !same_sift(batch->jobs[0].w.s, w.s))
        return false;
    batch->jobs[batch->count++] = sparse_job_of(w, plan.guess, batch->blocks);
    return true;
}

void tg_cuda_sparse_launch(tg_cuda *cuda, sparse_batch *batch)
{
    const u32 count = batch->count;
    const void *there = count > 1 ? tg_cuda_upload(cuda, batch->jobs, count * sizeof *batch->jobs) : NULL;
    if (there)
        launch_many(cuda->stream, batch->jobs[0].w.s, batch->blocks, (const sparse_job *)there, count, cuda->overlaps);
    for (u32 i = 0; !there && i < count; i++) {
        launch_gather(cuda->stream, batch->jobs[i].w, batch->jobs[i].guess, cuda->overlaps);
        launch_write(cuda->stream, batch->jobs[i].w, batch->jobs[i].guess, cuda->overlaps);
    }
    batch->count = 0;
    memset(batch->blocks, 0, sizeof batch->blocks);
    cuda->busy = true;
}

void tg_cuda_sparse_select(tg_cuda *cuda, const tg_spec *spec, const tg_source *source, const tg_draw *draw,
                           void *workspace, control *result)
{
    if (source->count == 0)
        return;
    sparse_plan plan = plan_of(spec, source->count, draw, NULL);
    const writing w = sparse_writing(&plan, source, workspace, NULL, result, true);
    launch_gather(cuda->stream, w, plan.guess, cuda->overlaps);
    launch_settle(cuda->stream, w);
    LAUNCH(report_kernel, 1, 1, 0, cuda->stream, w);
    cuda->busy = true;
}

void tg_cuda_sparse_lists(const tg_spec *spec, uint64_t count, void *workspace, const u32 **indices,
                          const float **values)
{
    const select_amount amount = amount_of(spec, count);
    u32 sample, runs;
    sample_of(spec, count, &sample, &runs);
    const sparse_layout l = sparse_layout_of(&amount, count, sample);
    *indices = (const u32 *)((u8 *)workspace + l.indices);
    *values = (const float *)((u8 *)workspace + l.list_values);
}

void tg_cuda_sparse_encode_part(tg_cuda *cuda, const tg_encode_job *job, void *workspace, void *levels, u8 *payload,
                                control *result)
{
    const tg_list *list = job->selected;
    const u64 count = job->source.count;
    void *memory;
    size_t size;
    cuda->busy = true;
    if (count == 0) {
        write_empty(cuda, job->spec, payload, result);
        return;
    }
    sparse_part p = part_of(count, list->count, workspace, &memory, &size);
    p.indices = list->indices;
    p.values = list->values;
    p.most = (u32)list->count;
    p.first = (u32)job->first;
    p.count = (u32)count;
    p.dtype = tg_values_dtype(tg_spec_values(job->spec));
    p.sent = job->sent;
    p.payload = payload;
    p.positions = (const select_control *)memory; /* which is the first thing there */
    p.result = result;
    positions_job positions = {p.count, p.most, p.own, &p.found->listed, &p.found->bytes, p.payload, result};
    const unsigned grid = grid_for(list->count, 256, 8 * cuda->processors);
    LAUNCH(find_part_kernel, 1, 32, 0, cuda->stream, p);
    LAUNCH(take_part_kernel, grid, 256, 0, cuda->stream, p);
    if (has_levels(job->spec)) {
        const selected_levels l = tg_cuda_selected_levels(job->spec, list->count, levels);
        LAUNCH(count_part_kernel, 1, 1, 0, cuda->stream, p.found, l.count);
        tg_cuda_quantise_selected(cuda, job->spec, &l, p.own_values, &job->options.draw, NULL, result);
        tg_cuda_code_selected(cuda, job->spec, &l, result);
        positions.values = l.size;
        tg_cuda_positions_write(cuda->stream, &positions, memory);
        LAUNCH(put_levels_kernel, grid, 256, 0, cuda->stream, l, p.positions, payload);
        if (p.sent)
            LAUNCH(see_part_kernel, grid, 256, 0, cuda->stream, p, l.frame);
        return;
    }
    tg_cuda_positions_write(cuda->stream, &positions, memory);
    LAUNCH(put_part_kernel, grid, 256, 0, cuda->stream, p);
}

/* ---- reading ---- */

bool tg_cuda_sparse_reads(const tg_frame_info *info, bool blindly)
{
    return tg_codec_row_of(info->spec.codec)->sparse && !(info->layout != TG_LAYOUT_PACKED && blindly);
}

bool tg_cuda_sparse_fits(const tg_frame_info *info, u64 size)
{
    return (info->layout == TG_LAYOUT_PACKED || has_levels(&info->spec)) && size >= 8;
}

/* How many elements so many bytes behind the head can list: each takes a bit of a stream at least, and its value. */
static u32 most_read(const sparse_frame *frame, const reading &r, u64 bytes)
{
    if (r.coded)
        return frame->codes.count;
    const u64 bits = r.values == TG_VALUES_LEVELS ? r.levels.width + 1 : 8 * r.value_size, most = 8 * bytes / bits;
    return (u32)(most < r.count ? most : r.count);
}

/* Places in the workspace. */
static reading reading_of(const sparse_frame *frame, void *workspace, control *result, size_t *size)
{
    const tg_frame_info *info = frame->info;
    reading r = {};
    u8 *base = (u8 *)workspace;
    size_t at = 0;
    auto place = [&](u64 words) {
        u32 *here = (u32 *)(base + at);
        at += (size_t)rounded_up(4 * words, 256) * 256;
        return here;
    };
    r.payload = frame->payload;
    r.known = frame->known;
    r.size = frame->size;
    r.count = (u32)info->count;
    r.values = tg_spec_values(&info->spec);
    r.value_size = value_size_of(&info->spec);
    r.result = result;
    r.coded = info->layout != TG_LAYOUT_PACKED;
    if (r.coded)
        r.levels = frame->codes;
    else if (has_levels(&info->spec))
        (void)tg_cuda_dense_frame(&info->spec, info->dtype, info->count, NULL, &r.levels);
    const u64 behind = r.size - 8, segments = info->count / 4096 + 1;
    r.selected_most = most_read(frame, r, behind);
    r.segments_most = (u32)(behind / 8 < segments ? behind / 8 : segments);
    const u64 slots = r.selected_most / RICE_BLOCK + r.segments_most + 2;
    r.head = (sparse_head *)place(sizeof(sparse_head) / 4);
    r.positions = place(r.selected_most + 1);
    r.zeros = place(slots);
    r.lows = place(slots);
    r.bases = place(slots);
    if (size)
        *size = at;
    return r;
}

size_t tg_cuda_sparse_read_workspace(const tg_frame_info *info, u64 size, const dense_frame *codes)
{
    sparse_frame frame = {NULL, size < 8 ? 8 : size, info, NULL, false};
    size_t needed;
    if (codes)
        frame.codes = *codes;
    (void)reading_of(&frame, NULL, NULL, &needed);
    return needed;
}

/* Positions, and all that levels need. */
static void find(tg_cuda *cuda, const sparse_frame *frame, const reading &r)
{
    LAUNCH_BESIDE(frame->beside && cuda->overlaps, positions_kernel, grid_for(r.segments_most, 1, 8 * cuda->processors),
                  READ_THREADS, cuda->stream, r);
    cuda->busy = true;
    if (r.coded)
        tg_cuda_expand_frame(cuda, frame->coded, frame->on_device, &frame->coded_info, &r.levels, r.result);
    if (r.values == TG_VALUES_LEVELS)
        LAUNCH(look_at_levels_kernel, grid_for(r.selected_most / 64, 256, 64), 256, 0, cuda->stream, r);
}

void tg_cuda_sparse_check(tg_cuda *cuda, const sparse_frame *frame, void *workspace, control *result)
{
    reading r = reading_of(frame, workspace, result, NULL);
    r.looks_at_values = r.values != TG_VALUES_LEVELS;
    find(cuda, frame, r);
}

void tg_cuda_sparse_find(tg_cuda *cuda, const sparse_frame *frame, void *workspace, control *result)
{
    find(cuda, frame, reading_of(frame, workspace, result, NULL));
}

void tg_cuda_sparse_put(tg_cuda *cuda, const sparse_frame *frame, void *workspace, float weight, float *out,
                        control *result)
{
    const reading r = reading_of(frame, workspace, result, NULL);
    LAUNCH(add_sparse_kernel, grid_over(cuda, r.selected_most), 256, 0, cuda->stream, r, weight, false, out);
}

void tg_cuda_sparse_add(tg_cuda *cuda, const sparse_frame *frame, void *workspace, float weight, bool set, float *out,
                        control *result)
{
    const reading r = reading_of(frame, workspace, result, NULL);
    find(cuda, frame, r);
    LAUNCH(add_sparse_kernel, grid_over(cuda, r.selected_most), 256, 0, cuda->stream, r, weight, set, out);
}

void tg_cuda_sparse_settle(tg_cuda *cuda, const sparse_frame *frame, void *workspace, const tg_settle_job *job,
                           bool returns, const u32 *applied, control *result)
{
    const reading r = reading_of(frame, workspace, result, NULL);
    const sparse_settling s = {.source = job->source,
                               .applied = applied,
                               .applied_count = applied ? job->applied_count : 0,
                               .returns = returns,
                               .only_checks = job->only_checks};
    find(cuda, frame, r);
    if (!returns)
        LAUNCH(rest_kernel, grid_over(cuda, r.count), 256, 0, cuda->stream, r, s);
    LAUNCH(settle_sparse_kernel, grid_over(cuda, r.selected_most), 256, 0, cuda->stream, r, s);
}
