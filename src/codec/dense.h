/* The encoding loop of codecs that send something for every element: reads a block, encodes it and subtracts what was
 * sent from the residual while the block is in the cache; range by range, where there are threads. */
#ifndef TG_CODEC_DENSE_H
#define TG_CODEC_DENSE_H

#include "codec/buckets.h"
#include "codec/codec.h"

/* Scratch memory of one thread for one block, on its stack. */
typedef struct tg_dense_scratch {
    tg_source_block block;
    uint16_t codes[TG_BLOCK];
} tg_dense_scratch;

/* The functions that make up a codec's encoder. They get a copy of the job that is used by one thread only; what they
 * count there is added up afterwards. */
typedef struct tg_dense_steps {
    /* Computes the scale of the bucket from `start` on before any element is encoded: for buckets that do not lie
     * within blocks. NULL where `block` does it. */
    tg_bucket_step *measure;
    uint64_t bucket; /* elements of a bucket, for `measure` */
    /* Encodes elements first … first + n - 1, which lie within one block, with a fused kernel, including the residual;
     * returns how many it has done (0: none). May be NULL. `gradient` holds the values. */
    size_t (*fused)(tg_job *job, const void *shape, uint64_t first, size_t n, const float *gradient);
    /* Encodes elements first … first + n - 1 into the payload; fills `sent` with what the decoder will see unless it is
     * NULL. False if a value is not finite; then the block counts as not encoded. */
    bool (*block)(tg_job *job, const void *shape, uint64_t first, size_t n, const float *u, float *sent);
    /* Computes what was sent for a block that has been encoded already. */
    void (*replay)(tg_job *job, const void *shape, uint64_t first, size_t n, float *sent);
    /* Elements that are encoded at a time without a fused kernel; few enough for the first-level cache:
     * tg_dense_unit. */
    size_t unit;
    /* Bits of a code; codes fill the payload from its start on. 0 where they are not written to it block by block. */
    unsigned bits;
    /* Where the scales lie in the payload. */
    size_t scales_at, scales_size;
} tg_dense_steps;

/* At least a bucket, where buckets lie within blocks; otherwise what fits the cache best. */
size_t tg_dense_unit(uint32_t bucket);

tg_status tg_dense_encode(tg_job *job, const tg_dense_steps *steps, const void *shape);

#endif
