/* The encoding loop of codecs that send something for every element: read a block, encode it, take what was sent off
 * the residual, all while the block is in the cache; range by range, where there are threads. */
#ifndef TG_CODEC_DENSE_H
#define TG_CODEC_DENSE_H

#include "codec/buckets.h"
#include "codec/codec.h"

/* What a thread works in while it encodes a block: on its stack. */
typedef struct tg_dense_scratch {
    tg_source_block block;
    float sent[TG_BLOCK];
    uint16_t codes[TG_BLOCK];
} tg_dense_scratch;

/* The functions get a copy of the job that has scratch and is theirs alone while they run; what they count there is
 * added up. */
typedef struct tg_dense_steps {
    /* Finds the scale of the bucket from `start` on, before any element is encoded: for buckets that do not lie within
     * blocks. NULL where `block` does it. */
    tg_bucket_step *measure;
    uint64_t bucket; /* what `measure` takes */
    /* Encodes elements first … first + n - 1, which lie within one block, with a fused kernel, residual and all;
     * returns how many it has done (0: none). May be NULL. `gradient` has the values. */
    size_t (*fused)(tg_job *job, const void *shape, uint64_t first, size_t n, const float *gradient);
    /* Encodes elements first … first + n - 1 into the payload; fills `sent` with what the decoder will see unless it is
     * NULL. False if a value is not finite; then nothing of the block counts. */
    bool (*block)(tg_job *job, const void *shape, uint64_t first, size_t n, const float *u, float *sent);
    /* What was sent for a block that has been encoded already. */
    void (*replay)(tg_job *job, const void *shape, uint64_t first, size_t n, float *sent);
    /* Elements that are composed at once, so few that what they need stays in the first-level cache: tg_dense_unit. */
    size_t unit;
    /* Where the elements' bits start in the payload, behind the scales, and how many each takes; 0 bits where they are
     * not written block by block. */
    size_t start;
    unsigned bits;
} tg_dense_steps;

/* At least a bucket, where buckets lie within blocks; else as suits the cache. */
size_t tg_dense_unit(uint32_t bucket);

tg_status tg_dense_encode(tg_job *job, const tg_dense_steps *steps, const void *shape);

#endif
