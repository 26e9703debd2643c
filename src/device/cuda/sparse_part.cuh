/* Frames of lists that lie on the card: what is listed in a range of them becomes a vector of its own. */
#ifndef TG_DEVICE_CUDA_SPARSE_PART_CUH
#define TG_DEVICE_CUDA_SPARSE_PART_CUH

#include "device/cuda/sparse_positions.cuh"

/* What is known of the range, on the card. */
struct part_found {
    u32 from, listed; /* the first of its elements in the list, and how many */
    u64 bytes;        /* of their values in the frame */
};

struct sparse_part {
    const u32 *indices; /* the list */
    const float *values;
    u32 most, first, count; /* elements of the list; the range */
    tg_dtype dtype;         /* of values in the frame */
    float *sent;            /* the whole list's, or NULL */
    part_found *found;
    u32 *own;          /* indices in the range, counted from its start */
    float *own_values; /* in the same order */
    u8 *payload;
    const select_control *positions; /* what is known of them */
    control *result;
};

/* The two ends, by a lane each. */
__global__ void __launch_bounds__(32) find_part_kernel(sparse_part p)
{
    const u64 limit = (u64)p.first + (lane_id() ? p.count : 0);
    u32 low = 0, high = p.most;
    while (low < high) {
        const u32 middle = low + (high - low) / 2;
        if (p.indices[middle] < limit)
            low = middle + 1;
        else
            high = middle;
    }
    const u32 from = __shfl_sync(FULL, low, 0), to = __shfl_sync(FULL, low, 1);
    if (lane_id() == 0)
        *p.found = part_found{from, to - from, (u64)(p.dtype == TG_FLOAT32 ? 4 : 2) * (to - from)};
}

__global__ void __launch_bounds__(256) take_part_kernel(sparse_part p)
{
    const part_found found = *p.found;
    for (u32 j = blockIdx.x * 256 + threadIdx.x; j < found.listed; j += gridDim.x * 256) {
        p.own[j] = p.indices[found.from + j] - p.first;
        p.own_values[j] = p.values[found.from + j];
    }
}

__global__ void __launch_bounds__(256) put_part_kernel(sparse_part p)
{
    const part_found found = *p.found;
    u8 *const values = p.payload + 8 + 8 * (u64)p.positions->segments;
    u32 limited = 0;
    for (u32 j = blockIdx.x * 256 + threadIdx.x; j < found.listed; j += gridDim.x * 256) {
        store_element(values, p.dtype, j, p.values[found.from + j], &limited);
        if (p.sent && p.dtype != TG_FLOAT32)
            p.sent[found.from + j] = element_at(values, p.dtype, j);
    }
    if (limited)
        atomicAdd(&p.result->limited, (u64)limited);
}

/* ---- where values become levels ---- */

__global__ void count_part_kernel(const part_found *found, u32 *count) { *count = found->listed; }

/* What the decoder will see. */
__global__ void __launch_bounds__(256) see_part_kernel(sparse_part p, dense_frame levels)
{
    const part_found found = *p.found;
    set_count(levels, found.listed);
    for (u32 j = blockIdx.x * 256 + threadIdx.x; j < found.listed; j += gridDim.x * 256)
        p.sent[found.from + j] = value_at(levels, j);
}

/* Places in the workspace. */
static inline sparse_part part_of(u64 count, u64 most, void *workspace, void **positions, size_t *size)
{
    pieces_of memory = {(u8 *)workspace, 0};
    sparse_part p = {};
    p.found = (part_found *)(void *)memory.take(sizeof(part_found) / 4);
    p.own = memory.take(most + 1);
    p.own_values = (float *)(void *)memory.take(most + 1);
    *positions = memory.take(tg_cuda_positions_workspace(count, most) / 4);
    *size = memory.used;
    return p;
}

size_t tg_cuda_sparse_part_workspace(u64 count, u64 most)
{
    void *positions;
    size_t size;
    (void)part_of(count, most, NULL, &positions, &size);
    return size;
}

#endif
