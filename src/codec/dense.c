/* One pass over the source: encodes, and updates the residual. */
#include "codec/dense.h"

#include <stdatomic.h>
#include <string.h>

#include "base/numeric.h"
#include "kernels/machine.h"
#include "kernels/ranges.h"

size_t tg_dense_unit(uint32_t bucket)
{
    enum { COMFORTABLE = 512 };
    return bucket > COMFORTABLE && TG_BLOCK % bucket == 0 ? bucket : COMFORTABLE;
}

/* How far a range has come: elements before `done` are committed; for elements before `saved` the old bytes at the
 * place of their codes are in the undo buffer. */
typedef struct progress {
    uint64_t done, saved;
} progress;

/* One call of tg_dense_encode, for all threads. */
typedef struct pass {
    tg_job *job;
    const tg_dense_steps *steps;
    const void *shape;
    tg_ranges ranges;
    bool known_finite;  /* all elements that remain to be encoded are known to be finite */
    progress *progress; /* of each range */
    atomic_bool nonfinite;
    atomic_uint_fast64_t saturated, dropped;
} pass;

/* A thread's own copy of the job. */
static tg_job job_of(const pass *p, tg_dense_scratch *scratch)
{
    tg_job job = *p->job;
    job.pool = NULL;
    job.scratch = scratch;
    job.saturated = job.dropped = 0;
    if (p->known_finite) {
        job.check_finite = false;
        job.undo = NULL;
        job.source.undo = NULL;
    }
    return job;
}

/* The byte in which the code of an element begins. */
static uint64_t byte_of(const tg_dense_steps *steps, uint64_t element) { return element * steps->bits / 8; }

/* ---- the way back, where a value is not finite ---- */

/* Saves the payload's old bytes from `from` to `to`, if there is an undo buffer. */
static void save_payload(const tg_job *job, uint64_t from, uint64_t to)
{
    if (job->undo)
        job->kernels->copy_nontemporal(job->payload + from, (size_t)(to - from), job->undo + from);
}

static void restore_payload(const tg_job *job, uint64_t from, uint64_t to)
{
    if (job->undo)
        memcpy(job->payload + from, job->undo + from, (size_t)(to - from));
}

/* The end of the codes of the elements before this one, where a group or the vector ends. */
static uint64_t byte_after(const tg_dense_steps *steps, uint64_t element) { return (element * steps->bits + 7) / 8; }

/* Saves what the codes of the elements before `end` will overwrite. */
static void save_codes(const tg_job *job, const tg_dense_steps *steps, progress *at, uint64_t end)
{
    if (at->saved < end) {
        save_payload(job, byte_of(steps, at->saved), byte_after(steps, end));
        at->saved = end;
    }
}

/* Restores what has been committed of a range: exactly where there is an undo buffer, otherwise only the residual, up
 * to rounding. */
static void undo_range(void *of, size_t part)
{
    const pass *p = of;
    tg_dense_scratch scratch;
    tg_job job = job_of(p, &scratch);
    const uint64_t start = tg_range_first(&p->ranges, part), end = p->progress[part].done;
    for (uint64_t first = start; job.source.residual && !job.source.undo && first < end; first += TG_BLOCK) {
        size_t n = tg_block_size(end, first);
        p->steps->replay(&job, p->shape, first, n, scratch.block.u);
        tg_source_recompute(&job.source, job.kernels, first, n, scratch.block.u, &scratch.block);
    }
    if (job.source.undo)
        tg_source_restore(&job.source, start, end);
    restore_payload(&job, byte_of(p->steps, start), byte_after(p->steps, p->progress[part].saved));
}

/* ---- encoding ---- */

/* The gradient of one block as float32: a pointer into it, or a converted copy. */
static const float *gradient_at(tg_job *job, uint64_t first, size_t n)
{
    const tg_source *source = &job->source;
    if (source->dtype == TG_FLOAT32)
        return (const float *)source->gradient + first;
    float *wide = job->scratch->block.push;
    job->kernels->widen(source->dtype, (const char *)source->gradient + first * tg_dtype_size(source->dtype), n, wide);
    return wide;
}

/* Writes what is left of a block to the residual. Where alpha and beta are equal, rest is u, and what was sent has the
 * sign of u or is a level next to it: nothing can overflow. Else it may, and is limited to the largest float32. False
 * where the rest itself is not finite: codecs check every u, but not that. */
static bool settle(tg_job *job, uint64_t first, size_t n, const float *sent)
{
    const tg_source *source = &job->source;
    tg_source_block *block = &job->scratch->block;
    if (source->alpha == source->beta) {
        tg_source_commit(source, job->kernels, first, n, block, sent);
        return true;
    }
    float *left = block->u; /* which has been encoded */
    job->kernels->subtract(block->rest, sent, n, left);
    if (job->kernels->first_nonfinite(left, n) < n) {
        if (job->check_finite && job->kernels->first_nonfinite(block->rest, n) < n)
            return false;
        for (size_t i = 0; i < n; i++)
            left[i] = tg_limited(left[i], &job->saturated);
    }
    memcpy(source->residual + first, left, n * sizeof *left);
    return true;
}

static bool compose(tg_job *job, const tg_dense_steps *steps, const void *shape, uint64_t first, size_t n)
{
    tg_dense_scratch *scratch = job->scratch;
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
    /* The gradient alone is not needed any more: codecs of this kind have no momentum. */
    float *sent = job->sent ? job->sent + first : feedback ? scratch->block.push : NULL;
    if (!steps->block(job, shape, first, n, u, sent))
        return false;
    if (feedback && !settle(job, first, n, sent))
        return false;
    job->dropped += dropped;
    return true;
}

