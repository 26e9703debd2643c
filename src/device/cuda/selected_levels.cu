/* The quantiser's kernels and the coders over an array of values that another kernel has listed. */
#include "device/cuda/selected_levels.cuh"

static dense_frame frame_of(const tg_spec *spec, u64 most)
{
    dense_frame f;
    (void)tg_cuda_dense_frame(spec, TG_FLOAT32, most, NULL, &f);
    return f;
}

static bool is_coded(const tg_spec *spec) { return tg_spec_coding(spec) != TG_CODING_PACKED; }

/* Divides the memory, or only adds up what it takes. */
static size_t divide(const tg_spec *spec, u64 most, u8 *memory, selected_levels *l)
{
    size_t at = 0;
    const auto take = [&](u64 bytes) {
        u8 *place = memory ? memory + at : NULL;
        at += arena_room((size_t)bytes);
        return place;
    };
    const tg_levels_shape shape = tg_levels_shape_of(spec, most);
    const dense_frame f = frame_of(spec, most);
    const u64 units = units_in_bucket(&f), buckets = buckets_of(f);
    *l = {.most = (u32)most, .frame = f};
    l->count = (u32 *)(void *)take(sizeof(u32));
    l->coded = (tg_coded *)(void *)take(sizeof(tg_coded));
    l->size = (u64 *)(void *)take(sizeof(u64));
    l->frame.codes = take(codes_size(f) + 64);
    l->frame.scales = take(4 * scale_words(f));
    l->units = (unit *)(void *)take(units > 1 ? buckets * units * sizeof(unit) : 0);
    l->exponents = (int *)(void *)take(units > 1 ? buckets * sizeof(int) : 0);
    l->made = is_coded(spec) ? take(tg_levels_bound(&shape) + 64) : l->frame.codes;
    l->coder = take(is_coded(spec) ? tg_cuda_coding_workspace(&shape) : 0);
    return at;
}

size_t tg_cuda_selected_levels_room(const tg_spec *spec, u64 most)
{
    selected_levels l;
    return divide(spec, most, NULL, &l);
}

selected_levels tg_cuda_selected_levels(const tg_spec *spec, u64 most, void *workspace)
{
    selected_levels l;
    (void)divide(spec, most, (u8 *)workspace, &l);
    return l;
}

void tg_cuda_quantise_selected(tg_cuda *cuda, const tg_spec *spec, const selected_levels *levels, const float *values,
                               const tg_draw *draw, const tg_hash_key *drawn, control *result)
{
    dense_job d = {.source = {.gradient = values, .dtype = TG_FLOAT32, .count = levels->most}};
    d.frame = levels->frame;
    d.norm = d.frame.affine ? NORM_EXTREMES : spec->choices & TG_CHOICE_NORM_MAX ? NORM_MAX : NORM_L2;
    d.key = tg_hash_key_of(draw, TG_FOR_ROUNDING);
    d.drawn = drawn;
    d.known = levels->count;
    d.units = levels->units;
    d.exponents = levels->exponents;
    d.result = result;
    tg_cuda_dense_encode(cuda, &d);
}

/* What is known of the frame when its codes have been coded. */
__global__ void size_levels(selected_levels l, bool packed)
{
    set_count(l.frame, *l.count);
    if (packed)
        *l.coded = tg_coded{codes_size(l.frame), TG_LAYOUT_PACKED, 1};
    *l.size = l.coded->size + 4 * scale_words(l.frame);
}

void tg_cuda_code_selected(tg_cuda *cuda, const tg_spec *spec, const selected_levels *levels, control *result)
{
    const tg_levels_shape shape = tg_levels_shape_of(spec, levels->most);
    if (is_coded(spec))
        tg_cuda_code_levels(cuda->stream, &shape, levels->count, levels->frame.codes, levels->coder, levels->made,
                            levels->coded, result);
    LAUNCH(size_levels, 1, 1, 0, cuda->stream, *levels, !is_coded(spec));
}
