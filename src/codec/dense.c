/* One pass: source, codec, residual. */
#include "codec/dense.h"

#include <string.h>

/* Blocks before `end` are committed already; puts the residual back to rounding. */
static void undo(tg_job *job, const tg_dense_steps *steps, const void *shape, uint64_t end)
{
    tg_dense_scratch *scratch = job->workspace;
    for (uint64_t first = 0; job->source.residual && first < end; first += TG_BLOCK) {
        steps->replay(job, shape, first, TG_BLOCK, scratch->sent);
        tg_source_undo(&job->source, job->kernels, first, TG_BLOCK, scratch->sent, &scratch->block);
    }
}

tg_status tg_dense_encode(tg_job *job, const tg_dense_steps *steps, const void *shape)
{
    const tg_kernels *k = job->kernels;
    tg_dense_scratch *scratch = job->workspace;
    tg_source_block *block = &scratch->block;
    const bool feedback = job->source.residual != NULL;
    for (uint64_t first = 0; first < job->source.count; first += TG_BLOCK) {
        size_t n = tg_block_size(job->source.count, first);
        job->dropped += tg_source_read(&job->source, k, first, n, block);
        float *sent = job->sent ? job->sent + first : feedback ? scratch->sent : NULL;
        /* Codecs meet every u, but with alpha different from beta the rest may overflow where u does not. */
        bool sound = !job->check_finite || !feedback || job->source.alpha == job->source.beta ||
                     k->first_nonfinite(block->rest, n) == n;
        if (!sound || !steps->block(job, shape, first, n, block->u, sent)) {
            undo(job, steps, shape, first);
            return TG_NONFINITE;
        }
        if (feedback)
            tg_source_commit(&job->source, k, first, n, block, sent);
    }
    job->selected = job->source.count;
    return TG_OK;
}