/* How many elements to save at a time before a fused kernel writes their codes. With a whole block at a time an encode
 * from memory takes longer by a fifth of the time of `e += g`. */
enum { SAVED_AT_ONCE = 1024 };

/* Encodes one block, from at->done on. False where a value is not finite. */
static bool encode_block(tg_job *job, const tg_dense_steps *steps, const void *shape, size_t n, progress *at)
{
    const bool fusible = steps->fused && !job->sent; /* a fused kernel stops before a u or a rest that is not finite */
    const uint64_t first = at->done, end = first + n;
    const float *gradient = fusible && n == TG_BLOCK ? gradient_at(job, first, n) : NULL;
    while (at->done < end) {
        const size_t left = (size_t)(end - at->done);
        size_t here = 0;
        if (gradient) {
            here = job->undo && steps->unit <= SAVED_AT_ONCE && left > SAVED_AT_ONCE ? SAVED_AT_ONCE : left;
            save_codes(job, steps, at, at->done + here);
            here = steps->fused(job, shape, at->done, here, gradient + (at->done - first));
        }
        if (here == 0) {
            here = steps->unit < left ? steps->unit : left;
            tg_source_save(&job->source, job->kernels, at->done, here);
            save_codes(job, steps, at, at->done + here);
            if (!compose(job, steps, shape, at->done, here))
                return false;
        }
        at->done += here;
    }
    return true;
}

static uint64_t leaf_from(uint64_t byte) { return (byte + TG_LEAF - 1) / TG_LEAF; }

static void digest_leaf(const tg_job *job, uint64_t leaf)
{
    job->digests.of[leaf] = job->kernels->digest(job->payload + leaf * TG_LEAF, TG_LEAF);
}

static void encode_range(void *of, size_t part)
{
    pass *p = of;
    tg_dense_scratch scratch;
    tg_job job = job_of(p, &scratch);
    const bool digests = job.digests.of && p->steps->bits > 0;
    const uint64_t start = tg_range_first(&p->ranges, part), end = tg_range_end(&p->ranges, part);
    uint64_t leaf = leaf_from(byte_of(p->steps, start)); /* the first leaf that lies completely in the range */
    progress at = {start, start};
    while (at.done < end && !atomic_load_explicit(&p->nonfinite, memory_order_relaxed)) {
        if (!encode_block(&job, p->steps, p->shape, tg_block_size(end, at.done), &at))
            atomic_store(&p->nonfinite, true);
        const uint64_t ready = byte_of(p->steps, at.done) / TG_LEAF;
        if (digests && (at.done == end || leaf + tg_digested_at_once() <= ready))
            for (; leaf < ready; leaf++)
                digest_leaf(&job, leaf);
    }
    if (job.undo || job.source.undo)
        job.kernels->nontemporal_fence();
    p->progress[part] = at;
    atomic_fetch_add(&p->saturated, job.saturated);
    atomic_fetch_add(&p->dropped, job.dropped);
}

/* Digests the leaves that belong to two ranges. After this all leaves that the codes fill are known. */
static void digest_seams(const pass *p)
{
    tg_job *job = p->job;
    if (!job->digests.of || p->steps->bits == 0)
        return;
    job->digests.from = 0;
    job->digests.to = (size_t)(byte_of(p->steps, p->ranges.count) / TG_LEAF);
    for (size_t part = 1; part < p->ranges.parts; part++) {
        const uint64_t seam = byte_of(p->steps, tg_range_first(&p->ranges, part));
        if (seam % TG_LEAF != 0 && seam / TG_LEAF < job->digests.to)
            digest_leaf(job, seam / TG_LEAF);
    }
}

/* For a vector that fits the caches, checking it first takes less time than saving wide codes (docs/log/cpu-
 * kernels.md). */
static bool checks_first(const tg_job *job, const tg_dense_steps *steps)
{
    enum { MOST = 1 << 21, WIDE = 16 };
    return job->undo && steps->bits >= WIDE && job->source.count <= MOST;
}

/* Before the pass over all elements: computes scales, and finds out whether all values are finite where that is cheaper
 * in advance. False if one is not. */
static bool prepare(pass *p)
{
    tg_job *job = p->job;
    if (checks_first(job, p->steps)) {
        p->known_finite = true;
        if (tg_source_first_nonfinite(&job->source, job->kernels, job->pool) < job->source.count)
            return false;
    }
    if (p->steps->measure) {
        if (!tg_each_bucket(job, p->steps->bucket, p->steps->measure, p->shape))
            return false;
        /* Every u has been checked. With alpha different from beta the rest may overflow where u does not. */
        p->known_finite = p->known_finite || job->source.alpha == job->source.beta;
    }
    return true;
}

tg_status tg_dense_encode(tg_job *job, const tg_dense_steps *steps, const void *shape)
{
    progress ranges_at[TG_MAX_RANGES];
    pass p = {.job = job, .steps = steps, .shape = shape, .progress = ranges_at};
    const size_t scales_end = steps->scales_at + steps->scales_size;
    save_payload(job, steps->scales_at, scales_end);
    if (!prepare(&p)) {
        restore_payload(job, steps->scales_at, scales_end);
        return TG_NONFINITE;
    }
    p.ranges = tg_ranges_of(job->pool, job->source.count, TG_BLOCK);
    tg_parallel(job->pool, p.ranges.parts, encode_range, &p);
    if (p.nonfinite) {
        tg_parallel(job->pool, p.ranges.parts, undo_range, &p);
        restore_payload(job, steps->scales_at, scales_end);
        return TG_NONFINITE;
    }
    digest_seams(&p);
    job->saturated += p.saturated;
    job->dropped += p.dropped;
    job->selected = job->source.count;
    return TG_OK;
}
