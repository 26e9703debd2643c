/* One pass: source, codec, residual. */
#include "codec/dense.h"

#include <string.h>

size_t tg_dense_unit(uint32_t bucket)
{
    enum { COMFORTABLE = 512 };
    return bucket > COMFORTABLE && TG_BLOCK % bucket == 0 ? bucket : COMFORTABLE;
}

/* Elements before `end` are committed already; puts the residual back to rounding. */
static void undo(tg_job *job, const tg_dense_steps *steps, const void *shape, uint64_t end)
{
    tg_dense_scratch *scratch = job->workspace;
    for (uint64_t first = 0; job->source.residual && first < end; first += TG_BLOCK) {
        size_t n = tg_block_size(end, first);
        steps->replay(job, shape, first, n, scratch->sent);
        tg_source_undo(&job->source, job->kernels, first, n, scratch->sent, &scratch->block);
    }
}

/* The gradient of one block as float32: where it lies, or widened. */
static const float *gradient_at(tg_job *job, uint64_t first, size_t n)
{
    const tg_source *source = &job->source;
    if (source->dtype == TG_FLOAT32)
        return (const float *)source->gradient + first;
    float *wide = ((tg_dense_scratch *)job->workspace)->block.push;
    job->kernels->widen(source->dtype, (const char *)source->gradient + first * tg_dtype_size(source->dtype), n, wide);
    return wide;
}

static bool compose(tg_job *job, const tg_dense_steps *steps, const void *shape, uint64_t first, size_t n)
{
    tg_dense_scratch *scratch = job->workspace;
    const bool feedback = job->source.residual != NULL;
    const float *u = scratch->block.u;
    size_t dropped = 0;
    const float *as_it_lies = (const float *)job->source.gradient + first;
    if (job->source.dtype != TG_FLOAT32 || job->source.drop_nonfinite)
        dropped = tg_source_read(&job->source, job->kernels, first, n, &scratch->block);
    else if (feedback)
        job->kernels->compensate(as_it_lies, job->source.residual + first, job->source.alpha, job->source.beta, n,
                                 scratch->block.u, scratch->block.rest);
    else
        u = as_it_lies;
    /* Codecs meet every u, but with alpha different from beta the rest may overflow where u does not. */
    if (feedback && job->check_finite && job->source.alpha != job->source.beta &&
        job->kernels->first_nonfinite(scratch->block.rest, n) < n)
        return false;
    float *sent = job->sent ? job->sent + first : feedback ? scratch->sent : NULL;
    if (!steps->block(job, shape, first, n, u, sent))
        return false;
    if (feedback)
        tg_source_commit(&job->source, job->kernels, first, n, &scratch->block, sent);
    job->dropped += dropped;
    return true;
}

/* Digests the chunks that are complete, now that elements before `end` are written. */
static void digest_block(tg_job *job, const tg_dense_steps *steps, uint64_t end)
{
    tg_digests *d = &job->digests;
    if (!d->of || steps->bits == 0)
        return;
    for (uint64_t written = steps->start + end * steps->bits / 8; (d->to + 1) * TG_CHUNK <= written; d->to++)
        d->of[d->to] = job->kernels->digest(job->payload + d->to * TG_CHUNK, TG_CHUNK);
}

tg_status tg_dense_encode(tg_job *job, const tg_dense_steps *steps, const void *shape)
{
    const uint64_t count = job->source.count;
    /* A fused kernel notices a bad u by its scale, but not a bad rest (see compose). */
    const bool fusible = steps->fused && !job->sent &&
                         !((job->check_finite || job->source.drop_nonfinite) && job->source.residual &&
                           job->source.alpha != job->source.beta);
    job->digests.from = job->digests.to = (steps->start + TG_CHUNK - 1) / TG_CHUNK;
    for (uint64_t first = 0; first < count; first += TG_BLOCK) {
        const size_t n = tg_block_size(count, first);
        const float *gradient = fusible && n == TG_BLOCK ? gradient_at(job, first, n) : NULL;
        for (size_t done = 0; done < n;) {
            size_t here = gradient ? steps->fused(job, shape, first + done, n - done, gradient + done) : 0;
            if (here == 0) {
                here = steps->unit < n - done ? steps->unit : n - done;
                if (!compose(job, steps, shape, first + done, here)) {
                    undo(job, steps, shape, first + done);
                    return TG_NONFINITE;
                }
            }
            done += here;
        }
        digest_block(job, steps, first + n);
    }
    job->selected = count;
    return TG_OK;
}
