/* Adding the common case: packed levels of 2, 4 or 8 bits in buckets of 512, to float32. A warp takes a group, and asks
 * for all that it needs of the vector and the frames before it uses any of it. */
#include "device/cuda/addend.cuh"
#include "device/cuda/received.cuh"

constexpr u32 THREADS = 64, WARPS = THREADS / 32, MOST = 4; /* small blocks: their warps end together */

struct fast_addition {
    fast_frame frames[MOST];
    u32 count;
    float weight, scale;
    float *out;
    bool aligned; /* rows of a lane can be read as one */
    control *result;
};

/* A group of any kind: the rest of a vector, or one that is not aligned, or has a tiny radius. */
template <bool FRESH, u32 FRAMES, u32 WIDTH>
__device__ __noinline__ void add_any_group(const fast_addition &a, u32 group, u32 first)
{
    const u32 end = a.count - first < TG_GROUP ? a.count : first + TG_GROUP;
    bool sound = *(volatile u32 *)&a.result->bad == 0;
    for (u32 i = first + lane_id(); i < end; i += 32) {
        float sum = FRESH ? 0 : a.out[i];
        for (u32 k = 0; k < FRAMES; k++) {
            const dense_frame f = {.kind = LEVELS,
                                   .count = a.count,
                                   .levels = a.frames[k].levels,
                                   .width = WIDTH,
                                   .bucket = TG_GROUP,
                                   .codes = (u8 *)(uintptr_t)a.frames[k].codes,
                                   .scales = (u8 *)(uintptr_t)a.frames[k].scales};
            sound = sound && (end < a.count || padding_is_zero(f)) &&
                    scale_is_sound(f, 1, tg_float_bits(a.frames[k].scales[group]));
            const float value = a.weight * value_at(f, i);
            sum = FRESH && k == 0 ? value : sum + value;
        }
        if (sound)
            a.out[i] = a.scale != 1 ? a.scale * sum : sum;
    }
    if (!sound)
        atomicOr(&a.result->bad, (u32)BREAKS_RULE);
}

/* The radius of frame t in lane t, and in the lanes behind the last frame's that of the first. */
template <u32 FRAMES> __device__ __forceinline__ float own_radius(const fast_addition &a, u32 group)
{
    const float *scales = a.frames[0].scales;
#pragma unroll
    for (u32 k = 1; k < FRAMES; k++)
        scales = lane_id() == k ? a.frames[k].scales : scales;
    return __ldg(scales + group);
}

/* And the value of one level of that frame. */
template <u32 FRAMES> __device__ __forceinline__ float own_unit(const fast_addition &a, float radius)
{
    u32 levels = a.frames[0].levels;
#pragma unroll
    for (u32 k = 1; k < FRAMES; k++)
        levels = lane_id() == k ? a.frames[k].levels : levels;
    return tg_quantiser_from(levels, 0, radius, false).unit;
}

/* Adds what a frame has for the lane's elements. */
template <u32 WIDTH, bool SETS>
__device__ __forceinline__ void add_words(const u32 (&word)[WIDTH / 2], float radius, float unit, float zero,
                                          float weight, float (&sum)[32 / WIDTH][WIDTH / 2])
{
    level_lane<WIDTH>::each([&](u32 i, u32 c) {
        const u32 code = word[c] >> (WIDTH * i) & ((1u << WIDTH) - 1);
        /* beyond the outermost level it is limited too */
        const float value = weight * limited(level_of(code | 0x4B000000u, zero) * unit, radius);
        sum[i][c] = SETS ? value : sum[i][c] + value;
    });
}

