/* Scales of buckets that are not groups of 512: a warp for each unit of 4096 elements, then a block for each bucket
 * that has several. */
#include "device/cuda/scales.cuh"
#include "device/cuda/sums.cuh"

constexpr u32 THREADS = 256, WARPS = THREADS / 32;

struct span {
    u32 first, n;
};

__device__ __forceinline__ span unit_span(const dense_frame &f, u32 bucket, u32 k)
{
    const u64 start = (u64)bucket * f.bucket, end = start + f.bucket < f.count ? start + f.bucket : f.count;
    const u64 first = start + (u64)k * TG_BLOCK;
    const u64 n = first < end ? (end - first < TG_BLOCK ? end - first : TG_BLOCK) : 0;
    return {(u32)first, (u32)n};
}

__device__ __forceinline__ float u_at(const tg_source &s, u32 i)
{
    u32 dropped = 0;
    return source_at(s, i, residual_at(s, i), &dropped).u;
}

__device__ float unit_sum(const dense_job &j, const span &at, tg_sum_of what, float scale1, float scale2)
{
    return block_sum(at.n, [&](u32 i) { return summand(what, u_at(j.source, at.first + i), scale1, scale2); });
}

__device__ u32 unit_largest(const dense_job &j, const span &at)
{
    u32 largest = 0;
    for (u32 i = lane_id(); i < at.n; i += 32)
        largest = max(largest, (u32)(tg_float_bits(u_at(j.source, at.first + i)) & TG_MAGNITUDE_MASK));
    return warp_max(largest);
}

__device__ __forceinline__ float from_order(u32 ordered)
{
    const int32_t order = (int32_t)(ordered ^ 0x80000000u);
    return tg_bits_float(order < 0 ? 0x80000000u | (u32)(-(order + 1)) : (u32)order);
}

/* Both by maxima of unsigned numbers. */
__device__ void unit_extremes(const dense_job &j, const span &at, float *low, float *high)
{
    u32 below = 0, above = 0;
    for (u32 i = lane_id(); i < at.n; i += 32) {
        const u32 ordered = (u32)tg_order_of(u_at(j.source, at.first + i)) ^ 0x80000000u;
        below = max(below, ~ordered);
        above = max(above, ordered);
    }
    *low = from_order(~warp_max(below));
    *high = from_order(warp_max(above));
}

__device__ unit measure_unit(const dense_job &j, const span &at)
{
    unit m = {unit_largest(j, at), 0, 0, 0, 0};
    if (m.largest >= TG_INFINITY_BITS)
        return m;
    if (j.norm == NORM_EXTREMES)
        unit_extremes(j, at, &m.low, &m.high);
    else if (j.norm != NORM_MAX)
        m.sum = unit_sum(j, at, sum_of(j.norm), 1, 1);
    if (j.norm == NORM_MAX && j.clip > 0) {
        m.sum = unit_sum(j, at, TG_SUM_OF_SQUARES, 1, 1);
        m.values = unit_sum(j, at, TG_SUM_OF_VALUES, 1, 1);
    }
    return m;
}

/* The scale of a bucket that is one unit. */
__device__ void finish_unit(const dense_job &j, u32 bucket, const span &at, const unit &m)
{
    float centre = 0, radius = tg_bits_float(m.largest);
    if (j.norm == NORM_EXTREMES) {
        tg_between_extremes(m.low, m.high, &centre, &radius);
    } else if (j.norm != NORM_MAX) {
        double total = (double)m.sum;
        int exponent = 0;
        if (!tg_sum_is_safe(total, sum_of(j.norm))) {
            exponent = m.largest ? tg_exponent_of(m.largest) : 0;
            total = m.largest
                        ? (double)unit_sum(j, at, sum_of(j.norm), tg_first_factor(exponent), tg_second_factor(exponent))
                        : 0;
        }
        radius = radius_of_sum(j.norm, total, exponent, at.n);
    } else if (j.clip > 0) {
        radius = tg_clipped_radius((double)m.sum, (double)m.values, (double)at.n, radius, j.clip);
    }
    if (lane_id() == 0)
        store_scale(j.frame, bucket, centre, radius);
}

