/* The one pass over the vector: a warp takes a strip and waits for no other. It computes u, writes the residual, and
 * lists the candidates of its strip in order.
 *
 * Afterwards either the candidates of a strip are listed, and those from `clear_from` on are 0 in the residual; or
 * nothing is listed and nothing was cleared, because its region is full. So u is never lost. */
#ifndef TG_DEVICE_CUDA_SELECT_SIFT_CUH
#define TG_DEVICE_CUDA_SELECT_SIFT_CUH

#include "device/cuda/select.cuh"

/* What a sift does beyond u = gradient. The last does all of it, and looks at run time what there is to do. */
enum sift_kind { SIFT_PLAIN, SIFT_COMMIT, SIFT_GENERAL };
constexpr u32 SIFT_THREADS = 64, ROWS = 4; /* a lane has four consecutive elements in each of four rows of 128 */

__device__ __forceinline__ float widened_half(u32 dtype, u32 bits)
{
    return dtype == TG_FLOAT16 ? tg_widen_float16((unsigned short)bits) : tg_widen_bfloat16((unsigned short)bits);
}

/* Where a lane's elements of a row start in their strip. */
__device__ __forceinline__ u32 row_offset(u32 row) { return 128 * row + 4 * lane_id(); }

template <int DTYPE> __device__ __forceinline__ float4 load_four(const void *vector, u64 first)
{
    if (DTYPE == TG_FLOAT32)
        return __ldcs((const float4 *)((const float *)vector + first));
    const uint2 both = __ldcs((const uint2 *)((const u16 *)vector + first));
    return make_float4(widened_half(DTYPE, both.x & 0xffff), widened_half(DTYPE, both.x >> 16),
                       widened_half(DTYPE, both.y & 0xffff), widened_half(DTYPE, both.y >> 16));
}

/* A lane's elements of a strip that has `size`; 0 past its end. */
template <int DTYPE> __device__ __forceinline__ void load_rows(const void *vector, u32 strip, u32 size, float4 *rows)
{
    const u64 first = (u64)strip * STRIP;
    const uintptr_t alignment = DTYPE == TG_FLOAT32 ? 16 : 8;
    if (size == STRIP && (uintptr_t)vector % alignment == 0) {
#pragma unroll
        for (u32 r = 0; r < ROWS; r++)
            rows[r] = load_four<DTYPE>(vector, first + row_offset(r));
        return;
    }
#pragma unroll
    for (u32 r = 0; r < ROWS; r++)
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            ((float *)&rows[r])[i] = row_offset(r) + i < size
                                         ? element_at(vector, (tg_dtype)DTYPE, first + row_offset(r) + i)
                                         : 0;
}

__device__ __forceinline__ void store_rows(float *vector, u32 strip, u32 size, const float4 *rows)
{
    float *at = vector + (u64)strip * STRIP;
    if (size == STRIP && (uintptr_t)vector % 16 == 0) {
#pragma unroll
        for (u32 r = 0; r < ROWS; r++)
            __stcs((float4 *)(at + row_offset(r)), rows[r]);
        return;
    }
#pragma unroll
    for (u32 r = 0; r < ROWS; r++)
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            if (row_offset(r) + i < size)
                at[row_offset(r) + i] = ((const float *)&rows[r])[i];
}

/* What a lane has of its strip. */
struct sifted {
    float4 u[ROWS];
    u32 mask; /* bit 4 row + column: a candidate */
    u32 lane, strip, size;
};

/* Lists the candidates of a strip, whose number is `total`, at their place in the region. `before` has in byte r how
 * many of row r are in earlier lanes, `rows` how many each row has: 128 at most. */
__device__ __forceinline__ void sift_list(const selecting &s, const sifted &c, u32 before, u32 rows, uint2 *out)
{
    const u32 low = s.control->low, high = s.control->high, shift = s.control->shift;
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        uint2 *to = out + (before >> (8 * r) & 255);
        const float *u = (const float *)&c.u[r];
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            if (c.mask >> (4 * r + i) & 1) {
                const u32 index = c.strip * STRIP + row_offset(r) + i, bits = __float_as_uint(u[i]),
                          key = key_of(s, index, bits);
                *to++ = make_uint2(index, bits);
                if (key < high)
                    atomicAdd(&s.bins[(key - low) >> shift], 1u);
            }
        out += rows >> (8 * r) & 255;
    }
}

