/* A warp takes a group of 512 elements: reads them, finds its scale where a bucket is a group, makes codes, and writes
 * codes and residual. */
#include "device/cuda/pack.cuh"
#include "device/cuda/scales.cuh"
#include "device/cuda/sums.cuh"

constexpr u32 THREADS = 256, WARPS = THREADS / 32;

/* A group in the registers of a warp. */
struct group {
    float u[16], rest[16];
    u32 dropped;
    bool finite;
};

template <bool FEEDBACK> __device__ __forceinline__ void read_group(const dense_job &j, u32 first, group *g)
{
    const tg_source &s = j.source;
    g->dropped = 0;
    g->finite = true;
#pragma unroll
    for (u32 r = 0; r < 16; r++) {
        const u32 i = first + place_of(lane_id(), r);
        const bool in = i < s.count;
        const float h = FEEDBACK && in ? s.residual[i] : 0;
        if (FEEDBACK && in && s.undo)
            s.undo[i] = h;
        element e = {0, 0, 0, true};
        if (in)
            e = source_at(s, i, h, &g->dropped);
        g->u[r] = e.u;
        if (FEEDBACK)
            g->rest[r] = e.rest;
        g->finite = g->finite && (j.checks ? e.finite : j.frame.kind == PLAIN || is_finite(e.u));
    }
}

/* Leaves what was sent in `rest`, in the place of what was to be sent. */
template <bool FEEDBACK> __device__ __forceinline__ void keep(group *g, u32 r, float sent)
{
    if (FEEDBACK)
        g->rest[r] = g->rest[r] - sent;
}

/* Where alpha is not beta, what is left may overflow where rest and sent do not (codec/dense.c). */
__device__ __forceinline__ void limit_rests(const dense_job &j, u32 first, group *g)
{
    if (j.source.alpha == j.source.beta)
        return;
    u32 limited = 0;
#pragma unroll
    for (u32 r = 0; r < 16; r++)
        if (first + place_of(lane_id(), r) < j.frame.count)
            g->rest[r] = limited_sum(g->rest[r], &limited);
    warp_count(&j.result->limited, limited);
}

template <bool FEEDBACK> __device__ __forceinline__ void encode_plain(const dense_job &j, u32 first, group *g)
{
    const dense_frame &f = j.frame;
    u32 limited = 0;
#pragma unroll
    for (u32 r = 0; r < 16; r++) {
        const u32 i = first + place_of(lane_id(), r);
        if (i >= f.count)
            continue;
        store_element(f.codes, f.wire, i, g->u[r], &limited);
        keep<FEEDBACK>(g, r, FEEDBACK ? element_at(f.codes, f.wire, i) : 0);
    }
    warp_count(&j.result->limited, limited);
}

template <bool FEEDBACK>
__device__ __forceinline__ void encode_signs(const dense_job &j, u32 first, bool given, float mean, group *g,
                                             u32 (&code)[16])
{
    const dense_frame &f = j.frame;
    const float *means = (const float *)f.scales;
#pragma unroll
    for (u32 r = 0; r < 16; r++) {
        const u32 i = first + place_of(lane_id(), r);
        code[r] = tg_float_bits(g->u[r]) >> 31 == 0;
        if (FEEDBACK && i < f.count) {
            const float here = given ? means[i / f.bucket] : mean;
            keep<FEEDBACK>(g, r, code[r] ? here : -here);
        }
    }
}

template <bool FEEDBACK>
__device__ __forceinline__ void encode_levels(const dense_job &j, u32 first, bool given, float radius, group *g,
                                              u32 (&code)[16])
{
    const dense_frame &f = j.frame;
    const u32 last = f.count - first < TG_GROUP ? f.count - 1 : first + TG_GROUP - 1;
    u32 bucket = first / f.bucket;
    const bool one = !given || bucket == last / f.bucket;
    tg_quantiser q = given ? quantiser_at(f, bucket) : tg_quantiser_from(f.levels, 0, radius, false);
#pragma unroll
    for (u32 r = 0; r < 16; r++) {
        const u32 i = first + place_of(lane_id(), r);
        code[r] = 0;
        if (i >= f.count)
            continue;
        if (!one && i / f.bucket != bucket) {
            bucket = i / f.bucket;
            q = quantiser_at(f, bucket);
        }
        code[r] = tg_code_of(&q, g->u[r], tg_random16(j.key, i));
        keep<FEEDBACK>(g, r, tg_value_of(&q, code[r]));
    }
}

