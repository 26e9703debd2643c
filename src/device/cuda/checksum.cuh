/* The checksum of frames on the card, a tree of digests (docs/format.md, 2), and what else comes last. */
#ifndef TG_DEVICE_CUDA_CHECKSUM_CUH
#define TG_DEVICE_CUDA_CHECKSUM_CUH

#include "device/cuda/undo.cuh"

/* One frame: its payload is digested, and either the header with the checksum is written in front of it, or the
 * checksum is left in the control block. */
struct checksum_job {
    const u8 *payload;    /* on 16 bytes */
    u64 size;             /* of the payload */
    const control *known; /* if not NULL: size and layout are known on the card alone, and are here */
    u64 *digests;         /* room for tg_cuda_digests_room bytes */
    u64 digested;         /* so many of the first leaves have theirs already */
    u8 *frame;            /* where the header goes; NULL: the checksum is left in `result` */
    bool has_checksum;    /* of a frame that is written: else only its header is */
    bool beside; /* it may be made ready while what was put on the stream last works, and nothing does so beside it */
    control *result;
    const uint64_t *step; /* not NULL: what the header has for it, on the card */
    /* Of a frame that was received. Its header on the card, or NULL: where it is another one than `header`, in what
     * decoding depends on, or the checksum is wrong, the result is bad. And scales that are looked at, if there are
     * any. */
    const u8 *header_at;
    bool must_match; /* the checksum: 0 where there is none */
    dense_frame looked_at;
    u64 words;
    undoing undone; /* of a frame that was made with feedback: what is undone where the result is not finite */
    u8 header[TG_HEADER_SIZE]; /* with a checksum of 0 */
    /* Set by tg_cuda_checksum: the blocks of this job, of which the first `node_blocks` have nodes whose leaves have
     * all been digested, and the others 2^shift leaves, the last ones first; counters of what has come to an end. */
    u32 first_block, node_blocks, leaf_blocks, shift;
    u32 *arrivals;
};

size_t tg_cuda_digests_room(u64 payload);
void tg_cuda_checksum(tg_cuda *cuda, const checksum_job *jobs, size_t count);

#endif
