/* Where an encoder's values come from: a gradient of any dtype, alone or together with a residual (and DGC's momentum).
 * Values are computed block by block as they are needed, so that compensation costs no pass of its own:
 *
 *     push = gradient                                   or  momentum * m + clip * gradient
 *     u    = push + alpha * residual                    what is encoded
 *     rest = push + beta * residual                     what remains, before the part that is sent is taken off
 */
#ifndef TG_KERNELS_SOURCE_H
#define TG_KERNELS_SOURCE_H

#include "base/any_device.h"
#include "base/pool.h"
#include "kernels/kernels.h"

typedef struct tg_source {
    const void *gradient;
    tg_dtype dtype;
    uint64_t count;
    float *residual; /* NULL: no feedback, u is the gradient */
    float *undo;     /* if not NULL, undo buffer for the old residual; of a whole one, aligned to a cache line */
    /* The new residual may be left in the undo buffer, in the place of the old one's copy, if the job says so
     * (tg_encode_job.moved): its owner then takes that for the residual. */
    bool may_move;
    /* Of a job that is done later. `side` is device memory, or NULL: where it holds 1, the residual is in `other`, and
     * the undo buffer, if there is one, where the residual would be. Where the new residual is left in the undo buffer,
     * it becomes the other number. */
    uint32_t *side;
    float *other;
    float alpha, beta;
    float *momentum; /* NULL but for DGC */
    float momentum_factor, clip_factor;
    bool drop_nonfinite; /* elements whose gradient, u or rest is not finite: as if the gradient were 0 */
    /* Where such values are dropped: for ~index of the first element whose residual or momentum is not finite, 0 while
     * none was found; such elements become 0. NULL: nobody asks. Of a job on a card, device memory. */
    uint64_t *damaged;
} tg_source;

/* One block of a source. */
typedef struct tg_source_block {
    TG_ALIGNED(64) float push[TG_BLOCK];
    float u[TG_BLOCK];
    float rest[TG_BLOCK];
} tg_source_block;

/* Computes the block that starts at element `first`, n <= TG_BLOCK. Without feedback only u is filled. Returns how many
 * elements were dropped as not finite. */
size_t tg_source_read(const tg_source *source, const tg_kernels *kernels, uint64_t first, size_t n,
                      tg_source_block *block);

/* Prefetches the element at `index`. */
static inline void tg_source_prefetch(const tg_source *source, uint64_t index)
{
    __builtin_prefetch((const char *)source->gradient + index * tg_dtype_size(source->dtype));
    if (source->residual)
        __builtin_prefetch(source->residual + index);
    if (source->momentum)
        __builtin_prefetch(source->momentum + index);
}

/* Commits a block to the residual and the momentum: the residual becomes rest - sent (rest where sent is NULL). */
void tg_source_commit(const tg_source *source, const tg_kernels *kernels, uint64_t first, size_t n,
                      const tg_source_block *block, const float *sent);

/* Saves the residual of the n elements from `first` on to the undo buffer, if there is one, before they are
 * committed. */
void tg_source_save(const tg_source *source, const tg_kernels *kernels, uint64_t first, size_t n);

/* Restores the residual of the elements from `first` to `end`, all of which were saved. */
void tg_source_restore(const tg_source *source, uint64_t first, uint64_t end);

/* Whether the residual before a commit can be computed from what was sent. Other factors than 1 would magnify the
 * rounding of what was committed, and with beta = 0 nothing is left of it: then an undo buffer is needed. */
static inline bool tg_source_recomputes(const tg_source *source) { return source->alpha == 1 && source->beta == 1; }

/* Does so, up to rounding and limited to the largest float32, where there is no undo buffer and no momentum. `block` is
 * scratch. */
void tg_source_recompute(const tg_source *source, const tg_kernels *kernels, uint64_t first, size_t n,
                         const float *sent, tg_source_block *block);

/* Index of the first element whose gradient, u or rest is not finite; count if all are. */
uint64_t tg_source_first_nonfinite(const tg_source *source, const tg_kernels *kernels, tg_pool *pool);

#endif