/* GIVEN: scales have been stored; else every group is a bucket, and its scale is found here. */
template <dense_kind KIND, bool GIVEN, norm_kind NORM, bool FEEDBACK>
__global__ void __launch_bounds__(THREADS) encode_groups(dense_job j)
{
    __shared__ u32 room[KIND == PLAIN ? 1 : 256]; /* for the one warp that has the end of the vector */
    constexpr bool may_be_known = KIND == LEVELS && !FEEDBACK;
    begin<may_be_known>(j);
    const u32 which = blockIdx.x * WARPS + threadIdx.x / 32, n = j.frame.count;
    if (which > (n - 1) / TG_GROUP || (may_be_known && n == 0) || (GIVEN && (j.result->nonfinite & FOUND_MEASURING)))
        return;
    const u32 first = which * TG_GROUP, here = n - first < TG_GROUP ? n - first : TG_GROUP;
    group g;
    read_group<FEEDBACK>(j, first, &g);
    const bool finite = __all_sync(FULL, g.finite);
    if (lane_id() == 0 && j.marks)
        j.marks[which] = finite;
    if (!finite) {
        if (lane_id() == 0)
            atomicOr(&j.result->nonfinite, (u32)FOUND_ENCODING);
        return;
    }
    warp_count(&j.result->dropped, g.dropped);
    u32 code[16];
    const float radius = KIND != PLAIN && !GIVEN ? group_radius<NORM>(g.u, here) : 0;
    if (KIND != PLAIN && !GIVEN && lane_id() == 0)
        store_scale(j.frame, which, 0, radius);
    if (KIND == PLAIN)
        encode_plain<FEEDBACK>(j, first, &g);
    else if (KIND == SIGNS)
        encode_signs<FEEDBACK>(j, first, GIVEN, radius, &g, code);
    else
        encode_levels<FEEDBACK>(j, first, GIVEN, radius, &g, code);
    if (FEEDBACK) {
        limit_rests(j, first, &g);
#pragma unroll
        for (u32 r = 0; r < 16; r++)
            if (first + place_of(lane_id(), r) < n)
                j.source.residual[first + place_of(lane_id(), r)] = g.rest[r];
    }
    if (KIND == PLAIN)
        return;
    const u32 width = KIND == SIGNS ? 1 : j.frame.width;
    u32 *out = (u32 *)(j.frame.codes + (u64)which * (TG_GROUP / 8) * width);
    if (here == TG_GROUP)
        pack_group(code, width, out);
    else
        pack_rest(code, width, here, room, out);
}

template <dense_kind KIND, bool GIVEN, norm_kind NORM> static void launch(tg_cuda *cuda, const dense_job *job)
{
    const unsigned grid = (job->frame.count - 1) / (WARPS * TG_GROUP) + 1;
    if (job->source.residual)
        LAUNCH((encode_groups<KIND, GIVEN, NORM, true>), grid, THREADS, 0, cuda->stream, *job);
    else
        LAUNCH((encode_groups<KIND, GIVEN, NORM, false>), grid, THREADS, 0, cuda->stream, *job);
}

void tg_cuda_dense_encode(tg_cuda *cuda, const dense_job *job)
{
    const dense_frame *f = &job->frame;
    if (f->count == 0)
        return;
    if (tg_cuda_is_fast(job)) {
        tg_cuda_fast_encode(cuda, job);
        return;
    }
    const bool given = f->bucket != TG_GROUP || job->norm == NORM_EXTREMES || job->clip > 0;
    if (f->kind != PLAIN && given)
        tg_cuda_measure(cuda, job);
    if (f->kind == PLAIN)
        launch<PLAIN, true, NORM_MAX>(cuda, job);
    else if (f->kind == SIGNS)
        given ? launch<SIGNS, true, NORM_MAX>(cuda, job) : launch<SIGNS, false, NORM_MEAN>(cuda, job);
    else if (given)
        launch<LEVELS, true, NORM_MAX>(cuda, job);
    else if (job->norm == NORM_L2)
        launch<LEVELS, false, NORM_L2>(cuda, job);
    else
        launch<LEVELS, false, NORM_MAX>(cuda, job);
}
