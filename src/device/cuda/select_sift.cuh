/* The one pass over the vector: a warp takes a chunk and waits for no other. It computes u, writes the residual, and
 * lists the candidates of its chunk in order.
 *
 * Afterwards either the candidates of a chunk are listed, and those from `clear_from` on are 0 in the residual; or
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

/* Four elements from `offset` on in a chunk that has `size`; 0 past its end. */
template <int DTYPE> __device__ __forceinline__ float4 load_four(const void *vector, u32 chunk, u32 offset, u32 size)
{
    const u64 first = (u64)chunk * CHUNK + offset;
    if (DTYPE == TG_FLOAT32) {
        const float *at = (const float *)vector + first;
        if (size == CHUNK && ((uintptr_t)vector & 15) == 0)
            return __ldcs((const float4 *)at);
        return make_float4(offset < size ? at[0] : 0, offset + 1 < size ? at[1] : 0, offset + 2 < size ? at[2] : 0,
                           offset + 3 < size ? at[3] : 0);
    }
    const unsigned short *at = (const unsigned short *)vector + first;
    u32 x[4];
    if (size == CHUNK && ((uintptr_t)vector & 7) == 0) {
        const uint2 both = __ldcs((const uint2 *)at);
        x[0] = both.x & 0xffff, x[1] = both.x >> 16, x[2] = both.y & 0xffff, x[3] = both.y >> 16;
    } else {
#pragma unroll
        for (u32 c = 0; c < 4; c++)
            x[c] = offset + c < size ? at[c] : 0;
    }
    return make_float4(widened_half(DTYPE, x[0]), widened_half(DTYPE, x[1]), widened_half(DTYPE, x[2]),
                       widened_half(DTYPE, x[3]));
}

__device__ __forceinline__ void store_four(float *vector, u32 chunk, u32 offset, u32 size, float4 v)
{
    float *at = vector + (u64)chunk * CHUNK + offset;
    if (size == CHUNK && ((uintptr_t)vector & 15) == 0) {
        __stcs((float4 *)at, v);
        return;
    }
    if (offset < size)
        at[0] = v.x;
    if (offset + 1 < size)
        at[1] = v.y;
    if (offset + 2 < size)
        at[2] = v.z;
    if (offset + 3 < size)
        at[3] = v.w;
}

/* What a lane has of its chunk. */
struct sifted {
    float4 u[ROWS];
    u32 mask; /* bit 4 row + column: a candidate */
    u32 lane, chunk, size;
};

__device__ __forceinline__ u32 sift_offset(const sifted &c, u32 row) { return 128 * row + 4 * c.lane; }

__device__ __forceinline__ void sift_store_u(const selecting &s, const sifted &c)
{
#pragma unroll
    for (u32 r = 0; r < ROWS; r++)
        store_four(s.from.residual, c.chunk, sift_offset(c, r), c.size, c.u[r]);
}

/* Lists the candidates of a chunk, whose number is `total`, at their place in the region. `before` has in byte r how
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
                const u32 index = c.chunk * CHUNK + sift_offset(c, r) + i, bits = __float_as_uint(u[i]),
                          key = key_of(s, index, bits);
                *to++ = make_uint2(index, bits);
                if (key < high)
                    atomicAdd(&s.bins[(key - low) >> shift], 1u);
            }
        out += rows >> (8 * r) & 255;
    }
}

/* Finds a place for the candidates of a chunk. */
template <int KIND> __device__ __forceinline__ void sift_collect(const selecting &s, const sifted &c)
{
    const bool any = __any_sync(FULL, c.mask != 0);
    if (!any) {
        if (c.lane == 0)
            s.table[c.chunk] = 0;
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
        at = atomicAdd(&s.counters[COUNTER_STRIDE * (c.chunk & (REGIONS - 1))], total);
        const bool fits = at <= s.room && total <= s.room - at;
        if (!fits)
            s.control->overflow = 1;
        s.table[c.chunk] = fits ? total << COUNT_SHIFT | at : 0;
        at = fits ? at : EVERY;
    }
    at = __shfl_sync(FULL, at, 0);
    if (at == EVERY) {
        if (KIND == SIFT_COMMIT || (KIND == SIFT_GENERAL && s.commits))
            sift_store_u(s, c); /* nothing stays cleared that is not listed */
        return;
    }
    if (c.mask)
        sift_list(s, c, scan - packed, rows, region_of(s, c.chunk) + at);
}

