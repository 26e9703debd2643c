/* The coded layouts of quantised levels on the card (docs/format.md, 4.2 to 4.5): written from packed codes, and turned
 * back into them. Both only put kernels on the stream: what they find out lies on the card. */
#ifndef TG_DEVICE_CUDA_CODING_H
#define TG_DEVICE_CUDA_CODING_H

#include "device/cuda/addend.cuh"

extern "C" {
#include "codec/levels.h"
}

/* What has been written, on the card. */
struct tg_coded {
    u64 size;   /* of the payload */
    u32 layout; /* of the header */
    u32 done;
};

/* Bytes that writing needs on the card, besides the packed codes. */
size_t tg_cuda_coding_workspace(const tg_levels_shape *shape);
/* Chooses the layout among those that the shape's coding allows, and writes it. The scales are at the payload's start,
 * which is on 4 bytes. `packed` (on 16 bytes) and the workspace (on 256) are on the card too, and the payload has room
 * for tg_levels_bound and 16 bytes more. `payload` and `layout` of the result are what was written.
 *
 * `known`: NULL, or where the card has the number of levels, which the shape's count is a bound of. Then the payload is
 * made without scales, because their place in it follows from that number. */
void tg_cuda_code_levels(cudaStream_t stream, const tg_levels_shape *shape, const u32 *known, const u8 *packed,
                         void *workspace, u8 *payload, tg_coded *coded, control *result);

/* The layout of an empty vector. */
unsigned tg_cuda_empty_layout(tg_coding coding);

/* What reading a coded layout needs on the card: `host` are its `size` bytes, in host memory. */
size_t tg_cuda_expand_workspace(const tg_levels_shape *shape, unsigned layout, const u8 *host, u64 size);
/* Packed codes (on 16 bytes, with room for whole words) from the bytes that follow the scales of a coded layout, which
 * are on the card, on 4 bytes, with 16 bytes behind them that can be read. Sets result->bad where a rule of the layout
 * is broken, and then the codes mean nothing. The scales are not looked at. */
void tg_cuda_expand_levels(cudaStream_t stream, const tg_levels_shape *shape, unsigned layout, const u8 *host,
                           const u8 *bytes, u64 size, u8 *packed, void *workspace, control *result);

/* What levels in buckets of one group, with codes of 2, 4 or 8 bits, are added to. */
struct tg_coded_sum {
    fast_frame frame; /* its codes are not looked at */
    float weight, scale;
    bool fresh;
    float *out; /* on 16 bytes */
};

/* Adds what the prefix layout has, without making packed codes; the workspace is the same. A payload that breaks a rule
 * sets result->bad, but some of it may have been added by then: so this is for frames that were verified. */
void tg_cuda_add_prefix(cudaStream_t stream, const tg_levels_shape *shape, const u8 *bytes, u64 size,
                        const tg_coded_sum *sum, void *workspace, control *result);

#endif
