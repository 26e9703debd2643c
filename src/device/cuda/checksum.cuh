/* The checksum of frames on the card: a tree of digests (docs/format.md, 2). */
#ifndef TG_DEVICE_CUDA_CHECKSUM_CUH
#define TG_DEVICE_CUDA_CHECKSUM_CUH

#include "device/cuda/frame.cuh"

/* One frame: its payload is digested, and either the header with the checksum is written in front of it, or the checksum
 * is left in the control block. */
struct checksum_job {
    const u8 *payload;    /* on 16 bytes */
    u64 size;             /* of the payload */
    const control *known; /* if not NULL: size and layout are known on the card alone, and are here */
    u64 *digests;         /* room for tg_cuda_digests_room bytes */
    const u64 *sums;      /* of the first leaves, if not NULL: 32 each, four times eight accumulators */
    u64 summed;           /* leaves that have sums */
    u8 *frame;            /* where the header goes; NULL: the checksum is left in `result` */
    bool has_checksum;    /* of a frame that is written: else only its header is */
    control *result;
    u32 turn;        /* among the jobs that have the same result, 0 to 7 */
    u32 first_block; /* set by tg_cuda_checksum */
    /* Of a frame that was received. Its header on the card, or NULL: where it is another one than `header`, in what
     * decoding depends on, or the checksum is wrong, the result is bad. And scales that are looked at, if there are
     * any. */
    const u8 *header_at;
    bool must_match; /* the checksum: 0 where there is none */
    dense_frame looked_at;
    u64 words;
    u8 header[TG_HEADER_SIZE]; /* with a checksum of 0 */
};

size_t tg_cuda_digests_room(u64 payload);
void tg_cuda_checksum(tg_cuda *cuda, const checksum_job *jobs, size_t count);

#endif