/* Finds a place for the candidates of a strip. */
template <int KIND> __device__ __forceinline__ void sift_collect(const selecting &s, const sifted &c)
{
    const bool any = __any_sync(FULL, c.mask != 0);
    if (!any) {
        if (c.lane == 0)
            s.table[c.strip] = 0;
        return;
    }
    u32 packed = 0;
#pragma unroll
    for (u32 r = 0; r < ROWS; r++)
        packed |= (u32)__popc(c.mask >> (4 * r) & 15) << (8 * r);
    const u32 scan = warp_scan(packed), rows = __shfl_sync(FULL, scan, 31);
    const u32 total = (rows & 255) + (rows >> 8 & 255) + (rows >> 16 & 255) + (rows >> 24);
    u32 at = 0;
    if (c.lane == 0) {
        at = atomicAdd(&s.counters[COUNTER_STRIDE * (c.strip & (s.regions - 1))], total);
        const bool fits = at <= s.room && total <= s.room - at;
        if (!fits)
            s.control->overflow = 1;
        s.table[c.strip] = fits ? total << COUNT_SHIFT | at : 0;
        at = fits ? at : EVERY;
    }
    at = __shfl_sync(FULL, at, 0);
    if (at == EVERY) {
        if (KIND == SIFT_COMMIT || (KIND == SIFT_GENERAL && s.commits))
            store_rows(s.rest, c.strip, c.size, c.u); /* nothing stays cleared that is not listed */
        return;
    }
    if (c.mask)
        sift_list(s, c, scan - packed, rows, region_of(s, c.strip) + at);
}

/* Gradient and residual to u; the rest is only looked at. Returns how many elements were dropped. */
template <int KIND>
__device__ __forceinline__ u32 sift_compensate(const selecting &s, sifted *c, const float4 *residual, u32 *largest)
{
    float4 momentum[ROWS] = {};
    u32 dropped = 0;
    if (KIND == SIFT_GENERAL && s.from.momentum)
        load_rows<TG_FLOAT32>(s.from.momentum, c->strip, c->size, momentum);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        float *x = (float *)&c->u[r];
        const float *h = (const float *)&residual[r], *m = (const float *)&momentum[r];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (KIND == SIFT_GENERAL || s.from.drop_nonfinite) {
                const u64 index = (u64)c->strip * STRIP + row_offset(r) + i;
                const element e = source_of(s.from, index, x[i], m[i], h[i], &dropped);
                x[i] = e.u;
                *largest = max(*largest, magnitude_key(e.rest));
            } else if (KIND == SIFT_COMMIT) {
                x[i] = x[i] + s.from.alpha * h[i];
            }
            *largest = max(*largest, magnitude_key(x[i]));
        }
    }
    return dropped;
}

/* Which of a lane's elements are candidates; the residual with the sure ones cleared. */
template <int KIND> __device__ __forceinline__ void sift_mark(const selecting &s, sifted *c)
{
    const u32 low = s.control->low, clear_from = s.control->clear_from;
    float4 left[ROWS];
    c->mask = 0;
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        const u32 offset = row_offset(r);
        const float *u = (const float *)&c->u[r];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const u32 key = KIND == SIFT_GENERAL ? key_of(s, c->strip * STRIP + offset + i, __float_as_uint(u[i]))
                                                 : magnitude_key(u[i]);
            c->mask |= key >= low && offset + i < c->size ? 1u << (4 * r + i) : 0;
            ((float *)&left[r])[i] = key >= clear_from ? 0.0f : u[i];
        }
    }
    if (KIND == SIFT_COMMIT || (KIND == SIFT_GENERAL && s.commits))
        store_rows(s.rest, c->strip, c->size, left);
}

template <int DTYPE, int KIND> __device__ __forceinline__ void sift(selecting s, block_of_job block)
{
    sifted c;
    let_next_begin();
    float4 h[ROWS] = {};
    u32 largest = 0;
    begin(s);
    c.lane = threadIdx.x & 31;
    c.strip = block.number * (SIFT_THREADS / 32) + (threadIdx.x >> 5);
    if (c.strip >= s.strips)
        return;
    c.size = strip_size(s, c.strip);
    load_rows<DTYPE>(s.from.gradient, c.strip, c.size, c.u);
    if (KIND != SIFT_PLAIN && s.from.residual)
        load_rows<TG_FLOAT32>(s.from.residual, c.strip, c.size, h);
    if (KIND != SIFT_PLAIN && s.from.undo && s.commits && !s.moves)
        store_rows(s.from.undo, c.strip, c.size, h);
    wait_for_previous();
    const u32 dropped = sift_compensate<KIND>(s, &c, h, &largest);
    if (__any_sync(FULL, largest >= INFINITY_KEY)) {
        if (c.lane == 0) {
            s.control->nonfinite = 1;
            s.table[c.strip] = NOT_COMMITTED;
        }
        return;
    }
    if (dropped)
        atomicAdd(&s.control->dropped, (unsigned long long)dropped);
    sift_mark<KIND>(s, &c);
    sift_collect<KIND>(s, c);
}

template <int DTYPE, int KIND> __global__ void __launch_bounds__(SIFT_THREADS) sift_kernel(selecting s)
{
    sift<DTYPE, KIND>(s, only_job());
}

#endif
