/* Which kernels a selector needs. */
#include "device/cuda/sparse.h"

#include "device/cuda/sparse_encode.cuh"
#include "device/cuda/sparse_positions.cuh"
#include "device/cuda/sparse_read.cuh"

extern "C" {
#include "base/numeric.h"
#include "codec/sparse.h"
}

constexpr u32 TOPK = 16, RANDK = 17, GAUSSIANK = 18, DGCK = 19, TRIMK = 20, SIDCO = 21; /* ids of codecs */

/* Levels have no kernels yet; sums over tiles have 31 bits. */
bool tg_cuda_sparse_has(const tg_spec *spec, uint64_t max_count)
{
    return spec->codec >= TOPK && spec->codec <= SIDCO && tg_spec_values(spec) != TG_VALUES_LEVELS &&
           max_count < UINT64_C(1) << 31;
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

static sparse_plan plan_of(const tg_spec *spec, uint64_t count, const tg_draw *draw)
{
    sparse_plan plan = {};
    plan.amount = amount_of(spec, count);
    plan.values = tg_spec_values(spec);
    plan.value_size = plan.values == TG_VALUES_FP32 ? 4 : 2;
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

void tg_cuda_sparse_prepare(tg_cuda *cuda, void *workspace) { sparse_prepare(cuda->stream, workspace); }

__global__ void empty_kernel(u8 *payload, control *result)
{
    ((u32 *)payload)[0] = 0;
    ((u32 *)payload)[1] = segment_log(0, 0);
    result->payload = 8;
}

void tg_cuda_sparse_encode(tg_cuda *cuda, const tg_spec *spec, const tg_source *source, const tg_draw *draw,
                           void *workspace, u8 *payload, control *result)
{
    if (source->count == 0) {
        LAUNCH(empty_kernel, 1, 1, 0, cuda->stream, payload, result);
        cuda->busy = true;
        return;
    }
    sparse_plan plan = plan_of(spec, source->count, draw);
    const writing w = sparse_writing(&plan, source, workspace, payload, result, false);
    launch_sparse(cuda->stream, w, plan.guess);
    cuda->busy = true;
}

void tg_cuda_sparse_select(tg_cuda *cuda, const tg_spec *spec, const tg_source *source, const tg_draw *draw,
                           void *workspace, control *result)
{
    if (source->count == 0)
        return;
    sparse_plan plan = plan_of(spec, source->count, draw);
    const writing w = sparse_writing(&plan, source, workspace, NULL, result, true);
    launch_sparse(cuda->stream, w, plan.guess);
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

/* ---- reading ---- */

bool tg_cuda_sparse_reads(const tg_frame_info *info)
{
    return tg_codec_row_of(info->spec.codec)->sparse && tg_spec_values(&info->spec) != TG_VALUES_LEVELS;
}

bool tg_cuda_sparse_fits(const tg_frame_info *info, u64 size) { return info->layout == 0 && size >= 8; }

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
    r.size = frame->size;
    r.count = (u32)info->count;
    r.values = tg_spec_values(&info->spec);
    r.value_size = r.values == TG_VALUES_FP32 ? 4 : 2;
    r.result = result;
    const u64 behind = r.size - 8, values = behind / r.value_size, segments = info->count / 4096 + 1;
    r.selected_most = (u32)(values < info->count ? values : info->count);
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

size_t tg_cuda_sparse_read_workspace(const tg_frame_info *info, u64 size)
{
    const sparse_frame frame = {NULL, size < 8 ? 8 : size, info};
    size_t needed;
    (void)reading_of(&frame, NULL, NULL, &needed);
    return needed;
}

static void launch_positions(tg_cuda *cuda, const reading &r)
{
    LAUNCH(positions_kernel, grid_for(r.segments_most, 1, 8 * cuda->processors), READ_THREADS, 0, cuda->stream, r);
    cuda->busy = true;
}

static unsigned grid_over(const tg_cuda *cuda, u64 elements) { return grid_for(elements, 256, 16 * cuda->processors); }

void tg_cuda_sparse_check(tg_cuda *cuda, const sparse_frame *frame, void *workspace, control *result)
{
    reading r = reading_of(frame, workspace, result, NULL);
    r.looks_at_values = true;
    launch_positions(cuda, r);
}

void tg_cuda_sparse_find(tg_cuda *cuda, const sparse_frame *frame, void *workspace, control *result)
{
    launch_positions(cuda, reading_of(frame, workspace, result, NULL));
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
    launch_positions(cuda, r);
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
    launch_positions(cuda, r);
    if (!returns)
        LAUNCH(rest_kernel, grid_over(cuda, r.count), 256, 0, cuda->stream, r, s);
    LAUNCH(settle_sparse_kernel, grid_over(cuda, r.selected_most), 256, 0, cuda->stream, r, s);
}