/* u of four elements, to *u; their rest is only looked at. Returns how many were dropped. */
template <int DTYPE, int KIND>
__device__ __forceinline__ u32 sift_compensate(const selecting &s, const sifted &c, u32 row, float4 *u, float4 *h,
                                               u32 *largest)
{
    float4 m = make_float4(0, 0, 0, 0);
    u32 dropped = 0;
    if (KIND == SIFT_GENERAL && s.from.momentum)
        m = load_four<TG_FLOAT32>(s.from.momentum, c.chunk, sift_offset(c, row), c.size);
    float *x = (float *)u, *y = (float *)h, *z = (float *)&m;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        if (KIND == SIFT_PLAIN && !s.from.drop_nonfinite) {
            *largest = max(*largest, magnitude_key(x[i]));
        } else if (KIND == SIFT_COMMIT && !s.from.drop_nonfinite) {
            x[i] = x[i] + s.from.alpha * y[i];
            *largest = max(*largest, magnitude_key(x[i]));
        } else {
            const element e = source_of(s.from, x[i], z[i], y[i], &dropped);
            x[i] = e.u;
            *largest = max(*largest, max(magnitude_key(e.u), magnitude_key(e.rest)));
        }
    }
    return dropped;
}

/* Which of a lane's elements are candidates; the residual with the sure ones cleared. */
template <int KIND> __device__ __forceinline__ void sift_mark(const selecting &s, sifted *c)
{
    const u32 low = *(volatile u32 *)&s.control->low, clear_from = *(volatile u32 *)&s.control->clear_from;
    c->mask = 0;
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        const u32 offset = sift_offset(*c, r);
        const float *u = (const float *)&c->u[r];
        float4 left;
        float *y = (float *)&left;
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const u32 key = KIND == SIFT_GENERAL ? key_of(s, c->chunk * CHUNK + offset + i, __float_as_uint(u[i]))
                                                 : magnitude_key(u[i]);
            c->mask |= key >= low && offset + i < c->size ? 1u << (4 * r + i) : 0;
            y[i] = key >= clear_from ? 0.0f : u[i];
        }
        if (KIND == SIFT_COMMIT || (KIND == SIFT_GENERAL && s.commits))
            store_four(s.from.residual, c->chunk, offset, c->size, left);
    }
}

template <int DTYPE, int KIND> __global__ void __launch_bounds__(SIFT_THREADS) sift_kernel(selecting s)
{
    sifted c;
    float4 h[ROWS];
    u32 largest = 0, dropped = 0;
    c.lane = threadIdx.x & 31;
    c.chunk = blockIdx.x * (SIFT_THREADS / 32) + (threadIdx.x >> 5);
    if (c.chunk >= s.chunks)
        return;
    c.size = chunk_size(s, c.chunk);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++)
        c.u[r] = load_four<DTYPE>(s.from.gradient, c.chunk, sift_offset(c, r), c.size);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++)
        h[r] = KIND != SIFT_PLAIN && s.from.residual
                   ? load_four<TG_FLOAT32>(s.from.residual, c.chunk, sift_offset(c, r), c.size)
                   : make_float4(0, 0, 0, 0);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        if (KIND != SIFT_PLAIN && s.from.undo && s.commits)
            store_four(s.from.undo, c.chunk, sift_offset(c, r), c.size, h[r]);
        dropped += sift_compensate<DTYPE, KIND>(s, c, r, &c.u[r], &h[r], &largest);
    }
    if (__any_sync(FULL, largest >= INFINITY_KEY)) {
        if (c.lane == 0) {
            s.control->nonfinite = 1;
            s.table[c.chunk] = NOT_COMMITTED;
        }
        return;
    }
    if (dropped)
        atomicAdd(&s.control->dropped, (unsigned long long)dropped);
    sift_mark<KIND>(s, &c);
    sift_collect<KIND>(s, c);
}

/* A value was not finite: the residual becomes what it was, exactly if it was saved, otherwise up to rounding. */
__global__ void __launch_bounds__(SIFT_THREADS) unsift_kernel(selecting s)
{
    const u32 lane = threadIdx.x & 31, chunk = blockIdx.x * (SIFT_THREADS / 32) + (threadIdx.x >> 5);
    if (!s.control->nonfinite || chunk >= s.chunks || s.table[chunk] == NOT_COMMITTED)
        return;
    const u32 entry = s.table[chunk], size = chunk_size(s, chunk);
    const uint2 *listed = region_of(s, chunk) + (entry & (REGION_MOST - 1));
    if (!s.from.undo)
        for (u32 j = lane; j < entry >> COUNT_SHIFT; j += 32)
            s.from.residual[listed[j].x] = __uint_as_float(listed[j].y);
    __syncwarp();
    for (u32 i = lane; i < size; i += 32) {
        const u32 index = chunk * CHUNK + i;
        float *h = s.from.residual + index;
        *h = s.from.undo ? s.from.undo[index] : (*h - element_at(s.from.gradient, s.from.dtype, index)) / s.from.beta;
    }
}

#endif
