/* Adding the common case: packed levels of 2, 4 or 8 bits in buckets of 512, to float32. A warp takes a group, 16 bytes a
 * lane at a time. */
#include "device/cuda/received.cuh"

constexpr u32 THREADS = 256, WARPS = THREADS / 32, MOST = 4;

/* What the kernel needs of a frame. */
struct fast_frame {
    const u8 *codes;
    const float *scales;
    float zero, top; /* 2^23 + levels; levels */
    u32 levels;
};

struct fast_addition {
    fast_frame frames[MOST];
    u32 count;
    float weight, scale;
    float *out;
    control *result;
};

__device__ __forceinline__ float limited(float x, float bound)
{
#if defined(__CUDA_ARCH__)
    return fmaxf(fminf(x, bound), -bound); /* -0 is less than +0 here, so zeros keep their sign */
#else
    return tg_limit_to(x, bound);
#endif
}

/* What a code adds to the sum. */
__device__ __forceinline__ float addend(const fast_frame &f, const tg_quantiser &q, float weight, u32 code)
{
    const float level = __uint_as_float(code | 0x4B000000u) - f.zero; /* as a float, without converting */
    const float value = (level < f.top ? level : f.top) * q.unit;
    return weight * limited(q.lift != 1 ? value * q.drop : value, q.radius);
}

/* The rest of a vector, fewer elements than a group. */
template <bool FRESH, u32 FRAMES, u32 WIDTH>
__device__ __noinline__ void add_rest(const fast_addition &a, u32 group, u32 first)
{
    bool sound = *(volatile u32 *)&a.result->bad == 0;
    for (u32 i = first + lane_id(); i < a.count; i += 32) {
        float sum = FRESH ? 0 : a.out[i];
        for (u32 k = 0; k < FRAMES; k++) {
            const dense_frame f = {.kind = LEVELS,
                                   .count = a.count,
                                   .levels = a.frames[k].levels,
                                   .width = WIDTH,
                                   .bucket = TG_GROUP,
                                   .codes = (u8 *)(uintptr_t)a.frames[k].codes,
                                   .scales = (u8 *)(uintptr_t)a.frames[k].scales};
            sound = sound && padding_is_zero(f) && scale_is_sound(f, 1, tg_float_bits(a.frames[k].scales[group]));
            const float value = a.weight * value_at(f, i);
            sum = FRESH && k == 0 ? value : sum + value;
        }
        if (sound)
            a.out[i] = a.scale != 1 ? a.scale * sum : sum;
    }
    if (!sound)
        atomicOr(&a.result->bad, (u32)BREAKS_RULE);
}

template <bool FRESH, u32 FRAMES, u32 WIDTH>
__global__ void __launch_bounds__(THREADS) add_whole_groups(const __grid_constant__ fast_addition a)
{
    const u32 group = blockIdx.x * WARPS + threadIdx.x / 32, t = lane_id(), first = group * TG_GROUP;
    if (group > (a.count - 1) / TG_GROUP)
        return;
    if (a.count - first < TG_GROUP) {
        add_rest<FRESH, FRAMES, WIDTH>(a, group, first);
        return;
    }
    /* Lane t has elements 128 r + 4 t to + 3: row 8 r + t / 4 of the packed lanes 4 (t % 4) to + 3. */
    const u32 bad = *(volatile u32 *)&a.result->bad; /* found by what came before: nothing is added */
    float4 sum[4];
    u32 worst = 0;
    float radius[FRAMES];
#pragma unroll
    for (u32 k = 0; k < FRAMES; k++)
        radius[k] = __ldg(a.frames[k].scales + group);
#pragma unroll
    for (u32 r = 0; r < 4 && !FRESH; r++)
        sum[r] = __ldcs((const float4 *)(a.out + first + 128 * r + 4 * t));
#pragma unroll
    for (u32 k = 0; k < FRAMES; k++) {
        const fast_frame &f = a.frames[k];
        const u32 *words = (const u32 *)(f.codes + (u64)group * (TG_GROUP / 8) * WIDTH);
        const tg_quantiser q = tg_quantiser_from(f.levels, 0, radius[k], false);
        /* there are few codes: each lane has what one of them adds, and others ask it; of one frame it does not pay */
        constexpr bool ASKS = WIDTH <= 4 && FRAMES > 1;
        const float own = ASKS ? addend(f, q, a.weight, t & ((1u << WIDTH) - 1)) : 0;
        worst = max(worst, (u32)tg_float_bits(radius[k]));
#pragma unroll
        for (u32 r = 0; r < 4; r++) {
            const u32 bit = (8 * r + t / 4) * WIDTH;
            const uint4 w = __ldg((const uint4 *)(words + TG_LANES * (bit / 32) + 4 * (t % 4)));
            const u32 word[4] = {w.x, w.y, w.z, w.w};
            float *s = (float *)&sum[r];
#pragma unroll
            for (u32 c = 0; c < 4; c++) {
                const u32 code = word[c] >> (bit % 32);
                const float value = ASKS ? __shfl_sync(FULL, own, (int)code, 1 << WIDTH)
                                         : addend(f, q, a.weight, code & ((1u << WIDTH) - 1));
                s[c] = FRESH && k == 0 ? value : s[c] + value;
            }
        }
    }
    if (worst >= TG_INFINITY_BITS) {
        if (t == 0)
            atomicOr(&a.result->bad, (u32)BREAKS_RULE);
        return;
    }
    if (bad)
        return;
#pragma unroll
    for (u32 r = 0; r < 4; r++) {
        if (a.scale != 1)
            sum[r] = make_float4(a.scale * sum[r].x, a.scale * sum[r].y, a.scale * sum[r].z, a.scale * sum[r].w);
        __stcs((float4 *)(a.out + first + 128 * r + 4 * t), sum[r]);
    }
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

static bool is_fast(const addition *a)
{
    const u32 width = a->frame_count > 0 ? a->frames[0].width : 0;
    if (a->out.dtype != TG_FLOAT32 || (uintptr_t)a->out.data % 16 != 0 || (width != 2 && width != 4 && width != 8))
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
    if (!is_fast(a))
        return false;
    for (u32 done = 0, n; done < a->frame_count; done += n) {
        n = a->frame_count - done < MOST ? a->frame_count - done : MOST;
        const bool last = done + n == a->frame_count;
        fast_addition f = {.count = (u32)a->out.count,
                           .weight = a->weight,
                           .scale = last ? a->scale : 1,
                           .out = (float *)a->out.data,
                           .result = a->result};
        for (u32 k = 0; k < n; k++) {
            const dense_frame &from = a->frames[done + k];
            f.frames[k] = {from.codes, (const float *)(const void *)from.scales, 8388608.0f + (float)from.levels,
                           (float)from.levels, from.levels};
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