template <bool FRESH, u32 FRAMES, u32 WIDTH>
__global__ void __launch_bounds__(THREADS) add_whole_groups(const __grid_constant__ fast_addition a)
{
    const u32 group = blockIdx.x * WARPS + threadIdx.x / 32, t = lane_id(), first = group * TG_GROUP;
    if (group > (a.count - 1) / TG_GROUP)
        return;
    if (!a.aligned || a.count - first < TG_GROUP) {
        add_any_group<FRESH, FRAMES, WIDTH>(a, group, first);
        return;
    }
    const u32 bad = *(volatile u32 *)&a.result->bad; /* found by what came before: nothing is added */
    const u64 at = (u64)group * (TG_GROUP / 8) * WIDTH + 4 * level_lane<WIDTH>(t).word_place();
    float sum[32 / WIDTH][WIDTH / 2];
    u32 word[FRAMES][WIDTH / 2];
    const float radius = own_radius<FRAMES>(a, group);
#pragma unroll
    for (u32 k = 0; k < FRAMES; k++)
        load_side_by_side<WIDTH / 2>(a.frames[k].codes + at, word[k]);
    if (!FRESH)
        read_rows<WIDTH, true>(a.out + first, TG_GROUP, sum);
    if (!__all_sync(FULL, tg_float_bits(radius) < TG_INFINITY_BITS)) {
        if (t == 0)
            atomicOr(&a.result->bad, (u32)BREAKS_RULE);
        return;
    }
    if (bad)
        return;
    if (__any_sync(FULL, radius > 0 && radius < TG_LIFT_BELOW)) {
        add_any_group<FRESH, FRAMES, WIDTH>(a, group, first);
        return;
    }
    const float unit = own_unit<FRAMES>(a, radius);
#pragma unroll
    for (u32 k = 0; k < FRAMES; k++) {
        const float r = __shfl_sync(FULL, radius, (int)k), one = __shfl_sync(FULL, unit, (int)k);
        const float zero = a.frames[k].zero;
        if (FRESH && k == 0)
            add_words<WIDTH, true>(word[k], r, one, zero, a.weight, sum);
        else
            add_words<WIDTH, false>(word[k], r, one, zero, a.weight, sum);
    }
    if (a.scale != 1)
        level_lane<WIDTH>::each([&](u32 i, u32 c) { sum[i][c] = a.scale * sum[i][c]; });
    write_rows<WIDTH, true>(a.out + first, TG_GROUP, sum);
}

template <bool FRESH, u32 WIDTH> static void launch(tg_cuda *cuda, const fast_addition &a, u32 frames)
{
    const unsigned grid = (a.count - 1) / (WARPS * TG_GROUP) + 1;
    switch (frames) {
    case 1:
        LAUNCH((add_whole_groups<FRESH, 1, WIDTH>), grid, THREADS, 0, cuda->stream, a);
        break;
    case 2:
        LAUNCH((add_whole_groups<FRESH, 2, WIDTH>), grid, THREADS, 0, cuda->stream, a);
        break;
    case 3:
        LAUNCH((add_whole_groups<FRESH, 3, WIDTH>), grid, THREADS, 0, cuda->stream, a);
        break;
    default:
        LAUNCH((add_whole_groups<FRESH, 4, WIDTH>), grid, THREADS, 0, cuda->stream, a);
    }
}

template <u32 WIDTH> static void launch_some(tg_cuda *cuda, const fast_addition &a, u32 frames, bool fresh)
{
    if (fresh)
        launch<true, WIDTH>(cuda, a, frames);
    else
        launch<false, WIDTH>(cuda, a, frames);
}

bool tg_cuda_is_fast_addition(const addition *a)
{
    const u32 width = a->frame_count > 0 ? a->frames[0].width : 0;
    if (a->out.dtype != TG_FLOAT32 || (width != 2 && width != 4 && width != 8))
        return false;
    for (u32 k = 0; k < a->frame_count; k++) {
        const dense_frame &f = a->frames[k];
        if (f.kind != LEVELS || f.width != width || f.bucket != TG_GROUP || f.affine)
            return false;
    }
    return true;
}

/* Four frames at a time: sums are float32 in between anyway. */
bool tg_cuda_add_fast(tg_cuda *cuda, const addition *a)
{
    if (!tg_cuda_is_fast_addition(a))
        return false;
    for (u32 done = 0, n; done < a->frame_count; done += n) {
        n = a->frame_count - done < MOST ? a->frame_count - done : MOST;
        const bool last = done + n == a->frame_count;
        fast_addition f = {.count = (u32)a->out.count,
                           .weight = a->weight,
                           .scale = last ? a->scale : 1,
                           .out = (float *)a->out.data,
                           .aligned = has_aligned_rows(a->out.data, a->frames[0].width),
                           .result = a->result};
        for (u32 k = 0; k < n; k++) {
            const dense_frame &from = a->frames[done + k];
            f.frames[k] = fast_frame_of(from);
        }
        const bool fresh = a->fresh && done == 0;
        if (a->frames[0].width == 2)
            launch_some<2>(cuda, f, n, fresh);
        else if (a->frames[0].width == 4)
            launch_some<4>(cuda, f, n, fresh);
        else
            launch_some<8>(cuda, f, n, fresh);
    }
    return true;
}