/* `again`: the sums of those buckets that need other factors. */
__global__ void __launch_bounds__(THREADS) measure_units(dense_job j, u32 buckets, u32 units, bool again)
{
    begin<true>(j);
    const u64 step = (u64)gridDim.x * WARPS, all = (u64)(j.known ? buckets_of(j.frame) : buckets) * units;
    for (u64 at = blockIdx.x * (u64)WARPS + threadIdx.x / 32; at < all; at += step) {
        const u32 bucket = (u32)(at / units);
        const span here = unit_span(j.frame, bucket, (u32)(at % units));
        if (again) {
            const int e = j.exponents[bucket];
            if (e == NO_EXPONENT)
                continue;
            const float sum = unit_sum(j, here, sum_of(j.norm), tg_first_factor(e), tg_second_factor(e));
            if (lane_id() == 0)
                j.units[at].sum = sum;
            continue;
        }
        const unit m = measure_unit(j, here);
        if (m.largest >= TG_INFINITY_BITS && lane_id() == 0)
            atomicOr(&j.result->nonfinite, (u32)FOUND_MEASURING);
        if (units == 1 && m.largest < TG_INFINITY_BITS)
            finish_unit(j, bucket, here, m);
        else if (units > 1 && lane_id() == 0)
            j.units[at] = m;
    }
}

/* Of equal extremes that of the first unit counts, which matters for zeros. */
__device__ void find_extremes(const unit *units, u32 n, float *low, float *high)
{
    *low = units[0].low;
    *high = units[0].high;
    for (u32 k = 1; k < n; k++) {
        *low = units[k].low < *low ? units[k].low : *low;
        *high = units[k].high > *high ? units[k].high : *high;
    }
}

__device__ u32 largest_of(const unit *units, u32 n, u32 *shared)
{
    if (threadIdx.x == 0)
        *shared = 0;
    __syncthreads();
    for (u32 k = threadIdx.x; k < n; k += blockDim.x)
        atomicMax(shared, units[k].largest);
    __syncthreads();
    return *shared;
}

/* A block for each bucket; thread 0 has the results. */
__global__ void __launch_bounds__(TREE_THREADS) combine_units(dense_job j, u32 units, bool again)
{
    __shared__ double shared[TREE_THREADS];
    __shared__ u32 found;
    begin<true>(j);
    const u32 bucket = blockIdx.x;
    if (bucket >= buckets_of(j.frame))
        return;
    const u64 left = (u64)j.frame.count - (u64)bucket * j.frame.bucket;
    const u32 size = left < j.frame.bucket ? (u32)left : j.frame.bucket, n = (size + TG_BLOCK - 1) / TG_BLOCK;
    const unit *mine = j.units + (u64)bucket * units;
    if (again && j.exponents[bucket] == NO_EXPONENT)
        return;
    const u32 largest = largest_of(mine, n, &found);
    if (largest >= TG_INFINITY_BITS)
        return;
    float centre = 0, radius = tg_bits_float(largest);
    if (j.norm == NORM_EXTREMES) {
        float low = 0, high = 0;
        if (threadIdx.x == 0)
            find_extremes(mine, n, &low, &high);
        tg_between_extremes(low, high, &centre, &radius);
    } else if (j.norm != NORM_MAX || j.clip > 0) {
        const double total = tree_sum(n, shared, [&](u64 k) { return (double)mine[k].sum; });
        int exponent = again ? j.exponents[bucket] : 0;
        if (j.norm == NORM_MAX) {
            const double values = tree_sum(n, shared, [&](u64 k) { return (double)mine[k].values; });
            radius = tg_clipped_radius(total, values, (double)size, radius, j.clip);
        } else if (again || tg_sum_is_safe(total, sum_of(j.norm)) || largest == 0) {
            radius = radius_of_sum(j.norm, largest == 0 ? 0 : total, exponent, size);
            exponent = NO_EXPONENT;
        } else {
            exponent = tg_exponent_of(largest);
        }
        if (threadIdx.x == 0 && !again && j.norm != NORM_MAX)
            j.exponents[bucket] = exponent;
    }
    if (threadIdx.x == 0)
        store_scale(j.frame, bucket, centre, radius);
}

void tg_cuda_measure(tg_cuda *cuda, const dense_job *job)
{
    const dense_frame *f = &job->frame;
    if (f->count == 0)
        return;
    const u32 buckets = (f->count - 1) / f->bucket + 1, units = units_in_bucket(f);
    const unsigned grid = grid_for((u64)buckets * units, WARPS, 16 * cuda->processors);
    LAUNCH(measure_units, grid, THREADS, 0, cuda->stream, *job, buckets, units, false);
    if (units == 1)
        return;
    LAUNCH(combine_units, buckets, TREE_THREADS, 0, cuda->stream, *job, units, false);
    if (job->norm == NORM_L2 || job->norm == NORM_MEAN) {
        LAUNCH(measure_units, grid, THREADS, 0, cuda->stream, *job, buckets, units, true);
        LAUNCH(combine_units, buckets, TREE_THREADS, 0, cuda->stream, *job, units, true);
    }
}
